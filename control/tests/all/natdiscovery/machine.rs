//! Who is asked when, and what is chosen.

use proptest::prelude::*;
use trieste_control::natdiscovery::MAX_REMOTES;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn asking_with(remote: Remote) -> (Bench, Vec<(SocketAddr, Request)>) {
    let mut bench = Bench::new();
    bench.add(remote);
    let asked = bench.asked();
    (bench, asked)
}

fn asking() -> (Bench, Request, Request) {
    let (bench, asked) = asking_with(remote());
    let [(_, private), (_, public)] = asked.try_into().unwrap();
    (bench, private, public)
}

#[test]
fn a_request_says_who_asks_whom_from_where_to_where() {
    let (_, private, public) = asking();
    assert_eq!((&private.sender, &private.receiver), (&Some(details("a")), &Some(details("b"))));
    assert_eq!(private.using_src, Some(pair(OWN_IP, 4490)));
    assert_eq!(private.using_dst, Some(pair(PRIVATE, 4490)));
    assert_eq!(public.using_dst, Some(pair(PUBLIC, 4490)));
    assert_eq!(public.request_number, private.request_number.wrapping_add(1));
}

#[test]
fn only_addresses_that_there_are_and_that_have_a_route_are_asked() {
    let (_, asked) = asking_with(Remote { public_ip: None, ..remote() });
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0, at(PRIVATE));
    let (_, asked) = asking_with(Remote { private_ip: None, port: Some(4491), ..remote() });
    assert_eq!(asked.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [SocketAddr::new(ip(PUBLIC), 4491)]);

    let mut bench = Bench::new();
    bench.add(remote());
    bench.machine.handle_timeout(bench.now);
    let to_public_only = |to: SocketAddr| (to.ip() == ip(PUBLIC)).then_some(ip(OWN_IP));
    assert_eq!(bench.machine.poll_transmit(to_public_only).unwrap().to, at(PUBLIC));
    assert_eq!(bench.machine.poll_transmit(to_public_only), None);
    assert_eq!(bench.machine.counters().unroutable, 1);
}

#[test]
fn the_private_address_is_enough_where_it_is_the_only_one() {
    let (mut bench, asked) = asking_with(Remote { public_ip: None, ..remote() });
    assert_eq!(bench.respond(response_to(&asked[0].1, ResponseType::Ok), PRIVATE), Outcome::Accepted);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Private)]);
    assert_eq!(bench.run_until(3600), 0, "an answer ends it");
}

#[test]
fn nat_on_the_way_to_the_private_address_is_told() {
    let (mut bench, private, _) = asking();
    bench.respond(response_to(&private, ResponseType::NatDetected), PRIVATE);
    assert_eq!(bench.selected(), [selection(PRIVATE, true, How::Private)]);
}

#[test]
fn the_public_address_alone_is_used_at_once() {
    let (mut bench, asked) = asking_with(Remote { private_ip: None, ..remote() });
    bench.respond(response_to(&asked[0].1, ResponseType::Ok), PUBLIC);
    assert_eq!(bench.selected(), [selection(PUBLIC, false, How::Public)]);
}

#[test]
fn a_private_answer_first_makes_the_public_one_late() {
    let (mut bench, private, public) = asking();
    bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Private)]);
    assert_eq!(bench.respond(response_to(&public, ResponseType::NatDetected), PUBLIC), Outcome::Late);
    assert_eq!(
        bench.respond(response_to(&private, ResponseType::NatDetected), PRIVATE),
        Outcome::Late,
        "twice"
    );
    assert_eq!(bench.selected(), []);
}

#[test]
fn a_private_answer_replaces_the_public_one_for_a_second_and_no_longer() {
    for (after, outcome) in [(SECOND, Outcome::Accepted), (SECOND + MILLISECOND, Outcome::Late)] {
        let (mut bench, private, public) = asking();
        bench.respond(response_to(&public, ResponseType::NatDetected), PUBLIC);
        assert_eq!(bench.selected(), [selection(PUBLIC, true, How::Public)]);
        bench.advance(after);
        assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), outcome);
        let second =
            if outcome == Outcome::Accepted { vec![selection(PRIVATE, false, How::Private)] } else { vec![] };
        assert_eq!(bench.selected(), second);
    }
}

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
fn without_a_port_on_either_side_the_rule_decides_at_once() {
    let no_port =
        [Remote { port: None, ..remote() }, Remote { port: Some(0), nat_enabled: true, ..remote() }];
    for remote in no_port {
        let expected = if remote.nat_enabled { (PUBLIC, true) } else { (PRIVATE, false) };
        let (mut bench, asked) = asking_with(remote);
        assert_eq!(asked, []);
        assert_eq!(bench.selected(), [selection(expected.0, expected.1, How::Fallback)]);
        assert_eq!(bench.machine.poll_timeout(), None);
        assert_eq!(
            bench.status().1,
            format!(
                "the peer publishes no NAT discovery port; using {}{}",
                expected.0,
                if expected.1 { " through NAT" } else { "" },
            )
        );
    }
    let mut bench = Bench::with(Local { port: 0, ..local() }, Memory::default());
    bench.add(remote());
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Fallback)]);
    assert_eq!(bench.status().1, "NAT discovery is switched off here; using 172.31.2.11");
}

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
fn there_are_at_most_so_many_cables() {
    let mut bench = Bench::new();
    for n in 0..MAX_REMOTES {
        bench.add(Remote { cable_name: format!("cable-{n}"), ..remote() });
    }
    let error = bench.machine.add(remote(), bench.now).unwrap_err();
    assert!(error.to_string().contains("4096"), "{error}");
    bench.add(Remote { cable_name: "cable-7".to_owned(), nat_enabled: true, ..remote() });
    bench.machine.remove("cable-8");
    bench.add(remote());
    let long = Remote { cable_name: "x".repeat(256), ..remote() };
    bench.machine.add(long, bench.now).unwrap_err();
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

#[test]
fn people_are_told_what_is_going_on() {
    let (mut bench, private, public) = asking();
    let said = |bench: &Bench| {
        let (state, message) = bench.status();
        format!("{state}: {message}")
    };
    assert_eq!(said(&bench), "discovering: asking 172.31.2.11:4490 and 198.51.100.2:4490");
    bench.run_until(1);
    assert_eq!(
        said(&bench),
        "discovering: no answer from 172.31.2.11:4490 or 198.51.100.2:4490 for 1 s, trying on"
    );
    let mut answered = Bench::new();
    answered.add(remote());
    let asked = answered.asked();
    answered.respond(response_to(&asked[1].1, ResponseType::NatDetected), PUBLIC);
    assert_eq!(said(&answered), "public: the public address answered; there is NAT on the way");
    bench.run_until(12);
    assert_eq!(
        said(&bench),
        "discovering: no answer from 172.31.2.11:4490 or 198.51.100.2:4490 for 12 s, trying on; using 172.31.2.11"
    );
    bench.run_until(61);
    assert_eq!(
        said(&bench),
        "fallback: no answer from 172.31.2.11:4490 or 198.51.100.2:4490 for 61 s, asking once a minute; \
         using 172.31.2.11"
    );
    assert!(private.request_number != public.request_number);
    let mut lost = Bench::new();
    lost.add(remote());
    lost.machine.handle_timeout(lost.now);
    assert_eq!(lost.machine.poll_transmit(|_| None), None);
    assert_eq!(
        said(&lost),
        "discovering: no route or no socket towards the peer's addresses for 0 s, trying on"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    /// Answers one of the newest requests, or a made-up one.
    Answer {
        number: Option<bool>,
        nat: bool,
        from_private: bool,
    },
    Hear,
    Rediscover,
    Readd {
        nat_enabled: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..30_000).prop_map(Step::Wait),
        3 => (any::<Option<bool>>(), any::<bool>(), any::<bool>())
            .prop_map(|(number, nat, from_private)| Step::Answer { number, nat, from_private }),
        1 => Just(Step::Hear),
        1 => Just(Step::Rediscover),
        1 => any::<bool>().prop_map(|nat_enabled| Step::Readd { nat_enabled }),
    ]
}

proptest! {
    /// Whatever happens in whatever order: an answer selects only if its request was outstanding and, for the
    /// private address, came from there; only published addresses are selected; and requests stay seldom.
    #[test]
    fn the_machine_selects_only_what_was_answered_and_asks_seldom(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut bench = Bench::new();
        bench.add(remote());
        let mut newest: [Option<Request>; 2] = [None, None];
        let (mut sent, mut restarts) = (0_usize, 1_usize);
        for step in steps {
            let mut accepted = false;
            match step {
                Step::Wait(ms) => bench.advance(Duration::from_millis(ms)),
                Step::Answer { number, nat, from_private } => {
                    let index = number.map(usize::from);
                    let request = index.and_then(|index| newest[index].clone()).unwrap_or_default();
                    let verdict = if nat { ResponseType::NatDetected } else { ResponseType::Ok };
                    let from = if from_private { PRIVATE } else { PUBLIC };
                    let outcome = bench.respond(response_to(&request, verdict), from);
                    accepted = outcome == Outcome::Accepted;
                    if accepted {
                        let index = index.expect("a made-up number is not accepted");
                        prop_assert!(newest[index].is_some());
                        prop_assert!(index == 1 || from_private);
                    }
                }
                Step::Hear => {
                    let payload = message::emit(Body::Request(request()));
                    bench.machine.handle_datagram(&payload, at(PRIVATE), None, bench.now);
                }
                Step::Rediscover => bench.machine.rediscover(&cable("b"), bench.now),
                Step::Readd { nat_enabled } => {
                    restarts += 1;
                    bench.add(Remote { nat_enabled, ..remote() });
                }
            }
            let before = bench.machine.selection(&cable("b"));
            for transmit in bench.sent() {
                if let Ok(Body::Request(request)) = message::parse(&transmit.payload) {
                    sent += 1;
                    newest[usize::from(transmit.to == at(PUBLIC))] = Some(request);
                }
            }
            for selection in bench.selected() {
                prop_assert!([ip(PRIVATE), ip(PUBLIC)].contains(&selection.ip));
                if matches!(selection.how, How::Private | How::Public) && before != Some(selection) {
                    // Held for the private answer's sake, or just accepted.
                    prop_assert!(accepted || selection.how == How::Public);
                }
            }
            let seconds = usize::try_from(bench.now.duration_since(bench.start).as_secs()).unwrap();
            prop_assert!(sent <= 2 * (seconds + 1 + restarts), "{sent} requests in {seconds} s, {restarts} starts");
            prop_assert!(bench.machine.poll_timeout().is_none_or(|at| at > bench.now));
        }
    }
}
