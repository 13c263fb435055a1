//! The controller of this gateway's further Endpoint on the broker, which also follows the gateways of remote clusters
//! there and removes the copies of siblings that have vanished from the own store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::failures::classify;
use super::local::replace;
use super::member_cache::MemberCache;
use super::own::further_spec;
use super::{FURTHER_PREFIX, Member, MembersConfig, further_name, plan_own};
use crate::api::{EndpointSpec, Kind, Object};
use crate::runner::{Context, Controller, Failure, QueueView, Reconciled, Watch, Write};
use crate::store::{StoreError, StoreEvent};

/// What may change at any time.
#[derive(Debug, Clone)]
pub enum BrokerInput {
    /// The sole form of this gateway's Endpoint.
    Endpoint(Box<EndpointSpec>),
    /// Whether this gateway is to get no new flows.
    Draining(bool),
    /// The state of the own store.
    Local(LocalView),
}

/// What the broker's plans depend on in the own store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalView {
    /// Whether this cluster's gateways are all active.
    pub is_multi: bool,
    /// The cables of siblings that have vanished.
    pub vanished: BTreeSet<String>,
}

/// How far this gateway is on the broker, and who else is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerStatus {
    /// The gateways of remote clusters, by cluster and cable name; `None` until all are observed.
    pub remote: Option<Arc<[Member]>>,
    /// Why the broker does not take this gateway's Endpoint, for people.
    pub refusal: Option<String>,
}

/// Publishes this gateway to all clusters, while its own cluster's gateways are all active.
#[derive(Debug)]
pub struct BrokerController {
    config: MembersConfig,
    endpoint: EndpointSpec,
    own_name: Option<String>,
    is_draining: bool,
    local: LocalView,
    further: MemberCache,
    refusal: Option<String>,
}

impl BrokerController {
    /// Returns a controller that has observed nothing.
    pub fn new(config: MembersConfig, endpoint: EndpointSpec, local: LocalView) -> Self {
        Self {
            own_name: further_name(&endpoint.cable_name).ok(),
            endpoint,
            is_draining: false,
            local,
            further: MemberCache::new(&config.cluster_id),
            config,
            refusal: None,
        }
    }

    /// Returns the objects of siblings that have vanished.
    fn leftovers<'a>(&'a self, known: &'a [&Object]) -> impl Iterator<Item = Object> + 'a {
        let is_left = |object: &&&Object| {
            Member::read(object).is_some_and(|member| {
                member.cluster_id() == self.config.cluster_id
                    && self.local.vanished.contains(member.cable_name())
            })
        };
        known.iter().filter(is_left).map(|object| (*object).clone())
    }
}

impl Controller for BrokerController {
    type Key = ();
    type Status = BrokerStatus;
    type Input = BrokerInput;

    fn name(&self) -> &'static str {
        "broker-members"
    }

    fn watches(&self) -> BTreeSet<Watch> {
        [Watch::new(0, Kind::Endpoint, &*self.config.broker_namespace)].into()
    }

    /// Keeps what can be a gateway's further Endpoint that can be read, or has the name of ours: a hostile member's objects are
    /// none, however many there are of them.
    fn observe(&mut self, _: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        if let StoreEvent::Unavailable(error @ StoreError::Forbidden { .. }) = &event
            && !self.further.is_complete()
        {
            self.refusal = Some(error.to_string());
        }
        let own_name = self.own_name.as_deref();
        let event = event.retain(|object| {
            let name = object.metadata.name.as_str();
            name.starts_with(FURTHER_PREFIX) && (object.withheld.is_none() || own_name == Some(name))
        });
        let is_remote = |member: &Member| member.cluster_id() != self.config.cluster_id;
        let changes = self.further.apply(event, own_name, is_remote);
        if changes.own { vec![()] } else { Vec::new() }
    }

    fn handle_input(&mut self, input: BrokerInput, _: Instant) -> Vec<()> {
        let has_changed = match input {
            BrokerInput::Endpoint(endpoint) => {
                self.own_name = further_name(&endpoint.cable_name).ok();
                replace(&mut self.endpoint, *endpoint)
            }
            BrokerInput::Draining(is_draining) => replace(&mut self.is_draining, is_draining),
            BrokerInput::Local(local) => replace(&mut self.local, local),
        };
        if has_changed { vec![()] } else { Vec::new() }
    }

    fn drain_changed(&mut self, _: Instant) -> Vec<()> {
        self.further.refresh();
        Vec::new()
    }

    fn reconcile(&mut self, (): &(), _: &Context) -> Reconciled {
        if !self.further.is_complete() {
            return Reconciled::await_change();
        }
        let own = further_spec(&self.endpoint, self.is_draining);
        let known = self.further.own_objects(self.own_name.as_deref());
        let is_wanted = self.config.is_wanted && self.local.is_multi;
        // A cable's name is made of the cluster's and an address: a name can be made of it.
        let mut writes = plan_own(&self.config.broker_namespace, &own, is_wanted, &known).unwrap_or_default();
        writes.extend(self.leftovers(&known).map(Write::Delete));
        if writes.is_empty() {
            self.refusal = None;
        }
        Reconciled::write(writes)
    }

    fn classify(&self, write: &Write, error: &StoreError) -> Failure {
        classify(write, error)
    }

    /// Takes in the result of a write. A broker that is unavailable, or somebody else who was faster, changes nothing.
    fn written(&mut self, (): &(), write: &Write, outcome: Result<&StoreEvent, &StoreError>, _: Instant) {
        if let Err(error) = outcome
            && classify(write, error) == Failure::Refused
        {
            self.refusal = Some(error.to_string());
        }
    }

    fn status(&self, _: &QueueView<'_>) -> BrokerStatus {
        BrokerStatus { remote: self.further.members().cloned(), refusal: self.refusal.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ObjectKey, label};
    use crate::members::conformance::{BROKER, config, spec};

    fn further(cluster: &str, number: u8, version: u32) -> Object {
        let writes = plan_own(BROKER, &further_spec(&spec(cluster, number), false), true, &[]).unwrap();
        let [Write::Create(object)] = &writes[..] else { panic!("{writes:?}") };
        let mut object = object.clone();
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn controller() -> BrokerController {
        let local = LocalView { is_multi: true, vanished: BTreeSet::new() };
        BrokerController::new(config("a", 1), spec("a", 1), local)
    }

    impl BrokerController {
        fn hand(&mut self, event: StoreEvent) -> usize {
            let watch = self.watches().pop_first().unwrap();
            let keys = self.observe(&watch, event, Instant::now()).len();
            keys + self.drain_changed(Instant::now()).len()
        }

        fn plan(&mut self) -> Vec<Write> {
            let context =
                Context { now: Instant::now(), wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
            self.reconcile(&(), &context).writes
        }
    }

    #[test]
    fn another_clusters_gateway_is_listed_and_nothing_is_planned_for_it() {
        let mut controller = controller();
        assert!(controller.plan().is_empty(), "nothing was listed");
        assert_eq!(controller.hand(StoreEvent::Listed(vec![further("a", 1, 1), further("b", 1, 1)])), 1);
        assert!(controller.plan().is_empty());
        for version in 2..10 {
            assert_eq!(controller.hand(StoreEvent::Applied(further("b", 1, version))), 0);
            let remote = controller.further.members().unwrap();
            assert_eq!(remote[0].endpoint.metadata.resource_version, Some(version.to_string()));
        }
        assert_eq!(controller.hand(StoreEvent::Deleted(further("a", 1, 1))), 1);
        assert!(matches!(&controller.plan()[..], [Write::Create(_)]));
    }

    #[test]
    fn objects_that_are_no_gateways_are_not_kept() {
        let mut controller = controller();
        let mut all = vec![further("b", 1, 1)];
        for number in 0..100 {
            let mut sole = further("b", 2, 1);
            sole.metadata.name = format!("b-{number}");
            let mut withheld = further("b", 3, 1);
            withheld.metadata.name = format!("{FURTHER_PREFIX}{number}");
            withheld.withheld = Some("too large".to_owned());
            all.extend([sole, withheld]);
        }
        let mut own = Object::new(Kind::Endpoint, further("a", 1, 1).metadata);
        own.metadata.labels.insert(label::PATHS_CLUSTER_ID.to_owned(), "b".to_owned());
        own.withheld = Some("too large".to_owned());
        controller.hand(StoreEvent::Listed([all.clone(), vec![own.clone()]].concat()));
        assert_eq!(controller.further.members().map(|remote| remote.len()), Some(1));
        let kept = all.iter().filter(|object| controller.further.get(&object.metadata.name).is_some());
        assert_eq!(kept.count(), 1);
        // What has our name is written over, whatever it is.
        let writes = controller.plan();
        assert!(matches!(&writes[..], [Write::Update(object)] if object.key() == own.key()), "{writes:?}");
    }

    #[test]
    fn what_a_sibling_has_left_goes_once_it_has_vanished_from_the_own_store() {
        let mut controller = controller();
        let left = further("a", 2, 1);
        controller.hand(StoreEvent::Listed(vec![further("a", 1, 1), left.clone(), further("b", 2, 1)]));
        assert!(controller.plan().is_empty());
        let vanished = [spec("a", 2).cable_name, spec("b", 2).cable_name].into();
        let view = LocalView { is_multi: true, vanished };
        assert_eq!(controller.handle_input(BrokerInput::Local(view.clone()), Instant::now()).len(), 1);
        assert_eq!(controller.handle_input(BrokerInput::Local(view), Instant::now()).len(), 0);
        assert_eq!(controller.plan(), [Write::Delete(left)]);
    }

    #[test]
    fn a_refusal_stands_until_all_is_written_and_an_outage_is_none() {
        let mut controller = controller();
        controller.hand(StoreEvent::Listed(Vec::new()));
        let [write] = &controller.plan()[..] else { panic!("one object is to be made") };
        let key = ObjectKey::new(Kind::Endpoint, BROKER, "x");
        let source = || std::io::Error::other("no");
        let outage = StoreError::Unavailable { operation: "create".to_owned(), source: source() };
        controller.written(&(), write, Err(&outage), Instant::now());
        controller.written(&(), write, Err(&StoreError::AlreadyExists(key.clone())), Instant::now());
        assert_eq!(controller.refusal, None);
        let forbidden = StoreError::Forbidden { operation: "create".to_owned(), source: source() };
        for error in [StoreError::NotFound(key), forbidden] {
            controller.written(&(), write, Err(&error), Instant::now());
            controller.written(&(), write, Err(&outage), Instant::now());
            assert_eq!(controller.refusal, Some(error.to_string()));
        }
        controller.hand(StoreEvent::Applied(write.object().unwrap().clone()));
        assert!(controller.plan().is_empty() && controller.refusal.is_none());
    }
}
