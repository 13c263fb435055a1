//! What becomes of a packet, and why: asked by a person, answered from the same tables and sessions, changing nothing.
//!
//! The answer is hypothetical where nothing is known of the flow: what would happen to its first packet. It is live where
//! a session decides. Sessions are one worker's: [`Trace::worker`] says whose answer counts.

use std::net::IpAddr;
use std::time::Instant;

use trieste_nat::{Config, Explanation, Facts, Kind, Limits, Nat, Rules};
use trieste_packet::wire::{protocol, tcp};
use trieste_packet::{DropReason, FlowKey, PathId, WorkerId};

use crate::classify::{RESERVED_PROTOCOL, is_unicast};
use crate::globalnet::{
    Owner, View, Way, admit, after_in2out, after_out2in, flow_key, inbound_owner, outbound_owner, reason,
    route,
};
use crate::owner::Crossing;
use crate::pipeline::Pipeline;
use crate::services::{Delivered, Delivery, Services};
use crate::steer::{Origin, Steered, Steering, Why};
use crate::tables::{LaneEnd, Selection, Tables};

/// A packet to be traced, as it is when it reaches this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceQuestion {
    /// Its addresses, protocol and ports.
    pub flow: FlowKey,
    /// Whether it comes from the cluster; else it comes from the peer that has its source.
    pub is_outbound: bool,
    /// Whether it answers: an ICMP reply, a TCP segment in the middle of a connection. Else it is a flow's first.
    pub is_answer: bool,
}

impl TraceQuestion {
    /// Returns it as the line has flows: that of an ICMP query has the query's identifier for both ports.
    fn of_the_line(&self) -> Self {
        let mut question = *self;
        if matches!(question.flow.protocol, protocol::ICMP | protocol::ICMPV6) {
            question.flow.destination_port = question.flow.source_port;
        }
        question
    }
}

/// What one stage decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// The stage: `classify`, `owner`, `nat`, `steer`, `deliver`.
    pub stage: &'static str,
    /// What it decides.
    pub decision: String,
    /// Why; may be empty.
    pub why: String,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The worker whose sessions decide. Where it is not the one that was asked, ask it.
    pub worker: WorkerId,
    /// Whether a session decided.
    pub is_live: bool,
    /// Stage by stage, in the order in which the packet meets them.
    pub steps: Vec<TraceStep>,
    /// The packet as it leaves, before it is sealed or after it was opened; `None` when it is dropped.
    pub result: Option<FlowKey>,
    /// Why it is dropped.
    pub dropped: Option<DropReason>,
}

impl Pipeline {
    /// Says what becomes of a packet, and why. Nothing is changed.
    pub fn trace(&mut self, question: &TraceQuestion, now: Instant) -> Trace {
        let question = &question.of_the_line();
        let tables = std::sync::Arc::clone(self.tables.load());
        let mut trace = Trace {
            worker: self.config.worker,
            is_live: false,
            steps: Vec::new(),
            result: None,
            dropped: None,
        };
        // Before the first packet there is no translation to ask; an empty one says the same.
        let config =
            Config { limits: Limits { sessions: 1, changes: 0, ..Limits::default() }, ..Config::default() };
        let empty = self.nat().is_none().then(|| Nat::new(config, 0, now));
        self.view.renew(&tables, &self.config.board, &self.config.fleet);
        let services = self.delivery.as_deref_mut().map(Delivery::services);
        let delivery = Deliverer { delivery: self.delivery.as_deref().zip(services.as_deref()) };
        let nat = self.nat().or(empty.as_ref());
        let steering = Steering { tables: &tables, board: &self.config.board };
        let result = match (tables.rules(), nat) {
            _ if !is_unicast(question.flow.destination()) => {
                let why = format!("{} is no single host's address", question.flow.destination());
                Err(trace.refuse("parse", DropReason::NotUnicast, why))
            }
            (Some(rules), Some(nat)) if question.flow.is_ipv4() => {
                let view = &self.view;
                let trace = &mut trace;
                Tracer { tables: &tables, steering, delivery, rules, view, nat, now, trace }
                    .translated(question)
            }
            _ => trace.untranslated(question, &steering, &delivery),
        };
        match result {
            Ok(flow) => trace.result = Some(flow),
            Err(reason) => trace.dropped = Some(reason),
        }
        trace
    }
}

impl Trace {
    fn say(&mut self, stage: &'static str, decision: impl Into<String>, why: impl Into<String>) {
        self.steps.push(TraceStep { stage, decision: decision.into(), why: why.into() });
    }

    fn refuse(&mut self, stage: &'static str, reason: DropReason, why: impl Into<String>) -> DropReason {
        self.say(stage, format!("dropped: {}", reason.as_str()), why);
        reason
    }

    fn untranslated(
        &mut self,
        question: &TraceQuestion,
        steering: &Steering<'_>,
        delivery: &Deliverer<'_>,
    ) -> Result<FlowKey, DropReason> {
        let (flow, tables) = (question.flow, steering.tables);
        let (source, destination) = (flow.source(), flow.destination());
        if !question.is_outbound {
            let from = self.classify_inbound(source, destination, tables)?;
            self.deliver(delivery, &flow, &format!("from cluster {from}, not translated"));
            return Ok(flow);
        }
        if flow.protocol == RESERVED_PROTOCOL {
            return Err(self.reserved());
        }
        match tables.select(source, destination) {
            Selection::Paths(paths) => {
                let cluster = name_of(tables, destination);
                self.say("classify", format!("to cluster {cluster}"), "it has the destination");
                self.steer(steering, &flow, paths)?;
                Ok(flow)
            }
            Selection::NoRoute => Err(self.no_route(destination)),
            Selection::SourceNotLocal => {
                let why = format!("{source} is in none of our published subnets");
                Err(self.refuse("classify", DropReason::SourceNotLocal, why))
            }
        }
    }

    /// Where a packet goes that has arrived.
    fn deliver(&mut self, delivery: &Deliverer<'_>, flow: &FlowKey, why: &str) {
        let known = delivery.delivery.and_then(|(delivery, services)| delivery.explain(flow, services));
        let because = |reason: &str| {
            if why.is_empty() { reason.to_owned() } else { format!("{why}; {reason}") }
        };
        match known {
            None => self.say("deliver", "to the TUN device", why),
            Some(Delivered::Here) => {
                let why = because("a service with a back end on this node");
                self.say("deliver", "to the TUN device, where the route agent translates it", why);
            }
            Some(Delivered::Node(node)) => {
                let why = because("a service with a back end there");
                self.say("deliver", format!("to node {node} over the VXLAN between nodes"), why);
            }
            Some(Delivered::Kernel) => {
                let why = because("no service with ready back ends that is known here");
                self.say("deliver", "to the TUN device, for kube-proxy of this node", why);
            }
        }
    }

    fn reserved(&mut self) -> DropReason {
        let why = format!("protocol {RESERVED_PROTOCOL} is what gateways speak with each other");
        self.refuse("classify", DropReason::ReservedProtocol, why)
    }

    fn no_route(&mut self, destination: IpAddr) -> DropReason {
        let why = format!("no remote cluster has {destination}");
        self.refuse("classify", DropReason::NoRoute, why)
    }

    fn classify_inbound(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        tables: &Tables,
    ) -> Result<String, DropReason> {
        let Some(cluster) = tables.cluster_of(source).and_then(|id| tables.cluster(id)) else {
            let why = format!("no remote cluster has {source}, so no peer may send from it");
            return Err(self.refuse("classify", DropReason::SourceNotAllowed, why));
        };
        if tables.is_local(destination) {
            let why = format!("{destination} is in our published subnets");
            self.say("classify", format!("from cluster {}, for us", cluster.name), why);
            return Ok(cluster.name.clone());
        }
        let (reason, why) = if tables.cluster_of(destination).is_some() {
            (DropReason::Loop, format!("{destination} belongs to a remote cluster"))
        } else {
            (DropReason::DestinationNotLocal, format!("{destination} is in none of our published subnets"))
        };
        Err(self.refuse("classify", reason, why))
    }

    fn steer(&mut self, steering: &Steering<'_>, flow: &FlowKey, paths: &[PathId]) -> Result<(), DropReason> {
        let steered = steering.choose(flow, paths, Origin::Inside);
        let steered =
            steered.map_err(|reason| self.refuse("steer", reason, "the cluster has no cable at present"))?;
        let (path, decision) = (steered.path, steering.decision(steered.path));
        let via = match path.end {
            LaneEnd::Cluster(_) => String::new(),
            LaneEnd::Sibling(id) => {
                let name = steering.tables.sibling(id).map_or("", |sibling| sibling.name.as_str());
                format!(" to sibling {name}")
            }
        };
        let chosen = format!(
            "path {}{via} by lane {:#x} of cable {}, sealed by worker {}",
            path.id.0, path.lane.0, path.cable.0, path.owner.0
        );
        let (state, all) = (steering.board.state(path.cable).as_str(), paths.len());
        let why = format!(
            "{}; weight {}, {state}; packets of up to {} bytes",
            because(&steered, all),
            path.weight,
            decision.mtu_bytes
        );
        self.say("steer", chosen, why);
        Ok(())
    }
}

/// Why a path was chosen, of a cluster that has `all` paths.
fn because(steered: &Steered<'_>, all: usize) -> String {
    let draw = match steered.among {
        1 => String::new(),
        among => format!(", the best draw of flow and weight among {among}"),
    };
    match steered.why {
        Why::Pinned => "the destination is the address of this path's gateway".to_owned(),
        Why::Up if all == 1 => "the only path".to_owned(),
        Why::Up => format!("{} of {all} paths work{draw}", steered.among),
        Why::Draining => {
            format!("no path is up but for gateways that are about to stop or have just started{draw}")
        }
        Why::Relay => format!("none of our {all} paths works, so a sibling passes it on{draw}"),
        Why::Held => format!("nothing is up; this came back a moment ago{draw}"),
        Why::NothingUp => {
            format!("none of {all} paths seems to work, so steering stays on what worked last{draw}")
        }
    }
}

/// Who knows where services are, if anybody does.
struct Deliverer<'a> {
    delivery: Option<(&'a Delivery, &'a Services)>,
}

/// A packet that globalnet translates, on its way.
struct Tracer<'a> {
    tables: &'a Tables,
    steering: Steering<'a>,
    delivery: Deliverer<'a>,
    rules: &'a Rules,
    view: &'a View,
    nat: &'a Nat,
    now: Instant,
    trace: &'a mut Trace,
}

impl Tracer<'_> {
    fn translated(&mut self, question: &TraceQuestion) -> Result<FlowKey, DropReason> {
        let facts = facts(question).ok_or(DropReason::NotIp)?;
        if question.is_outbound { self.outbound(&facts) } else { self.inbound(&facts) }
    }

    fn outbound(&mut self, facts: &Facts) -> Result<FlowKey, DropReason> {
        let route = match route(self.tables, facts) {
            Ok(route) => route,
            Err(DropReason::SourceNotLocal) => {
                let why = format!("{} is in none of the cluster's own networks", facts.source);
                return Err(self.trace.refuse("classify", DropReason::SourceNotLocal, why));
            }
            Err(DropReason::ReservedProtocol) => return Err(self.trace.reserved()),
            Err(_) => return Err(self.trace.no_route(facts.destination.into())),
        };
        match route {
            Some(_) => {
                let cluster = name_of(self.tables, facts.destination.into());
                self.trace.say("classify", format!("to cluster {cluster}"), "it has the destination");
            }
            None => self.trace.say("classify", "back inside", "the destination is a global IP of our own"),
        }
        let owner = outbound_owner(self.view, self.rules, facts, Crossing::Out);
        if self.is_handed_on(owner, self.rules.bucket_outbound(facts).index()) {
            return Ok(flow_key(facts));
        }
        let explanation = self.nat.explain_outbound(facts, self.rules, self.now);
        let rewrite = self.explain(&explanation)?;
        let after = after_in2out(facts, &rewrite);
        let Some(paths) = route else { return self.inbound_half(&after, Crossing::Back) };
        self.trace.steer(&self.steering, &flow_key(&after), paths)?;
        Ok(flow_key(&after))
    }

    fn inbound(&mut self, facts: &Facts) -> Result<FlowKey, DropReason> {
        self.trace.classify_inbound(facts.source.into(), facts.destination.into(), self.tables)?;
        if let Some(cluster) = self.tables.cluster_of(facts.source.into()) {
            let admitted = admit(self.tables, facts, Way::From(LaneEnd::Cluster(cluster)));
            admitted
                .map_err(|reason| self.trace.refuse("classify", reason, "its peer may not send that here"))?;
        }
        self.inbound_half(facts, Crossing::In)
    }

    fn inbound_half(&mut self, facts: &Facts, crossing: Crossing) -> Result<FlowKey, DropReason> {
        let owner = inbound_owner(self.view, self.rules, facts, crossing);
        if self.is_handed_on(owner, self.rules.bucket_inbound(facts).index()) {
            return Ok(flow_key(facts));
        }
        let explanation = self.nat.explain_inbound(facts, self.rules, self.now);
        let rewrite = self.explain(&explanation)?;
        let after = after_out2in(facts, &rewrite);
        let flow = flow_key(&after);
        self.trace.deliver(&self.delivery, &flow, "");
        Ok(flow)
    }

    /// Whether another gateway of this cluster translates it: then this one knows no more.
    fn is_handed_on(&mut self, owner: Owner, bucket: usize) -> bool {
        let Owner::Sibling(path) = owner else { return false };
        let name = self.tables.path(path).and_then(|path| match path.end {
            LaneEnd::Sibling(id) => self.tables.sibling(id),
            LaneEnd::Cluster(_) => None,
        });
        let name = name.map_or("another gateway", |sibling| sibling.name.as_str());
        let why =
            format!("bucket {bucket} is its; it goes there as it is, by path {}: ask that gateway", path.0);
        self.trace.say("owner", format!("translated by {name}"), why);
        true
    }

    fn explain(&mut self, explanation: &Explanation) -> Result<trieste_nat::Rewrite, DropReason> {
        self.trace.worker = explanation.owner;
        self.trace.is_live |= explanation.is_live;
        let mut why = explanation.steps.join("; ");
        if !why.is_empty() {
            why += "; ";
        }
        why += &format!("bucket {}, worker {}", explanation.bucket.index(), explanation.owner.0);
        match explanation.outcome {
            Ok(rewrite) => {
                let decision = if rewrite.port == rewrite.old_port {
                    format!("{} becomes {}", rewrite.old_address, rewrite.address)
                } else {
                    format!(
                        "{}:{} becomes {}:{}",
                        rewrite.old_address, rewrite.old_port, rewrite.address, rewrite.port
                    )
                };
                self.trace.say("nat", decision, why);
                Ok(rewrite)
            }
            Err(refusal) => Err(self.trace.refuse("nat", reason(refusal), why)),
        }
    }
}

fn name_of(tables: &Tables, address: IpAddr) -> String {
    let cluster = tables.cluster_of(address).and_then(|id| tables.cluster(id));
    cluster.map(|cluster| cluster.name.clone()).unwrap_or_default()
}

/// The facts of a packet that nobody has sent.
fn facts(question: &TraceQuestion) -> Option<Facts> {
    let flow = question.flow;
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (flow.source(), flow.destination()) else {
        return None;
    };
    let kind = match (flow.protocol, question.is_answer) {
        (protocol::TCP, false) => Kind::Tcp(tcp::SYN),
        (protocol::TCP, true) => Kind::Tcp(tcp::ACK),
        (protocol::UDP, _) => Kind::Udp,
        (protocol::ICMP, false) => Kind::Request,
        (protocol::ICMP, true) => Kind::Reply,
        _ => Kind::Other,
    };
    let (source_port, destination_port) = match kind {
        Kind::Tcp(_) | Kind::Udp => (flow.source_port, flow.destination_port),
        Kind::Request | Kind::Reply => (flow.source_port, flow.source_port),
        Kind::Other => (0, 0),
    };
    Some(Facts { source, destination, source_port, destination_port, protocol: flow.protocol, kind })
}
