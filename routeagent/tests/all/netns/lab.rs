//! The topology, the store, and the processes of a test. Everything is removed when the [`Lab`] is dropped.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "submariner-operator";
const AGENT: &str = env!("CARGO_BIN_EXE_trieste-routeagent");
/// Longer than the agent's resync period of 10 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// Counts, on the WAN, what is addressed to a remote cluster.
pub(crate) const COUNTING: &str = "
table inet seen {
    counter remote4 { }
    counter remote6 { }
    chain in {
        type filter hook prerouting priority raw
        ip daddr { 10.2.0.0/16, 100.66.0.0/16, 242.2.0.0/16 } counter name remote4
        ip6 daddr fd00:2::/48 counter name remote6
    }
}
";

/// Makes a lab, or says that the test is skipped: there is no root, and `TRIESTE_NO_ROOT=1` says that this is known.
macro_rules! lab {
    () => {
        match $crate::netns::lab::Lab::new() {
            Some(lab) => lab,
            None => return,
        }
    };
}
pub(crate) use lab;

pub(crate) struct Lab {
    id: String,
    directory: tempfile::TempDir,
    places: &'static [&'static str],
}

impl Lab {
    pub(crate) fn new() -> Option<Self> {
        let lab = Self::bare(&["node", "wan", "pod"])?;
        lab.build();
        Some(lab)
    }

    /// Makes empty namespaces and a store.
    pub(crate) fn bare(places: &'static [&'static str]) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            let is_known = std::env::var_os("TRIESTE_NO_ROOT").is_some_and(|value| value == "1");
            assert!(
                is_known,
                "this makes network namespaces: run it as root, or set TRIESTE_NO_ROOT=1 to skip it"
            );
            skip();
            return None;
        }
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let id = format!("ra{:x}{:05x}{count}", std::process::id(), nanos & 0xf_ffff);
        let lab = Self { id, directory: tempfile::tempdir().unwrap(), places };
        for kind in ["endpoints", "clusters"] {
            std::fs::create_dir_all(lab.store().join(NAMESPACE).join(kind)).unwrap();
        }
        for place in places {
            let name = &lab.name(place);
            run("ip", &["netns", "add", name]);
            for setting in [
                "net.ipv6.conf.all.disable_ipv6=0",
                "net.ipv6.conf.default.disable_ipv6=0",
                "net.ipv6.conf.default.accept_dad=0",
                "net.ipv4.conf.all.rp_filter=0",
                "net.ipv4.conf.default.rp_filter=0",
                "net.ipv4.ip_forward=0",
            ] {
                run("ip", &["netns", "exec", name, "sysctl", "-qw", setting]);
            }
            run("ip", &["-n", name, "link", "set", "lo", "up"]);
        }
        Some(lab)
    }

    fn build(&self) {
        self.pair("node", "eth0", "wan", "eth0");
        self.pair("node", "cni0", "pod", "eth0");
        self.address("node", "eth0", &["172.31.1.11/24", "fd31::11/64"]);
        self.address("wan", "eth0", &["172.31.1.1/24", "fd31::1/64"]);
        self.address("node", "cni0", &["10.1.1.1/24", "fd00:1::1/64"]);
        self.address("pod", "eth0", &["10.1.1.10/24", "fd00:1::10/64"]);
        for (place, v4, v6) in [("node", "172.31.1.1", "fd31::1"), ("pod", "10.1.1.1", "fd00:1::1")] {
            self.ip(place, &["route", "add", "default", "via", v4]);
            self.ip(place, &["-6", "route", "add", "default", "via", v6]);
        }
        self.ip("wan", &["route", "add", "10.1.0.0/16", "via", "172.31.1.11"]);
        self.ip("wan", &["-6", "route", "add", "fd00:1::/48", "via", "fd31::11"]);
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            self.run("node", "sysctl", &["-qw", setting]);
        }
        self.add_tun();
        self.nft("wan", COUNTING);
    }

    pub(crate) fn pair(&self, left: &str, left_device: &str, right: &str, right_device: &str) {
        let peer = ["type", "veth", "peer", "name", right_device, "netns", &self.name(right)];
        self.ip(left, &[&["link", "add", left_device], &peer[..]].concat());
    }

    /// Makes the gateway's device as a dead gateway leaves it: up, persistent, without carrier.
    pub(crate) fn add_tun(&self) {
        self.ip("node", &["tuntap", "add", "dev", "submariner", "mode", "tun", "multi_queue"]);
        self.ip("node", &["link", "set", "submariner", "up"]);
    }

    pub(crate) fn address(&self, place: &str, device: &str, addresses: &[&str]) {
        for address in addresses {
            let mut arguments = vec!["address", "add", address, "dev", device];
            if address.contains(':') {
                arguments.push("nodad");
            }
            self.ip(place, &arguments);
        }
        self.ip(place, &["link", "set", device, "up"]);
    }

    /// The name of a place's namespace.
    fn name(&self, place: &str) -> String {
        format!("{}-{place}", self.id)
    }

    pub(crate) fn ip(&self, place: &str, arguments: &[&str]) -> String {
        run("ip", &[&["-n", &self.name(place)], arguments].concat())
    }

    /// Runs `ip`, which may fail: then the text is its complaint.
    pub(crate) fn try_ip(&self, place: &str, arguments: &[&str]) -> String {
        let output = Command::new("ip").args(["-n", &self.name(place)]).args(arguments).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    pub(crate) fn run(&self, place: &str, program: &str, arguments: &[&str]) -> String {
        run("ip", &[&["netns", "exec", &self.name(place), program], arguments].concat())
    }

    /// A program inside of a namespace, to be started.
    pub(crate) fn command(&self, place: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place), program]);
        command
    }

    pub(crate) fn nft(&self, place: &str, ruleset: &str) {
        self.feed_with(place, &["nft", "-f", "-"], ruleset);
    }

    /// Runs a program with this as its input.
    pub(crate) fn feed(&self, place: &str, program: &str, input: &str) {
        self.feed_with(place, &[program], input);
    }

    fn feed_with(&self, place: &str, command: &[&str], input: &str) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name(place)])
            .args(command)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{command:?}: {input}");
    }

    /// Packets counted by a named counter.
    pub(crate) fn counter(&self, place: &str, table: &str, name: &str) -> u64 {
        let listing = self.run(place, "nft", &["-j", "list", "counter", "inet", table, name]);
        let listing: Value = serde_json::from_str(&listing).unwrap();
        listing["nftables"][1]["counter"]["packets"].as_u64().unwrap()
    }

    /// Packets for remote clusters that the underlay saw, IPv4 and IPv6.
    pub(crate) fn leaked(&self) -> (u64, u64) {
        (self.counter("wan", "seen", "remote4"), self.counter("wan", "seen", "remote6"))
    }

    /// Runs something on a thread inside of a namespace.
    pub(crate) fn inside<T: Send>(&self, place: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(Path::new("/run/netns").join(self.name(place))).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// A node's state directory, which a test may make.
    pub(crate) fn state(&self, place: &str) -> PathBuf {
        self.directory.path().join(format!("state-{place}"))
    }

    // --- the store ------------------------------------------------------------------------------------------

    pub(crate) fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// The usual two clusters.
    pub(crate) fn join(&self) {
        self.put_endpoint(
            "a",
            "a-gw1",
            &["100.65.0.0/16", "10.1.0.0/16", "fd00:1::/48"],
            "172.31.1.11",
            "10.1.1.1",
        );
        self.put_endpoint("b", "b-gw1", &["100.66.0.0/16", "10.2.0.0/16", "fd00:2::/48"], "203.0.113.21", "");
    }

    pub(crate) fn put_endpoint(
        &self,
        cluster: &str,
        hostname: &str,
        subnets: &[&str],
        private_ip: &str,
        health: &str,
    ) {
        let spec = json!({
            "cluster_id": cluster, "cable_name": format!("submariner-cable-{cluster}"), "hostname": hostname,
            "subnets": subnets, "private_ip": private_ip, "public_ip": "", "nat_enabled": false,
            "backend": "wireguard", "healthCheckIP": health,
            "backend_config": {"interface-name": "submariner", "udp-port": "4500"},
        });
        self.put("Endpoint", "endpoints", cluster, &spec);
    }

    pub(crate) fn put_cluster(&self, cluster: &str, networks: &[&str]) {
        let spec =
            json!({"cluster_id": cluster, "service_cidr": [], "cluster_cidr": networks, "global_cidr": []});
        self.put("Cluster", "clusters", cluster, &spec);
    }

    pub(crate) fn put_global_cluster(
        &self,
        cluster: &str,
        pods: &[&str],
        services: &[&str],
        global: &[&str],
    ) {
        let spec = json!({"cluster_id": cluster, "service_cidr": services, "cluster_cidr": pods, "global_cidr": global});
        self.put("Cluster", "clusters", cluster, &spec);
    }

    /// A Node object, as the API server has it.
    pub(crate) fn put_node(&self, name: &str, address: &str, pod_networks: &[String]) {
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"podCIDR": pod_networks[0], "podCIDRs": pod_networks},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        let directory = self.store().join("_cluster").join("nodes");
        std::fs::create_dir_all(&directory).unwrap();
        self.put_object(&object, &directory.join(format!("{name}.yaml")));
    }

    /// Says that a cluster knows of several gateways at once.
    pub(crate) fn tell_paths(&self, cluster: &str) {
        let path = self.object("endpoints", cluster);
        let mut object: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        object["spec"]["backend_config"]["trieste.paths"] = "1".into();
        self.put_object(&object, &path);
    }

    /// A gateway of cluster `a` among its siblings, with the key of its notices in base64 if it sends some.
    pub(crate) fn put_member(
        &self,
        cable: &str,
        hostname: &str,
        address: &str,
        health: &str,
        key: Option<&str>,
    ) {
        let mut settings = json!({"interface-name": "submariner", "udp-port": "4500", "trieste.paths": "1"});
        if let Some(key) = key {
            settings["trieste.notice-key"] = key.into();
        }
        let name = format!("trieste-{cable}");
        let object = json!({
            "apiVersion": "submariner.io/v1", "kind": "Endpoint",
            "metadata": {
                "name": name, "namespace": format!("{NAMESPACE}-paths"), "labels": {"trieste.io/clusterID": "a"},
            },
            "spec": {
                "cluster_id": "a", "cable_name": cable, "hostname": hostname,
                "subnets": ["100.65.0.0/16", "10.1.0.0/16", "fd00:1::/48"], "private_ip": address, "public_ip": "",
                "nat_enabled": false, "backend": "wireguard", "healthCheckIP": health, "backend_config": settings,
            },
        });
        let directory = self.store().join(format!("{NAMESPACE}-paths")).join("endpoints");
        std::fs::create_dir_all(&directory).unwrap();
        self.put_object(&object, &directory.join(format!("{name}.yaml")));
    }

    /// What upstream's agent says of a node.
    pub(crate) fn put_upstreams_agent(&self, node: &str) {
        let object = json!({
            "apiVersion": "submariner.io/v1", "kind": "RouteAgent",
            "metadata": {"name": node, "namespace": NAMESPACE},
            "status": {"version": "release-0.23-0a1b2c3d", "statusFailure": "", "remoteEndpoints": []},
        });
        let path = self.object("routeagents", node);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        self.put_object(&object, &path);
    }

    fn put(&self, kind: &str, plural: &str, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "submariner.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        self.put_object(&object, &self.object(plural, name));
    }

    fn put_object(&self, object: &Value, path: &Path) {
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, object.to_string()).unwrap();
        std::fs::rename(draft, path).unwrap();
    }

    pub(crate) fn delete_endpoint(&self, cluster: &str) {
        std::fs::remove_file(self.object("endpoints", cluster)).unwrap();
    }

    pub(crate) fn delete_agent(&self, node: &str) {
        std::fs::remove_file(self.object("routeagents", node)).unwrap();
    }

    fn object(&self, plural: &str, name: &str) -> PathBuf {
        self.store().join(NAMESPACE).join(plural).join(format!("{name}.yaml"))
    }

    // --- processes ------------------------------------------------------------------------------------------

    /// The agent's command line on the node.
    pub(crate) fn agent(&self, extra: &[&str]) -> Command {
        self.agent_as("a-gw1", extra)
    }

    pub(crate) fn agent_as(&self, hostname: &str, extra: &[&str]) -> Command {
        self.agent_on("node", hostname, extra)
    }

    pub(crate) fn agent_on(&self, place: &str, hostname: &str, extra: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name(place), AGENT])
            .args(["--store", &format!("dir:{}", self.store().display()), "--namespace", NAMESPACE])
            .args([
                "--cluster-id=a",
                "--cluster-cidrs=10.1.0.0/16,fd00:1::/48",
                "--service-cidrs=100.65.0.0/16",
            ])
            .args(["--hostname", hostname])
            .env("TRIESTE_CLOSE_GRACE", "0")
            .env("TRIESTE_STATE_DIR", self.state(place))
            .env("TRIESTE_PASS_FILE", self.directory.path().join("pass.json"))
            .args(extra);
        command
    }

    /// Runs the agent once; returns what it printed and logged.
    pub(crate) fn agent_once(&self, extra: &[&str]) -> String {
        finish(&mut self.agent(extra))
    }

    pub(crate) fn uninstall(&self) -> String {
        self.uninstall_on("node")
    }

    pub(crate) fn uninstall_on(&self, place: &str) -> String {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place), AGENT, "--uninstall"]);
        finish(command.env("TRIESTE_STATE_DIR", self.state(place)))
    }

    /// What a pass would do at present.
    pub(crate) fn plan(&self) -> String {
        let output = self.agent(&["--dry-run"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn start_agent(&self) -> Process {
        self.start_agent_on("node", "a-gw1")
    }

    pub(crate) fn start_agent_on(&self, place: &str, hostname: &str) -> Process {
        self.start_agent_with(place, hostname, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn start_agent_with(&self, place: &str, hostname: &str, more: &[(&str, &str)]) -> Process {
        let log = File::create(self.directory.path().join(format!("{place}.log"))).unwrap();
        Process(self.agent_on(place, hostname, &[]).envs(more.iter().copied()).stderr(log).spawn().unwrap())
    }

    pub(crate) fn agent_log(&self) -> String {
        self.agent_log_on("node")
    }

    pub(crate) fn agent_log_on(&self, place: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("{place}.log"))).unwrap()
    }

    /// Holds the TUN open as a living gateway does, and prints every packet in hexadecimal. Perl, because it is part
    /// of every Debian and can call ioctl(2) without unsafe code here.
    pub(crate) fn hold_tun(&self) -> Tun {
        // IFF_TUN | IFF_NO_PI | IFF_MULTI_QUEUE, TUNSETIFF.
        let script = r#"
            $| = 1;
            open(my $tun, "+<", "/dev/net/tun") or die "open: $!";
            my $request = pack("a16Sx22", "submariner", 0x1101);
            ioctl($tun, 0x400454ca, $request) or die "TUNSETIFF: $!";
            print "ready\n";
            while (sysread($tun, my $packet, 65535)) { print unpack("H*", $packet), "\n" }
        "#;
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name("node"), "perl", "-e", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Tun { lines, process: Process(child) }
    }

    /// Everything about routing and filtering on the node, as text.
    pub(crate) fn everything(&self) -> String {
        let rules = [self.ip("node", &["rule"]), self.ip("node", &["-6", "rule"])];
        let routes = [
            self.ip("node", &["route", "show", "table", "all"]),
            self.ip("node", &["-6", "route", "show", "table", "all"]),
        ];
        [rules.concat(), routes.concat(), self.run("node", "nft", &["list", "ruleset"])].concat()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for place in self.places {
            // A namespace that was never made is no reason to stop.
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.name(place)])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        run("kill", &["-s", name, &self.0.id().to_string()]);
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        eventually("the process ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A living gateway's hold on the TUN.
pub(crate) struct Tun {
    lines: BufReader<std::process::ChildStdout>,
    process: Process,
}

impl Tun {
    /// Waits for a packet that contains some text, as a gateway would read it, and returns it in hexadecimal. Packets of the
    /// kernel's own, such as router solicitations, are passed over.
    pub(crate) fn expect(&mut self, payload: &str) -> String {
        let wanted: String = payload.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut line = String::new();
        while !line.contains(&wanted) {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the TUN's reader ended");
        }
        line
    }

    /// Ends as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.process.kill();
    }
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a command to its end; returns its output. What else it has to say is left out: `ip` complains of any namespace that
/// somebody is just making or removing.
fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let Output { status, stdout, stderr } = command.args(arguments).output().unwrap();
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Runs a command to its end; returns what it wrote to both outputs.
pub(crate) fn finish(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(status.success(), "{command:?}: {status}: {text}");
    text
}

fn skip() {
    let line = "trieste-routeagent's namespace tests: they need root\n";
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("TRIESTE_SKIPPED")
        && let Ok(mut file) = File::options().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}
