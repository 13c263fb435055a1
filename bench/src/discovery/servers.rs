//! Two API servers, the cluster's own and the broker's, and what is written to them.
//!
//! ```text
//!   own: API server, trieste-discovery agent and dns ── veth ── broker: API server
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use trieste_deploy::objects::{service_export, service_import};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::kubernetes::{ApiServer, Client, Options as ServerOptions, objects};
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::programs;

use super::shape::{self, OWN_SERVICES, Written};

/// Where the cluster's API server and its DNS server are.
pub(super) const OWN_ADDRESS: [u8; 4] = [10, 255, 9, 1];
const BROKER_ADDRESS: [u8; 4] = [10, 255, 9, 2];
/// How many objects are written at a time.
const WRITERS: usize = 8;
/// How long a server may take to serve a new kind.
const ESTABLISH: Duration = Duration::from_secs(60);
/// The verbs of the programs that are measured. The bench applies and patches.
const VERBS: [&str; 3] = ["POST", "PUT", "DELETE"];

/// The servers. Both end before the lab.
pub(super) struct Servers {
    pub(super) own: ApiServer,
    pub(super) broker: ApiServer,
    pub(super) namespace: Namespace,
}

impl Servers {
    /// Returns the cluster that uses them.
    pub(super) fn member(&self) -> Member<'_> {
        Member { id: shape::OWN, namespace: &self.namespace, own: &self.own, broker: &self.broker }
    }

    /// Starts both, with all definitions and namespaces.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub(super) fn start(lab: &Lab, namespaces: u32) -> anyhow::Result<Self> {
        let (own, broker) = (lab.namespace("own")?, lab.namespace("broker")?);
        let [own_ip, broker_ip] = [OWN_ADDRESS, BROKER_ADDRESS].map(IpAddr::from);
        own.ip(&format!("link add eth0 type veth peer name eth0 netns {}", broker.name()))?;
        own.ip(&format!("link set eth0 up\naddr add {own_ip}/24 dev eth0"))?;
        broker.ip(&format!("link set eth0 up\naddr add {broker_ip}/24 dev eth0"))?;
        let options = ServerOptions { services: OWN_SERVICES.parse()?, ..ServerOptions::default() };
        let servers = Self {
            own: ApiServer::start_with(lab, "own-api", &own, own_ip, options)?,
            broker: ApiServer::start(lab, "broker-api", &broker, broker_ip)?,
            namespace: own,
        };
        [&servers.own, &servers.broker].into_iter().try_for_each(|server| define(server.client()))?;
        servers.broker.client().create_namespace(BROKER_NAMESPACE)?;
        let own = servers.own.client();
        own.create_namespace(NAMESPACE)?;
        (0..namespaces).try_for_each(|number| own.create_namespace(&shape::namespace(number * 50)))?;
        Ok(servers)
    }
}

/// Installs the kinds that are read and written.
///
/// # Errors
/// If they are refused, or not served soon.
pub(super) fn define(client: &Client) -> anyhow::Result<()> {
    objects::install_definitions(client)?;
    for definition in [service_export(), service_import()] {
        client.apply(definition.as_value())?;
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", definition.name());
        client.wait(&path, ESTABLISH, |object| object.to_string().contains("\"Established\""))?;
    }
    Ok(())
}

/// A cluster whose programs are measured: where they run, and the servers that they use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) id: &'a str,
    pub(super) namespace: &'a Namespace,
    pub(super) own: &'a ApiServer,
    pub(super) broker: &'a ApiServer,
}

impl Member<'_> {
    /// Starts its agent.
    ///
    /// # Errors
    /// If that cannot be.
    pub(super) fn agent(&self, lab: &Lab) -> anyhow::Result<Daemon> {
        let run = self.command("agent")?.arg("--metrics=off");
        let run = run.arg(format!("--broker=kube:{}", self.broker.kubeconfig().display()));
        Daemon::start(lab, &format!("{}-agent", self.id), &run)
    }

    /// Starts its DNS server.
    ///
    /// # Errors
    /// If that cannot be.
    pub(super) fn dns(&self, lab: &Lab) -> anyhow::Result<Daemon> {
        let run = self.command("dns")?.args(["--drain=0", "--health=off", "--ready=off", "--metrics=off"]);
        Daemon::start(
            lab,
            &format!("{}-dns", self.id),
            &run.arg(format!("--listen={}", self.own.address().ip())),
        )
    }

    fn command(&self, verb: &str) -> anyhow::Result<Run> {
        let run = self.namespace.run("env").arg(format!("SUBMARINER_CLUSTERID={}", self.id));
        let run = run.arg(programs::path("trieste-discovery")?).arg(verb);
        Ok(run.arg(format!("--store=kube:{}", self.own.kubeconfig().display())))
    }
}

/// Writes objects, several at a time.
///
/// # Errors
/// The first one that is refused.
pub(super) fn write_all(client: &Client, all: &[Written]) -> anyhow::Result<()> {
    each(all, |(object, status)| {
        client.apply(object)?;
        status
            .as_ref()
            .map_or(Ok(()), |status| client.patch(&format!("{}/status", path(object)?), status).map(drop))
    })
}

/// Removes objects, several at a time.
///
/// # Errors
/// The first one that is not removed.
pub(super) fn remove_all(client: &Client, all: &[Written]) -> anyhow::Result<()> {
    each(all, |(object, _)| client.delete(&path(object)?).map(drop))
}

fn each<T: Sync>(all: &[T], work: impl Fn(&T) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let take = || -> anyhow::Result<()> {
        while let Some(item) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS).map(|_| scope.spawn(take)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Returns where an object of one of the kinds that are written here is.
pub(super) fn path(object: &Value) -> anyhow::Result<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("the object is not whole");
    let (version, kind) = (text(&object["apiVersion"])?, text(&object["kind"])?.to_lowercase());
    let (namespace, name) = (text(&object["metadata"]["namespace"])?, text(&object["metadata"]["name"])?);
    let prefix = if version == "v1" { "/api" } else { "/apis" };
    Ok(format!("{prefix}/{version}/namespaces/{namespace}/{kind}s/{name}"))
}

/// Counts what the programs that are measured have written to a server, but for the election and Events.
///
/// # Errors
/// If it does not answer.
pub(super) fn writes(server: &ApiServer) -> anyhow::Result<BTreeMap<String, u64>> {
    let of_programs = |(verb, resource): &(String, String)| {
        let is_theirs = resource.starts_with("serviceimports")
            || resource.starts_with("serviceexports")
            || resource.starts_with("endpointslices");
        is_theirs && VERBS.contains(&verb.as_str())
    };
    let requests = server.requests()?.into_iter().filter(|(key, _)| of_programs(key));
    Ok(requests.map(|((verb, resource), count)| (format!("{verb} {resource}"), count)).collect())
}
