//! What an earlier join of this cluster has settled: it stays unless it is said anew.

use ipnet::IpNet;
use serde_json::Value;
use trieste_control::api::{ClusterNetworks, Object};
use trieste_control::live_networks::TrackedLists;
use trieste_control::parse::words;
use trieste_control::settings::{self, Data};

use crate::discover::Given;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{
    ACTIVE_GATEWAYS, ALLOW_REMOTE_CIDRS, FORMER_CABLE_DRIVER, GATEWAY, GATEWAY_CPU, GATEWAY_MEMORY,
    MANAGED_BY_LABEL, MISSING_NAMESPACES, MULTI_ACTIVE_GATEWAY, NO_SERVICE_DISCOVERY, NODE_TAINT, OUTER_IO,
    PRIORITY_CLASS, ROUTE_AGENT_CPU, ROUTE_AGENT_MEMORY, SUBMARINER, TRIESTE, VERSION_LABEL,
};
use crate::objects::{self, ActiveGateways, Image, MemberOptions, OuterIo};
use crate::pods;
use crate::preflight;
use crate::server::Server;

/// An earlier join by this tool: its Submariner object, and the gateway's DaemonSet for what that has no field for.
#[derive(Debug, Clone)]
pub struct Earlier {
    submariner: Value,
    gateway: Value,
    /// The cluster's networks as their object says them; `None` where the gateways do not go by it, as after a join by an
    /// older release.
    networks: Option<ClusterNetworks>,
    /// Which of its lists follow objects of the cluster.
    followed: TrackedLists,
    /// The object's version.
    networks_version: Option<String>,
    /// The settings of programs.
    settings: Data,
}

/// Looks for it in a namespace. An object that another tool has made says nothing: its settings are not ours.
///
/// # Errors
/// [`DeployError`] if the server does not answer, or the object with the cluster's networks makes no sense.
pub async fn earlier(local: &Server, namespace: &str) -> Result<Option<Earlier>, DeployError> {
    let place = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", namespace, SUBMARINER);
    let found = local.find(&place).await?;
    let Some(submariner) = found.filter(is_ours) else { return Ok(None) };
    let gateway = gateway(local, namespace).await?;
    read(local, namespace, (submariner, gateway.unwrap_or_default())).await.map(Some)
}

/// Looks for what an earlier pass has installed for a Submariner object that is not ours: gateways that are.
///
/// # Errors
/// As [`earlier`].
pub async fn earlier_registered(local: &Server, namespace: &str) -> Result<Option<Earlier>, DeployError> {
    let place = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", namespace, SUBMARINER);
    let submariner = local.find(&place).await?.unwrap_or_default();
    let Some(gateway) = gateway(local, namespace).await?.filter(is_ours) else { return Ok(None) };
    read(local, namespace, (submariner, gateway)).await.map(Some)
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE
}

async fn gateway(local: &Server, namespace: &str) -> Result<Option<Value>, DeployError> {
    local.find(&ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, GATEWAY)).await
}

async fn read(
    local: &Server,
    namespace: &str,
    (submariner, gateway): (Value, Value),
) -> Result<Earlier, DeployError> {
    let place = ObjectRef::namespaced("v1", "ConfigMap", namespace, ClusterNetworks::OBJECT);
    // Without gateways nobody says by what they went.
    let is_read = gateway.is_null() || goes_by_networks(&gateway);
    let object = if is_read { local.find(&place).await? } else { None };
    let networks_version = object.as_ref().and_then(version_of);
    let read = object.clone().and_then(|object| Object::from_value(object).ok());
    // One that cannot be read is written anew.
    let followed = read.and_then(|object| TrackedLists::of(&object).ok()).unwrap_or_default();
    let networks = object.map(|object| read_networks(object, namespace)).transpose()?;
    let place = ObjectRef::namespaced("v1", "ConfigMap", namespace, settings::OBJECT);
    let settings = local.find(&place).await?.and_then(|object| Object::from_value(object).ok());
    let settings = settings.as_ref().map(settings::data_of).unwrap_or_default();
    Ok(Earlier { submariner, gateway, networks, followed, networks_version, settings })
}

/// Returns an object's version.
fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

/// Checks that the cluster's networks are what they were when `member` was made, which says them anew.
///
/// # Errors
/// [`DeployError`] if somebody has changed them, or the server does not answer.
pub(super) async fn unchanged_networks(local: &Server, member: &MemberOptions) -> Result<(), DeployError> {
    let place = ObjectRef::namespaced("v1", "ConfigMap", &member.namespace, ClusterNetworks::OBJECT);
    let Some(read) = &member.networks_version else { return Ok(()) };
    let found = local.find(&place).await?.as_ref().and_then(version_of);
    if found.is_none() || found.as_ref() == Some(read) {
        return Ok(());
    }
    Err(DeployError::refused(
        format!("the cluster's networks have changed while this command ran: {place}"),
        "repeat the command, which reads them anew",
    ))
}

/// Returns `true` if a gateway's pods begin with the networks of their object.
fn goes_by_networks(gateway: &Value) -> bool {
    let variables = gateway["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let refers =
        |variable: &Value| variable["valueFrom"]["configMapKeyRef"]["name"] == ClusterNetworks::OBJECT;
    variables.into_iter().flatten().any(refers)
}

fn read_networks(object: Value, namespace: &str) -> Result<ClusterNetworks, DeployError> {
    let read = Object::from_value(object).map_err(|error| error.to_string());
    let read = read.and_then(|object| ClusterNetworks::read(&object, &[]).map_err(|error| error.to_string()));
    read.map_err(|error| {
        let name = ClusterNetworks::OBJECT;
        DeployError::refused(
            format!("the networks in ConfigMap {name} cannot be used: {error}"),
            format!("correct them: kubectl -n {namespace} edit configmap {name}"),
        )
    })
}

impl Earlier {
    /// The ID under which the cluster has joined.
    pub fn cluster_id(&self) -> Option<&str> {
        self.spec("clusterID").as_str().filter(|id| !id.is_empty())
    }

    /// Whether the broker's certificate is not checked.
    pub fn is_insecure(&self) -> bool {
        self.spec("brokerK8sInsecure") == true
    }

    /// Returns the CIDRs, discovered then or said, or written to their object since.
    pub fn networks(&self) -> Given {
        let list = |field: &str| cidrs(self.spec(field).as_str().unwrap_or_default());
        let (pods, services) = match &self.networks {
            Some(networks) => (networks.pods.clone(), networks.services.clone()),
            None => (list("clusterCIDR"), list("serviceCIDR")),
        };
        Given { pods, services, is_settled: [true; 2] }
    }

    /// Takes over what was found and not chosen: which lists of networks follow objects of the cluster, and the cable driver that
    /// the set changes from. For who says all choices anew.
    pub fn settle_found(&self, member: &mut MemberOptions) {
        member.extra_cidrs = self.networks.iter().flat_map(|networks| networks.extra.clone()).collect();
        member.followed.clone_from(&self.followed);
        member.networks_version.clone_from(&self.networks_version);
        let former = self.variable(FORMER_CABLE_DRIVER);
        member.former_cable_driver = former.map(str::to_owned);
    }

    /// Returns the kind of cable that the gateways have.
    pub fn cable_driver(&self) -> Option<&str> {
        self.variable("SUBMARINER_CABLEDRIVER")
    }

    /// Returns a variable of the gateways' container.
    fn variable(&self, name: &str) -> Option<&str> {
        pods::variable(&self.gateway, name)
    }

    /// Takes all choices over. An image of another version is not among them: it comes with the command, from the same
    /// repository.
    pub fn settle(&self, member: &mut MemberOptions) {
        let flag = |field: &str, to: &mut bool| *to = self.spec(field).as_bool().unwrap_or(*to);
        flag("airGappedDeployment", &mut member.air_gapped);
        flag("ceIPSecDebug", &mut member.ipsec_debug);
        flag("ceIPSecForceUDPEncaps", &mut member.force_udp_encaps);
        flag("ceIPSecPreferredServer", &mut member.preferred_server);
        flag("debug", &mut member.debug);
        flag("loadBalancerEnabled", &mut member.load_balancer);
        flag("natEnabled", &mut member.nat_enabled);
        member.extra_cidrs = self.networks.iter().flat_map(|networks| networks.extra.clone()).collect();
        member.followed.clone_from(&self.followed);
        member.networks_version.clone_from(&self.networks_version);
        let annotations = &self.submariner["metadata"]["annotations"];
        member.multi_active_gateway = annotations[MULTI_ACTIVE_GATEWAY] == "true";
        member.active_gateways = annotations[ACTIVE_GATEWAYS].as_str().and_then(ActiveGateways::parse);
        member.outer_io = annotations[OUTER_IO].as_str().and_then(OuterIo::parse);
        member.node_taint = annotations[NODE_TAINT] == "true";
        member.declines_service_discovery = annotations[NO_SERVICE_DISCOVERY] == "true";
        member.answers_missing_namespaces = annotations[MISSING_NAMESPACES] == "true";
        let custom = self.spec("coreDNSCustomConfig");
        if let (Some(namespace), Some(name)) =
            (custom["namespace"].as_str(), custom["configMapName"].as_str())
        {
            member.coredns_custom_config = format!("{namespace}/{name}");
        }
        let limit = |name: &str| annotations[name].as_str().and_then(|limit| limit.parse().ok());
        member.gateway_memory = limit(GATEWAY_MEMORY).unwrap_or(member.gateway_memory);
        member.route_agent_memory = limit(ROUTE_AGENT_MEMORY).unwrap_or(member.route_agent_memory);
        let share = |name: &str| annotations[name].as_str().and_then(|share| share.parse().ok());
        member.gateway_cpu = share(GATEWAY_CPU).unwrap_or(member.gateway_cpu);
        member.route_agent_cpu = share(ROUTE_AGENT_CPU).unwrap_or(member.route_agent_cpu);
        member.priority_class = annotations[PRIORITY_CLASS].as_str().map(str::to_owned);
        member.tolerations = self.spec("tolerations").as_array().cloned().unwrap_or_default();
        if let Some(driver) = self.spec("cableDriver").as_str() {
            // Upstream's operator takes an empty one for its default, and so does the set that it is in.
            member.cable_driver = preflight::canonical(driver);
        }
        if let Some(port) = number(self.spec("ceIPSecNATTPort")) {
            member.natt_port = port;
        }
        let check = self.spec("connectionHealthCheck");
        let health = &mut member.health_check;
        health.enabled = check["enabled"].as_bool().unwrap_or(health.enabled);
        health.interval_seconds = number(&check["intervalSeconds"]).unwrap_or(health.interval_seconds);
        health.max_packet_loss = number(&check["maxPacketLossCount"]).unwrap_or(health.max_packet_loss);
        if let Some(domains) =
            self.spec("customDomains").as_array().filter(|_| member.custom_domains.is_empty())
        {
            member.custom_domains =
                domains.iter().filter_map(|domain| domain.as_str().map(str::to_owned)).collect();
        }
        self.settle_pods(member);
        // Also what somebody has edited since. What is no setting stays where it is, and the programs name it.
        for (key, value) in &self.settings {
            let _ = member.set(key, value);
        }
    }

    /// What only the DaemonSet says.
    fn settle_pods(&self, member: &mut MemberOptions) {
        let pod = &self.gateway["spec"]["template"]["spec"];
        if pod.is_null() {
            return;
        }
        let container = &pod["containers"][0];
        let variable = |name: &str| self.variable(name);
        if let Some(port) = variable("TRIESTE_NAT_DISCOVERY_PORT").and_then(|port| port.parse().ok()) {
            member.nat_discovery_port = port;
        }
        member.former_cable_driver = variable(FORMER_CABLE_DRIVER).map(str::to_owned);
        member.allow_remote_cidrs = cidrs(variable(ALLOW_REMOTE_CIDRS).unwrap_or_default());
        let proxy = &mut member.proxy;
        for (name, to) in [
            ("HTTP_PROXY", &mut proxy.http),
            ("HTTPS_PROXY", &mut proxy.https),
            ("NO_PROXY", &mut proxy.no_proxy),
        ] {
            variable(name).unwrap_or_default().clone_into(to);
        }
        let secrets = pod["imagePullSecrets"].as_array().into_iter().flatten();
        member.pull_secrets =
            secrets.filter_map(|secret| secret["name"].as_str().map(str::to_owned)).collect();
        let Some(reference) = container["image"].as_str() else { return };
        let (image, policy) = (Image::new(reference), member.image.pull_policy);
        let is_same_version = self.gateway["metadata"]["labels"][VERSION_LABEL] == env!("CARGO_PKG_VERSION");
        member.image = if is_same_version { image } else { image.with_version(env!("CARGO_PKG_VERSION")) };
        let policy = match container["imagePullPolicy"].as_str() {
            Some(word) => word.parse().unwrap_or(policy),
            None => policy,
        };
        member.image.pull_policy = policy;
    }

    pub(crate) fn spec(&self, field: &str) -> &Value {
        &self.submariner["spec"][field]
    }
}

fn number<T: TryFrom<u64>>(value: &Value) -> Option<T> {
    value.as_u64().and_then(|number| number.try_into().ok())
}

/// Settings that are as an earlier join has made them and would be others without it, each as `field value`.
pub fn kept(fresh: &MemberOptions, settled: &MemberOptions) -> Vec<String> {
    let (fresh, settled) = (objects::submariner_resource(fresh), objects::submariner_resource(settled));
    let fields = settled.as_value()["spec"].as_object().into_iter().flatten();
    let differ = fields.filter(|(field, value)| fresh.as_value()["spec"][field.as_str()] != **value);
    differ.map(|(field, value)| format!("{field} {value}")).collect()
}

/// Reads the CIDRs in a list of ours, or of upstream's operator; what is none is left out.
pub(crate) fn cidrs(text: &str) -> Vec<IpNet> {
    words(text).filter_map(|cidr| cidr.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{BrokerAccess, HealthCheck, Manifest, MemoryLimit, Proxy, PullPolicy, Secret};
    use crate::server::fake::Fake;

    fn options() -> MemberOptions {
        let broker = BrokerAccess::new("b:1", None, Secret::default());
        let cluster_cidrs = vec!["10.1.0.0/16".parse().unwrap()];
        MemberOptions { cluster_cidrs, ..MemberOptions::new("east", broker, Secret::new("k")) }
    }

    #[tokio::test]
    async fn every_choice_of_an_earlier_join_is_found_again() {
        let mut chosen = options();
        chosen.air_gapped = true;
        chosen.nat_enabled = true;
        chosen.load_balancer = true;
        chosen.multi_active_gateway = true;
        chosen.active_gateways = Some(ActiveGateways::One);
        chosen.outer_io = Some(OuterIo::Auto);
        chosen.node_taint = true;
        chosen.declines_service_discovery = true;
        chosen.answers_missing_namespaces = true;
        chosen.coredns_custom_config = "dns/more".to_owned();
        chosen.gateway_memory = "3Gi".parse().unwrap();
        chosen.route_agent_memory = MemoryLimit::NONE;
        chosen.gateway_cpu = "2".parse().unwrap();
        chosen.route_agent_cpu = "250m".parse().unwrap();
        chosen.priority_class = Some("critical".to_owned());
        chosen.tolerations = vec![serde_json::json!({"key": "k", "operator": "Exists"})];
        for (key, value) in [("workers", "4"), ("log-level", "debug"), ("globalnet.udp-timeout", "300")] {
            chosen.set(key, value).unwrap();
        }
        (chosen.debug, chosen.ipsec_debug) = (true, true);
        chosen.natt_port = 4501;
        chosen.former_cable_driver = Some("libreswan".to_owned());
        chosen.nat_discovery_port = 0;
        chosen.allow_remote_cidrs = ["25.0.0.0/8", "10.0.0.0/8"].map(|net| net.parse().unwrap()).into();
        chosen.health_check = HealthCheck { enabled: false, interval_seconds: 7, max_packet_loss: 9 };
        chosen.custom_domains = vec!["a.example".to_owned()];
        chosen.pull_secrets = vec!["pull".to_owned()];
        chosen.proxy = Proxy { https: "http://p:1".to_owned(), ..Proxy::default() };
        chosen.image = Image::new("reg.example/x/own:7").pulled(PullPolicy::Always);
        chosen.cluster_cidrs = vec!["10.4.0.0/16".parse().unwrap()];
        chosen.extra_cidrs = vec!["10.77.0.0/24".parse().unwrap(), "fd77::/64".parse().unwrap()];
        let fake = Fake::default();
        for manifest in objects::member(&chosen) {
            fake.put(manifest.into_value());
        }
        let earlier = earlier(&fake.server(), &chosen.namespace).await.unwrap().unwrap();

        let mut settled = options();
        earlier.settle(&mut settled);

        settled.cluster_cidrs = earlier.networks().pods;
        assert_eq!(earlier.cluster_id(), Some("east"));
        assert_eq!(format!("{settled:?}"), format!("{chosen:?}"));
        assert_eq!(objects::submariner_resource(&settled), objects::submariner_resource(&chosen));
        assert!(kept(&options(), &settled).contains(&"ceIPSecNATTPort 4501".to_owned()));
        assert_eq!(kept(&chosen, &settled), Vec::<String>::new());
    }

    #[tokio::test]
    async fn the_image_of_another_version_and_another_tools_settings_are_not_kept() {
        let fake = Fake::default();
        for mut manifest in objects::member(&MemberOptions {
            image: Image::of(Some("reg.example"), Some("0.0.1")),
            ..options()
        })
        .into_iter()
        .map(Manifest::into_value)
        {
            manifest["metadata"]["labels"][VERSION_LABEL] = "0.0.1".into();
            fake.put(manifest);
        }
        let mut settled = options();
        earlier(&fake.server(), &settled.namespace).await.unwrap().unwrap().settle(&mut settled);
        assert_eq!(settled.image, Image::of(Some("reg.example"), None));

        let theirs = objects::submariner_resource(&options());
        let mut theirs = theirs.into_value();
        theirs["metadata"]["labels"][MANAGED_BY_LABEL] = "operator".into();
        fake.put(theirs);
        assert!(earlier(&fake.server(), &settled.namespace).await.unwrap().is_none());
    }
}
