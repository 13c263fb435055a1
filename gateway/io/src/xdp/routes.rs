//! Where frames go: a snapshot of the kernel's routes and neighbours for the peers that are sent to.
//!
//! ```text
//!  worker ── lookup ──▶ snapshot ◀── swapped in whole ── thread "xdp-routes" ── questions ──▶ kernel
//!     └── a peer that is not there ──▶ queue ──▶ thread                        ◀── notices ──┘
//! ```
//!
//! Until a peer is resolved its packets go through the sockets, for which the kernel resolves the neighbour; the notice of
//! that brings it here. Every few seconds all peers are asked for anew, and the kernel is made to confirm neighbours that
//! are used: it does not see our frames. The same thread keeps the filter's addresses, and takes the interface anew when
//! that has gone and come back. An interface may come back as it was, renamed or moved to another namespace and back, with our
//! program on it still, and with little memory that may be locked the frames of two openings do not fit: each worker
//! first releases its part ([`Routes::is_released`]), and then finds its next one in [`Routes::part`].

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam::queue::ArrayQueue;

use super::frame::Hop;
use super::netlink::Notices;
use super::plan::{Held, Part, Plan};
use super::policies::PolicyNotices;
use super::resolver::{NoHop, Peer, Resolver, Seen};
use crate::Error;
use crate::poll::{Interest, Poller, Waker};

/// Most peers that are kept; others go through the sockets.
const MOST_PEERS: usize = 1024;
/// Requests of workers that wait for the thread.
const REQUESTS: usize = 256;
/// How often all is asked for anew: what the kernel has learnt of a path's MTU has no notice.
const REFRESH: Duration = Duration::from_secs(5);
/// The longest time between two attempts to open an interface that has come back.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Refreshes after which a peer that nobody sends to is removed.
const IDLE_REFRESHES: u8 = 12;
/// The least between two passes for notices, so that a storm of them costs little.
const PAUSE: Duration = Duration::from_millis(50);

/// Tokens of the poller.
const LINKS: u8 = 0;
const POLICIES: u8 = 1;

/// A peer's entry.
#[derive(Debug)]
struct Entry {
    hop: Result<Hop, NoHop>,
    is_used: AtomicBool,
    idle: u8,
}

/// What workers look peers up in.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    entries: HashMap<Peer, Arc<Entry>>,
    /// Of the interface's opening that the hops are for.
    pub(super) generation: u32,
}

/// What the snapshot has about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Frames go there.
    Found(Hop),
    /// There is no way for frames.
    None(NoHop),
    /// Nobody has asked for it yet.
    Missing,
}

impl Snapshot {
    /// Returns where frames for a peer go.
    pub(super) fn get(&self, peer: &Peer) -> Lookup {
        let Some(entry) = self.entries.get(peer) else {
            // While there are as many as may be nobody is asked for; strangers must not keep the thread at work.
            return if self.entries.len() < MOST_PEERS {
                Lookup::Missing
            } else {
                Lookup::None(NoHop::Unresolved)
            };
        };
        if !entry.is_used.load(Ordering::Relaxed) {
            entry.is_used.store(true, Ordering::Relaxed);
        }
        entry.hop.map_or_else(Lookup::None, Lookup::Found)
    }
}

#[derive(Debug)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    requests: ArrayQueue<Peer>,
    /// By worker, its part of an interface that was taken anew.
    parts: Vec<ArrayQueue<Part>>,
    /// Openings before this one are to be released.
    first_held: AtomicU32,
    /// Whether a worker has released its part.
    has_release: AtomicBool,
    is_gone: AtomicBool,
    is_aside: AtomicBool,
    is_ending: AtomicBool,
}

/// The snapshot, and the thread that keeps it.
#[derive(Debug)]
pub(super) struct Routes {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Routes {
    /// Starts the thread for an interface that was taken, in the network namespace of the calling one.
    ///
    /// # Errors
    /// There is no netlink, or no thread.
    pub(super) fn start(resolver: Resolver, plan: Plan, held: Held) -> Result<Self, Error> {
        let start = || -> io::Result<Self> {
            let notices = Notices::open()?;
            let of_policies = PolicyNotices::open()?;
            let poller = Poller::new()?;
            poller.add(&notices, LINKS, Interest::Readable)?;
            if let Some(of_policies) = &of_policies {
                poller.add(of_policies, POLICIES, Interest::Readable)?;
            }
            let waker = poller.waker();
            let shared = Arc::new(Shared {
                snapshot: ArcSwap::default(),
                requests: ArrayQueue::new(REQUESTS),
                parts: (0..plan.workers).map(|_| ArrayQueue::new(1)).collect(),
                first_held: AtomicU32::new(0),
                has_release: AtomicBool::new(false),
                is_gone: AtomicBool::new(false),
                is_aside: AtomicBool::new(resolver.is_aside()),
                is_ending: AtomicBool::new(false),
            });
            let maintainer = Maintainer {
                shared: Arc::clone(&shared),
                resolver,
                of_policies,
                plan,
                hold: Hold::Held(held),
                generation: 0,
                is_stale: false,
                failure: None,
                retry: None,
                wait: REFRESH,
            };
            let thread = std::thread::Builder::new()
                .name("xdp-routes".to_owned())
                .spawn(move || keep(maintainer, poller, notices))?;
            Ok(Self { shared, waker, thread: Some(thread) })
        };
        start().map_err(|error| Error::kernel("cannot follow the kernel's routes", error))
    }

    /// Returns a worker's part of the interface, once for each time that it was taken anew.
    pub(super) fn part(&self, worker: usize) -> Option<Part> {
        self.shared.parts.get(worker).filter(|parts| !parts.is_empty())?.pop()
    }

    /// Returns `true` if the interface of an opening has gone: workers release their parts of it.
    pub(super) fn is_released(&self, generation: u32) -> bool {
        generation < self.shared.first_held.load(Ordering::Relaxed)
    }

    /// Makes the thread take the interface that has come back, if this was the last part of the former one.
    pub(super) fn note_release(&self) {
        self.shared.has_release.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns `true` while the interface is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.shared.is_gone.load(Ordering::Relaxed)
    }

    /// Returns `true` while the filter takes nothing for the sake of the host's IPsec policies.
    pub(super) fn is_aside(&self) -> bool {
        self.shared.is_aside.load(Ordering::Relaxed)
    }

    /// Returns the snapshot of now.
    pub(super) fn snapshot(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.shared.snapshot.load()
    }

    /// Asks for a peer that is not in the snapshot. `false` if there are too many requests already.
    pub(super) fn request(&self, peer: Peer) -> bool {
        self.shared.requests.push(peer).is_ok()
    }

    /// Wakes the thread after requests.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The program on the interface, as far as the thread is concerned.
enum Hold {
    Held(Held),
    /// The interface has gone; workers that have a part of it still have program and token too.
    Released(Weak<()>),
}

/// What the thread keeps.
struct Maintainer {
    shared: Arc<Shared>,
    resolver: Resolver,
    /// `None` where the kernel has no IPsec.
    of_policies: Option<PolicyNotices>,
    plan: Plan,
    hold: Hold,
    generation: u32,
    /// Whether the program is not the one that the resolver's filter wants.
    is_stale: bool,
    /// What failed last: it is tried again at every refresh and logged when it changes.
    failure: Option<String>,
    /// When the interface may be opened again, after a failure, and how long it is waited for after the next.
    retry: Option<Instant>,
    wait: Duration,
}

impl Maintainer {
    /// Reads interface and policies anew, and does what follows from that.
    fn follow(&mut self) {
        let result = self.refresh();
        if let Err(error) = &result
            && self.failure.as_ref() != Some(error)
        {
            tracing::warn!(%error, interface = self.resolver.name(), "cannot keep AF_XDP as the interface is; it is tried again");
        }
        self.failure = result.err();
        self.shared.is_aside.store(self.resolver.is_aside(), Ordering::Relaxed);
    }

    fn refresh(&mut self) -> Result<(), String> {
        let fail = |error: io::Error| format!("cannot read the state of the interface: {error}");
        let of_policies = self.resolver.refresh_policies().map_err(fail);
        let seen = self.resolver.refresh_link().map_err(fail)?;
        self.shared.is_gone.store(!matches!(seen, Seen::Same(_)), Ordering::Relaxed);
        match seen {
            Seen::Gone => drop(self.release()),
            Seen::Another => {
                if self.release() {
                    self.try_reopen()?;
                }
            }
            Seen::Same(is_changed) => {
                let filter = self.resolver.filter();
                if let Hold::Held(Held { attachment, .. }) = &self.hold {
                    renew(&mut self.is_stale, is_changed, || attachment.refresh(&filter))
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        of_policies
    }

    /// Releases the former opening. Returns `true` when every worker has: nothing is left of it on an interface that came back.
    fn release(&mut self) -> bool {
        if let Hold::Held(held) = &self.hold {
            self.hold = Hold::Released(Arc::downgrade(&held.token));
            self.shared.first_held.store(self.generation.saturating_add(1), Ordering::Relaxed);
            // Parts that nobody took.
            self.shared.parts.iter().for_each(|parts| drop(parts.pop()));
        }
        match &self.hold {
            Hold::Held(_) => false,
            Hold::Released(token) => token.strong_count() == 0,
        }
    }

    /// Takes the interface that has the name now. After a failure not before a while, which grows: attaching a program resets many
    /// drivers, whose notices would be the next reason to try.
    fn try_reopen(&mut self) -> Result<(), String> {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return self.failure.clone().map_or(Ok(()), Err);
        }
        let result = self.reopen().map_err(|error| error.to_string());
        (self.retry, self.wait) = match result {
            Ok(()) => (None, REFRESH),
            Err(_) => (Some(Instant::now() + self.wait), (self.wait * 2).min(LONGEST_WAIT)),
        };
        result
    }

    /// Takes the interface that has the name now, and leaves each worker its part. Until a worker takes that, its packets go
    /// through the sockets.
    fn reopen(&mut self) -> Result<(), Error> {
        let mut resolver = self.resolver.renewed()?;
        let generation = self.generation.saturating_add(1);
        let taken = self.plan.take(&mut resolver, generation)?;
        let mode = taken.parts.first().map(|part| part.mode.as_str());
        tracing::info!(interface = resolver.name(), mode, "the interface is back: opened AF_XDP on it");
        for (parts, part) in self.shared.parts.iter().zip(taken.parts) {
            drop(parts.force_push(part));
        }
        self.hold = Hold::Held(taken.held);
        (self.resolver, self.generation) = (resolver, generation);
        self.is_stale = false;
        self.shared.is_gone.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Renews what is stale, or has become so; after a failure it stays so.
fn renew<E>(is_stale: &mut bool, is_changed: bool, renew: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    *is_stale |= is_changed;
    if *is_stale {
        renew()?;
        *is_stale = false;
    }
    Ok(())
}

/// Runs the thread.
fn keep(mut maintainer: Maintainer, mut poller: Poller, mut notices: Notices) {
    let shared = Arc::clone(&maintainer.shared);
    let mut refreshed = Instant::now();
    let mut noticed: Option<Instant> = None;
    while !shared.is_ending.load(Ordering::Acquire) {
        let left = REFRESH.saturating_sub(refreshed.elapsed());
        let Ok(ready) = poller.wait(Some(left)) else { return };
        let is_noticed = ready.is_readable(LINKS) || ready.is_readable(POLICIES);
        let is_due = refreshed.elapsed() >= REFRESH;
        if is_noticed {
            std::thread::sleep(noticed.map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed())));
            noticed = Some(Instant::now());
            let interface = maintainer.resolver.link().map_or(0, |link| link.index);
            if notices.drain(interface) {
                maintainer.resolver.mark_gone();
            }
            if let Some(of_policies) = &maintainer.of_policies {
                of_policies.drain();
            }
        }
        if is_due {
            refreshed = Instant::now();
        }
        let is_released = shared.has_release.swap(false, Ordering::Acquire);
        let is_anew = is_noticed || is_due || is_released;
        if is_anew {
            maintainer.follow();
        }
        let requests: Vec<Peer> = std::iter::from_fn(|| shared.requests.pop()).collect();
        if is_anew || !requests.is_empty() {
            let entries = pass(&shared.snapshot.load(), &mut maintainer.resolver, &requests, is_anew, is_due);
            shared.snapshot.store(Arc::new(Snapshot { entries, generation: maintainer.generation }));
        }
    }
}

/// Makes the next snapshot: what was requested, and what there was, asked for anew if `is_anew`.
fn pass(
    former: &Snapshot,
    resolver: &mut Resolver,
    requests: &[Peer],
    is_anew: bool,
    is_due: bool,
) -> HashMap<Peer, Arc<Entry>> {
    let mut entries = HashMap::with_capacity(former.entries.len() + requests.len());
    for (peer, entry) in &former.entries {
        if !is_anew {
            entries.insert(*peer, Arc::clone(entry));
            continue;
        }
        let is_used = if is_due { entry.is_used.load(Ordering::Relaxed) } else { false };
        let idle = match (is_due, is_used) {
            (true, true) => 0,
            (true, false) => entry.idle + 1,
            (false, _) => entry.idle,
        };
        if idle >= IDLE_REFRESHES {
            continue;
        }
        let hop = resolver.resolve(peer, is_used);
        // What was used between two refreshes counts for the next one.
        let is_used = AtomicBool::new(!is_due && entry.is_used.load(Ordering::Relaxed));
        entries.insert(*peer, Arc::new(Entry { hop, is_used, idle }));
    }
    for peer in requests {
        if entries.len() < MOST_PEERS && !entries.contains_key(peer) {
            let hop = resolver.resolve(peer, true);
            entries.insert(*peer, Arc::new(Entry { hop, is_used: AtomicBool::new(true), idle: 0 }));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_renewed_is_tried_again_until_it_can() {
        let mut is_stale = false;
        let mut tries = Vec::new();
        for (is_changed, result) in [
            (false, Err(())),
            (true, Err(())),
            (false, Err(())),
            (false, Ok(())),
            (false, Err(())),
            (true, Ok(())),
        ] {
            let mut is_tried = false;
            let renewed = renew(&mut is_stale, is_changed, || {
                is_tried = true;
                result
            });
            assert_eq!(renewed, if is_tried { result } else { Ok(()) });
            tries.push(is_tried);
        }
        assert_eq!(tries, [false, true, true, true, false, true]);
        assert!(!is_stale);
    }
}
