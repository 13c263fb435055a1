//! The controller of this gateway's further Endpoint in the own store, which also follows the siblings there and removes
//! what vanished ones have left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::failures::classify;
use super::member_cache::MemberCache;
use super::own::further_spec;
use super::{
    GarbageCollector, Heartbeats, Member, MembersConfig, Publication, further_name, paths_namespace, plan_own,
};
use crate::api::{EndpointSpec, Kind};
use crate::runner::{Context, Controller, Failure, QueueView, Reconciled, Watch, Write};
use crate::store::{StoreError, StoreEvent};

/// What is reconciled by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalKey {
    /// This gateway's own Endpoint.
    Own,
    /// What the sibling of this cable has left, if it has vanished.
    Sibling(String),
}

/// What may change at any time.
#[derive(Debug, Clone)]
pub enum LocalInput {
    /// The sole form of this gateway's Endpoint.
    Endpoint(Box<EndpointSpec>),
    /// Whether this gateway is to get no new flows.
    Draining(bool),
    /// The share of the outside ports that this gateway keeps.
    FirstSlot(Option<u8>),
    /// The cables to siblings that are not dead.
    LiveCables(BTreeSet<String>),
}

/// How far this gateway and its siblings are in the own store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalStatus {
    /// Whether this cluster's gateways are all active: this one has published itself.
    pub is_multi: bool,
    /// How far its own Endpoint is.
    pub publication: Publication,
    /// Why this gateway cannot publish itself, for people.
    pub refusal: Option<String>,
    /// The other gateways of this cluster, by cable name; `None` until all are observed.
    pub siblings: Option<Arc<[Member]>>,
    /// The cables of siblings that have vanished and have not come back.
    pub vanished: BTreeSet<String>,
    /// When the hosts of this cluster's gateways have shown a sign of life.
    pub heartbeats: Arc<Heartbeats>,
}

/// Publishes this gateway to its siblings, and removes those that have vanished.
#[derive(Debug)]
pub struct LocalController {
    config: MembersConfig,
    namespace: String,
    endpoint: EndpointSpec,
    own_name: Option<String>,
    is_draining: bool,
    first_slot: Option<u8>,
    live: BTreeSet<String>,
    further: MemberCache,
    collector: GarbageCollector,
    vanished: BTreeSet<String>,
    /// Whether it depends on something that has changed who has vanished.
    is_suspect: bool,
    is_multi: bool,
    publication: Publication,
    refusal: Option<String>,
}

impl LocalController {
    /// Returns a controller that has observed nothing. Until it has, all gateways are active if `is_multi`.
    pub fn new(config: MembersConfig, endpoint: EndpointSpec, is_multi: bool) -> Self {
        Self {
            namespace: paths_namespace(&config.namespace),
            own_name: further_name(&endpoint.cable_name).ok(),
            endpoint,
            is_draining: false,
            first_slot: None,
            live: BTreeSet::new(),
            further: MemberCache::new(&config.cluster_id),
            collector: GarbageCollector::new(&config.hostname),
            config,
            vanished: BTreeSet::new(),
            is_suspect: false,
            is_multi,
            publication: Publication::Pending,
            refusal: None,
        }
    }

    fn observe_further(&mut self, event: StoreEvent) -> Vec<LocalKey> {
        if let StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) = &event
            && !self.further.is_complete()
        {
            self.refuse(error.to_string());
        }
        let MembersConfig { cluster_id, hostname, .. } = &self.config;
        let is_sibling =
            |member: &Member| member.cluster_id() == cluster_id && member.endpoint.spec.hostname != *hostname;
        let changes = self.further.apply(event, self.own_name.as_deref(), is_sibling);
        self.is_suspect |= changes.list;
        if changes.own { vec![LocalKey::Own] } else { Vec::new() }
    }

    /// Records why the own store does not take this gateway's Endpoint: others cannot be active beside it.
    fn refuse(&mut self, reason: String) {
        self.is_multi = false;
        self.publication = Publication::Refused;
        self.refusal = Some(reason);
    }

    fn reconcile_own(&mut self) -> Reconciled {
        if !self.further.is_complete() {
            return Reconciled::await_change();
        }
        let mut own = further_spec(&self.endpoint, self.is_draining);
        own.set_notice_key(self.config.notice_key);
        own.set_nat_slot(self.first_slot);
        let known = self.further.own_objects(self.own_name.as_deref());
        // A cable's name is made of the cluster's and an address: a name can be made of it.
        let writes = plan_own(&self.namespace, &own, self.config.is_wanted, &known).unwrap_or_default();
        if writes.is_empty() {
            (self.is_multi, self.refusal) = (self.config.is_wanted, None);
            self.publication = Publication::Done;
        }
        Reconciled::write(writes)
    }

    /// Plans to remove what a sibling has left, if it has vanished by what is observed at present.
    fn reconcile_sibling(&mut self, cable: &str, now: Instant) -> Reconciled {
        let Some(siblings) = self.further.members() else { return Reconciled::await_change() };
        let vanished = self.collector.vanished(siblings, &self.live, now);
        let Some(member) = vanished.into_iter().find(|member| member.cable_name() == cable) else {
            return Reconciled::await_change();
        };
        let gateway = self.collector.gateway_of(&member.endpoint.spec.hostname);
        let further = self.further.get(&member.endpoint.metadata.name);
        // The Gateway object goes first: without the further Endpoint nobody would look for it any more.
        Reconciled::write(gateway.into_iter().chain(further).cloned().map(Write::Delete).collect())
    }
}

impl Controller for LocalController {
    type Key = LocalKey;
    type Status = LocalStatus;
    type Input = LocalInput;

    fn name(&self) -> &'static str {
        "members"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        let further = Watch::new(0, Kind::Endpoint, &*self.namespace);
        [further, Watch::new(0, Kind::Gateway, &*self.config.namespace)].into()
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, now: Instant) -> Vec<LocalKey> {
        if watch.kind == Kind::Endpoint {
            return self.observe_further(event);
        }
        self.collector.handle_gateways(&event, now);
        self.is_suspect = true;
        Vec::new()
    }

    fn handle_input(&mut self, input: LocalInput, _: Instant) -> Vec<LocalKey> {
        let has_changed = match input {
            LocalInput::Endpoint(endpoint) => {
                self.own_name = further_name(&endpoint.cable_name).ok();
                replace(&mut self.endpoint, *endpoint)
            }
            LocalInput::Draining(is_draining) => replace(&mut self.is_draining, is_draining),
            LocalInput::FirstSlot(slot) => replace(&mut self.first_slot, slot),
            LocalInput::LiveCables(live) => {
                self.is_suspect |= replace(&mut self.live, live);
                false
            }
        };
        if has_changed { vec![LocalKey::Own] } else { Vec::new() }
    }

    /// Finds who has vanished. What a broker has of a vanished sibling goes in its own time: the cable stays here until it
    /// is somebody's again.
    fn drain_changed(&mut self, now: Instant) -> Vec<LocalKey> {
        self.further.refresh();
        if !std::mem::take(&mut self.is_suspect) {
            return Vec::new();
        }
        let Some(siblings) = self.further.members() else { return Vec::new() };
        let vanished = self.collector.vanished(siblings, &self.live, now);
        let vanished: Vec<String> =
            vanished.into_iter().map(|member| member.cable_name().to_owned()).collect();
        for member in siblings.iter().filter(|member| self.live.contains(member.cable_name())) {
            self.vanished.remove(member.cable_name());
        }
        self.vanished.extend(vanished.iter().cloned());
        vanished.into_iter().map(LocalKey::Sibling).collect()
    }

    fn reconcile(&mut self, key: &LocalKey, context: &Context) -> Reconciled {
        match key {
            LocalKey::Own => self.reconcile_own(),
            LocalKey::Sibling(cable) => self.reconcile_sibling(cable, context.now),
        }
    }

    fn classify(&self, write: &Write, error: &StoreError) -> Failure {
        classify(write, error)
    }

    /// Takes in the result of a write: all gateways can be active only if the own store takes this one's Endpoint.
    fn written(
        &mut self,
        key: &LocalKey,
        write: &Write,
        outcome: Result<&StoreEvent, &StoreError>,
        _: Instant,
    ) {
        match (key, outcome) {
            (LocalKey::Own, Err(error @ (StoreError::Forbidden { .. } | StoreError::Denied { .. }))) => {
                self.refuse(error.to_string());
            }
            (LocalKey::Own, Err(StoreError::NotFound(key))) if matches!(write, Write::Create(_)) => {
                self.refuse(format!("there is no namespace {}", key.namespace));
            }
            (LocalKey::Sibling(cable), Ok(_)) => {
                tracing::info!(object = %write.key(), cable, "removed an object of a vanished gateway");
            }
            _ => {}
        }
    }

    fn status(&self, _: &QueueView<'_>) -> LocalStatus {
        let siblings = self.further.members();
        let is_present =
            |cable: &String| siblings.is_some_and(|all| all.iter().any(|one| one.cable_name() == cable));
        LocalStatus {
            is_multi: self.is_multi,
            publication: self.publication,
            refusal: self.refusal.clone(),
            siblings: siblings.cloned(),
            vanished: self.vanished.iter().filter(|cable| !is_present(cable)).cloned().collect(),
            heartbeats: Arc::clone(self.collector.heartbeats()),
        }
    }
}

/// Replaces a value. Returns `true` if it was another one.
pub(super) fn replace<T: PartialEq>(value: &mut T, by: T) -> bool {
    let has_changed = *value != by;
    *value = by;
    has_changed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::{Object, ObjectMeta};
    use crate::members::conformance::{LOCAL, config, spec};

    fn further(number: u8) -> Object {
        let writes = plan_own(&paths_namespace(LOCAL), &spec("a", number), true, &[]).unwrap();
        let [Write::Create(object)] = &writes[..] else { panic!("{writes:?}") };
        object.clone()
    }

    fn gateway(number: u8, version: u64) -> Object {
        let mut object = Object::new(Kind::Gateway, ObjectMeta::new(LOCAL, format!("a-gw{number}")));
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn sibling() -> LocalKey {
        LocalKey::Sibling(spec("a", 2).cable_name)
    }

    /// A controller and its clock.
    struct Rig {
        controller: LocalController,
        now: Instant,
        beats: u64,
    }

    impl Rig {
        fn new() -> Self {
            let controller = LocalController::new(config("a", 1), spec("a", 1), false);
            Self { controller, now: Instant::now(), beats: 0 }
        }

        fn hand(&mut self, event: StoreEvent) -> Vec<LocalKey> {
            let kind = match &event {
                StoreEvent::Listed(objects) => objects.first().map_or(Kind::Endpoint, |object| object.kind),
                StoreEvent::Applied(object) | StoreEvent::Deleted(object) => object.kind,
                StoreEvent::Unavailable(_) => Kind::Endpoint,
            };
            let watch = self.controller.watches().into_iter().find(|watch| watch.kind == kind).unwrap();
            let mut keys = self.controller.observe(&watch, event, self.now);
            keys.extend(self.controller.drain_changed(self.now));
            keys
        }

        fn input(&mut self, input: LocalInput) -> Vec<LocalKey> {
            let mut keys = self.controller.handle_input(input, self.now);
            keys.extend(self.controller.drain_changed(self.now));
            keys
        }

        /// Lets these gateways beat until then, every five seconds. Returns the keys that the last beat concerns.
        fn beat(&mut self, gateways: &[u8], seconds: u64) -> Vec<LocalKey> {
            let mut keys = Vec::new();
            for _ in 0..seconds / 5 {
                self.now += Duration::from_secs(5);
                self.beats += 1;
                let beats = self.beats;
                let beats = gateways.iter().map(|number| gateway(*number, beats));
                keys = beats.flat_map(|beat| self.hand(StoreEvent::Applied(beat))).collect();
            }
            keys
        }

        fn plan(&mut self, key: &LocalKey) -> Vec<Write> {
            let context = Context { now: self.now, wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
            self.controller.reconcile(key, &context).writes
        }

        fn fail(&mut self, key: &LocalKey, write: &Write, error: &StoreError) {
            self.controller.written(key, write, Err(error), self.now);
        }
    }

    fn forbidden() -> StoreError {
        StoreError::Forbidden { operation: "write".to_owned(), source: std::io::Error::other("no right") }
    }

    #[test]
    fn gateways_are_active_side_by_side_once_this_one_is_published_and_for_as_long_as_it_may_be() {
        let mut rig = Rig::new();
        assert!(rig.plan(&LocalKey::Own).is_empty() && !rig.controller.is_multi, "nothing was listed");
        assert_eq!(rig.hand(StoreEvent::Listed(Vec::new())), [LocalKey::Own]);
        let [write @ Write::Create(object)] = &rig.plan(&LocalKey::Own)[..] else {
            panic!("it is to be made")
        };
        assert_eq!((rig.controller.is_multi, rig.controller.publication), (false, Publication::Pending));
        assert_eq!(rig.hand(StoreEvent::Applied(object.clone())), [LocalKey::Own]);
        assert!(rig.plan(&LocalKey::Own).is_empty() && rig.controller.is_multi);
        assert_eq!(rig.controller.publication, Publication::Done);
        // Lost races and outages change nothing; a namespace that is gone does.
        let key = object.key();
        let outage =
            StoreError::Unavailable { operation: "create".to_owned(), source: std::io::Error::other("none") };
        rig.fail(&LocalKey::Own, write, &outage);
        rig.fail(&LocalKey::Own, &Write::Update(object.clone()), &StoreError::NotFound(key.clone()));
        assert!(rig.controller.is_multi);
        rig.fail(&LocalKey::Own, write, &StoreError::NotFound(key));
        assert_eq!(
            (rig.controller.is_multi, rig.controller.refusal.as_deref()),
            (false, Some("there is no namespace submariner-operator-paths"))
        );
        assert!(rig.plan(&LocalKey::Own).is_empty() && rig.controller.is_multi);
        rig.fail(&LocalKey::Own, write, &forbidden());
        assert!(!rig.controller.is_multi && rig.controller.refusal.is_some());
        assert_eq!(rig.controller.publication, Publication::Refused);
    }

    #[test]
    fn a_sibling_that_has_vanished_goes_with_its_gateway_object_first() {
        let mut rig = Rig::new();
        let own = further(1);
        let left = further(2);
        rig.hand(StoreEvent::Listed(vec![own, left.clone()]));
        rig.hand(StoreEvent::Listed(vec![gateway(1, 0), gateway(2, 0)]));
        rig.input(LocalInput::LiveCables([spec("a", 2).cable_name].into()));
        assert!(rig.beat(&[1], 60).is_empty(), "its cable lives");
        assert!(rig.plan(&sibling()).is_empty());
        assert_eq!(rig.input(LocalInput::LiveCables(BTreeSet::new())), [sibling()]);
        let writes = rig.plan(&sibling());
        let expected = [gateway(2, 0).stub(), left.clone()].map(Write::Delete);
        assert_eq!(writes, expected);
        // Whether that may be written is not whether gateways can be active side by side.
        rig.plan(&LocalKey::Own);
        rig.controller.is_multi = true;
        rig.fail(&sibling(), &writes[0], &forbidden());
        assert!(rig.controller.is_multi && rig.controller.refusal.is_none());
        // A beat that comes in time keeps all of it.
        rig.beat(&[1, 2], 5);
        assert!(rig.plan(&sibling()).is_empty());
        assert_eq!(rig.beat(&[1], 15), [sibling()]);
        rig.hand(StoreEvent::Deleted(gateway(2, 0)));
        assert_eq!(rig.plan(&sibling()), [Write::Delete(left.clone())]);
        rig.hand(StoreEvent::Deleted(left));
        assert!(rig.plan(&sibling()).is_empty());
    }

    #[test]
    fn whoever_was_cut_off_from_the_store_removes_nobody() {
        let mut rig = Rig::new();
        rig.hand(StoreEvent::Listed(vec![further(1), further(2)]));
        rig.hand(StoreEvent::Listed(vec![gateway(1, 0), gateway(2, 0)]));
        assert!(rig.beat(&[1, 2], 30).is_empty());
        rig.now += Duration::from_secs(300);
        assert!(rig.input(LocalInput::LiveCables(["another".to_owned()].into())).is_empty());
        assert!(rig.beat(&[1], 10).is_empty(), "its heartbeat has had no time yet");
        assert!(rig.plan(&sibling()).is_empty());
    }
}
