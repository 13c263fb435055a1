//! Names of exported services: exporting, and asking for them in pods.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use super::{Cluster, ClusterSet, Pod};
use crate::command::Run;
use crate::netns::Namespace;
use crate::traffic;
use crate::wait::eventually;

/// How long a CoreDNS may take to read what has become of its ConfigMap: the kubelet's minute, and its own 45 s.
pub const RELOADED: Duration = Duration::from_secs(180);

/// C libraries whose resolvers this machine can put into a program, and the compiler of each.
pub const C_LIBRARIES: [(&str, &str); 2] = [("glibc", "cc"), ("musl", "musl-gcc")];
/// A program that asks its C library.
const RESOLVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clusters/resolve.c");

/// How long a name server may take that answers at all.
const ANSWER: Duration = Duration::from_secs(5);
const QUESTION_ID: [u8; 2] = [0x74, 0x72];
const HEADER_BYTES: usize = 12;

impl ClusterSet {
    /// Exports a service of the namespace `default`, or with `unexport` as the verb exports it no more.
    ///
    /// # Errors
    /// If the command failed.
    pub fn export(&self, cluster: &Cluster, verb: &str, service: &str) -> anyhow::Result<()> {
        self.export_in("default", cluster, verb, service)
    }

    /// The same for a service of another namespace.
    ///
    /// # Errors
    /// If the command failed.
    pub fn export_in(
        &self,
        namespace: &str,
        cluster: &Cluster,
        verb: &str,
        service: &str,
    ) -> anyhow::Result<()> {
        let run = self.trieste(cluster).args([verb, "service", service, "-n", namespace]);
        run.output()?.success().map(drop)
    }

    /// Exports a service of the namespace `default` with one address for the whole set.
    ///
    /// # Errors
    /// If the command failed.
    pub fn export_with_ip(&self, cluster: &Cluster, service: &str) -> anyhow::Result<()> {
        let words = ["export", "service", service, "-n", "default", "--use-clusterset-ip"];
        self.trieste(cluster).args(words).output()?.success().map(drop)
    }
}

impl Cluster {
    /// Starts CoreDNS again, which reads its ConfigMap then and not up to a minute later.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn restart_dns(&self) -> anyhow::Result<()> {
        let path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
        let since = &self.client().get(path)?["metadata"]["resourceVersion"];
        let annotations = json!({"restarted-after": since});
        let template = json!({"metadata": {"annotations": annotations}});
        self.client().patch(path, &json!({"spec": {"template": template}}))?;
        self.wait_rollout("kube-system", "deployment/coredns")
    }
}

impl Pod {
    /// Returns the addresses of both families that its resolver is given for a name, sorted; none for a name that has none.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn resolve(&self, name: &str) -> anyhow::Result<Vec<IpAddr>> {
        let output = self.exec(&["nslookup", name])?;
        let answer = output.stdout.split_once("Name:").map_or("", |(_, answer)| answer);
        let lines = answer.lines().filter_map(|line| line.strip_prefix("Address")?.rsplit(' ').next());
        let mut addresses: Vec<IpAddr> = lines.filter_map(|word| word.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// Asks for a name until these are the answer, in whatever order.
    ///
    /// # Errors
    /// If they are not in time.
    pub fn wait_resolved(&self, name: &str, wanted: &[IpAddr], within: Duration) -> anyhow::Result<()> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        eventually(&format!("{name} to be answered by {wanted:?}"), within, || {
            let found = self.resolve(name)?;
            anyhow::ensure!(found == wanted, "it is {found:?}");
            Ok(())
        })
    }

    /// Connects to a responder by its name, by a program that asks the C library. Returns whom the server has seen.
    ///
    /// # Errors
    /// If it is not reached.
    pub fn reach(&self, name: &str, port: u16) -> anyhow::Result<SocketAddr> {
        let output = self.exec(&["nc", "-w", "5", name, &port.to_string()])?.success()?;
        let seen = output.split(' ').next().unwrap_or_default().parse();
        seen.with_context(|| format!("{name} answers {output:?}"))
    }

    /// Installs a program that asks the C library of this compiler, and returns its path in the container.
    ///
    /// # Errors
    /// If the compiler is missing (Debian packages gcc and musl-tools), or the pod takes no file.
    pub fn install_resolver(&self, compiler: &str) -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("resolve");
        Run::new(compiler).args(["-O1", "-static", "-o"]).arg(&program).arg(RESOLVE).stdout()?;
        let path = format!("/bin/resolve-by-{compiler}");
        self.install(&program, &path)?;
        Ok(path)
    }
}

/// A client of a cluster's name server in a pod's network, without `kubectl exec` for each question.
#[derive(Debug)]
pub struct Asker {
    netns: Namespace,
    server: SocketAddr,
    socket: UdpSocket,
}

impl Asker {
    /// Creates one in a pod, which asks its cluster's name server.
    ///
    /// # Errors
    /// If there is no socket.
    pub fn new(cluster: &Cluster, pod: &Pod) -> anyhow::Result<Self> {
        Self::of_server(pod, SocketAddr::new(cluster.name_server(), 53))
    }

    /// Creates one that asks another server.
    ///
    /// # Errors
    /// If there is no socket.
    pub fn of_server(pod: &Pod, server: SocketAddr) -> anyhow::Result<Self> {
        let socket = traffic::connected_udp(pod.netns(), server)?;
        socket.set_read_timeout(Some(ANSWER))?;
        Ok(Self { netns: pod.netns().clone(), server, socket })
    }

    /// Returns what dig prints; of several lines none is sure of its place.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn dig(&self, words: &[&str]) -> anyhow::Result<String> {
        let (server, port) = (self.server.ip(), self.server.port().to_string());
        self.netns.run("dig").arg(format!("@{server}")).args(["-p", &port]).args(words).stdout()
    }

    /// Returns the records that dig prints, sorted.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn records(&self, words: &[&str]) -> anyhow::Result<Vec<String>> {
        let told = self.dig(&[&["+short"], words].concat())?;
        let mut lines: Vec<String> = told.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        Ok(lines)
    }

    /// Asks until these are the records, in whatever order: each of several servers is told of a change by itself.
    ///
    /// # Errors
    /// If they are not in time.
    pub fn wait_records(&self, words: &[&str], wanted: &[String], within: Duration) -> anyhow::Result<()> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        eventually(&format!("{words:?} to be answered by {wanted:?}"), within, || {
            let found = self.records(words)?;
            anyhow::ensure!(found == wanted, "they are {found:?}");
            Ok(())
        })
    }

    /// Returns how many addresses an answer over UDP has, IPv6 addresses where the name server has one.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn count(&self, name: &str) -> anyhow::Result<u16> {
        let kind = if self.server.is_ipv4() { 1 } else { 28 };
        // One question, and recursion is desired.
        let mut question = [&QUESTION_ID[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        for label in name.split('.') {
            question.push(u8::try_from(label.len())?);
            question.extend_from_slice(label.as_bytes());
        }
        question.extend_from_slice(&[0, 0, kind, 0, 1]);
        self.socket.send(&question)?;
        let mut answer = [0; 4096];
        let bytes =
            self.socket.recv(&mut answer).with_context(|| format!("asking {} for {name}", self.server))?;
        let is_whole = bytes >= HEADER_BYTES && answer[..2] == QUESTION_ID;
        anyhow::ensure!(is_whole, "{} answers {:?}", self.server, &answer[..bytes]);
        Ok(u16::from_be_bytes([answer[6], answer[7]]))
    }
}
