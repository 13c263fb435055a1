//! Three clusters in which things come and go, agents die, and stores fail, by a seed. In the end every store says what follows
//! from the exports that are left, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tokio::time::sleep;
use trieste_control::api::{Kind, Object, annotation, label, placed};

use crate::api_store::ApiStore;
use crate::lab::{BROKER, Cluster, OPERATOR, aggregate, clusters, slices_of};
use crate::memory_store::Fault;

const IDS: [&str; 3] = ["east", "north", "west"];
const SERVICES: [&str; 3] = ["api", "db", "web"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Families {
    Four,
    Six,
    Both,
}

/// Something that happens to a cluster.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A service gets this address of these families; `None` if it is headless.
    Service(usize, Option<(u8, Families)>),
    RemoveService(usize),
    Export(usize, u8),
    Unexport(usize),
    /// An export asks for one address for all clusters, or says that it wants none.
    Ask(usize, bool),
    Kill,
    Start,
    Namespace(bool),
    Fault(bool, Fault),
    DeleteOnBroker(usize),
    /// Somebody else takes the names of its slices on the broker.
    Steal(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let service = 0..SERVICES.len();
    let families = prop_oneof![Just(Families::Four), Just(Families::Six), Just(Families::Both)];
    let fault = prop_oneof![
        Just(Fault::Fails),
        Just(Fault::LosesReplies),
        Just(Fault::Slow(Duration::from_millis(300))),
        Just(Fault::None)
    ];
    prop_oneof![
        3 => (service.clone(), proptest::option::weighted(0.8, (1..250_u8, families))).prop_map(|(name, ip)| Event::Service(name, ip)),
        1 => service.clone().prop_map(Event::RemoveService),
        4 => (service.clone(), 1..9_u8).prop_map(|(name, since)| Event::Export(name, since)),
        2 => service.clone().prop_map(Event::Unexport),
        2 => (service.clone(), any::<bool>()).prop_map(|(name, asks)| Event::Ask(name, asks)),
        1 => Just(Event::Kill),
        1 => Just(Event::Start),
        1 => any::<bool>().prop_map(Event::Namespace),
        1 => (any::<bool>(), fault).prop_map(|(of_broker, fault)| Event::Fault(of_broker, fault)),
        1 => service.clone().prop_map(Event::DeleteOnBroker),
        1 => service.prop_map(Event::Steal),
    ]
}

fn happen(cluster: &mut Cluster, event: Event) {
    let gone = |store: &ApiStore, kind: Kind, namespace: &str, name: &str| {
        if store.find(kind, namespace, name).is_some() {
            store.0.remove(kind, name);
        }
    };
    match event {
        Event::Service(name, ip) => {
            let ips = ip.map_or_else(
                || vec!["None".to_owned()],
                |(ip, families)| {
                    let (four, six) = (format!("10.96.0.{ip}"), format!("fd96::{ip}"));
                    match families {
                        Families::Four => vec![four],
                        Families::Six => vec![six],
                        Families::Both => vec![six, four],
                    }
                },
            );
            cluster.service(SERVICES[name], &ips[0]);
            cluster.edit(Kind::Service, "shop", SERVICES[name], |service| {
                service.body["spec"]["clusterIPs"] = json!(ips);
            });
        }
        Event::RemoveService(name) => gone(&cluster.store, Kind::Service, "shop", SERVICES[name]),
        Event::Export(name, since) => cluster.export(SERVICES[name], i64::from(since) * 100),
        Event::Unexport(name) => gone(&cluster.store, Kind::ServiceExport, "shop", SERVICES[name]),
        Event::Ask(name, asks) => {
            if cluster.store.find(Kind::ServiceExport, "shop", SERVICES[name]).is_some() {
                cluster.edit(Kind::ServiceExport, "shop", SERVICES[name], |export| {
                    let key = annotation::USE_CLUSTERSET_IP.to_owned();
                    export.metadata.annotations.insert(key, asks.to_string());
                });
            }
        }
        Event::Kill => cluster.agent = None,
        Event::Start => cluster.run(),
        Event::Namespace(true) => {
            cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
        }
        Event::Namespace(false) => gone(&cluster.store, Kind::Namespace, "", "shop"),
        Event::Fault(of_broker, fault) => {
            let store = if of_broker { &cluster.broker } else { &cluster.store };
            store.0.set_fault(fault);
            store.0.break_watches();
        }
        Event::Steal(name) => {
            for mut slice in slices_of(&cluster.broker, BROKER, &cluster.config.cluster_id) {
                if slice.metadata.labels[label::SERVICE_NAME] == SERVICES[name] {
                    cluster.broker.0.remove(Kind::EndpointSlice, &slice.metadata.name);
                    let labels = [label::CLUSTER_ID, label::SOURCE_CLUSTER]
                        .map(|key| (key.to_owned(), "rogue".to_owned()));
                    slice.metadata.labels.extend(labels);
                    cluster.broker.0.put(slice);
                }
            }
        }
        Event::DeleteOnBroker(name) => {
            gone(&cluster.broker, Kind::ServiceImport, BROKER, &format!("{}-shop", SERVICES[name]));
        }
    }
}

/// Returns the type of a service that a cluster exports and when it began to, if it does.
fn exported(cluster: &Cluster, name: &str) -> Option<(i64, bool)> {
    let export = cluster.store.find(Kind::ServiceExport, "shop", name)?;
    let service = cluster.store.find(Kind::Service, "shop", name)?;
    let since = export.metadata.creation_timestamp.unwrap().as_second();
    Some((since, service.body["spec"]["clusterIP"] == "None"))
}

/// Returns the addresses of a family for all clusters on the broker, no two of which are the same.
fn ips(broker: &ApiStore, is_ipv4: bool) -> BTreeMap<String, IpAddr> {
    let imports = broker.all(Kind::ServiceImport, BROKER);
    let ips = imports.iter().filter_map(|import| {
        let listed = import.body.get("spec")?.get("ips").and_then(|ips| ips.get(0)?.as_str());
        let annotated = import.metadata.annotations.get(annotation::CLUSTERSET_IPV6).map(String::as_str);
        let ip: IpAddr = if is_ipv4 { listed } else { annotated }?.parse().unwrap();
        assert_eq!(ip.is_ipv4(), is_ipv4);
        Some((import.metadata.name.clone(), ip))
    });
    let ips: BTreeMap<String, IpAddr> = ips.collect();
    let distinct: BTreeSet<&IpAddr> = ips.values().collect();
    assert_eq!(distinct.len(), ips.len(), "{ips:?}");
    ips
}

/// Checks that a service has addresses for all clusters of its families if its oldest exporter asks for them, and has some to give.
fn check_ips(broker: &ApiStore, name: &str, oldest: Option<&Cluster>) {
    let export = oldest.and_then(|cluster| cluster.store.find(Kind::ServiceExport, "shop", name));
    let Some((cluster, export)) = oldest.zip(export) else { return };
    let said = export.metadata.annotations.get(annotation::USE_CLUSTERSET_IP).cloned();
    let is_virtual = exported(cluster, name).is_some_and(|(_, is_headless)| !is_headless);
    let asks = is_virtual && said.map_or(cluster.config.gives_clusterset_ips, |said| said == "true");
    let annotations = aggregate(broker, name).unwrap().metadata.annotations;
    assert_eq!(annotations[annotation::USE_CLUSTERSET_IP], asks.to_string());
    let own = cluster.store.find(Kind::Service, "shop", name).unwrap().body["spec"]["clusterIPs"].to_string();
    for (block, is_ipv4) in cluster.config.clusterset_ip_cidrs.iter().zip([true, false]) {
        let ips = ips(broker, is_ipv4);
        let used = ips.values().filter(|ip| block.contains(*ip)).count();
        let ip = ips.get(&format!("{name}-shop"));
        let asks = asks && own.contains(if is_ipv4 { '.' } else { ':' });
        assert_eq!(ip.is_some(), asks && (ip.is_some() || used < 2), "{name}: {ips:?}");
        if is_ipv4 {
            assert_eq!(annotations.contains_key(annotation::CLUSTERSET_IP_ALLOCATED_BY), ip.is_some());
        }
    }
}

/// Returns the import of `shop/<name>` that stands in the operator's namespace, as it would be in its own.
fn displaced(cluster: &Cluster, name: &str) -> Option<Object> {
    placed(&cluster.store.find(Kind::ServiceImport, OPERATOR, &format!("{name}.shop"))?, OPERATOR)
}

/// Checks that every store says what follows from what is exported.
fn check(broker: &ApiStore, all: &[Cluster]) {
    for name in SERVICES {
        let parts = all.iter().filter_map(|cluster| Some((exported(cluster, name)?, cluster)));
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|((since, _), cluster)| (*since, cluster.config.cluster_id.clone()));
        let kind = parts.first().map(|((_, is_headless), _)| *is_headless);
        let winners: BTreeSet<&str> = parts
            .iter()
            .filter(|((_, is_headless), _)| Some(*is_headless) == kind)
            .map(|(_, cluster)| cluster.config.cluster_id.as_str())
            .collect();
        let import = aggregate(broker, name);
        let found = import.as_ref().map(clusters).unwrap_or_default();
        assert_eq!(
            found.iter().map(String::as_str).collect::<BTreeSet<_>>(),
            winners,
            "{name} on the broker"
        );
        assert_eq!(import.is_some(), !winners.is_empty(), "{name}");
        if let Some(import) = &import {
            let expected = if kind == Some(true) { "Headless" } else { "ClusterSetIP" };
            assert_eq!(import.body["spec"]["type"], expected, "{name}");
            check_ips(broker, name, parts.first().map(|(_, cluster)| *cluster));
        }
        for cluster in all {
            let has_namespace = cluster.store.find(Kind::Namespace, "", "shop").is_some();
            let (copy, stray) = (cluster.import(name), displaced(cluster, name));
            let is_displaced = !has_namespace && cluster.config.imports_missing_namespaces;
            assert_eq!(
                (copy.is_some(), stray.is_some()),
                (has_namespace && import.is_some(), is_displaced && import.is_some()),
                "{name} in {}",
                cluster.config.cluster_id
            );
            let copy = copy.or(stray);
            if let (Some(copy), Some(import)) = (&copy, &import) {
                let mut expected = import.body["spec"].clone();
                if let Some(six) = import.metadata.annotations.get(annotation::CLUSTERSET_IPV6) {
                    let four = expected.get("ips").and_then(|ips| ips.get(0)).cloned();
                    expected["ips"] = four.into_iter().chain([json!(six)]).collect();
                }
                assert_eq!((copy.body["spec"].clone(), clusters(copy)), (expected, clusters(import)));
            }
            for id in IDS {
                let of_service = |slices: Vec<Object>| {
                    let mut names: Vec<_> = slices
                        .into_iter()
                        .filter(|slice| slice.metadata.name.starts_with(&format!("{name}-")))
                        .map(|slice| (slice.metadata.name, slice.body["endpoints"].clone()))
                        .collect();
                    names.sort_by(|one, other| one.0.cmp(&other.0));
                    names
                };
                let published = of_service(slices_of(broker, BROKER, id));
                assert_eq!(!published.is_empty(), winners.contains(id), "{name} of {id} on the broker");
                if has_namespace || id == cluster.config.cluster_id {
                    assert_eq!(of_service(cluster.slices_of(id)), published, "{name} of {id}");
                }
                let stray = of_service(slices_of(&cluster.store, OPERATOR, id));
                let is_other = is_displaced && id != cluster.config.cluster_id;
                assert_eq!(stray, if is_other { published } else { Vec::new() }, "{name} of {id}, displaced");
            }
            let ready = cluster.said(name, "Ready");
            if exported(cluster, name).is_some() {
                let is_winner = winners.contains(cluster.config.cluster_id.as_str());
                let expected = if is_winner { "True/Exported" } else { "False/Failed" };
                assert!(ready.starts_with(expected), "{name}: {ready}");
            }
            let own = cluster.store.find(
                Kind::ServiceImport,
                OPERATOR,
                &format!("{name}-shop-{}", cluster.config.cluster_id),
            );
            assert_eq!(own.is_some(), exported(cluster, name).is_some());
        }
    }
}

async fn run(events: Vec<(usize, Event, u16)>) {
    let broker = ApiStore(Default::default(), None, None, Some(BROKER));
    let start = |(number, id): (usize, &&str)| {
        let mut cluster = Cluster::new(id, &broker);
        // One gives addresses to all services, and each has two of them for three services.
        cluster.config.gives_clusterset_ips = number == 0;
        // And one imports services of a namespace that it does not have.
        cluster.config.imports_missing_namespaces = number == 2;
        let blocks = [format!("243.0.{number}.0/30"), format!("fd00:243::{number}:0/126")];
        cluster.config.clusterset_ip_cidrs = blocks.map(|block| block.parse().unwrap()).to_vec();
        let ranges = ["243.0.0.0/8", "fd00:243::/64"];
        cluster.config.clusterset_ip_ranges = ranges.map(|range| range.parse().unwrap()).to_vec();
        cluster.run();
        cluster
    };
    let mut all: Vec<Cluster> = IDS.iter().enumerate().map(start).collect();
    for (cluster, event, wait) in events {
        happen(&mut all[cluster], event);
        sleep(Duration::from_millis(u64::from(wait))).await;
        ips(&broker, true);
        ips(&broker, false);
    }
    let stores: Vec<ApiStore> =
        all.iter().map(|cluster| cluster.store.clone()).chain([broker.clone()]).collect();
    for store in &stores {
        store.0.set_fault(Fault::None);
        store.0.break_watches();
    }
    for cluster in &mut all {
        if cluster.agent.is_none() {
            cluster.run();
        }
    }
    // Longer than any wait of the runner, and than a broker is not believed that has lost everybody.
    sleep(Duration::from_secs(300)).await;
    check(&broker, &all);
    stores.iter().for_each(|store| drop(store.writes()));
    sleep(Duration::from_secs(600)).await;
    let writes: Vec<_> = stores.iter().flat_map(ApiStore::writes).collect();
    assert_eq!(writes, Vec::<String>::new(), "at rest");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_stores_say_in_the_end_what_is_exported(
        events in proptest::collection::vec((0..IDS.len(), event(), 0..3000_u16), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(events));
    }
}
