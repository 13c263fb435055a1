//! Several gateways: all of a cluster that knows of them are paths, ours are siblings, and others know one of us.

use super::*;

use jiff::Timestamp;
use trieste_control::conditions::Conditions;
use trieste_control::health::{PingResults, PingerStatus, PingerView};
use trieste_control::natdiscovery as discovery;
use trieste_control::publish::StatusReading as _;
use trieste_pipeline::LaneEnd;

use crate::natdiscovery::{Discovery, DiscoveryReader};
use crate::status::{Document, Fixed, Live, Peers, Source, published};

/// What everybody knows: b has several gateways, c one.
fn soles() -> Vec<Endpoint> {
    vec![sole("b", 2, 21, true), sole("c", 3, 31, false)]
}

fn sole(cluster: &str, net: u8, host: u8, supports_paths: bool) -> Endpoint {
    let mut endpoint = endpoint(cluster, net, host, 1);
    endpoint.spec.set_supports_paths(supports_paths);
    endpoint
}

/// What a gateway says of itself beside that.
fn member(cluster: &str, net: u8, host: u8, weight: u16) -> Member {
    let mut endpoint = sole(cluster, net, host, true);
    endpoint.metadata.name = trieste_control::members::further_name(&endpoint.spec.cable_name).unwrap();
    endpoint.spec.set_weight(weight);
    endpoint.spec.health_check_ip = format!("10.{net}.0.{host}");
    Member { endpoint: endpoint.into() }
}

fn members(remote: &[Member], siblings: &[Member]) -> Members {
    Members { is_multi: true, remote: remote.into(), siblings: siblings.to_vec(), ..Members::default() }
}

fn choices(soles: &[Endpoint], members: &Members) -> Choices {
    let remote = members.remote.iter().map(|member| (*member.endpoint).clone());
    chosen(&soles.iter().cloned().chain(remote).collect::<Vec<_>>())
}

impl Rig {
    async fn know(&mut self, soles: &[Endpoint], members: &Members) {
        self.reconcile_with(soles, members, &choices(soles, members)).await;
    }

    /// Far ends and weights of the paths, by the cable that they are of.
    fn paths(&self) -> BTreeMap<String, (LaneEnd, u16)> {
        let tables = self.tables.load();
        let of = |path: &trieste_pipeline::Path| {
            let name = self.engine.cable_name(path.cable).unwrap().to_owned();
            (name, (path.end, path.weight))
        };
        tables.paths().iter().map(of).collect()
    }

    fn cables(&self) -> Vec<String> {
        self.engine.cable_names().into_values().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn watched(&self) -> usize {
        let reports = self.engine.workers().iter().flat_map(|worker| worker.published().lanes.clone());
        reports.filter(|report| report.health.is_some() && !report.is_draining).count()
    }
}

#[tokio::test(start_paused = true)]
async fn all_gateways_of_a_cluster_that_knows_of_several_are_paths_with_their_weights() {
    let mut rig = Rig::new(2);
    let known = members(&[member("b", 2, 21, 100), member("b", 2, 22, 300)], &[]);
    rig.know(&soles(), &known).await;
    let tables = rig.tables.load_full();
    let b = LaneEnd::Cluster(tables.cluster_of("10.2.0.1".parse().unwrap()).unwrap());
    let c = LaneEnd::Cluster(tables.cluster_of("10.3.0.1".parse().unwrap()).unwrap());
    let expected = [("cable-b-21", (b, 100)), ("cable-b-22", (b, 300)), ("cable-c-31", (c, 100))];
    assert_eq!(rig.paths(), expected.map(|(name, path)| (name.to_owned(), path)).into());
    for host in [21, 22] {
        let pinned = tables.pinned(format!("10.2.0.{host}").parse().unwrap()).unwrap();
        let cable = tables.path(pinned).unwrap().cable;
        assert_eq!(rig.engine.cable_name(cable), Some(format!("cable-b-{host}").as_str()));
    }
    let mut connected = rig.connected();
    connected.sort_unstable();
    assert_eq!(connected, ["cable-b-21", "cable-b-22", "cable-c-31"]);
    assert!(rig.engine.superseded(rig.now, 0).is_empty());
    assert_eq!(rig.watched(), 2, "upstream's gateways do not know of probes");

    // One goes: its path goes, the other one does not notice.
    let lane = rig.engine.lane("cable-b-22");
    rig.know(&soles(), &members(&known.remote[1..], &[])).await;
    assert_eq!(rig.engine.lane("cable-b-22"), lane);
    assert_eq!(rig.cables(), ["cable-b-21", "cable-b-22", "cable-c-31"], "the sole one is a gateway, too");
    let moved = [sole("b", 2, 22, true), sole("c", 3, 31, false)];
    rig.know(&moved, &members(&known.remote[1..], &[])).await;
    assert_eq!(
        (rig.cables(), rig.engine.lane("cable-b-22")),
        (vec!["cable-b-22".into(), "cable-c-31".into()], lane)
    );
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_lead_has_cables_to_clusters_that_know_of_several() {
    let mut rig = Rig::new(1);
    let known = members(&[member("b", 2, 21, 100), member("b", 2, 22, 100)], &[member("a", 1, 12, 100)]);
    rig.engine.set_active(false, rig.now).await;
    rig.know(&soles(), &known).await;
    assert_eq!(rig.cables(), ["cable-a-12", "cable-b-21", "cable-b-22"]);
    assert_eq!(rig.lane_to("10.3.0.1"), None);
    assert_eq!(rig.engine.peers().len(), 3, "all are known, for discovery");
    assert_eq!(rig.engine.own_peers().count(), 2);
    let before = rig.cables().into_iter().map(|name| rig.engine.lane(&name)).collect::<Vec<_>>();

    // It leads, and then does not any more: the others notice nothing.
    rig.engine.set_active(true, rig.now).await;
    rig.turn();
    assert_eq!(rig.cables(), ["cable-a-12", "cable-b-21", "cable-b-22", "cable-c-31"]);
    let upstream = rig.lane_to("10.3.0.1").unwrap();
    rig.engine.set_active(false, rig.now).await;
    rig.turn();
    assert_eq!((rig.cables().len(), rig.lane_to("10.3.0.1")), (3, None));
    assert!(rig.tables.load().lane(upstream).is_some(), "what is under way is welcome");
    let after = rig.cables().into_iter().map(|name| rig.engine.lane(&name)).collect::<Vec<_>>();
    assert_eq!(after, before);
    assert_eq!(rig.kind.connects.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn another_object_about_the_same_gateway_keeps_its_cable() {
    let mut rig = Rig::new(1);
    // Before our own cluster has several: the sole one.
    rig.know(&soles()[..1], &Members::default()).await;
    let lane = rig.lane_to("10.2.0.1");
    assert_eq!((rig.cables().len(), rig.watched()), (1, 0));
    rig.know(&soles()[..1], &members(&[member("b", 2, 21, 100)], &[])).await;
    assert_eq!((rig.lane_to("10.2.0.1"), rig.watched()), (lane, 1));
    // b goes back to upstream: what its gateways have said beside that is of no account.
    let back = [sole("b", 2, 21, false)];
    rig.know(&back, &members(&[member("b", 2, 21, 100), member("b", 2, 22, 100)], &[])).await;
    assert_eq!((rig.lane_to("10.2.0.1"), rig.watched(), rig.cables().len()), (lane, 0, 1));
    assert_eq!(rig.kind.connects.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn siblings_have_cables_for_everything_at_their_own_addresses() {
    let mut rig = Rig::new(1);
    let mut known = members(&[], &[member("a", 1, 12, 100), member("a", 1, 13, 100)]);
    Arc::make_mut(&mut known.siblings[0].endpoint).spec.nat_enabled = true;
    let own = [sole("a", 1, 13, true), sole("c", 3, 31, false)];
    rig.engine.set_active(false, rig.now).await;
    rig.reconcile_with(&own, &known, &Choices::new()).await;
    assert_eq!(rig.cables(), ["cable-a-12", "cable-a-13"]);
    let tables = rig.tables.load_full();
    let names: Vec<&str> = tables.siblings().iter().map(|sibling| sibling.name.as_str()).collect();
    assert_eq!(names, ["cable-a-12", "cable-a-13"]);
    assert_eq!(tables.leader(), Some(tables.siblings()[1].path));
    let everything: Vec<IpNet> = ["0.0.0.0/0", "::/0"].map(|net| net.parse().unwrap()).into();
    let (near, far) = rig.kind.last.lock().unwrap().clone().unwrap();
    assert_eq!((&near.subnets, &far.subnets), (&everything, &everything));
    let connections = rig.engine.sibling_connections(rig.now, 0);
    assert_eq!(connections[0].connection.using_ip, "192.0.2.12", "not the public one");
    assert!(rig.connected().is_empty(), "upstream does not hear of them");

    // One starts anew, with another key: what it has sealed before is still a sibling's.
    let old = rig.engine.lane("cable-a-12").unwrap().lane;
    let key = keys::emit(&[99; 32]);
    Arc::make_mut(&mut known.siblings[0].endpoint).spec.backend_config.insert("publicKey".to_owned(), key);
    rig.reconcile_with(&own, &known, &Choices::new()).await;
    let new = rig.engine.lane("cable-a-12").unwrap().lane;
    assert_ne!(new, old);
    let end = |rig: &Rig, lane| rig.tables.load().lane(lane).map(|info| info.end);
    assert!(matches!(end(&rig, old), Some(LaneEnd::Sibling(_))));
    assert_eq!(end(&rig, old), end(&rig, new));
    // It goes: so does everything.
    known.siblings.remove(0);
    rig.reconcile_with(&own, &known, &Choices::new()).await;
    assert_eq!((rig.cables(), end(&rig, new)), (vec!["cable-a-13".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_siblings_name_and_there_are_eight_gateways_at_most() {
    let mut rig = Rig::new(1);
    let mut thief = sole("c", 3, 31, false);
    thief.spec.cable_name = "cable-a-12".to_owned();
    let siblings: Vec<Member> = (11..=20).map(|host| member("a", 1, host, 100)).collect();
    rig.know(&[thief], &members(&[], &siblings)).await;
    assert_eq!(rig.cables().len(), 7);
    let refused = rig.engine.refused();
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(refused.iter().any(|entry| entry.cluster == "c" && entry.reason.contains("cable_name")));
    assert_eq!(rig.lane_to("10.3.0.1"), None);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_reads_of_connections_what_the_whole_document_says() {
    let mut rig = Rig::new(2);
    let (soles, known) = (soles(), members(&[member("b", 2, 21, 100), member("b", 2, 22, 300)], &[]));
    // Nobody has found c's address yet.
    rig.reconcile_with(&soles, &known, &choices(&soles[..1], &known)).await;
    let (discovery, view) = (discovery(), view(PingerStatus::Error));
    for is_multi in [true, false] {
        let live = Live { is_multi, failure: "none".to_owned(), ..Live::default() };
        let document = document(&rig, live, discovery.reader(), view.clone());
        let before = document.published();
        let whole = document.read();
        assert_eq!(before, published(&whole));
        assert_eq!(document.published(), before, "once it was put together");
        assert_eq!(whole.connections.len(), 3);
        assert_eq!(before.connections.len(), if is_multi { 2 } else { 0 });
        let pinged = before.connections.iter().filter(|one| one.endpoint.health_check_ip == "10.2.0.21");
        assert_eq!(pinged.count(), usize::from(is_multi));
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_says_as_before_until_something_has_changed_that_is_no_number() {
    let mut rig = Rig::new(2);
    let (soles, known) = (soles(), members(&[member("b", 2, 21, 100), member("b", 2, 22, 300)], &[]));
    rig.reconcile_with(&soles, &known, &choices(&soles[..1], &known)).await;
    let (discovery, view) = (discovery(), view(PingerStatus::Error));
    let take = |rig: &Rig, live: &Live, view: &PingerView| {
        document(rig, live.clone(), discovery.reader(), view.clone())
    };
    let active = Live { is_multi: true, ..Live::default() };
    let first = take(&rig, &active, &view);
    rig.turn();
    let later = PingerView { sent: 10, ..view.clone() };
    let at_rest = take(&rig, &active, &later);
    assert!(at_rest.is_unchanged_since(&first));
    let without_times = |document: &Document| {
        let mut published = document.published();
        for connection in &mut published.connections {
            connection.endpoint.backend_config.remove("LastChecked");
        }
        published
    };
    assert_eq!(without_times(&at_rest), without_times(&first));

    let answered = PingerView { status: PingerStatus::Connected, ..view };
    assert!(!take(&rig, &active, &answered).is_unchanged_since(&at_rest));
    let failed = Live { failure: "some".to_owned(), ..active.clone() };
    assert!(!take(&rig, &failed, &later).is_unchanged_since(&at_rest));
    assert!(!take(&rig, &Live::default(), &later).is_unchanged_since(&at_rest));
    rig.now += Duration::from_secs(11);
    rig.turn();
    let waiting = take(&rig, &active, &later);
    assert!(!waiting.is_unchanged_since(&at_rest), "no handshake yet, instead of none begun");
    rig.turn();
    assert!(take(&rig, &active, &later).is_unchanged_since(&waiting));
    rig.reconcile_with(&soles, &known, &choices(&soles, &known)).await;
    assert!(!take(&rig, &active, &later).is_unchanged_since(&waiting), "c's address is found");
}

/// Discovery that asks nobody.
fn discovery() -> Discovery {
    let own = discovery::Local {
        cluster_id: "a".to_owned(),
        cable_name: "cable-a".to_owned(),
        private_ips: Vec::new(),
        port: 0,
    };
    Discovery::start(own, None, 0, Conditions::new())
}

/// The view of the pinger of b's first gateway.
fn view(status: PingerStatus) -> PingerView {
    PingerView {
        status,
        message: "no answer".to_owned(),
        ip: "10.2.0.21".parse().unwrap(),
        latency: None,
        sent: 9,
        received: 0,
    }
}

fn document(rig: &Rig, live: Live, discovery: DiscoveryReader, view: PingerView) -> Document {
    let fixed = Fixed {
        started: Timestamp::UNIX_EPOCH,
        cluster: "a".to_owned(),
        hostname: "a-gw1".to_owned(),
        io: Vec::new(),
        xdp: None,
    };
    let pinged = Arc::new(PingResults::from([("cable-b-21".to_owned(), view)]));
    let peers = Peers { discovery, pinged: Some(pinged) };
    Document::of(Source::of(&fixed, &rig.engine, live, rig.now).with_peers(Arc::default(), peers))
}
