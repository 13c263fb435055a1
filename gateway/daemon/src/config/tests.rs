use std::ffi::{OsStr, OsString};

use clap::Parser as _;
use trieste_control::requirements::{Deliverer, PLUGINS, promise};

use std::path::Path;

use super::*;

const MINIMAL: &str = "cluster-id: a\ncluster-cidrs: [10.1.0.0/16, 'fd01::/64']\n";

fn resolve(text: &str) -> Result<Config, String> {
    Options::parse_file(text)?.resolve().map_err(|error| error.to_string())
}

#[test]
fn a_minimal_file_is_enough() {
    let config = resolve(MINIMAL).unwrap();
    assert_eq!((config.udp_port, config.workers, config.metrics_port), (4500, 1, Some(32_780)));
    assert_eq!(config.networks.pods.len(), 2);
    assert_eq!(config.store, Location::Dir("/var/lib/trieste/store".into()));
    assert_eq!(config.psk, None);
}

#[test]
fn mistakes_are_named_with_their_key() {
    for (text, expected) in [
        ("cluster-cidrs: [10.1.0.0/16]", "cluster-id is missing"),
        ("cluster-id: a", "cluster-cidrs is missing"),
        ("cluster-id: A_b\ncluster-cidrs: [10.1.0.0/16]", "cluster-id"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/33]", "10.1.0.0/33"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nclustr-id: b", "clustr-id"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nservice-cidrs: [10.1.2.0/24]", "overlaps"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nworkers: 0", "workers"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nudp-port: 70000", "70000"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\ndisable-offloads: [tso]", "`tso` is none of"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nbroker: /tmp/x", "dir:PATH"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\ntun-mtu: 500", "1280"),
        ("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\npsk: x\npsk-file: y", "both"),
        ("- a\n- b", ""),
    ] {
        let error = resolve(text).expect_err(text);
        assert!(error.contains(expected), "{text:?} gave {error:?}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let line = [
        "trieste-gateway",
        "--cluster-id",
        "flag",
        "--cpus",
        "off",
        "--service-cidrs",
        "100.1.0.0/16,100.2.0.0/16",
    ];
    let flags = CommandLine::try_parse_from(line).unwrap().options;
    let config = flags.or(Options::parse_file(MINIMAL).unwrap()).resolve().unwrap();
    assert_eq!(config.cluster_id, "flag");
    assert_eq!(config.cpus, Some(Cpus::Off));
    assert_eq!(config.networks.services.len(), 2);
}

#[test]
fn an_empty_variable_says_nothing() {
    let line = ["trieste-gateway", "--cluster-id", "a", "--cluster-cidrs", "10.1.0.0/16"].map(OsString::from);
    let empty = |_: &OsStr| Some(OsString::new());
    let config = CommandLine::from_flags_and_environment(line, empty).unwrap().options.resolve().unwrap();
    assert_eq!((config.udp_port, config.workers), (4500, 1));
}

#[test]
fn the_ipsec_cable_has_upstreams_name_whatever_it_was_called() {
    let driver = |text: &str| resolve(&format!("{MINIMAL}{text}\n")).unwrap().cable_driver;
    let names = ["", "cable-driver: ipsec", "cable-driver: Libreswan", "cable-driver: ''"].map(driver);
    assert_eq!(names, ["wireguard", "libreswan", "libreswan", "libreswan"]);
    let empty = Options { cable_driver: Some(String::new()), ..Options::default() };
    let file = Options::parse_file(&format!("{MINIMAL}cable-driver: wireguard\n")).unwrap();
    assert_eq!(empty.or(file).resolve().unwrap().cable_driver, "wireguard", "an empty variable names none");
}

#[test]
fn the_former_driver_is_another_one_and_has_the_same_names() {
    let former = |text: &str| resolve(&format!("{MINIMAL}{text}\n")).unwrap().former_cable_driver;
    assert_eq!(former("former-cable-driver: IPsec").as_deref(), Some("libreswan"));
    for none in ["", "former-cable-driver: ''", "former-cable-driver: WireGuard"] {
        assert_eq!(former(none), None, "{none}");
    }
    let config = resolve(&format!("{MINIMAL}former-cable-driver: vxlan\n")).unwrap();
    assert!(config.has_driver("wireguard") && config.has_driver("vxlan") && !config.has_driver("libreswan"));
}

#[test]
fn the_psk_is_never_printed() {
    let config = resolve(&format!("{MINIMAL}psk: verysecret")).unwrap();
    assert!(!format!("{config:?}").contains("verysecret"));
    let options = Options::parse_file("psk: verysecret").unwrap();
    assert!(!format!("{options:?}").contains("verysecret"));
}

#[test]
fn upstreams_environment_is_a_configuration() {
    let environment = include_str!("../../tests/data/upstream-gateway.env");
    let variables: std::collections::BTreeMap<&str, &str> =
        environment.lines().filter_map(|line| line.split_once('=')).collect();
    let flag = |name: &str, variable: &str| [name.to_owned(), variables[variable].to_owned()];
    let line = [
        flag("--cluster-id", "SUBMARINER_CLUSTERID"),
        flag("--cluster-cidrs", "SUBMARINER_CLUSTERCIDR"),
        flag("--service-cidrs", "SUBMARINER_SERVICECIDR"),
        flag("--broker-kind", "SUBMARINER_BROKER"),
        flag("--broker-server", "BROKER_K8S_APISERVER"),
        flag("--broker-token", "BROKER_K8S_APISERVERTOKEN"),
        flag("--broker-secret", "BROKER_K8S_SECRET"),
        flag("--air-gapped", "AIR_GAPPED_DEPLOYMENT"),
        flag("--kubernetes-service-host", "KUBERNETES_SERVICE_HOST"),
    ];
    let line = std::iter::once("trieste-gateway".to_owned()).chain(line.into_iter().flatten());
    let config = CommandLine::try_parse_from(line).unwrap().options.resolve().unwrap();
    assert!(!matches!(config.store, Location::Dir(_)), "in a pod the store is the cluster's");
    assert!(config.air_gapped);
    let Some(Broker::Kubernetes(server)) = config.broker else { panic!("no broker") };
    assert_eq!(server.server, "172.31.0.10:17443");
    assert_eq!(server.secret_dir, None);
    assert_eq!(config.nat_discovery_port, 4490);
}

#[test]
fn the_broker_is_named_by_location_or_by_upstreams_settings() {
    let with = |line: &str| resolve(&format!("{MINIMAL}{line}\n"));
    assert!(with("").unwrap().broker.is_none());
    assert!(matches!(with("broker: dir:/b").unwrap().broker, Some(Broker::At(_))));
    let Some(Broker::Kubernetes(server)) =
        with("broker-server: b:6443\nbroker-secret: submariner-broker-secret").unwrap().broker
    else {
        panic!("no broker")
    };
    assert_eq!(server.secret_dir.unwrap(), Path::new("/run/secrets/submariner.io/submariner-broker-secret"));
    let error = with("broker: k8s").err().unwrap();
    assert!(error.contains("broker-server is missing"), "{error}");
    let error = with("broker-kind: etcd").err().unwrap();
    assert!(error.contains("only k8s"), "{error}");
}

#[test]
fn times_of_zero_are_defaults_and_nonsense_is_refused() {
    let with = |line: &str| resolve(&format!("{MINIMAL}{line}\n"));
    let config = with("lease-duration: 0\nhealth-check-interval: 0\nhealth-check-max-loss: 0").unwrap();
    assert_eq!(config.election.lease_duration(), Duration::from_secs(15));
    let check = config.health_check.unwrap();
    assert_eq!((check.interval, check.max_loss), (Duration::from_secs(1), 5));
    assert!(with("lease-duration: 10").err().unwrap().contains("lease-duration"));
    assert!(with("retry-period: 10").err().unwrap().contains("retry"));
    assert!(with("health-check: false").unwrap().health_check.is_none());
}

#[test]
fn globalnet_publishes_its_cidrs_alone() {
    let config = resolve(&format!("{MINIMAL}service-cidrs: [100.1.0.0/16]\n")).unwrap();
    assert_eq!(config.networks.published()[0], "100.1.0.0/16".parse().unwrap());
    let config = resolve(&format!("{MINIMAL}global-cidrs: [242.1.0.0/16]\n")).unwrap();
    assert_eq!(config.networks.published(), ["242.1.0.0/16".parse().unwrap()]);
}

#[test]
fn one_gateway_is_active_where_the_plugin_gives_addresses_unless_somebody_says_otherwise() {
    for (lines, all) in [
        ("", true),
        ("network-plugin: kindnet\n", true),
        ("network-plugin: Calico\n", false),
        ("network-plugin: weave-net\n", false),
        ("network-plugin: calico\nactive-gateways: all\n", true),
        ("active-gateways: one\n", false),
    ] {
        let config = resolve(&format!("{MINIMAL}{lines}")).unwrap();
        assert_eq!(config.all_gateways_active, all, "{lines}");
        assert_eq!(
            config.own_addressing.is_some(),
            lines.to_lowercase().contains("calico") || lines.contains("weave")
        );
    }
}

#[test]
fn plugin_promises_are_what_a_gateway_goes_by_with_each_plugin() {
    for (plugin, _) in PLUGINS {
        let config = resolve(&format!("{MINIMAL}network-plugin: {plugin}\n")).unwrap();
        let promised = promise(plugin);
        assert_eq!(config.all_gateways_active, promised.has_several_gateways, "{plugin}");
        let is_delivered = promised.delivery == Deliverer::Plugin;
        assert_eq!(config.own_addressing.as_deref(), is_delivered.then_some(plugin));
    }
}

#[test]
fn a_weight_is_from_1_to_1000() {
    let weight = |lines: &str| resolve(&format!("{MINIMAL}{lines}")).map(|config| config.weight);
    assert_eq!(weight(""), Ok(None));
    assert_eq!(weight("weight: 250\n"), Ok(Some(250)));
    for wrong in ["0", "1001"] {
        let error = weight(&format!("weight: {wrong}\n")).unwrap_err();
        assert!(error.contains("weight") && error.contains("1 to 1000"), "{error}");
    }
}

#[test]
fn outer_packets_go_through_sockets_unless_another_way_is_named() {
    let io = |line: &str| {
        Options::parse_file(&format!("{MINIMAL}{line}")).map(|options| options.resolve().unwrap().io)
    };
    assert_eq!(io("").unwrap(), OuterIo::Sockets);
    for (word, way) in [("sockets", OuterIo::Sockets), ("af-xdp", OuterIo::AfXdp), ("auto", OuterIo::Auto)] {
        assert_eq!(io(&format!("io: {word}\n")).unwrap(), way);
        assert_eq!(word.parse(), Ok(way));
    }
    assert!(io("io: dpdk\n").is_err() && "dpdk".parse::<OuterIo>().is_err());
}
