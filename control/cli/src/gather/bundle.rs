//! Where what is gathered goes: a directory with files, each bounded, none with a secret.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::redact::Redactor;

/// Ours: the largest file in bytes; what is beyond is left out.
pub(super) const MAX_FILE: usize = 16 << 20;
/// Ours: all files of a cluster together, in bytes.
const MAX_BYTES: usize = 1 << 30;
/// Ours: how many files a cluster has at most.
const MAX_FILES: usize = 20_000;

/// One cluster's directory.
pub(super) struct Bundle {
    directory: PathBuf,
    /// Nothing is taken out without one.
    redactor: Option<Redactor>,
    written: RefCell<Written>,
}

/// What is in the directory, and what is not.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Names and sizes in bytes.
    pub(super) files: Vec<(String, usize)>,
    /// What could not be gathered, and why.
    pub(super) missing: Vec<String>,
    pub(super) bytes: usize,
}

impl Bundle {
    /// Makes the directory, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made, or exists.
    pub(super) fn create(directory: PathBuf, redactor: Option<Redactor>) -> anyhow::Result<Self> {
        if directory.exists() {
            bail!("{} exists already; name another directory with --dir", directory.display());
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.with_context(|| format!("cannot make the directory {}", directory.display()))?;
        Ok(Self { directory, redactor, written: RefCell::default() })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes an object as YAML.
    ///
    /// # Errors
    /// When the disk takes no more.
    pub(super) fn object(&self, name: &str, mut object: Value) -> anyhow::Result<()> {
        if let Some(redactor) = &self.redactor {
            redactor.object(&mut object);
        }
        self.write(name, serde_saphyr::to_string(&object)?.as_bytes())
    }

    /// Writes text: a log, or what a command printed. Bytes that are no text are replaced.
    ///
    /// # Errors
    /// When the disk takes no more.
    pub(super) fn text(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        match &self.redactor {
            Some(redactor) => self.write(name, redactor.text(&text).as_bytes()),
            None => self.write(name, text.as_bytes()),
        }
    }

    /// Notes that something is not there. Reasons come from elsewhere, so they are cleaned too.
    pub(super) fn miss(&self, what: &str) {
        let what = self.redactor.as_ref().map_or_else(|| what.to_owned(), |redactor| redactor.text(what));
        self.written.borrow_mut().missing.push(what);
    }

    /// What was written so far.
    pub(super) fn written(&self) -> std::cell::Ref<'_, Written> {
        self.written.borrow()
    }

    /// Writes a file of our own making, such as the summary.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let name = file_name(name);
        let kept = &bytes[..bytes.len().min(MAX_FILE)];
        let mut written = self.written.borrow_mut();
        if written.files.len() >= MAX_FILES || written.bytes + kept.len() > MAX_BYTES {
            written.missing.push(format!("{name}: there is no more room in what is gathered"));
            return Ok(());
        }
        write_file(&self.directory.join(&name), kept)?;
        if kept.len() < bytes.len() {
            written.missing.push(format!("{name}: what is beyond {} MiB", MAX_FILE >> 20));
        }
        written.bytes += kept.len();
        written.files.push((name, kept.len()));
        Ok(())
    }
}

/// Writes a file that its owner alone can read.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(bytes));
    written.with_context(|| format!("cannot write {}; is the disk full?", path.display()))
}

/// A name from elsewhere as one of a file: no folders, nothing that a shell or another system minds.
pub(super) fn file_name(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let name: String = name.chars().map(|c| if is_fine(c) { c } else { '_' }).take(200).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_from_elsewhere_stay_in_the_directory() {
        assert_eq!(file_name("../../etc/passwd"), "_.._.._etc_passwd");
        assert_eq!(file_name("clusters_ns_cluster-a.yaml"), "clusters_ns_cluster-a.yaml");
    }

    #[test]
    fn no_kind_of_file_has_a_secret() {
        let root = tempfile::tempdir().unwrap();
        let mut redactor = Redactor::default();
        redactor.learn(&[json!({"kind": "Secret", "stringData": {"psk": "hush-hush-hush"}})]);
        let bundle = Bundle::create(root.path().join("c"), Some(redactor)).unwrap();
        bundle.object("o", json!({"kind": "Pod", "spec": {"x": "hush-hush-hush"}})).unwrap();
        bundle.text("log", b"\xff said hush-hush-hush").unwrap();
        bundle.miss("log: hush-hush-hush is wrong");
        for file in ["o", "log"] {
            let text = fs::read_to_string(root.path().join("c").join(file)).unwrap();
            assert!(!text.contains("hush") && text.contains("redacted"), "{text}");
        }
        assert_eq!(bundle.written().missing, ["log: ##redacted## is wrong"]);
        assert!(Bundle::create(root.path().join("c"), None).is_err(), "an older directory is left alone");
    }

    #[test]
    fn a_file_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(root.path().join("c"), None).unwrap();
        bundle.text("log", &vec![b'x'; MAX_FILE + 1]).unwrap();
        assert_eq!(bundle.written().files, [("log".to_owned(), MAX_FILE)]);
        assert_eq!(bundle.written().missing.len(), 1);
    }
}
