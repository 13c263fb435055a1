//! Keys beside a capture, in the files that Wireshark reads them from: a folder that it takes for its profile.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use rustix::fs::OFlags;
use trieste_control::admin::{CaptureSecrets, SECRETS_PATH};

use crate::output::{printable, remark};
use crate::socket;

/// Ours: more than the keys of 10,000 peers, in bytes.
const MAX_LINE: usize = 32 << 20;

/// A capture, and the keys to it, are their owner's to read, and nobody else's.
pub(super) const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// What makes Wireshark decrypt, and check what it has decrypted.
const PREFERENCES: [&str; 2] =
    ["esp.enable_encryption_decode: TRUE", "esp.enable_authentication_check: TRUE"];

/// The gateway's documents, as they come.
pub(super) struct Source {
    pieces: BoxStream<'static, anyhow::Result<Bytes>>,
    rest: Vec<u8>,
}

impl Source {
    /// Asks the gateway.
    ///
    /// # Errors
    /// When it has no keys to give, or does not answer.
    pub(super) async fn open(socket: &Path) -> anyhow::Result<Self> {
        let body = socket::open(socket, SECRETS_PATH).await?.into_body();
        let pieces = body.into_data_stream().map(|piece| piece.map_err(anyhow::Error::from));
        Ok(Self { pieces: pieces.boxed(), rest: Vec::new() })
    }

    /// The next document; `None` when there will be no more.
    async fn next(&mut self) -> anyhow::Result<Option<CaptureSecrets>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).context("the gateway's keys cannot be read")?));
            }
            if self.rest.len() > MAX_LINE {
                bail!("the gateway's keys do not end");
            }
            match self.pieces.next().await {
                Some(piece) => self.rest.extend_from_slice(&piece?),
                None => return Ok(None),
            }
        }
    }

    /// Writes what comes, until nothing more does.
    pub(super) async fn follow(mut self, mut folder: Folder) {
        loop {
            let added = match self.next().await {
                Ok(Some(secrets)) => folder.add(&secrets),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = added {
                remark(&format!("no more keys are written: {error:#}"));
                return;
            }
        }
    }
}

/// The folder with the tables. Lines are only ever added, each once.
pub(super) struct Folder {
    esp_sa: Table,
    ikev2_decryption_table: Table,
    named: BTreeSet<String>,
}

impl Folder {
    /// Where the keys of a capture into `file` go unless they are told elsewhere.
    pub(super) fn beside(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(".secrets");
        name.into()
    }

    /// Makes the folder, or goes on with an older one.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make the folder {}", path.display()));
            }
            Ok(()) | Err(_) => {}
        }
        let mut preferences = Table::open(&path.join("preferences"))?;
        for line in PREFERENCES {
            preferences.add(line)?;
        }
        Ok(Self {
            esp_sa: Table::open(&path.join("esp_sa"))?,
            ikev2_decryption_table: Table::open(&path.join("ikev2_decryption_table"))?,
            named: BTreeSet::new(),
        })
    }

    fn add(&mut self, secrets: &CaptureSecrets) -> anyhow::Result<()> {
        for line in &secrets.esp_sa {
            self.esp_sa.add(line)?;
        }
        for line in &secrets.ikev2_decryption_table {
            self.ikev2_decryption_table.add(line)?;
        }
        for what in &secrets.unreadable {
            let what = printable(what);
            self.esp_sa.add(&format!("# {what}"))?;
            if self.named.insert(what.clone()) {
                remark(&format!("warning: {what}"));
            }
        }
        Ok(())
    }
}

/// A file of lines, in the order in which they came.
struct Table {
    path: PathBuf,
    file: File,
    lines: BTreeSet<String>,
}

impl Table {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write keys to {}", path.display());
        // Not through a link that somebody else has put there.
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(FILE_MODE).custom_flags(no_links);
        let file = options.open(path).with_context(cannot)?;
        file.set_permissions(Permissions::from_mode(FILE_MODE)).with_context(cannot)?;
        let lines: Result<_, _> = BufReader::new(&file).lines().collect();
        let lines = lines.with_context(|| format!("{} is no table of Wireshark's", path.display()))?;
        Ok(Self { path: path.to_owned(), file, lines })
    }

    fn add(&mut self, line: &str) -> anyhow::Result<()> {
        if line.contains(['\n', '\r']) {
            bail!("the gateway gave two lines for one");
        }
        if self.lines.insert(line.to_owned()) {
            // In one piece: Wireshark may read it at any time.
            let written = self.file.write_all(format!("{line}\n").as_bytes());
            written.with_context(|| format!("cannot write keys to {}", self.path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn secrets(esp: &[&str], ike: &[&str], unreadable: &[&str]) -> CaptureSecrets {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        CaptureSecrets {
            esp_sa: owned(esp),
            ikev2_decryption_table: owned(ike),
            unreadable: owned(unreadable),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_that_come_and_go_stay_in_the_files_each_once() {
        let scratch = tempfile::tempdir().unwrap();
        let path = Folder::beside(&scratch.path().join("a.pcapng"));
        let mut folder = Folder::open(&path).unwrap();
        folder.add(&secrets(&["one"], &["ike"], &[])).unwrap();
        folder.add(&secrets(&["one", "two"], &[], &["SA 7: no chacha"])).unwrap();
        folder.add(&secrets(&["two"], &["ike"], &["SA 7: no chacha"])).unwrap();
        drop(folder);
        // A later capture goes on where this one ended.
        Folder::open(&path).unwrap().add(&secrets(&["two", "three"], &[], &[])).unwrap();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!(read("esp_sa"), "one\ntwo\n# SA 7: no chacha\nthree\n");
        assert_eq!(read("ikev2_decryption_table"), "ike\n");
        assert_eq!(read("preferences").lines().count(), 2);
        assert_eq!(path.file_name().unwrap(), "a.pcapng.secrets");
    }

    #[test]
    fn only_the_owner_reads_them() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("keys");
        Folder::open(&path).unwrap();
        fs::set_permissions(path.join("esp_sa"), Permissions::from_mode(0o644)).unwrap();
        Folder::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        for name in ["esp_sa", "ikev2_decryption_table", "preferences"] {
            assert_eq!(mode(&path.join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let precious = scratch.path().join("precious");
        fs::write(&precious, "data").unwrap();
        let path = scratch.path().join("keys");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&precious, path.join("esp_sa")).unwrap();
        let error = Folder::open(&path).err().unwrap().to_string();
        assert!(error.contains("esp_sa"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
    }

    #[test]
    fn a_line_of_the_gateway_is_one_line_of_the_file() {
        let scratch = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(&scratch.path().join("keys")).unwrap();
        assert!(folder.add(&secrets(&["a\nb"], &[], &[])).is_err());
    }
}
