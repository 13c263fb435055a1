//! One kube-apiserver with its etcd, in one process.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ipnet::{IpNet, Ipv4Net};

use super::binary;
use super::client::{self, Client};
use super::credentials::{self, Identity};
use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::wait::eventually;

/// The port of every server: each has a namespace or an address of its own.
const PORT: u16 = 6443;

/// How long a start may take on a machine that is busy with something else.
const START: Duration = Duration::from_secs(90);

/// What Services get their addresses from unless a test says otherwise: no gateway ever sees it.
const SERVICES: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 200, 0, 0), 16));

/// What can be chosen about a server.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether watches are served from memory, as on every real cluster. Without it they come from etcd, and
    /// [`ApiServer::compact`] makes old ones end with "410 Gone" at once.
    pub watch_cache: bool,
    /// What Services get their addresses from.
    pub services: IpNet,
}

impl Default for Options {
    fn default() -> Self {
        Self { watch_cache: true, services: SERVICES }
    }
}

/// A running API server; it ends when dropped, its data stay in the lab's directory.
#[derive(Debug)]
pub struct ApiServer {
    lab: Lab,
    name: String,
    namespace: Namespace,
    address: IpAddr,
    directory: PathBuf,
    kubeconfig: PathBuf,
    options: Options,
    daemon: Option<Daemon>,
    client: Client,
}

impl ApiServer {
    /// Starts one at port 6443 of this address, which exists in the namespace, and waits until it is ready. Role-based
    /// access control is on; there are no controllers.
    ///
    /// # Errors
    /// If it is not built (the error says how), or does not become ready.
    pub fn start(lab: &Lab, name: &str, namespace: &Namespace, address: IpAddr) -> anyhow::Result<Self> {
        Self::start_with(lab, name, namespace, address, Options::default())
    }

    /// The same, with choices.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub fn start_with(
        lab: &Lab,
        name: &str,
        namespace: &Namespace,
        address: IpAddr,
        options: Options,
    ) -> anyhow::Result<Self> {
        let directory = lab.directory().join(name);
        std::fs::create_dir_all(&directory)?;
        let daemon = launch(lab, name, namespace, address, &directory, options)?;
        let server = SocketAddr::new(address, PORT);
        let identity = Identity::Certificate {
            certificate: directory.join("admin.crt"),
            key: directory.join("admin.key"),
        };
        let kubeconfig = directory.join("admin.conf");
        let text =
            credentials::kubeconfig(&format!("https://{server}"), &directory.join("ca.crt"), &identity);
        std::fs::write(&kubeconfig, text)?;
        let client = wait_ready(&daemon, namespace, &kubeconfig)?;
        Ok(Self {
            lab: lab.clone(),
            name: name.to_owned(),
            namespace: namespace.clone(),
            address,
            directory,
            kubeconfig,
            options,
            daemon: Some(daemon),
            client,
        })
    }

    /// Starts one on the loopback address of a namespace of its own, which is called as the server is.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub fn alone(lab: &Lab, name: &str) -> anyhow::Result<Self> {
        Self::alone_with(lab, name, Options::default())
    }

    /// The same, with choices.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub fn alone_with(lab: &Lab, name: &str, options: Options) -> anyhow::Result<Self> {
        let namespace = lab.namespace(name)?;
        Self::start_with(lab, name, &namespace, IpAddr::from([127, 0, 0, 1]), options)
    }

    /// Its name in the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it lives.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.address, PORT)
    }

    /// Its address as kubeconfigs write it: `https://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.server())
    }

    /// Its address as `BROKER_K8S_APISERVER` wants it: `HOST:PORT`.
    pub fn server(&self) -> String {
        self.address().to_string()
    }

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The authority that signs its certificate, PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Its files: certificates, keys, data.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// An administrator's client, inside the server's namespace.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends it as an operator would.
    ///
    /// # Errors
    /// If it does not run, or the kernel refuses.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let daemon = self.daemon.take().with_context(|| format!("API server {} does not run", self.name))?;
        // It waits for watches to end by themselves; after the grace period it is killed, and loses nothing by it.
        daemon.stop().map(drop)
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// If it does not run, or the kernel refuses.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.daemon.take().with_context(|| format!("API server {} does not run", self.name))?.kill()
    }

    /// Starts it again on the same data, address and port, after killing it if it runs; waits until it is ready.
    /// Watches from before find their resource version too old ("410 Gone") if anything has changed since.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        if self.daemon.is_some() {
            self.kill()?;
        }
        let (lab, namespace) = (&self.lab, &self.namespace);
        let daemon = launch(lab, &self.name, namespace, self.address, &self.directory, self.options)?;
        let daemon = self.daemon.insert(daemon);
        self.client = wait_ready(daemon, namespace, &self.kubeconfig)?;
        Ok(())
    }

    /// Starts it again with another authority: every CA file and certificate handed out before is void, tokens are not.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub fn replace_authority(&mut self) -> anyhow::Result<()> {
        if self.daemon.is_some() {
            self.kill()?;
        }
        std::fs::remove_file(self.directory.join("admin.crt"))?;
        self.restart()
    }

    /// Stops it where it stands: connections stay open and nothing answers.
    ///
    /// # Errors
    /// If it does not run, or the kernel refuses.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.running()?.pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it does not run, or the kernel refuses.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.running()?.resume()
    }

    /// Makes etcd forget its history: without the watch cache, a watch from an earlier resource version ends with
    /// "410 Gone" from here on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn compact(&self) -> anyhow::Result<()> {
        self.running()?;
        Run::new(binary::path()?).arg("compact").arg(&self.directory).timeout(START).stdout().map(drop)
    }

    /// Requests served since its start, by verb (as the server calls them, such as `WATCH` and `APPLY`) and resource
    /// (`leases`; subresources as `pods/status`).
    ///
    /// # Errors
    /// If it does not answer.
    pub fn requests(&self) -> anyhow::Result<BTreeMap<(String, String), u64>> {
        Ok(count_requests(&self.client.text("/metrics")?))
    }

    fn running(&self) -> anyhow::Result<&Daemon> {
        self.daemon.as_ref().with_context(|| format!("API server {} does not run", self.name))
    }
}

impl Drop for ApiServer {
    /// What it holds goes with the lab, so that nobody waits for it to end in order.
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take()
            && !self.lab.is_kept()
        {
            let _ = daemon.kill();
        }
    }
}

fn launch(
    lab: &Lab,
    name: &str,
    namespace: &Namespace,
    address: IpAddr,
    directory: &Path,
    options: Options,
) -> anyhow::Result<Daemon> {
    let program = binary::path()?;
    let run = namespace
        .run(&program.to_string_lossy())
        .arg("serve")
        .arg(directory)
        .arg(address.to_string())
        .arg(format!("--secure-port={PORT}"))
        .arg(format!("--service-cluster-ip-range={}", options.services))
        .arg(format!("--watch-cache={}", options.watch_cache))
        .args(["--authorization-mode=RBAC", "--allow-privileged", "--profiling=false"])
        // No controllers: nobody keeps the endpoints of this server, default service accounts, or garbage.
        .args(["--endpoint-reconciler-type=none", "--enable-garbage-collector=false"])
        .arg("--v=0")
        // A start takes 1.8 s of a processor with both of these, 3.5 s with GOGC=50 and without the flag, and 100 MB less then.
        .arg("--enable-priority-and-fairness=false")
        .env("GOGC", "300");
    Daemon::start(lab, name, &run)
}

/// The certificates appear first, then the port, then readiness.
fn wait_ready(daemon: &Daemon, namespace: &Namespace, kubeconfig: &Path) -> anyhow::Result<Client> {
    eventually("the API server's certificates", START, || {
        daemon.check()?;
        for file in [kubeconfig.with_extension("crt"), kubeconfig.with_extension("key")] {
            // A file is there before all of it is.
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            anyhow::ensure!(text.contains("-----END "), "{} is not written", file.display());
        }
        Ok(())
    })?;
    let client = Client::new(Some(namespace), kubeconfig)?;
    eventually("the API server to be ready", START, || {
        daemon.check()?;
        client.text("/readyz")
    })?;
    Ok(client)
}

/// Adds up `apiserver_request_total` over codes, groups and scopes.
fn count_requests(page: &str) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for line in page.lines() {
        let Some(rest) = line.strip_prefix("apiserver_request_total{") else { continue };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        // `subresource` contains the word `resource`: the label is looked for with its comma.
        let resource = labels.split_once(",resource=\"").and_then(|(_, rest)| rest.split_once('"'));
        let (Some(verb), Some((resource, _))) = (label("verb"), resource) else { continue };
        let resource = match label("subresource") {
            Some(subresource) if !subresource.is_empty() => format!("{resource}/{subresource}"),
            _ => resource.to_owned(),
        };
        let count = value.parse::<f64>().map_or(0, client::whole);
        *counts.entry((verb.to_owned(), resource)).or_default() += count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_added_up_by_verb_and_resource() {
        let page = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",\
            scope=\"resource\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 3\n\
            apiserver_request_total{code=\"200\",component=\"apiserver\",group=\"x\",resource=\"leases\",\
            scope=\"resource\",subresource=\"\",verb=\"PUT\",version=\"v1\"} 2e+01\n\
            apiserver_request_total{code=\"409\",component=\"apiserver\",group=\"x\",resource=\"leases\",\
            scope=\"resource\",subresource=\"\",verb=\"PUT\",version=\"v1\"} 1\n";

        let counts = count_requests(page);

        let key = |verb: &str, resource: &str| (verb.to_owned(), resource.to_owned());
        assert_eq!(counts[&key("PUT", "leases")], 21);
        assert_eq!(counts[&key("PATCH", "pods/status")], 3);
        assert_eq!(counts.len(), 2);
    }
}
