//! Preparations of a played cloud, and their ends.

mod answers;
mod cloud;
mod property;
mod service;
mod world;

use serde_json::{Value, json};

use crate::provider::Goal;
use crate::rules::{Ports, Wanted};
use world::{Machine, World, settings};

const CABLES: &str = "east-x1-submariner-public-ports-ingress";
const CABLES_V6: &str = "east-x1-submariner-public-ports-ingress-v6";
const INSIDE: &str = "east-x1-submariner-internal-ports-ingress";
const TAG: &str = "submariner-io-gateway-node";

fn gateways(gateways: usize) -> Goal {
    Goal::Prepare(Wanted { gateways, ..Wanted::default() })
}

fn openshift() -> World {
    let worker = Machine::worker("east-x1-worker-c-1", "us-east1-c", &["east-x1-worker"]);
    let mut master = Machine::worker("east-x1-master-0", "us-east1-b", &["east-x1-master"]);
    master.is_control_plane = true;
    World::new(true, &[worker, master])
}

fn gke() -> World {
    let tags = ["web", "gke-east-1f2e-node"];
    World::new(
        false,
        &[
            Machine::worker("gke-a", "us-east1-b", &tags),
            Machine::worker("gke-b", "us-east1-c", &tags),
            Machine::worker("gke-c", "us-east1-d", &["gke-east-1f2e-node", "web", "more"]),
        ],
    )
}

fn part(rule: Option<Value>) -> Value {
    let rule = rule.unwrap();
    json!({"allowed": rule["allowed"], "from": rule["sourceRanges"], "tags": rule["sourceTags"], "to": rule["targetTags"]})
}

#[tokio::test(start_paused = true)]
async fn openshift_gets_rules_and_machines() {
    let world = openshift();
    let before = world.all();
    let (done, remarks) = world.reach(&gateways(2), &settings(None)).await.unwrap();
    assert_eq!((done, remarks), (5, vec![]));
    let allowed = json!([{"IPProtocol": "udp", "ports": ["500", "4490", "4500"]}, {"IPProtocol": "esp"}]);
    let cables = json!({"allowed": allowed, "from": ["0.0.0.0/0"], "tags": null, "to": [TAG]});
    assert_eq!(part(world.rule(CABLES)), cables);
    let cables = json!({"allowed": allowed, "from": ["::/0"], "tags": null, "to": [TAG]});
    assert_eq!(part(world.rule(CABLES_V6)), cables);
    let nodes = json!(["east-x1-worker", "east-x1-master"]);
    let allowed = json!([{"IPProtocol": "udp", "ports": ["4800", "4801"]}]);
    assert_eq!(
        part(world.rule(INSIDE)),
        json!({"allowed": allowed, "from": null, "tags": nodes, "to": nodes})
    );
    let sets = world.cluster.sets();
    let names: Vec<&Value> = sets.iter().map(|set| &set["metadata"]["name"]).collect();
    // Zones with nodes of the cluster first.
    assert_eq!(
        names,
        ["east-x1-submariner-gw-us-east1-b", "east-x1-submariner-gw-us-east1-c", "east-x1-worker-us-east1-c"]
    );
    assert_eq!(
        sets[0].pointer("/spec/template/spec/providerSpec/value").unwrap(),
        &json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "GCPMachineProviderSpec", "canIPForward": true,
            "credentialsSecret": {"name": "gcp-cloud-credentials"}, "deletionProtection": false,
            "disks": [{"autoDelete": true, "boot": true, "image": "projects/rhcos/image-9", "sizeGb": 128,
                "type": "pd-ssd", "labels": null}],
            "machineType": "n1-standard-4",
            "networkInterfaces": [{"network": "east-x1-network", "subnetwork": "east-x1-worker-subnet",
                "publicIP": true}],
            "projectID": "p-1", "region": "us-east1", "tags": ["east-x1-worker", TAG], "zone": "us-east1-b",
            "serviceAccounts": [{"email": "w@p-1.iam", "scopes": ["cloud-platform"]}],
            "userDataSecret": {"name": "worker-user-data"},
        })
    );
    assert_eq!(world.reach(&gateways(2), &settings(None)).await.unwrap().0, 0);
    assert_eq!(world.reach(&Goal::CleanUp, &settings(None)).await.unwrap().0, 5);
    assert_eq!(world.all(), before);
    assert_eq!(world.reach(&Goal::CleanUp, &settings(None)).await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn what_upstreams_tool_prepared_is_taken_over() {
    let world = openshift();
    let before = world.all();
    world.put_upstream(true);
    world.put_rule("p-1", "east-x1-submariner-public-ports-egress", &json!({"direction": "EGRESS"}));
    let shown = world.shown(&gateways(1), &settings(None)).await.unwrap();
    assert_eq!(
        shown,
        [
            "delete firewall rule east-x1-submariner-public-ports-egress",
            "change firewall rule east-x1-submariner-public-ports-ingress: allowed",
            "create firewall rule east-x1-submariner-public-ports-ingress-v6: udp 500, 4490, 4500, esp from ::/0 to submariner-io-gateway-node",
            "change firewall rule east-x1-submariner-internal-ports-ingress: allowed",
        ]
    );
    assert_eq!(world.reach(&gateways(1), &settings(None)).await.unwrap().0, 4);
    assert_eq!(world.reach(&gateways(1), &settings(None)).await.unwrap().0, 0);
    world.reach(&Goal::CleanUp, &settings(None)).await.unwrap();
    assert_eq!(world.all(), before);
}

#[tokio::test(start_paused = true)]
async fn nodes_elsewhere_are_labelled_and_tagged() {
    let world = gke();
    let before = world.all();
    let shown = world.shown(&gateways(2), &settings(Some("east-x1"))).await.unwrap();
    assert_eq!(
        shown[2..],
        [
            "create firewall rule east-x1-submariner-internal-ports-ingress: udp 4800, 4801 from gke-east-1f2e-node to gke-east-1f2e-node",
            "give instance gke-a in us-east1-b the network tag submariner-io-gateway-node",
            "give instance gke-b in us-east1-c the network tag submariner-io-gateway-node",
            "label node gke-a as a gateway",
            "label node gke-b as a gateway",
        ]
    );
    let (done, remarks) = world.reach(&gateways(2), &settings(Some("east-x1"))).await.unwrap();
    assert_eq!((done, remarks), (7, vec![]));
    assert_eq!(world.tags("gke-a"), ["gke-east-1f2e-node", TAG, "web"]);
    assert_eq!(world.cluster.node("gke-a")["metadata"]["labels"]["submariner.io/gateway"], "true");
    assert_eq!(world.reach(&gateways(2), &settings(Some("east-x1"))).await.unwrap().0, 0);
    world.reach(&Goal::CleanUp, &settings(Some("east-x1"))).await.unwrap();
    assert_eq!(world.all(), before);
}

#[tokio::test(start_paused = true)]
async fn another_preparation_changes_what_differs() {
    let world = gke();
    world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap();
    world.changes();
    let sources = vec!["198.51.100.0/24".parse().unwrap()];
    let ports = Ports { vxlan: 0, ..Ports::default() };
    let goal = Goal::Prepare(Wanted { ports: ports.clone(), sources, ..Wanted::default() });
    world.reach(&goal, &settings(Some("east-x1"))).await.unwrap();
    let rules = "p-1/global/firewalls";
    assert_eq!(
        world.changes(),
        [
            format!("DELETE {rules}/{INSIDE}"),
            format!("DELETE {rules}/{CABLES_V6}"),
            format!("PATCH {rules}/{CABLES}")
        ]
    );
    assert_eq!(part(world.rule(CABLES))["from"], json!(["198.51.100.0/24"]));
    // Behind a load balancer the same passes between nodes.
    let goal = Goal::Prepare(Wanted { ports, load_balancer: true, ..Wanted::default() });
    world.reach(&goal, &settings(Some("east-x1"))).await.unwrap();
    let nodes = json!(["gke-east-1f2e-node"]);
    let allowed = json!([{"IPProtocol": "udp", "ports": ["500", "4490", "4500"]}, {"IPProtocol": "esp"}]);
    assert_eq!(
        part(world.rule(CABLES)),
        json!({"allowed": allowed, "from": null, "tags": nodes, "to": nodes})
    );
    assert_eq!(world.rule(CABLES_V6), None);
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_another_network_is_made_anew() {
    let world = gke();
    world.put_upstream(false);
    let goal = gateways(1);
    let network = json!("https://www.googleapis.com/compute/v1/projects/p-1/global/networks/old");
    let key = ("p-1".to_owned(), CABLES.to_owned());
    world.cloud.0.lock().unwrap().firewalls.get_mut(&key).unwrap()["network"] = network;
    world.reach(&goal, &settings(Some("east-x1"))).await.unwrap();
    assert!(world.rule(CABLES).unwrap()["network"].as_str().unwrap().ends_with("/east-x1-network"));
    assert_eq!(world.reach(&goal, &settings(Some("east-x1"))).await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_shared_network_are_in_its_project() {
    let world = gke();
    let mut settings = settings(Some("east-x1"));
    settings.network = Some("projects/host/global/networks/shared".to_owned());
    settings.node_tags = vec!["mine".to_owned()];
    let (_, remarks) = world.reach(&gateways(1), &settings).await.unwrap();
    assert_eq!(
        remarks,
        [
            "instance gke-a is in projects/p-1/global/networks/east-x1-network, and the rules are in projects/host/global/networks/shared"
        ]
    );
    let key = ("host".to_owned(), INSIDE.to_owned());
    assert_eq!(world.cloud.0.lock().unwrap().firewalls[&key]["sourceTags"], json!(["mine"]));
    world.reach(&Goal::CleanUp, &settings).await.unwrap();
    assert_eq!(world.cloud.0.lock().unwrap().firewalls.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_shared_network_name_its_project() {
    let world = openshift();
    let mut set = world::worker_set("us-east1-c");
    let interface = "/spec/template/spec/providerSpec/value/networkInterfaces/0";
    *set.pointer_mut(interface).unwrap() =
        json!({"network": "shared", "projectID": "host", "subnetwork": "workers"});
    world.cluster.put_set(set);
    let mut settings = settings(None);
    settings.subnet = Some("edge".to_owned());
    for network in [None, Some("shared".to_owned())] {
        settings.network = network;
        world.reach(&gateways(1), &settings).await.unwrap();
        let key = ("host".to_owned(), CABLES.to_owned());
        assert!(world.cloud.0.lock().unwrap().firewalls.contains_key(&key));
        assert_eq!(
            world.cluster.sets()[0].pointer(interface).unwrap(),
            &json!({"network": "shared", "projectID": "host", "subnetwork": "edge", "publicIP": true})
        );
        world.reach(&Goal::CleanUp, &settings).await.unwrap();
        assert_eq!(world.cloud.0.lock().unwrap().firewalls.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_changed_is_remarked() {
    let world = gke();
    let mut bare = Machine::worker("gke-a", "us-east1-b", &["gke-east-1f2e-node"]);
    (bare.has_external_ip, bare.can_ip_forward, bare.is_gateway) = (false, false, true);
    world.put(&bare);
    let (_, remarks) = world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap();
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    assert!(remarks[0].starts_with("instance gke-a has no external IP address"), "{remarks:?}");
    assert!(remarks[1].starts_with("instance gke-a was made without canIpForward"), "{remarks:?}");
    let (_, remarks) = world.reach(&gateways(4), &settings(Some("east-x1"))).await.unwrap();
    assert!(remarks[0].contains("4 gateways are wanted, and the cluster has nodes for 3"), "{remarks:?}");
    let (done, remarks) = world.reach(&gateways(2), &settings(Some("east-x1"))).await.unwrap();
    assert_eq!(done, 0);
    assert!(remarks[0].contains("2 gateways are wanted, and there are 3: none is removed"), "{remarks:?}");
    // The label that somebody else has set stays; the tag goes.
    world.reach(&Goal::CleanUp, &settings(Some("east-x1"))).await.unwrap();
    assert_eq!(world.cluster.node("gke-a")["metadata"]["labels"]["submariner.io/gateway"], "true");
    assert_eq!(world.tags("gke-a"), ["gke-east-1f2e-node"]);
}

#[tokio::test(start_paused = true)]
async fn a_region_has_so_many_zones() {
    let world = openshift();
    let (_, remarks) = world.reach(&gateways(5), &settings(None)).await.unwrap();
    assert_eq!(remarks, ["5 gateways are wanted, one in each zone, and the region has zones for 3"]);
    assert_eq!(world.cluster.sets().len(), 4);
    // A gateway that somebody has labelled counts, and its zone is taken.
    let world = openshift();
    let mut gateway = Machine::worker("east-x1-worker-c-1", "us-east1-c", &["east-x1-worker"]);
    gateway.is_gateway = true;
    world.put(&gateway);
    world.reach(&gateways(2), &settings(None)).await.unwrap();
    assert_eq!(world.cluster.sets()[0]["metadata"]["name"], "east-x1-submariner-gw-us-east1-b");
    assert_eq!(world.cluster.sets().len(), 2);
    assert_eq!(world.tags("east-x1-worker-c-1"), ["east-x1-worker", TAG]);
}

#[tokio::test(start_paused = true)]
async fn machines_of_sets_go_with_their_set() {
    let world = openshift();
    let before = world.all();
    world.reach(&gateways(1), &settings(None)).await.unwrap();
    // What the set makes.
    let name = "east-x1-submariner-gw-us-east1-b-x7k2p";
    let mut machine = Machine::worker(name, "us-east1-b", &["east-x1-worker", TAG]);
    machine.is_gateway = true;
    world.put(&machine);
    assert_eq!(world.reach(&gateways(1), &settings(None)).await.unwrap(), (0, vec![]));
    assert_eq!(world.reach(&gateways(2), &settings(None)).await.unwrap().0, 1);
    world.changes();
    world.reach(&Goal::CleanUp, &settings(None)).await.unwrap();
    assert!(world.changes().iter().all(|change| change.starts_with("DELETE ")));
    world.cloud.0.lock().unwrap().instances.retain(|key, _| key.2 != name);
    world.cluster.objects.lock().unwrap().retain(|path, _| !path.ends_with(name));
    assert_eq!(world.all(), before);
}

#[tokio::test(start_paused = true)]
async fn nodes_with_other_tags_of_the_installers_are_named_too() {
    let world = openshift();
    let tags = ["any", "east-x1-control-plane", "east-x1-other"];
    world.put(&Machine::worker("east-x1-master-1", "us-east1-c", &tags));
    world.reach(&gateways(1), &settings(None)).await.unwrap();
    let nodes = json!(["east-x1-worker", "east-x1-master", "east-x1-control-plane"]);
    assert_eq!(part(world.rule(INSIDE))["to"], nodes);
    assert_eq!(world.reach(&gateways(1), &settings(None)).await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn another_type_is_given_to_sets_that_are_there() {
    let world = openshift();
    let before = world.all();
    world.reach(&gateways(1), &settings(None)).await.unwrap();
    let name = "east-x1-submariner-gw-us-east1-b";
    let mut set = world.cluster.set(name);
    set["spec"]["replicas"] = json!(2);
    set["spec"]["template"]["spec"]["providerSpec"]["value"]["deletionProtection"] = json!(true);
    world.cluster.put_set(set.clone());
    let of_type = |gateways| {
        let instance = Some("n2-standard-8".to_owned());
        Goal::Prepare(Wanted { gateways, instance, ..Wanted::default() })
    };
    // No choice is none of another type; and of no gateways nothing is chosen.
    for goal in [gateways(1), of_type(0)] {
        assert_eq!(world.reach(&goal, &settings(None)).await.unwrap(), (0, vec![]));
    }
    let remark = format!(
        "the machine of MachineSet {name} keeps its type: drain its gateway, then delete the machine, and one of type n2-standard-8 is made"
    );
    assert_eq!(world.reach(&of_type(1), &settings(None)).await.unwrap(), (1, vec![remark]));
    set["spec"]["template"]["spec"]["providerSpec"]["value"]["machineType"] = json!("n2-standard-8");
    assert_eq!(world.cluster.set(name), set);
    assert_eq!(world.reach(&of_type(1), &settings(None)).await.unwrap(), (0, vec![]));
    world.reach(&Goal::CleanUp, &settings(None)).await.unwrap();
    assert_eq!(world.all(), before);
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_shared_network_are_not_left_there_in_silence() {
    let world = World::new(false, &[]);
    let mut settings = settings(Some("east-x1"));
    settings.project = Some("p-1".to_owned());
    world.put_rule("host", CABLES, &json!({"direction": "INGRESS"}));
    let error = world.reach(&Goal::CleanUp, &settings).await.unwrap_err();
    let text = format!("{error}; {}", error.next());
    assert!(text.contains("project p-1 has no firewall rule of a preparation"), "{text}");
    assert!(text.contains("; give --vpc-name with the network of the cluster's nodes"), "{text}");
    assert_eq!(world.changes(), Vec::<String>::new());
    settings.network = Some("projects/host/global/networks/shared".to_owned());
    assert_eq!(world.reach(&Goal::CleanUp, &settings).await.unwrap().0, 1);
    assert_eq!(world.changes(), [format!("DELETE host/global/firewalls/{CABLES}")]);
    assert_eq!(world.reach(&Goal::CleanUp, &settings).await.unwrap().0, 0);
}
