use serde_json::json;
use trieste_control::api::{OWN_API_VERSION, TKESTACK_API_VERSION};
use trieste_control::steps::Record;

use super::*;
use crate::objects::names::{BROKER_SECRET, MANAGED_BY_LABEL};
use crate::objects::{self, BrokerAccess, Image, Manifest, Secret};
use crate::server::fake::Fake;

fn chosen() -> MemberOptions {
    let mut access = BrokerAccess::new("192.0.2.1:6443", None, Secret::new("a token"));
    access.namespace = "the-broker".to_owned();
    access.insecure = true;
    let mut chosen = MemberOptions::new("east", access, Secret::new("a key"));
    chosen.natt_port = 4501;
    chosen.cable_driver = "libreswan".to_owned();
    chosen.service_discovery = true;
    chosen.halt_on_certificate_error = false;
    chosen.custom_domains = vec!["a.example".to_owned()];
    chosen.global_cidrs = networks("242.1.0.0/16");
    chosen.clusterset_ip_cidrs = networks("243.0.16.0/20,fd00:243::1:0/112");
    chosen.clusterset_ip_ranges = networks("243.0.0.0/8,fd00:243::/48");
    chosen.clusterset_ips_by_default = true;
    chosen.cluster_cidrs = networks("10.4.0.0/16");
    chosen.service_cidrs = networks("10.96.0.0/16");
    chosen.node_selector = [("pool".to_owned(), "network".to_owned())].into();
    chosen.image = Image::new("reg.example/x/trieste:0.1.0");
    chosen
}

fn networks(text: &str) -> Vec<ipnet::IpNet> {
    text.split(',').map(|network| network.parse().unwrap()).collect()
}

fn installed(options: &MemberOptions) -> Fake {
    let fake = Fake::default();
    objects::member(options).into_iter().map(Manifest::into_value).for_each(|object| fake.put(object));
    fake
}

async fn read(fake: &Fake, namespace: &str) -> Result<MemberOptions, DeployError> {
    let earlier = join::earlier(&fake.server(), namespace).await?.unwrap();
    let mut member = member::read(&fake.server(), namespace, &earlier).await?;
    // What is discovered, and what the join's plan makes of it.
    let networks = earlier.networks();
    (member.cluster_cidrs, member.service_cidrs) = (networks.pods, networks.services);
    Ok(member)
}

#[tokio::test]
async fn an_upgrade_to_the_same_version_changes_no_object() {
    let chosen = chosen();
    let member = read(&installed(&chosen), &chosen.namespace).await.unwrap();
    assert_eq!(format!("{member:?}"), format!("{chosen:?}"));
    assert_eq!(objects::member(&member), objects::member(&chosen));
}

#[tokio::test]
async fn what_is_missing_is_named_with_what_makes_it_anew() {
    let chosen = chosen();
    let fake = installed(&chosen);
    fake.put(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": chosen.namespace, "name": BROKER_SECRET}}));
    let error = read(&fake, &chosen.namespace).await.unwrap_err();
    assert!(error.to_string().contains("submariner-broker-secret has no key token"), "{error}");
    assert!(error.next().contains("trieste join"), "{}", error.next());

    let options = Upgrade {
        namespace: "elsewhere".to_owned(),
        image: None,
        ignore_requirements: false,
        limit: Duration::ZERO,
    };
    let error = prepare(&fake.server(), &options, &mut Record::default()).await.unwrap_err();
    assert!(error.to_string().contains("no member in the namespace elsewhere"), "{error}");
}

#[tokio::test]
async fn what_the_operator_carries_out_is_left_to_it() {
    let chosen = chosen();
    let fake = installed(&chosen);
    for (version, kind) in [(OWN_API_VERSION, "Fabric"), (TKESTACK_API_VERSION, "Knitnet")] {
        fake.put(json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "east", "namespace": "", "finalizers": [Fabric::MEMBER_FINALIZER]}}));
    }
    let texts: Vec<String> = of_operator(&fake.server()).await.unwrap().iter().map(Finding::line).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts.iter().all(|text| text.contains("operator.yaml")), "{texts:?}");
}

#[tokio::test]
async fn a_broker_of_another_version_is_named() {
    let role = |version: &str| {
        let fake = Fake::default();
        let labels = json!({VERSION_LABEL: version, MANAGED_BY_LABEL: "trieste"});
        fake.put(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"namespace": BROKER_NAMESPACE, "name": MEMBER_ROLE, "labels": labels}}));
        fake
    };
    let found = async |fake: &Fake| broker(&fake.server()).await.unwrap();
    assert_eq!(found(&Fake::default()).await, None);
    assert_eq!(found(&role(env!("CARGO_PKG_VERSION"))).await, None);
    assert!(found(&role("0.0.9")).await.unwrap().line().contains("trieste deploy-broker"));
}

#[test]
fn an_image_is_chosen_whole_or_by_its_tag_and_of_this_commands_minor_version() {
    let with = |choice: Option<ImageChoice>| {
        let mut member = chosen();
        choose_image(&mut member, choice.as_ref());
        member
    };
    let tag = |tag: &str| Some(ImageChoice::Tag(tag.to_owned()));
    assert_eq!(with(None).image.reference, "reg.example/x/trieste:0.1.0");
    assert_eq!(with(tag("next")).image.reference, "reg.example/x/trieste:next");
    let reference = Some(ImageChoice::Reference("other.example/t:1".to_owned()));
    assert_eq!(with(reference).image.reference, "other.example/t:1");
    assert_eq!((image(&with(tag("next"))).len(), image(&with(None)).len()), (1, 1));
    assert!(image(&with(tag("7.8.9")))[1].next.contains("take the trieste"));
}
