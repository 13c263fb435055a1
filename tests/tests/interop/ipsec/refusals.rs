//! What the two cannot agree on, and whether an operator is told so in the words of the notify.

use trieste_tests::guard::root_test;
use trieste_tests::traffic;

use super::bed::{Bed, Initiator};

#[test]
fn a_refusal_is_shown_in_the_words_of_the_notify() {
    let Some(_turn) = root_test("a_refusal_is_shown_in_the_words_of_the_notify") else { return };
    let mut bed = Bed::in_udp(&[]);
    let good = bed.connection();
    bed.theirs
        .load(&{
            let mut bad = good.clone();
            bad.psk = "another one".to_owned();
            bad
        })
        .unwrap();
    bed.publish(&bed.endpoint());
    bed.wait_error("AUTHENTICATION_FAILED");

    let mut bad = good.clone();
    bad.proposals = "aes256-sha256-modp3072".to_owned();
    refuse(&mut bed, &bad, "NO_PROPOSAL_CHOSEN");

    let mut bad = good.clone();
    for child in &mut bad.children {
        child.proposals = "aes256-sha256".to_owned();
    }
    refuse(&mut bed, &bad, "NO_PROPOSAL_CHOSEN");

    let mut bad = good.clone();
    for child in &mut bad.children {
        child.local = vec!["10.77.0.0/16".parse().unwrap()];
    }
    refuse(&mut bed, &bad, "TS_UNACCEPTABLE");

    // What is mended is not shown as broken.
    bed.theirs.load(&good).unwrap();
    bed.restart_ours(None);
    let ipsec = bed.wait_up(good.children.len());
    assert_eq!(ipsec.error, None);
    bed.assert_pods_reach_each_other();
}

/// The same with our gateway as the one that is asked.
#[test]
fn what_we_refuse_is_shown_too() {
    let Some(_turn) = root_test("what_we_refuse_is_shown_too") else { return };
    let mut bed = Bed::in_udp(&[]);
    let good = bed.connection();
    bed.let_begin(Initiator::Theirs);
    bed.publish(&bed.endpoint());
    bed.wait_known();

    let mut bad = good.clone();
    bad.psk = "another one".to_owned();
    bed.theirs.load(&bad).unwrap();
    assert!(bed.theirs.initiate("pods-v4").is_err());
    bed.wait_error("AUTHENTICATION_FAILED");

    let mut bad = good;
    bad.children[0].local = vec!["10.77.0.0/16".parse().unwrap()];
    bed.theirs.load(&bad).unwrap();
    assert!(bed.theirs.initiate(&bad.children[0].name).is_err());
    assert!(bed.theirs.log_text().contains("TS_UNACCEPTABLE"));
}

#[test]
fn one_refused_child_sa_of_several_is_visible_and_the_others_work() {
    let Some(_turn) = root_test("one_refused_child_sa_of_several_is_visible_and_the_others_work") else {
        return;
    };
    let bed = Bed::in_udp(&[]);
    let mut connection = bed.connection();
    connection.children.retain(|child| child.name == "pods-v4");
    bed.theirs.load(&connection).unwrap();
    bed.publish(&bed.endpoint());

    bed.theirs.wait_children(1, super::bed::TIMEOUT).unwrap();
    bed.wait_error("TS_UNACCEPTABLE");

    bed.wait_reachable(super::bed::TIMEOUT);
    let (east, west) = bed.pods();
    let ping = traffic::ping(&east.namespace, west.v4().unwrap(), 3, &[]).unwrap();
    assert_eq!(ping.received, 3);
    let cable = bed.cable().unwrap();
    assert_eq!(cable.connection.status.as_str(), "connected");
    assert!(cable.connection.status_message.contains("1 of 2 pairs"), "{}", cable.connection.status_message);
}

/// Our gateway starts anew against a connection that does not fit.
fn refuse(bed: &mut Bed, connection: &trieste_tests::strongswan::Connection, words: &str) {
    bed.theirs.load(connection).unwrap();
    bed.theirs.forget().unwrap();
    bed.restart_ours(None);
    bed.wait_error(words);
}
