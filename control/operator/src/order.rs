//! What the controller wants to be carried out, and what the worker says became of it.

use serde_json::{Map, Value};
use tokio::time::Instant;
use trieste_control::api::{
    BrokerInfoRef, BrokerSpec, CloudPrepareConfig, FabricNetworks, FabricSpec, ObjectKey,
    PublishedBrokerInfo, ServiceDiscoverySpec, SubmarinerSpec,
};

use crate::kinds::is_of_upstream;

/// A part of what a cluster is in its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The broker.
    Broker,
    /// What is prepared in the cluster's cloud.
    Cloud,
    /// The member.
    Member,
    /// Service discovery by itself, where there is no member that has it.
    ServiceDiscovery,
}

impl Part {
    /// All parts, in the order in which they are installed.
    pub const ALL: [Self; 4] = [Self::Broker, Self::Cloud, Self::Member, Self::ServiceDiscovery];

    /// Returns the part's name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Cloud => "cloud",
            Self::Member => "member",
            Self::ServiceDiscovery => "service-discovery",
        }
    }

    /// Returns what the part is called in sentences.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Cloud => "cloud preparation",
            Self::Broker | Self::Member | Self::ServiceDiscovery => self.as_str(),
        }
    }
}

/// What is to be done with a part.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// It is to be as the spec says.
    Install(Box<Wanted>),
    /// Nothing of it is to be left.
    Remove,
    /// It is to be found out whether upstream's operator is responsible. Nothing is changed.
    Check {
        /// Whether that was seen to run.
        is_seen: bool,
    },
}

/// What a part is to be like.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// As a Fabric says.
    Fabric(Box<FabricSpec>),
    /// As objects of upstream's kinds say.
    Upstream(Upstream),
    /// As a resource of the first users says.
    Tkestack(Tkestack),
}

/// What a resource of the first users says.
#[derive(Debug, Clone, PartialEq)]
pub struct Tkestack {
    /// Its spec, untranslated.
    pub spec: Map<String, Value>,
    /// Whether the broker's join data is published as a ConfigMap as well, as that operator does.
    pub publishes_config_map: bool,
}

/// What objects of upstream's kinds say.
#[derive(Debug, Clone, PartialEq)]
pub enum Upstream {
    /// A Broker object.
    Broker(BrokerSpec),
    /// A Submariner object, and the ServiceDiscovery object beside it.
    Member(Box<SubmarinerSpec>, Option<Box<ServiceDiscoverySpec>>),
    /// A ServiceDiscovery object by itself.
    ServiceDiscovery(Box<ServiceDiscoverySpec>),
}

/// A part that is to be carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The object that says so.
    pub source: ObjectKey,
    /// Its incarnation.
    pub uid: String,
    /// The generation that the order is about.
    pub generation: i64,
    /// The part.
    pub part: Part,
    /// What is to be done.
    pub task: Task,
    /// Where the join data is, or was when the member was installed.
    pub join_info: Option<BrokerInfoRef>,
    /// What was prepared, or begun to be, in the cloud.
    pub cloud: Option<CloudPrepareConfig>,
    /// Whether nothing records `cloud`, and it was AWS's only where the nodes are AWS's: the object does not name its cloud.
    pub is_cloud_assumed: bool,
    /// The broker's address, where the Fabric says another one than the join data.
    pub broker_url: Option<String>,
    /// Whether nodes that are not ready, or a cloud that cannot be asked, are given up when the part is removed.
    pub force: bool,
    /// Another number than before when something has changed in the cluster that may be a part of it.
    pub revision: u64,
}

impl Reason {
    /// The word that says that upstream's operator is responsible.
    pub const UPSTREAM_OPERATOR: &str = "UpstreamOperator";
}

impl Order {
    /// Returns `true` if both want the same.
    pub fn wants_the_same(&self, other: &Self) -> bool {
        *self == Self { revision: self.revision, ..other.clone() }
    }

    /// Returns `true` if an object of upstream's kinds says so, which upstream's operator may be responsible for.
    pub fn is_of_upstream(&self) -> bool {
        is_of_upstream(self.source.kind)
    }
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The object that said so.
    pub source: ObjectKey,
    /// Its incarnation.
    pub uid: String,
    /// The generation that the order was about.
    pub generation: i64,
    /// The part.
    pub part: Part,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a part.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is as the spec says.
    Installed(Box<Facts>),
    /// Nothing of it is left.
    Removed,
    /// Upstream's operator does not run: the part may be begun.
    Free,
    /// How the cloud can be prepared was found out, and nothing is done there yet: it begins once the object's status has this.
    Chosen(Box<CloudPrepareConfig>),
    /// It goes on once something outside has happened.
    Waiting(Reason),
    /// It could not be carried out, and is tried again.
    Failed(Reason),
}

/// Why something is not so: a word for programs, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// One CamelCase word.
    pub reason: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

/// What was found out when a part was installed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Where the broker's join data is published.
    pub broker_info: Option<PublishedBrokerInfo>,
    /// The broker that the cluster is a member of.
    pub broker: Option<String>,
    /// The cluster's ID.
    pub cluster_id: Option<String>,
    /// The cluster's networks.
    pub networks: Option<FabricNetworks>,
    /// Where the join data is that the cluster has joined with.
    pub join_info: Option<BrokerInfoRef>,
    /// What was prepared in the cloud.
    pub cloud: Option<CloudPrepareConfig>,
    /// Of what was prepared in the cloud, when that was compared last.
    pub asked: Option<Asked>,
    /// What is still to come by itself, such as machines.
    pub awaits: Option<Reason>,
    /// Objects that somebody else writes again and again, and who.
    pub contested: Vec<String>,
    /// What works, but somebody should see to.
    pub warnings: Vec<String>,
    /// Of objects of upstream's kinds, what their status has.
    pub status: Map<String, Value>,
}

/// When a cloud was asked last, with success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// A digest of all that the answer depended on, but for the cloud itself.
    pub digest: u64,
    /// When.
    pub at: Instant,
}
