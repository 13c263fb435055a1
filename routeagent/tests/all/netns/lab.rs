//! The topology, the store, and the processes of a test. Everything is removed when the [`Lab`] is dropped.

mod processes;
mod store;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, setns};
use serde_json::Value;

pub(crate) use processes::{Process, finish};

pub(crate) const NAMESPACE: &str = "submariner-operator";
/// Longer than the agent's resync period of 10 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Less than the resync period: what took no longer was seen, and not found by the pass.
pub(crate) const SEEN: Duration = Duration::from_secs(8);

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

/// Ends those who send meanwhile also where the test fails: else it would wait for them for ever.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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
    pub(crate) fn name(&self, place: &str) -> String {
        format!("{}-{place}", self.id)
    }

    /// The Ethernet address of a device.
    pub(crate) fn mac(&self, place: &str, device: &str) -> String {
        let link = self.ip(place, &["-o", "link", "show", device]);
        link.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
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

    /// The same with arguments.
    pub(crate) fn feed_with(&self, place: &str, command: &[&str], input: &str) {
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

fn skip() {
    let line = "trieste-routeagent's namespace tests: they need root\n";
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("TRIESTE_SKIPPED")
        && let Ok(mut file) = File::options().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}
