//! A resource group that clusters share: each one's interfaces are its own.

use serde_json::{Value, json};

use super::cloud::id;
use super::cluster::{node, workers};
use super::{Bed, NIC, NSG, VM, prepare, upstreams_set};
use crate::Wanted;
use crate::provider::Goal;

const GROUP: &str = "east-submariner-external-sg";

/// Takes a node out of the cluster; its machine stays, as that of another cluster's or of nobody's.
fn leave(bed: &Bed, node: &str) {
    bed.cluster.objects.lock().unwrap().remove(&format!("/api/v1/nodes/{node}")).unwrap();
}

fn balanced() -> Goal {
    Goal::Prepare(Wanted { load_balancer: true, ..Wanted::default() })
}

#[tokio::test(start_paused = true)]
async fn clusters_without_a_name_of_their_own_are_refused() {
    let bed = Bed { infra_id: None, ..Bed::new(false) };
    bed.node("n1", 4, true);
    for goal in [prepare(), Goal::CleanUp] {
        let error = bed.plan(&goal).await.unwrap_err().next();
        assert!(error.contains("no other cluster of the resource group has"), "{error}");
    }
    // OpenShift's sets have its name.
    let named = Bed::new(true);
    named.node("east-worker-1", 4, false);
    named.plan(&prepare()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn interfaces_of_other_machines_are_left_to_them() {
    for goal in [Goal::CleanUp, balanced()] {
        for (is_openshift, has_machine, is_kept) in
            [(false, true, true), (true, true, true), (false, false, false), (true, false, false)]
        {
            let bed = Bed::new(is_openshift);
            bed.node("n1", 4, true);
            let other = bed.node("n2", 5, true);
            bed.reach(&prepare()).await.unwrap();
            leave(&bed, "n2");
            if !has_machine {
                bed.change(&other, |nic| {
                    drop(nic["properties"].as_object_mut().unwrap().remove("virtualMachine"))
                });
            }
            let before = bed.cloud.get(&other);
            bed.reach(&goal).await.unwrap();
            let group =
                |name: &str| bed.cloud.get(&id(NIC, name))["properties"]["networkSecurityGroup"].clone();
            assert_eq!(group("n1-nic"), Value::Null);
            assert_eq!(bed.cloud.get(&other) == before, is_kept, "{goal:?} {is_openshift} {has_machine}");
            assert_eq!(bed.cloud.get(&id(NSG, GROUP)).is_null(), !is_kept, "others need the group");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn machines_of_the_clusters_sets_are_its_own() {
    let cases = [
        ("subgw-westeur-0a1b2c-x7k2p", true),
        ("subgw-westeur-1-x7k2p", true),
        ("east-worker-westeurope1-x7k2p", true),
        ("west-worker-westeurope1-x7k2p", false),
        ("bastion", false),
    ];
    for (machine, is_own) in cases {
        let bed = Bed::new(true);
        bed.cluster.put_set(upstreams_set());
        bed.cluster.put_node(node("n1", &format!("azure://{}", id(VM, "n1")), false));
        let group = bed.group(GROUP);
        bed.change(&group, |group| group["properties"]["securityRules"] = json!([]));
        let nic = bed.node(machine, 7, false);
        leave(&bed, machine);
        bed.change(&nic, |nic| nic["properties"]["networkSecurityGroup"] = json!({"id": group}));
        bed.reach(&Goal::CleanUp).await.unwrap();
        let left = bed.cloud.get(&nic)["properties"]["networkSecurityGroup"].clone();
        assert_eq!(left.is_null(), is_own, "{machine}");
    }
}

#[tokio::test(start_paused = true)]
async fn sets_that_are_changed_keep_their_number_of_machines() {
    for replicas in [0, 3] {
        let bed = Bed::new(true);
        bed.node("east-worker-1", 4, false);
        bed.reach(&prepare()).await.unwrap();
        let mut set = bed.cluster.set("subgw-westeur-1");
        set["spec"]["replicas"] = json!(replicas);
        bed.cluster.put_set(set);
        let instance = Some("Standard_D4s_v3".to_owned());
        let wanted = Goal::Prepare(Wanted { instance, ..Wanted::default() });
        bed.reach(&wanted).await.unwrap();
        let set = bed.cluster.set("subgw-westeur-1");
        let size = &set["spec"]["template"]["spec"]["providerSpec"]["value"]["vmSize"];
        assert_eq!((size, &set["spec"]["replicas"]), (&json!("Standard_D4s_v3"), &json!(replicas)));
        assert_eq!(bed.cluster.set("east-worker-westeurope1"), workers());
    }
}
