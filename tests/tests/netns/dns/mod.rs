//! The DNS server of service discovery, asked by dig and kdig over both transports and families, and by clients that mean it
//! harm. Objects lie in a directory.
//!
//! ```text
//!   client 10.9.0.2, fd09::2 ──── server 10.9.0.1, 10.9.0.3, fd09::1: trieste-discovery dns
//! ```

mod answers;
mod hostile;
mod place;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, label};
use trieste_control::store::{AnyStore, Location, Store as _};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::programs;
use trieste_tests::wait::eventually;

const WEB: &str = "web.shop.svc.clusterset.local";
const DB: &str = "db.shop.svc.clusterset.local";
const SERVER: &str = "10.9.0.1";
const OTHER: &str = "10.9.0.3";
const SERVER_V6: &str = "fd09::1";
const START: Duration = Duration::from_secs(60);

/// A server and a client.
struct Bed {
    client: Namespace,
    server: Namespace,
    store: PathBuf,
    lab: Lab,
}

impl Bed {
    fn new() -> Self {
        let lab = Lab::new().unwrap();
        let (client, server) = (lab.namespace("client").unwrap(), lab.namespace("server").unwrap());
        client.ip(&format!("link add eth0 type veth peer name eth0 netns {}", server.name())).unwrap();
        client
            .ip("link set eth0 up\naddr add 10.9.0.2/24 dev eth0\naddr add fd09::2/64 dev eth0 nodad")
            .unwrap();
        server
            .ip(
                "link set eth0 up\naddr add 10.9.0.1/24 dev eth0\naddr add 10.9.0.3/24 dev eth0\naddr add fd09::1/64 \
                 dev eth0 nodad",
            )
            .unwrap();
        let store = lab.directory().join("store");
        Self { client, server, store, lab }
    }

    /// A bed with `web` in east and south, and `db` with 100 pods in east.
    fn with_services() -> Self {
        let bed = Self::new();
        bed.put(import("web", &json!({"type": "ClusterSetIP", "ports": []})));
        bed.put(slice("web", "web-a", "east", &[("", "10.2.0.1")]));
        bed.put(slice("web", "web-b", "south", &[("", "10.3.0.1")]));
        bed.put(import("db", &json!({"type": "Headless", "ports": []})));
        let pods: Vec<_> = (0..100).map(|pod| (format!("db-{pod}"), format!("10.2.1.{pod}"))).collect();
        let pods: Vec<_> = pods.iter().map(|(host, address)| (host.as_str(), address.as_str())).collect();
        bed.put(slice("db", "db-a", "east", &pods));
        bed
    }

    fn run(&self, program: &str) -> Run {
        self.server
            .run("env")
            .args(["RUST_BACKTRACE=0", "SUBMARINER_CLUSTERID=west"])
            .arg(format!("TRIESTE_STORE=dir:{}", self.store.display()))
            .arg(programs::path(program).unwrap())
    }

    /// Starts the server and waits until it is ready.
    fn start(&self, arguments: &[&str]) -> Daemon {
        let run = self.run("trieste-discovery").arg("dns").args(arguments);
        let daemon = Daemon::start(&self.lab, "dns", &run).unwrap();
        eventually("a server that is ready", START, || {
            daemon.check()?;
            self.page(8181, "/ready")
        })
        .unwrap();
        daemon
    }

    /// What a page of the server says, if that is 200.
    fn page(&self, port: u16, path: &str) -> anyhow::Result<String> {
        let address = SocketAddr::new(SERVER.parse()?, port);
        self.client.enter(|| {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: dns\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
            Ok(body.to_owned())
        })
    }

    /// The value of a metric, 0 without a series.
    fn metric(&self, series: &str) -> u64 {
        let page = self.page(9153, "/metrics").unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// What `dig +short` says, sorted.
    fn dig(&self, arguments: &[&str]) -> Vec<String> {
        self.short("dig", arguments)
    }

    fn short(&self, program: &str, arguments: &[&str]) -> Vec<String> {
        let text = self.client.run(program).args(["+short", "+retry=0"]).args(arguments).stdout().unwrap();
        // kdig says it, and leaves a line empty, when it asks again over TCP.
        let lines = text.lines().filter(|line| !line.is_empty() && !line.contains("WARNING"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Creates or replaces an object.
    fn put(&self, object: Object) {
        self.with_store(async move |store| match store.get(&object.key()).await.unwrap() {
            None => drop(store.create(object).await.unwrap()),
            Some(old) => {
                let mut new = object;
                new.metadata.resource_version = old.metadata.resource_version;
                drop(store.update(new).await.unwrap());
            }
        });
    }

    fn delete(&self, object: &Object) {
        let key = object.key();
        self.with_store(async move |store| store.delete(&key).await.unwrap());
    }

    fn with_store(&self, work: impl AsyncFnOnce(AnyStore)) {
        let store = AnyStore::open(&Location::Dir(self.store.clone())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work(store));
    }
}

/// An import of a service in namespace `shop`.
fn import(service: &str, spec: &Value) -> Object {
    let mut object = Object::new(Kind::ServiceImport, ObjectMeta::new("shop", service));
    object.body.insert("spec".to_owned(), spec.clone());
    object
}

/// A slice of a service from a cluster: names of hosts, if there are any, and addresses.
fn slice(service: &str, name: &str, cluster: &str, endpoints: &[(&str, &str)]) -> Object {
    let mut object = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", name));
    let is_headless = endpoints.iter().any(|(host, _)| !host.is_empty());
    let labels = [
        (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
        (label::SERVICE_NAME, service),
        (label::SOURCE_NAMESPACE, "shop"),
        (label::SOURCE_CLUSTER, cluster),
        (label::IS_HEADLESS, if is_headless { "true" } else { "false" }),
    ];
    object.metadata.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let endpoint = |(host, address): &(&str, &str)| match host.is_empty() {
        true => json!({"addresses": [address]}),
        false => json!({"addresses": [address], "hostname": host}),
    };
    let is_v6 = endpoints.iter().any(|(_, address)| address.contains(':'));
    object.body.insert("addressType".to_owned(), json!(if is_v6 { "IPv6" } else { "IPv4" }));
    object.body.insert("endpoints".to_owned(), endpoints.iter().map(endpoint).collect());
    object.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": 80}]));
    object
}

/// A gateway with connections: clusters and their states.
fn gateway(connections: &[(&str, &str)]) -> Object {
    let endpoint = |cluster: &str| {
        json!({"cluster_id": cluster, "cable_name": format!("c-{cluster}"), "hostname": "h", "subnets": [],
            "private_ip": "10.0.0.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"})
    };
    let connection = |(cluster, status): &(&str, &str)| json!({"status": status, "statusMessage": "", "endpoint": endpoint(cluster), "usingIP": "10.0.0.1"});
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("submariner-operator", "gw1"));
    object.metadata.annotations.insert(annotation::UPDATE_TIMESTAMP.to_owned(), "1".to_owned());
    let connections: Vec<Value> = connections.iter().map(connection).collect();
    let status = json!({"version": "1", "haStatus": "active", "localEndpoint": endpoint("west"),
        "statusFailure": "", "connections": connections});
    object.body.insert("status".to_owned(), status);
    object
}
