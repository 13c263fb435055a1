//! What a gateway remembers over a restart, so that it carries traffic again before any API server has answered.
//!
//! One JSON file in the state directory. It is a cache: whatever the stores say later wins, and without it everything
//! is asked anew.

use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trieste_control::api::Object;
use trieste_control::publicip;

use crate::settings::NodeSettings;
use crate::state;

const FILE: &str = "remembered.json";
/// Where a file goes that cannot be understood.
const ASIDE: &str = "remembered.bad";
/// Largest file that is read. Ours: 1,000 Endpoints are under 2 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// What is remembered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Remembered {
    /// Whether this gateway was the one that carried traffic.
    pub was_active: bool,
    /// The Endpoint objects of the local store, others' and ours.
    pub endpoints: Vec<Object>,
    /// The Node object's settings.
    pub node: Option<NodeSettings>,
    /// The public address that was found last.
    pub public_ip: Option<IpAddr>,
    /// The resolver that had said so.
    pub public_ip_resolver: Option<String>,
}

impl Remembered {
    /// The public address and the resolver that had said so.
    #[must_use]
    pub fn last_address(&self) -> Option<publicip::Remembered> {
        let (address, resolver) = (self.public_ip?, self.public_ip_resolver.clone()?);
        Some(publicip::Remembered { address, resolver })
    }
}

/// The file and what it is known to hold.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    written: Option<Remembered>,
}

impl Memory {
    /// The memory of a state directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE), written: None }
    }

    /// Reads what is remembered; `None` if nothing is. A file that cannot be understood is set aside.
    pub fn load(&mut self) -> Option<Remembered> {
        let text = match read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "what was remembered cannot be read");
                return None;
            }
        };
        match serde_json::from_str::<Remembered>(&text) {
            Ok(remembered) => {
                self.written = Some(remembered.clone());
                Some(remembered)
            }
            Err(error) => {
                let aside = self.path.with_file_name(ASIDE);
                tracing::warn!(path = %self.path.display(), aside = %aside.display(), %error, "what was remembered makes no sense; set aside");
                // It is only a cache: if it stays, it is written over.
                let _ = fs::rename(&self.path, aside);
                None
            }
        }
    }

    /// Whether saving `remembered` would change the file.
    #[must_use]
    pub fn is_news(&self, remembered: &Remembered) -> bool {
        self.written.as_ref() != Some(remembered)
    }

    /// Writes the file, off the runtime's threads.
    ///
    /// # Errors
    /// What the kernel says, as a sentence.
    pub async fn save(&mut self, remembered: Remembered) -> Result<(), String> {
        let path = self.path.clone();
        let written = remembered.clone();
        let outcome = tokio::task::spawn_blocking(move || {
            let text = serde_json::to_string(&remembered).map_err(|error| error.to_string())?;
            state::write(&path, &text).map_err(|error| error.to_string())
        })
        .await
        .map_err(|error| error.to_string())
        .flatten();
        // Not again and again if it fails: the next change tries again.
        self.written = Some(written);
        outcome
    }
}

/// Forgets everything.
///
/// # Errors
/// What the kernel says; that there was nothing is no error.
pub fn forget(dir: &Path) -> io::Result<()> {
    state::remove(dir, &[FILE, ASIDE])
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn remembered() -> Remembered {
        let node = NodeSettings { udp_port: Some(4501), ..NodeSettings::default() };
        Remembered {
            was_active: true,
            node: Some(node),
            public_ip: Some(IpAddr::from([192, 0, 2, 1])),
            ..Remembered::default()
        }
    }

    #[tokio::test]
    async fn what_was_saved_is_loaded_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut memory = Memory::new(dir.path());
        assert_eq!(memory.load(), None);
        memory.save(remembered()).await.unwrap();
        assert!(!memory.is_news(&remembered()));
        let mut later = Memory::new(dir.path());
        assert_eq!(later.load(), Some(remembered()));
        assert!(!later.is_news(&remembered()));
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        forget(dir.path()).unwrap();
        forget(dir.path()).unwrap();
        assert_eq!(Memory::new(dir.path()).load(), None);
    }

    #[test]
    fn a_spoiled_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{\"was-active\": 7}").unwrap();
        assert_eq!(Memory::new(dir.path()).load(), None);
        assert!(dir.path().join("remembered.bad").exists());
    }
}
