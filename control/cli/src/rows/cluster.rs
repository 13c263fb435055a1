//! Rows that only an API server knows: brokers, versions, and what route agents see.

use serde::Serialize;
use serde_json::Value;

use super::super::api::{text, texts};
use super::super::installation::Workload;
use super::super::table::{Column, column, limited, yes_no};
use super::Row;
use trieste_control::api::{Gateway, RouteAgent};
use trieste_deploy::objects::names;

/// A Broker object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokerRow {
    namespace: String,
    name: String,
    components: Vec<String>,
    globalnet: bool,
    #[serde(rename = "globalnetCIDR")]
    globalnet_cidr: String,
    default_globalnet_size: u64,
    default_domains: Vec<String>,
}

impl Row for BrokerRow {
    const COLUMNS: &'static [Column] = &[
        limited("NAMESPACE", 24),
        limited("NAME", 24),
        column("COMPONENTS"),
        column("GLOBALNET"),
        column("GLOBALNET CIDR"),
        column("DEFAULT GLOBALNET SIZE"),
        limited("DEFAULT DOMAINS", 40),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.namespace.clone(),
            self.name.clone(),
            self.components.join(", "),
            yes_no(self.globalnet),
            self.globalnet_cidr.clone(),
            self.default_globalnet_size.to_string(),
            self.default_domains.join(", "),
        ]
    }
}

/// One row per Broker object.
pub(crate) fn brokers(brokers: &[Value]) -> Vec<BrokerRow> {
    let row = |broker: &Value| BrokerRow {
        namespace: text(broker, "/metadata/namespace").to_owned(),
        name: text(broker, "/metadata/name").to_owned(),
        components: texts(broker, "/spec/components"),
        globalnet: broker["spec"]["globalnetEnabled"].as_bool().unwrap_or_default(),
        globalnet_cidr: text(broker, "/spec/globalnetCIDRRange").to_owned(),
        default_globalnet_size: broker["spec"]["defaultGlobalnetClusterSize"].as_u64().unwrap_or_default(),
        default_domains: texts(broker, "/spec/defaultCustomDomains"),
    };
    brokers.iter().map(row).collect()
}

/// A component: what was asked for, and what runs.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionRow {
    component: String,
    repository: String,
    configured: String,
    running: String,
    arch: String,
}

impl Row for VersionRow {
    const COLUMNS: &'static [Column] =
        &[column("COMPONENT"), column("REPOSITORY"), column("CONFIGURED"), column("RUNNING"), column("ARCH")];

    fn cells(&self) -> Vec<String> {
        [&self.component, &self.repository, &self.configured, &self.running, &self.arch]
            .map(Clone::clone)
            .into()
    }
}

/// What upstream says where no pod runs that could be asked.
const UNAVAILABLE: &str = "Unavailable";

/// One row per workload. What runs is what gateways and route agents publish, which needs no rights to run commands in
/// pods; of upstream's other components it is not known.
pub(crate) fn versions(
    workloads: &[Workload],
    gateways: &[Gateway],
    agents: &[RouteAgent],
) -> Vec<VersionRow> {
    let row = |workload: &Workload| {
        let (repository, configured) = image_parts(&workload.image);
        let running: Vec<&str> = match workload.name.as_str() {
            names::GATEWAY => gateways.iter().map(|gateway| gateway.status.version.as_str()).collect(),
            names::ROUTE_AGENT => agents.iter().map(|agent| agent.status.version.as_str()).collect(),
            _ => Vec::new(),
        };
        let running = workload.running.as_ref().map(|_| running).unwrap_or_default();
        VersionRow {
            component: workload.name.clone(),
            repository,
            configured,
            running: each_once(running),
            arch: each_once(workload.running.iter().flatten().map(String::as_str)),
        }
    };
    workloads.iter().map(row).collect()
}

/// Several during an upgrade.
fn each_once<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut once: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    once.sort_unstable();
    once.dedup();
    if once.is_empty() { UNAVAILABLE.to_owned() } else { once.join(", ") }
}

/// An image's repository without its last part, and its tag or digest.
fn image_parts(image: &str) -> (String, String) {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    let tag = last.rsplit_once(':').map(|(_, tag)| tag);
    (folder.to_owned(), tag.or(digest).unwrap_or("latest").to_owned())
}

/// A remote gateway, as a node sees it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouteAgentRow {
    node: String,
    /// The remote gateway; empty on a node that knows none.
    cluster: String,
    gateway: String,
    status: String,
    rtt_average: String,
    message: String,
    /// Not in the table.
    version: String,
}

impl Row for RouteAgentRow {
    const COLUMNS: &'static [Column] = &[
        limited("NODE", 30),
        limited("CLUSTER", 24),
        limited("GATEWAY", 30),
        column("STATUS"),
        column("RTT avg."),
        limited("MESSAGE", 100),
    ];

    fn cells(&self) -> Vec<String> {
        let Self { node, cluster, gateway, status, rtt_average, message, version: _ } = self;
        [node, cluster, gateway, status, rtt_average, message].map(Clone::clone).into()
    }
}

/// One row per node and remote gateway or gateway left out, and one per node without any.
pub(crate) fn route_agents(agents: &[RouteAgent]) -> Vec<RouteAgentRow> {
    agents.iter().flat_map(rows_of).collect()
}

fn rows_of(agent: &RouteAgent) -> Vec<RouteAgentRow> {
    let status = &agent.status;
    let row = || RouteAgentRow {
        node: agent.metadata.name.clone(),
        cluster: String::new(),
        gateway: String::new(),
        status: String::new(),
        rtt_average: String::new(),
        message: status.status_failure.clone(),
        version: status.version.clone(),
    };
    let rows = status.remote_endpoints.iter().map(|remote| RouteAgentRow {
        cluster: remote.spec.cluster_id.clone(),
        gateway: remote.spec.hostname.clone(),
        status: remote.status.map(|status| status.to_string()).unwrap_or_default(),
        rtt_average: remote.latency_rtt.as_ref().map(|rtt| rtt.average.clone()).unwrap_or_default(),
        message: join_reasons(&status.status_failure, &remote.status_message),
        ..row()
    });
    // The own cluster's gateways that get no packets from this node.
    let conditions = agent.conditions();
    let left_out = conditions.iter().filter(|condition| condition.name == "LeftOut");
    let left_out = left_out.map(|condition| RouteAgentRow {
        status: "left out".to_owned(),
        message: condition.message.clone(),
        ..row()
    });
    let rows: Vec<_> = rows.chain(left_out).collect();
    if rows.is_empty() { vec![row()] } else { rows }
}

fn join_reasons(failure: &str, message: &str) -> String {
    let reasons: Vec<&str> = [failure, message].into_iter().filter(|text| !text.is_empty()).collect();
    reasons.join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use serde_json::json;
    use trieste_control::api::{Object, Resource as _};

    const AGENTS: &str = include_str!("../../../tests/golden/plain/a-routeagents.yaml");

    #[test]
    fn a_broker_is_shown_in_upstreams_form() {
        let broker = json!({
            "metadata": {"namespace": "submariner-k8s-broker", "name": "submariner-broker"},
            "spec": {"components": ["service-discovery", "connectivity"], "globalnetEnabled": false,
                "globalnetCIDRRange": "242.0.0.0/8", "defaultGlobalnetClusterSize": 65536},
        });
        let expected = "NAMESPACE               NAME                COMPONENTS                        GLOBALNET   \
                        GLOBALNET CIDR   DEFAULT GLOBALNET SIZE   DEFAULT DOMAINS   \n\
                        submariner-k8s-broker   submariner-broker   service-discovery, connectivity   no          \
                        242.0.0.0/8      65536                                      \n";
        assert_eq!(table(&brokers(&[broker])), expected);
    }

    #[test]
    fn an_image_is_taken_apart() {
        for (image, repository, configured) in [
            ("quay.io/submariner/submariner-gateway:0.19.0", "quay.io/submariner", "0.19.0"),
            ("registry:5000/x/y", "registry:5000/x", "latest"),
            ("localhost/trieste:0.1.0@sha256:ab", "localhost", "0.1.0"),
            ("localhost/trieste@sha256:ab", "localhost", "sha256:ab"),
            ("trieste", "", "latest"),
        ] {
            assert_eq!(image_parts(image), (repository.to_owned(), configured.to_owned()), "{image}");
        }
    }

    #[test]
    fn what_runs_is_what_was_published_and_unavailable_where_no_pod_runs() {
        let workload = |name: &str, running: Option<&[&str]>| Workload {
            name: name.to_owned(),
            image: "localhost/trieste:0.1.0".to_owned(),
            running: running.map(|all| all.iter().map(|one| (*one).to_owned()).collect()),
        };
        let agents = recorded_agents();
        let shown = |running| versions(&[workload("submariner-routeagent", running)], &[], &agents).remove(0);
        let row = shown(Some(&["arm64", "amd64"]));
        assert_eq!(
            (row.running.as_str(), row.arch.as_str()),
            (agents[0].status.version.as_str(), "amd64, arm64")
        );
        let row = shown(None);
        assert_eq!((row.running.as_str(), row.arch.as_str()), ("Unavailable", "Unavailable"));
    }

    #[test]
    fn a_route_agent_has_a_row_per_remote_gateway_or_one_that_says_why_there_is_none() {
        let mut agents = recorded_agents();
        let rows = route_agents(&agents);
        assert_eq!(rows.len(), agents.len());
        assert!(rows.iter().all(|row| row.cluster == "cluster-b" && row.gateway == "b-gw1"), "{rows:?}");
        agents[0].status.remote_endpoints.clear();
        agents[0].status.status_failure = "no vx-submariner".to_owned();
        let row = route_agents(&agents).remove(0);
        assert_eq!((row.cluster.as_str(), row.message.as_str()), ("", "no vx-submariner"));
    }

    #[test]
    fn a_gateway_that_gets_nothing_from_a_node_has_a_row_that_says_why() {
        let mut agent = recorded_agents().remove(0);
        let before = route_agents(std::slice::from_ref(&agent)).len();
        let said =
            json!([{"name": "LeftOut", "severity": "warning", "message": "gateway gw2 gets no packets"}]);
        agent.metadata.annotations.insert("trieste.io/conditions".to_owned(), said.to_string());
        let rows = route_agents(&[agent]);
        assert_eq!(rows.len(), before + 1);
        let last = rows.last().unwrap();
        assert_eq!(
            (last.status.as_str(), last.message.as_str()),
            ("left out", "gateway gw2 gets no packets")
        );
    }

    fn recorded_agents() -> Vec<RouteAgent> {
        let list: Value = serde_saphyr::from_str(AGENTS).unwrap();
        let parse =
            |item: &Value| RouteAgent::from_object(&Object::from_value(item.clone()).unwrap()).unwrap();
        list["items"].as_array().unwrap().iter().map(parse).collect()
    }
}
