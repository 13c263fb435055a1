//! What the service answers is not trusted: no answer, whatever it has, makes a plan panic.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::interface::{self, Edit, Gets};
use super::super::names::key;
use super::super::plan::plan;
use super::super::security;
use super::super::state::{Nic, Scope, State};
use super::cluster::{node, workers};
use crate::Wanted;
use crate::cluster::Cluster;
use crate::played_answers::json_of;
use crate::provider::Goal;

const FIELDS: &[&str] = &[
    "properties",
    "tags",
    "id",
    "name",
    "networkSecurityGroup",
    "ipConfigurations",
    "publicIPAddress",
    "securityRules",
    "networkInterfaces",
    "direction",
    "priority",
    "sourceAddressPrefixes",
    "trieste.io-before",
];
const TEXTS: &[&str] = &["Inbound", "-", "a-a", "é", "/a/ipConfigurations/b", "Submariner-External-é"];

fn answer() -> impl Strategy<Value = Value> {
    json_of(FIELDS, TEXTS)
}

fn state(nic: Value, group: Value, address: Value, is_openshift: bool) -> State {
    let provider_id =
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n1";
    let scope = Scope {
        subscription: "s".to_owned(),
        resource_group: "g".to_owned(),
        region: "westeurope".to_owned(),
        infra_id: "east".to_owned(),
        air_gapped: false,
    };
    let own = key(&scope.gateways_group());
    let mut set = workers();
    set["spec"]["template"]["spec"] = group.clone();
    State {
        cluster: Cluster::of(vec![node("n1", provider_id, true)], is_openshift.then(|| vec![set, workers()])),
        groups: [("other".to_owned(), group.clone()), (own, group)].into(),
        nics: vec![Nic { found: nic, node: Some("n1".to_owned()), ..Nic::default() }],
        addresses: vec![address],
        scope,
        sizes: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(nic in answer(), group in answer(), address in answer(), is_openshift in any::<bool>()) {
        let state = state(nic, group, address, is_openshift);
        let balanced = Wanted { load_balancer: true, gateways: 3, ..Wanted::default() };
        for goal in [Goal::Prepare(Wanted::default()), Goal::Prepare(balanced), Goal::CleanUp] {
            let _plan = plan(&goal, &state);
        }
    }

    #[test]
    fn interfaces_are_given_back_what_they_had(found in answer(), with_group in any::<bool>(), has_address in any::<bool>()) {
        let address = has_address.then(|| "/a/n1-pub".to_owned());
        let gets = Some(Gets { group: with_group, address });
        let edit = Edit { infra_id: "east".to_owned(), group: "/g".to_owned(), address: "n1-pub".to_owned(), gets };
        let before = edit.restored(&found);
        let after = edit.edited(&before);
        prop_assert_eq!(&edit.edited(&after), &after);
        let is_a_resource = json!(before["properties"]["enableIPForwarding"]).is_boolean()
            && (before["tags"].is_object() || before.get("tags").is_none());
        if is_a_resource {
            prop_assert_eq!(edit.restored(&after), before);
        }
        let _group = (interface::group(&found), security::has_others(&found), interface::private_addresses(&found));
    }
}
