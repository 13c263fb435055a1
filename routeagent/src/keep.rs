//! Restores the fail-closed state after a reboot, before any API server has answered.
//!
//! A reboot loses routes and packet filter, and kubelets start pods at once, long before a store can be read. So the
//! refused networks and the guard are kept in a file of the state directory, and restored before anything else. This
//! only adds to a node; the first pass decides what is removed.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::change::Change;
use crate::constants::TABLE_MAIN;
use crate::guard::{GuardChange, ObservedGuard};
use crate::hostnet::{Guard, Hop, HostNet, Route};
use crate::observed::Observed;
use crate::port::{Host, Query};

const FILE: &str = "closed.json";
/// File with the addresses of host names (`names.rs`).
pub(crate) const NAMES_FILE: &str = "names.json";
/// Version of the file's format; others are not read.
const VERSION: u32 = 1;
/// Ours: largest file; 10,000 networks are under 1 MiB.
const MAX_BYTES: u64 = 4 << 20;

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    version: u32,
    cluster: String,
    networks: BTreeSet<IpNet>,
    guard: Guard,
}

impl Closed {
    /// Returns the part of a node's network that fails closed.
    #[must_use]
    pub fn of(cluster: &str, hostnet: &HostNet) -> Self {
        let refusals =
            hostnet.routes.iter().filter(|route| route.table == TABLE_MAIN && route.hop == Hop::Unreachable);
        let mut guard = hostnet.guard.clone().unwrap_or_default();
        // A reboot takes the settings, too.
        guard.loosened.clear();
        let networks = refusals.map(|route| route.destination).collect();
        Self { version: VERSION, cluster: cluster.to_owned(), networks, guard }
    }

    /// Reads the file of a state directory. A file that cannot be used is logged, and ignored.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        let path = directory.join(FILE);
        let read = || -> io::Result<Self> {
            let mut text = String::new();
            fs::File::open(&path)?.take(MAX_BYTES).read_to_string(&mut text)?;
            let closed: Self = serde_json::from_str(&text)?;
            let is_current = closed.version == VERSION;
            is_current.then_some(closed).ok_or_else(|| io::Error::other("it is of another version"))
        };
        match read() {
            Ok(closed) => Some(closed),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                warn!(file = %path.display(), %error, "cannot read the fail-closed state of the last boot");
                None
            }
        }
    }

    /// Writes the file atomically, readable by its owner only. Does nothing where there is no directory.
    ///
    /// # Errors
    ///
    /// It cannot be written, or is too large.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        if !directory.is_dir() {
            return Ok(());
        }
        let text = serde_json::to_vec(self)?;
        if text.len() as u64 >= MAX_BYTES {
            return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
        }
        put(directory, FILE, &text)
    }

    /// Returns the changes that restore what is missing on a node whose cluster has these networks now.
    #[must_use]
    pub fn missing(&self, own: &[IpNet], observed: &Observed) -> Vec<Change> {
        let is_own = |net: &IpNet| own.iter().any(|own| own.contains(net) || net.contains(own));
        // The node would lose a network of its own.
        let is_nodes =
            |net: &IpNet| observed.addresses.iter().any(|address| address.network.trunc().contains(net));
        let refusals = self.networks.iter().filter(|net| !is_own(net) && !is_nodes(net));
        let mut changes: Vec<Change> = refusals
            .map(|net| Route::unreachable(TABLE_MAIN, *net))
            .filter(|route| observed.families.contains(&route.family()))
            .filter(|route| !observed.routes.iter().any(|there| there.is_in_the_place_of(route)))
            .map(Change::AddRoute)
            .collect();
        if observed.guard == ObservedGuard::Absent {
            let mut guard = self.guard.clone();
            guard.remote.retain(|net| !is_own(net));
            // Routers and devices may be others since then: the first pass opens these again.
            guard.beside.clear();
            changes.push(Change::Guard(GuardChange::Build(guard.into())));
        }
        changes
    }
}

/// Writes a file into a state directory atomically, readable by its owner only. Does nothing where there is no directory.
pub(crate) fn put(directory: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    let fresh = fresh(directory, name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(text).and_then(|()| file.sync_all())?;
    fs::rename(fresh, directory.join(name))
}

/// Returns where a file is written before it takes its place.
fn fresh(directory: &Path, name: &str) -> PathBuf {
    directory.join(name).with_extension("json.new")
}

/// Restores the routes and the guard of the file, as far as they are missing. Failures are logged; the first pass retries
/// everything.
pub async fn restore_closed(host: &impl Host, directory: &Path, cluster: Option<&str>, own: &[IpNet]) {
    let Some(closed) = Closed::read(directory) else { return };
    if cluster.is_some_and(|cluster| cluster != closed.cluster) {
        info!(cluster = closed.cluster, "fail-closed state not restored: it is another cluster's");
        return;
    }
    let observed = match host.observe(&Query::default()).await {
        Ok(observed) => observed,
        Err(error) => {
            warn!(%error, "cannot restore the fail-closed state of the last boot");
            return;
        }
    };
    let changes = closed.missing(own, &observed);
    for change in &changes {
        match host.apply(change).await {
            Ok(()) => info!(%change, "restored"),
            Err(error) => warn!(%change, %error, "cannot restore"),
        }
    }
}

/// Removes the files from a state directory, and what a write that was broken off has left of them.
///
/// # Errors
///
/// It cannot be removed; that there was nothing is no error.
pub fn remove_files(directory: &Path) -> io::Result<()> {
    let files = [FILE, NAMES_FILE].map(|name| [fresh(directory, name), directory.join(name)]);
    for file in files.as_flattened() {
        match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::DeviceAddress;

    #[test]
    fn what_is_kept_is_read_back_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("state");
        closed().write(&directory).unwrap();
        assert_eq!(Closed::read(&directory), None, "there is no directory");
        fs::create_dir(&directory).unwrap();
        closed().write(&directory).unwrap();
        assert_eq!(Closed::read(&directory), Some(closed()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join(FILE))), (0o700, 0o600));
        fs::write(directory.join(FILE), r#"{"version":2}"#).unwrap();
        assert_eq!(Closed::read(&directory), None);
        // Of writes that were broken off.
        for name in [FILE, NAMES_FILE] {
            fs::write(fresh(&directory, name), "{").unwrap();
        }
        remove_files(&directory).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        remove_files(&directory).unwrap();
    }

    #[test]
    fn only_what_is_missing_is_put_back_and_nothing_that_became_the_nodes_or_clusters_own() {
        let texts = |own: &[&str], observed: &Observed| {
            let own: Vec<IpNet> = own.iter().map(|net| net.parse().unwrap()).collect();
            closed().missing(&own, observed).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let refusal = "add unreachable 10.2.0.0/16 table main metric 4278198272";
        let build = "build nftables table inet trieste guarding 1 networks";
        assert_eq!(texts(&[], &Observed::default()), [refusal, build]);
        assert_eq!(texts(&["10.2.0.0/15"], &Observed::default())[0].split(' ').next(), Some("build"));
        let mut there = Observed { guard: ObservedGuard::Unknown, ..Observed::default() };
        assert_eq!(texts(&[], &there), [refusal]);
        there
            .addresses
            .insert(DeviceAddress { device: "eth0".into(), network: "10.2.3.4/8".parse().unwrap() });
        assert!(texts(&[], &there).is_empty());
    }

    fn closed() -> Closed {
        let network: IpNet = "10.2.0.0/16".parse().unwrap();
        let guard = Guard { remote: [network].into(), ..Guard::default() };
        let routes = [Route::unreachable(TABLE_MAIN, network)].into();
        Closed::of("a", &HostNet { routes, guard: Some(guard), ..HostNet::default() })
    }
}
