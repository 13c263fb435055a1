//! What this gateway delivers by, remembered over a restart: the nodes, and which of them stand behind each address and port.
//!
//! One JSON file in the state directory, beside `remembered.json`, since it changes with every pod. Objects of the API server
//! replace it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::conditions::Conditions;
use trieste_pipeline::services::{Backends, Frontend, Services};

use crate::{memory, state, tables};

const FILE: &str = "services.json";
/// Ours: how much longer than a write takes the rest after it is.
const REST: u32 = 20;
/// Ours: shortest time between two writes. What a crash within it loses is read from the API server, if that answers.
const INTERVAL: Duration = Duration::from_secs(1);

/// Ours: how long after one that has failed.
const RETRY: Duration = Duration::from_secs(30);
/// Ours: what a disk is written to at most, while services change all the time.
const BYTES_PER_SECOND: usize = 100_000;

/// The remembered state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct RememberedServices {
    /// The nodes that accept packets for services, and where.
    nodes: BTreeMap<String, IpAddr>,
    services: Vec<RememberedService>,
}

/// A service's address and port, and the nodes behind it, by the addresses at which they accept packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RememberedService {
    address: IpAddr,
    protocol: u8,
    port: u16,
    used: BTreeMap<IpAddr, u32>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    others: BTreeSet<IpAddr>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keeps_clients: bool,
}

impl RememberedServices {
    /// Returns the nodes that accept packets for services, and where.
    pub(crate) fn nodes(&self) -> BTreeMap<String, IpAddr> {
        self.nodes.clone()
    }

    /// Returns the snapshot to begin with on the node of this name; an empty one if it did not deliver.
    pub(crate) fn snapshot(&self, node: &str, networks: &[IpNet]) -> Services {
        let Some(&own) = self.nodes.get(node) else { return Services::default() };
        let mut builder = tables::delivery(networks, own, &self.nodes);
        for service in &self.services {
            let at = Frontend { address: service.address, protocol: service.protocol, port: service.port };
            let backends = Backends {
                used: service.used.clone(),
                others: service.others.clone(),
                keeps_clients: service.keeps_clients,
            };
            builder.set(at, &backends);
        }
        builder.build(0)
    }
}

/// The snapshot's source.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The nodes that accept packets for services, and where.
    pub(super) nodes: Arc<BTreeMap<String, IpAddr>>,
    pub(super) services: Arc<Services>,
}

impl Source {
    fn remembered(&self) -> RememberedServices {
        let service = |(at, backends): (Frontend, Backends)| RememberedService {
            address: at.address,
            protocol: at.protocol,
            port: at.port,
            used: backends.used,
            others: backends.others,
            keeps_clients: backends.keeps_clients,
        };
        let services = self.services.all().map(service).collect();
        RememberedServices { nodes: (*self.nodes).clone(), services }
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct ServicesMemory {
    path: PathBuf,
}

impl ServicesMemory {
    /// Returns the file of a state directory.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE) }
    }

    /// Reads the file; `None` if there is none. An invalid one is set aside.
    pub(crate) fn load(&self) -> Option<RememberedServices> {
        memory::load(&self.path)
    }

    /// Starts a task that writes the state of the source that it is given. Failures are a condition.
    pub(super) fn keep(self, conditions: Conditions) -> Writer {
        let (wanted, receiver) = watch::channel(None);
        tokio::spawn(write(self.path, receiver, conditions));
        Writer { wanted }
    }
}

/// Writes the file when the source changes. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` until it is known: the file of the process before stays.
    wanted: watch::Sender<Option<Wanted>>,
}

/// What is to be remembered; `None` if this gateway does not deliver.
type Wanted = Option<Source>;

impl Writer {
    /// Sets the source whose state is to be remembered; with `None` there is to be no file. It is written within a second.
    pub(super) fn set(&self, source: Option<Source>) {
        self.wanted.send_if_modified(|known| {
            let is_same = matches!((&*known, &source), (Some(None), None));
            *known = Some(source);
            !is_same
        });
    }
}

async fn write(path: PathBuf, mut wanted: watch::Receiver<Option<Wanted>>, conditions: Conditions) {
    // Fails when the sender was dropped and its last value was seen.
    while wanted.changed().await.is_ok() {
        let source = wanted.borrow_and_update().clone().flatten();
        let started = Instant::now();
        let written = match source {
            Some(source) => memory::save(path.clone(), move || source.remembered()).await,
            None => remove(&path).map(|()| 0).map_err(|error| error.to_string()),
        };
        let bytes = *written.as_ref().unwrap_or(&0);
        let problem = written.err().map(|error| {
            format!("which nodes serve what is not remembered for a restart, which then ends connections to services: {error}")
        });
        let has_failed = problem.is_some();
        conditions.put("StateNotKept", Severity::Warning, "services", problem);
        if has_failed {
            wanted.mark_changed();
            tokio::time::sleep(RETRY).await;
        }
        tokio::time::sleep(rest(started.elapsed(), bytes)).await;
    }
}

/// Returns how long nothing is written after a write of so many bytes that took this long.
fn rest(took: Duration, bytes: usize) -> Duration {
    let by_size = Duration::from_secs((bytes / BYTES_PER_SECOND) as u64);
    (took * REST).max(INTERVAL).max(by_size)
}

fn remove(path: &Path) -> io::Result<()> {
    let Some(dir) = path.parent() else { return Ok(()) };
    state::remove(dir, &[FILE])
}

/// Removes the files.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub(crate) fn remove_files(dir: &Path) -> io::Result<()> {
    memory::remove(dir, FILE)
}

#[cfg(test)]
mod tests {
    use trieste_packet::FlowKey;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn source() -> Source {
        let nodes = [("gw1", "172.31.9.1"), ("w1", "172.31.9.3"), ("w2", "172.31.9.4")];
        let nodes: BTreeMap<String, IpAddr> =
            nodes.into_iter().map(|(name, address)| (name.to_owned(), ip(address))).collect();
        let mut builder = tables::delivery(&["10.96.0.0/16".parse().unwrap()], ip("172.31.9.1"), &nodes);
        let at = Frontend { address: ip("10.96.0.10"), protocol: 6, port: 80 };
        let (used, others) = ([(ip("172.31.9.3"), 2)].into(), [ip("172.31.9.4")].into());
        builder.set(at, &Backends { used, others, keeps_clients: true });
        Source { nodes: Arc::new(nodes), services: Arc::new(builder.build(1)) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_process_delivers_by_what_this_one_did() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ServicesMemory::new(dir.path()).load(), None);
        let writer = ServicesMemory::new(dir.path()).keep(Conditions::new());
        writer.set(Some(source()));
        let remembered = loop {
            if let Some(remembered) = ServicesMemory::new(dir.path()).load() {
                break remembered;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(remembered, source().remembered());
        assert_eq!(remembered.services.len(), 1);
        let networks = ["10.96.0.0/16".parse().unwrap()];
        let snapshot = remembered.snapshot("gw1", &networks);
        let flow = FlowKey::new(ip("10.2.0.1"), ip("10.96.0.10"), 6, 40_000, 80);
        assert_eq!(snapshot.node_of(&flow), Some(ip("172.31.9.3")));
        assert!(snapshot.all().eq(source().services.all()));
        assert!(remembered.snapshot("another", &networks).is_empty(), "it did not deliver");

        writer.set(None);
        while dir.path().join(FILE).exists() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        remove_files(dir.path()).unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_a_condition() {
        let conditions = Conditions::new();
        let writer = ServicesMemory::new(Path::new("/proc/no-such-directory")).keep(conditions.clone());
        writer.set(Some(source()));
        while conditions.list().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(conditions.list()[0].name, "StateNotKept");
    }
}
