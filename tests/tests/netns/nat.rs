//! NAT discovery of real gateways behind real NATs: which address is chosen, how long it takes until a pod hears from
//! the other cluster, and what happens when an address stops to work.
//!
//! ```text
//!   pods ── east-gw1 ── [nat-east] ──┐ WAN ┌── [nat-west] ── west-gw1 ── pods
//!        192.168.1.2   172.31.1.200  └─────┘  172.31.2.200  192.168.2.2
//! ```
//! Without its NAT a gateway is on the WAN itself: `172.31.1.1`, `172.31.2.1`.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use trieste_control::admin::CableStatus;
use trieste_control::api::{Connection, EndpointSpec, cable_name};
use trieste_control::natdiscovery::message::{self, Body};
use trieste_control::natdiscovery::{Local, respond};
use trieste_tests::broker;
use trieste_tests::capture::{Capture, Frames};
use trieste_tests::cluster::{Cluster, NAMESPACE, Settings, psk_base64};
use trieste_tests::flow::Flow;
use trieste_tests::guard::{root_test, slack};
use trieste_tests::lab::Lab;
use trieste_tests::nat::{Nat, Style, first_answer};
use trieste_tests::peer::{KeyPair, Peer, PeerConfig};
use trieste_tests::topology::{Families, Plan, Topology};
use trieste_tests::traffic::{self, Responder};
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(60);

/// How one side is to see the other.
#[derive(Debug, Clone, Copy)]
struct View {
    /// The state of NAT discovery.
    state: &'static str,
    /// The address in use.
    ip: &'static str,
    /// Whether it is known to be reached through NAT.
    nat: bool,
}

const fn view(state: &'static str, ip: &'static str, nat: bool) -> View {
    View { state, ip, nat }
}

const EAST_NAT: &str = "172.31.1.200";
const WEST_NAT: &str = "172.31.2.200";

#[test]
fn a_gateway_behind_a_nat_that_forwards_its_ports_is_reached_by_its_public_address() {
    let name = "a_gateway_behind_a_nat_that_forwards_its_ports_is_reached_by_its_public_address";
    let Some(_turn) = root_test(name) else { return };
    let nat = Some((Style::FORWARDED, 1));
    let views = [view("private", "172.31.2.1", true), view("public", EAST_NAT, true)];
    let bed = connects("east forwarded", nat, None, views);
    assert_published(&bed, views);
    drop(bed);
    connects(
        "west forwarded",
        None,
        nat,
        [view("public", WEST_NAT, true), view("private", "172.31.1.1", true)],
    );
}

#[test]
fn both_behind_nats_that_forward_reach_one_another_even_with_the_same_private_address() {
    let name = "both_behind_nats_that_forward_reach_one_another_even_with_the_same_private_address";
    let Some(_turn) = root_test(name) else { return };
    let views = [view("public", WEST_NAT, true), view("public", EAST_NAT, true)];
    let site = |number| Some((Style::FORWARDED, number));
    connects("both forwarded", site(1), site(2), views);
    connects("both forwarded, one private address", site(1), site(1), views);
    let rewriting = Style { forwards: true, rewrites: true };
    connects("both forwarded, ports rewritten", Some((rewriting, 1)), Some((rewriting, 2)), views);
}

#[test]
fn a_gateway_that_nothing_is_forwarded_to_opens_its_nat_by_asking() {
    let name = "a_gateway_that_nothing_is_forwarded_to_opens_its_nat_by_asking";
    let Some(_turn) = root_test(name) else { return };
    let hidden = |number| Some((Style::HIDDEN, number));
    connects(
        "east hidden",
        hidden(1),
        None,
        [view("private", "172.31.2.1", true), view("public", EAST_NAT, true)],
    );
    connects(
        "west hidden",
        None,
        hidden(1),
        [view("public", WEST_NAT, true), view("private", "172.31.1.1", true)],
    );
    let views = [view("public", WEST_NAT, true), view("public", EAST_NAT, true)];
    connects("both hidden", hidden(1), hidden(2), views);
}

#[test]
fn a_gateway_whose_ports_are_rewritten_is_learned_from_its_handshake() {
    let name = "a_gateway_whose_ports_are_rewritten_is_learned_from_its_handshake";
    let Some(_turn) = root_test(name) else { return };
    let nat = Some((Style::REWRITTEN, 1));
    let views = [view("private", "172.31.2.1", true), view("discovering", EAST_NAT, true)];
    let bed = connects("east rewritten", nat, None, views);
    assert_published(&bed, views);
    let outer = cable(&bed.west, "east").lane.outer_address.unwrap();
    assert_ne!(outer.port(), 4500, "the NAT rewrites ports, and the cable follows");
    drop(bed);
    connects(
        "west rewritten",
        None,
        nat,
        [view("discovering", WEST_NAT, true), view("private", "172.31.1.1", true)],
    );
}

#[test]
fn in_one_private_network_the_private_answer_wins_and_our_datagrams_are_upstreams() {
    let name = "in_one_private_network_the_private_answer_wins_and_our_datagrams_are_upstreams";
    let Some(_turn) = root_test(name) else { return };
    let views = [view("private", "172.31.2.1", false), view("private", "172.31.1.1", false)];
    let bed = connects("no NAT, nat-enabled", None, None, views);
    assert_published(&bed, views);
    drop(bed);

    let bed = Bed::new(Some((Style::FORWARDED, 1)), None);
    let wire = Capture::start(&bed.lab, &bed.plan.wan, "br0", "udp port 4490").unwrap();
    let bed = bed.start();
    bed.expect([view("private", "172.31.2.1", true), view("public", EAST_NAT, true)]);
    assert_upstreams_form(&wire.finish().unwrap());
}

#[test]
fn what_was_found_is_used_at_once_after_a_restart_and_cables_follow_a_nat_that_moves() {
    let name = "what_was_found_is_used_at_once_after_a_restart_and_cables_follow_a_nat_that_moves";
    let Some(_turn) = root_test(name) else { return };
    let mut bed = Bed::new(Some((Style::FORWARDED, 1)), None).start();
    bed.expect([view("private", "172.31.2.1", true), view("public", EAST_NAT, true)]);
    let memory = bed.lab.directory().join("west/state/nat-discovery.json");
    eventually("the result on disk", TIMEOUT, || {
        anyhow::ensure!(std::fs::read_to_string(&memory)?.contains(EAST_NAT), "it is not there");
        Ok(())
    })
    .unwrap();
    // Route agents have made their routes then: that of a restart is measured, not that of the first start.
    bed.answers("west", "east");

    bed.west.kill_gateway().unwrap();
    let node = bed.west.node().namespace.clone();
    node.nft("table inet deaf {\n chain in {\n  type filter hook input priority 0;\n  udp dport 4490 drop\n }\n}\n")
        .unwrap();
    let start = Instant::now();
    bed.west.start_gateway().unwrap();
    bed.answers("west", "east");
    let took = start.elapsed();
    eprintln!("restarted with discovery blocked: first answer {} ms after the start", took.as_millis());
    let found = bed.sees(&bed.west, "east", view("remembered", EAST_NAT, true));
    let message = found.discovery.unwrap().message;
    assert!(message.contains("asking") || message.contains("no answer"), "{message}");
    assert!(took < Duration::from_secs(2) + slack(), "{took:?}");
    node.nft("delete table inet deaf").unwrap();
    bed.sees(&bed.west, "east", view("public", EAST_NAT, true));

    let flow = bed.flow("west", "east");
    bed.east_nat.as_mut().unwrap().move_to(0, "172.31.1.201".parse().unwrap()).unwrap();
    bed.sees(&bed.west, "east", view("public", "172.31.1.201", true));
    bed.answers("west", "east");
    let gap = flow.finish().longest();
    eprintln!("the NAT has another address: {} ms without an answer", gap.as_millis());
    // A keepalive every ten seconds tells, if nothing else does.
    assert!(gap < Duration::from_secs(10) + slack(), "{gap:?}");
}

#[test]
fn a_private_answer_within_the_grace_replaces_the_public_one_and_without_a_port_nobody_waits() {
    let name = "a_private_answer_within_the_grace_replaces_the_public_one_and_without_a_port_nobody_waits";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::new(None, None);
    let node = bed.plan.cluster("west").gateway().namespace.clone();
    node.ip("addr add 172.31.2.99/16 dev eth0").unwrap();
    let east = bed.start_cluster("east");
    let spec = upstreams("west", "172.31.2.1", "172.31.2.99", &KeyPair::generate().unwrap().public);
    let slow = SlowResponder::start(&bed.plan, &spec);
    broker::publish(&bed.broker(), &spec).unwrap();

    bed.sees(&east, "west", view("private", "172.31.2.1", false));
    slow.finish();
    let log = east.gateway().unwrap().log_text();
    let chosen: Vec<&str> = log.lines().filter(|line| line.contains("address selected")).collect();
    let how = |line: &&str| line.split("how=").nth(1).unwrap().trim_matches('"').to_owned();
    assert_eq!(chosen.iter().map(how).collect::<Vec<_>>(), ["public", "private"], "{chosen:#?}");

    let mut spec = upstreams("north", "172.31.2.1", "172.31.2.99", &KeyPair::generate().unwrap().public);
    spec.subnets = vec!["10.9.0.0/16".to_owned()];
    spec.backend_config.insert("natt-discovery-port".to_owned(), "0".to_owned());
    let start = Instant::now();
    broker::publish(&bed.broker(), &spec).unwrap();
    let found = bed.sees(&east, "north", view("fallback", "172.31.2.99", true));
    eprintln!("no discovery port: fallback shown after {} ms", start.elapsed().as_millis());
    assert!(start.elapsed() < slack(), "{:?}", start.elapsed());
    assert!(found.discovery.unwrap().message.contains("publishes no NAT discovery port"));
}

#[test]
fn a_peer_that_never_answers_gets_its_cable_and_a_path_that_fails_is_left_for_the_other_address() {
    let name = "a_peer_that_never_answers_gets_its_cable_and_a_path_that_fails_is_left_for_the_other_address";
    let Some(_turn) = root_test(name) else { return };
    let mut topology = Topology::two_clusters().with_underlay(Families::V4);
    let mut legacy = topology.clusters[1].clone();
    (legacy.id, legacy.network) = ("legacy".to_owned(), 3);
    topology.clusters.push(legacy);
    let mut bed = Bed::of(&topology, Some((Style::FORWARDED, 1)), Some((Style::FORWARDED, 2)));
    bed.extra.extend(["health-check-max-loss: 1".to_owned()]);
    let [mut east_nat, mut west_nat] = [&bed.east_nat, &bed.west_nat].map(|nat| nat.clone().unwrap());
    east_nat.join(&mut west_nat).unwrap();
    let bed = bed.start();
    bed.expect([view("private", "192.168.2.2", false), view("private", "192.168.1.2", false)]);

    // Beside: a gateway of long ago, which has the port in its Endpoint and nobody behind it.
    let published = Instant::now();
    let _peer = bed.start_legacy();
    let found = bed.sees(&bed.east, "legacy", view("discovering", "172.31.3.1", true));
    eprintln!("a peer that never answers: provisional after {} ms", published.elapsed().as_millis());
    assert!(
        published.elapsed() > Duration::from_secs(2)
            && published.elapsed() < Duration::from_secs(3) + slack()
    );
    assert!(found.discovery.unwrap().message.contains("using 172.31.3.1 through NAT"));
    bed.answers("east", "legacy");
    eprintln!(
        "a peer that never answers: first answer of its pod after {} ms",
        published.elapsed().as_millis()
    );

    let flow = bed.flow("east", "west");
    east_nat.part().unwrap();
    west_nat.part().unwrap();
    let cut = Instant::now();
    eventually("the other address", Duration::from_secs(50), || {
        let ip = cable(&bed.east, "west").connection.using_ip;
        anyhow::ensure!(ip == WEST_NAT, "still {ip}");
        Ok(())
    })
    .unwrap();
    bed.answers("east", "west");
    eprintln!("the private path is cut: healed by the public one after {} ms", cut.elapsed().as_millis());
    let seen = flow.finish();
    assert!(seen.longest() < Duration::from_secs(40) + slack(), "{seen:?}");
    bed.expect([view("public", WEST_NAT, true), view("public", EAST_NAT, true)]);

    let left = Duration::from_secs(60).saturating_sub(published.elapsed());
    let fallback = view("fallback", "172.31.3.1", true);
    let found = eventually("the fallback", left + slack(), || check(&bed.east, "legacy", fallback)).unwrap();
    assert!(found.discovery.unwrap().message.contains("asking once a minute"));
    bed.answers("east", "legacy");
}

/// Two clusters, each behind its NAT or not. The fields are in the order in which they have to end.
struct Clusters {
    east: Cluster,
    west: Cluster,
    started: Instant,
    bed: Bed,
}

impl std::ops::Deref for Clusters {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

impl std::ops::DerefMut for Clusters {
    fn deref_mut(&mut self) -> &mut Bed {
        &mut self.bed
    }
}

/// A lab with its NATs, before anything runs.
struct Bed {
    responders: Vec<(String, Responder)>,
    east_nat: Option<Nat>,
    west_nat: Option<Nat>,
    extra: Vec<String>,
    plan: Plan,
    lab: Lab,
}

/// A NAT's style, and its site.
type Placed = Option<(Style, u8)>;

impl Bed {
    fn new(east: Placed, west: Placed) -> Self {
        Self::of(&Topology::two_clusters().with_underlay(Families::V4), east, west)
    }

    fn of(topology: &Topology, east: Placed, west: Placed) -> Self {
        let lab = Lab::new().unwrap();
        let mut plan = lab.build(topology).unwrap();
        let mut put = |cluster: &str, placed: Placed| {
            placed.map(|(style, site)| Nat::put(&lab, &mut plan, cluster, style, site).unwrap())
        };
        let (east_nat, west_nat) = (put("east", east), put("west", west));
        let responder =
            |id: &str| (id.to_owned(), Responder::start(&plan.cluster(id).pod(0).namespace).unwrap());
        let responders = plan.clusters.iter().map(|cluster| responder(&cluster.id)).collect();
        let extra = vec!["nat-enabled: true".to_owned()];
        Self { responders, east_nat, west_nat, extra, plan, lab }
    }

    fn start(self) -> Clusters {
        let started = Instant::now();
        let (east, west) = (self.start_cluster("east"), self.start_cluster("west"));
        Clusters { east, west, started, bed: self }
    }

    fn start_cluster(&self, id: &str) -> Cluster {
        let plan = self.plan.cluster(id);
        let nat = if id == "east" { &self.east_nat } else { &self.west_nat };
        let public = nat.as_ref().map_or_else(|| plan.gateway().underlay_address(), |nat| nat.outside(0));
        let mut settings = Settings::of(&self.lab);
        settings.extra = self.extra.clone();
        settings.extra.push(format!("public-ip: \"ipv4:{public}\""));
        Cluster::start(&self.lab, plan, &settings).unwrap()
    }

    fn broker(&self) -> std::path::PathBuf {
        Settings::of(&self.lab).broker.unwrap()
    }

    fn target(&self, cluster: &str) -> SocketAddr {
        let (_, responder) = self.responders.iter().find(|(id, _)| id == cluster).unwrap();
        SocketAddr::new(self.plan.cluster(cluster).pod(0).v4().unwrap(), responder.port())
    }

    /// Waits until pods of one cluster hear from pods of another.
    fn answers(&self, from: &str, to: &str) {
        let pod = &self.plan.cluster(from).pod(0).namespace;
        first_answer(pod, self.target(to), TIMEOUT).unwrap();
    }

    fn flow(&self, from: &str, to: &str) -> Flow {
        let [from, to] = [from, to].map(|cluster| self.plan.cluster(cluster).pod(0));
        let far = (&to.namespace, to.v4().unwrap());
        Flow::start(&from.namespace, far, b"still there?", Duration::from_millis(20)).unwrap()
    }

    fn sees(&self, cluster: &Cluster, peer: &str, view: View) -> CableStatus {
        eventually(&format!("{peer} to be seen as {view:?}"), TIMEOUT, || check(cluster, peer, view)).unwrap()
    }
}

impl Clusters {
    /// Waits until east sees west, and west sees east, as told.
    fn expect(&self, [of_west, of_east]: [View; 2]) {
        self.sees(&self.east, "west", of_west);
        self.sees(&self.west, "east", of_east);
    }

    /// A gateway that knows nothing of NAT discovery in cluster `legacy`, and its Endpoint.
    fn start_legacy(&self) -> Peer {
        let (plan, keys) = (self.plan.cluster("legacy"), KeyPair::generate().unwrap());
        let ours = self.east.status().unwrap().endpoint.backend_config["publicKey"].clone();
        let address = plan.gateway().underlay_address();
        let config = PeerConfig {
            name: "wireguard-go".to_owned(),
            namespace: plan.gateway().namespace.clone(),
            local: SocketAddr::new(address, 4500),
            remote: None,
            addresses: Vec::new(),
            subnets: self.plan.cluster("east").subnets(),
            private_key: keys.private,
            remote_public_key: ours,
            psk: Some(psk_base64()),
            keepalive: None,
            mtu: 1420,
        };
        let peer = Peer::start(&self.lab, &config).unwrap();
        let mut spec = upstreams("legacy", &address.to_string(), &address.to_string(), &keys.public);
        spec.subnets = plan.subnets().iter().map(ToString::to_string).collect();
        broker::publish(&self.broker(), &spec).unwrap();
        peer
    }
}

/// Starts both, waits until pods hear from one another, and checks what is shown and published.
fn connects(case: &str, east: Placed, west: Placed, views: [View; 2]) -> Clusters {
    let bed = Bed::new(east, west).start();
    bed.answers("east", "west");
    let there = bed.started.elapsed();
    bed.answers("west", "east");
    eprintln!(
        "{case}: first answer to east {} ms, to west {} ms",
        there.as_millis(),
        bed.started.elapsed().as_millis()
    );
    assert!(
        bed.started.elapsed() < Duration::from_secs(5) + slack(),
        "{case} took {:?}",
        bed.started.elapsed()
    );
    bed.expect(views);

    let bytes = b"through all the NATs there are ".repeat(20_000);
    for (from, to) in [("east", "west"), ("west", "east")] {
        let pod = &bed.plan.cluster(from).pod(0).namespace;
        assert_eq!(traffic::ping(pod, bed.target(to).ip(), 3, &[]).unwrap().received, 3, "{case}");
        traffic::send_tcp(pod, bed.target(to), &bytes, TIMEOUT).unwrap().check(&bytes).unwrap();
    }
    for (cluster, view) in [(&bed.east, views[0]), (&bed.west, views[1])] {
        let row = cluster.trieste(&["show", "connections"]).unwrap().stdout().unwrap();
        assert!(row.contains(view.ip), "{case}: {} is missing in\n{row}", view.ip);
        assert!(cluster.status().unwrap().conservation.holds());
    }
    bed
}

/// Waits until both Gateway objects, which are written every five seconds, say what is true.
fn assert_published(bed: &Clusters, views: [View; 2]) {
    for (cluster, view) in [(&bed.east, views[0]), (&bed.west, views[1])] {
        eventually("the Gateway object", TIMEOUT, || published(cluster, view)).unwrap();
    }
}

/// What the Gateway object says of the one connection.
fn published(cluster: &Cluster, view: View) -> anyhow::Result<()> {
    let file = cluster.store().join(NAMESPACE).join("gateways").join(format!("{}.yaml", cluster.node().name));
    let text = std::fs::read_to_string(&file)?;
    let (ip, nat) = (format!("usingIP: \"{}\"", view.ip), text.contains("usingNAT: true"));
    anyhow::ensure!(text.contains(&ip) && nat == view.nat, "not {view:?} in\n{text}");
    Ok(())
}

fn cable(cluster: &Cluster, peer: &str) -> CableStatus {
    let connections = cluster.status().unwrap().connections;
    connections.into_iter().find(|cable| cable.connection.endpoint.cluster_id == peer).unwrap()
}

fn check(cluster: &Cluster, peer: &str, view: View) -> anyhow::Result<CableStatus> {
    let connections = cluster.status()?.connections;
    let found = connections.into_iter().find(|cable| cable.connection.endpoint.cluster_id == peer);
    let found = found.ok_or_else(|| anyhow::anyhow!("no connection to {peer}"))?;
    let Connection { using_ip, using_nat, .. } = &found.connection;
    let state = found.discovery.clone().unwrap_or_default();
    anyhow::ensure!(
        (state.state.as_str(), using_ip.as_str(), *using_nat) == (view.state, view.ip, view.nat),
        "{state:?}, using {using_ip}, NAT: {using_nat}"
    );
    Ok(found)
}

/// An Endpoint as upstream publishes it for a cluster that was joined with NAT in mind.
fn upstreams(cluster: &str, private: &str, public: &str, key: &str) -> EndpointSpec {
    let settings = [("natt-discovery-port", "4490"), ("udp-port", "4500"), ("publicKey", key)];
    EndpointSpec {
        cluster_id: cluster.to_owned(),
        cable_name: cable_name(cluster, private.parse().unwrap()),
        hostname: format!("{cluster}-gw1"),
        subnets: vec!["10.2.0.0/16".to_owned()],
        private_ip: private.to_owned(),
        public_ip: public.to_owned(),
        nat_enabled: true,
        backend: "wireguard".to_owned(),
        backend_config: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..EndpointSpec::default()
    }
}

/// Plays a peer whose private address is far away: it answers 400 ms after the public one.
struct SlowResponder {
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
}

impl SlowResponder {
    fn start(plan: &Plan, spec: &EndpointSpec) -> Self {
        let open = |ip: &str| {
            let address = SocketAddr::new(ip.parse().unwrap(), 4490);
            let socket =
                plan.cluster("west").gateway().namespace.enter(|| Ok(UdpSocket::bind(address)?)).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        };
        let (private, public) = (open(&spec.private_ip), open(&spec.public_ip));
        let local = Local {
            cluster_id: spec.cluster_id.clone(),
            cable_name: spec.cable_name.clone(),
            private_ips: vec![spec.private_ip.parse().unwrap()],
            port: 4490,
        };
        let thread = std::thread::spawn(move || {
            answer(&public, &local)?;
            std::thread::sleep(Duration::from_millis(400));
            answer(&private, &local)
        });
        Self { thread }
    }

    fn finish(self) {
        self.thread.join().unwrap().unwrap();
    }
}

/// Answers one request.
fn answer(socket: &UdpSocket, local: &Local) -> anyhow::Result<()> {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer)?;
    let Body::Request(request) = message::parse(&buffer[..length])? else { anyhow::bail!("not a request") };
    let response = respond::respond(&request, local, from);
    socket.send_to(&message::emit(Body::Response(response)), from)?;
    Ok(())
}

/// A datagram on the wire.
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    payload: Vec<u8>,
}

/// Checks every datagram byte by byte against upstream's form, written down here a second time: field numbers and
/// order, a version in requests alone, zero and false left out; and that requests come in pairs, the private address's
/// first, with numbers in a row.
fn assert_upstreams_form(frames: &Frames) {
    let (mut requests, mut responses) = (Vec::new(), 0);
    for frame in &frames.frames {
        let datagram = datagram(frame);
        let payload = &datagram.payload;
        match message::parse(payload).unwrap() {
            Body::Request(request) => {
                let own = |ip: &str| if ip == EAST_NAT { "192.168.1.2".to_owned() } else { ip.to_owned() };
                let fields = [
                    number(1, request.request_number),
                    nested(
                        2,
                        &details(if datagram.from.ip().to_string() == EAST_NAT { "east" } else { "west" }),
                    ),
                    nested(
                        3,
                        &details(if datagram.from.ip().to_string() == EAST_NAT { "west" } else { "east" }),
                    ),
                    nested(4, &pair(&own(&datagram.from.ip().to_string()), 4490)),
                    nested(5, &pair(&datagram.to.ip().to_string(), 4490)),
                ];
                assert_eq!(*payload, [number(1, 1), nested(2, &fields.concat())].concat(), "{request:?}");
                assert_eq!((datagram.from.port(), datagram.to.port()), (4490, 4490));
                requests.push((datagram.from.ip(), datagram.to.ip(), request.request_number));
            }
            Body::Response(response) => {
                responses += 1;
                let is_from_east = datagram.from.ip().to_string() == EAST_NAT;
                let (sender, receiver) = if is_from_east { ("east", "west") } else { ("west", "east") };
                // East's requests came from another address than it thinks, west's went to another one.
                let flag = if is_from_east { number(7, 1) } else { number(5, 1) };
                let fields = [
                    number(1, response.request_number),
                    number(2, 1),
                    nested(3, &details(sender)),
                    nested(4, &details(receiver)),
                    flag,
                    nested(8, &pair(&datagram.to.ip().to_string(), 4490)),
                ];
                assert_eq!(*payload, nested(3, &fields.concat()), "{response:?}");
            }
        }
    }
    assert!(responses >= 3, "{responses} responses: two to east's requests, one to west's");
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (asker, private, public) in
        [(EAST_NAT, "172.31.2.1", "172.31.2.1"), ("172.31.2.1", "192.168.1.2", EAST_NAT)]
    {
        let of: Vec<_> = requests.iter().filter(|(from, ..)| *from == address(asker)).collect();
        // The peer's Endpoint may be written anew while it is asked for: the numbers begin anew then, in the midst of a
        // round or not.
        let runs: Vec<_> = of.chunk_by(|last, next| next.2 == last.2.wrapping_add(1)).collect();
        let whole = runs.last().map_or(0, |run| run.len());
        assert!(runs.len() <= 2 && whole >= 2 && whole.is_multiple_of(2), "{of:?}");
        for (index, request) in runs.iter().flat_map(|run| run.iter().enumerate()) {
            assert_eq!(request.1, address([private, public][index % 2]), "{of:?}");
        }
    }
    eprintln!("on the wire: {} requests and {responses} responses of upstream's form", requests.len());
}

/// An IPv4 frame's datagram.
fn datagram(frame: &[u8]) -> Datagram {
    let packet = &frame[14..];
    let (header, udp) = packet.split_at(usize::from(packet[0] & 15) * 4);
    let address = |at: usize| <[u8; 4]>::try_from(&header[at..at + 4]).unwrap();
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    let length = usize::from(port(4));
    Datagram {
        from: SocketAddr::from((address(12), port(0))),
        to: SocketAddr::from((address(16), port(2))),
        payload: udp[8..length].to_vec(),
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

fn nested(field: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn details(cluster: &str) -> Vec<u8> {
    let private = if cluster == "east" { "192-168-1-2" } else { "172-31-2-1" };
    let cable = format!("submariner-cable-{cluster}-{private}");
    [nested(1, cluster.as_bytes()), nested(2, cable.as_bytes())].concat()
}

fn pair(ip: &str, port: u64) -> Vec<u8> {
    [nested(1, ip.as_bytes()), number(2, port)].concat()
}
