use serde_json::{Value, json};

use super::super::*;
use super::{config_map, daemon_set, found, nets};

/// Returns a cluster with OVN-Kubernetes whose nodes are of these zones; an empty one is none.
fn cluster(nodes: &[(&str, &str)]) -> Observed {
    let node = |(name, zone): &(&str, &str)| {
        let annotations = match *zone {
            "" => json!({}),
            zone => json!({"k8s.ovn.org/zone-name": zone}),
        };
        json!({"metadata": {"name": name, "annotations": annotations}})
    };
    let mut observed = Observed {
        nodes: nodes.iter().map(node).collect(),
        daemon_sets: vec![daemon_set("ovn-kubernetes", "ovnkube-node", &[])],
        ..Observed::default()
    };
    config_map(&mut observed, "ovn-kubernetes/ovn-config", "net_cidr", "10.128.0.0/14/23,fd01::/48/64");
    observed
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}})
}

/// Returns a pod of the database for all nodes, with OVN-Kubernetes' switch of TLS.
fn database(namespace: &str, tls: Option<&str>) -> Value {
    let env: Vec<Value> = tls.iter().map(|value| json!({"name": "OVN_SSL_ENABLE", "value": value})).collect();
    json!({"metadata": {"namespace": namespace, "name": "ovnkube-db-0", "labels": {"name": "ovnkube-db"}},
        "spec": {"containers": [{"name": "nb-ovsdb", "env": env}]}})
}

fn ovn(observed: &Observed) -> Ovn {
    found(observed).ovn.expect("it is OVN-Kubernetes")
}

#[test]
fn plugin_ovn_zones_are_those_of_the_nodes() {
    let several = |names: &[&str]| Zones::Several(names.iter().map(|name| (*name).to_owned()).collect());
    let cases = [
        (&[][..], Zones::One),
        (&[("n1", ""), ("n2", "")][..], Zones::One),
        (&[("n1", "global"), ("n2", "global")][..], Zones::One),
        (&[("n1", "n1")][..], Zones::OnePerNode),
        (&[("n1", "n1"), ("n2", "n2"), ("n3", "n3")][..], Zones::OnePerNode),
        // One zone that bears the name of a node, of two nodes.
        (&[("n1", "n1"), ("n2", "n1")][..], Zones::One),
        (&[("n1", "east"), ("n2", "east"), ("n3", "n3")][..], several(&["east"])),
        (&[("n1", "n2"), ("n2", "n1")][..], several(&["n1", "n2"])),
        // While interconnect is being rolled out.
        (&[("n1", "n1"), ("n2", "")][..], several(&[""])),
    ];
    for (nodes, wanted) in cases {
        let network = found(&cluster(nodes));
        let layout = network.ovn.unwrap();
        assert_eq!(layout.zones, wanted, "{nodes:?}");
        let is_warned = network.warnings.iter().any(|warning| warning.contains("not every node is one"));
        assert_eq!(is_warned, matches!(wanted, Zones::Several(_)), "{:?}", network.warnings);
    }
    let mut windows = cluster(&[("n1", "n1"), ("w1", "")]);
    windows.nodes[1]["metadata"]["labels"] = json!({"kubernetes.io/os": "windows"});
    assert_eq!(ovn(&windows).zones, Zones::OnePerNode);
}

#[test]
fn plugin_ovn_database_is_found_where_upstream_looks_for_it() {
    let openshift = || service("openshift-ovn-kubernetes", "ovnkube-db");
    let tls = "ssl:ovnkube-db.openshift-ovn-kubernetes.svc.cluster.local:9641";
    let (central, nodes) = ([("n1", ""), ("n2", "")], [("n1", "n1"), ("n2", "n2")]);
    let cases = [
        ("OpenShift", &central, vec![openshift()], vec![], Some(tls)),
        ("both", &central, vec![openshift()], vec![database("ovn-kubernetes", None)], Some(tls)),
        ("OpenShift with interconnect", &nodes, vec![], vec![], None),
        (
            "kind",
            &central,
            vec![],
            vec![database("ovn-kubernetes", Some("no"))],
            Some("tcp:ovnkube-db.ovn-kubernetes:6641"),
        ),
        (
            "no switch",
            &central,
            vec![],
            vec![database("ovn-kubernetes", None)],
            Some("tcp:ovnkube-db.ovn-kubernetes:6641"),
        ),
        ("somebody's pod", &central, vec![], vec![database("aaa", None)], None),
        (
            "TLS",
            &central,
            vec![],
            vec![database("ovn-kubernetes", Some("YES"))],
            Some("ssl:ovnkube-db.ovn-kubernetes:6641"),
        ),
        ("a database left behind", &nodes, vec![openshift()], vec![database("ovn-kubernetes", None)], None),
        (
            "sockets",
            &central,
            vec![service("ovn-kubernetes", "other"), service("else", "ovnkube-db")],
            vec![],
            None,
        ),
    ];
    for (what, nodes, services, database_pods, wanted) in cases {
        let observed = Observed { services, database_pods, ..cluster(nodes) };
        let layout = ovn(&observed);
        assert_eq!(layout.northbound.as_deref(), wanted, "{what}");
        assert!(layout.shown_databases().ends_with(&format!("({})", layout.northbound_source)), "{what}");
    }
}

#[test]
fn plugin_ovn_layout_is_shown_with_its_sources() {
    let shown = |observed: &Observed| [ovn(observed).shown_zones(), ovn(observed).shown_databases()];
    assert_eq!(
        shown(&cluster(&[("n1", "n1"), ("n2", "n2")])),
        [
            "one per node (the nodes' annotation k8s.ovn.org/zone-name)",
            "unix:/var/run/ovn-ic/ovnnb_db.sock (each node's own)"
        ]
    );
    let central = Observed {
        database_pods: vec![database("ovn-kubernetes", None)],
        ..cluster(&[("n1", ""), ("n2", "")])
    };
    assert_eq!(
        shown(&central),
        [
            "one for all nodes (no node has the annotation k8s.ovn.org/zone-name)",
            "tcp:ovnkube-db.ovn-kubernetes:6641 (pod ovn-kubernetes/ovnkube-db-0)"
        ]
    );
    let mixed = shown(&cluster(&[("n1", "n1"), ("n2", ""), ("n3", "x\ny")]));
    assert!(mixed[0].starts_with("several, with several nodes: nodes without a zone, x\\ny ("), "{mixed:?}");
}

#[test]
fn plugin_ovn_cluster_of_two_families_has_the_same_layout_and_other_plugins_have_none() {
    let network = found(&cluster(&[("n1", "n1")]));
    assert_eq!(network.pods.cidrs, nets(&["10.128.0.0/14", "fd01::/48"]));
    assert_eq!(network.ovn.map(|ovn| ovn.zones), Some(Zones::OnePerNode));
    let other = Observed {
        daemon_sets: vec![daemon_set("kube-system", "kindnet", &[])],
        database_pods: vec![database("ovn-kubernetes", None)],
        ..cluster(&[("n1", "n1")])
    };
    assert_eq!(found(&other).ovn, None);
}

#[tokio::test]
async fn plugin_ovn_services_and_pods_of_databases_are_read_in_any_namespace() {
    let fake = crate::server::fake::Fake::default();
    let mut pod = database("ovn", None);
    let mut service = service("openshift-ovn-kubernetes", "ovnkube-db");
    for (object, kind) in [(&mut pod, "Pod"), (&mut service, "Service")] {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(kind);
        fake.put(object.clone());
    }
    let observed = observe(&fake.server()).await.unwrap();
    assert_eq!((observed.services.len(), observed.database_pods.len()), (1, 1));
}
