//! What is there of gateways, as the API server has it.

use std::collections::BTreeMap;

use serde_json::Value;
use trieste_control::api::{annotation, backend_config};
use trieste_control::election::GATEWAY_LEASE;
use trieste_control::parse::words;

use super::{Drain, Gateway, Pod, View};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{GATEWAY, GATEWAY_LABEL};
use crate::pods::{is_ready, status};
use crate::server::Server;

/// The label by which Kubernetes says of which template a pod is.
const REVISION: &str = "controller-revision-hash";
/// The label with a node's host name.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// What follows the host name in the identity of the leader.
const IDENTITY: &str = "-submariner-gateway";

/// Seconds after its start until which a gateway is ready only by having had a path to every remote cluster: after 20 it is in any
/// case.
const SETTLED_WITHIN: i64 = 15;

/// Objects that a view is made of.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) set: Value,
    pub(super) revisions: Vec<Value>,
    pub(super) pods: Vec<Value>,
    pub(super) gateways: Vec<Value>,
    /// Those with the gateways' label.
    pub(super) nodes: Vec<Value>,
    pub(super) lease: Value,
}

/// Reads what is there.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub(super) async fn observe(server: &Server, namespace: &str) -> Result<View, DeployError> {
    let here = Some(namespace);
    let of_gateways = format!("labelSelector=app%3D{GATEWAY}");
    let labelled = format!("labelSelector={}%3Dtrue", GATEWAY_LABEL.replace('/', "%2F"));
    let set = ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, GATEWAY);
    let lease = ObjectRef::namespaced("coordination.k8s.io/v1", "Lease", namespace, GATEWAY_LEASE);
    let found = Found {
        set: server.find(&set).await?.unwrap_or_default(),
        revisions: server.list("apps/v1", "ControllerRevision", here, &of_gateways).await?,
        pods: server.list("v1", "Pod", here, &of_gateways).await?,
        gateways: server.list("submariner.io/v1", "Gateway", here, "").await?,
        nodes: server.list("v1", "Node", None, &labelled).await?,
        lease: server.find(&lease).await?.unwrap_or_default(),
    };
    Ok(found.view())
}

impl Found {
    pub(super) fn view(&self) -> View {
        let set = &self.set;
        let generation = set["metadata"]["generation"].as_u64().unwrap_or(u64::MAX);
        let status = |field: &str| status(set, field);
        let present = self.present_revision();
        // What is on a node that does not answer stays there, whatever is asked for.
        let is_there = |pod: &&Value| {
            let node = node_of(pod);
            let has_answer =
                self.nodes.iter().any(|known| text(known, "/metadata/name") == node && is_ready(known));
            !is_ending(pod) || !has_answer
        };
        let there = self.pods.iter().filter(is_there).count();
        let wanted = usize::try_from(status("desiredNumberScheduled")).unwrap_or(usize::MAX);
        let gateways = self.nodes.iter().filter_map(|node| self.gateway(node, present)).collect();
        View {
            is_observed: status("observedGeneration") >= generation && present.is_some(),
            missing: wanted.saturating_sub(there),
            gateways,
        }
    }

    /// Returns the hash of the DaemonSet's present template.
    fn present_revision(&self) -> Option<&str> {
        let uid = &self.set["metadata"]["uid"];
        let is_its = |revision: &&Value| {
            let owners = revision["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|owner| owner["uid"] == *uid)
        };
        let newest =
            self.revisions.iter().filter(is_its).max_by_key(|revision| revision["revision"].as_u64())?;
        newest["metadata"]["labels"][REVISION].as_str()
    }

    /// Returns a node's gateway; `None` if there is neither a pod nor an object of one.
    fn gateway(&self, node: &Value, present: Option<&str>) -> Option<Gateway> {
        let name = text(node, "/metadata/name");
        let of_node = |host: &str| host == name || node["metadata"]["labels"][HOSTNAME] == host;
        // A new one is there beside one that is ending only where its node does not answer.
        let mut pods: Vec<&Value> = self.pods.iter().filter(|pod| node_of(pod) == name).collect();
        pods.sort_by_key(|pod| is_ending(pod));
        let object =
            self.gateways.iter().find(|gateway| of_node(text(gateway, "/status/localEndpoint/hostname")));
        let has_settled = pods.first().is_some_and(|pod| was_ready_soon(pod));
        let is_current =
            |pod: &Value| present.is_some_and(|present| pod["metadata"]["labels"][REVISION] == present);
        let pod = pods.first().map(|pod| Pod {
            name: text(pod, "/metadata/name").to_owned(),
            is_current: is_current(pod),
            // A new one that has not published itself may not have what it takes.
            is_ready: is_ready(pod)
                && object.map_or_else(|| !is_current(pod), |object| is_of_pod(object, pod)),
            is_ending: is_ending(pod),
        });
        let leader = text(&self.lease, "/spec/holderIdentity");
        let gateway = Gateway {
            node: name.to_owned(),
            is_node_ready: is_ready(node),
            pod,
            is_leader: leader.strip_suffix(IDENTITY).is_some_and(of_node),
            ..object.map(|object| read(object, has_settled)).unwrap_or_default()
        };
        (gateway.pod.is_some() || gateway.object.is_some()).then_some(gateway)
    }
}

/// Returns the node that a pod is for: before it is bound, as its DaemonSet has asked for it.
fn node_of(pod: &Value) -> &str {
    let bound = text(pod, "/spec/nodeName");
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(terms).and_then(Value::as_array).into_iter().flatten();
    let fields = terms.filter_map(|term| term["matchFields"].as_array()).flatten();
    let mut names = fields
        .filter(|field| field["key"] == "metadata.name")
        .filter_map(|field| field["values"][0].as_str());
    if bound.is_empty() { names.next().unwrap_or_default() } else { bound }
}

/// Reads what a gateway says of itself. WireGuard's connections are called `connecting` for their first ten seconds, whatever they
/// carry (spec: upstream's); of a gateway that `has_settled` that is no complaint.
fn read(object: &Value, has_settled: bool) -> Gateway {
    let annotations = &object["metadata"]["annotations"];
    let status = &object["status"];
    let lost: Vec<&str> = words(annotations[annotation::UNREACHABLE].as_str().unwrap_or_default()).collect();
    let mut clusters: BTreeMap<String, bool> = BTreeMap::new();
    for connection in status["connections"].as_array().into_iter().flatten() {
        let cluster = text(connection, "/endpoint/cluster_id");
        let is_up =
            connection["status"] == "connected" || has_settled && connection["status"] == "connecting";
        let is_reached = is_up && !lost.contains(&cluster);
        *clusters.entry(cluster.to_owned()).or_default() |= is_reached;
    }
    Gateway {
        object: object["metadata"]["name"].as_str().map(str::to_owned),
        is_active: status["haStatus"] == "active",
        is_asked: annotations[annotation::DRAIN] == "true",
        is_for_update: annotations[annotation::DRAINED_FOR_UPDATE] == "true",
        drain: match text(status, "/localEndpoint/backend_config/trieste.state") {
            backend_config::DRAINED => Drain::Done,
            backend_config::DRAINING => Drain::Going,
            _ => Drain::No,
        },
        clusters,
        is_cut: !annotations[annotation::CONNECTIONS_LEFT_OUT].is_null(),
        ..Gateway::default()
    }
}

/// Returns `true` if a Gateway object was written since the pod's container runs: both are that node's clock.
fn is_of_pod(object: &Value, pod: &Value) -> bool {
    let written = object["metadata"]["annotations"][annotation::UPDATE_TIMESTAMP].as_str();
    let written = written.and_then(|seconds| seconds.parse::<i64>().ok());
    let started = time(pod, "/status/containerStatuses/0/state/running/startedAt");
    match (written, started) {
        (Some(written), Some(started)) => written >= started,
        (None, _) | (_, None) => true,
    }
}

/// Returns `true` if a pod was ready so soon after its start that the gateway has had a path to every cluster that it lists.
fn was_ready_soon(pod: &Value) -> bool {
    let started = time(pod, "/status/containerStatuses/0/state/running/startedAt");
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.filter(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let ready = ready.filter_map(|condition| time(condition, "/lastTransitionTime")).next();
    started.zip(ready).is_some_and(|(started, ready)| (0..=SETTLED_WITHIN).contains(&(ready - started)))
}

/// Reads a time in seconds since 1970.
fn time(object: &Value, pointer: &str) -> Option<i64> {
    text(object, pointer).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

fn is_ending(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const START: &str = "2026-11-30T10:00:00Z";

    fn pod(node: &str, revision: &str, ready_at: Option<&str>) -> Value {
        let ready = json!({"type": "Ready", "status": if ready_at.is_some() { "True" } else { "False" },
            "lastTransitionTime": ready_at});
        json!({"metadata": {"name": format!("pod-{node}"), "labels": {REVISION: revision}},
            "spec": {"nodeName": node}, "status": {"conditions": [ready],
                "containerStatuses": [{"state": {"running": {"startedAt": START}}}]}})
    }

    fn node(name: &str, is_ready: bool) -> Value {
        let status = if is_ready { "True" } else { "False" };
        json!({"metadata": {"name": name, "labels": {HOSTNAME: format!("{name}-host")}},
            "status": {"conditions": [{"type": "Ready", "status": status}]}})
    }

    fn gateway(host: &str, written: i64) -> Value {
        let connection =
            |cluster: &str, status: &str| json!({"status": status, "endpoint": {"cluster_id": cluster}});
        json!({"metadata": {"name": host, "annotations": {annotation::UPDATE_TIMESTAMP: written.to_string(),
                annotation::UNREACHABLE: "south"}},
            "status": {"haStatus": "active", "localEndpoint": {"hostname": host,
                    "backend_config": {"trieste.state": "drained"}},
                "connections": [connection("west", "error"), connection("west", "connected"),
                    connection("south", "connected"), connection("north", "connecting")]}})
    }

    fn found(pods: &[Value], nodes: &[Value]) -> Found {
        let revision = |hash: &str, number: u64, owner: &str| json!({"revision": number, "metadata": {"labels": {REVISION: hash}, "ownerReferences": [{"uid": owner}]}});
        Found {
            set: json!({"metadata": {"uid": "u", "generation": 4},
                "status": {"observedGeneration": 4, "desiredNumberScheduled": 2}}),
            revisions: vec![
                revision("old", 1, "u"),
                revision("new", 3, "u"),
                revision("other", 9, "somebody"),
            ],
            pods: pods.to_vec(),
            gateways: vec![gateway("a-host", 1_796_000_000 + 36_000)],
            nodes: nodes.to_vec(),
            lease: json!({"spec": {"holderIdentity": "a-host-submariner-gateway"}}),
        }
    }

    #[test]
    fn a_gateway_is_read_with_its_pod_its_object_and_the_lead() {
        let nodes = [node("a", true), node("b", true), node("c", true)];
        let pods = [pod("a", "new", Some("2026-11-30T10:00:19Z")), pod("b", "old", None)];
        let view = found(&pods, &nodes).view();
        assert!(view.is_observed && view.missing == 0);
        let [a, b] = view.gateways.as_slice() else { panic!("{view:?}") };
        assert_eq!(
            (a.node.as_str(), a.object.as_deref(), a.is_leader, a.is_active),
            ("a", Some("a-host"), true, true)
        );
        assert_eq!((a.drain, a.is_asked), (Drain::Done, false));
        assert!(a.pod.as_ref().is_some_and(|pod| pod.is_current && pod.is_ready && !pod.is_ending));
        let reached: Vec<(&str, bool)> =
            a.clusters.iter().map(|(cluster, is_reached)| (cluster.as_str(), *is_reached)).collect();
        assert_eq!(reached, [("north", false), ("south", false), ("west", true)]);
        assert_eq!((b.object.as_ref(), b.is_leader, b.is_active), (None, false, false));
        assert!(b.pod.as_ref().is_some_and(|pod| !pod.is_current && !pod.is_ready));
    }

    #[test]
    fn connecting_is_no_complaint_of_a_gateway_that_was_ready_by_its_paths() {
        for (ready_at, is_reached) in [("2026-11-30T10:00:07Z", true), ("2026-11-30T10:00:20Z", false)] {
            let view = found(&[pod("a", "new", Some(ready_at))], &[node("a", true)]).view();
            let clusters = &view.gateways[0].clusters;
            assert_eq!((clusters["north"], clusters["south"]), (is_reached, false), "{ready_at}");
        }
    }

    #[test]
    fn what_a_former_pod_has_written_is_not_the_new_ones_word() {
        let started: i64 = time(&json!({"at": START}), "/at").unwrap();
        for (written, is_ready) in [(started - 1, false), (started, true)] {
            let mut found = found(&[pod("a", "new", Some("2026-11-30T10:00:07Z"))], &[node("a", true)]);
            found.gateways = vec![gateway("a-host", written)];
            assert_eq!(found.view().gateways[0].pod.as_ref().unwrap().is_ready, is_ready);
        }
    }

    #[test]
    fn pods_that_end_are_missed_but_for_those_of_nodes_that_do_not_answer() {
        let mut ending = pod("a", "old", None);
        ending["metadata"]["deletionTimestamp"] = json!(START);
        let pods = [ending, pod("b", "new", None)];
        let missing = |is_ready: bool| found(&pods, &[node("a", is_ready), node("b", true)]).view().missing;
        assert_eq!((missing(true), missing(false)), (1, 0));
    }

    #[test]
    fn a_pod_that_is_not_bound_yet_is_of_the_node_that_it_is_for() {
        let mut unbound = pod("", "new", None);
        unbound["spec"] = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}}}});
        let view =
            found(&[pod("a", "old", Some(START)), unbound], &[node("a", true), node("b", true)]).view();
        assert_eq!(view.missing, 0);
        let [_, b] = view.gateways.as_slice() else { panic!("{view:?}") };
        assert!(b.pod.as_ref().is_some_and(|pod| pod.is_current && !pod.is_ready));
    }

    #[test]
    fn a_new_pod_is_ready_once_it_has_published_itself() {
        let is_ready = |revision: &str| {
            let mut found = found(&[pod("a", revision, Some("2026-11-30T10:00:07Z"))], &[node("a", true)]);
            found.gateways.clear();
            found.view().gateways[0].pod.as_ref().unwrap().is_ready
        };
        assert!(is_ready("old") && !is_ready("new"));
    }

    #[test]
    fn a_daemon_set_that_kubernetes_has_not_seen_yet_says_nothing() {
        let mut unseen = found(&[], &[]);
        unseen.set["metadata"]["generation"] = json!(5);
        assert!(!unseen.view().is_observed);
        let mut unnumbered = found(&[], &[]);
        unnumbered.revisions.clear();
        assert!(!unnumbered.view().is_observed && !Found::default().view().is_observed);
    }
}
