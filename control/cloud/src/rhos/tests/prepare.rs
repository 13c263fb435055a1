//! Preparations and their ends, case by case.

use super::played::RACING;
use super::*;
use crate::cluster::machine_set_name;
use crate::rules::Ports;

const GATEWAYS: &str = "east-submariner-gw-sg";
const INTERNAL: &str = "east-submariner-internal-sg";
const CABLES: [&str; 8] = [
    "IPv4 esp from 0.0.0.0/0",
    "IPv4 udp 4490 from 0.0.0.0/0",
    "IPv4 udp 4500 from 0.0.0.0/0",
    "IPv4 udp 500 from 0.0.0.0/0",
    "IPv6 esp from ::/0",
    "IPv6 udp 4490 from ::/0",
    "IPv6 udp 4500 from ::/0",
    "IPv6 udp 500 from ::/0",
];

/// Reaches a goal, and reaches it again with nothing left to do.
async fn settle(played: &Played, goal: &Goal) -> (usize, Vec<String>) {
    let outcome = reach(played, goal).await.unwrap();
    let writes = played.world().writes;
    assert_eq!(reach(played, goal).await.unwrap().0, 0);
    assert_eq!(played.world().writes, writes, "the second run writes nothing");
    outcome
}

#[tokio::test(start_paused = true)]
async fn openshift_gets_rules_in_its_own_groups_and_a_machine() {
    let played = Played::new(openshift());
    let before = played.snapshot();
    let (_, remarks) = settle(&played, &Goal::Prepare(wanted(1))).await;
    assert!(remarks.iter().any(|remark| remark.contains("no floating IPs")), "{remarks:?}");
    assert_eq!(rules_in(&played, GATEWAYS), CABLES);
    let inside = |others: &[&str]| {
        let mut all: Vec<String> = others.iter().map(|text| (*text).to_owned()).collect();
        for (port, from) in
            [(4800, "east-master"), (4800, "east-worker"), (4801, "east-master"), (4801, "east-worker")]
        {
            all.push(format!("IPv4 udp {port} from {from}"));
        }
        all.sort();
        all
    };
    assert_eq!(rules_in(&played, "east-worker"), inside(&["IPv4 udp 4500 from east-master"]));
    assert_eq!(rules_in(&played, "east-master"), inside(&["IPv4 udp 4500 from east-worker"]));
    assert!(rules_in(&played, INTERNAL).is_empty());
    let name = machine_set_name("east", "0");
    assert_eq!(groups_of(&played, &format!("port-{name}-x7k2p")), [GATEWAYS, "east-worker"]);
    assert_eq!(groups_of(&played, "port-east-worker-a-1"), ["default", "east-worker"]);
    {
        let world = played.world();
        let value = &world.sets.as_ref().unwrap()[&name]["spec"]["template"]["spec"]["providerSpec"]["value"];
        assert_eq!(
            (&value["flavor"], &value["image"]),
            (&json!("PnTAE.CPU_4_Memory_8192_Disk_50"), &json!("east-rhcos"))
        );
        assert_eq!(value["tags"], json!(["openshiftClusterID=east", "submariner-io-gateway-node"]));
    }
    settle(&played, &Goal::CleanUp).await;
    assert_eq!(played.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn more_machines_are_spread_and_none_is_removed() {
    let played = Played::new(openshift());
    settle(&played, &Goal::Prepare(wanted(1))).await;
    settle(&played, &Goal::Prepare(wanted(3))).await;
    let (_, remarks) = settle(&played, &Goal::Prepare(wanted(2))).await;
    assert!(
        remarks.iter().any(|remark| remark.starts_with("2 gateways are wanted, and there are 3")),
        "{remarks:?}"
    );
    let world = played.world();
    let sets = world.sets.as_ref().unwrap();
    let of = |index: &str| {
        let value =
            &sets[&machine_set_name("east", index)]["spec"]["template"]["spec"]["providerSpec"]["value"];
        (value["availabilityZone"].as_str().unwrap(), value["flavor"].as_str().unwrap())
    };
    let flavor = "PnTAE.CPU_4_Memory_8192_Disk_50";
    assert_eq!([of("0"), of("1"), of("2")], [("az-a", flavor), ("az-b", flavor), ("az-a", flavor)]);
}

#[tokio::test(start_paused = true)]
async fn another_flavor_is_given_to_sets_that_are_there() {
    let played = Played::new(openshift());
    let before = played.snapshot();
    settle(&played, &Goal::Prepare(wanted(1))).await;
    let name = machine_set_name("east", "0");
    let flavor = "/spec/template/spec/providerSpec/value/flavor";
    let mut set = {
        let mut world = played.world();
        let set = world.sets.as_mut().unwrap().get_mut(&name).unwrap();
        set["spec"]["replicas"] = json!(2);
        set["spec"]["template"]["spec"]["providerSpec"]["value"]["rootVolume"] = json!({"diskSize": 77});
        set.clone()
    };
    // No choice is none of another flavor; and of no gateways nothing is chosen.
    for goal in [wanted(1), Wanted { instance: Some("m1.xlarge".to_owned()), ..wanted(0) }] {
        assert_eq!(settle(&played, &Goal::Prepare(goal)).await.0, 0);
    }
    let goal = Goal::Prepare(Wanted { instance: Some("m1.xlarge".to_owned()), ..wanted(2) });
    let (done, remarks) = settle(&played, &goal).await;
    let expected = format!(
        "the machine of MachineSet {name} keeps its type: drain its gateway, then delete the machine, and one of type m1.xlarge is made"
    );
    assert!(done == 1 && remarks.contains(&expected), "{done} {remarks:?}");
    *set.pointer_mut(flavor).unwrap() = json!("m1.xlarge");
    assert_eq!(played.world().sets.as_ref().unwrap()[&name], set);
    let (_, remarks) = settle(&played, &goal).await;
    assert!(!remarks.contains(&expected), "{remarks:?}");
    settle(&played, &Goal::CleanUp).await;
    assert_eq!(played.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn elsewhere_nodes_are_labelled_and_their_ports_get_groups() {
    let mut world = kubernetes();
    world.floating = vec![json!({"id": "f-1", "port_id": "port-east-1"})];
    world.races = 1;
    let unguarded = world.ports.get_mut("port-east-3").unwrap();
    unguarded["port_security_enabled"] = json!(false);
    unguarded["security_groups"] = json!([]);
    let played = Played::new(world);
    let before = played.snapshot();
    let (_, remarks) = settle(&played, &Goal::Prepare(wanted(2))).await;
    assert_eq!(
        groups_of(&played, "port-east-1"),
        ["default", GATEWAYS, INTERNAL, RACING],
        "what others add stays"
    );
    assert_eq!(groups_of(&played, "port-east-2"), ["default", GATEWAYS, INTERNAL]);
    assert!(groups_of(&played, "port-east-3").is_empty(), "a port without port security has none");
    let own =
        ["IPv4 udp 4800 from east-submariner-internal-sg", "IPv4 udp 4801 from east-submariner-internal-sg"];
    assert_eq!(rules_in(&played, INTERNAL), own);
    let without: Vec<&String> =
        remarks.iter().filter(|remark| remark.contains("has no floating IP")).collect();
    assert!(without.len() == 1 && without[0].contains("east-2"), "{remarks:?}");
    settle(&played, &Goal::CleanUp).await;
    assert_eq!(played.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_wanted_any_more_goes_and_what_others_made_stays() {
    let played = Played::new(openshift());
    settle(&played, &Goal::Prepare(wanted(0))).await;
    let others = {
        let mut world = played.world();
        let id = |world: &World, name: &str| {
            world.groups.values().find(|group| group["name"] == name).unwrap()["id"].clone()
        };
        let (gateways, worker) = (id(&world, GATEWAYS), id(&world, "east-worker"));
        let ssh = json!({"security_group_id": gateways, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
            "port_range_min": 22, "port_range_max": 22, "remote_ip_prefix": "10.0.0.0/8"});
        let old = json!({"security_group_id": worker, "direction": "ingress", "ethertype": "IPv4", "protocol": "17",
            "port_range_min": 4810, "port_range_max": 4810, "remote_group_id": worker});
        [world.add_rule(&ssh), world.add_rule(&old)]
    };
    let ports = Ports { natt: 4600, vxlan: 4810, ..Ports::default() };
    let sources = vec!["203.0.113.7/24".parse().unwrap()];
    settle(&played, &Goal::Prepare(Wanted { ports, sources, ..wanted(0) })).await;
    let from = "from 203.0.113.0/24";
    let cables = ["esp", "udp 4490", "udp 4600", "udp 500"].map(|traffic| format!("IPv4 {traffic} {from}"));
    assert_eq!(
        rules_in(&played, GATEWAYS),
        [&cables[..], &["IPv4 tcp 22 from 10.0.0.0/8".to_owned()]].concat().into_sorted()
    );
    let worker = rules_in(&played, "east-worker");
    assert!(worker.contains(&"IPv4 17 4810 from east-worker".to_owned()), "{worker:?}");
    assert!(
        !worker.contains(&"IPv4 udp 4810 from east-worker".to_owned()),
        "the same passes already: {worker:?}"
    );
    assert!(!worker.iter().any(|rule| rule.contains("480")), "{worker:?}");
    // OVN-Kubernetes: nothing of ours passes between nodes.
    let ports = Ports { vxlan: 0, ..Ports::default() };
    settle(&played, &Goal::Prepare(Wanted { ports, ..wanted(0) })).await;
    assert_eq!(rules_in(&played, "east-master"), ["IPv4 udp 4500 from east-worker"]);
    settle(&played, &Goal::CleanUp).await;
    let world = played.world();
    assert_eq!(
        others.map(|id| world.rules.contains_key(&id)),
        [false, true],
        "a group takes its rules along"
    );
}

#[tokio::test(start_paused = true)]
async fn behind_a_load_balancer_cables_pass_between_nodes_alone() {
    let played = Played::new(openshift());
    let before = played.snapshot();
    let (_, remarks) = settle(&played, &Goal::Prepare(Wanted { load_balancer: true, ..wanted(1) })).await;
    assert!(remarks.is_empty(), "{remarks:?}");
    assert!(rules_in(&played, GATEWAYS).is_empty());
    let of_worker = rules_in(&played, "east-worker");
    assert_eq!(of_worker.iter().filter(|rule| rule.contains("esp")).count(), 2, "{of_worker:?}");
    assert_eq!(of_worker.len(), 12);
    settle(&played, &Goal::CleanUp).await;
    assert_eq!(played.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn dual_stack_nodes_get_rules_of_both_families() {
    let mut world = kubernetes();
    world.add_node("east-4", "az-a", &["192.168.0.24", "2001:db8::24"], &[]);
    let played = Played::new(world);
    let (_, remarks) = settle(&played, &Goal::Prepare(wanted(4))).await;
    let rules = rules_in(&played, INTERNAL);
    assert_eq!(rules.len(), 4, "{rules:?}");
    assert!(
        !remarks.iter().any(|remark| remark.contains("east-4")),
        "2001:db8::24 is reached without a floating IP: {remarks:?}"
    );
    let (_, remarks) = settle(&played, &Goal::Prepare(wanted(9))).await;
    assert!(
        remarks.contains(&"9 gateways are wanted, and the cluster has nodes for 4".to_owned()),
        "{remarks:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_upstreams_tool_prepared_is_taken_over_and_cleaned() {
    for (with_internal, mut world) in
        [(true, openshift()), (true, kubernetes()), (false, openshift()), (false, kubernetes())]
    {
        let before = Played::new(world.clone()).snapshot();
        let gateways = prepare_as_upstream(&mut world, with_internal);
        let played = Played::new(world);
        settle(&played, &Goal::Prepare(wanted(1))).await;
        assert!(played.world().groups.contains_key(&gateways), "the group stays the same one");
        assert_eq!(rules_in(&played, GATEWAYS), CABLES);
        if with_internal {
            assert_eq!(rules_in(&played, INTERNAL).len(), 2);
        }
        settle(&played, &Goal::CleanUp).await;
        assert_eq!(played.snapshot(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn upstreams_machines_count_and_go() {
    let mut world = openshift();
    let before = Played::new(world.clone()).snapshot();
    prepare_as_upstream(&mut world, true);
    let mut set = worker_set("a");
    set["metadata"]["name"] = json!("east-submariner-gw-4f3c21");
    world.sets.as_mut().unwrap().insert("east-submariner-gw-4f3c21".to_owned(), set);
    let played = Played::new(world);
    settle(&played, &Goal::Prepare(wanted(1))).await;
    assert_eq!(played.world().sets.as_ref().unwrap().len(), 3);
    settle(&played, &Goal::Prepare(wanted(2))).await;
    let name = machine_set_name("east", "0");
    assert_eq!(groups_of(&played, &format!("port-{name}-x7k2p")), [GATEWAYS, INTERNAL, "east-worker"]);
    settle(&played, &Goal::CleanUp).await;
    assert_eq!(played.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_stays_in_use_ends_the_wait() {
    let played = Played::new(kubernetes());
    settle(&played, &Goal::Prepare(wanted(1))).await;
    played.world().lingering = 4;
    settle(&played, &Goal::CleanUp).await;
    settle(&played, &Goal::Prepare(wanted(1))).await;
    {
        // Somebody has given a virtual address the gateways' group: it goes from there too.
        let mut world = played.world();
        let group = world.groups.values().find(|group| group["name"] == GATEWAYS).unwrap()["id"].clone();
        let port = json!({"id": "port-vip", "device_id": "", "device_owner": "", "security_groups": [DEFAULT, group],
            "fixed_ips": [], "revision_number": 1});
        world.ports.insert("port-vip".to_owned(), port);
    }
    settle(&played, &Goal::CleanUp).await;
    assert_eq!(groups_of(&played, "port-vip"), ["default"]);
    settle(&played, &Goal::Prepare(wanted(1))).await;
    played.world().lingering = u32::MAX;
    let started = tokio::time::Instant::now();
    let error = reach(&played, &Goal::CleanUp).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(started.elapsed() < std::time::Duration::from_secs(400), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lists_that_never_end_are_ended() {
    let played = Played::new(World { is_circular: true, page: 1, ..kubernetes() });
    let outcome = reach(&played, &Goal::CleanUp).await.map(|(done, _)| done);
    assert_eq!(outcome.unwrap(), 0);
    assert!(played.world().requests < 50, "{}", played.world().requests);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_name_is_refused() {
    let played = Played::new(kubernetes());
    let server = played.server();
    let rhos = Rhos::new(played.clone(), &server, settings("openstack", None));
    let error = run::plan(&rhos, &Goal::CleanUp).await.unwrap_err();
    assert!(error.next().contains("--infra-id"), "{error}");
    assert_eq!(played.world().requests, 0);
}

#[test]
fn servers_are_found_in_provider_ids() {
    let table = [
        ("openstack:///0f1e", Some("0f1e")),
        ("openstack://RegionOne/0f1e", Some("0f1e")),
        ("openstack:///", None),
        ("openstack://0f1e", None),
        ("aws:///eu-west-1a/i-0f1e", None),
        ("", None),
    ];
    for (text, wanted) in table {
        assert_eq!(super::super::port::server_id(text), wanted, "{text}");
    }
}

trait Sorted {
    fn into_sorted(self) -> Self;
}

impl Sorted for Vec<String> {
    fn into_sorted(mut self) -> Self {
        self.sort();
        self
    }
}
