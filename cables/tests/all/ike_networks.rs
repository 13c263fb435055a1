//! Networks at the ends of a cable change while it carries packets (RFC 7296 sections 1.3.3 and 2.9), whoever learns of it first
//! and whatever is lost.

use std::time::Duration;

use trieste_cables::ipsec::Selectors;
use trieste_cables::ipsec::ike::{IkeEvent, Input};
use trieste_packet::LaneId;
use trieste_simulator::Link;

use crate::ike::two::*;
use crate::ike::{self, Net, config};
use crate::ike_collisions::lose;

/// What A's networks are at first, and what B's are.
const OF_A: &[&str] = &["10.1.0.0/16", "10.11.0.0/16"];
const OF_B: &[&str] = &["10.2.0.0/16", "10.12.0.0/16"];

/// Sets at one end what both ends' networks are.
fn set(net: &mut Net, end: (usize, LaneId), of_a: &[&str], of_b: &[&str]) {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let (local, remote) = if end == A { (nets(of_a), nets(of_b)) } else { (nets(of_b), nets(of_a)) };
    net.input(end.0, Input::SetNetworks { lane: end.1, local, remote });
}

/// One child SA, of one IKE SA that has never been another, for exactly these networks at both ends.
fn assert_agreed(net: &Net, of_a: &[&str], of_b: &[&str]) {
    let reports = [net.nodes[0].report(net.now()), net.nodes[1].report(net.now())];
    let sorted = |texts: &[&str]| {
        let mut texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        texts.sort();
        texts
    };
    let side = |selectors: &[_]| {
        let all = selectors.iter().map(|one: &trieste_cables::ipsec::Selector| one.to_string());
        let texts: Vec<String> = all.collect();
        sorted(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for ((node, report), (local, remote)) in net.nodes.iter().zip(&reports).zip([(of_a, of_b), (of_b, of_a)])
    {
        assert_eq!((report.ikes.len(), report.children.len()), (1, 1), "{reports:#?}");
        let live: Vec<&Selectors> = node.lane().live().map(|pair| &pair.sa.selectors).collect();
        assert_eq!(live.len(), 1, "{live:?}");
        assert_eq!((side(&live[0].local), side(&live[0].remote)), (sorted(local), sorted(remote)));
        assert_eq!(report.children[0].error, None);
        assert!(!node.events.iter().any(|event| matches!(event, IkeEvent::Down { .. })));
    }
    assert_eq!(reports[0].ikes[0].initiator_spi, reports[1].ikes[0].initiator_spi);
}

/// Who learns of a change when.
#[derive(Debug, Clone, Copy)]
struct Order {
    a: Duration,
    b: Duration,
}

/// Changes A's networks under traffic of those that stay, and back.
fn change(order: Order, of_a: &[&str], numbers: &[usize]) {
    let mut net = net(1, TRIESTE, eager("secret"), eager("secret"));
    traffic(&mut net, seconds(3));
    assert_single(&net);
    let ike = net.nodes[0].report(net.now()).ikes[0].initiator_spi;
    for networks in [of_a, OF_A] {
        lose(&mut net, numbers);
        let mut ends = [(order.a, A), (order.b, B)];
        ends.sort_by_key(|(after, _)| *after);
        let mut since = Duration::ZERO;
        for (after, end) in ends {
            while since < after {
                net.run(millis(1));
                since += millis(1);
            }
            set(&mut net, end, networks, OF_B);
        }
        flow(&mut net, seconds(25));
        assert_agreed(&net, networks, OF_B);
    }
    assert_eq!(lost(&net), 0, "{order:?} without {numbers:?}");
    assert_eq!(net.nodes[0].report(net.now()).ikes[0].initiator_spi, ike, "the IKE SA stays");
}

/// Packets of the networks that stay, in both directions, each of which is sealed.
fn flow(net: &mut Net, span: Duration) {
    let (there, back) = (everything(), pair(OF_B[0], OF_A[0]));
    let end = net.now() + span;
    while net.now() < end {
        net.run(millis(50));
        assert!(net.packet(A.0, A.1, &there), "A cannot seal");
        net.run(millis(50));
        assert!(net.packet(B.0, B.1, &back), "B cannot seal");
    }
}

fn orders() -> impl Iterator<Item = Order> {
    // An exchange takes ten milliseconds: one end learns of it before, during and after that of the other one.
    [(0, 0), (0, 1), (0, 6), (0, 9), (0, 11), (0, 500), (1, 0), (6, 0), (9, 0), (11, 0), (500, 0)]
        .into_iter()
        .map(|(a, b)| Order { a: millis(a), b: millis(b) })
}

/// Networks that A has afterwards: more, fewer, others beside one that stays, and of the other family, too.
const CHANGES: [&[&str]; 4] = [
    &["10.1.0.0/16", "10.11.0.0/16", "10.77.0.0/24"],
    &["10.1.0.0/16"],
    &["10.1.0.0/16", "10.78.0.0/24", "fd78::/64"],
    &["10.0.0.0/8"],
];

#[test]
fn networks_change_without_loss_whoever_learns_of_it_first() {
    for order in orders() {
        for of_a in CHANGES {
            change(order, of_a, &[]);
        }
    }
}

#[test]
fn networks_change_without_loss_whatever_is_lost() {
    for order in [(0, 0), (0, 6), (0, 500), (500, 0)] {
        let order = Order { a: millis(order.0), b: millis(order.1) };
        for one in 1..=10 {
            change(order, CHANGES[2], &[one]);
            change(order, CHANGES[2], &[one, one + 1]);
        }
    }
}

/// Both ends change at once, and each asks; then one of them, or both, once more, while messages are lost.
fn change_again(seed: u64, after: u64, lost_ones: &[usize], (second_a, second_b): (&[&str], &[&str])) {
    let mut net = net(seed, TRIESTE, eager("secret"), eager("secret"));
    traffic(&mut net, seconds(3));
    lose(&mut net, lost_ones);
    let of_b = ["10.2.0.0/16", "10.12.0.0/16", "10.66.0.0/16"];
    for (end, of_a, of_b) in
        [(A, CHANGES[0], OF_B), (B, OF_A, &of_b), (A, CHANGES[0], &of_b), (B, CHANGES[0], &of_b)]
    {
        set(&mut net, end, of_a, of_b);
    }
    net.run(millis(after));
    for end in [B, A] {
        set(&mut net, end, second_a, second_b);
    }
    flow(&mut net, seconds(30));
    assert_agreed(&net, second_a, second_b);
    // Nothing is left that keeps either end from asking once more.
    for end in [A, B] {
        set(&mut net, end, OF_A, OF_B);
    }
    flow(&mut net, seconds(30));
    assert_agreed(&net, OF_A, OF_B);
    assert_eq!(lost(&net), 0, "after {after} ms without {lost_ones:?}");
}

#[test]
fn a_second_change_comes_while_the_first_is_agreed_on_and_messages_are_lost() {
    let of_b = ["10.2.0.0/16", "10.55.0.0/16"];
    for second in [(CHANGES[2], OF_B), (CHANGES[0], &of_b[..]), (CHANGES[2], &of_b)] {
        for (seed, after) in [(1, 12), (2, 12), (3, 40), (4, 40)] {
            for one in 0..=8 {
                change_again(seed, after, &[one], second);
                change_again(seed, after, &[one, one + 1], second);
            }
        }
    }
}

#[test]
fn an_end_asks_for_nothing_before_its_peer_has_learnt_of_the_change() {
    let mut net = net(8, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(2));
    let before: Vec<_> = net.nodes[1].lane().live().map(|pair| pair.sa.inbound).collect();
    let messages = net.log.len();
    set(&mut net, A, &["10.1.0.0/16"], OF_B);
    traffic(&mut net, seconds(5));
    // The peer goes on with what it has: its path is probed by way of a network that is gone, for example.
    let after: Vec<_> = net.nodes[1].lane().live().map(|pair| pair.sa.inbound).collect();
    assert_eq!(before, after);
    set(&mut net, B, &["10.1.0.0/16"], OF_B);
    net.run(seconds(2));
    assert_agreed(&net, &["10.1.0.0/16"], OF_B);
    let exchanges = net.log[messages..].iter().filter(|(_, _, message)| message.len() > 28).count();
    assert!(exchanges <= 4, "one exchange, and the deletion of the former one: {exchanges}");
}

#[test]
fn all_networks_of_an_end_may_be_others() {
    for order in orders() {
        let mut net = net(2, TRIESTE, config("secret"), config("secret"));
        net.run(seconds(2));
        for networks in [&["10.99.0.0/16"][..], OF_A] {
            for (end, after) in [(A, order.a), (B, order.b)] {
                net.run(after);
                set(&mut net, end, networks, OF_B);
            }
            net.run(seconds(30));
            assert_agreed(&net, networks, OF_B);
            // Both ends seal, though no packet has shown yet that the peer has the new keys.
            let first = networks[0];
            assert_eq!(net.check(A, B, &pair(first, OF_B[0])), Ok(()));
        }
    }
}

#[test]
fn many_changes_in_a_row_end_at_the_last_one() {
    for seed in 0..5 {
        let mut net = net(seed, TRIESTE, eager("secret"), eager("secret"));
        net.link = Link::millis(5, 25);
        traffic(&mut net, seconds(3));
        let more: Vec<String> = (0..40).map(|number| format!("10.200.{number}.0/24")).collect();
        for count in 1..=more.len() {
            let of_a: Vec<&str> =
                OF_A.iter().copied().chain(more[..count].iter().map(String::as_str)).collect();
            for end in if count % 2 == 0 { [A, B] } else { [B, A] } {
                set(&mut net, end, &of_a, OF_B);
                traffic(&mut net, millis(100));
            }
        }
        traffic(&mut net, seconds(25));
        let of_a: Vec<&str> = OF_A.iter().copied().chain(more.iter().map(String::as_str)).collect();
        assert_agreed(&net, &of_a, OF_B);
        assert_eq!(lost(&net), 0, "seed {seed}");
    }
}

#[test]
fn networks_change_while_the_cable_is_being_made_and_while_the_peer_is_away() {
    for after in [0, 3, 7, 12, 18, 25] {
        let mut net = net(4, TRIESTE, config("secret"), config("secret"));
        net.run(millis(after));
        set(&mut net, A, CHANGES[2], OF_B);
        net.run(millis(4));
        set(&mut net, B, CHANGES[2], OF_B);
        net.run(seconds(10));
        assert_agreed(&net, CHANGES[2], OF_B);
    }
    let mut net = net(5, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(2));
    net.nodes[1].is_dead = true;
    set(&mut net, A, CHANGES[2], OF_B);
    net.run(seconds(120));
    net.restart(1, config("secret"));
    let (mut here, there) = sites(TRIESTE);
    here.subnets = CHANGES[2].iter().map(|text| text.parse().unwrap()).collect();
    net.connect(1, ike::peer(B.1.0, &there, &here));
    net.run(seconds(40));
    let reports = [net.nodes[0].report(net.now()), net.nodes[1].report(net.now())];
    assert!(net.check(A, B, &pair("10.78.0.0/24", "10.2.0.0/16")).is_ok(), "{reports:#?}");
}

#[test]
fn a_peer_gets_no_network_that_is_not_agreed_whatever_it_asks_for() {
    let mut net = net(6, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(2));
    // B claims more at both ends than A has of either: A's own Endpoint and the one that it has of B count.
    let (of_a, of_b) = (["0.0.0.0/0", "::/0"], ["10.0.0.0/8", "fd00::/8"]);
    set(&mut net, B, &of_a, &of_b);
    net.run(seconds(25));
    assert_agreed(&net, OF_A, OF_B);
    // It asks again, less and less often: after 30 s, one minute more, two, four, and so on.
    let first = net.log.len();
    net.run(seconds(3600));
    let exchanges = (net.log.len() - first) / 4;
    assert!(exchanges < 120, "{exchanges}");
    assert!(net.check(A, B, &everything()).is_ok());
}

#[test]
fn a_network_that_went_and_came_while_the_peer_was_not_told_is_asked_for() {
    // A gives a network up and begins anew, which its peer does not learn of, and has the network again.
    let mut net = net(9, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(2));
    set(&mut net, A, &["10.1.0.0/16"], OF_B);
    net.input(A.0, Input::Rekey(A.1));
    flow(&mut net, seconds(5));
    assert_agreed(&net, &["10.1.0.0/16"], OF_B);
    set(&mut net, A, OF_A, OF_B);
    flow(&mut net, seconds(40));
    assert_agreed(&net, OF_A, OF_B);
}

#[test]
fn a_peer_that_has_learnt_of_a_change_does_not_count_as_one_that_has_not() {
    let mut net = net(10, TRIESTE, config("secret"), config("secret"));
    net.run(seconds(2));
    for end in [A, B] {
        set(&mut net, end, CHANGES[0], OF_B);
    }
    flow(&mut net, seconds(5));
    assert_agreed(&net, CHANGES[0], OF_B);
    // The peer renews what it has, and is refused a part of it; then it learns of the change.
    set(&mut net, A, OF_A, OF_B);
    net.input(B.0, Input::Rekey(B.1));
    flow(&mut net, seconds(5));
    set(&mut net, B, OF_A, OF_B);
    flow(&mut net, seconds(5));
    assert_agreed(&net, OF_A, OF_B);
    let before: Vec<_> = net.nodes[1].lane().live().map(|pair| pair.sa.inbound).collect();
    set(&mut net, A, &OF_A[..1], OF_B);
    flow(&mut net, seconds(5));
    let after: Vec<_> = net.nodes[1].lane().live().map(|pair| pair.sa.inbound).collect();
    assert_eq!(before, after, "nothing is asked for before the peer has learnt of it");
}

#[test]
fn a_cable_to_another_gateway_than_triestes_is_not_changed() {
    let mut net = net(7, &[], config("secret"), config("secret"));
    net.run(seconds(3));
    let before: Vec<_> = net.nodes[0].lane().live().map(|pair| pair.sa.inbound).collect();
    set(&mut net, A, CHANGES[0], OF_B);
    net.run(seconds(10));
    let after: Vec<_> = net.nodes[0].lane().live().map(|pair| pair.sa.inbound).collect();
    assert_eq!(before, after);
    assert_connected(&net);
}
