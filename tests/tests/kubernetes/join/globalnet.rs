//! Clusters with the same addresses, and a broker that gives out global ones.

use serde_json::{Value, json};
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::join::Join;
use trieste_deploy::objects::{BrokerOptions, Globalnet};
use trieste_deploy::shares::Wish;
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::Client;
use trieste_tests::lab::Lab;

use super::bed::{Bed, assert_same, bed};
use super::{findings, run, shown};

#[test]
fn clusters_with_the_same_addresses_join_a_broker_that_gives_out_global_ones() {
    let name = "clusters_with_the_same_addresses_join_a_broker_that_gives_out_global_ones";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);

    let info = run(async {
        let globalnet = Globalnet { enabled: true, ..Globalnet::default() };
        let broker = BrokerOptions { globalnet, ..BrokerOptions::default() };
        let (info, _) = east.deploy_with(&east.admin(), None, broker).await.unwrap();
        info
    });
    assert_eq!(shares(&east.client), json!([]));
    run(async {
        let steps = shown(&east.join(&info, &east.options(&info, "east")).await.unwrap());
        assert!(steps.contains("Success Allocated global CIDR 242.0.0.0/16"), "{steps}");
        east.settle();

        // What cannot be given is refused before anything is changed, and looking alone takes nothing.
        let versions = (east.versions(), west.versions());
        for (wish, expected) in [
            (said("242.0.128.0/24"), "overlaps 242.0.0.0/16, which is given to cluster east"),
            (said("10.11.0.0/17"), "overlaps 10.11.0.0/16 of this cluster"),
            (Wish { size: Some(1 << 24), cidr: None }, "a second cluster would get none"),
        ] {
            let error = west.prepare(&info, &same(&west, &info, wish)).await.unwrap_err();
            assert!(findings(&error).contains(expected), "{error:?}");
        }
        let mut alone = same(&west, &info, Wish::default());
        west.prepare(&info, &alone).await.unwrap();
        alone.globalnet = false;
        // East publishes global addresses alone, so that west's own are in nobody's way yet.
        west.prepare(&info, &alone).await.unwrap();
        assert_same(&versions.0, &east.versions());
        assert_same(&versions.1, &west.versions());

        let wish = Wish { size: Some(200), cidr: None };
        let steps = shown(&west.join(&info, &same(&west, &info, wish)).await.unwrap());
        assert!(steps.contains("Success Allocated global CIDR 242.1.0.0/24"), "{steps}");
        west.settle();
    });
    let east_has = json!({"cluster_id": "east", "global_cidr": ["242.0.0.0/16"]});
    let west_has = |cidr: &str| json!([east_has, {"cluster_id": "west", "global_cidr": [cidr]}]);
    assert_eq!(shares(&east.client), west_has("242.1.0.0/24"));
    assert_eq!(programs(&west.client), ["242.1.0.0/24"; 2]);

    run(async {
        let versions = (east.versions(), west.versions());
        let steps = shown(&west.join(&info, &same(&west, &info, Wish::default())).await.unwrap());
        assert!(steps.contains("Success Using the global CIDR 242.1.0.0/24 of an earlier join"), "{steps}");
        assert_same(&versions.0, &east.versions());
        assert_same(&versions.1, &west.versions());

        let steps = shown(&west.join(&info, &same(&west, &info, said("242.7.0.0/20"))).await.unwrap());
        assert!(
            steps.contains("Warning the global CIDR changes from 242.1.0.0/24 to 242.7.0.0/20"),
            "{steps}"
        );
    });
    assert_eq!(shares(&east.client), west_has("242.7.0.0/20"));
    assert_eq!(programs(&west.client), ["242.7.0.0/20"; 2]);
    // Each has a block of clusterset IPs of each family too, also where services have none by themselves.
    let blocks = json!([{"cluster_id": "east", "global_cidr": ["243.0.0.0/20"]},
        {"cluster_id": "west", "global_cidr": ["243.0.16.0/20"]}]);
    assert_eq!(given(&east.client, "submariner-clustersetip-info"), blocks);
    let blocks = json!([{"cluster_id": "east", "global_cidr": ["fdf1:5f29:2642::/112"]},
        {"cluster_id": "west", "global_cidr": ["fdf1:5f29:2642::1:0/112"]}]);
    assert_eq!(given(&east.client, "trieste-clusterset-ipv6-info"), blocks);
    assert_eq!(
        agent(&west.client),
        [
            "SUBMARINER_CLUSTERSET_IP_CIDR=243.0.16.0/20,fdf1:5f29:2642::1:0/112",
            "SUBMARINER_CLUSTERSET_IP_ENABLED=false",
            "TRIESTE_CLUSTERSET_IP_RANGE=243.0.0.0/8,fdf1:5f29:2642::/48"
        ]
    );
}

/// Returns what the agent of service discovery is told of clusterset IPs.
fn agent(client: &Client) -> Vec<String> {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/submariner-lighthouse-agent");
    let deployment = client.get(&path).unwrap();
    let all = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = all.iter().filter(|one| text(&one["name"]).contains("CLUSTERSET_IP"));
    found.map(|one| format!("{}={}", text(&one["name"]), text(&one["value"]))).collect()
}

fn said(cidr: &str) -> Wish {
    Wish { cidr: Some(cidr.parse().unwrap()), size: None }
}

/// West, with east's pods and services.
fn same(west: &Bed, info: &BrokerInfo, share: Wish) -> Join {
    let mut options = west.options(info, "west");
    options.given.pods = vec!["10.11.0.0/16".parse().unwrap()];
    options.given.services = vec!["10.111.0.0/16".parse().unwrap()];
    options.share = share;
    options
}

/// Who has what, as the broker's ConfigMap says it.
fn shares(broker: &Client) -> Value {
    given(broker, "submariner-globalnet-info")
}

fn given(broker: &Client, map: &str) -> Value {
    let path = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/configmaps/{map}");
    let map = broker.get(&path).unwrap();
    serde_json::from_str(map["data"]["clusterinfo"].as_str().unwrap()).unwrap()
}

/// The global CIDR that the gateway and the route agents are started with.
fn programs(client: &Client) -> Vec<String> {
    let of = |name: &str| {
        let set = client.get(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{name}")).unwrap();
        let all = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let found = all.into_iter().find(|variable| variable["name"] == "SUBMARINER_GLOBALCIDR").unwrap();
        found["value"].as_str().unwrap().to_owned()
    };
    ["submariner-gateway", "submariner-routeagent"].map(of).to_vec()
}
