//! State remembered over a restart, so that a gateway carries traffic again before any API server has answered.
//!
//! One JSON file in the state directory. It is a cache: the stores' objects replace it, and without it everything is read
//! from them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trieste_control::admin::Severity;
use trieste_control::api::{ClusterNetworks, Endpoint, Object, Resource as _};
use trieste_control::conditions::Conditions;
use trieste_control::globalnet::GlobalnetState;
use trieste_control::members::{Member, Members, NatSlots, Publication};
use trieste_control::publicip;

use crate::settings::NodeSettings;
use crate::state;

const FILE: &str = "remembered.json";
/// Extension of the names that invalid files are moved to.
const ASIDE: &str = "bad";
/// Shortest time between two writes. Ours: state that a crash within it loses is read from the stores.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// Largest file that is read. Ours: 1,000 Endpoints are under 2 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// The remembered state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Remembered {
    /// Whether this gateway was active.
    pub was_active: bool,
    /// The Endpoint objects of the local store, others' and ours.
    #[serde(with = "shared_objects")]
    pub endpoints: Vec<Arc<Object>>,
    /// The Node object's settings.
    pub node: Option<NodeSettings>,
    /// The cluster's networks.
    pub networks: Option<RememberedNetworks>,
    /// Whether the node has been labelled as a gateway.
    pub was_gateway: bool,
    /// The last public address.
    pub public_ip: Option<IpAddr>,
    /// The resolver that found it.
    pub public_ip_resolver: Option<String>,
    /// The other gateways.
    pub members: RememberedMembers,
    /// Globalnet's allocations and rules.
    pub globalnet: Option<GlobalnetState>,
}

impl Remembered {
    /// Returns the last public address and the resolver that found it.
    #[must_use]
    pub fn last_address(&self) -> Option<publicip::Remembered> {
        let (address, resolver) = (self.public_ip?, self.public_ip_resolver.clone()?);
        Some(publicip::Remembered { address, resolver })
    }
}

/// The remembered networks of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RememberedNetworks {
    /// Those of the settings, if they come from there and not from an object.
    pub settings: Option<ClusterNetworks>,
    /// Those in force.
    pub in_force: ClusterNetworks,
}

/// The remembered state of the other gateways.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RememberedMembers {
    /// Whether all gateways of this cluster are active.
    pub is_multi: bool,
    /// The further Endpoints of the other gateways of this cluster.
    #[serde(with = "shared_objects")]
    pub siblings: Vec<Arc<Object>>,
    /// The further Endpoints of remote clusters.
    #[serde(with = "shared_objects")]
    pub remote: Vec<Arc<Object>>,
    /// Our shares of the outside ports, as a bit set, and until when they are ours.
    pub slots: Option<(u8, Timestamp)>,
}

impl RememberedMembers {
    /// Returns the state to remember.
    #[must_use]
    pub fn of(members: &Members, objects: &mut MemberObjects, now: Instant, wall: Timestamp) -> Self {
        let (siblings, remote) = objects.follow(members);
        // Rounded to the hour, so that not every renewal is written.
        let until = |slots: NatSlots| {
            let left = slots.until.saturating_duration_since(now);
            let until = wall.as_second().saturating_add(i64::try_from(left.as_secs()).unwrap_or(0));
            Timestamp::from_second(until - until.rem_euclid(3600)).ok()
        };
        Self {
            is_multi: members.is_multi,
            siblings,
            remote,
            slots: members.slots.and_then(|slots| Some((slots.held, until(slots)?))),
        }
    }

    /// Returns the remembered members; shares that have expired meanwhile are left out.
    #[must_use]
    pub fn members(&self, now: Instant, wall: Timestamp) -> Members {
        let read = |objects: &[Arc<Object>]| {
            objects.iter().filter_map(|object| Member::read(object)).collect::<Vec<_>>()
        };
        let slots = self.slots.and_then(|(held, until)| {
            let left = u64::try_from(until.as_second() - wall.as_second()).ok()?;
            Some(NatSlots { held, until: now + Duration::from_secs(left) })
        });
        Members {
            is_multi: self.is_multi,
            siblings: read(&self.siblings),
            publication: Publication::Pending,
            remote: read(&self.remote).into(),
            slots,
        }
    }
}

/// What is remembered of the other gateways: an object for each, made once for each version of its Endpoint.
#[derive(Debug, Default)]
pub struct MemberObjects(BTreeMap<String, (Arc<Endpoint>, Arc<Object>)>);

impl MemberObjects {
    /// Returns the objects of the siblings and of the remote gateways.
    fn follow(&mut self, members: &Members) -> (Vec<Arc<Object>>, Vec<Arc<Object>>) {
        let mut before = std::mem::take(&mut self.0);
        let mut objects = |members: &[Member]| -> Vec<Arc<Object>> {
            let object = |member: &Member| {
                let endpoint = &member.endpoint;
                let (name, object) = match before.remove_entry(member.cable_name()) {
                    Some((name, (known, object))) if Arc::ptr_eq(&known, endpoint) => (name, object),
                    _ => {
                        let object = without_bookkeeping(&endpoint.to_object());
                        (member.cable_name().to_owned(), Arc::new(object))
                    }
                };
                self.0.insert(name, (Arc::clone(endpoint), Arc::clone(&object)));
                object
            };
            members.iter().map(object).collect()
        };
        (objects(&members.siblings), objects(&members.remote))
    }
}

/// Lists of objects that are shared with other readers.
mod shared_objects {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};
    use trieste_control::api::Object;

    pub(super) fn serialize<S: Serializer>(
        objects: &[Arc<Object>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(objects.iter().map(|object| &**object))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Arc<Object>>, D::Error> {
        Ok(Vec::<Object>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
    }
}

/// Returns an object without fields that change with no effect here, to save writes.
pub(crate) fn without_bookkeeping(object: &Object) -> Object {
    let mut object = object.clone();
    object.metadata.resource_version = None;
    object.metadata.generation = None;
    object.metadata.extra.clear();
    object
}

/// The file with the state of the last process.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    written: Option<Remembered>,
}

impl Memory {
    /// Returns the file of a state directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE), written: None }
    }

    /// Reads the file; `None` if there is none. An invalid file is set aside.
    pub fn load(&mut self) -> Option<Remembered> {
        self.written = load(&self.path);
        self.written.clone()
    }

    /// Starts a task that writes the state it is given, off the runtime's threads. Failures are a condition.
    #[must_use]
    pub fn keep(self, conditions: Conditions) -> MemoryWriter {
        let Self { path, written } = self;
        let (wanted, receiver) = watch::channel(written.clone().unwrap_or_default());
        let task = tokio::spawn(write(path, written, receiver, conditions));
        MemoryWriter { wanted, task }
    }
}

/// Writes the file when the state changes.
#[derive(Debug)]
pub struct MemoryWriter {
    wanted: watch::Sender<Remembered>,
    task: JoinHandle<()>,
}

impl MemoryWriter {
    /// Sets the state to remember. It is written within five seconds; at once if `was_active`, the shares of
    /// ports or the networks change.
    pub fn set(&self, remembered: Remembered) {
        self.wanted.send_if_modified(|known| {
            let changed = *known != remembered;
            *known = remembered;
            changed
        });
    }

    /// Clears the shares of the outside ports, which are about to be released.
    pub fn clear_slots(&self) {
        self.wanted.send_if_modified(|known| known.members.slots.take().is_some());
    }

    /// Writes the newest state and ends; waits at most `within`.
    pub async fn stop(self, within: Duration) {
        let Self { wanted, mut task } = self;
        drop(wanted);
        if tokio::time::timeout(within, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn write(
    path: PathBuf,
    mut written: Option<Remembered>,
    mut wanted: watch::Receiver<Remembered>,
    conditions: Conditions,
) {
    // Fails when the sender was dropped and its last value was seen.
    while wanted.changed().await.is_ok() {
        let newest = wanted.borrow_and_update().clone();
        if written.as_ref() != Some(&newest) {
            let remembered = newest.clone();
            let problem = save(path.clone(), || remembered).await.err();
            let problem = problem.map(|error| format!("nothing is remembered for a restart: {error}"));
            conditions.put("StateNotKept", Severity::Warning, "", problem);
        }
        let (was_active, slots) = (newest.was_active, newest.members.slots);
        let networks = newest.networks.clone();
        // A failed write is retried at the next change only.
        written = Some(newest);
        // Gathers changes into one write, unless one is urgent.
        let mut ahead = wanted.clone();
        let urgent = ahead.wait_for(|newest| {
            newest.was_active != was_active || newest.members.slots != slots || newest.networks != networks
        });
        let _ = tokio::time::timeout(WRITE_INTERVAL, urgent).await;
    }
}

/// Reads a file of remembered state; `None` if there is none. An invalid one is set aside, as `….bad`.
pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read the remembered state");
            return None;
        }
    };
    match serde_json::from_str(&text) {
        Ok(remembered) => Some(remembered),
        Err(error) => {
            let aside = path.with_extension(ASIDE);
            tracing::warn!(path = %path.display(), aside = %aside.display(), %error, "remembered state is invalid; set aside");
            // If it stays, it is overwritten.
            let _ = fs::rename(path, aside);
            None
        }
    }
}

/// Writes remembered state to a file; returns its size. It is made and written off the runtime's threads.
pub(crate) async fn save<T: Serialize>(
    path: PathBuf,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<usize, String> {
    let work = move || {
        let text = serde_json::to_string(&make()).map_err(|error| error.to_string())?;
        state::write(&path, &text).map_err(|error| error.to_string()).map(|()| text.len())
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string()).flatten()
}

/// Removes the files.
///
/// # Errors
/// A file cannot be removed; a missing one is no error.
pub fn remove_files(dir: &Path) -> io::Result<()> {
    remove(dir, FILE)
}

/// Removes a file of remembered state, and what was set aside of it.
pub(crate) fn remove(dir: &Path, file: &str) -> io::Result<()> {
    let aside = Path::new(file).with_extension(ASIDE);
    state::remove(dir, &[file, &aside.to_string_lossy()])
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
    use trieste_control::api::EndpointSpec;
    use trieste_control::members::plan_own;
    use trieste_control::runner::Write;

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
    async fn what_was_kept_is_loaded_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Memory::new(dir.path()).load(), None);
        let keeper = Memory::new(dir.path()).keep(Conditions::new());
        keeper.set(Remembered { was_active: false, ..remembered() });
        keeper.set(remembered());
        keeper.stop(Duration::from_secs(10)).await;
        assert_eq!(Memory::new(dir.path()).load(), Some(remembered()));
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        remove_files(dir.path()).unwrap();
        remove_files(dir.path()).unwrap();
        assert_eq!(Memory::new(dir.path()).load(), None);
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_a_condition() {
        let conditions = Conditions::new();
        let keeper = Memory::new(Path::new("/proc/no-such-directory")).keep(conditions.clone());
        keeper.set(remembered());
        keeper.stop(Duration::from_secs(10)).await;
        assert_eq!(conditions.list()[0].name, "StateNotKept");
    }

    #[test]
    fn a_spoiled_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{\"was-active\": 7}").unwrap();
        assert_eq!(Memory::new(dir.path()).load(), None);
        assert!(dir.path().join("remembered.bad").exists());
    }

    #[test]
    fn what_is_remembered_of_the_others_is_read_back_and_shares_expire() {
        let spec = EndpointSpec {
            cluster_id: "b".to_owned(),
            cable_name: "submariner-cable-b-192-0-2-1".to_owned(),
            hostname: "gw1".to_owned(),
            ..EndpointSpec::default()
        };
        let writes = plan_own("ns", &spec, true, &[]).unwrap();
        let [Write::Create(object)] = &writes[..] else { panic!("{writes:?}") };
        let (now, wall) = (Instant::now(), Timestamp::from_second(1_800_000_000).unwrap());
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let members = Members {
            is_multi: true,
            remote: vec![Member::read(object).unwrap()].into(),
            slots: Some(NatSlots { held: 0b1010, until: now + hours(12) }),
            ..Members::default()
        };
        let remembered = RememberedMembers::of(&members, &mut MemberObjects::default(), now, wall);
        let text = serde_json::to_string(&remembered).unwrap();
        let read: RememberedMembers = serde_json::from_str(&text).unwrap();
        let soon = read.members(now, wall);
        assert_eq!((soon.is_multi, soon.remote.len()), (true, 1));
        assert_eq!(soon.slots.map(|slots| slots.held), Some(0b1010));
        assert!(soon.slots.unwrap().until <= now + hours(12));
        let late = read.members(now, wall + jiff::SignedDuration::from_hours(13));
        assert_eq!(late.slots, None);
    }
}
