use super::*;
use crate::objects::{BrokerAccess, Secret};
use crate::server::fake::Fake;
use serde_json::{Value, json};
use trieste_control::steps::Outcome;

fn map(range: &str, size: &str, entries: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": GLOBALNET.config_map, "namespace": "meet", "resourceVersion": "7"},
        "data": {"globalnetEnabled": "true", "globalnetCidrRange": json!(range).to_string(),
            "globalnetClusterSize": size, "clusterinfo": entries.to_string()}})
}

fn allocations(entries: &[(&str, &str)]) -> Allocations {
    let entries = entries.iter().map(|(id, net)| json!({"cluster_id": id, "global_cidr": [net]}));
    Allocations::read(&map("242.0.0.0/8", "65536", &entries.collect()), &GLOBALNET).unwrap()
}

fn chosen(allocations: &Allocations, id: &str, wish: Wish) -> Result<String, String> {
    let foreign = Foreign::of(id, &["10.1.0.0/16".parse().unwrap()], &[]);
    choose(allocations, id, wish, &foreign)
        .map(|share| share.cidr.to_string())
        .map_err(|finding| finding.text)
}

fn cidr(text: &str) -> Wish {
    Wish { cidr: Some(text.parse().unwrap()), size: None }
}

fn size(size: u32) -> Wish {
    Wish { cidr: None, size: Some(size) }
}

#[test]
fn the_brokers_config_map_is_read_as_upstream_writes_it() {
    assert!(GLOBALNET.is_enabled(&json!({"data": {"globalnetEnabled": "true"}})));
    assert!(!GLOBALNET.is_enabled(&json!({"data": {"globalnetEnabled": "false"}})));
    assert!(!GLOBALNET.is_enabled(&json!({})));
    let allocations = allocations(&[("c1", "242.0.0.0/16")]);
    assert_eq!(allocations.share_of("c1").unwrap().to_string(), "242.0.0.0/16");
    assert_eq!(allocations.share_of("c2"), None);
}

#[test]
fn a_share_is_the_first_aligned_block_that_is_free() {
    assert_eq!(chosen(&allocations(&[]), "a", Wish::default()).unwrap(), "242.0.0.0/16");
    let two = allocations(&[("a", "242.0.0.0/16"), ("c", "242.2.0.0/16")]);
    assert_eq!(chosen(&two, "b", Wish::default()).unwrap(), "242.1.0.0/16");
    assert_eq!(chosen(&two, "b", size(131_072)).unwrap(), "242.4.0.0/15");
    assert_eq!(chosen(&two, "b", size(200)).unwrap(), "242.1.0.0/24");
    let odd = allocations(&[("a", "242.0.0.64/26")]);
    assert_eq!(chosen(&odd, "b", size(128)).unwrap(), "242.0.0.128/25", "the block with a's is passed over");
    assert_eq!(chosen(&odd, "b", size(64)).unwrap(), "242.0.0.0/26", "what is before it is free");
}

#[test]
fn a_member_that_joins_again_has_what_it_had() {
    let allocations = allocations(&[("a", "242.0.0.0/16"), ("b", "242.9.0.0/16")]);
    let share = choose(&allocations, "b", Wish::default(), &Foreign::default()).unwrap();
    assert_eq!((share.cidr.to_string(), share.origin), ("242.9.0.0/16".to_owned(), Origin::Kept));
    assert_eq!(share.finding(Wish::default()).outcome, Outcome::Success);
    let other_size = share.finding(size(256));
    assert_eq!(other_size.outcome, Outcome::Warning, "a size does not change what is in use");
    assert!(other_size.line().contains("--globalnet-cidr"));
}

#[test]
fn what_is_said_counts_more_than_what_was_and_says_so() {
    let allocations = allocations(&[("b", "242.9.0.0/16")]);
    let share = choose(&allocations, "b", cidr("242.10.0.0/24"), &Foreign::default()).unwrap();
    assert_eq!(share.origin, Origin::Changed("242.9.0.0/16".parse().unwrap()));
    let finding = share.finding(cidr("242.10.0.0/24"));
    assert_eq!(finding.outcome, Outcome::Warning);
    assert!(finding.text.contains("from 242.9.0.0/16 to 242.10.0.0/24"), "{}", finding.text);
}

#[test]
fn addresses_of_others_are_not_given_out_whoever_has_them() {
    let with_a = allocations(&[("a", "242.0.0.0/16")]);
    let error = chosen(&with_a, "b", cidr("242.0.5.0/24")).unwrap_err();
    assert!(error.contains("242.0.0.0/16, which is given to cluster a"), "{error}");
    let error = chosen(&with_a, "b", cidr("10.1.128.0/17")).unwrap_err();
    assert!(error.ends_with("overlaps 10.1.0.0/16 of this cluster"), "{error}");

    // Another member's CIDRs that the book does not know.
    let mut other = ClusterSpec::new("c", &["242.0.0.0/12".parse().unwrap()], &[]);
    let foreign = |other: &ClusterSpec| Foreign::of("b", &[], std::slice::from_ref(other));
    let free = choose(&allocations(&[]), "b", Wish::default(), &foreign(&other)).unwrap();
    assert_eq!(free.cidr.to_string(), "242.16.0.0/16");
    other.service_cidr = vec!["242.9.0.0/16".to_owned()];
    let error =
        choose(&allocations(&[("b", "242.9.0.0/16")]), "b", Wish::default(), &foreign(&other)).unwrap_err();
    assert!(error.text.ends_with("overlaps 242.9.0.0/16 of cluster c"), "{}", error.text);
    other.cluster_id = "b".to_owned();
    assert!(
        choose(&allocations(&[]), "b", Wish::default(), &foreign(&other)).is_ok(),
        "its own object is no clash"
    );
}

#[test]
fn a_share_that_makes_no_sense_or_does_not_fit_is_refused_with_what_to_do() {
    let empty = allocations(&[]);
    for (wish, text) in [
        (Wish { cidr: cidr("242.1.0.0/16").cidr, size: Some(16) }, "says it again"),
        (cidr("127.0.0.0/16"), "cannot be given out"),
        (cidr("242.1.0.0/29"), "too small"),
        (size(1 << 24), "a second cluster would get none"),
        (size(0), "0 addresses"),
    ] {
        let error = chosen(&empty, "b", wish).unwrap_err();
        assert!(error.contains(text), "{wish:?}: {error}");
    }
    let map = map("242.0.0.0/16", "32768", &json!([{"cluster_id": "a", "global_cidr": ["242.0.0.0/16"]}]));
    let full = Allocations::read(&map, &GLOBALNET).unwrap();
    assert!(chosen(&full, "b", Wish::default()).unwrap_err().contains("has no 32768 left"));
}

#[test]
fn a_book_that_cannot_be_read_gives_nothing_out() {
    let good = map("242.0.0.0/8", "65536", &json!([]));
    for (field, value) in [
        ("globalnetCidrRange", "\"fd00::/8\""),
        ("globalnetClusterSize", "many"),
        ("clusterinfo", "{}"),
        ("clusterinfo", r#"[{"cluster_id": "a", "global_cidr": ["242.0.0.0/33"]}]"#),
        ("clusterinfo", r#"[{"global_cidr": ["242.0.0.0/16"]}]"#),
    ] {
        let mut bad = good.clone();
        bad["data"][field] = json!(value);
        assert!(Allocations::read(&bad, &GLOBALNET).is_err(), "{field} {value}");
    }
    let mut empty = good;
    empty["data"]["clusterinfo"] = json!("null");
    assert!(Allocations::read(&empty, &GLOBALNET).is_ok(), "Go writes an empty list like this");
}

fn map6(range: &str, entries: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CLUSTERSET_IPV6.config_map, "namespace": "meet", "resourceVersion": "7"},
        "data": {"clustersetIPEnabled": "false", "clustersetIPCidrRange": json!(range).to_string(),
            "clustersetIPClusterSize": "65536", "clusterinfo": entries.to_string()}})
}

#[test]
fn shares_of_ipv6_are_the_first_aligned_blocks_that_are_free() {
    let allocations = |range: &str, entries: &[(&str, &str)]| {
        let entries = entries.iter().map(|(id, net)| json!({"cluster_id": id, "global_cidr": [net]}));
        Allocations::read(&map6(range, &entries.collect()), &CLUSTERSET_IPV6).unwrap()
    };
    let chosen = |allocations: &Allocations, wish| {
        let foreign =
            Foreign::of("b", &["fd00:243::2:0/111".parse().unwrap(), "10.0.0.0/8".parse().unwrap()], &[]);
        let share = choose(allocations, "b", wish, &foreign);
        share.map(|share| share.cidr.to_string()).map_err(|finding| finding.text)
    };
    let none = Wish::default();
    assert_eq!(chosen(&allocations("fd00:243::/48", &[]), none).unwrap(), "fd00:243::/112");
    let two = allocations("fd00:243::/48", &[("a", "fd00:243::/112"), ("c", "fd00:243::1:0/112")]);
    assert_eq!(chosen(&two, none).unwrap(), "fd00:243::4:0/112", "what is this cluster's own is passed over");
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:fffe:0/111";
    assert!(Allocations::read(&map6(last, &json!([])), &CLUSTERSET_IPV6).is_ok());
    // A range that is used up, at the very end of all addresses.
    let end = allocations(last, &[("a", "ffff:ffff:ffff:ffff:ffff:ffff:fffe:0/111")]);
    assert_eq!(first_free(end.range(), 65_536, &[end.range()]), None);
    assert!(chosen(&two, cidr("243.0.0.0/20")).unwrap_err().contains("wrong family"));
    for bad in ["243.0.0.0/8", "nowhere"] {
        assert!(Allocations::read(&map6(bad, &json!([])), &CLUSTERSET_IPV6).is_err(), "{bad}");
    }
    let mixed = json!([{"cluster_id": "a", "global_cidr": ["243.0.0.0/20"]}]);
    assert!(Allocations::read(&map6("fd00:243::/48", &mixed), &CLUSTERSET_IPV6).is_err());
}

#[tokio::test]
async fn a_broker_without_a_range_of_ipv6_has_no_shares_of_it() {
    let fake = Fake::default();
    let server = fake.server();
    assert!(read(&server, "meet", &CLUSTERSET_IPV6).await.unwrap().is_none());
    fake.put(map6("", &json!([])));
    assert!(read(&server, "meet", &CLUSTERSET_IPV6).await.unwrap().is_none());
    fake.put(map6("fd00:243::/48", &json!([])));
    let share = take(&server, &member("b"), &CLUSTERSET_IPV6, (Wish::default(), &Foreign::default())).await;
    assert_eq!(share.unwrap().cidr.to_string(), "fd00:243::/112");
    let again = read(&server, "meet", &CLUSTERSET_IPV6).await.unwrap().unwrap();
    assert_eq!(again.share_of("b").unwrap().to_string(), "fd00:243::/112");
}

#[tokio::test]
async fn a_share_is_written_down_beside_the_others_once() {
    let fake = Fake::default();
    let theirs = json!([{"cluster_id": "a", "global_cidr": ["242.0.0.0/16"], "more": 1}]);
    fake.put(map("242.0.0.0/8", "65536", &theirs));
    let (server, foreign) = (fake.server(), Foreign::default());
    for _ in 0..2 {
        let share = take(&server, &member("b"), &GLOBALNET, (Wish::default(), &foreign)).await.unwrap();
        assert_eq!(share.cidr.to_string(), "242.1.0.0/16");
    }
    let there = server.find(&place("meet", &GLOBALNET)).await.unwrap().unwrap();
    let entries: Value = serde_json::from_str(there["data"]["clusterinfo"].as_str().unwrap()).unwrap();
    let ours = json!({"cluster_id": "b", "global_cidr": ["242.1.0.0/16"]});
    assert_eq!(entries, json!([theirs[0], ours]));
}

#[tokio::test]
async fn of_two_clusters_that_join_at_once_the_slower_one_gets_the_next_share() {
    let fake = Fake::default();
    fake.put(map("242.0.0.0/8", "65536", &json!([])));
    // What the other cluster writes between our reading and our writing.
    fake.before_replacing(map(
        "242.0.0.0/8",
        "65536",
        &json!([{"cluster_id": "a", "global_cidr": ["242.0.0.0/16"]}]),
    ));
    let share =
        take(&fake.server(), &member("b"), &GLOBALNET, (Wish::default(), &Foreign::default())).await.unwrap();
    assert_eq!(share.cidr.to_string(), "242.1.0.0/16");

    fake.before_replacing(map(
        "242.0.0.0/8",
        "65536",
        &json!([{"cluster_id": "d", "global_cidr": ["242.2.0.0/16"]}]),
    ));
    let error =
        take(&fake.server(), &member("c"), &GLOBALNET, (cidr("242.2.0.0/16"), &Foreign::default())).await;
    assert!(error.unwrap_err().to_string().contains("given to cluster d"));
}

fn member(id: &str) -> MemberOptions {
    let mut access = BrokerAccess::new("b:1", None, Secret::default());
    access.namespace = "meet".to_owned();
    MemberOptions::new(id, access, Secret::default())
}
