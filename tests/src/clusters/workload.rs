//! Pods to send traffic from and to.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::cluster::{Cluster, READY};
use super::node::Node;
use crate::capture::Capture;
use crate::command::{Output, Run};
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::traffic::{self, Ping, Receipt};

/// The image of tools that every node has: busybox, `ip`, `nft`, and `responder`.
pub const TOOLS_IMAGE: &str = "localhost/trieste-tools:lab";

/// Where the responder of each pod listens, TCP and UDP.
pub const RESPONDER_PORT: u16 = 7000;

/// How long traffic of one step may take.
const TRAFFIC: Duration = Duration::from_secs(30);

/// A pod to make: a responder of the tools image.
#[derive(Debug, Clone)]
pub struct PodShape {
    /// Its name.
    pub name: String,
    /// Its Kubernetes namespace, which must be there: `default`, unless something else is said.
    pub namespace: String,
    /// The value of its label `app`, which a Service chooses by: its name, unless something else is said.
    pub app: String,
    /// The node to put it on.
    pub node: String,
    /// Whether it uses the node's network.
    pub is_host: bool,
}

impl PodShape {
    /// A pod with an address of its own on this node.
    pub fn on(node: &Node, name: &str) -> Self {
        let (name, node) = (name.to_owned(), node.name().to_owned());
        Self { app: name.clone(), namespace: "default".to_owned(), name, node, is_host: false }
    }

    /// A pod in the node's network; at most one on a node, for its port.
    pub fn host(node: &Node, name: &str) -> Self {
        Self { is_host: true, ..Self::on(node, name) }
    }

    /// The same in another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The same with another label `app`: several pods behind one Service.
    #[must_use]
    pub fn with_app(mut self, app: &str) -> Self {
        app.clone_into(&mut self.app);
        self
    }
}

/// A running pod; what is sent from here is sent from inside its network namespace.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its Kubernetes namespace.
    pub kubernetes_namespace: String,
    /// The node that it runs on.
    pub node: String,
    /// Its addresses, IPv4 first.
    pub addresses: Vec<IpAddr>,
    netns: Namespace,
    kubectl: Run,
    lab: Lab,
}

impl Cluster {
    /// Makes pods and waits until they are ready.
    ///
    /// # Errors
    /// If they do not get ready: the error tells what the cluster says.
    pub fn start_pods(&self, shapes: &[PodShape]) -> anyhow::Result<Vec<Pod>> {
        let items: Vec<_> = shapes.iter().map(manifest).collect();
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
        for shape in shapes {
            self.wait_pods(&shape.namespace, &format!("pod={}", shape.name))?;
        }
        shapes.iter().map(|shape| self.pod(&shape.namespace, &shape.name)).collect()
    }

    /// The same for one.
    ///
    /// # Errors
    /// As [`Cluster::start_pods`].
    pub fn start_pod(&self, shape: PodShape) -> anyhow::Result<Pod> {
        self.start_pods(&[shape])?.pop().context("one pod was asked for")
    }

    /// Any pod that runs. Ask again after it was restarted: its network namespace is another one then.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pod(&self, namespace: &str, name: &str) -> anyhow::Result<Pod> {
        let object = self.client().get(&format!("/api/v1/namespaces/{namespace}/pods/{name}"))?;
        let node = object["spec"]["nodeName"].as_str().with_context(|| format!("pod {name} has no node"))?;
        let addresses = addresses(&object["status"]["podIPs"], "ip")?;
        let uid = object["metadata"]["uid"].as_str().context("an object without UID")?;
        let netns = if object["spec"]["hostNetwork"] == true {
            Namespace::named(format!("{}-{node}", self.lab().id()))
        } else {
            attach(self.lab(), &format!("{}-{name}-{}", self.name(), &uid[..8]), uid)
                .with_context(|| format!("entering pod {namespace}/{name}"))?
        };
        let kubectl = self.kubectl_run().arg("exec");
        Ok(Pod {
            name: name.to_owned(),
            kubernetes_namespace: namespace.to_owned(),
            node: node.to_owned(),
            addresses,
            netns,
            kubectl,
            lab: self.lab().clone(),
        })
    }

    /// Makes a Service of all of its families in the namespace `default`, for the pods with the label `app` of this
    /// value, from port 80 to their responders. Returns its addresses, IPv4 first, once they answer on all nodes that are
    /// on.
    ///
    /// # Errors
    /// If the server refuses it, or it does not answer.
    pub fn start_service(&self, name: &str, app: &str) -> anyhow::Result<Vec<IpAddr>> {
        self.start_service_in("default", name, app)
    }

    /// The same in another namespace.
    ///
    /// # Errors
    /// As [`Cluster::start_service`].
    pub fn start_service_in(&self, namespace: &str, name: &str, app: &str) -> anyhow::Result<Vec<IpAddr>> {
        let mut wanted = service(name, app);
        wanted["metadata"]["namespace"] = json!(namespace);
        let service = self.client().apply(&wanted)?;
        let texts = service["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
        let addresses: anyhow::Result<Vec<IpAddr>> =
            texts.iter().map(|text| Ok(text.as_str().unwrap_or_default().parse()?)).collect();
        let addresses = addresses?;
        for node in self.nodes().iter().filter(|node| node.is_on()) {
            for address in &addresses {
                self.wait(
                    &format!("service {name} to answer at {address} on {}", node.name()),
                    READY,
                    || {
                        traffic::send_tcp(
                            node.netns(),
                            SocketAddr::new(*address, 80),
                            b"?",
                            Duration::from_secs(1),
                        )
                    },
                )?;
            }
        }
        Ok(addresses)
    }

    /// Makes a headless one; returns the addresses and ports that its EndpointSlices name, once there are those of both
    /// families.
    ///
    /// # Errors
    /// If the server refuses it, or nothing is named soon.
    pub fn start_headless(&self, name: &str, app: &str) -> anyhow::Result<Vec<SocketAddr>> {
        let mut service = service(name, app);
        service["spec"]["clusterIP"] = json!("None");
        self.client().apply(&service)?;
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name={name}"
        );
        self.wait(&format!("endpoints of {name}"), READY, || {
            let slices = self.client().list(&path)?;
            anyhow::ensure!(slices.len() == self.pod_nets().len(), "{} slices", slices.len());
            let mut all = Vec::new();
            for slice in &slices {
                let port = slice["ports"][0]["port"].as_u64().context("a slice without a port")?;
                let endpoints = slice["endpoints"].as_array().into_iter().flatten();
                for ip in
                    endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten())
                {
                    let ip: IpAddr = ip.as_str().unwrap_or_default().parse()?;
                    all.push(SocketAddr::new(ip, u16::try_from(port)?));
                }
            }
            anyhow::ensure!(all.len() == slices.len(), "{all:?}");
            Ok(all)
        })
    }

    /// Makes a StatefulSet with its headless Service in the namespace `default`, or gives it another number of pods.
    /// Returns these, the first one first, once they are ready and there are no others.
    ///
    /// # Errors
    /// If the server refuses it, or they do not get ready.
    pub fn start_stateful(&self, name: &str, replicas: usize) -> anyhow::Result<Vec<Pod>> {
        let mut service = service(name, name);
        service["spec"]["clusterIP"] = json!("None");
        self.client().apply(&service)?;
        let labels = json!({"app": name});
        let pod = json!({"terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}], "containers": [responder()]});
        self.client().apply(&json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"serviceName": name, "replicas": replicas, "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod}}}))?;
        self.wait(&format!("{replicas} pods of {name}"), READY, || {
            let pods =
                self.client().list(&format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}"))?;
            anyhow::ensure!(pods.len() == replicas, "there are {}", pods.len());
            Ok(())
        })?;
        self.wait_pods("default", &format!("app={name}"))?;
        (0..replicas).map(|number| self.pod("default", &format!("{name}-{number}"))).collect()
    }
}

/// A Service of all of its cluster's families for the pods of an app, from port 80 to their responders.
fn service(name: &str, app: &str) -> Value {
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": 80, "targetPort": RESPONDER_PORT});
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": app}, "ipFamilyPolicy": "PreferDualStack",
            "ports": [port("TCP"), port("UDP")]}})
}

impl Pod {
    /// Its network namespace, for everything that `traffic` and `capture` can do.
    pub fn netns(&self) -> &Namespace {
        &self.netns
    }

    /// Its address of the family of `other`.
    ///
    /// # Errors
    /// If it has none.
    pub fn address_like(&self, other: IpAddr) -> anyhow::Result<IpAddr> {
        let found = self.addresses.iter().find(|own| own.is_ipv4() == other.is_ipv4());
        found.copied().with_context(|| format!("pod {} has no address to speak with {other}", self.name))
    }

    /// Its responder, at each of its addresses.
    pub fn responders(&self) -> Vec<SocketAddr> {
        self.addresses.iter().map(|ip| SocketAddr::new(*ip, RESPONDER_PORT)).collect()
    }

    /// Runs a program in its container, through the API server and the kubelet.
    ///
    /// # Errors
    /// If it takes longer than a minute.
    pub fn exec(&self, words: &[&str]) -> anyhow::Result<Output> {
        let run = self.kubectl.clone().args(["-n", &self.kubernetes_namespace, &self.name, "--"]);
        run.args(words).output()
    }

    /// Puts a program into its container, at this path.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn install(&self, program: &Path, path: &str) -> anyhow::Result<()> {
        let bytes = std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
        let words = ["-i", "-n", &self.kubernetes_namespace, &self.name, "--", "sh", "-ec"];
        let script = format!("cat >{path}; chmod 755 {path}");
        self.kubectl.clone().args(words).arg(script).input(bytes).stdout().map(drop)
    }

    /// Pings with this many bytes of payload, five times.
    ///
    /// # Errors
    /// If an answer is missing.
    pub fn ping(&self, to: IpAddr, bytes: usize) -> anyhow::Result<Ping> {
        traffic::ping_sized(&self.netns, to, bytes).with_context(|| format!("from {}", self.name))
    }

    /// Pings another pod at one of its addresses, and has tcpdump look there: all requests must come from this address.
    ///
    /// # Errors
    /// If an answer is missing, or a request came from elsewhere.
    pub fn ping_pod(&self, to: &Self, ip: IpAddr, bytes: usize, seen_as: IpAddr) -> anyhow::Result<Ping> {
        let capture = Capture::start(&self.lab, &to.netns, "any", &format!("dst host {ip}"))?;
        let ping = self.ping(ip, bytes)?;
        let frames = capture.finish()?;
        let seen = frames.count(&format!("src host {seen_as}"))?;
        anyhow::ensure!(
            seen >= ping.sent as usize,
            "ping from {} to {ip} with {bytes} bytes: {seen} of {} requests came from {seen_as}",
            self.name,
            ping.sent
        );
        Ok(ping)
    }

    /// Sends so many bytes over TCP to a responder, and checks that they arrived as they were.
    ///
    /// # Errors
    /// If they did not, or in time.
    pub fn tcp(&self, to: SocketAddr, bytes: usize) -> anyhow::Result<Receipt> {
        let shown = || format!("TCP from pod {} to {to} with {bytes} bytes", self.name);
        let bytes = traffic::pattern(bytes);
        traffic::send_tcp(&self.netns, to, &bytes, TRAFFIC)
            .and_then(|receipt| whole(receipt, &bytes))
            .with_context(shown)
    }

    /// Sends one datagram of so many bytes to a responder, and checks that it arrived as it was.
    ///
    /// # Errors
    /// If it did not, or in time.
    pub fn udp(&self, to: SocketAddr, bytes: usize) -> anyhow::Result<Receipt> {
        let shown = || format!("UDP from pod {} to {to} with {bytes} bytes", self.name);
        let bytes = traffic::pattern(bytes);
        traffic::send_udp(&self.netns, to, &bytes, TRAFFIC)
            .and_then(|receipt| whole(receipt, &bytes))
            .with_context(shown)
    }

    /// TCP, then UDP, with each of these sizes; the server must see this source address.
    ///
    /// # Errors
    /// The first that fails.
    pub fn exchange(&self, to: SocketAddr, sizes: &[usize], seen_as: IpAddr) -> anyhow::Result<()> {
        for &bytes in sizes {
            for (protocol, receipt) in [("TCP", self.tcp(to, bytes)?), ("UDP", self.udp(to, bytes)?)] {
                anyhow::ensure!(
                    receipt.seen_as.ip() == seen_as,
                    "{protocol} from pod {} to {to} with {bytes} bytes: seen as {}, not as {seen_as}",
                    self.name,
                    receipt.seen_as
                );
            }
        }
        Ok(())
    }
}

fn whole(receipt: Receipt, bytes: &[u8]) -> anyhow::Result<Receipt> {
    // Whose address is expected is for the caller to say: services and masquerading change it.
    receipt.check_bytes(bytes)?;
    Ok(receipt)
}

fn manifest(shape: &PodShape) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": shape.name, "namespace": shape.namespace, "labels": {"app": shape.app, "pod": shape.name}},
    "spec": {
        "nodeName": shape.node,
        "hostNetwork": shape.is_host,
        "dnsPolicy": if shape.is_host { "ClusterFirstWithHostNet" } else { "ClusterFirst" },
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [responder()],
    }})
}

/// The container of a pod that answers.
fn responder() -> Value {
    json!({
        "name": "responder",
        "image": TOOLS_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/responder", "serve", RESPONDER_PORT.to_string()],
        // Ready as soon as it listens, and taken from its services by nothing but a long silence: beside other tests a node
        // may stand still for some seconds.
        "readinessProbe":
            {"tcpSocket": {"port": RESPONDER_PORT}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 6},
        // Without any it has hardly a processor beside those who have.
        "resources": {"requests": {"cpu": "50m"}},
    })
}

fn addresses(list: &Value, field: &str) -> anyhow::Result<Vec<IpAddr>> {
    let texts = list.as_array().into_iter().flatten().filter_map(|entry| entry[field].as_str());
    texts.map(|text| text.parse().with_context(|| format!("{text} is no address"))).collect()
}

/// Gives a pod's network namespace a name of the lab, by any of its processes: they are in a group called after its UID.
fn attach(lab: &Lab, suffix: &str, uid: &str) -> anyhow::Result<Namespace> {
    let group = format!("pod{uid}");
    let pid = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(&group))
        })
        .context("it has no process")?;
    lab.attach_namespace(suffix, pid)
}
