//! The objects that say what the cluster is to be: Fabrics, those of the kinds of upstream's operator, and the resource of the first users.
//!
//! Of upstream's kinds the one of upstream's name in upstream's namespace counts; one that a command of ours has made is a record of
//! what was chosen, and asks for nothing.

use serde_json::{Map, Value};
use trieste_control::api::{
    Broker, BrokerInfoRef, BrokerSpec, CloudPrepareConfig, Fabric, Kind, Object, ObjectKey, ObjectMeta,
    PUBLISH_BROKER_INFO, Resource as _, ServiceDiscovery, ServiceDiscoverySpec, Submariner, SubmarinerSpec,
};
use trieste_deploy::objects::names::{BROKER, MANAGED_BY_LABEL, SERVICE_DISCOVERY, SUBMARINER, TRIESTE};

use crate::kinds::{is_of_tkestack, is_of_upstream};
use crate::order::Part;
use crate::translate::tkestack;

/// An object that says what the cluster is to be.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) key: ObjectKey,
    pub(crate) metadata: ObjectMeta,
    pub(crate) content: Content,
}

/// What it says.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Fabric(Box<Fabric>),
    Broker(BrokerSpec),
    Submariner(Box<SubmarinerSpec>),
    ServiceDiscovery(Box<ServiceDiscoverySpec>),
    /// The spec of a resource of the first users, untranslated.
    Tkestack(Map<String, Value>),
}

impl Source {
    /// Reads an object; `None` if it says nothing, or cannot be read.
    pub(crate) fn of(object: &Object) -> Option<Self> {
        let is_record = object.metadata.labels.get(MANAGED_BY_LABEL).is_some_and(|by| by == TRIESTE);
        if is_of_upstream(object.kind) && is_record {
            return None;
        }
        let is = |kind, name| object.kind == kind && object.metadata.name == name;
        let content = if is_of_tkestack(object.kind) {
            Content::Tkestack(tkestack_spec(object)?)
        } else if object.kind == Kind::Fabric {
            Content::Fabric(Box::new(Fabric::from_object(object).ok()?))
        } else if is(Kind::Broker, BROKER) {
            Content::Broker(Broker::from_object(object).ok()?.spec.unwrap_or_default())
        } else if is(Kind::Submariner, SUBMARINER) {
            Content::Submariner(Box::new(Submariner::from_object(object).ok()?.spec?))
        } else if is(Kind::ServiceDiscovery, SERVICE_DISCOVERY) {
            Content::ServiceDiscovery(Box::new(ServiceDiscovery::from_object(object).ok()?.spec?))
        } else {
            return None;
        };
        Some(Self { key: object.key(), metadata: object.metadata.clone(), content })
    }

    /// Returns the Fabric, if it is one.
    pub(crate) fn fabric(&self) -> Option<&Fabric> {
        match &self.content {
            Content::Fabric(fabric) => Some(fabric),
            Content::Broker(_)
            | Content::Submariner(_)
            | Content::ServiceDiscovery(_)
            | Content::Tkestack(_) => None,
        }
    }

    /// Returns `true` if it is of a kind of upstream's operator.
    pub(crate) fn is_of_upstream(&self) -> bool {
        is_of_upstream(self.key.kind)
    }

    /// Returns the part that an object of upstream's kinds is about.
    pub(crate) fn main_part(&self) -> Option<Part> {
        match &self.content {
            Content::Fabric(_) | Content::Tkestack(_) => None,
            Content::Broker(_) => Some(Part::Broker),
            Content::Submariner(_) => Some(Part::Member),
            Content::ServiceDiscovery(_) => Some(Part::ServiceDiscovery),
        }
    }

    /// Returns `true` if it has the part.
    pub(crate) fn has(&self, part: Part) -> bool {
        match &self.content {
            Content::Fabric(fabric) => match part {
                Part::Broker => fabric.spec.broker_config.is_some(),
                Part::Cloud => fabric.spec.cloud_prepare_config.is_some(),
                Part::Member => fabric.spec.join_config.is_some(),
                Part::ServiceDiscovery => false,
            },
            Content::Tkestack(spec) => {
                let is_begun = self.has_begun(part) && tkestack::has(spec, part);
                is_begun || tkestack::begins(self.key.kind, spec, part)
            }
            Content::Broker(_) | Content::Submariner(_) | Content::ServiceDiscovery(_) => {
                self.main_part() == Some(part)
            }
        }
    }

    /// Returns `true` if it wants the part.
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.has(part) && !self.metadata.is_terminating()
    }

    /// Returns `true` if the part was begun for it.
    pub(crate) fn has_begun(&self, part: Part) -> bool {
        self.metadata.has_finalizer(part.finalizer())
    }

    /// Returns where the join data is that the cluster has joined with, as a Fabric's status has it.
    pub(crate) fn joined_with(&self) -> Option<BrokerInfoRef> {
        self.fabric()?.status.as_ref()?.join_info.clone()
    }

    /// Returns how the cloud is to be prepared; `None` also if that cannot be read.
    pub(crate) fn cloud(&self) -> Option<CloudPrepareConfig> {
        match &self.content {
            Content::Fabric(fabric) => fabric.spec.cloud_prepare_config.clone(),
            Content::Tkestack(spec) => {
                tkestack::cloud(spec, &self.key.namespace).ok().flatten().map(|cloud| cloud.config)
            }
            Content::Broker(_) | Content::Submariner(_) | Content::ServiceDiscovery(_) => None,
        }
    }

    /// Returns `true` if the member is not begun before the cloud is prepared: where both are wanted by one object, and neither was
    /// begun for another.
    pub(crate) fn prepares_cloud_first(&self, cloud: Option<&Self>) -> bool {
        let is_its = cloud.is_some_and(|holder| holder.key == self.key);
        is_its && self.wants(Part::Cloud) && self.wants(Part::Member) && !self.has_begun(Part::Member)
    }

    /// Returns `true` if the broker's join data is to be published as a ConfigMap as well.
    pub(crate) fn publishes_config_map(&self) -> bool {
        self.metadata.annotations.get(PUBLISH_BROKER_INFO).is_some_and(|kind| kind == "ConfigMap")
    }
}

/// Returns the spec of a resource of the first users; `None` if it cannot be read, which takes nothing back that was begun.
fn tkestack_spec(object: &Object) -> Option<Map<String, Value>> {
    match object.body.get("spec") {
        _ if object.withheld.is_some() => None,
        None | Some(Value::Null) => Some(Map::new()),
        Some(spec) => spec.as_object().cloned(),
    }
}
