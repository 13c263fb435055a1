//! NAT discovery's shell: one UDP socket per family on the discovery port, a clock, and a file for what was found.
//!
//! ```text
//!   update, set_local ───────▶ ┌───────────────────────┐ ──▶ selections (watch), status, counters
//!                              │ Mutex<Machine>, task  │
//!   UDP 4490 ◀───────────────▶ └───────────────────────┘ ──▶ nat-discovery.json
//! ```
//!
//! What is decided is decided in [`trieste_control::natdiscovery`]. The sockets carry the outer mark, so that what
//! they send never enters a cable, and an answer leaves from the address that was asked. A port that is taken is a
//! condition, and is tried again.

mod file;
mod remotes;
mod sockets;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand_core::{OsRng, RngCore as _};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use trieste_control::admin::{DiscoveryStatus, Severity};
use trieste_control::conditions::Conditions;
use trieste_control::natdiscovery::{Counters, How, Local, Machine, Memory, Remote, Selection};
use trieste_control::timer::{clock, sleep_until};

pub(crate) use self::file::remove_files;
pub(crate) use self::remotes::Remotes;
use self::sockets::Sockets;

/// Ours: a condition's name: there are more remote cables than discovery takes.
const TOO_MANY: &str = "NatDiscoveryFull";
/// Ours: so long after results were written, they are not written again.
const WRITE_GAP: Duration = Duration::from_secs(1);

/// The present selections, by cable name.
pub type Selections = BTreeMap<String, Selection>;

/// NAT discovery of this gateway, running. Ends when it is dropped; [`Discovery::stop`] also writes the file.
#[derive(Debug)]
pub struct Discovery {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

/// The state of cables' discovery, for display.
#[derive(Debug, Clone)]
pub struct DiscoveryReader(Arc<Shared>);

impl DiscoveryReader {
    /// Returns the state of a cable's discovery; `None` if there is no such cable.
    #[must_use]
    pub fn status(&self, cable_name: &str) -> Option<DiscoveryStatus> {
        self.0.lock().status(cable_name, clock())
    }
}

#[derive(Debug)]
struct Shared {
    machine: Mutex<Machine>,
    changed: Notify,
    selections: watch::Sender<Selections>,
    /// The revision of the content to save.
    memory: watch::Sender<u64>,
    state_dir: Option<PathBuf>,
    /// Held while the file is written: an aborted task leaves its write behind.
    writing: Arc<Mutex<()>>,
    conditions: Conditions,
}

impl Discovery {
    /// Reads what an earlier process left in `state_dir` (`None`: nothing is kept) and starts to listen, unless the
    /// port of `local` is 0. To be called inside of a tokio runtime. `mark` is the sockets' mark.
    #[must_use]
    pub fn start(local: Local, state_dir: Option<PathBuf>, mark: u32, conditions: Conditions) -> Self {
        let memory = state_dir.as_deref().map(file::read).unwrap_or_default();
        let mut secret = [0; 32];
        OsRng.fill_bytes(&mut secret);
        let shared = Arc::new(Shared {
            memory: watch::Sender::new(memory.revision()),
            machine: Mutex::new(Machine::new(local, secret, memory)),
            changed: Notify::new(),
            selections: watch::Sender::new(Selections::new()),
            state_dir,
            writing: Arc::new(Mutex::new(())),
            conditions: conditions.clone(),
        });
        let listen = tokio::spawn(listen(Arc::clone(&shared), Sockets::new(mark, conditions)));
        let write = tokio::spawn(write(Arc::clone(&shared)));
        Self { shared, tasks: vec![listen, write] }
    }

    /// Sets this gateway's identity. Another port opens other sockets.
    pub fn set_local(&self, local: Local) {
        if *self.shared.lock().local() != local {
            self.shared.with_machine(&Touched::All, |machine, now| machine.set_local(local, now));
        }
    }

    /// Forgets the remote cables that are gone, and looks for the addresses of new and changed ones. Returns the names of
    /// those that are refused, which are to be asked for again when others have gone.
    pub fn update(&self, gone: &[String], new: &[Remote]) -> Vec<String> {
        let (mut refused, mut reason) = (Vec::new(), None);
        let names = gone.iter().chain(new.iter().map(|remote| &remote.cable_name));
        let touched = Touched::Cables(names.map(String::as_str).collect());
        self.shared.with_machine(&touched, |machine, now| {
            gone.iter().for_each(|cable_name| machine.remove(cable_name));
            for remote in new {
                let cable_name = &remote.cable_name;
                let is_new = !machine.has(cable_name);
                match machine.add(remote.clone(), now) {
                    Ok(()) if is_new => tracing::info!("Starting NAT discovery for endpoint {cable_name:?}"),
                    Ok(()) => {}
                    Err(error) => {
                        refused.push(cable_name.clone());
                        reason = Some(error.to_string());
                    }
                }
            }
        });
        self.shared.conditions.put(TOO_MANY, Severity::Error, "", reason);
        refused
    }

    /// Asks again for a cable that has been in error for a while.
    pub fn rediscover(&self, cable_name: &str) {
        let touched = Touched::Cables(vec![cable_name]);
        self.shared.with_machine(&touched, |machine, now| machine.rediscover(cable_name, now));
    }

    /// Subscribes to the selections.
    #[must_use]
    pub fn selections(&self) -> watch::Receiver<Selections> {
        self.shared.selections.subscribe()
    }

    /// Returns a reader of the state of cables' discovery, for display.
    #[must_use]
    pub fn reader(&self) -> DiscoveryReader {
        DiscoveryReader(Arc::clone(&self.shared))
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.shared.lock().counters()
    }

    /// Closes the sockets and writes what was found, if that is not done yet.
    pub async fn stop(mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            // Aborted, or ended: either is fine.
            let _ = task.await;
        }
        let memory = self.shared.lock().memory().clone();
        if memory.revision() > 0 {
            self.shared.write(memory).await;
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The cables whose selection may be another one without an event.
enum Touched<'a> {
    /// Any.
    All,
    /// These.
    Cables(Vec<&'a str>),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the machine, and publishes the effects.
    fn with_machine(&self, touched: &Touched<'_>, change: impl FnOnce(&mut Machine, Instant)) {
        let now = clock();
        let mut machine = self.lock();
        change(&mut machine, now);
        machine.handle_timeout(now);
        self.publish(&mut machine, touched);
        drop(machine);
        self.changed.notify_one();
    }

    /// Publishes what has changed: what events say, and what is touched, since cables that are gone have no event.
    fn publish(&self, machine: &mut Machine, touched: &Touched<'_>) {
        let mut selected = Vec::new();
        while let Some(event) = machine.poll_event() {
            let (cable, selection) = (&event.cable_name, event.selection);
            if self.selections.borrow().get(cable) == Some(&selection) {
                continue;
            }
            if selection.how == How::Fallback && machine.has_timed_out(cable) {
                tracing::warn!("NAT discovery for endpoint {cable:?} has timed out");
            }
            let how = selection.how.as_str();
            tracing::info!(cable, address = %selection.ip, nat = selection.use_nat, how, "address selected");
            selected.push(event.cable_name);
        }
        match touched {
            Touched::All => self.publish_all(machine),
            Touched::Cables(cables) => {
                let names = selected.iter().map(String::as_str).chain(cables.iter().copied());
                self.publish_some(machine, names);
            }
        }
        let newest = machine.memory().revision();
        self.memory.send_if_modified(|known| std::mem::replace(known, newest) != newest);
    }

    fn publish_some<'a>(&self, machine: &Machine, cables: impl Iterator<Item = &'a str>) {
        self.selections.send_if_modified(|known| {
            let mut is_new = false;
            for cable in cables {
                is_new |= match machine.selection(cable) {
                    Some(newest) if known.get(cable) == Some(&newest) => false,
                    Some(newest) => {
                        known.insert(cable.to_owned(), newest);
                        true
                    }
                    None => known.remove(cable).is_some(),
                };
            }
            is_new
        });
    }

    fn publish_all(&self, machine: &Machine) {
        let chosen = |cable: &str| Some((cable.to_owned(), machine.selection(cable)?));
        let current: Selections = machine.cables().filter_map(chosen).collect();
        self.selections.send_if_modified(|known| {
            let is_new = *known != current;
            if is_new {
                *known = current;
            }
            is_new
        });
    }

    async fn write(&self, memory: Memory) {
        let Some(dir) = self.state_dir.clone() else { return };
        let (conditions, writing) = (self.conditions.clone(), Arc::clone(&self.writing));
        let written = tokio::task::spawn_blocking(move || {
            let _alone = writing.lock().unwrap_or_else(PoisonError::into_inner);
            file::write(&dir, &memory, &conditions);
        });
        // A panic there is reported by the runtime's hook; the next change is written again.
        let _ = written.await;
    }
}

/// Carries datagrams and time to the machine.
async fn listen(shared: Arc<Shared>, mut sockets: Sockets) {
    let mut buffer = sockets::buffer();
    loop {
        let (port, wake) = {
            let machine = shared.lock();
            (machine.local().port, machine.poll_timeout())
        };
        sockets.follow(port, clock());
        let wake = [wake, sockets.retry_at()].into_iter().flatten().min();
        let ready = tokio::select! {
            () = shared.changed.notified() => None,
            () = sleep_until(wake) => None,
            slot = sockets.readable() => Some(slot),
        };
        turn(&shared, &mut sockets, ready, &mut buffer);
    }
}

/// Hands in what has come, does what is due, sends what there is.
fn turn(shared: &Shared, sockets: &mut Sockets, ready: Option<usize>, buffer: &mut [u8]) {
    let now = clock();
    let mut machine = shared.lock();
    if let Some(slot) = ready {
        for _ in 0..sockets::BATCH {
            let Some(datagram) = sockets.recv(slot, buffer, now) else { break };
            let payload = &buffer[..datagram.length];
            let outcome = machine.handle_datagram(payload, datagram.from, datagram.to, now);
            tracing::trace!(from = %datagram.from, outcome = outcome.as_str(), "NAT discovery datagram");
        }
    }
    machine.handle_timeout(now);
    while let Some(transmit) = machine.poll_transmit(|target| sockets.source_to(target)) {
        sockets.send(&transmit);
    }
    shared.publish(&mut machine, &Touched::Cables(Vec::new()));
}

/// Writes results when they have changed, not more than once a second.
async fn write(shared: Arc<Shared>) {
    let mut changes = shared.memory.subscribe();
    // Sender and receiver are of the same owner: this ends when the task is aborted.
    while changes.changed().await.is_ok() {
        changes.mark_unchanged();
        let memory = shared.lock().memory().clone();
        shared.write(memory).await;
        tokio::time::sleep(WRITE_GAP).await;
    }
}

#[cfg(test)]
mod tests;
