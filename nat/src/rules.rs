//! What is translated to what: an immutable snapshot, compiled from objects.

use std::cmp::Reverse;
use std::net::Ipv4Addr;

use hashbrown::HashMap;
use ipnet::Ipv4Net;
use trieste_packet::wire::protocol;
use trieste_packet::{KeyedState, WorkerId, fold};

use crate::facts::{Facts, Kind};
use crate::out2in::static_target;
use crate::owner::{BUCKETS, Bucket, OwnerKey};
use crate::record::Record;

/// Who an egress rule is for. The order is the priority: the first that has the source wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EgressKind {
    /// Selected pods of a namespace (`GlobalEgressIP` with a selector).
    Pods,
    /// A pod behind an exported headless service: its own global address.
    HeadlessPod,
    /// An endpoint of an exported headless service without selector: its own global address.
    HeadlessEndpoints,
    /// All pods of a namespace (`GlobalEgressIP` without selector).
    Namespace,
    /// The whole cluster (`ClusterGlobalEgressIP`).
    Cluster,
}

impl EgressKind {
    /// As a metric label, and for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::HeadlessPod => "headless_pod",
            Self::HeadlessEndpoints => "headless_endpoints",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
        }
    }

    /// Whether the rule stands for one address inside, whose ports are kept.
    #[must_use]
    pub const fn is_headless(self) -> bool {
        matches!(self, Self::HeadlessPod | Self::HeadlessEndpoints)
    }
}

/// What a global address leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IngressKind {
    /// A service's cluster IP: one to one, without state.
    Service,
    /// A pod behind a headless service.
    HeadlessPod,
    /// An endpoint of a headless service without selector.
    HeadlessEndpoints,
    /// The gateway itself, for ICMP queries only.
    Gateway,
}

impl IngressKind {
    /// As a metric label, and for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::HeadlessPod => "headless_pod",
            Self::HeadlessEndpoints => "headless_endpoints",
            Self::Gateway => "gateway",
        }
    }

    /// Whether a session has to remember at which global address the target was asked.
    #[must_use]
    pub const fn is_headless(self) -> bool {
        matches!(self, Self::HeadlessPod | Self::HeadlessEndpoints)
    }
}

/// An egress rule, as an index into its [`Rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u32);

/// Which global addresses some sources leave with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    /// Who it is for.
    pub kind: EgressKind,
    /// The object's namespace and name, for people.
    pub name: String,
    /// Its global addresses; at least one.
    pub addresses: Vec<Ipv4Addr>,
}

/// Where a global address leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressRule {
    /// What is there.
    pub kind: IngressKind,
    /// The object's namespace and name, for people.
    pub name: String,
    /// The global address.
    pub global: Ipv4Addr,
    /// The address inside.
    pub inside: Ipv4Addr,
}

/// Why a rule was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// A global address is used already.
    #[error("global address {address} of {name} belongs to {other} already, which keeps it")]
    AddressInUse {
        /// The global address.
        address: Ipv4Addr,
        /// Who wants it.
        name: String,
        /// Who has it.
        other: String,
    },
    /// An egress rule without addresses.
    #[error("{name} has no global address, so its sources leave by the next rule that has them")]
    NoAddress {
        /// The rule.
        name: String,
    },
    /// Egress of headless targets comes with their ingress.
    #[error("egress of {name} follows from its ingress and cannot be given alone")]
    HeadlessEgress {
        /// The rule.
        name: String,
    },
}

/// Who has a global address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Egress(RuleId),
    Ingress(usize),
}

/// What an address inside is to the rules.
#[derive(Debug, Clone, Default)]
struct Host {
    /// Egress rules, best first.
    egress: Vec<RuleId>,
    /// Ingress rules that lead here.
    ingress: Vec<usize>,
}

/// The snapshot.
#[derive(Debug, Clone)]
pub struct Rules {
    epoch: u64,
    key: OwnerKey,
    owners: [WorkerId; BUCKETS],
    egress: Vec<EgressRule>,
    ingress: Vec<IngressRule>,
    hosts: HashMap<Ipv4Addr, Host, KeyedState>,
    /// Rules for whole networks, best first.
    networks: Vec<(RuleId, Ipv4Net)>,
    globals: HashMap<Ipv4Addr, Holder, KeyedState>,
}

impl Rules {
    /// Number of the snapshot; another one whenever anything changed.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Every egress rule.
    #[must_use]
    pub fn egress(&self) -> &[EgressRule] {
        &self.egress
    }

    /// Every ingress rule.
    #[must_use]
    pub fn ingress(&self) -> &[IngressRule] {
        &self.ingress
    }

    /// Whether a rule uses the global address. A packet from inside to such an address is a hairpin: after
    /// `in2out` it goes to `out2in` of its destination's owner, and never to another cluster.
    #[must_use]
    pub fn is_global(&self, address: Ipv4Addr) -> bool {
        self.globals.contains_key(&address)
    }

    /// Kind and name of who has a global address.
    #[must_use]
    pub fn holder_of(&self, global: Ipv4Addr) -> Option<(&'static str, &str)> {
        Some(match *self.globals.get(&global)? {
            Holder::Egress(id) => (self.rule(id).kind.as_str(), self.rule(id).name.as_str()),
            Holder::Ingress(at) => (self.ingress[at].kind.as_str(), self.ingress[at].name.as_str()),
        })
    }

    /// The bucket of an outbound packet: that of its inside end.
    #[must_use]
    pub fn bucket_outbound(&self, flow: &Facts) -> Bucket {
        self.inside_bucket(flow.protocol, flow.source, flow.source_port, flow.has_ports())
    }

    /// The bucket of an inbound packet: that of its destination's port or, where a headless target is asked, that of
    /// the target. The same as that of the packets which it answers or which answer it.
    #[must_use]
    pub fn bucket_inbound(&self, flow: &Facts) -> Bucket {
        match self.leads_to(flow.destination) {
            Some(rule) => {
                self.inside_bucket(flow.protocol, rule.inside, flow.destination_port, flow.has_ports())
            }
            None if flow.has_ports() => Bucket::of_port(flow.destination_port),
            None => self.key.bucket(flow.protocol, None),
        }
    }

    /// Whether an outbound packet is translated without state: any gateway and worker can do it.
    #[must_use]
    pub fn is_static_outbound(&self, flow: &Facts) -> bool {
        self.static_source(flow).is_some()
    }

    /// Whether an inbound packet is translated without state: any gateway and worker can do it.
    #[must_use]
    pub fn is_static_inbound(&self, flow: &Facts) -> bool {
        static_target(flow, self).is_some()
    }

    /// The worker that translates an outbound packet.
    #[must_use]
    pub fn owner_outbound(&self, flow: &Facts) -> WorkerId {
        self.owner(self.bucket_outbound(flow))
    }

    /// The worker that translates an inbound packet.
    #[must_use]
    pub fn owner_inbound(&self, flow: &Facts) -> WorkerId {
        self.owner(self.bucket_inbound(flow))
    }

    /// The bucket of a session that was written down: that of its packets in both directions.
    #[must_use]
    pub fn bucket_of(&self, record: &Record) -> Bucket {
        let has_ports = matches!(record.protocol, protocol::TCP | protocol::UDP | protocol::ICMP);
        self.inside_bucket(record.protocol, record.inside, record.inside_port, has_ports)
    }

    /// The worker that has a bucket.
    #[must_use]
    pub fn owner(&self, bucket: Bucket) -> WorkerId {
        self.owners[bucket.index()]
    }

    //= https://www.rfc-editor.org/rfc/rfc7857#section-9
    //# A NAT SHOULD follow the recommendations specified in Section 4 of
    //# [RFC6056]
    /// Where the search for the port of an outbound flow begins: a keyed hash of the inside end (RFC 6056 section
    /// 3.3.3, without the remote end, which no mapping depends on). Nobody outside can guess it, and who has forgotten
    /// everything, or never knew it, nearly always finds the same port again.
    pub(crate) fn start(&self, flow: &Facts) -> u64 {
        self.key.start(flow.protocol, (flow.source, flow.source_port))
    }

    /// The bucket of an inside end.
    pub(crate) fn inside_bucket(&self, protocol: u8, inside: Ipv4Addr, port: u16, has_ports: bool) -> Bucket {
        self.key.bucket(protocol, has_ports.then_some((inside, port)))
    }

    /// The ingress rule of a global address.
    pub(crate) fn leads_to(&self, global: Ipv4Addr) -> Option<&IngressRule> {
        match *self.globals.get(&global)? {
            Holder::Ingress(at) => Some(&self.ingress[at]),
            Holder::Egress(_) => None,
        }
    }

    /// The ingress rules that lead to an address inside.
    pub(crate) fn targets(&self, inside: Ipv4Addr) -> impl Iterator<Item = &IngressRule> {
        let at = self.hosts.get(&inside).map_or(&[][..], |host| &host.ingress);
        at.iter().map(|&at| &self.ingress[at])
    }

    /// The global address that an outbound packet gets without state: of a service, or of the gateway that answers
    /// an ICMP query.
    pub(crate) fn static_source(&self, flow: &Facts) -> Option<&IngressRule> {
        self.targets(flow.source).find(|rule| match rule.kind {
            IngressKind::Service => true,
            IngressKind::Gateway => flow.kind == Kind::Reply,
            IngressKind::HeadlessPod | IngressKind::HeadlessEndpoints => false,
        })
    }

    /// The egress rule of a source, by priority and then by the order in which rules were added.
    #[must_use]
    pub fn egress_of(&self, inside: Ipv4Addr) -> Option<RuleId> {
        let of_host = self.hosts.get(&inside).and_then(|host| host.egress.first().copied());
        let of_network =
            self.networks.iter().find(|(_, network)| network.contains(&inside)).map(|&(id, _)| id);
        match (of_host, of_network) {
            (Some(host), Some(network)) => Some(host.min_by_key(network, |id| self.priority(id))),
            (one, other) => one.or(other),
        }
    }

    /// A rule by its index.
    ///
    /// # Panics
    /// When the index is of other rules, which have more.
    #[must_use]
    pub fn rule(&self, id: RuleId) -> &EgressRule {
        &self.egress[id.index()]
    }

    //= https://www.rfc-editor.org/rfc/rfc4787#section-4.1
    //# It is RECOMMENDED that a NAT have an "IP address pooling" behavior of "Paired"
    /// The global address that a source leaves with under a rule: a function of both, the same on every worker and
    /// gateway. An address that comes or goes moves only its own share of the sources (rendezvous hashing).
    #[must_use]
    pub fn address_of(&self, id: RuleId, inside: Ipv4Addr) -> Ipv4Addr {
        let addresses = &self.rule(id).addresses;
        if let [only] = addresses[..] {
            return only;
        }
        let hash = self.key.address_hash(inside);
        let score = |address: &Ipv4Addr| (mix(hash, u64::from(u32::from(*address))), Reverse(*address));
        *addresses.iter().max_by_key(|address| score(address)).expect("a rule has at least one address")
    }

    /// Whether the rules still let `inside` leave with `global`: as a headless target, or by an egress rule.
    pub(crate) fn allows(&self, inside: Ipv4Addr, global: Ipv4Addr, is_headless: bool) -> bool {
        match self.globals.get(&global) {
            Some(&Holder::Egress(id)) => !is_headless && self.has_member(id, inside),
            Some(&Holder::Ingress(at)) => {
                is_headless && self.ingress[at].kind.is_headless() && self.ingress[at].inside == inside
            }
            None => false,
        }
    }

    fn has_member(&self, id: RuleId, inside: Ipv4Addr) -> bool {
        self.hosts.get(&inside).is_some_and(|host| host.egress.contains(&id))
            || self.networks.iter().any(|&(rule, network)| rule == id && network.contains(&inside))
    }

    fn priority(&self, id: RuleId) -> (EgressKind, RuleId) {
        (self.rule(id).kind, id)
    }
}

impl RuleId {
    fn index(self) -> usize {
        usize::try_from(self.0).expect("32 bits")
    }

    fn min_by_key<K: Ord>(self, other: Self, key: impl Fn(Self) -> K) -> Self {
        if key(other) < key(self) { other } else { self }
    }
}

/// Mixes a hash and an address.
fn mix(hash: u64, address: u64) -> u64 {
    fold(hash ^ 0x9e37_79b9_7f4a_7c15, address.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ hash.rotate_left(32))
}

/// Builds a snapshot. Of two rules that want one global address, the first keeps it.
#[derive(Debug)]
pub struct RulesBuilder {
    rules: Rules,
}

impl RulesBuilder {
    /// Begins with the number of the snapshot (another one for every snapshot that a [`Nat`](crate::Nat) is given),
    /// the cluster's key, and who has which bucket.
    #[must_use]
    pub fn new(epoch: u64, key: OwnerKey, owners: [WorkerId; BUCKETS]) -> Self {
        let state = KeyedState::new(key.address_hash(Ipv4Addr::UNSPECIFIED));
        Self {
            rules: Rules {
                epoch,
                key,
                owners,
                egress: Vec::new(),
                ingress: Vec::new(),
                hosts: HashMap::with_hasher(state.clone()),
                networks: Vec::new(),
                globals: HashMap::with_hasher(state),
            },
        }
    }

    /// Buckets shared out among `workers` workers, one after the other. At least one worker.
    #[must_use]
    pub fn owners_among(workers: u16) -> [WorkerId; BUCKETS] {
        std::array::from_fn(|bucket| {
            let bucket = u16::try_from(bucket).expect("64 of them");
            WorkerId(bucket % workers.max(1))
        })
    }

    /// Adds an egress rule for pods, a namespace or the cluster. It has no sources yet.
    ///
    /// # Errors
    /// [`RulesError`]; the rule is not added then.
    pub fn egress(
        &mut self,
        kind: EgressKind,
        name: &str,
        addresses: &[Ipv4Addr],
    ) -> Result<RuleId, RulesError> {
        let name = name.to_owned();
        if kind.is_headless() {
            return Err(RulesError::HeadlessEgress { name });
        }
        if addresses.is_empty() {
            return Err(RulesError::NoAddress { name });
        }
        for &address in addresses {
            self.check_free(address, &name)?;
        }
        let id = self.add_egress(EgressRule { kind, name, addresses: addresses.to_vec() });
        for &address in addresses {
            self.rules.globals.insert(address, Holder::Egress(id));
        }
        Ok(id)
    }

    /// Adds sources to an egress rule.
    pub fn member(&mut self, rule: RuleId, network: Ipv4Net) {
        if network.prefix_len() == 32 {
            self.add_host(rule, network.addr());
        } else {
            self.rules.networks.push((rule, network.trunc()));
        }
    }

    /// Adds what a global address leads to. For headless targets this adds their egress rule as well.
    ///
    /// # Errors
    /// [`RulesError::AddressInUse`]; the rule is not added then.
    pub fn ingress(
        &mut self,
        kind: IngressKind,
        name: &str,
        global: Ipv4Addr,
        inside: Ipv4Addr,
    ) -> Result<(), RulesError> {
        self.check_free(global, name)?;
        let at = self.rules.ingress.len();
        self.rules.ingress.push(IngressRule { kind, name: name.to_owned(), global, inside });
        self.rules.globals.insert(global, Holder::Ingress(at));
        self.rules.hosts.entry(inside).or_default().ingress.push(at);
        let egress = match kind {
            IngressKind::HeadlessPod => EgressKind::HeadlessPod,
            IngressKind::HeadlessEndpoints => EgressKind::HeadlessEndpoints,
            IngressKind::Service | IngressKind::Gateway => return Ok(()),
        };
        let rule = EgressRule { kind: egress, name: name.to_owned(), addresses: vec![global] };
        let id = self.add_egress(rule);
        self.add_host(id, inside);
        Ok(())
    }

    /// The finished snapshot.
    #[must_use]
    pub fn build(mut self) -> Rules {
        let egress = std::mem::take(&mut self.rules.egress);
        let priority = |id: &RuleId| (egress[id.index()].kind, *id);
        for host in self.rules.hosts.values_mut() {
            host.egress.sort_by_key(priority);
            host.egress.dedup();
        }
        self.rules.networks.sort_by_key(|(id, _)| priority(id));
        self.rules.egress = egress;
        self.rules
    }

    fn check_free(&self, address: Ipv4Addr, name: &str) -> Result<(), RulesError> {
        match self.rules.globals.get(&address) {
            None => Ok(()),
            Some(holder) => {
                let other = match *holder {
                    Holder::Egress(id) => &self.rules.rule(id).name,
                    Holder::Ingress(at) => &self.rules.ingress[at].name,
                };
                Err(RulesError::AddressInUse { address, name: name.to_owned(), other: other.clone() })
            }
        }
    }

    fn add_egress(&mut self, rule: EgressRule) -> RuleId {
        let id = RuleId(u32::try_from(self.rules.egress.len()).expect("fewer rules than addresses"));
        self.rules.egress.push(rule);
        id
    }

    fn add_host(&mut self, rule: RuleId, inside: Ipv4Addr) {
        self.rules.hosts.entry(inside).or_default().egress.push(rule);
    }
}
