//! The task that keeps the public address up to date.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::StreamExt as _;
use futures::stream::{self, SelectAll};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lookup::{Lookup, NetworkLookup};
use super::resolve::{Failures, Resolution, resolve_aloud};
use super::spec::{Resolver, Resolvers};
use super::state::{PublicIp, Remembered, WatchState};
use crate::api::{Kind, ObjectKey};
use crate::https::HttpsClient;
use crate::store::{Store, StoreEvent};
use crate::timer::sleep_until;

type Round<'a> = Pin<Box<dyn Future<Output = Result<Resolution, Failures>> + Send + 'a>>;
type Nudges = SelectAll<Pin<Box<dyn futures::Stream<Item = ()> + Send>>>;

/// A running watcher. Dropping it ends it.
#[derive(Debug)]
pub struct PublicIpWatcher {
    /// The address as far as it is known. Changes with every round, if only in `next_try`: compare what matters, as
    /// [`PublicIp::apply_to`] does.
    pub public_ip: watch::Receiver<PublicIp>,
    resolvers: watch::Sender<Resolvers>,
    requests: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl PublicIpWatcher {
    /// Starts watching on the current tokio runtime. Services of load balancers are those of `namespace` in `store`;
    /// they are followed, so that an address that the cloud assigns later is there at once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<S: Store + Clone>(
        client: HttpsClient,
        store: S,
        namespace: &str,
        resolvers: Resolvers,
        remembered: Option<Remembered>,
    ) -> Self {
        let lookup = NetworkLookup::new(client, store.clone(), namespace);
        let services = namespace.to_owned();
        let follow = move |resolvers: &Resolvers| follow_services(&store, &services, resolvers);
        Self::spawn_with(lookup, follow, resolvers, remembered)
    }

    fn spawn_with<L: Lookup>(
        lookup: L,
        follow: impl Fn(&Resolvers) -> Nudges + Send + Sync + 'static,
        resolvers: Resolvers,
        remembered: Option<Remembered>,
    ) -> Self {
        let state = WatchState::new(resolvers.clone(), remembered);
        let (known_sender, public_ip) = watch::channel(state.public_ip().clone());
        let (resolvers_sender, resolvers) = watch::channel(resolvers);
        let (request_sender, requests) = watch::channel(());
        let inputs = Inputs { resolvers, requests };
        let task = tokio::spawn(run(state, lookup, follow, inputs, known_sender));
        Self { public_ip, resolvers: resolvers_sender, requests: request_sender, task }
    }

    /// Asks other resolvers from now on: the node's setting has changed.
    pub fn set_resolvers(&self, resolvers: Resolvers) {
        self.resolvers.send_if_modified(|known| {
            let is_changed = *known != resolvers;
            *known = resolvers;
            is_changed
        });
    }

    /// Asks again soon: there is a reason to think that the address changed.
    pub fn request(&self) {
        self.requests.send_replace(());
    }
}

impl Drop for PublicIpWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Inputs {
    resolvers: watch::Receiver<Resolvers>,
    requests: watch::Receiver<()>,
}

/// Runs until the handle is gone.
async fn run<L: Lookup>(
    mut state: WatchState,
    lookup: L,
    follow: impl Fn(&Resolvers) -> Nudges,
    mut inputs: Inputs,
    known: watch::Sender<PublicIp>,
) {
    let mut nudges = follow(state.resolvers());
    let mut asked = state.resolvers().clone();
    loop {
        let so_far = Mutex::new(Failures::default());
        let report_failures = |failures: &Failures| lock(&so_far).clone_from(failures);
        let mut round: Option<Round<'_>> = None;
        // Until the resolvers change; then what is under way is dropped, since nobody wants its answer any more.
        loop {
            if round.is_none() && state.poll_resolve(now()) {
                *lock(&so_far) = Failures::default();
                round = Some(Box::pin(resolve_aloud(&asked, &lookup, report_failures)));
            }
            tokio::select! {
                outcome = finished(&mut round) => {
                    round = None;
                    log(state.public_ip(), &outcome);
                    state.handle_outcome(outcome, now(), Timestamp::now());
                }
                () = sleep_until(state.poll_timeout()) => {
                    state.handle_timeout(now());
                    if state.poll_slow(now()) {
                        state.handle_slow(&lock(&so_far), Timestamp::now());
                        let error = state.public_ip().error.as_deref().unwrap_or_default();
                        tracing::warn!(error, "public address not known yet");
                    }
                }
                Some(()) = nudges.next() => state.handle_request(now()),
                requested = inputs.requests.changed() => match requested {
                    Ok(()) => state.handle_request(now()),
                    Err(_) => return,
                },
                changed = inputs.resolvers.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
            }
            publish(&known, state.public_ip());
        }
        drop(round);
        asked = inputs.resolvers.borrow_and_update().clone();
        state.handle_resolvers(asked.clone());
        nudges = follow(&asked);
        publish(&known, state.public_ip());
    }
}

/// Locks the failures. Nobody panics while holding the lock; if somebody did, the list so far would do.
fn lock(failures: &Mutex<Failures>) -> MutexGuard<'_, Failures> {
    failures.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads Tokio's clock, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn finished(round: &mut Option<Round<'_>>) -> Result<Resolution, Failures> {
    match round {
        Some(round) => round.await,
        None => pending().await,
    }
}

fn publish(known: &watch::Sender<PublicIp>, public_ip: &PublicIp) {
    known.send_if_modified(|known| {
        let is_changed = known != public_ip;
        if is_changed {
            known.clone_from(public_ip);
        }
        is_changed
    });
}

/// Says what changes, once.
fn log(known: &PublicIp, outcome: &Result<Resolution, Failures>) {
    match outcome {
        Ok(found) if known.address != Some(found.address) || known.error.is_some() => {
            tracing::info!(address = %found.address, resolver = %found.resolver, "public address found");
        }
        Err(failures) if known.error.is_none() => {
            tracing::warn!(error = %failures, "public address not resolved");
        }
        Ok(_) | Err(_) => {}
    }
}

/// Yields an item whenever a Service of a load balancer changes. The round that follows reads it; a store that cannot
/// be followed leaves the regular rounds.
fn follow_services<S: Store>(store: &S, namespace: &str, resolvers: &Resolvers) -> Nudges {
    let service = |resolver: &Resolver| match resolver {
        Resolver::LoadBalancer(service) => Some(ObjectKey::new(Kind::Service, namespace, service)),
        Resolver::Api(_) | Resolver::Ipv4(_) | Resolver::Ipv6(_) | Resolver::Dns(_) => None,
    };
    let follow = |key: ObjectKey| {
        let events = store.watch_one(&key);
        let changes = events.filter_map(|event| {
            std::future::ready((!matches!(event, StoreEvent::Unavailable(_))).then_some(()))
        });
        changes.boxed()
    };
    stream::select_all(resolvers.valid().filter_map(service).map(follow))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::super::error::LookupError;
    use super::super::lookup::Ingress;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_changes_is_there_a_minute_later_and_one_that_vanishes_stays() {
        let world = World::default();
        world.0.store(7, Ordering::Relaxed);
        let watcher = watch(&world, "api:down.example,dns:gw.example");
        let mut seen = watcher.public_ip.clone();
        assert_eq!(next(&mut seen).await.address.unwrap().to_string(), "192.0.2.7");
        let started = tokio::time::Instant::now();

        world.0.store(8, Ordering::Relaxed);
        assert_eq!(next(&mut seen).await.address.unwrap().to_string(), "192.0.2.8");
        assert_eq!(started.elapsed().as_secs(), 60);

        world.0.store(0, Ordering::Relaxed);
        let failed = next(&mut seen).await;
        assert_eq!(failed.address.unwrap().to_string(), "192.0.2.8");
        assert!(failed.error.unwrap().ends_with(
            "stays: api:down.example: timed out after 30 s; dns:gw.example: no A record for gw.example"
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_and_other_resolvers_do_not_wait_for_the_minute() {
        let world = World::default();
        world.0.store(7, Ordering::Relaxed);
        let watcher = watch(&world, "dns:gw.example");
        let mut seen = watcher.public_ip.clone();
        next(&mut seen).await;
        let started = tokio::time::Instant::now();

        world.0.store(8, Ordering::Relaxed);
        watcher.request();
        assert_eq!(next(&mut seen).await.address.unwrap().to_string(), "192.0.2.8");
        assert!(started.elapsed() <= Duration::from_secs(1));

        watcher.set_resolvers(Resolvers::read("ipv4:192.0.2.99"));
        seen.wait_for(|ip| ip.resolver == "ipv4:192.0.2.99").await.unwrap();
        assert!(started.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_hangs_is_dropped_when_the_resolvers_change() {
        let watcher = watch(&World::default(), "lb:hangs");
        let mut seen = watcher.public_ip.clone();
        tokio::task::yield_now().await;
        watcher.set_resolvers(Resolvers::read("ipv4:192.0.2.99"));
        let known = seen.wait_for(|ip| ip.address.is_some()).await.unwrap().clone();
        assert_eq!((known.resolver.as_str(), known.is_load_balancer), ("ipv4:192.0.2.99", false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_hangs_is_told_before_it_ends() {
        let watcher = watch(&World::default(), "dns:gw.example,lb:hangs,api:never.asked");
        let mut seen = watcher.public_ip.clone();
        let started = tokio::time::Instant::now();
        let error = next(&mut seen).await.error.unwrap();
        assert_eq!(started.elapsed().as_secs(), 10);
        let waiting = "dns:gw.example: no A record for gw.example; lb:hangs: no answer yet; api:never.asked: no answer yet";
        assert!(error.ends_with(waiting), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_ends_with_its_handle() {
        let watcher = watch(&World::default(), "dns:gw.example");
        let mut seen = watcher.public_ip.clone();
        drop(watcher);
        while seen.changed().await.is_ok() {}
    }

    fn watch(world: &World, list: &str) -> PublicIpWatcher {
        PublicIpWatcher::spawn_with(world.clone(), |_| Nudges::new(), Resolvers::read(list), None)
    }

    async fn next(seen: &mut watch::Receiver<PublicIp>) -> PublicIp {
        let before = seen.borrow_and_update().clone();
        let is_other = |ip: &PublicIp| ip.address != before.address || ip.error != before.error;
        seen.wait_for(is_other).await.unwrap().clone()
    }

    /// A world in which every name has the address 192.0.2.N, or none when N is 0, and no Service ever answers.
    #[derive(Clone, Default)]
    struct World(Arc<AtomicU32>);

    impl Lookup for World {
        async fn fetch(&self, _: &str) -> Result<Vec<u8>, LookupError> {
            Err(LookupError::TimedOut)
        }

        async fn addresses(&self, _: &str) -> Result<Vec<Ipv4Addr>, LookupError> {
            let last = u8::try_from(self.0.load(Ordering::Relaxed)).unwrap();
            Ok(if last == 0 { Vec::new() } else { vec![Ipv4Addr::new(192, 0, 2, last)] })
        }

        async fn ingress(&self, _: &str) -> Result<Ingress, LookupError> {
            pending().await
        }
    }
}
