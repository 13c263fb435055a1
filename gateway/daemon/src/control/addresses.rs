//! What this node is and where: its Node object, its addresses, the public one, the global one; and the Endpoint that
//! says so.

use std::net::IpAddr;
use std::time::Instant;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use rand_core::OsRng;
use trieste_control::admin::Severity;
use trieste_control::api::{EndpointSpec, Kind, ObjectKey, ensure_valid_name};
use trieste_control::leader::global_health_check_ip;
use trieste_control::natdiscovery::Local as DiscoveryLocal;
use trieste_control::publicip::{Resolver, Resolvers};
use trieste_control::store::{Store as _, StoreEvent};

use super::{Control, Driver};
use crate::config::Config;
use crate::engine::Engine;
use crate::host;
use crate::node::{self, Found};
use crate::settings::NodeSettings;

impl Control<'_> {
    /// Returns `true` if this node has no address for health checks. Peers drop packets from outside of our subnets, so that
    /// pings from another address would be lost, and good connections reported as failed.
    pub(super) fn lacks_address(&self) -> bool {
        self.config.health_check.is_some()
            && !self.config.has_globalnet()
            && self.state.found.health_check_ip(self.config).is_none()
    }

    /// Follows the Node object, where there is one.
    pub(super) fn follow_node(&self) -> BoxStream<'static, StoreEvent> {
        match &self.config.node_name {
            Some(name) => self.store.watch_one(&ObjectKey::new(Kind::Node, "", name)).boxed(),
            None => futures::stream::pending().boxed(),
        }
    }

    /// Follows the own Gateway object: Globalnet writes our global IP there, and people whether to drain.
    pub(super) fn follow_gateway(&self) -> BoxStream<'static, StoreEvent> {
        let name = ensure_valid_name(&self.node.hostname);
        self.store.watch_one(&ObjectKey::new(Kind::Gateway, &self.config.namespace, name)).boxed()
    }

    pub(super) fn take_node(&mut self, event: StoreEvent) {
        let Some(name) = &self.config.node_name else { return };
        let subject = format!("Node {name}");
        let node = match event {
            StoreEvent::Unavailable(error) => {
                let message = format!("its settings cannot be followed: {error}");
                return self.conditions.set("NodeUnknown", Severity::Warning, &subject, message);
            }
            StoreEvent::Applied(object) => Some(object),
            StoreEvent::Listed(objects) => objects.into_iter().next(),
            StoreEvent::Deleted(_) | _ => None,
        };
        let missing =
            node.is_none().then(|| "there is no such Node object: its settings have no effect".to_owned());
        self.conditions.put("NodeUnknown", Severity::Warning, &subject, missing);
        let Some(settings) = node.as_ref().map(NodeSettings::read) else { return };
        let problems: Vec<(String, String)> = settings
            .problems
            .iter()
            .map(|(key, problem)| (format!("{subject} {key}"), format!("{key} {problem}")))
            .collect();
        self.conditions.replace("UnknownNodeSetting", Severity::Warning, &problems);
        self.follow_label(&subject, settings.is_gateway);
        self.ask_for_restart(&subject, &settings);
        self.state.found.settings = settings;
        self.follow_public_ip();
        self.publish_endpoint();
    }

    /// Looks for the public address as the settings and this gateway's part have it: the Service of a load balancer
    /// chooses the leader, so that its address is none of the others'. Nobody is known to lead at first: then it counts.
    pub(super) fn follow_public_ip(&mut self) {
        let leads = self.candidate.is_leader(Instant::now());
        let is_follower = !leads && !self.candidate.status().borrow().holder.is_empty();
        let setting = self.state.found.resolvers(self.config);
        let is_air_gapped = self.config.air_gapped;
        let resolvers = Resolvers::from_setting(setting, is_air_gapped, &mut OsRng);
        let is_without = is_follower && resolvers.valid().any(Resolver::is_load_balancer);
        // By the setting: the built-in list is in another order each time.
        let sought = (setting.map(str::to_owned), is_without);
        if self.state.sought == sought {
            return;
        }
        self.public_ip.set_resolvers(if is_without {
            resolvers.without_load_balancer(is_air_gapped, &mut OsRng)
        } else {
            resolvers
        });
        self.state.sought = sought;
    }

    /// Follows the gateway label. A node that loses it stands back; one that never had it gets a condition, and may lead.
    pub(super) fn follow_label(&mut self, subject: &str, is_gateway: bool) {
        self.state.was_gateway |= is_gateway;
        let is_candidate = is_gateway || !self.state.was_gateway;
        let what = if is_candidate {
            "nothing schedules gateways there, but this one runs and may lead"
        } else {
            "this gateway leaves the lead to others"
        };
        let message = (!is_gateway).then(|| format!("it is not labelled submariner.io/gateway=true: {what}"));
        self.candidate.set_eligible(is_candidate);
        self.conditions.put("NotAGatewayNode", Severity::Warning, subject, message);
    }

    /// Reports changed ports and addresses, which are read at start, as upstream does.
    fn ask_for_restart(&mut self, subject: &str, settings: &NodeSettings) {
        let port = settings.udp_port.unwrap_or(self.config.udp_port);
        let address = node::private_ip(self.config, settings, &host::addresses()).ok();
        let mut changes = Vec::new();
        if port != self.node.udp_port {
            changes.push(format!("udp-port is {port}, in use is {}", self.node.udp_port));
        }
        if let Some(address) = address.filter(|address| *address != self.node.private_ip) {
            changes.push(format!("the endpoint's address is {address}, in use is {}", self.node.private_ip));
        }
        // Nothing was published on the strength of settings that somebody has chosen: better now than never.
        if std::mem::take(&mut self.state.is_guess) && !changes.is_empty() {
            let reason = format!("the Node's settings were not known at start: {}", changes.join("; "));
            self.state.restart = Some(format!("{reason}; this gateway starts again with them"));
        }
        let message = (!changes.is_empty()).then(|| {
            format!("{}: restart this gateway (delete its pod) for that to take effect", changes.join("; "))
        });
        self.conditions.put("RestartNeeded", Severity::Warning, subject, message);
    }

    pub(super) fn take_gateway(&mut self, event: StoreEvent, engine: &Engine) {
        let object = match event {
            StoreEvent::Applied(object) => Some(object),
            StoreEvent::Listed(objects) => objects.into_iter().next(),
            StoreEvent::Deleted(_) | StoreEvent::Unavailable(_) | _ => return,
        };
        let Some(object) = object else { return };
        self.take_drain(&object, engine);
        if !self.config.has_globalnet() {
            return;
        }
        let before = self.state.found.global_ip;
        match global_health_check_ip(&self.state.found.networks.cluster(&self.config.cluster_id), &object) {
            Ok(address) => {
                self.conditions.clear("GlobalIp", "");
                self.state.found.global_ip = address;
            }
            Err(problem) => self.conditions.set("GlobalIp", Severity::Warning, "", problem.to_string()),
        }
        // Our own heartbeat comes by here as well.
        if self.state.found.global_ip != before {
            self.publish_endpoint();
        }
    }

    pub(super) fn take_public_ip(&mut self) {
        let known = self.public_ip.public_ip.borrow().clone();
        self.conditions.put("PublicIpUnknown", Severity::Warning, "", known.error.clone());
        self.state.found.public_ip = known.address;
        self.state.found.is_load_balancer = known.is_load_balancer;
        self.publish_endpoint();
    }

    /// Reads the node's addresses, which network plugins may assign long after the gateway has started.
    pub(super) async fn refresh_addresses(&mut self, engine: &mut Engine) {
        engine.set_node_addresses(node::addresses(self.config), Instant::now()).await;
        let networks = &self.state.found.networks;
        engine.set_icmp_sources(node::icmp_sources(self.config, networks, self.node.private_ip));
        self.state.found.inside = node::inside(&self.state.found.networks);
        let missing = self.lacks_address().then(|| {
            let cidrs: Vec<String> = self.state.found.networks.pods.iter().map(ToString::to_string).collect();
            format!(
                "this node has no address inside the cluster's CIDRs ({}): connections are not pinged, neither by it \
                 nor by remote gateways; is the network plugin up, are the CIDRs right? Or set health-check-ip",
                cidrs.join(", ")
            )
        });
        self.conditions.put("NoHealthCheckAddress", Severity::Warning, "", missing);
        self.watch_health(engine);
        self.publish_endpoint();
    }

    /// Builds the Endpoint, and publishes it if it has changed.
    pub(super) fn publish_endpoint(&mut self) {
        let Driver { name, backend_config } = &self.driver;
        let mut spec =
            node::endpoint(self.config, &self.node, &self.state.found, name, backend_config.clone());
        spec.set_supports_paths(self.members().is_multi);
        self.discovery.set_local(discovery_local(
            self.config,
            &spec,
            &self.state.found,
            self.node.private_ip,
        ));
        self.state.is_dirty |= self.endpoint.send_if_modified(|known| {
            let changed = *known != spec;
            *known = spec;
            changed
        });
    }
}

/// Returns this gateway's identity in NAT discovery.
pub(crate) fn discovery_local(
    config: &Config,
    spec: &EndpointSpec,
    found: &Found,
    private_ip: IpAddr,
) -> DiscoveryLocal {
    DiscoveryLocal {
        cluster_id: config.cluster_id.clone(),
        cable_name: spec.cable_name.clone(),
        private_ips: vec![private_ip],
        port: found.nat_discovery_port(config),
    }
}
