//! The parts of a cluster that a lone API server lacks: what fills token Secrets, runs DaemonSets, Deployments and Jobs, empties namespaces
//! that are being deleted, and a gateway that publishes itself and, uninstalled, takes that back.

mod gateways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::kubernetes::{Client, Watch};

/// The objects whose changes the controllers act on. What gateways write is not among them: its kinds come and go.
const WATCHED: [&str; 6] = [
    "/api/v1/nodes",
    "/api/v1/secrets",
    "/api/v1/namespaces",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/batch/v1/jobs",
];

/// How often they act although nothing of that has changed.
const RESYNC: Duration = Duration::from_secs(1);

/// Plays on one server until it is dropped.
pub(crate) struct Controllers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Controllers {
    /// Plays on `server`, whose members' broker is `broker`.
    pub(crate) fn play(server: &Client, broker: &Client, ca: Vec<u8>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, server, broker) = (Arc::clone(&stop), server.clone(), broker.clone());
        let work = move || {
            let mut changes = Changes::of(&server);
            let mut last_turn: Option<Instant> = None;
            while !stopped.load(Ordering::Relaxed) {
                let is_due = last_turn.is_none_or(|last| last.elapsed() >= RESYNC);
                if changes.have_come() || is_due {
                    // Conflicts and objects that have just gone are met again at the next turn.
                    let turn = [
                        fill_tokens(&server, &ca),
                        leave_orphans(&server),
                        run_daemon_sets(&server),
                        run_deployments(&server),
                        run_jobs(&server),
                        be_gateway(&server, &broker),
                        finish_namespaces(&server),
                    ];
                    last_turn = turn.iter().all(Result::is_ok).then(Instant::now);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        Self { stop, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Watches of what the controllers act on.
struct Changes {
    server: Client,
    watches: [Option<Watch>; WATCHED.len()],
}

impl Changes {
    /// Watches nothing yet.
    fn of(server: &Client) -> Self {
        Self { server: server.clone(), watches: WATCHED.map(|_| None) }
    }

    /// Returns `true` if something has changed, or may have, since the last time.
    fn have_come(&mut self) -> bool {
        let mut any = false;
        for (path, watch) in WATCHED.iter().zip(&mut self.watches) {
            let Some(open) = watch else {
                // From what is there now, each object of which comes as an event.
                *watch = self.server.watch(path, "").ok();
                any = true;
                continue;
            };
            let mut next = open.poll(Duration::ZERO);
            while let Ok(Some(_)) = next {
                any = true;
                next = open.poll(Duration::ZERO);
            }
            if next.is_err() {
                *watch = None;
                any = true;
            }
        }
        any
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// As the token controller of kube-controller-manager.
fn fill_tokens(server: &Client, ca: &[u8]) -> anyhow::Result<()> {
    let kind = "kubernetes.io/service-account-token";
    for secret in
        server.list(&format!("/api/v1/secrets?fieldSelector=type%3D{}", kind.replace('/', "%2F")))?
    {
        if secret["data"]["token"].is_string() {
            continue;
        }
        let metadata = &secret["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let account = text(&metadata["annotations"]["kubernetes.io/service-account.name"]);
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let token = text(&server.post(&path, &request)?["status"]["token"]);
        let data = json!({"token": base64(token.as_bytes()), "ca.crt": base64(ca),
            "namespace": base64(namespace.as_bytes())});
        server.patch(&format!("/api/v1/namespaces/{namespace}/secrets/{name}"), &json!({"data": data}))?;
    }
    Ok(())
}

/// As the garbage collector where a set of pods is deleted without its pods: there are none here to take marks off.
fn leave_orphans(server: &Client) -> anyhow::Result<()> {
    for kind in ["daemonsets", "deployments"] {
        for set in server.list(&format!("/apis/apps/v1/{kind}"))? {
            let waits = |finalizers: &Vec<Value>| finalizers.iter().any(|finalizer| finalizer == "orphan");
            if set["metadata"]["finalizers"].as_array().is_some_and(waits) {
                let text = |field: &str| set["metadata"][field].as_str().unwrap_or_default().to_owned();
                let path = format!("/apis/apps/v1/namespaces/{}/{kind}/{}", text("namespace"), text("name"));
                server.patch(&path, &json!({"metadata": {"finalizers": []}}))?;
            }
        }
    }
    Ok(())
}

/// Every pod of every DaemonSet is ready at once on every node that it is for. Only the gateways' are objects.
fn run_daemon_sets(server: &Client) -> anyhow::Result<()> {
    let nodes = server.list("/api/v1/nodes")?;
    let sets = server.list("/apis/apps/v1/daemonsets")?;
    gateways::run(server, &nodes, sets.iter().find(|set| set["metadata"]["name"] == "submariner-gateway"))?;
    for set in sets {
        let selector =
            set["spec"]["template"]["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
        let suits =
            |node: &&Value| selector.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value);
        let count = nodes.iter().filter(suits).count();
        let status = json!({"observedGeneration": set["metadata"]["generation"], "desiredNumberScheduled": count,
            "currentNumberScheduled": count, "updatedNumberScheduled": count, "numberReady": count,
            "numberAvailable": count, "numberMisscheduled": 0});
        let is_so = |(key, value): (&String, &Value)| {
            set["status"][key] == *value || (*value == json!(0) && set["status"][key].is_null())
        };
        if status.as_object().is_some_and(|fields| fields.iter().all(is_so)) {
            continue;
        }
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = set["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}/status");
        server.patch(&path, &json!({"status": status}))?;
    }
    Ok(())
}

/// Every pod of every Deployment is ready at once.
fn run_deployments(server: &Client) -> anyhow::Result<()> {
    for deployment in server.list("/apis/apps/v1/deployments")? {
        let (generation, count) = (&deployment["metadata"]["generation"], &deployment["spec"]["replicas"]);
        let status = json!({"observedGeneration": generation, "replicas": count, "updatedReplicas": count,
            "readyReplicas": count, "availableReplicas": count});
        if status
            .as_object()
            .is_some_and(|fields| fields.iter().all(|(key, value)| deployment["status"][key] == *value))
        {
            continue;
        }
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status");
        server.patch(&path, &json!({"status": status}))?;
    }
    Ok(())
}

/// Every Job that is not suspended has ended well at once.
fn run_jobs(server: &Client) -> anyhow::Result<()> {
    for job in server.list("/apis/batch/v1/jobs")? {
        if job["spec"]["suspend"] != json!(true) && job["status"]["succeeded"] != json!(1) {
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default();
            let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status");
            server.patch(&path, &json!({"status": {"succeeded": 1}}))?;
        }
    }
    Ok(())
}

/// What a gateway writes while it runs, and takes back when it is uninstalled.
fn be_gateway(server: &Client, broker: &Client) -> anyhow::Result<()> {
    let sets = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets");
    let runs = |name: &str| -> anyhow::Result<bool> {
        let set = server.find(&format!("{sets}/{name}"))?;
        Ok(set.is_some_and(|set| set["status"]["numberReady"].as_u64().unwrap_or(0) > 0))
    };
    let own = format!("/apis/submariner.io/v1alpha1/namespaces/{NAMESPACE}/submariners/submariner");
    let Some(submariner) = server.find(&own)? else { return Ok(()) };
    let id = submariner["spec"]["clusterID"].as_str().unwrap_or_default().to_owned();
    let gateways = format!("/apis/submariner.io/v1/namespaces/{NAMESPACE}/gateways");
    let clusters = format!("/apis/submariner.io/v1/namespaces/{BROKER_NAMESPACE}/clusters");
    if runs("submariner-gateway")? {
        let texts = |field: &str| -> Vec<String> {
            let list = submariner["spec"][field].as_str().unwrap_or_default();
            list.split(',').filter(|net| !net.is_empty()).map(str::to_owned).collect()
        };
        let cluster = json!({"apiVersion": "submariner.io/v1", "kind": "Cluster",
            "metadata": {"name": id, "labels": {"submariner-io/clusterID": id}},
            "spec": {"cluster_id": id, "color_codes": ["blue"], "service_cidr": texts("serviceCIDR"),
                "cluster_cidr": texts("clusterCIDR"), "global_cidr": texts("globalCIDR")}});
        if broker.find(&format!("{clusters}/{id}"))?.is_none() {
            broker.post(&clusters, &cluster)?;
        }
        let gateway = json!({"apiVersion": "submariner.io/v1", "kind": "Gateway", "metadata": {"name": "worker"},
            "status": {"version": "x", "haStatus": "active", "statusFailure": "", "connections": [],
                "localEndpoint": {"cluster_id": id, "cable_name": "x", "hostname": "worker", "subnets": [],
                    "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"}}});
        if server.find(&format!("{gateways}/worker"))?.is_none() {
            server.post(&gateways, &gateway)?;
        }
    }
    if runs("submariner-gateway-uninstall")? {
        server.delete(&format!("{gateways}/worker"))?;
        broker.delete(&format!("{clusters}/{id}"))?;
    }
    Ok(())
}

/// As the namespace controller, but that nothing is emptied: what is left in one is found by the test.
fn finish_namespaces(server: &Client) -> anyhow::Result<()> {
    for mut namespace in server.list("/api/v1/namespaces")? {
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        namespace["apiVersion"] = json!("v1");
        namespace["kind"] = json!("Namespace");
        namespace["spec"]["finalizers"] = json!([]);
        server.put(&format!("/api/v1/namespaces/{name}/finalize"), &namespace)?;
    }
    Ok(())
}
