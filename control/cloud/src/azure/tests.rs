//! Preparations in a cloud and a cluster that are played.

mod answers;
mod cloud;
mod cluster;
mod law;
mod service;
mod shared;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::steps::Record;

use self::cloud::{Cloud, LOGIN, MANAGEMENT, SUBSCRIPTION, add_rule, id};
use self::cluster::{node, upstreams_set, workers};
use super::{Azure, Credentials, Settings};
use crate::played_cluster::Cluster;
use crate::provider::{Goal, Plan};
use crate::{CloudError, Wanted, run};

const NSG: &str = "Microsoft.Network/networkSecurityGroups";
const NIC: &str = "Microsoft.Network/networkInterfaces";
const ADDRESS: &str = "Microsoft.Network/publicIPAddresses";
const VM: &str = "Microsoft.Compute/virtualMachines";

/// A cloud and a cluster in it.
#[derive(Debug, Default)]
struct Bed {
    cloud: Cloud,
    cluster: Cluster,
    air_gapped: bool,
    infra_id: Option<String>,
}

fn credentials() -> Credentials {
    let mut credentials = Credentials::from_parts(SUBSCRIPTION, "client-1", "s&cret+", "tenant-1").unwrap();
    credentials.login = LOGIN.to_owned();
    credentials.management = MANAGEMENT.to_owned();
    credentials
}

fn settings(bed: &Bed) -> Settings {
    Settings {
        infra_id: bed.infra_id.clone(),
        region: None,
        resource_group: None,
        credentials: credentials(),
        air_gapped: bed.air_gapped,
    }
}

fn clock() -> crate::exchange::Clock {
    Arc::new(|| Timestamp::UNIX_EPOCH)
}

impl Bed {
    /// A cluster whose nodes are in one subnet, which has the group `east-nsg`; OpenShift's has a set of workers.
    fn new(is_openshift: bool) -> Self {
        let bed = Self {
            cluster: Cluster { is_openshift, ..Cluster::default() },
            infra_id: (!is_openshift).then(|| "east".to_owned()),
            ..Self::default()
        };
        let group = bed.group("east-nsg");
        bed.subnet("workers", Some(&group));
        if is_openshift {
            bed.cluster.put_set(workers());
        }
        bed
    }

    fn group(&self, name: &str) -> String {
        let rule = json!({"name": "apiserver_in", "properties": {
            "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "6443", "access": "Allow",
            "sourceAddressPrefix": "*", "destinationAddressPrefix": "*", "direction": "Inbound", "priority": 101,
        }});
        let properties = json!({"securityRules": [rule], "provisioningState": "Succeeded"});
        self.cloud.put(NSG, name, json!({"location": "westeurope", "properties": properties}))
    }

    fn subnet(&self, name: &str, group: Option<&str>) -> String {
        let mut properties = json!({"addressPrefix": "10.0.0.0/24"});
        if let Some(group) = group {
            properties["networkSecurityGroup"] = json!({"id": group});
        }
        let name = format!("east-vnet/subnets/{name}");
        self.cloud.put("Microsoft.Network/virtualNetworks", &name, json!({"properties": properties}))
    }

    /// Adds a node with a machine of its own in the subnet `workers`.
    fn node(&self, name: &str, last: u8, is_gateway: bool) -> String {
        let machine = id(VM, name);
        self.cluster.put_node(node(name, &format!("azure://{machine}"), is_gateway));
        let nic = json!({"etag": "W/\"0\"", "location": "westeurope", "properties": {
            "virtualMachine": {"id": machine}, "primary": true, "enableIPForwarding": false,
            "provisioningState": "Succeeded",
            "ipConfigurations": [{"name": "pipConfig", "properties": {
                "primary": true, "privateIPAddress": format!("10.0.0.{last}"),
                "subnet": {"id": id("Microsoft.Network/virtualNetworks", "east-vnet/subnets/workers")},
            }}],
        }});
        self.cloud.put(NIC, &format!("{name}-nic"), nic)
    }

    /// Adds a node that is an instance of a scale set.
    fn instance(&self, name: &str, last: u8, is_gateway: bool) {
        let set = "Microsoft.Compute/virtualMachineScaleSets";
        let machine = id(set, &format!("aks-pool/virtualMachines/{last}"));
        self.cluster.put_node(node(name, &format!("azure://{machine}"), is_gateway));
        let nic = json!({"location": "westeurope", "properties": {
            "virtualMachine": {"id": machine}, "primary": true,
            "ipConfigurations": [{"name": "ip", "properties": {
                "primary": true, "privateIPAddress": format!("10.0.0.{last}"),
                "subnet": {"id": id("Microsoft.Network/virtualNetworks", "east-vnet/subnets/workers")},
            }}],
        }});
        self.cloud.put(set, &format!("aks-pool/virtualMachines/{last}/networkInterfaces/pool"), nic);
    }

    /// Changes a resource as somebody else would.
    fn change(&self, id: &str, change: impl FnOnce(&mut Value)) {
        change(self.cloud.0.lock().unwrap().resources.get_mut(&id.to_ascii_lowercase()).unwrap());
    }

    /// Does what upstream's tool does: its rules, its group, and what it gives to the interfaces of gateways.
    fn prepare_as_upstream(&self, gateways: &[&str]) {
        let rule = |prefix: &str, protocol: &str, port: u16, direction: &str, priority: u64| {
            json!({"name": format!("{prefix}{protocol}-{port}-{direction}"), "properties": {
                "protocol": protocol, "sourcePortRange": "*", "destinationPortRange": format!("{port}-{port}"),
                "sourceAddressPrefix": "0.0.0.0/0", "destinationAddressPrefix": "0.0.0.0/0", "access": "Allow",
                "direction": direction, "priority": priority,
            }})
        };
        let external = id(NSG, "east-submariner-external-sg");
        let mut group = json!({"location": "westeurope", "properties": {"securityRules": []}});
        for direction in ["Inbound", "Outbound"] {
            self.change(&id(NSG, "east-nsg"), |group| {
                add_rule(group, &rule("Submariner-Internal-", "udp", 4800, direction, 2500)).unwrap();
            });
            for (at, (protocol, port)) in
                [("udp", 4500), ("udp", 4490), ("esp", 0), ("ah", 0)].into_iter().enumerate()
            {
                let priority = 3500 + u64::try_from(at).unwrap();
                add_rule(&mut group, &rule("Submariner-External-", protocol, port, direction, priority))
                    .unwrap();
            }
        }
        self.cloud.put(NSG, "east-submariner-external-sg", group);
        for node in gateways {
            let address = self.cloud.put(
                ADDRESS,
                &format!("{node}-pub"),
                json!({"location": "westeurope", "properties": {}}),
            );
            self.change(&id(NIC, &format!("{node}-nic")), |nic| {
                nic["properties"]["networkSecurityGroup"] = json!({"id": external});
                nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] =
                    json!({"id": address});
            });
        }
    }

    async fn plan(&self, goal: &Goal) -> Result<Plan<String>, CloudError> {
        let server = self.cluster.server();
        let azure = Azure::new(&self.cloud, &server, settings(self), clock());
        let plan = run::plan(&azure, goal).await?;
        Ok(Plan { changes: plan.changes.iter().map(ToString::to_string).collect(), remarks: plan.remarks })
    }

    async fn reach(&self, goal: &Goal) -> Result<usize, CloudError> {
        let server = self.cluster.server();
        let azure = Azure::new(&self.cloud, &server, settings(self), clock());
        run::reach(&azure, goal, &mut Record::default()).await
    }

    /// The names and priorities of a group's rules.
    fn rules(&self, name: &str) -> Vec<String> {
        let group = self.cloud.get(&id(NSG, name));
        let rules = group["properties"]["securityRules"].as_array().cloned().unwrap_or_default();
        let text =
            |rule: &Value| format!("{} {}", rule["name"].as_str().unwrap(), rule["properties"]["priority"]);
        let mut all: Vec<String> = rules.iter().map(text).collect();
        all.sort();
        all
    }

    fn rule(&self, group: &str, name: &str) -> Value {
        let group = self.cloud.get(&id(NSG, group));
        let mut rules = group["properties"]["securityRules"].as_array().unwrap().iter();
        rules.find(|rule| rule["name"] == name).unwrap()["properties"].clone()
    }
}

fn prepare() -> Goal {
    Goal::Prepare(Wanted::default())
}

#[tokio::test(start_paused = true)]
async fn gateway_of_a_cluster_with_machines_of_its_own() {
    let bed = Bed::new(false);
    let nic = bed.node("n1", 4, false);
    bed.node("n2", 5, false);
    let before = (bed.cloud.snapshot(), bed.cluster.objects.lock().unwrap().clone());
    assert!(bed.reach(&prepare()).await.unwrap() > 0);
    assert_eq!(bed.plan(&prepare()).await.unwrap(), Plan::default());
    let found = bed.cloud.get(&nic);
    assert_eq!(found["properties"]["networkSecurityGroup"]["id"], id(NSG, "east-submariner-external-sg"));
    assert_eq!(found["properties"]["enableIPForwarding"], true);
    let address = &found["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"]["id"];
    assert_eq!(*address, id(ADDRESS, "n1-pub"));
    assert_eq!(found["tags"]["trieste.io-before"], "no-address no-forwarding no-group");
    let inbound = ["Submariner-External-esp-0-Inbound 3503", "Submariner-External-udp-4490-Inbound 3501"];
    let rules = bed.rules("east-submariner-external-sg");
    assert!(inbound.iter().all(|rule| rules.iter().any(|own| own == rule)), "{rules:?}");
    let esp = bed.rule("east-submariner-external-sg", "Submariner-External-esp-0-Inbound");
    assert_eq!(
        (&esp["protocol"], &esp["destinationPortRange"], &esp["sourceAddressPrefix"]),
        (&json!("Esp"), &json!("*"), &json!("*"))
    );
    // The subnet's group guards the gateway too.
    let natt = bed.rule("east-nsg", "Submariner-External-udp-4500-Inbound");
    assert_eq!(
        (&natt["destinationAddressPrefix"], &natt["sourceAddressPrefix"]),
        (&json!("10.0.0.4/32"), &json!("0.0.0.0/0"))
    );
    let vxlan = bed.rule("east-nsg", "Submariner-Internal-udp-4800-Inbound");
    assert_eq!((&vxlan["sourceAddressPrefix"], &vxlan["priority"]), (&json!("VirtualNetwork"), &json!(2500)));
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!((bed.cloud.snapshot(), bed.cluster.objects.lock().unwrap().clone()), before);
}

#[tokio::test(start_paused = true)]
async fn priorities_of_others_are_left_to_them() {
    let bed = Bed::new(false);
    bed.node("n1", 4, true);
    bed.change(&id(NSG, "east-nsg"), |group| {
        for (name, priority, access) in [("a", 2500, "Allow"), ("b", 2501, "Allow"), ("refuse", 200, "Deny")] {
            let rule = json!({"name": name, "properties": {
                "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*", "access": access,
                "sourceAddressPrefix": "*", "destinationAddressPrefix": "*", "direction": "Inbound", "priority": priority,
            }});
            add_rule(group, &rule).unwrap();
        }
    });
    let plan = bed.plan(&prepare()).await.unwrap();
    assert!(
        plan.remarks.iter().any(|remark| remark.contains("rule refuse of east-nsg")),
        "{:?}",
        plan.remarks
    );
    bed.reach(&prepare()).await.unwrap();
    let priority = |direction: &str| {
        bed.rule("east-nsg", &format!("Submariner-Internal-udp-4800-{direction}"))["priority"].clone()
    };
    assert_eq!((priority("Inbound"), priority("Outbound")), (json!(2502), json!(2500)));
}

#[tokio::test(start_paused = true)]
async fn what_upstreams_tool_has_prepared_is_taken_over_and_cleaned() {
    let bed = Bed::new(false);
    let nic = bed.node("n1", 4, true);
    let before = bed.cloud.snapshot();
    bed.prepare_as_upstream(&["n1"]);
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!(bed.cloud.snapshot(), before, "cleaned without a preparation of ours");
    bed.prepare_as_upstream(&["n1"]);
    bed.reach(&prepare()).await.unwrap();
    assert!(!bed.rules("east-submariner-external-sg").iter().any(|rule| rule.contains("-ah-")));
    assert_eq!(
        bed.rule("east-submariner-external-sg", "Submariner-External-udp-4500-Inbound")["priority"],
        3500
    );
    assert_eq!(bed.cloud.get(&nic)["tags"]["trieste.io-before"], "no-address no-forwarding no-group");
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!(bed.cloud.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn openshift_gets_a_set_of_machines_per_zone() {
    let bed = Bed::new(true);
    bed.node("east-worker-1", 4, false);
    let size = |name: &str, zones: Value, closed: Value| {
        json!({
            "resourceType": "virtualMachines", "name": name, "locationInfo": [{"location": "westeurope", "zones": zones}],
            "restrictions": closed,
        })
    };
    let closed = json!([{"type": "Zone", "restrictionInfo": {"zones": ["1"]}}]);
    let sizes = vec![
        json!({"resourceType": "disks", "name": "Premium_LRS"}),
        size("Standard_D2s_v3", json!(["1"]), json!([{"type": "Location"}])),
        size("Standard_F4s_v2", json!(["3", "1", "2"]), closed),
    ];
    bed.cloud.0.lock().unwrap().sizes = Some(sizes);
    bed.cluster.put_set(upstreams_set());
    let wanted = Wanted { gateways: 2, ..Wanted::default() };
    bed.reach(&Goal::Prepare(wanted.clone())).await.unwrap();
    assert_eq!(
        bed.cluster.set_names(),
        ["east-worker-westeurope1", "subgw-westeur-0a1b2c", "subgw-westeur-3"]
    );
    let set = bed.cluster.set("subgw-westeur-3");
    assert_eq!(
        set["spec"]["selector"]["matchLabels"]["machine.openshift.io/cluster-api-machineset"],
        "subgw-westeur-3"
    );
    let provider = &set["spec"]["template"]["spec"]["providerSpec"]["value"];
    assert_eq!(
        (&provider["publicIP"], &provider["vmSize"], &provider["zone"]),
        (&json!(true), &json!("Standard_F4s_v2"), &json!("3"))
    );
    assert_eq!(provider["securityGroup"], "east-submariner-external-sg");
    assert_eq!(provider["image"], workers()["spec"]["template"]["spec"]["providerSpec"]["value"]["image"]);
    let plan = bed.plan(&Goal::Prepare(wanted.clone())).await.unwrap();
    assert!(
        plan.changes.is_empty() && plan.remarks.iter().any(|remark| remark.contains("no node yet")),
        "{plan:?}"
    );
    for (gateways, remark) in [(1, "none is removed"), (3, "zones for 2")] {
        let plan = bed.plan(&Goal::Prepare(Wanted { gateways, ..wanted.clone() })).await.unwrap();
        assert!(plan.changes.is_empty() && plan.remarks.iter().any(|own| own.contains(remark)), "{plan:?}");
    }
    let unknown = Wanted { gateways: 3, instance: Some("Standard_D2s_v3".to_owned()), ..Wanted::default() };
    let error = bed.plan(&Goal::Prepare(unknown)).await.unwrap_err();
    assert!(error.to_string().contains("no machines of type Standard_D2s_v3"), "{error}");
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!(bed.cluster.set_names(), ["east-worker-westeurope1"]);
}

#[tokio::test(start_paused = true)]
async fn instances_of_scale_sets_stay_as_they_are() {
    let bed = Bed::new(false);
    bed.instance("aks-1", 6, false);
    let before = bed.cloud.snapshot();
    let plan = bed.plan(&prepare()).await.unwrap();
    assert!(plan.remarks.iter().any(|remark| remark.contains("scale set aks-pool")), "{plan:?}");
    bed.reach(&prepare()).await.unwrap();
    let after = bed.cloud.snapshot();
    let changed: Vec<&String> =
        after.iter().filter(|(id, resource)| before.get(*id) != Some(resource)).map(|(id, _)| id).collect();
    assert_eq!(changed, [&id(NSG, "east-nsg").to_ascii_lowercase()]);
    assert_eq!(
        bed.rule("east-nsg", "Submariner-External-esp-0-Inbound")["destinationAddressPrefix"],
        "10.0.0.6/32"
    );
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!(bed.cloud.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn group_with_rules_of_others_stays() {
    let bed = Bed::new(false);
    bed.node("n1", 4, true);
    bed.reach(&prepare()).await.unwrap();
    let own = json!({"name": "mine", "properties": {
        "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "22", "access": "Allow",
        "sourceAddressPrefix": "*", "destinationAddressPrefix": "*", "direction": "Inbound", "priority": 300,
    }});
    bed.change(&id(NSG, "east-submariner-external-sg"), |group| add_rule(group, &own).unwrap());
    let plan = bed.plan(&Goal::CleanUp).await.unwrap();
    assert!(plan.remarks.iter().any(|remark| remark.contains("others use it")), "{plan:?}");
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!(bed.rules("east-submariner-external-sg"), ["mine 300"]);
}

#[tokio::test(start_paused = true)]
async fn address_of_somebody_else_is_given_back() {
    let bed = Bed::new(false);
    bed.node("n1", 4, true);
    bed.node("n2", 5, true);
    let free = bed.cloud.put(ADDRESS, "n1-pub", json!({"location": "westeurope", "properties": {}}));
    let used = bed.cloud.put(ADDRESS, "n2-pub", json!({"location": "westeurope", "properties": {}}));
    let balancer = bed.node("balancer", 6, false);
    bed.change(&balancer, |nic| {
        nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] = json!({"id": used});
    });
    let before = bed.cloud.snapshot();
    let plan = bed.plan(&prepare()).await.unwrap();
    assert!(
        plan.remarks.iter().any(|remark| remark.contains("n2-pub belongs to something else")),
        "{plan:?}"
    );
    bed.reach(&prepare()).await.unwrap();
    let nic = bed.cloud.get(&id(NIC, "n1-nic"));
    assert_eq!(nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"]["id"], free);
    bed.reach(&Goal::CleanUp).await.unwrap();
    assert_eq!(bed.cloud.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_found_out_is_refused() {
    let bed = Bed { infra_id: Some("west".to_owned()), ..Bed::new(true) };
    let error = bed.plan(&prepare()).await.unwrap_err();
    assert!(error.to_string().contains("no network security group west-nsg in east-rg"), "{error}");
    let elsewhere = Bed::new(false);
    elsewhere.cluster.put_node(node("n1", "aws:///eu-west-1a/i-1", true));
    let mut unnamed = Bed { infra_id: None, ..elsewhere };
    let error = unnamed.plan(&prepare()).await.unwrap_err();
    assert!(error.next().contains("give --infra-id: a short name"), "{error}");
    unnamed.infra_id = Some("../../x".to_owned());
    let error = unnamed.plan(&prepare()).await.unwrap_err();
    assert!(error.to_string().contains("can be no"), "{error}");
    unnamed.infra_id = Some("east".to_owned());
    let plan = unnamed.plan(&prepare()).await.unwrap();
    assert!(plan.remarks.iter().any(|remark| remark.contains("provider ID `aws:///")), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn load_balancer_takes_the_group_from_sets() {
    let bed = Bed::new(true);
    bed.node("east-worker-1", 4, false);
    bed.reach(&prepare()).await.unwrap();
    let value =
        || bed.cluster.set("subgw-westeur-1")["spec"]["template"]["spec"]["providerSpec"]["value"].clone();
    assert_eq!(
        (&value()["securityGroup"], &value()["publicIP"]),
        (&json!("east-submariner-external-sg"), &json!(true))
    );
    let balanced = Goal::Prepare(Wanted { load_balancer: true, ..Wanted::default() });
    bed.reach(&balanced).await.unwrap();
    assert_eq!((&value()["securityGroup"], &value()["publicIP"]), (&Value::Null, &json!(false)));
    assert_eq!(value()["publicLoadBalancer"], "east");
    assert!(bed.cloud.get(&id(NSG, "east-submariner-external-sg")).is_null());
    let natt = bed.rule("east-nsg", "Submariner-External-udp-4500-Inbound");
    assert_eq!(natt["sourceAddressPrefix"], "VirtualNetwork");
    assert!(bed.plan(&balanced).await.unwrap().changes.is_empty());
}
