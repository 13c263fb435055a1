use serde_json::{Value, json};
use trieste_control::steps::Record;

use super::*;
use crate::checks::fix::fake::Fake;
use crate::checks::is_of_us;

const POOLS: &str = "/apis/projectcalico.org/v3/ippools";
const DEFINITIONS: &str = "/apis/crd.projectcalico.org/v1/ippools";
const GATEWAYS: &str = "/apis/submariner.io/v1/namespaces/ns/gateways";
const WORKERS: &str = "/apis/apps/v1/namespaces/ns/deployments/trieste-plugin-sync";

fn gateway(subnets: &[&str]) -> Value {
    let endpoint = json!({"cluster_id": "b", "cable_name": "cable-b", "hostname": "h", "subnets": subnets,
        "private_ip": "1.1.1.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    let local = json!({"cluster_id": "a", "cable_name": "cable-a", "hostname": "l", "subnets": ["10.1.0.0/16"],
        "private_ip": "1.1.1.2", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    json!({"metadata": {"name": "gw1", "namespace": "ns"}, "status": {"version": "1", "haStatus": "active",
        "statusFailure": "", "localEndpoint": local,
        "connections": [{"status": "connected", "statusMessage": "", "endpoint": endpoint}]}})
}

fn gateways(subnets: &[&str]) -> [Gateway; 1] {
    [serde_json::from_value(gateway(subnets)).unwrap()]
}

fn pool(spec: &Value) -> [DynamicObject; 1] {
    [serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()]
}

#[test]
fn plugin_calico_needs_a_pool_for_each_remote_network() {
    let gateways = gateways(&["10.2.0.0/16", "10.2.3.0/24"]);
    let pool = |disabled: bool, nat: bool| {
        pool(&json!({"cidr": "10.2.0.0/16", "disabled": disabled, "natOutgoing": nat, "vxlanMode": "Always"}))
    };
    let missing = r#"Could not find any IPPool with CIDR "10.2.0.0/16" for remote endpoint "cable-b""#;
    assert_eq!(pool_problems(&gateways, &[]), [missing]);
    assert!(pool_problems(&gateways, &pool(false, false))[0].ends_with("has disabled set to false"));
    assert!(pool_problems(&gateways, &pool(true, true))[0].ends_with("has natOutgoing set to true"));
    assert!(pool_problems(&gateways, &pool(true, false)).is_empty());
}

#[test]
fn plugin_calico_missing_pools_are_the_workers_and_others_are_not() {
    let gateways = gateways(&["10.2.0.0/16"]);
    let none = pool_problems(&gateways, &[]);
    let text = missing_pools(&none, true, " --context a", "ns").unwrap();
    assert!(text.contains("kubectl --context a -n ns logs -l app=trieste-plugin-sync"), "{text}");
    assert!(missing_pools(&none, false, "", "ns").unwrap().contains("diagnose cni --fix"));
    let problems = pool_problems(&gateways, &pool(&json!({"cidr": "10.2.0.0/16", "disabled": false})));
    assert_eq!((problems.is_empty(), missing_pools(&problems, true, "", "ns")), (false, None));
    assert!(is_of_us(&json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "trieste"}}})));
    assert!(!is_of_us(&json!({"metadata": {"labels": {}}})));
}

/// Returns a cluster with these pools by one version, which is connected to these networks.
fn cluster(version: &str, subnets: &[&str], there: &[Value]) -> Fake {
    let fake = Fake::start();
    fake.list(GATEWAYS, &[gateway(subnets)]);
    fake.list(version, there);
    fake
}

async fn fixed(fake: &Fake, is_ours: bool) -> Record {
    let mut record = Record::default();
    pools(&fake.checked("ns"), is_ours, Remedy::Written, &mut record).await.unwrap();
    record
}

#[tokio::test]
async fn plugin_calico_fix_writes_by_the_version_that_is_served_and_once() {
    for version in [POOLS, DEFINITIONS] {
        let wrong = json!({"metadata": {"name": "submariner-b-10.3.0.0-16", "resourceVersion": "7",
            "labels": {"submariner.io/ippool": "true"}},
            "spec": {"cidr": "10.3.0.0/16", "natOutgoing": true, "disabled": true, "blockSize": 26}});
        let fake = cluster(version, &["10.2.0.0/16", "10.3.0.0/16", "fd00:2::/48"], &[wrong]);
        let record = fixed(&fake, false).await;
        assert_eq!(record.worst(), Outcome::Success, "{record}");
        let written = fake.writes();
        let paths: Vec<String> = written.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        let query = "?&fieldManager=trieste-diagnose";
        let expected = [
            format!("POST {version}{query}"),
            format!("PUT {version}/submariner-b-10.3.0.0-16{query}"),
            format!("POST {version}{query}"),
        ];
        assert_eq!(paths, expected);
        assert_eq!(written[0].2["metadata"]["name"], "submariner-b-10.2.0.0-16");
        assert_eq!(written[0].2["metadata"]["labels"]["submariner.io/ippool"], "true");
        assert_eq!(written[1].2["spec"]["blockSize"], 26);
        assert_eq!(written[2].2["metadata"]["name"], "submariner-b-fd00-2---48");
        let again = fixed(&fake, false).await;
        assert_eq!((fake.writes().len(), again.worst()), (3, Outcome::Success), "{again}");
    }
}

#[tokio::test]
async fn plugin_calico_fix_leaves_pools_to_workers_that_run() {
    for (ready, written) in [(2, 0), (0, 1)] {
        let fake = cluster(POOLS, &["10.2.0.0/16"], &[]);
        fake.put(
            WORKERS,
            json!({"metadata": {"name": "trieste-plugin-sync"}, "status": {"readyReplicas": ready}}),
        );
        let record = fixed(&fake, true).await;
        assert_eq!(fake.writes().len(), written, "{record}");
        let told =
            if ready > 0 { "makes and corrects them: --fix writes none" } else { "has no pod that is ready" };
        assert!(record.to_string().contains(told), "{record}");
    }
}

#[tokio::test]
async fn plugin_calico_fix_tells_what_was_refused() {
    let cases = [
        (403, "the right to create ippools of projectcalico.org is missing", 1),
        (409, "somebody else has written it meanwhile; run again: trieste diagnose cni --fix", 2),
        (422, "was not written: refused (422)", 2),
    ];
    for (code, told, tried) in cases {
        let fake = cluster(POOLS, &["10.2.0.0/16", "10.3.0.0/16"], &[]);
        fake.refuse("POST", code);
        let record = fixed(&fake, false).await;
        assert!(record.to_string().contains(told), "{record}");
        assert_eq!(fake.writes().len(), tried, "{record}");
        // The second look.
        assert!(record.steps.last().unwrap().remarks[0].1.starts_with(NO_POOL), "{record}");
    }
    let fake = Fake::start();
    fake.list(GATEWAYS, &[gateway(&["10.2.0.0/16"])]);
    assert!(fixed(&fake, false).await.to_string().contains("the API server has no IPPools"));
}

#[tokio::test]
async fn plugin_calico_fix_is_asked_for_or_nothing_is_written() {
    let fake = cluster(POOLS, &["10.2.0.0/16"], &[]);
    let mut record = Record::default();
    pools(&fake.checked("ns"), false, Remedy::Explained, &mut record).await.unwrap();
    assert_eq!((fake.writes().len(), record.worst()), (0, Outcome::Failure), "{record}");
}
