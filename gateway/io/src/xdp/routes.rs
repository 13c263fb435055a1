//! Where frames go: a snapshot of the kernel's routes and neighbours for the peers that are sent to.
//!
//! ```text
//!  worker ── lookup ──▶ snapshot ◀── swapped in whole ── thread "xdp-routes" ── questions ──▶ kernel
//!     └── a peer that is not there ──▶ queue ──▶ thread                        ◀── notices ──┘
//! ```
//!
//! Until a peer is resolved its packets go through the sockets, for which the kernel resolves the neighbour; the notice of
//! that brings it here. Every few seconds all peers are asked for anew, and the kernel is made to confirm neighbours that
//! are used: it does not see our frames. The same thread keeps the filter's addresses.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use crossbeam::queue::ArrayQueue;

use super::attach::Attachment;
use super::filter::FilterConfig;
use super::frame::Hop;
use super::netlink::{LinkState, Notices, Questions};
use crate::Error;
use crate::poll::{Interest, Poller, Waker};

/// Most peers that are kept; others go through the sockets.
const MOST_PEERS: usize = 1024;
/// Requests of workers that wait for the thread.
const REQUESTS: usize = 256;
/// How often all is asked for anew: what the kernel has learnt of a path's MTU has no notice.
const REFRESH: Duration = Duration::from_secs(5);
/// Refreshes after which a peer that nobody sends to is removed.
const IDLE_REFRESHES: u8 = 12;
/// The least between two passes for notices, so that a storm of them costs little.
const PAUSE: Duration = Duration::from_millis(50);

/// A peer, and our address that it knows; `None` leaves the choice to the kernel.
pub(super) type Peer = (IpAddr, Option<IpAddr>);

/// A peer's entry.
#[derive(Debug)]
struct Entry {
    /// `None` while there is no way for frames.
    hop: Option<Hop>,
    is_used: AtomicBool,
    idle: u8,
}

/// What workers look peers up in.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    entries: HashMap<Peer, Arc<Entry>>,
}

/// What the snapshot has about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Frames go there.
    Found(Hop),
    /// There is no way for frames.
    Unresolved,
    /// Nobody has asked for it yet.
    Missing,
}

impl Snapshot {
    /// Returns where frames for a peer go.
    pub(super) fn get(&self, peer: &Peer) -> Lookup {
        let Some(entry) = self.entries.get(peer) else {
            // While there are as many as may be nobody is asked for; strangers must not keep the thread at work.
            return if self.entries.len() < MOST_PEERS { Lookup::Missing } else { Lookup::Unresolved };
        };
        if !entry.is_used.load(Ordering::Relaxed) {
            entry.is_used.store(true, Ordering::Relaxed);
        }
        entry.hop.map_or(Lookup::Unresolved, Lookup::Found)
    }
}

#[derive(Debug)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    requests: ArrayQueue<Peer>,
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
    /// Starts the thread for an interface, in the network namespace of the calling one.
    ///
    /// # Errors
    /// There is no netlink, or no thread.
    pub(super) fn start(resolver: Resolver, attachment: Arc<Attachment>) -> Result<Self, Error> {
        let start = || -> io::Result<Self> {
            let notices = Notices::open()?;
            let poller = Poller::new()?;
            poller.add(&notices, 0, Interest::Readable)?;
            let waker = poller.waker();
            let shared = Arc::new(Shared {
                snapshot: ArcSwap::default(),
                requests: ArrayQueue::new(REQUESTS),
                is_ending: AtomicBool::new(false),
            });
            let ours = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name("xdp-routes".to_owned())
                .spawn(move || keep(&ours, poller, notices, resolver, &attachment))?;
            Ok(Self { shared, waker, thread: Some(thread) })
        };
        start().map_err(|error| Error::kernel("cannot follow the kernel's routes", error))
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

/// Asks the kernel for one interface's state and the ways to peers.
#[derive(Debug)]
pub(super) struct Resolver {
    questions: Questions,
    name: String,
    mark: Option<u32>,
    link: Option<LinkState>,
    filter: FilterConfig,
}

impl Resolver {
    /// Reads the state of an Ethernet interface. `filter` has our ports.
    ///
    /// # Errors
    /// There is no such interface, or no netlink.
    pub(super) fn new(name: &str, mark: Option<u32>, filter: FilterConfig) -> Result<Self, Error> {
        let fail = |error| Error::kernel(format!("cannot read the state of {name}"), error);
        let questions = Questions::open().map_err(fail)?;
        let mut resolver = Self { questions, name: name.to_owned(), mark, link: None, filter };
        resolver.refresh_link().map_err(fail)?;
        if resolver.link.is_none() {
            let reason = "there is no such Ethernet interface".to_owned();
            return Err(Error::NoXdp { name: name.to_owned(), reason });
        }
        Ok(resolver)
    }

    /// Returns what the interface is like.
    pub(super) fn link(&self) -> Option<&LinkState> {
        self.link.as_ref()
    }

    /// Returns what the filter should take.
    pub(super) fn filter(&self) -> &FilterConfig {
        &self.filter
    }

    /// Sets the largest frame, and whether checksums may be left to a device.
    pub(super) fn set_frames(&mut self, bytes: u16, partial: bool) {
        (self.filter.frame_bytes, self.filter.partial) = (bytes, partial);
    }

    /// Reads the interface anew. Returns `true` if the filter has to change.
    fn refresh_link(&mut self) -> io::Result<bool> {
        let link = self.questions.link(&self.name)?;
        // Another interface of the same name is another one: program and sockets went with the first.
        let is_same = |link: &LinkState| self.link.as_ref().is_none_or(|former| former.index == link.index);
        let Some(link) = link.filter(is_same) else {
            if let Some(link) = &mut self.link {
                link.is_up = false;
            }
            return Ok(false);
        };
        let (ipv4, ipv6) = self.questions.addresses(link.index)?;
        let filter = FilterConfig { mac: link.mac, ipv4, ipv6, ..self.filter.clone() };
        self.link = Some(link);
        let is_changed = filter != self.filter;
        self.filter = filter;
        Ok(is_changed)
    }

    /// Returns where frames for a peer go; what cannot be found out counts as nowhere.
    fn resolve(&mut self, peer: &Peer, is_used: bool) -> Option<Hop> {
        let link = self.link.clone().filter(|link| link.is_up)?;
        let route = self.questions.route(peer.0, peer.1, self.mark).ok()??;
        let source = route.source.filter(|source| source.is_ipv4() == peer.0.is_ipv4())?;
        if route.interface != link.index || has_no_route(peer.0) {
            return None;
        }
        if is_used {
            // Without the right to it neighbours age, and packets go through the sockets for a moment.
            let _ = self.questions.use_neighbour(link.index, route.next_hop);
        }
        let to = self.questions.neighbour(link.index, route.next_hop).ok()??;
        let mtu_bytes = route.mtu_bytes.map_or(link.mtu_bytes, |bytes| bytes.min(link.mtu_bytes));
        Some(Hop { to, from: link.mac, source, mtu_bytes })
    }
}

/// Returns `true` for addresses that name no machine, or one on a link that is not named.
fn has_no_route(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// Runs the thread.
fn keep(
    shared: &Shared,
    mut poller: Poller,
    mut notices: Notices,
    mut resolver: Resolver,
    attachment: &Attachment,
) {
    let mut refreshed = Instant::now();
    let mut noticed: Option<Instant> = None;
    while !shared.is_ending.load(Ordering::Acquire) {
        let left = REFRESH.saturating_sub(refreshed.elapsed());
        let Ok(ready) = poller.wait(Some(left)) else { return };
        let (is_noticed, is_due) = (ready.is_readable(0), refreshed.elapsed() >= REFRESH);
        if is_noticed {
            std::thread::sleep(noticed.map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed())));
            noticed = Some(Instant::now());
            notices.drain();
            if resolver.refresh_link().unwrap_or(false)
                && let Err(error) = attachment.refresh(&resolver.filter)
            {
                tracing::warn!(%error, interface = resolver.name, "cannot follow the interface's addresses with the XDP program");
            }
        }
        if is_due {
            refreshed = Instant::now();
        }
        let requests: Vec<Peer> = std::iter::from_fn(|| shared.requests.pop()).collect();
        if is_noticed || is_due || !requests.is_empty() {
            let next = pass(&shared.snapshot.load(), &mut resolver, &requests, is_noticed || is_due, is_due);
            shared.snapshot.store(Arc::new(next));
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
) -> Snapshot {
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
    Snapshot { entries }
}
