use std::collections::BTreeSet;

use trieste_control::live_networks::{Source, TrackedLists};

use super::super::names::{
    DISCOVERY_AGENT, DISCOVERY_DNS, OPERATOR, PLUGIN_SYNC, PLUGIN_SYNC_LOCK, SPIDERPOOL_SYNC,
    SPIDERPOOL_SYNC_LOCK,
};
use super::*;

fn every_right() -> Vec<Right> {
    let of_accounts = ACCOUNTS
        .iter()
        .chain([&OVN_ACCOUNT, &CALICO_ACCOUNT, &SPIDERPOOL_ACCOUNT])
        .flat_map(|account| account.here.iter().chain(account.beside).chain(account.everywhere));
    let of_globalnet = GLOBALNET_HERE.iter().chain(GLOBALNET_EVERYWHERE);
    let of_clusterset = CLUSTERSET_HERE.iter().chain(CLUSTERSET_EVERYWHERE);
    let of_broker = MEMBER.iter().chain(UPSTREAM_MEMBER).chain(BROKER_ADMINISTRATOR);
    let of_discovery = DISCOVERY_ACCOUNTS
        .iter()
        .flat_map(|account| account.here.iter().chain(account.beside).chain(account.everywhere));
    of_accounts
        .chain(of_discovery)
        .chain(DISCOVERY_GLOBALNET)
        .chain(NODE_TAINT)
        .chain(PLUGIN_ROUTES_HERE)
        .chain(NETWORK_MAPS.iter().map(|(_, right)| right))
        .chain(of_globalnet)
        .chain(of_clusterset)
        .chain(of_broker)
        .chain([OPERATOR_OWN, OPERATOR_INSIDE, OPERATOR_DNS, OPERATOR_EVERYWHERE].into_iter().flatten())
        .copied()
        .collect()
}

#[test]
fn every_right_has_a_reason_and_names_what_it_is_about() {
    for right in every_right() {
        assert!(right.reason.split(' ').count() >= 4, "{right:?}");
        assert!(!right.resources.is_empty() && !right.verbs.is_empty(), "{right:?}");
        let words = right.resources.iter().chain(right.verbs).chain(right.names);
        assert!(words.chain([&right.group]).all(|word| !word.contains('*')), "{right:?}");
        assert!(!right.verbs.contains(&"escalate") && !right.verbs.contains(&"impersonate"), "{right:?}");
        // Names restrict neither of these.
        let is_named = !right.names.is_empty();
        assert!(!is_named || !right.verbs.iter().any(|verb| matches!(*verb, "create" | "deletecollection")));
    }
}

#[test]
fn in_a_members_cluster_nobody_reads_secrets_and_only_nodes_and_services_are_read_outside_of_the_namespace() {
    for account in ACCOUNTS.into_iter().chain([OVN_ACCOUNT]) {
        for right in account.here.iter().chain(account.beside).chain(account.everywhere) {
            assert!(!right.resources.contains(&"secrets"), "{right:?}");
        }
        for right in account.everywhere {
            let is_public =
                matches!(right.resources, ["nodes"] | ["services"] | ["endpointslices"] | ["servicecidrs"]);
            let only_reads = right.verbs.iter().all(|verb| matches!(*verb, "get" | "list" | "watch"));
            assert!(is_public && only_reads, "{right:?}");
        }
    }
    assert!(GLOBALNET_EVERYWHERE.iter().all(|right| !right.resources.contains(&"secrets")));
}

#[test]
fn service_discovery_has_accounts_where_it_is_and_the_dns_server_only_reads() {
    let mut options = crate::objects::example();
    options.declines_service_discovery = true;
    let named = |options: &MemberOptions, name: &str| {
        member(options).iter().filter(|manifest| manifest.name() == name).count()
    };
    assert_eq!(named(&options, DISCOVERY_AGENT) + named(&options, DISCOVERY_DNS), 0);
    options.declines_service_discovery = false;
    assert_eq!((named(&options, DISCOVERY_AGENT), named(&options, DISCOVERY_DNS)), (5, 3));
    let [agent, dns] = DISCOVERY_ACCOUNTS;
    assert!(dns.everywhere.iter().all(|right| right.verbs == ["list", "watch"]));
    let of_agent = || agent.here.iter().chain(agent.everywhere);
    assert!(of_agent().all(|right| !right.resources.contains(&"secrets")));
    let writes = |right: &&Right| right.verbs.iter().any(|verb| !matches!(*verb, "get" | "list" | "watch"));
    let written: Vec<&str> =
        agent.everywhere.iter().filter(writes).flat_map(|right| right.resources).copied().collect();
    assert_eq!(
        written,
        [
            "endpointslices",
            "endpointslices/restricted",
            "serviceexports/status",
            "serviceimports/status",
            "serviceimports",
            "events",
        ]
    );
}

#[test]
fn route_agents_read_imports_and_gateways_where_there_are_clusterset_ips_and_are_told_the_range() {
    let mut options = crate::objects::example();
    let of = |options: &MemberOptions| -> (Vec<String>, bool) {
        let all = crate::objects::member(options);
        let named = all.iter().filter(|manifest| manifest.name() == CLUSTERSET_IP);
        let is_told = |manifest: &Manifest| {
            manifest.name() == ROUTE_AGENT && manifest.to_yaml().contains("TRIESTE_CLUSTERSET_IP_RANGE")
        };
        (named.map(Manifest::to_yaml).collect(), all.iter().any(is_told))
    };
    assert_eq!(of(&options), (Vec::new(), false));
    options.clusterset_ip_ranges = vec!["243.0.0.0/8".parse().unwrap()];
    let (named, is_told) = of(&options);
    assert!(named.len() == 4 && is_told);
    let bindings: Vec<&String> = named.iter().filter(|manifest| manifest.contains("subjects")).collect();
    assert!(bindings.len() == 2 && bindings.iter().all(|binding| binding.contains(ROUTE_AGENT)));
}

#[test]
fn globalnets_rights_are_given_where_there_is_globalnet_and_to_the_gateway_alone() {
    let named = |has_globalnet| -> Vec<String> {
        let mut options = crate::objects::example();
        if has_globalnet {
            options.global_cidrs.push("242.0.0.0/16".parse().unwrap());
        }
        let manifests = member(&options);
        let named = manifests.iter().filter(|manifest| manifest.name() == GLOBALNET);
        named.map(|manifest| manifest.to_yaml()).collect()
    };
    assert!(named(false).is_empty());
    let named = named(true);
    assert_eq!(named.len(), 4);
    let bindings: Vec<&String> = named.iter().filter(|manifest| manifest.contains("subjects")).collect();
    assert!(bindings.len() == 2 && bindings.iter().all(|binding| binding.contains(GATEWAY)));
}

#[test]
fn plugin_ovn_rights_are_given_with_ovn_kubernetes_alone_and_none_in_the_plugins_namespace() {
    let mut options = crate::objects::example();
    let named = |options: &MemberOptions| -> Vec<Manifest> {
        let is_it = |manifest: &Manifest| [PLUGIN_SYNC, PLUGIN_ROUTES].contains(&manifest.name());
        let rights = member(options).into_iter().filter(is_it);
        rights.collect()
    };
    for plugin in ["", "generic", "canal-flannel", "kindnet"] {
        options.network_plugin = plugin.to_owned();
        assert!(named(&options).is_empty(), "{plugin}");
    }
    options.network_plugin = "OVNKubernetes".to_owned();
    let rights = named(&options);
    let kinds: Vec<&str> = rights.iter().map(Manifest::kind).collect();
    let wanted =
        ["ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Role", "RoleBinding"];
    assert_eq!(kinds, wanted);
    let namespace = |manifest: &Manifest| manifest.as_value()["metadata"]["namespace"].clone();
    assert!(
        rights.iter().all(|manifest| [json!(options.namespace), Value::Null].contains(&namespace(manifest)))
    );
    let routes = rights.last().unwrap();
    assert_eq!(
        (routes.name(), &routes.as_value()["subjects"][0]["name"]),
        (PLUGIN_ROUTES, &json!(ROUTE_AGENT))
    );
    // A worker changes nothing but the Lease of its own.
    let writes = |right: &&Right| right.verbs.iter().any(|verb| !matches!(*verb, "get" | "list" | "watch"));
    let of_worker = || OVN_ACCOUNT.here.iter().chain(OVN_ACCOUNT.everywhere).filter(writes);
    assert!(of_worker().all(|right| right.resources == ["leases"]));
    assert!(of_worker().all(|right| right.verbs == ["create"] || right.names == [PLUGIN_SYNC_LOCK]));
}

#[test]
fn plugin_calico_rights_are_to_write_pools_and_one_lease() {
    let mut options = crate::objects::example();
    options.network_plugin = "Calico".to_owned();
    let rights: Vec<Manifest> = member(&options)
        .into_iter()
        .filter(|manifest| [PLUGIN_SYNC, PLUGIN_ROUTES].contains(&manifest.name()))
        .collect();
    let kinds: Vec<&str> = rights.iter().map(Manifest::kind).collect();
    let wanted =
        ["ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Role", "RoleBinding"];
    assert_eq!(kinds, wanted, "as with OVN-Kubernetes, so that one replaces the other");
    let verbs = json!(["get", "list", "watch", "create", "update", "delete"]);
    let pools = ["projectcalico.org", "crd.projectcalico.org"]
        .map(|group| json!({"apiGroups": [group], "resources": ["ippools"], "verbs": verbs}));
    assert_eq!(rights[2].as_value()["rules"], json!(pools));
    let writes = |right: &&Right| right.verbs.iter().any(|verb| !matches!(*verb, "get" | "list" | "watch"));
    for right in CALICO_ACCOUNT.here.iter().filter(writes) {
        assert_eq!(right.resources, ["leases"]);
        assert!(right.verbs == ["create"] || right.names == [PLUGIN_SYNC_LOCK], "{right:?}");
    }
    assert!(CALICO_ACCOUNT.beside.is_empty());
}

#[test]
fn plugin_spiderpool_rights_are_to_update_lists_and_one_lease() {
    let mut options = crate::objects::example();
    options.has_spiderpool = true;
    let rights: Vec<Manifest> =
        member(&options).into_iter().filter(|manifest| manifest.name() == SPIDERPOOL_SYNC).collect();
    let kinds: Vec<&str> = rights.iter().map(Manifest::kind).collect();
    assert_eq!(kinds, ["ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"]);
    let rule = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": ["spiderpool.spidernet.io"], "resources": resources, "verbs": verbs});
    let rules = json!([
        rule(&["spidercoordinators", "spidermultusconfigs"], &["get", "list", "watch", "update"]),
        rule(&["spiderippools"], &["get", "list", "watch"]),
    ]);
    assert_eq!(rights[2].as_value()["rules"], rules);
    let writes = |right: &&Right| right.verbs.iter().any(|verb| !matches!(*verb, "get" | "list" | "watch"));
    for right in SPIDERPOOL_ACCOUNT.here.iter().filter(writes) {
        assert_eq!(right.resources, ["leases"]);
        assert!(right.verbs == ["create"] || right.names == [SPIDERPOOL_SYNC_LOCK], "{right:?}");
    }
    assert!(SPIDERPOOL_ACCOUNT.beside.is_empty());
}

#[test]
fn plugin_cilium_route_agents_may_read_its_nodes_and_with_no_other_plugin() {
    let rules = |plugin: &str, node_taint: bool| {
        let options =
            MemberOptions { network_plugin: plugin.to_owned(), node_taint, ..crate::objects::example() };
        let role = member(&options).into_iter();
        let mut role = role.filter(|one| (one.kind(), one.name()) == ("ClusterRole", ROUTE_AGENT));
        role.next().unwrap().as_value()["rules"].to_string()
    };
    for (plugin, taint) in [("cilium", false), ("Cilium", true)] {
        assert!(rules(plugin, taint).contains("ciliumnodes"), "{plugin}");
    }
    assert!(!rules("generic", true).contains("ciliumnodes") && rules("cilium", true).contains("update"));
}

#[test]
fn gateways_may_read_the_objects_in_which_networks_were_found_and_no_others() {
    let rules = |sources: &[Source]| {
        let mut options = crate::objects::example();
        options.followed = TrackedLists(sources.iter().map(|source| (*source, BTreeSet::new())).collect());
        let mut role =
            member(&options).into_iter().filter(|one| (one.kind(), one.name()) == ("ClusterRole", GATEWAY));
        role.next().unwrap().as_value()["rules"].to_string()
    };
    for (sources, pools, network) in [
        (&[Source::ServiceCidrs][..], false, false),
        (&[Source::CiliumPools], true, false),
        (&[Source::OpenShiftPods], false, true),
        (&[Source::CiliumPools, Source::OpenShiftServices], true, true),
    ] {
        let rules = rules(sources);
        let has = ["ciliumpodippools", "config.openshift.io"].map(|word| rules.contains(word));
        assert_eq!(has, [pools, network], "{sources:?}");
    }
}

#[test]
fn gateways_may_read_the_one_config_map_in_which_networks_were_found_in_its_namespace_alone() {
    let rules = |sources: &[Source]| -> Vec<String> {
        let mut options = crate::objects::example();
        options.followed = TrackedLists(sources.iter().map(|source| (*source, BTreeSet::new())).collect());
        let all = member(&options).into_iter().filter(|one| one.name() == names::NETWORK_MAPS);
        let shown = |one: Manifest| match one.kind() {
            "Role" => {
                let rules = one.as_value()["rules"].as_array().unwrap().iter();
                let objects: Vec<&str> =
                    rules.map(|rule| rule["resourceNames"][0].as_str().unwrap()).collect();
                format!("{}: {}", one.namespace().unwrap(), objects.join(" "))
            }
            _ => {
                assert_eq!(one.as_value()["subjects"][0]["name"], GATEWAY, "{one}");
                assert_eq!(one.as_value()["subjects"][0]["namespace"], json!(options.namespace), "{one}");
                "bound".to_owned()
            }
        };
        all.map(shown).collect()
    };
    for (sources, expected) in [
        (&[Source::ServiceCidrs, Source::CiliumPools][..], &[][..]),
        (&[Source::FlannelMap], &["kube-flannel: kube-flannel-cfg", "bound"]),
        (
            &[Source::FlannelSystemMap, Source::KubeadmServicesMap],
            &["kube-system: kube-flannel-cfg kubeadm-config", "bound"],
        ),
        (&[Source::OvnPodsMap, Source::OvnServicesMap], &["ovn-kubernetes: ovn-config", "bound"]),
    ] {
        assert_eq!(rules(sources), expected, "{sources:?}");
    }
    let mut options = crate::objects::example();
    for source in Source::ALL {
        options.followed.0 = [(source, BTreeSet::new())].into();
        let has = member(&options).iter().any(|one| one.name() == names::NETWORK_MAPS);
        assert_eq!(has, source.object().is_some(), "{source:?}");
    }
}

/// Every right as a line of the documentation.
fn lines() -> Vec<String> {
    let line = |who: &str, place: &str, right: &Right| {
        let code =
            |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let group = if right.group.is_empty() { "" } else { &format!(" of `{}`", right.group) };
        let names = if right.names.is_empty() { "" } else { &format!(" called {}", code(right.names)) };
        let (what, verbs) = (code(right.resources), right.verbs.join(", "));
        format!("| `{who}` | {place} | {what}{group}{names} | {verbs} | {} |", right.reason)
    };
    let mut lines = Vec::new();
    let workers = [&OVN_ACCOUNT, &CALICO_ACCOUNT, &SPIDERPOOL_ACCOUNT];
    let accounts = ACCOUNTS.iter().chain(workers).chain(&DISCOVERY_ACCOUNTS);
    for Account { name, here, beside, everywhere } in accounts {
        lines.extend(here.iter().map(|right| line(name, "namespace", right)));
        lines.extend(beside.iter().map(|right| line(name, "paths' namespace", right)));
        lines.extend(everywhere.iter().map(|right| line(name, "cluster", right)));
    }
    lines.extend(DISCOVERY_GLOBALNET.iter().map(|right| line(DISCOVERY_AGENT, "cluster", right)));
    lines.extend(PLUGIN_ROUTES_HERE.iter().map(|right| line(PLUGIN_ROUTES, "namespace", right)));
    lines.extend(CILIUM_NODES.iter().map(|right| line(ROUTE_AGENT, "cluster", right)));
    let of_networks = [CALICO_POOLS, CILIUM_POOLS, OPENSHIFT_NETWORK].concat();
    lines.extend(of_networks.iter().map(|right| line(GATEWAY, "cluster", right)));
    let of_maps = NETWORK_MAPS.iter();
    lines.extend(of_maps.map(|(place, right)| line(names::NETWORK_MAPS, &format!("`{place}`"), right)));
    lines.extend(NODE_TAINT.iter().map(|right| line(ROUTE_AGENT, "cluster", right)));
    lines.extend(GLOBALNET_HERE.iter().map(|right| line(GLOBALNET, "namespace", right)));
    lines.extend(GLOBALNET_EVERYWHERE.iter().map(|right| line(GLOBALNET, "cluster", right)));
    lines.extend(CLUSTERSET_HERE.iter().map(|right| line(CLUSTERSET_IP, "namespace", right)));
    lines.extend(CLUSTERSET_EVERYWHERE.iter().map(|right| line(CLUSTERSET_IP, "cluster", right)));
    let roles = [
        (MEMBER_ROLE, MEMBER),
        (UPSTREAM_MEMBER_ROLE, UPSTREAM_MEMBER),
        (BROKER_ADMIN, BROKER_ADMINISTRATOR),
    ];
    for (role, rights) in roles {
        lines.extend(rights.iter().map(|right| line(role, "broker's namespace", right)));
    }
    let of_operator = [
        ("operator's namespace", OPERATOR_OWN),
        ("each of the three", OPERATOR_INSIDE),
        ("`kube-system`", OPERATOR_DNS),
        ("cluster", OPERATOR_EVERYWHERE),
    ];
    for (place, rights) in of_operator {
        lines.extend(rights.iter().map(|right| line(OPERATOR, place, right)));
    }
    lines
}

#[test]
fn the_documentation_has_every_right_with_its_reason_and_no_other() {
    let page = include_str!("../../../../../docs/operations/deployment.md");
    let is_right = |line: &&str| {
        let places =
            ["namespace", "paths' namespace", "cluster", "broker's namespace", "operator's namespace"];
        [places.as_slice(), &["each of the three", "`kube-system`", "`kube-flannel`", "`ovn-kubernetes`"]]
            .concat()
            .iter()
            .any(|place| line.contains(&format!(" | {place} | ")))
    };
    let found: Vec<&str> = page.lines().filter(is_right).collect();
    let wanted = lines();
    assert_eq!(found, wanted, "docs/operations/deployment.md is to have these lines:\n{}", wanted.join("\n"));
}
