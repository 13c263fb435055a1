//! How often is asked: until an answer comes, when none comes, and when the peer asks.

use super::*;

#[test]
fn an_unanswered_request_is_repeated_every_two_seconds_for_a_minute() {
    let (mut bench, ..) = asking();
    bench.advance(SECOND);
    assert_eq!(bench.sent(), [], "too early");
    bench.advance(SECOND);
    assert_eq!(bench.targets(), [at(PRIVATE), at(PUBLIC)]);
    assert_eq!(bench.run_until(59), 2 * 28);
    assert_eq!(bench.run_until(119), 0);
    assert_eq!(bench.run_until(240), 2 * 3, "then once a minute");
}

#[test]
fn a_silent_peer_gets_a_provisional_address_after_three_seconds_and_a_final_one_after_sixty() {
    let rules = [
        (remote(), PRIVATE, false, 60),
        (Remote { nat_enabled: true, ..remote() }, PUBLIC, true, 60),
        (Remote { uses_load_balancer: true, ..remote() }, PUBLIC, true, 6),
        (Remote { nat_enabled: true, public_ip: None, ..remote() }, PRIVATE, false, 60),
    ];
    for (remote, address, use_nat, timeout) in rules {
        let (mut bench, _) = asking_with(remote);
        bench.run_until(2);
        assert_eq!(bench.selected(), []);
        bench.run_until(3);
        assert_eq!(bench.selected(), [selection(address, use_nat, How::Provisional)]);
        bench.run_until(timeout - 1);
        assert_eq!(bench.selected(), []);
        assert!(!bench.machine.has_timed_out(&cable("b")));
        bench.run_until(timeout);
        assert_eq!(bench.selected(), [selection(address, use_nat, How::Fallback)]);
        assert!(bench.machine.has_timed_out(&cable("b")));
    }
}

#[test]
fn an_answer_upgrades_what_was_provisional_or_fallen_back_to() {
    for seconds in [3, 60, 600] {
        let (mut bench, _) = asking_with(Remote { nat_enabled: true, ..remote() });
        bench.run_until(seconds);
        assert_eq!(bench.selected().pop().map(|known| known.ip), Some(ip(PUBLIC)));
        let private = bench.newest.clone().unwrap();
        assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), Outcome::Accepted);
        assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Private)]);
    }
}

/// The requests of one run of a machine, from second to second.
fn per_second(bench: &mut Bench, seconds: std::ops::Range<u64>) -> Vec<usize> {
    bench.run_until(seconds.start);
    seconds.map(|second| bench.run_until(second + 1)).collect()
}

#[test]
fn a_thousand_peers_that_do_not_answer_share_a_rate_of_requests() {
    let mut bench = Bench::new();
    for number in 0..1000_u16 {
        let [high, low] = number.to_be_bytes();
        let cluster_id = format!("c{number}");
        let cable_name = cable(&cluster_id);
        let (private_ip, public_ip) = (Some([10, 9, high, low].into()), Some([192, 0, high, low].into()));
        bench.add(Remote { cluster_id, cable_name, private_ip, public_ip, ..remote() });
    }
    bench.add(remote());
    assert_eq!(bench.sent().len(), 2 * 1001, "each is asked at once");
    let first = bench.run_until(3);
    assert_eq!(first, 2 * 1001, "and again before it gets an address for the time being");
    assert!((0..1000).all(|number| bench.machine.selection(&cable(&format!("c{number}"))).is_some()));
    let later = per_second(&mut bench, 6..60);
    assert!(later.iter().all(|sent| (38..=42).contains(sent)), "{later:?}");
    bench.run_until(61);
    assert!((0..1000).all(|number| bench.machine.has_timed_out(&cable(&format!("c{number}")))));
    // Whoever asks is asked, however many do not.
    bench.machine.handle_datagram(&message::emit(Body::Request(request())), at(PRIVATE), None, bench.now);
    assert_eq!(bench.sent().into_iter().filter(|transmit| transmit.to == at(PUBLIC)).count(), 1);
    let silent = per_second(&mut bench, 300..420);
    assert!(silent.iter().all(|sent| *sent <= 2 * 60), "{silent:?}: a burst, and the rate");
    let sum: usize = silent.iter().sum();
    assert!((3_900..=4_010).contains(&sum), "{sum}: each once a minute");
}

#[test]
fn whoever_slept_through_the_time_out_asks_at_once() {
    let (mut bench, _) = asking_with(remote());
    bench.advance(SECOND * 100);
    assert_eq!(bench.asked().len(), 2);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Fallback)]);
}

#[test]
fn a_peer_that_asks_is_asked_without_waiting_but_not_more_than_once_a_second() {
    let (mut bench, ..) = asking();
    let hear = |bench: &mut Bench| {
        let payload = message::emit(Body::Request(request()));
        bench.machine.handle_datagram(&payload, at(PRIVATE), None, bench.now);
        bench.sent().len() - 1
    };
    bench.advance(SECOND / 2);
    assert_eq!(hear(&mut bench), 0);
    bench.advance(SECOND / 2);
    assert_eq!(bench.sent().len(), 2, "a second later, where two were the rule");
    bench.run_until(100);
    assert_eq!(hear(&mut bench), 2, "a peer that was silent too");
    bench.advance(SECOND / 4);
    assert_eq!(hear(&mut bench), 0);
}

#[test]
fn a_peer_that_asks_and_cannot_be_asked_gets_a_provisional_address_for_its_handshake() {
    let (mut bench, _) = asking_with(Remote { nat_enabled: true, ..remote() });
    let hear = |bench: &mut Bench| {
        let payload = message::emit(Body::Request(request()));
        bench.machine.handle_datagram(&payload, at(PUBLIC), None, bench.now);
    };
    bench.advance(SECOND / 4);
    hear(&mut bench);
    bench.advance(SECOND);
    hear(&mut bench);
    bench.advance(SECOND / 4);
    assert_eq!(bench.selected(), [], "a second round may still be answered");
    bench.advance(SECOND / 4);
    assert_eq!(
        bench.selected(),
        [selection(PUBLIC, true, How::Provisional)],
        "1.5 s after the first request"
    );

    let (mut bench, _) = asking_with(remote());
    bench.advance(SECOND * 2);
    hear(&mut bench);
    bench.advance(SECOND);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Provisional)], "three seconds at the most");
}

#[test]
fn a_cable_in_error_is_asked_about_again_and_silence_then_overrules_the_answer() {
    let (mut bench, _, public) = asking();
    bench.respond(response_to(&public, ResponseType::NatDetected), PUBLIC);
    bench.selected();
    bench.advance(SECOND * 10);
    bench.machine.rediscover(&cable("b"), bench.now);
    assert_eq!(bench.asked().len(), 2);
    bench.run_until(69);
    assert_eq!(bench.selected(), [], "until the time-out it stays");
    bench.run_until(71);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Fallback)]);
    bench.machine.rediscover("nobody", bench.now);
}

#[test]
fn a_peer_that_never_answers_is_asked_once_a_minute_also_while_its_cable_is_in_error() {
    let (mut bench, ..) = asking();
    bench.run_until(62);
    assert_eq!(bench.selected().last(), Some(&selection(PRIVATE, false, How::Fallback)));
    let mut sent = 0;
    for half in 1..=20u64 {
        bench.machine.rediscover(&cable("b"), bench.now);
        sent += bench.run_until(62 + 30 * half);
    }
    assert_eq!(sent, 2 * 10, "both addresses, in ten minutes");
    assert_eq!(bench.selected(), [], "there is nothing new to say");
}

#[test]
fn asking_again_and_again_sends_no_more_than_a_round_a_second() {
    let (mut bench, ..) = asking();
    let mut sent = 0;
    for _ in 0..1000 {
        bench.advance(SECOND / 100);
        let newest = bench.asked();
        sent += newest.len();
        if let Some((_, private)) = newest.first() {
            bench.respond(response_to(private, ResponseType::Ok), PRIVATE);
        }
        bench.machine.rediscover(&cable("b"), bench.now);
    }
    assert!(sent <= 2 * 11, "{sent}");
}
