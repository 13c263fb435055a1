//! Carries out what [`Slots`] plans: a driver of a state machine, which reads the Leases of the shares from the store itself.
//! No decisions.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::timeout;

use super::local::LocalStatus;
use super::{Heartbeats, Member, Members, MembersConfig, Shutdown, Slots, paths_namespace};
use crate::api::{Kind, ObjectKey};
use crate::runner::WRITE_TIMEOUT;
use crate::store::Store;
use crate::timer::{clock, sleep_until};

/// Ours: how often shares are read where nothing is awaited, and where something is.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// Ours: after how long a silence the shares of a host that was taken out of the cluster may be taken. Its kubelet, if it
/// lives, ends its pods sooner.
const REMOVED_AFTER: Duration = Duration::from_secs(60);

/// The shares of the outside ports, claimed and given back while all gateways of this cluster are active.
pub(super) struct PortShares<S> {
    store: S,
    namespace: String,
    config: MembersConfig,
    local: watch::Receiver<LocalStatus>,
    /// Where the shares are published, and the first of them to the controller that publishes this gateway.
    members: watch::Sender<Members>,
    first: watch::Sender<Option<u8>>,
    slots: Slots,
}

impl<S: Store> PortShares<S> {
    /// Returns a driver that has read nothing.
    pub(super) fn new(
        store: S,
        config: &MembersConfig,
        local: watch::Receiver<LocalStatus>,
        members: watch::Sender<Members>,
        first: watch::Sender<Option<u8>>,
    ) -> Self {
        let namespace = paths_namespace(&config.namespace);
        let slots = Slots::new(&namespace, &config.hostname, config.times);
        Self { store, namespace, config: config.clone(), local, members, first, slots }
    }

    /// Claims shares until this gateway is to stop, and gives them up if it is removed.
    pub(super) async fn run(mut self, stopped: impl Future<Output = Shutdown>) {
        let mut stopped = pin!(stopped);
        let mut last_read = clock();
        let mut read_at = last_read;
        let mut siblings: Option<Arc<[Member]>> = None;
        let shutdown = loop {
            let due = self.local.borrow().is_multi.then_some(read_at);
            tokio::select! {
                biased;
                shutdown = &mut stopped => break shutdown,
                () = sleep_until(due) => {
                    let wait = if self.claim().await { INTERVAL.1 } else { INTERVAL.0 };
                    last_read = clock();
                    read_at = last_read + wait;
                }
                Ok(()) = self.local.changed() => {
                    let status = self.local.borrow_and_update();
                    if status.siblings != siblings {
                        siblings.clone_from(&status.siblings);
                        // Who comes lacks a share of the ports.
                        read_at = read_at.min(last_read + INTERVAL.1);
                    }
                }
            }
        };
        if shutdown == Shutdown::Removal {
            self.release().await;
        }
    }

    /// Reads the shares, and does the one write that is due. Returns `true` if something is awaited.
    async fn claim(&mut self) -> bool {
        if !self.read().await || !self.confirm().await {
            return true;
        }
        let (hosts, heartbeats) = self.gateways();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let absent: Vec<String> = self.slots.absent(&hosts).into_iter().map(str::to_owned).collect();
        let removed = self.removed(&absent).await;
        let is_gone = |host: &str| {
            let after = if removed.contains(host) { REMOVED_AFTER } else { self.config.times.silent };
            heartbeats.silence(host, clock()).is_some_and(|silence| silence >= after)
        };
        let write = self.slots.plan(&hosts, is_gone, clock(), Timestamp::now());
        let is_written = write.is_some();
        if let Some(write) = write
            && let Err(error) = write.execute(&self.store).await
        {
            tracing::debug!(%error, "a share of the outside ports stays as it is");
        }
        self.publish();
        is_written || self.slots.is_leaving() || self.slots.slots().is_none()
    }

    /// Reads the shares. Returns whether the store has answered.
    async fn read(&mut self) -> bool {
        let asked = clock();
        let read = timeout(WRITE_TIMEOUT, self.store.list(Kind::Lease, &self.namespace)).await;
        let Ok(Ok(leases)) = read else { return false };
        let has_proof = self.local.borrow().heartbeats.has_proof(clock());
        self.slots.handle_read(&leases, asked, has_proof);
        true
    }

    /// Makes the shares of the process before ours again. Returns whether the store has answered since.
    async fn confirm(&mut self) -> bool {
        let confirmations = self.slots.confirmations(Timestamp::now());
        if confirmations.is_empty() {
            return true;
        }
        for outcome in join_all(confirmations.into_iter().map(|write| write.execute(&self.store))).await {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a share of the outside ports is not confirmed");
            }
        }
        self.read().await
    }

    /// Returns the hosts of all gateways of this cluster that have published themselves, and this one's; and their signs of
    /// life.
    fn gateways(&self) -> (BTreeSet<String>, Arc<Heartbeats>) {
        let local = self.local.borrow();
        let siblings = local.siblings.iter().flat_map(|siblings| siblings.iter());
        let hosts = siblings.map(|member| member.endpoint.spec.hostname.clone());
        (hosts.chain([self.config.hostname.clone()]).collect(), Arc::clone(&local.heartbeats))
    }

    fn publish(&self) {
        let (slots, first) = (self.slots.slots(), self.slots.first());
        self.members.send_if_modified(|members| {
            let has_changed = members.slots != slots;
            members.slots = slots;
            has_changed
        });
        self.first.send_if_modified(|published| {
            let has_changed = *published != first;
            *published = first;
            has_changed
        });
    }

    /// Returns which of these hosts were taken out of the cluster: whoever deletes a Node says that nothing runs there any
    /// more. Only where our own host is a Node, as it is not with a directory.
    async fn removed(&self, hosts: &[String]) -> BTreeSet<String> {
        let mut removed = BTreeSet::new();
        if hosts.is_empty() || self.is_node(&self.config.hostname).await != Some(true) {
            return removed;
        }
        for host in hosts {
            if self.is_node(host).await == Some(false) {
                removed.insert(host.clone());
            }
        }
        removed
    }

    /// Returns whether a host is a Node; `None` if the store does not answer.
    async fn is_node(&self, host: &str) -> Option<bool> {
        let key = ObjectKey::new(Kind::Node, "", host);
        match timeout(WRITE_TIMEOUT, self.store.get(&key)).await {
            Ok(Ok(found)) => Some(found.is_some()),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Gives up all shares that are ours by now.
    async fn release(mut self) {
        let read = timeout(WRITE_TIMEOUT, self.store.list(Kind::Lease, &self.namespace)).await;
        let Ok(Ok(leases)) = read else {
            return tracing::warn!("cannot read the Leases of the outside ports: their shares are kept");
        };
        self.slots.handle_read(&leases, clock(), false);
        let writes = self.slots.release();
        let shares = writes.len();
        let outcomes = join_all(writes.into_iter().map(|write| write.execute(&self.store))).await;
        let released = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        tracing::info!(released, shares, "gave up shares of the outside ports for good");
    }
}
