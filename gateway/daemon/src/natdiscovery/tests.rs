//! Two discoveries on loopback: 127.0.0.1 and 127.0.0.2, each with a port that the kernel chose.

use std::net::{IpAddr, UdpSocket};

use trieste_control::natdiscovery::Outcome;

use super::*;

const ADDRESSES: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

/// A port that was free a moment ago. Taken from the kernel, so that no two tests have the same.
fn free_port() -> u16 {
    UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

fn local(name: &str, address: &str, port: u16) -> Local {
    Local {
        cluster_id: name.to_owned(),
        cable_name: format!("cable-{name}"),
        private_ips: vec![address.parse().unwrap()],
        port,
    }
}

fn remote(name: &str, address: &str, port: u16) -> Remote {
    Remote {
        cluster_id: name.to_owned(),
        cable_name: format!("cable-{name}"),
        private_ip: Some(address.parse().unwrap()),
        public_ip: None,
        port: Some(port),
        nat_enabled: false,
        uses_load_balancer: false,
    }
}

fn start(local: Local, state_dir: Option<PathBuf>, conditions: &Conditions) -> Discovery {
    Discovery::start(local, state_dir, crate::marks::OUTER_MARK, conditions.clone())
}

async fn wait_for(discovery: &Discovery, cable: &str, how: How) -> Selection {
    let mut selections = discovery.selections();
    let found = selections.wait_for(|all| all.get(cable).is_some_and(|selection| selection.how == how));
    let all = tokio::time::timeout(Duration::from_secs(10), found).await;
    all.expect("selected in time").expect("the sender lives")[cable]
}

#[tokio::test]
async fn two_gateways_find_each_other_and_remember() {
    let state = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port()];
    let conditions = Conditions::new();
    let a = start(local("a", ADDRESSES[0], ports[0]), Some(state.path().to_owned()), &conditions);
    let b = start(local("b", ADDRESSES[1], ports[1]), None, &conditions);
    a.update(&[], &[remote("b", ADDRESSES[1], ports[1])]);
    b.update(&[], &[remote("a", ADDRESSES[0], ports[0])]);

    // b answers from 127.0.0.2, where it was asked; the kernel's own choice would be 127.0.0.1.
    let found = wait_for(&a, "cable-b", How::Private).await;
    let expected: IpAddr = ADDRESSES[1].parse().unwrap();
    assert_eq!((found.ip, found.use_nat), (expected, false));
    wait_for(&b, "cable-a", How::Private).await;
    assert_eq!(a.reader().status("cable-b").unwrap().message, "the private address answered");
    assert_eq!(conditions.list(), []);

    // Both are gone; the next process knows at once what this one found.
    a.stop().await;
    b.stop().await;
    let a = start(local("a", ADDRESSES[0], ports[0]), Some(state.path().to_owned()), &conditions);
    a.update(&[], &[remote("b", ADDRESSES[1], ports[1])]);
    assert_eq!(a.selections().borrow()["cable-b"].how, How::Remembered);
    a.update(&["cable-b".to_owned()], &[]);
    assert!(a.selections().borrow().is_empty());
}

#[tokio::test]
async fn ipv6_works_as_ipv4_does() {
    if UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on this host");
        return;
    }
    let (ports, conditions) = ([free_port(), free_port()], Conditions::new());
    let a = start(local("a", "::1", ports[0]), None, &conditions);
    let b = start(local("b", "::1", ports[1]), None, &conditions);
    a.update(&[], &[remote("b", "::1", ports[1])]);
    assert!(!wait_for(&a, "cable-b", How::Private).await.use_nat);
    b.set_local(local("c", "::1", ports[1]));
    a.rediscover("cable-b");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(b.counters().received(Outcome::AnsweredUnknownCluster), 1, "who we are can change");
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_taken_is_a_condition_until_it_is_free() {
    let other = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let conditions = Conditions::new();
    let discovery = start(local("a", ADDRESSES[0], port), None, &conditions);
    discovery.update(&[], &[remote("b", ADDRESSES[1], port)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let [condition] = conditions.list().try_into().unwrap();
    assert_eq!(condition.subject, format!("UDP port {port}"));
    assert!(condition.message.contains("IPv4: Address already in use"), "{}", condition.message);
    assert!(discovery.reader().status("cable-b").unwrap().message.starts_with("no route or no socket"));
    drop(other);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(conditions.list(), []);
}

#[tokio::test(start_paused = true)]
async fn port_0_opens_nothing_and_the_rule_decides() {
    let conditions = Conditions::new();
    let discovery = start(local("a", ADDRESSES[0], 0), None, &conditions);
    discovery.update(&[], &[remote("b", ADDRESSES[1], free_port())]);
    assert_eq!(discovery.selections().borrow()["cable-b"].how, How::Fallback);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((discovery.counters().requests, conditions.list()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_has_an_address_after_three_seconds() {
    let conditions = Conditions::new();
    let discovery = start(local("a", ADDRESSES[0], free_port()), None, &conditions);
    // Bound and never read: nobody answers, and no error comes back.
    let silent = UdpSocket::bind((ADDRESSES[1], 0)).unwrap();
    discovery.update(&[], &[remote("b", ADDRESSES[1], silent.local_addr().unwrap().port())]);
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert_eq!(discovery.selections().borrow()["cable-b"].how, How::Provisional);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(discovery.selections().borrow()["cable-b"].how, How::Fallback);
    assert_eq!(discovery.counters().requests, 30);
}

#[tokio::test(start_paused = true)]
async fn selections_that_follow_changes_are_those_of_all_cables() {
    let discovery = start(local("a", ADDRESSES[0], 0), None, &Conditions::new());
    let mut random = 7_u32;
    for _ in 0..300 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (name, host) = (format!("c{}", (random >> 8) % 9), (random >> 20) % 3 + 1);
        match (random >> 28) % 4 {
            0 => drop(discovery.update(&[format!("cable-{name}")], &[])),
            1 => discovery.rediscover(&format!("cable-{name}")),
            2 => discovery.set_local(local("a", ADDRESSES[0], u16::from(host == 1))),
            _ => drop(discovery.update(&[], &[remote(&name, &format!("192.0.2.{host}"), 4490)])),
        }
        let machine = discovery.shared.lock();
        let all = machine.cables().filter_map(|cable| Some((cable.to_owned(), machine.selection(cable)?)));
        assert_eq!(*discovery.selections().borrow(), all.collect::<Selections>());
    }
}

#[test]
fn the_source_of_each_datagram_is_the_kernels_choice_whatever_was_asked_before() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let mut sockets = Sockets::new(crate::marks::OUTER_MARK, Conditions::new());
    let to = |address: &str| std::net::SocketAddr::new(address.parse().unwrap(), 4490);
    assert_eq!(sockets.source_to(to("127.0.0.1")), None, "there is no socket to send by");
    sockets.follow(free_port(), Instant::now());
    let fresh = |to: std::net::SocketAddr| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(to).and_then(|()| socket.local_addr()).ok().map(|local| local.ip())
    };
    // Loopback's address leads nowhere else. A broadcast is not permitted, and 192.0.2.1 has no route on some hosts.
    for address in ["127.0.0.1", "192.0.2.1", "255.255.255.255", "127.0.0.2", "192.0.2.1", "127.0.0.1"] {
        assert_eq!(sockets.source_to(to(address)), fresh(to(address)), "{address}");
    }
    assert!(sockets.source_to(to("127.0.0.1")).is_some());
}
