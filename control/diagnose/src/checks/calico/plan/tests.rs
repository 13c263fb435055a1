use super::*;

/// What it is, the pools that there are, what is announced, and what is remarked.
type Case = (&'static str, Vec<DynamicObject>, &'static [&'static str], Option<(Outcome, &'static str)>);

const VERSION: &str = "projectcalico.org/v3";

/// Returns a gateway that is connected to these clusters.
fn gateway(ha: &str, remote: &[(&str, &[&str])]) -> Gateway {
    let endpoint = |cluster: &str, subnets: &[&str]| {
        json!({"cluster_id": cluster, "cable_name": "cable", "hostname": "h", "subnets": subnets,
            "private_ip": "1.1.1.1", "public_ip": "", "nat_enabled": false, "backend": "wireguard"})
    };
    let connections: Vec<Value> = remote
        .iter()
        .map(|(cluster, subnets)| {
            json!({"status": "connected", "statusMessage": "", "endpoint": endpoint(cluster, subnets)})
        })
        .collect();
    let object = json!({"metadata": {"name": "gw", "namespace": "n"}, "status": {"version": "1", "haStatus": ha,
        "statusFailure": "", "localEndpoint": endpoint("a", &[]), "connections": connections}});
    serde_json::from_value(object).unwrap()
}

fn pool(name: &str, is_labelled: bool, spec: &Value) -> DynamicObject {
    let labels = if is_labelled { json!({REMOTE_POOL: "true"}) } else { json!({}) };
    let object = json!({"metadata": {"name": name, "labels": labels, "resourceVersion": "1"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn good(cidr: &str) -> Value {
    json!({"cidr": cidr, "natOutgoing": false, "disabled": true, "disableBGPExport": true})
}

const NAME: &str = "submariner-b-10.2.0.0-16";

/// Returns pools that leave something to write, or nothing.
fn own_pools() -> Vec<Case> {
    const CREATE: &str = "--fix creates IPPool submariner-b-10.2.0.0-16 (projectcalico.org/v3): cidr 10.2.0.0/16, natOutgoing false, disabled \
        true, disableBGPExport true";
    vec![
        ("none", vec![], &[CREATE], None),
        (
            "as it should be",
            vec![pool(NAME, true, &good("10.2.0.0/16"))],
            &[],
            Some((Outcome::Success, "no IPPool is missing")),
        ),
        (
            "corrected",
            vec![pool(
                NAME,
                true,
                &json!({"cidr": "10.2.0.0/16", "natOutgoing": true, "disabled": true, "blockSize": 26}),
            )],
            &[
                "--fix corrects IPPool submariner-b-10.2.0.0-16 (projectcalico.org/v3): natOutgoing false in the place of true, \
                 disableBGPExport true in the place of nothing",
            ],
            None,
        ),
        (
            "another network",
            vec![pool(NAME, true, &good("10.3.0.0/16"))],
            &[
                "--fix corrects IPPool submariner-b-10.2.0.0-16 (projectcalico.org/v3): cidr 10.2.0.0/16 in the place of 10.3.0.0/16",
            ],
            None,
        ),
        (
            "the name is somebody else's",
            vec![pool(NAME, false, &good("10.9.0.0/16"))],
            &[],
            Some((Outcome::Failure, "has no label submariner.io/ippool=true")),
        ),
        ("elsewhere", vec![pool("own", false, &good("10.1.0.0/16"))], &[CREATE], None),
    ]
}

/// Returns pools that are in the way, or serve.
fn other_pools() -> Vec<Case> {
    vec![
        (
            "wider, and does not masquerade",
            vec![pool("hand", false, &good("10.0.0.0/8"))],
            &[],
            Some((
                Outcome::Success,
                "IPPool hand (10.0.0.0/8), made by somebody else, contains 10.2.0.0/16 of cluster b",
            )),
        ),
        (
            "wider, and masquerades",
            vec![pool("hand", false, &json!({"cidr": "10.0.0.0/8", "natOutgoing": true}))],
            &[],
            Some((Outcome::Failure, "--fix never changes it")),
        ),
        (
            "inside",
            vec![pool("hand", false, &good("10.2.3.0/24"))],
            &[],
            Some((
                Outcome::Failure,
                "IPPool hand (10.2.3.0/24), made by somebody else, overlaps 10.2.0.0/16 of cluster b",
            )),
        ),
        (
            "left by another cluster",
            vec![pool("submariner-c-10.2.3.0-24", true, &good("10.2.3.0/24"))],
            &[],
            Some((Outcome::Failure, "Where no cluster of the set has 10.2.3.0/24 any more, remove it")),
        ),
    ]
}

#[test]
fn plugin_calico_fix_plans_what_is_missing_and_names_what_is_in_the_way() {
    let gateways = [gateway("active", &[("b", &["10.2.0.0/16"])])];
    for (case, pools, writes, remark) in own_pools().into_iter().chain(other_pools()) {
        let plan = plan(&gateways, &pools, VERSION);
        let announced: Vec<&str> = plan.writes.iter().map(|write| write.announcement.as_str()).collect();
        assert_eq!(announced, writes, "{case}");
        assert_eq!(plan.remarks.len(), usize::from(remark.is_some()), "{case}: {:?}", plan.remarks);
        if let Some((outcome, text)) = remark {
            assert!(
                plan.remarks[0].0 == outcome && plan.remarks[0].1.contains(text),
                "{case}: {:?}",
                plan.remarks
            );
        }
        let labelled = plan.writes.iter().filter(|write| is_labelled(&write.object));
        assert_eq!(labelled.count(), writes.len(), "{case}");
        // A new object has no version, one that was read keeps its own.
        let is_read = |write: &Write| write.object.metadata.resource_version.is_some();
        assert!(
            plan.writes.iter().all(|write| is_read(write) != pools.iter().all(|p| name_of(p) != NAME)),
            "{case}"
        );
    }
}

#[test]
fn plugin_calico_fix_makes_one_pool_for_networks_that_overlap() {
    let gateways = [
        gateway("active", &[("b", &["10.2.3.0/24", "10.2.0.0/16"]), ("c", &["10.2.0.0/17", "fd00:3::/48"])]),
        gateway("active", &[("b", &["10.2.0.0/16"])]),
        gateway("passive", &[("d", &["10.4.0.0/16"])]),
    ];
    let plan = plan(&gateways, &[], VERSION);
    let names: Vec<&str> = plan.writes.iter().map(|write| name_of(&write.object)).collect();
    assert_eq!(names, ["submariner-b-10.2.0.0-16", "submariner-c-fd00-3---48"]);
    assert!(plan.remarks[0].1.starts_with("10.2.0.0/17 of cluster c overlaps 10.2.0.0/16 of cluster b"));
    assert_eq!(plan.remarks.len(), 1);
}
