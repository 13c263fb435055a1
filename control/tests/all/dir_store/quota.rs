//! What a member has beyond its share.

use super::*;

/// An Endpoint of a member with so many bytes of text, as a file.
fn heavy(name: &str, member: &str, second: u32, letters: usize) -> String {
    format!(
        "apiVersion: submariner.io/v1\nkind: Endpoint\nmetadata: {{name: {name}, namespace: {NS}, \
         creationTimestamp: '2024-01-01T00:{:02}:{:02}Z', labels: {{submariner-io/clusterID: {member}}}}}\n\
         spec: {{cluster_id: {member}, cable_name: c, hostname: h, subnets: [10.2.0.0/16], private_ip: 192.0.2.1, \
         public_ip: '', nat_enabled: false, backend: wireguard, note: '{}'}}\n",
        second / 60,
        second % 60,
        "x".repeat(letters)
    )
}

#[tokio::test]
async fn of_what_a_member_has_beyond_its_quota_only_the_outline_is_kept_until_there_is_space() {
    let lab = Lab::new();
    let endpoints = lab.dir().with_file_name("endpoints");
    fs::create_dir_all(&endpoints).unwrap();
    let path = |name: &str| endpoints.join(format!("{name}.yaml"));
    fs::write(path("good"), heavy("good", "good", 3599, 100)).unwrap();
    fs::write(path("huge"), heavy("huge", "bad", 0, 100_000)).unwrap();
    for number in 0..60 {
        let name = format!("bad-{number:02}");
        fs::write(path(&name), heavy(&name, "bad", number, 24 << 10)).unwrap();
    }
    let withheld = || async {
        let objects = lab.store.list(Kind::Endpoint, NS).await.unwrap();
        assert_eq!(objects.iter().filter(|object| object.metadata.origin() == Some("good")).count(), 1);
        let over =
            objects.into_iter().filter_map(|object| Some((object.metadata.name.clone(), object.withheld?)));
        over.collect::<std::collections::BTreeMap<_, _>>()
    };

    let first = withheld().await;
    assert!(first["huge"].contains("field `spec`: is too large"), "{}", first["huge"]);
    assert!(!first.contains_key("good") && !first.contains_key("bad-00"), "the oldest are kept");
    assert!(first["bad-59"].contains("the oldest are taken"), "{}", first["bad-59"]);
    assert!((18..=24).contains(&first.len()), "{first:?}");

    for number in 0..59 {
        fs::remove_file(path(&format!("bad-{number:02}"))).unwrap();
    }
    let second = withheld().await;
    assert_eq!(second.keys().collect::<Vec<_>>(), ["huge"], "there is space for the rest now");
}
