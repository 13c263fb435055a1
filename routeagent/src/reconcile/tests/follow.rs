//! Passes for a changed view, planned from what is known.

use super::*;

#[tokio::test]
async fn a_changed_view_is_applied_without_reading_the_network_again() {
    let mut reconciler = reconciler(Fake::new()).with_grace(Duration::ZERO);
    reconciler.pass(&members(3)).await.unwrap();
    // The first pass makes what hardly ever changes, and is read back.
    assert_eq!(reconciler.follow(&members(3)).await.unwrap().outcome, Outcome::Settled);
    let reads = reconciler.host.reads.get();
    for (count, outcome) in
        [(4, Outcome::Changed), (4, Outcome::Settled), (6, Outcome::Changed), (2, Outcome::Changed)]
    {
        assert_eq!(reconciler.follow(&members(count)).await.unwrap().outcome, outcome, "{count}");
        assert_eq!(reconciler.host.reads.get(), reads);
    }
    let routed = reconciler.host.observed.borrow().routes.len();
    assert_eq!(reconciler.pass(&members(2)).await.unwrap().outcome, Outcome::Settled);
    assert_eq!(reconciler.host.reads.get(), reads + 1);
    let mut other = super::reconciler(Fake::new());
    other.pass(&members(2)).await.unwrap();
    assert_eq!(routed, other.host.observed.borrow().routes.len());
}

#[tokio::test]
async fn what_is_not_as_it_was_known_is_read_and_done_at_once() {
    let mut reconciler = reconciler(Fake::new());
    reconciler.pass(&members(1)).await.unwrap();
    reconciler.follow(&members(1)).await.unwrap();
    let reads = reconciler.host.reads.get();
    reconciler.host.refuses = Some("add unreachable 100.64.1.0/24");
    assert_eq!(reconciler.follow(&members(2)).await.unwrap().outcome, Outcome::Failed);
    assert_eq!(reconciler.host.reads.get(), reads + 1);
    reconciler.host.refuses = None;
    let outcome = reconciler.follow(&members(2)).await.unwrap().outcome;
    assert_eq!(outcome, Outcome::Repeated, "what had failed is made");
    assert_eq!(reconciler.host.reads.get(), reads + 2, "after a failure nothing is known");
}

#[tokio::test]
async fn settings_that_were_not_read_are_read_when_they_are_needed() {
    let mut reconciler = reconciler(Fake::new());
    reconciler.pass(&members(1)).await.unwrap();
    reconciler.follow(&members(1)).await.unwrap();
    let reads = reconciler.host.reads.get();
    let mut moved = members(1);
    moved.endpoints[0].interface = Some("cable0".to_owned());
    let pass = reconciler.follow(&moved).await.unwrap();
    assert_eq!(reconciler.host.reads.get(), reads + 1, "{:?}", pass.changes);
}

/// What one more member costs in each size of set, without the kernel: `--nocapture` shows it.
#[tokio::test]
async fn one_more_member_reads_nothing_however_many_there_are() {
    for count in [10, 100, 300] {
        let mut reconciler = reconciler(Fake::new());
        reconciler.pass(&members(count)).await.unwrap();
        reconciler.pass(&members(count)).await.unwrap();
        let (reads, more) = (reconciler.host.reads.get(), members(count + 1));
        let began = Instant::now();
        let pass = reconciler.follow(&more).await.unwrap();
        println!("{count} members: one more took {:?}", began.elapsed());
        let began = Instant::now();
        assert_eq!(reconciler.follow(&more).await.unwrap().outcome, Outcome::Settled);
        println!("{count} members: nothing new took {:?}", began.elapsed());
        assert_eq!((pass.outcome, reconciler.host.reads.get()), (Outcome::Changed, reads));
        assert!(pass.changes.len() <= 16, "{count}: {:?}", pass.changes);
    }
}

/// A view with so many other clusters, of four networks each.
pub(super) fn members(count: u32) -> ClusterView {
    let mut endpoints = vec![Endpoint::new("a-cable", "a", "a-gw1")];
    endpoints.extend((0..count).map(|member| {
        let cluster = format!("member-{member:04}");
        let mut endpoint = Endpoint::new(&format!("{cluster}-cable"), &cluster, &format!("{cluster}-gw1"));
        let network = |number: u32| {
            let address = std::net::Ipv4Addr::from(0x6440_0000 + ((number * APART + member) << 8));
            format!("{address}/24").parse().unwrap()
        };
        endpoint.subnets = (0..4).map(network).collect();
        endpoint
    }));
    ClusterView { endpoints, ..ClusterView::default() }
}

/// Distance of a member's networks from each other.
const APART: u32 = 4096;
