use super::*;
use crate::server::fake::Fake;

const ZONES: [&str; 2] = ["clusterset.local", "set.example"];
const ADDRESS: [u8; 4] = [10, 96, 0, 77];
const PLAIN: &str = ".:53 {\n    errors\n    reload\n}\n";

fn zones() -> Vec<String> {
    ZONES.map(str::to_owned).to_vec()
}

fn map(place: &ObjectRef, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": place.name, "namespace": place.namespace, "resourceVersion": "1"}})
}

async fn forwarded(fake: &Fake, custom: Option<(&str, &str)>) -> Result<Forwarded, DeployError> {
    forward(&fake.server(), &zones(), ADDRESS.into(), custom).await
}

async fn data(fake: &Fake, place: &ObjectRef) -> Value {
    fake.server().find(place).await.unwrap().unwrap_or_default()["data"].clone()
}

#[tokio::test]
async fn every_kind_of_cluster_forwards_and_is_as_before_once_it_does_no_more() {
    let coredns = config_map(SYSTEM, "coredns");
    let rke = config_map(SYSTEM, "rke2-coredns-rke2-coredns");
    let custom = config_map(SYSTEM, CUSTOM_NAME);
    let named = config_map("dns", "more");
    let microshift = config_map("openshift-dns", "dns-default");
    let kube_dns = config_map(SYSTEM, "kube-dns");
    let imports = format!("{PLAIN}import /etc/coredns/custom/*.server\n");
    let others = json!({"apiVersion": "operator.openshift.io/v1", "kind": "DNS",
        "metadata": {"name": "default", "resourceVersion": "1"},
        "spec": {"servers": [{"name": "theirs", "zones": ["a.example"], "forwardPlugin": {"upstreams": ["192.0.2.1"]}}]}});
    let cases = [
        ("CoreDNS", vec![map(&coredns, &json!({"Corefile": PLAIN}))], None, &coredns),
        ("RKE2", vec![map(&rke, &json!({"Corefile": PLAIN}))], None, &rke),
        ("k3s", vec![map(&coredns, &json!({"Corefile": imports}))], None, &custom),
        (
            "AKS",
            vec![
                map(&coredns, &json!({"Corefile": imports})),
                map(&custom, &json!({"mine.server": "a.example {\n}\n"})),
            ],
            None,
            &custom,
        ),
        ("named", vec![map(&coredns, &json!({"Corefile": PLAIN}))], Some(("dns", "more")), &named),
        ("OpenShift", vec![others], None, &openshift()),
        ("MicroShift", vec![map(&microshift, &json!({"Corefile": PLAIN}))], None, &microshift),
        (
            "GKE",
            vec![map(&kube_dns, &json!({"stubDomains": "{\"a.example\":[\"192.0.2.1\"]}"}))],
            None,
            &kube_dns,
        ),
        ("GKE without stub domains", vec![map(&kube_dns, &json!({"other": "x"}))], None, &kube_dns),
    ];
    for (what, objects, custom, place) in cases {
        let fake = Fake::default();
        objects.iter().for_each(|object| fake.put(object.clone()));
        let before = fake.server().find(place).await.unwrap();
        let first = forwarded(&fake, custom).await.unwrap();
        assert_eq!((&first.place, first.is_changed), (place, true), "{what}");
        let text = fake.server().find(place).await.unwrap().unwrap().to_string();
        assert!(
            ZONES.iter().all(|zone| text.contains(zone)) && text.contains("10.96.0.77"),
            "{what}: {text}"
        );
        assert!(!forwarded(&fake, custom).await.unwrap().is_changed, "{what}: twice");

        assert_eq!(
            withdraw(&fake.server(), &zones(), custom).await.unwrap(),
            std::slice::from_ref(place),
            "{what}"
        );
        assert_eq!(fake.server().find(place).await.unwrap(), before, "{what}");
        assert!(withdraw(&fake.server(), &zones(), custom).await.unwrap().is_empty(), "{what}: gone twice");
    }
}

#[tokio::test]
async fn what_somebody_else_writes_meanwhile_stays() {
    let (fake, coredns) = (Fake::default(), config_map(SYSTEM, "coredns"));
    fake.put(map(&coredns, &json!({"Corefile": PLAIN})));
    let theirs = format!("{PLAIN}a.example:53 {{\n    forward . 192.0.2.1\n}}\n");
    fake.before_replacing(map(&coredns, &json!({"Corefile": theirs, "NodeHosts": "x"})));
    forwarded(&fake, None).await.unwrap();
    let data = data(&fake, &coredns).await;
    assert!(data["Corefile"].as_str().unwrap().ends_with(&theirs) && data["NodeHosts"] == "x", "{data}");
    withdraw(&fake.server(), &zones(), None).await.unwrap();
    assert_eq!(self::data(&fake, &coredns).await["Corefile"], theirs);
}

#[tokio::test]
async fn a_section_gives_way_to_the_folder_of_further_servers() {
    let (fake, coredns) = (Fake::default(), config_map(SYSTEM, "coredns"));
    fake.put(map(&coredns, &json!({"Corefile": PLAIN})));
    forwarded(&fake, None).await.unwrap();
    let with = data(&fake, &coredns).await["Corefile"].as_str().unwrap().to_owned();
    fake.put(map(&coredns, &json!({"Corefile": format!("{with}import custom/*.server\n")})));
    let second = forwarded(&fake, None).await.unwrap();
    assert_eq!(second.place, config_map(SYSTEM, CUSTOM_NAME));
    assert!(!data(&fake, &coredns).await.to_string().contains("clusterset.local"));
}

#[tokio::test]
async fn where_it_cannot_be_said_people_are_told_what_to_write() {
    let fake = Fake::default();
    let error = forwarded(&fake, None).await.unwrap_err();
    assert!(error.to_string().contains("DNS was not found"), "{error}");
    assert!(error.next().contains("clusterset.local:53 {\n    forward . 10.96.0.77\n}"), "{}", error.next());

    let coredns = config_map(SYSTEM, "coredns");
    let taken = format!("{PLAIN}clusterset.local:53 {{\n    forward . 192.0.2.9\n}}\n");
    fake.put(map(&coredns, &json!({"Corefile": taken})));
    let error = forwarded(&fake, None).await.unwrap_err();
    assert!(error.to_string().contains("a server for clusterset.local already"), "{error}");
    assert_eq!(data(&fake, &coredns).await["Corefile"], taken);
}

#[tokio::test]
async fn a_dns_server_that_does_not_reload_is_told_apart() {
    for (corefile, is_reloaded) in [(PLAIN, true), (".:53 {\n    errors\n}\n", false)] {
        let fake = Fake::default();
        fake.put(map(&config_map(SYSTEM, "coredns"), &json!({"Corefile": corefile})));
        assert_eq!(forwarded(&fake, None).await.unwrap().is_reloaded, is_reloaded);
    }
}
