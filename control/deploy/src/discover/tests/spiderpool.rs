use serde_json::{Value, json};

use super::super::*;
use super::nets;
use crate::server::fake::Fake;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn plugin_spiderpool_is_found_by_its_coordinators_beside_any_plugin() {
    let pool = |name: &str, spec: Value| object("SpiderIPPool", name, &spec);
    let pools = [
        pool("four", json!({"subnet": "172.20.1.7/24", "ips": ["172.20.1.10-172.20.1.20"]})),
        pool("off", json!({"subnet": "172.20.2.0/24", "disable": true})),
        pool("on", json!({"subnet": "fd00:20::/64", "disable": false})),
        pool("unread", json!({"subnet": "172.20.3.0"})),
    ];
    let coordinator = |name: &str| object("SpiderCoordinator", name, &json!({"hijackCIDR": []}));
    for (coordinators, set, plugin, shown) in [
        (&[][..], "x", "generic", None),
        (&["default"], "x", "generic", Some("found (SpiderCoordinator default)")),
        (&["default"], "calico-node", "calico", Some("found (SpiderCoordinator default)")),
        (
            &["default", "other"],
            "ovnkube-node",
            "OVNKubernetes",
            Some("found (SpiderCoordinator default, other)"),
        ),
    ] {
        let fake = Fake::default();
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"namespace": "kube-system", "name": set}});
        for object in coordinators.iter().map(|name| coordinator(name)).chain(pools.clone()).chain([set]) {
            fake.put(object);
        }
        let network = discover(&fake.server(), &Given::default()).await.unwrap();
        assert_eq!(network.plugin.name, plugin);
        let found = network.spiderpool;
        assert_eq!(found.as_ref().map(Spiderpool::shown).as_deref(), shown, "{plugin}");
        let Some(found) = found else { continue };
        let [four, on] = &found.pools[..] else { panic!("{:?}", found.pools) };
        assert_eq!([&*four.name, &*on.name], ["four", "on"]);
        assert_eq!(vec![four.network, on.network], nets(&["172.20.1.0/24", "fd00:20::/64"]));
    }
}
