//! What changes cost, counted.

use trieste_dns::{Change, Endpoint, Import, Label, Records, ServiceKind, ServiceName, Slice, Writer};

/// A set of 200 clusters with 5,000 services, each exported by two clusters with five pods each: 50,000 endpoints.
fn large_set() -> (Writer, Records) {
    let (mut writer, records) = Writer::new(Label::new("c0").unwrap());
    for number in 0..5_000_u32 {
        let import = Import { kind: ServiceKind::Headless, ..Import::default() };
        writer.apply(Change::Import(service(number), import)).unwrap();
        for cluster in [number % 200, (number + 7) % 200] {
            writer.apply(Change::Slice(service(number), cluster_id(cluster), "s".into(), slice(5))).unwrap();
        }
    }
    (writer, records)
}

fn service(number: u32) -> ServiceName {
    ServiceName::parse(&format!("n{}", number % 50), &format!("s{number}")).unwrap()
}

fn cluster_id(number: u32) -> Label {
    Label::new(&format!("c{number}")).unwrap()
}

fn slice(pods: u8) -> Slice {
    let endpoint = |pod| Endpoint { addresses: vec![[10, 0, 0, pod].into()], host: None, is_ready: true };
    Slice { endpoints: (0..pods).map(endpoint).collect(), ..Slice::default() }
}

#[test]
fn a_change_copies_what_it_is_about_and_one_shard() {
    let (mut writer, records) = large_set();
    let (before, serial) = (writer.copied(), records.serial());
    writer.apply(Change::Slice(service(7), cluster_id(7), "s".into(), slice(6))).unwrap();
    let copied = writer.copied() - before;
    assert!(copied < 50, "{copied} entries of 5,000 services");
    assert_eq!(records.serial(), serial + 1);
}

#[test]
fn a_cluster_that_goes_down_changes_no_service() {
    let (mut writer, _) = large_set();
    let before = writer.copied();
    let state = trieste_dns::ClusterState { is_up: false, rtt: None };
    writer.apply(Change::Cluster(cluster_id(7), Some(state))).unwrap();
    assert_eq!(writer.copied(), before);
}

#[test]
fn clusters_and_slices_are_bounded() {
    let (mut writer, _) = Writer::new(cluster_id(0));
    let mut refused = 0;
    for number in 0..5_000 {
        let change = Change::Slice(service(1), cluster_id(number), "s".into(), slice(1));
        refused += u32::from(writer.apply(change).is_err());
    }
    assert_eq!(refused, 5_000 - 4_096);
    // A cluster whose last slice goes makes room for another.
    writer.apply(Change::SliceRemoved(service(1), cluster_id(3), "s".into())).unwrap();
    writer.apply(Change::Slice(service(1), cluster_id(4_999), "s".into(), slice(1))).unwrap();

    let mut refused = 0;
    for number in 0..2_000 {
        let change = Change::Slice(service(2), cluster_id(5), number.to_string().into(), Slice::default());
        refused += u32::from(writer.apply(change).is_err());
    }
    assert_eq!(refused, 2_000 - 1_024);
}
