//! The state directory: the node's keys for WireGuard and IPsec, mode 0600 in a directory of mode 0700, and whose gateway it
//! is.
//!
//! The key is made once. Upstream ignores a changed Endpoint under a known key, so the key is renewed when what
//! peers have to learn with it changes: subnets, address or port. What it was made for is kept beside it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use trieste_cables::keys::{self, Secret};
use trieste_cables::wireguard::WireguardKind;

const KEY_FILE: &str = "wireguard.key";
const IPSEC_KEY_FILE: &str = "ipsec.key";
const FACTS_FILE: &str = "wireguard.for";
const CLUSTER_FILE: &str = "cluster-id";

/// Why the state directory is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The kernel refused.
    #[error(
        "state directory: cannot {what} {path}: {source}; set state-dir to a directory that this process may write"
    )]
    Io {
        /// The operation.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The node was another cluster's gateway, whose objects are still there and would win over ours.
    #[error(
        "cluster-id was {before:?} and is {now:?}: the old cluster's objects would stay on the broker and keep its \
         subnets. Remove it first (trieste-gateway --uninstall with cluster-id {before}), or, if that was done, remove {path}"
    )]
    Renamed {
        /// The ID that was used here before.
        before: String,
        /// The configured one.
        now: String,
        /// Where it is remembered.
        path: PathBuf,
    },
    /// The key file holds something else.
    #[error("state directory: {path} is no key ({problem}); move it away and start again to make a new one")]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

/// Makes the directory if it is missing, and lets only its owner in.
///
/// # Errors
/// [`StateError::Io`].
pub fn prepare(dir: &Path) -> Result<(), StateError> {
    let failed = |what| move |source| StateError::Io { what, path: dir.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("make"))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed("protect"))
}

/// Checks that the node was no other cluster's gateway, and remembers whose it is.
///
/// # Errors
/// [`StateError::Renamed`], or what the kernel says.
pub fn claim_cluster(dir: &Path, cluster_id: &str) -> Result<(), StateError> {
    let path = dir.join(CLUSTER_FILE);
    match fs::read_to_string(&path) {
        Ok(before) if before.trim() != cluster_id => {
            Err(StateError::Renamed { before: before.trim().to_owned(), now: cluster_id.to_owned(), path })
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write(&path, &format!("{cluster_id}\n")),
        Err(source) => Err(StateError::Io { what: "read", path, source }),
    }
}

/// Returns the path of the file that remembers which broker a directory held, so that an empty mount point is not taken for
/// a broker without clusters. There is one file for each `broker`.
#[must_use]
pub fn broker_memory(dir: &Path, broker: &Path) -> PathBuf {
    let name: String = broker
        .to_string_lossy()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
        .collect();
    let start = name.len().saturating_sub(200);
    dir.join(format!("broker{}.id", &name[start..]))
}

/// Returns `true` if files in the directory outlive the container: if it is on another mount than the root, or that cannot
/// be determined.
#[must_use]
pub fn is_volume(dir: &Path) -> bool {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    !fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| is_on_root(&mounts, &dir))
}

/// Returns `true` if no mount but the root's holds the path. `mounts` is the text of `/proc/PID/mountinfo`.
fn is_on_root(mounts: &str, path: &Path) -> bool {
    // Blanks in names are written as `\040`; such a mount point is none of a state directory's.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    !points.filter(|point| *point != Path::new("/")).any(|point| path.starts_with(point))
}

/// Removes the key, the record of the gateway label, and the identities of brokers.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub fn remove_files(dir: &Path) -> Result<(), StateError> {
    let failed = |what| move |source| StateError::Io { what, path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("list"))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let brokers: Vec<String> =
        names.filter(|name| name.starts_with("broker") && name.ends_with(".id")).collect();
    let brokers = brokers.iter().map(String::as_str);
    // The cluster's name goes last: until then the node is its gateway's.
    let files: Vec<&str> = brokers.chain([KEY_FILE, IPSEC_KEY_FILE, FACTS_FILE, CLUSTER_FILE]).collect();
    remove(dir, &files).map_err(failed("remove files from"))?;
    // Other files stay, and a volume stays a volume.
    let _ = fs::remove_dir(dir);
    Ok(())
}

/// Removes files and what an interrupted write has left of them.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub(crate) fn remove(dir: &Path, names: &[&str]) -> io::Result<()> {
    for name in names {
        let path = dir.join(name);
        for path in [path.with_extension("new"), path] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the node's private key: the one on disk if it was made for the same `facts` (a text that changes when subnets,
/// address or port do), else a new one.
///
/// # Errors
/// [`StateError`].
pub fn private_key(dir: &Path, facts: &str) -> Result<Secret, StateError> {
    let path = dir.join(KEY_FILE);
    let facts_path = dir.join(FACTS_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let key = parse(&path, &text)?;
            match fs::read_to_string(&facts_path) {
                Ok(known) if known != facts => {
                    tracing::info!("subnets, address or port changed: making a new WireGuard key");
                }
                Ok(_) => return Ok(key),
                Err(_) => {
                    // Next time it is asked again; a full disk must not keep a gateway with a good key from starting.
                    if let Err(error) = write(&facts_path, facts) {
                        tracing::warn!(%error, "cannot save the parameters of the WireGuard key");
                    }
                    return Ok(key);
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(StateError::Io { what: "read", path, source }),
    }
    let key = make_key(&path)?;
    write(&facts_path, facts)?;
    Ok(key)
}

/// Records that peers have learnt these `facts` under the WireGuard key that there is, which a later start then keeps.
///
/// # Errors
/// [`StateError`].
pub fn keep_key_for(dir: &Path, facts: &str) -> Result<(), StateError> {
    if dir.join(KEY_FILE).exists() { write(&dir.join(FACTS_FILE), facts) } else { Ok(()) }
}

/// Returns the key by which other Trieste gateways authenticate this one's IPsec cables: the one on disk, or a new one.
///
/// # Errors
/// [`StateError`].
pub fn ipsec_key(dir: &Path) -> Result<Secret, StateError> {
    let path = dir.join(IPSEC_KEY_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(&path),
        Err(source) => Err(StateError::Io { what: "read", path, source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Secret, StateError> {
    keys::parse(text).map_err(|problem| StateError::BadKey { path: path.to_owned(), problem })
}

fn make_key(path: &Path) -> Result<Secret, StateError> {
    let key = WireguardKind::generate_private_key();
    write(path, &format!("{}\n", keys::emit(&key)))?;
    Ok(key)
}

/// Writes a file whole or not at all, readable by its owner only.
///
/// # Errors
/// The kernel's error.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), StateError> {
    let temporary = path.with_extension("new");
    let failed = |what| move |source| StateError::Io { what, path: path.to_owned(), source };
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(failed("write"))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write"))?;
    fs::rename(&temporary, path).map_err(failed("replace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_renewed_with_the_facts() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state");
        prepare(&dir).unwrap();
        let first = private_key(&dir, "10.1.0.0/16").unwrap();
        assert_eq!(private_key(&dir, "10.1.0.0/16").unwrap(), first);
        let second = private_key(&dir, "10.9.0.0/16").unwrap();
        assert_ne!(second, first);
        assert_eq!(private_key(&dir, "10.9.0.0/16").unwrap(), second);
        keep_key_for(&dir, "10.7.0.0/16").unwrap();
        assert_eq!(private_key(&dir, "10.7.0.0/16").unwrap(), second, "known under the same key");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(KEY_FILE))), (0o700, 0o600));
    }

    #[test]
    fn every_broker_is_remembered_in_a_file_of_its_own_in_the_directory() {
        let dir = Path::new("/state");
        assert_eq!(broker_memory(dir, Path::new("/mnt/a b/../x")), dir.join("broker-mnt-a-b-..-x.id"));
        assert_ne!(broker_memory(dir, Path::new("/a")), broker_memory(dir, Path::new("/b")));
        let long = "/x".repeat(300);
        assert!(broker_memory(dir, Path::new(&long)).file_name().unwrap().len() < 255);
    }

    #[test]
    fn a_renamed_cluster_is_refused_until_the_old_one_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        claim_cluster(dir.path(), "east").unwrap();
        claim_cluster(dir.path(), "east").unwrap();
        let error = claim_cluster(dir.path(), "east-1").unwrap_err().to_string();
        assert!(error.contains("--uninstall with cluster-id east"), "{error}");
        remove_files(dir.path()).unwrap();
        remove_files(dir.path()).unwrap();
        prepare(dir.path()).unwrap();
        claim_cluster(dir.path(), "east-1").unwrap();
    }

    #[test]
    fn nothing_of_ours_is_left_and_nothing_of_others_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state");
        let fill = || {
            prepare(&dir).unwrap();
            claim_cluster(&dir, "east").unwrap();
            private_key(&dir, "10.1.0.0/16").unwrap();
            write(&broker_memory(&dir, Path::new("/broker")), "id").unwrap();
        };
        fill();
        remove_files(&dir).unwrap();
        assert!(!dir.exists());
        fill();
        fs::write(dir.join("notes"), "mine").unwrap();
        remove_files(&dir).unwrap();
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes"]);
    }

    #[test]
    fn a_volume_is_a_mount_other_than_the_root() {
        let mounts = "21 1 0:20 / / rw,relatime - overlay overlay rw\n\
                      22 21 0:21 / /proc rw - proc proc rw\n\
                      40 21 8:1 /lib/kubelet/x /var/lib/trieste rw - ext4 /dev/sda1 rw\n";
        assert!(!is_on_root(mounts, Path::new("/var/lib/trieste")));
        assert!(!is_on_root(mounts, Path::new("/var/lib/trieste/state")));
        assert!(is_on_root(mounts, Path::new("/var/lib/trieste-2")));
        assert!(is_on_root(mounts, Path::new("/var/lib")));
    }

    #[test]
    fn a_broken_key_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(KEY_FILE), "what").unwrap();
        let error = private_key(dir.path(), "x").unwrap_err().to_string();
        assert!(error.contains("wireguard.key"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join(KEY_FILE)).unwrap(), "what");
    }
}
