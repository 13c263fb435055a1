//! What a gateway and a route agent need of a node works on nodes of real clusters, with kube-proxy in both of its modes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use trieste_tests::clusters::{Cluster, Clusters, Pod, PodShape, TOOLS_IMAGE};
use trieste_tests::daemon::Daemon;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

use crate::shared::{PLAIN, SOON, Two, bare, in_parallel};

const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

#[test]
fn two_real_clusters_do_what_a_gateway_needs() {
    let Some(two) = bare(&PLAIN, "plain::bare::nodes::two_real_clusters_do_what_a_gateway_needs") else {
        return;
    };
    let beds = two.in_both(Bed::new);
    two.say("pods ready");
    in_parallel(&beds, |bed| {
        let other = beds.iter().find(|other| other.cluster.name() != bed.cluster.name()).unwrap();
        bed.pods_and_services_keep_the_source_address();
        bed.what_leaves_the_cluster_comes_from_the_node(other);
        bed.a_pod_with_two_capabilities_can_be_a_gateway();
        bed.service_accounts_have_their_rights_and_no_more();
        bed.exec_logs_and_port_forward_work(&two);
    });
    two.say("pods, services, rights checked");

    contexts_are_called_as_the_clusters(&two.set.clusters);
    an_image_reaches_every_node(&two);
    in_parallel(&beds, Bed::a_node_comes_back_after_a_power_cut);
    two.say("a node of each is back");
    for cluster in two.set.clusters.all() {
        let kinds = ["delete", "serviceaccount,clusterrolebinding", "agent", "--namespace", "default"];
        cluster.kubectl(&kinds).unwrap().success().unwrap();
    }
}

/// A cluster with pods on two nodes.
struct Bed<'a> {
    cluster: &'a Cluster,
    client: Pod,
    server: Pod,
    host: Pod,
}

impl<'a> Bed<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        cluster.apply(&agent().to_string()).unwrap();
        let (first, second) = (cluster.node(1), cluster.node(2));
        let shapes =
            [PodShape::on(first, "client"), PodShape::on(second, "server"), PodShape::host(first, "host")];
        let [client, server, host] = cluster.start_pods(&shapes).unwrap().try_into().unwrap();
        cluster.wait_rollout("default", "daemonset/agent").unwrap();
        Self { cluster, client, server, host }
    }

    fn pods_and_services_keep_the_source_address(&self) {
        for to in self.server.responders() {
            self.client.exchange(to, &SIZES, self.client.address_like(to.ip()).unwrap()).unwrap();
            for bytes in SIZES {
                let own = self.client.address_like(to.ip()).unwrap();
                self.client.ping_pod(&self.server, to.ip(), bytes, own).unwrap();
            }
            // A node speaks to pods from its bridge or its own address, which are not the same for every plugin.
            self.host.tcp(to, SIZES[3]).unwrap();
        }
        let service = self.cluster.start_service("web", "server").unwrap();
        assert_eq!(service.len(), 2);
        for ip in service {
            let source = self.client.address_like(ip).unwrap();
            self.client.exchange(SocketAddr::new(ip, 80), &SIZES, source).unwrap();
        }
        // By name, from a pod and from one in the node's network.
        for pod in [&self.client, &self.host] {
            let ask = || {
                pod.exec(&["responder", "ask", "tcp", "web.default.svc.cluster.local:80", "64"])?.success()
            };
            let told = eventually("an answer by name", SOON, ask).unwrap();
            assert!(told.starts_with("seen as "), "{told}");
        }
    }

    fn what_leaves_the_cluster_comes_from_the_node(&self, other: &Self) {
        let node = self.cluster.node(1);
        for to in other.host.responders() {
            let own = node.addresses().into_iter().find(|ip| ip.is_ipv4() == to.is_ipv4()).unwrap();
            self.client.exchange(to, &SIZES, own).unwrap();
            self.host.exchange(to, &SIZES, own).unwrap();
            self.client.ping_pod(&other.host, to.ip(), SIZES[3], own).unwrap();
        }
    }

    /// With what the contract of the gateway's own pods allows, and no more: it makes a TUN device, sets parameters of
    /// it through the host's /proc/sys/net, and programs nftables, all in the node's namespace.
    fn a_pod_with_two_capabilities_can_be_a_gateway(&self) {
        let pods = self.cluster.wait_pods("default", "app=agent").unwrap();
        assert_eq!(pods.len(), 3);
        let name = pods[0]["metadata"]["name"].as_str().unwrap();
        let pod = self.cluster.pod("default", name).unwrap();
        let run = |script: &str| pod.exec(&["sh", "-ec", script]).unwrap().success().unwrap();

        // busybox's shell prefers its own `ip` to the one in the path.
        run("ip=/usr/sbin/ip
             $ip tuntap add lab0 mode tun; $ip addr add 192.0.2.1/32 dev lab0; $ip link set lab0 up
             echo 1 >/host/proc/sys/net/ipv4/conf/lab0/forwarding
             echo 2 >/host/proc/sys/net/ipv4/conf/lab0/rp_filter
             echo 1 >/host/proc/sys/net/ipv6/conf/lab0/forwarding
             nft add table inet lab; nft 'add chain inet lab pre { type nat hook prerouting priority -110; }'
             nft add rule inet lab pre ip daddr 198.51.100.0/24 counter dnat ip to 192.0.2.9");
        let refused =
            pod.exec(&["sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/lab0/forwarding; echo 1 >/file"]);
        assert!(!refused.unwrap().status.success());

        let node = self.cluster.nodes().iter().find(|node| node.name() == pod.node).unwrap();
        let read =
            |name: &str| node.exec(&["cat", &format!("/proc/sys/net/{name}")]).unwrap().trim().to_owned();
        assert_eq!(
            (read("ipv4/conf/lab0/forwarding"), read("ipv4/conf/lab0/rp_filter")),
            ("1".into(), "2".into())
        );
        assert_eq!(read("ipv6/conf/lab0/forwarding"), "1");
        let rules = node.exec(&["nft", "list", "table", "inet", "lab"]).unwrap();
        assert!(rules.contains("dnat ip to 192.0.2.9"), "{rules}");
        run("ip link del lab0; nft delete table inet lab");
    }

    fn service_accounts_have_their_rights_and_no_more(&self) {
        let api = |pod: &str, path: &str| {
            let pod = self.cluster.pod("default", pod).unwrap();
            pod.exec(&["responder", "api", path]).unwrap().success().unwrap()
        };
        let pods = self.cluster.wait_pods("default", "app=agent").unwrap();
        let agent = pods[0]["metadata"]["name"].as_str().unwrap();

        assert!(api(agent, "/api/v1/namespaces/default/pods?limit=1").starts_with("200"));
        assert!(api(agent, "/api/v1/namespaces/default/secrets").starts_with("403"));
        assert!(api("client", "/api/v1/nodes").starts_with("403"));
    }

    fn exec_logs_and_port_forward_work(&self, two: &Two) {
        let logs = self.cluster.kubectl(&["logs", "server"]).unwrap().success().unwrap();
        assert!(logs.contains("responder listens"), "{logs}");
        let told = self.host.exec(&["hostname"]).unwrap().success().unwrap();
        assert_eq!(told.trim(), self.host.node);

        let words = ["port-forward", "-n", "kube-system", "deployment/coredns", ":8181"];
        let forward = self.cluster.kubectl_run().args(words);
        let forward = Daemon::start(&two.lab, &format!("forward-{}", self.cluster.name()), &forward).unwrap();
        forward.wait_log("Forwarding from 127.0.0.1:", SOON).unwrap();
        let text = forward.log_text();
        let port = text.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let address = format!("127.0.0.1:{port}");
        let mut stream = two.set.clusters.fabric().enter(|| Ok(TcpStream::connect(address)?)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.0 200");
    }

    fn a_node_comes_back_after_a_power_cut(&self) {
        let node = self.cluster.node(2);
        let before = node.exec(&["cat", "/proc/sys/kernel/random/boot_id"]).unwrap();
        node.kill().unwrap();
        assert!(!node.is_on() && node.exec(&["true"]).is_err());
        assert!(traffic::ping(self.host.netns(), node.addresses()[0], 1, &[]).unwrap().received == 0);

        node.start().unwrap();
        self.cluster.wait_ready().unwrap();

        assert_eq!(node.exec(&["cat", "/proc/sys/kernel/random/boot_id"]).unwrap(), before);
        // The pod starts again with other addresses, and its Service leads there.
        for ip in self.cluster.start_service("web", "server").unwrap() {
            self.client.tcp(SocketAddr::new(ip, 80), 64).unwrap();
        }
    }
}

fn contexts_are_called_as_the_clusters(clusters: &Clusters) {
    let east = clusters.cluster("east");
    for name in ["east", "west"] {
        let words = ["--context", name, "get", "nodes", "-o", "name"];
        let told = east.kubectl(&words).unwrap().success().unwrap();
        assert_eq!(told, format!("node/{name}-1\nnode/{name}-2\nnode/{name}-3\n"));
    }
    let current =
        |run: trieste_tests::command::Run| run.args(["config", "current-context"]).stdout().unwrap();
    assert_eq!(current(clusters.cluster("west").kubectl_run()).trim(), "west");
}

/// An archive that `ctr` writes, under another name, as somebody else's image.
fn an_image_reaches_every_node(two: &Two) {
    let clusters = &two.set.clusters;
    let node = clusters.cluster("east").node(1);
    let name = "localhost/other:1";
    node.exec(&["ctr", "-n", "k8s.io", "images", "tag", TOOLS_IMAGE, name]).unwrap();
    let inside = node.folder().join("log/other.tar");
    // Without --local, ctr 2.2 returns before all of the file is written: its end was missing 6 times in 712.
    let export = ["ctr", "-n", "k8s.io", "images", "export", "--local", &inside.to_string_lossy(), name];
    node.exec(&export).unwrap();

    clusters.load_image(&inside).unwrap();

    assert!(two.lab.directory().join("images").is_dir());
    for node in clusters.all().iter().flat_map(Cluster::nodes) {
        let images = node.exec(&["ctr", "-n", "k8s.io", "images", "ls", "-q"]).unwrap();
        assert!(images.contains(name), "{}: {images}", node.name());
    }
}

/// A DaemonSet with what the project's own pods have: no privilege, two capabilities, a read-only root.
fn agent() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "agent", "namespace": "default"}});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "agent"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": "default"}]});
    let container = json!({
        "name": "agent", "image": TOOLS_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1d"],
        "securityContext": {
            "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            "seccompProfile": {"type": "RuntimeDefault"}},
        "volumeMounts": [
            {"name": "sysctl", "mountPath": "/host/proc/sys/net"},
            {"name": "tun", "mountPath": "/dev/net/tun"}]});
    let daemon_set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
                "serviceAccountName": "agent", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": [
                    {"name": "sysctl", "hostPath": {"path": "/proc/sys/net", "type": "Directory"}},
                    {"name": "tun", "hostPath": {"path": "/dev/net/tun", "type": "CharDevice"}}]}}}});
    json!({"apiVersion": "v1", "kind": "List", "items": [account, binding, daemon_set]})
}
