//! What a changed endpoint, address or port begins anew.

use super::*;

#[test]
fn the_same_again_emits_the_result_again_and_asks_nobody() {
    let (mut bench, private, _) = asking();
    bench.add(remote());
    assert_eq!((bench.asked(), bench.selected()), (vec![], vec![]), "asking goes on as it did");
    bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
    bench.selected();
    bench.add(remote());
    assert_eq!((bench.asked(), bench.selected()), (vec![], vec![selection(PRIVATE, false, How::Private)]));
}

#[test]
fn a_changed_endpoint_is_asked_anew_and_keeps_its_address_meanwhile() {
    let (mut bench, private, _) = asking();
    bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
    bench.selected();
    let changed = Remote { public_ip: Some(ip("203.0.113.2")), ..remote() };
    bench.add(changed.clone());
    assert_eq!(bench.targets(), [at(PRIVATE), at("203.0.113.2")]);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Provisional)]);
    assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), Outcome::UnknownRequest);
    bench.add(Remote { private_ip: Some(ip("172.31.2.12")), ..changed });
    assert_eq!(bench.targets(), [at("172.31.2.12"), at("203.0.113.2")]);
    assert_eq!(bench.selected(), [], "the old address is published no more");
}

#[test]
fn a_changed_endpoint_restarts_discovery_that_is_under_way() {
    let (mut bench, private, _) = asking();
    bench.add(Remote { port: Some(4491), ..remote() });
    assert_eq!(bench.asked().len(), 2);
    assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), Outcome::UnknownRequest);
}

#[test]
fn removal_cancels_everything() {
    let (mut bench, private, _) = asking();
    bench.run_until(3);
    bench.machine.remove(&cable("b"));
    assert_eq!(bench.selected(), [], "a selection that nobody had fetched is gone");
    assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), Outcome::UnknownPeer);
    assert_eq!(bench.run_until(600), 0);
    assert_eq!(bench.machine.cables().count(), 0);
    assert_eq!(bench.machine.status(&cable("b"), bench.now), None);
}

#[test]
fn another_own_address_asks_anew_and_keeps_what_was_answered() {
    let (mut bench, private, _) = asking();
    bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
    bench.selected();
    bench.advance(SECOND * 5);
    bench.machine.set_local(local(), bench.now);
    assert_eq!(bench.asked(), [], "nothing has changed");
    bench.machine.set_local(Local { private_ips: vec![ip("172.31.1.12")], ..local() }, bench.now);
    let asked = bench.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(bench.run_until(120), 2 * 29);
    assert_eq!(bench.selected(), [], "silence says nothing against an answer");
    let (state, message) = bench.status();
    assert_eq!(state, "private");
    assert!(message.ends_with("using 172.31.2.11, as it answered earlier"), "{message}");
}

#[test]
fn a_cable_over_the_private_address_is_not_moved_while_answers_race() {
    let settle = |private_answers: bool| {
        let (mut bench, private, _) = asking();
        bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
        bench.selected();
        bench.advance(SECOND * 5);
        bench.machine.rediscover(&cable("b"), bench.now);
        let [(_, private), (_, public)] = bench.asked().try_into().unwrap();
        assert_eq!(bench.respond(response_to(&public, ResponseType::NatDetected), PUBLIC), Outcome::Accepted);
        assert_eq!(bench.selected(), []);
        if private_answers {
            bench.advance(SECOND / 2);
            bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
        }
        bench.run_until(20);
        bench.selected()
    };
    assert_eq!(settle(true), [], "the same as before");
    assert_eq!(settle(false), [selection(PUBLIC, true, How::Public)]);
}

#[test]
fn the_port_can_be_switched_off_and_on() {
    let (mut bench, ..) = asking();
    bench.machine.set_local(Local { port: 0, ..local() }, bench.now);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Fallback)]);
    assert_eq!(bench.run_until(30), 0);
    bench.machine.set_local(Local { port: 4499, ..local() }, bench.now);
    let asked = bench.asked();
    assert_eq!(asked[0].1.using_src, Some(pair(OWN_IP, 4499)));
    assert_eq!(asked.len(), 2);
}
