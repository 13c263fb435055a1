//! Both ends do something at the same moment, and any one or two of the messages are lost (RFC 7296 sections 2.8 and 2.25).

use trieste_cables::ipsec::LaneNews;
use trieste_cables::ipsec::ike::Input;
use trieste_packet::LaneId;

use crate::ike::two::*;
use crate::ike::{self, Net};

/// What an end does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Nothing,
    /// The child SA alone is renewed.
    Child,
    /// The IKE SA, and then the child SA.
    Everything,
}

fn act(net: &mut Net, (node, lane): (usize, LaneId), what: Act) {
    match what {
        Act::Nothing => {}
        Act::Child => {
            let child = net.nodes[node].lane().live().next().map(|pair| pair.sa.inbound);
            net.nodes[node].lane().tell(LaneNews::Worn { child: child.expect("there is a child SA") });
        }
        Act::Everything => net.input(node, Input::Rekey(lane)),
    }
}

/// Loses the datagrams of these numbers, packets not counted, from here on.
pub(crate) fn lose(net: &mut Net, numbers: &[usize]) {
    let (numbers, mut count) = (numbers.to_vec(), 0);
    net.filter = Some(Box::new(move |_, payload| {
        let is_ike = payload.starts_with(&[0; 4]);
        count += usize::from(is_ike);
        is_ike && numbers.contains(&count)
    }));
}

#[expect(clippy::print_stdout, reason = "what fails is to be named")]
fn collide(acts: (Act, Act), numbers: &[usize]) {
    let mut net = net(1, TRIESTE, eager("secret"), eager("secret"));
    traffic(&mut net, seconds(5));
    assert_single(&net);
    let inbound = |net: &Net| net.nodes[0].lane().live().next().map(|pair| pair.sa.inbound);
    let (first, ike) = (inbound(&net), net.nodes[0].report(net.now()).ikes[0].initiator_spi);
    lose(&mut net, numbers);
    act(&mut net, A, acts.0);
    act(&mut net, B, acts.1);
    traffic(&mut net, seconds(25));
    println!("{acts:?} without {numbers:?}");
    assert_single(&net);
    assert_eq!(lost(&net), 0);
    assert_ne!(inbound(&net), first, "the child SA is another");
    let is_ike_renewed = net.nodes[0].report(net.now()).ikes[0].initiator_spi != ike;
    assert_eq!(is_ike_renewed, matches!(acts, (Act::Everything, _) | (_, Act::Everything)));
}

/// With every message lost in turn, and every two of the first ones.
fn collide_whatever_is_lost(a: Act, b: Act) {
    collide((a, b), &[]);
    for one in 1..=16 {
        collide((a, b), &[one]);
    }
    for one in 1..=8 {
        for other in one + 1..=9 {
            collide((a, b), &[one, other]);
        }
    }
}

#[test]
fn one_end_renews_a_child_sa() {
    collide_whatever_is_lost(Act::Child, Act::Nothing);
}

#[test]
fn both_ends_renew_a_child_sa() {
    collide_whatever_is_lost(Act::Child, Act::Child);
}

#[test]
fn one_end_renews_everything() {
    collide_whatever_is_lost(Act::Nothing, Act::Everything);
}

#[test]
fn both_ends_renew_everything() {
    collide_whatever_is_lost(Act::Everything, Act::Everything);
}

#[test]
fn one_end_renews_the_ike_sa_and_the_other_one_a_child_sa() {
    collide_whatever_is_lost(Act::Everything, Act::Child);
}

#[test]
fn both_ends_begin() {
    let numbers = (0..=12).flat_map(|one| (one + 1..=13).map(move |other| [one, other]));
    for numbers in numbers {
        let mut net = Net::new(1);
        net.add("10.0.0.1", eager("secret"));
        net.add("10.0.0.2", eager("secret"));
        lose(&mut net, &numbers);
        let (here, there) = sites(TRIESTE);
        net.connect(0, ike::peer(A.1.0, &here, &there));
        net.connect(1, ike::peer(B.1.0, &there, &here));
        println!("without {numbers:?}");
        traffic(&mut net, seconds(30));
        assert_single(&net);
    }
}
