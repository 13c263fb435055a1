//! Who is asked when, and what is chosen.

mod changes;
mod properties;
mod requests;

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
