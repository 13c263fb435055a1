//! How rules and ports are read, and what happens between reading and writing.

use super::*;
use crate::provider::Provider as _;
use crate::rhos::group::{Family, Group, GroupRef, GroupRule, Remote};
use crate::rhos::port::Port;
use crate::rhos::{CloudChange, MADE_BY};
use crate::rules::Traffic;

fn group_with(description: &str, rule: &Value) -> Group {
    let group = json!({"id": "g", "name": "n", "description": description, "security_group_rules": [rule]});
    Group::parse(&group).unwrap()
}

#[test]
fn rules_are_read_whatever_their_form() {
    let everywhere = |text: &str| Remote::Network(text.parse().unwrap());
    let group = |id: &str| Remote::Group(GroupRef { name: id.to_owned(), id: Some(id.to_owned()) });
    let udp = |family, remote| GroupRule { family, traffic: Traffic::Udp(4500), remote };
    let esp = |remote| GroupRule { family: Family::V4, traffic: Traffic::Esp, remote };
    let ports = r#""port_range_min": 4500, "port_range_max": 4500"#;
    let table = [
        (
            format!(r#""ethertype": "IPv4", "protocol": "udp", {ports}"#),
            Some(udp(Family::V4, everywhere("0.0.0.0/0"))),
        ),
        (
            format!(r#""ethertype": "IPv6", "protocol": "17", {ports}"#),
            Some(udp(Family::V6, everywhere("::/0"))),
        ),
        (
            format!(r#""ethertype": "IPv4", "protocol": "UDP", {ports}, "remote_ip_prefix": "192.0.2.9/24""#),
            Some(udp(Family::V4, everywhere("192.0.2.0/24"))),
        ),
        (
            format!(r#""ethertype": "IPv4", "protocol": "udp", {ports}, "remote_group_id": "h""#),
            Some(udp(Family::V4, group("h"))),
        ),
        (format!(r#""ethertype": "IPv4", "protocol": "udp", {ports}, "remote_address_group_id": "a""#), None),
        (format!(r#""ethertype": "IPv4", "protocol": "tcp", {ports}"#), None),
        (format!(r#""ethertype": "IPv4", "protocol": null, {ports}"#), None),
        (r#""ethertype": "IPv4", "protocol": "50""#.to_owned(), Some(esp(everywhere("0.0.0.0/0")))),
        (r#""ethertype": "IPv4", "protocol": "esp", "remote_ip_prefix": "nonsense""#.to_owned(), None),
        (
            r#""ethertype": "IPv4", "protocol": "udp", "port_range_min": 1, "port_range_max": 65535"#
                .to_owned(),
            None,
        ),
        (
            r#""ethertype": "IPv4", "protocol": "udp", "port_range_min": 70000, "port_range_max": 70000"#
                .to_owned(),
            None,
        ),
        (r#""ethertype": "IPX", "protocol": "esp""#.to_owned(), None),
    ];
    for (fields, wanted) in table {
        let rule =
            serde_json::from_str(&format!(r#"{{"id": "r", "direction": "ingress", {fields}}}"#)).unwrap();
        let found = group_with("", &rule).rules.remove(0);
        match (&found.rule, &wanted) {
            (Some(found), Some(wanted)) => assert!(found.equals(wanted), "{fields}: {found:?}"),
            (found, wanted) => assert_eq!(found, wanted, "{fields}"),
        }
        assert!(!found.is_prepared, "{fields}");
    }
}

#[test]
fn only_what_a_preparation_made_is_taken_for_it() {
    let rule = |more: Value| {
        let mut rule = json!({"id": "r", "direction": "ingress", "ethertype": "IPv4", "protocol": "esp"});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let table = [
        ("", json!({"description": MADE_BY}), true),
        ("Submariner Gateway", json!({"remote_ip_prefix": "0.0.0.0/0"}), true),
        ("Submariner Gateway", json!({"protocol": "ah", "remote_ip_prefix": "0.0.0.0/0"}), true),
        ("Submariner Internal", json!({"remote_group_id": "g"}), true),
        ("Submariner Internal", json!({"remote_group_id": "h"}), false),
        ("Submariner Gateway", json!({"remote_ip_prefix": "10.0.0.0/8"}), false),
        ("Submariner Gateway", json!({"description": "for my own purposes"}), false),
        ("Submariner Gateway", json!({"ethertype": "IPv6"}), false),
        ("Submariner Gateway", json!({"direction": "egress"}), false),
        ("Submariner Gateway", json!({"direction": "egress", "protocol": "ah"}), false),
        ("Submariner Gateway", json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}), false),
        ("Created By OpenShift Installer", json!({}), false),
    ];
    for (description, more, wanted) in table {
        let found = group_with(description, &rule(more.clone()));
        assert_eq!(found.rules[0].is_prepared, wanted, "{description}: {more}");
    }
}

#[test]
fn ports_are_public_by_floating_ip_or_address() {
    let floating = ["f".to_owned()].into_iter().collect();
    let table = [
        ("f", "192.168.0.1", true),
        ("p", "192.168.0.1", false),
        ("p", "100.64.0.1", false),
        ("p", "100.128.0.1", true),
        ("p", "169.254.1.1", false),
        ("p", "8.8.8.8", true),
        ("p", "fd00::1", false),
        ("p", "2001:db8::1", true),
        ("p", "nonsense", false),
    ];
    for (id, address, wanted) in table {
        let port = json!({"id": id, "device_id": "s", "device_owner": "compute:az-a", "fixed_ips": [{"ip_address": address}]});
        let port = Port::parse(&port, &floating).unwrap();
        assert_eq!((port.is_public, port.takes_groups), (wanted, address != "nonsense"), "{id} {address}");
    }
    assert_eq!(
        Port::parse(&json!({"id": "p", "device_id": "s", "device_owner": "network:dhcp"}), &floating)
            .unwrap()
            .server,
        ""
    );
    assert!(Port::parse(&json!([]), &floating).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_made_or_removed_meanwhile_is_no_error() {
    let mut world = openshift();
    let group = prepare_as_upstream(&mut world, false);
    let played = Played::new(world);
    let server = played.server();
    let rhos = Rhos::new(played.clone(), &server, settings("openstack", None));
    let gateways = GroupRef { name: "east-submariner-gw-sg".to_owned(), id: Some(group) };
    let remote = Remote::Network("203.0.113.0/24".parse().unwrap());
    let rule = GroupRule { family: Family::V4, traffic: Traffic::Esp, remote };
    let attach = |port: &str| CloudChange::Attach {
        port: port.to_owned(),
        owner: String::new(),
        group: gateways.clone(),
    };
    let changes = [
        CloudChange::CreateGroup { name: gateways.name.clone() },
        CloudChange::CreateRule { group: gateways.clone(), rule: rule.clone() },
        CloudChange::CreateRule { group: gateways.clone(), rule },
        CloudChange::DeleteRule {
            group: gateways.name.clone(),
            id: "r-gone".to_owned(),
            what: String::new(),
            waits: false,
        },
        attach("port-gone"),
        attach("port-east-worker-a-1"),
        attach("port-east-worker-a-1"),
        CloudChange::DeleteGroup { name: "gone".to_owned(), id: "g-gone".to_owned() },
    ];
    for change in changes {
        rhos.apply(&change).await.unwrap_or_else(|error| panic!("{change}: {error}"));
    }
    let world = played.world();
    assert_eq!(world.groups.values().filter(|group| group["name"] == gateways.name.as_str()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_outside_of_the_installers_groups_get_one_of_their_own() {
    let mut world = openshift();
    world.add_node("east-extra", "az-a", &["192.168.0.13"], &[]);
    let played = Played::new(world);
    let before = played.snapshot();
    reach(&played, &Goal::Prepare(wanted(1))).await.unwrap();
    assert_eq!(groups_of(&played, "port-east-extra"), ["default", "east-submariner-internal-sg"]);
    assert_eq!(rules_in(&played, "east-worker"), ["IPv4 udp 4500 from east-master"]);
    let machine = groups_of(&played, "port-east-submariner-gw-0-x7k2p");
    assert_eq!(machine, ["east-submariner-gw-sg", "east-submariner-internal-sg", "east-worker"]);
    reach(&played, &Goal::CleanUp).await.unwrap();
    assert_eq!(played.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn ports_of_others_are_not_read_where_filters_are_ignored() {
    let mut world = World { is_old: true, ..kubernetes() };
    let port = json!({"id": "port-other", "device_id": "server-other", "device_owner": "compute:nova",
        "security_groups": [DEFAULT], "fixed_ips": [], "revision_number": 1});
    world.ports.insert("port-other".to_owned(), port);
    prepare_as_upstream(&mut world, false);
    let played = Played::new(world);
    let server = played.server();
    let state =
        Rhos::new(played.clone(), &server, settings("openstack", Some("east"))).observe().await.unwrap();
    let ids: Vec<&str> = state.ports.iter().map(|port| port.id.as_str()).collect();
    assert_eq!(ids, ["port-east-1", "port-east-2", "port-east-3"]);
}
