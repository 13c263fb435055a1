use serde_json::Value;
use trieste_control::steps::Record;

use super::*;
use crate::checks::cilium::masquerade;
use crate::checks::fix::Remedy;
use crate::checks::fix::fake::Fake;

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const MAP: &str = "/api/v1/namespaces/kube-system/configmaps/ip-masq-agent";

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn settings(entries: &[(&str, &str)]) -> Data {
    let all = [("enable-bpf-masquerade", "true"), ("enable-ipv6", "true")];
    all.iter().chain(entries).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn with_agent() -> Data {
    settings(&[("enable-ip-masq-agent", "true")])
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": LIST, "namespace": NAMESPACE, "resourceVersion": "1"}})
}

#[test]
fn plugin_cilium_fix_adds_what_is_missing_and_nothing_else() {
    let own = networks(&["10.1.0.0/16", "203.0.114.0/24", "fd00:1::/48"]);
    let default = DEFAULT_LIST.join(", ");
    let whole = format!(
        "--fix creates ConfigMap kube-system/ip-masq-agent, entry `config`: a list in the place of Cilium's default one, \
         nonMasqueradeCIDRs: {default}, 203.0.114.0/24, fd00:1::/48, fd00:2::/48"
    );
    let changed = "--fix changes ConfigMap kube-system/ip-masq-agent, entry `config`: ";
    let some = json!({"config": "nonMasqueradeCIDRs: [10.0.0.0/8]\nmasqLinkLocal: true\n", "other": "x"});
    let noted = json!({"config": "# ours\nnonMasqueradeCIDRs: [10.0.0.0/8]\n"});
    let full = json!({"config": "nonMasqueradeCIDRs: [10.0.0.0/8, 'fd00::/8']\n"});
    let cases = [
        (with_agent(), None, Ok(whole.clone())),
        (with_agent(), Some(json!({"config": ""})), Ok(whole.replace("creates", "changes"))),
        (with_agent(), Some(json!({"other": "x"})), Ok(whole.replace("creates", "changes"))),
        (with_agent(), Some(some), Ok(format!("{changed}nonMasqueradeCIDRs gets fd00:2::/48"))),
        (
            with_agent(),
            Some(noted),
            Ok(format!("{changed}nonMasqueradeCIDRs gets fd00:2::/48; comments in it are not kept")),
        ),
        (with_agent(), Some(full), Err((Outcome::Success, "no network is missing"))),
        (with_agent(), Some(json!({"config": "[]"})), Err((Outcome::Failure, "cannot be read"))),
        (settings(&[]), None, Err((Outcome::Warning, "a restart of Cilium"))),
        (
            settings(&[("enable-bpf-masquerade", "false")]),
            None,
            Err((Outcome::Success, "no network is missing")),
        ),
    ];
    let remote = networks(&["10.2.0.0/16", "fd00:2::/48"]);
    for (settings, data, expected) in cases {
        let found = data.as_ref().map(|data| serde_json::from_value(map(data)).unwrap());
        match (plan(&settings, found, &remote, &own), expected) {
            (Plan::Write(write), Ok(announcement)) => {
                assert_eq!(write.announcement, announcement);
                let entries = &write.object.data["data"];
                if let Some(other) = data.as_ref().and_then(|data| data.get("other")) {
                    assert_eq!(&entries["other"], other);
                }
                let list = List::parse(entries[ENTRY].as_str().unwrap()).unwrap();
                assert!(remote.iter().all(|net| list.networks.iter().any(|there| there.contains(net))));
                assert_eq!(write.object.metadata.resource_version.is_some(), data.is_some());
                // A second one has nothing to do.
                assert!(matches!(
                    plan(&settings, Some(write.object), &remote, &own),
                    Plan::Nothing(Outcome::Success, _)
                ));
            }
            (Plan::Nothing(outcome, text), Err((expected, part))) => {
                assert!(outcome == expected && text.contains(part), "{text}");
            }
            (plan, expected) => panic!("{plan:?}, not {expected:?}"),
        }
    }
}

#[test]
fn plugin_cilium_fix_tells_of_a_list_that_helm_has_made() {
    let mut map = map(&json!({}));
    map["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    let remote = networks(&["fd00:2::/48"]);
    let Plan::Write(write) = plan(&with_agent(), Some(serde_json::from_value(map).unwrap()), &remote, &[])
    else {
        panic!("nothing is written")
    };
    assert!(write.announcement.contains("ipMasqAgent.config"), "{}", write.announcement);
}

#[test]
fn plugin_cilium_fix_takes_the_own_networks_of_the_objects_of_the_cluster() {
    let endpoint = json!({"cluster_id": "a", "cable_name": "c", "hostname": "h", "subnets": ["10.1.0.0/16", "10.9.0.0/16"],
        "private_ip": "1.1.1.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    let gateway = json!({"metadata": {"name": "gw", "namespace": "n"}, "status": {"version": "1", "haStatus": "active",
        "statusFailure": "", "localEndpoint": endpoint, "connections": []}});
    let gateways: [Gateway; 1] = [serde_json::from_value(gateway).unwrap()];
    let cluster = |id: &str, global: &[&str]| -> Cluster {
        let spec = json!({"cluster_id": id, "service_cidr": ["100.1.0.0/16"], "cluster_cidr": ["10.1.0.0/16"],
            "global_cidr": global});
        serde_json::from_value(json!({"metadata": {"name": id, "namespace": "n"}, "spec": spec})).unwrap()
    };
    let own = |clusters: &[Cluster]| own_networks(&gateways, clusters);
    assert_eq!(own(&[cluster("a", &[])]), networks(&["10.1.0.0/16", "10.9.0.0/16", "100.1.0.0/16"]));
    // What is announced with Globalnet are no addresses of pods.
    assert_eq!(own(&[cluster("a", &["242.0.0.0/16"])]), networks(&["10.1.0.0/16", "100.1.0.0/16"]));
    assert_eq!(own(&[cluster("b", &[])]), networks(&["10.1.0.0/16", "10.9.0.0/16"]));
}

async fn fixed(fake: &Fake) -> Record {
    let mut record = Record::default();
    let remote = networks(&["10.2.0.0/16", "fd00:2::/48"]);
    masquerade(&fake.checked("ns"), Some(&with_agent()), &remote, Remedy::Written, &mut record)
        .await
        .unwrap();
    record
}

#[tokio::test]
async fn plugin_cilium_fix_writes_the_list_once_and_loses_no_edit() {
    let fake = Fake::start();
    fake.list(MAPS, &[]);
    let record = fixed(&fake).await;
    assert_eq!(record.worst(), Outcome::Success, "{record}");
    assert!(record.to_string().contains("it may take a minute"), "{record}");
    let path = format!("{MAPS}?&fieldManager=trieste-diagnose");
    let asked: Vec<_> = fake.writes().into_iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(asked, [("POST".to_owned(), path)]);
    fixed(&fake).await;
    assert_eq!(fake.writes().len(), 1);
    // Somebody empties it, and then edits it while it is written.
    fake.put(MAP, map(&json!({"config": "nonMasqueradeCIDRs: []\n"})));
    let mut edited = map(&json!({"config": "nonMasqueradeCIDRs: [192.0.2.0/24]\n"}));
    edited["metadata"]["resourceVersion"] = json!("2");
    fake.before_replacing(MAP, edited.clone());
    let record = fixed(&fake).await;
    assert!(record.to_string().contains("somebody else has written it meanwhile; run again"), "{record}");
    assert_eq!((record.worst(), fake.get(MAP)), (Outcome::Failure, Some(edited)));
    let record = fixed(&fake).await;
    let list = fake.get(MAP).unwrap()["data"]["config"].clone();
    assert_eq!(record.worst(), Outcome::Success, "{record}");
    assert_eq!(
        List::parse(list.as_str().unwrap()).unwrap().networks,
        networks(&["192.0.2.0/24", "10.2.0.0/16", "fd00:2::/48"])
    );
}

#[tokio::test]
async fn plugin_cilium_fix_names_the_right_that_is_missing() {
    let fake = Fake::start();
    fake.put(MAP, map(&json!({"config": "nonMasqueradeCIDRs: []\n"})));
    fake.refuse("PUT", 403);
    let record = fixed(&fake).await;
    let told = "the right to update configmaps of the core group in namespace kube-system is missing";
    assert!(record.to_string().contains(told), "{record}");
}
