//! What gateways that tell of themselves must find out of one another, through any stores.
//!
//! Part of the library so that stores in memory, directories and real API servers are tried alike. The checks panic, with a
//! sentence, at the first thing that is otherwise.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::{Inputs, Member, Members, MembersConfig, MembersHandle, Shutdown, SlotTimes, spawn};
use crate::api::EndpointSpec;
use crate::conditions::Conditions;
use crate::store::Store;

/// The gateways' namespace; that of their further Endpoints is made of it.
pub const LOCAL: &str = "submariner-operator";
/// The broker's.
pub const BROKER: &str = "submariner-k8s-broker";
/// How long each step may take.
pub const CONFORMANCE_TIMEOUT: Duration = Duration::from_secs(120);

/// A gateway that publishes itself, and everything that is published to it.
#[derive(Debug)]
pub struct Gateway {
    /// What it finds out. Dropping it ends the gateway without a word.
    pub handle: MembersHandle,
    /// Siblings whose cables live.
    pub live: watch::Sender<BTreeSet<String>>,
    /// Whether it is about to stop.
    pub draining: watch::Sender<bool>,
    /// Its own Endpoint.
    pub endpoint: watch::Sender<EndpointSpec>,
    /// What is wrong.
    pub conditions: Conditions,
}

/// Returns the Endpoint of a cluster's gateway of this number.
#[must_use]
pub fn spec(cluster: &str, number: u8) -> EndpointSpec {
    EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: format!("submariner-cable-{cluster}-192-0-2-{number}"),
        hostname: format!("{cluster}-gw{number}"),
        subnets: vec!["10.1.0.0/16".to_owned()],
        private_ip: format!("192.0.2.{number}"),
        backend: "wireguard".to_owned(),
        ..EndpointSpec::default()
    }
}

/// Returns its settings.
#[must_use]
pub fn config(cluster: &str, number: u8) -> MembersConfig {
    MembersConfig {
        namespace: LOCAL.to_owned(),
        broker_namespace: BROKER.to_owned(),
        cluster_id: cluster.to_owned(),
        hostname: format!("{cluster}-gw{number}"),
        is_wanted: true,
        has_slots: true,
        notice_key: Some([number; 32]),
        times: SlotTimes::default(),
    }
}

impl Gateway {
    /// Starts it.
    pub fn start<S: Store + Clone, B: Store>(
        store: &S,
        broker: B,
        config: &MembersConfig,
        number: u8,
    ) -> Self {
        let (live, live_receiver) = watch::channel(BTreeSet::new());
        let (draining, is_draining) = watch::channel(false);
        let (endpoint, own) = watch::channel(spec(&config.cluster_id, number));
        let conditions = Conditions::new();
        let inputs = Inputs {
            endpoint: own,
            draining: is_draining,
            live: live_receiver,
            conditions: conditions.clone(),
        };
        let handle = spawn(store.clone(), Some(broker), config, &inputs, Members::default());
        Self { handle, live, draining, endpoint, conditions }
    }

    /// Returns what it knows at present.
    #[must_use]
    pub fn members(&self) -> Members {
        self.handle.members.borrow().clone()
    }

    /// Returns the shares of the outside ports that it has at present, a bit for each.
    #[must_use]
    pub fn shares(&self) -> u8 {
        self.handle.members.borrow().slots.map_or(0, |slots| slots.held)
    }

    /// Waits for what it is to know.
    ///
    /// # Panics
    /// If that takes longer than [`CONFORMANCE_TIMEOUT`].
    pub async fn until(&self, what: &str, is_so: impl Fn(&Members) -> bool) -> Members {
        let mut members = self.handle.members.clone();
        let found = timeout(CONFORMANCE_TIMEOUT, members.wait_for(|members| is_so(members))).await;
        match found {
            Ok(Ok(members)) => members.clone(),
            _ => panic!("{what}: {:?}", self.members()),
        }
    }
}

/// Returns host names of gateways.
#[must_use]
pub fn names(members: &[Member]) -> Vec<&str> {
    members.iter().map(|member| member.endpoint.spec.hostname.as_str()).collect()
}

/// Checks that gateways of clusters `a` and `b`, each with its store and its way to the broker, come to know one another, and
/// what becomes of them.
///
/// # Panics
/// When they do not.
pub async fn publish_to_one_another<S: Store + Clone, B: Store + Clone>(stores: [S; 2], brokers: [B; 2]) {
    let [a, b] = stores;
    let [a_broker, b_broker] = brokers;
    let first = Gateway::start(&a, a_broker.clone(), &config("a", 1), 1);
    let second = Gateway::start(&a, a_broker, &config("a", 2), 2);
    let third = Gateway::start(&b, b_broker, &config("b", 1), 3);
    // Siblings are used once the own Endpoint is there, which others' may be before.
    let has_all = |seen: &Members| seen.is_multi && seen.siblings.len() == 1 && seen.remote.len() == 1;
    let seen = first.until("the first sees all and uses its sibling", has_all).await;
    assert_eq!((names(&seen.siblings), names(&seen.remote)), (vec!["a-gw2"], vec!["b-gw3"]));
    let sibling = &seen.siblings[0].endpoint.spec;
    assert!(sibling.supports_paths() && sibling.notice_key() == Some([2; 32]), "{sibling:?}");
    assert_eq!(seen.remote[0].endpoint.spec.notice_key(), None, "keys are published at home only");
    third.until("the third sees two", |seen| names(&seen.remote) == ["a-gw1", "a-gw2"]).await;

    first.draining.send_replace(true);
    third
        .until("draining is published", |seen| {
            seen.remote.iter().any(|member| member.endpoint.spec.is_draining())
        })
        .await;
    second.handle.stop(Shutdown::Restart, Duration::from_secs(10)).await;
    first.until("who leaves takes its word along", |seen| seen.siblings.is_empty()).await;
    third.until("on the broker too", |seen| names(&seen.remote) == ["a-gw1"]).await;
}

/// Checks that three gateways of a cluster that begin at once share the outside ports: never has one what another one has, and
/// in the end all is somebody's.
///
/// # Panics
/// When it is otherwise.
pub async fn share_the_ports<S: Store + Clone, B: Store + Clone>(store: &S, broker: &B) {
    let gateways =
        [1, 2, 3].map(|number| Gateway::start(store, broker.clone(), &config("a", number), number));
    let since = tokio::time::Instant::now();
    loop {
        // Read twice: what went from one to the other in between was not had by both.
        let before = gateways.each_ref().map(Gateway::shares);
        let after = gateways.each_ref().map(Gateway::shares);
        for (index, one) in before.iter().enumerate() {
            for (other, shares) in after.iter().enumerate().filter(|(other, _)| *other != index) {
                let both = one & after[index] & shares & before[other];
                assert_eq!(both, 0, "gateways {} and {} have the same: {before:?}", index + 1, other + 1);
            }
        }
        let counts = after.map(u8::count_ones);
        if counts.iter().sum::<u32>() == 8 && counts.iter().all(|count| (2..=3).contains(count)) {
            break;
        }
        assert!(since.elapsed() < CONFORMANCE_TIMEOUT, "not all is somebody's, in even parts: {after:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
