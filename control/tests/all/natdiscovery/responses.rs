//! Which responses count.

use super::*;

/// A bench that has asked, and its two requests: private, public.
fn asking() -> (Bench, Request, Request) {
    let mut bench = Bench::new();
    bench.add(remote());
    let [(to_private, private), (to_public, public)] = bench.asked().try_into().unwrap();
    assert_eq!((to_private, to_public), (at(PRIVATE), at(PUBLIC)));
    (bench, private, public)
}

#[test]
fn a_response_without_one_of_its_parts_is_ignored() {
    let (mut bench, private, _) = asking();
    let whole = response_to(&private, ResponseType::Ok);
    let without = [
        Response { sender: None, ..whole.clone() },
        Response { receiver: None, ..whole.clone() },
        Response { received_src: None, ..whole.clone() },
    ];
    for response in without {
        assert_eq!(bench.respond(response, PRIVATE), Outcome::Incomplete);
    }
    assert_eq!(bench.selected(), []);
    assert_eq!(bench.respond(whole, PRIVATE), Outcome::Accepted, "discovery goes on");
}

#[test]
fn refusals_and_unknown_types_are_ignored() {
    let (mut bench, private, _) = asking();
    for verdict in
        [ResponseType::UnknownDstCluster, ResponseType::UnknownDstEndpoint, ResponseType::Malformed]
    {
        assert_eq!(bench.respond(response_to(&private, verdict), PRIVATE), Outcome::Refused);
    }
    let unknown = Response { response: 99, ..response_to(&private, ResponseType::Ok) };
    assert_eq!(bench.respond(unknown, PRIVATE), Outcome::Refused);
    assert_eq!(bench.selected(), []);
    assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), Outcome::Accepted);
}

#[test]
fn who_answers_and_for_whom_is_checked() {
    let (mut bench, private, _) = asking();
    let whole = response_to(&private, ResponseType::Ok);
    let from_other = Response { sender: Some(details("c")), ..whole.clone() };
    assert_eq!(bench.respond(from_other, PRIVATE), Outcome::UnknownPeer);
    let mixed = EndpointDetails { cluster_id: "c".to_owned(), ..details("b") };
    assert_eq!(
        bench.respond(Response { sender: Some(mixed), ..whole.clone() }, PRIVATE),
        Outcome::UnknownPeer
    );
    let for_other = Response { receiver: Some(details("c")), ..whole.clone() };
    assert_eq!(bench.respond(for_other, PRIVATE), Outcome::NotOurs);
    let for_other_cable = EndpointDetails { endpoint_id: cable("old"), ..details("a") };
    let for_other_cable = Response { receiver: Some(for_other_cable), ..whole };
    assert_eq!(bench.respond(for_other_cable, PRIVATE), Outcome::NotOurs);
    assert_eq!(bench.selected(), []);
}

#[test]
fn the_private_address_must_answer_for_itself() {
    let (mut bench, private, _) = asking();
    let response = response_to(&private, ResponseType::Ok);
    assert_eq!(bench.respond(response.clone(), PUBLIC), Outcome::WrongSource);
    assert_eq!(bench.selected(), []);
    assert_eq!(bench.respond(response, PRIVATE), Outcome::Accepted);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Private)]);
}

#[test]
fn the_public_address_may_answer_from_anywhere() {
    let (mut bench, _, public) = asking();
    assert_eq!(
        bench.respond(response_to(&public, ResponseType::NatDetected), "203.0.113.50"),
        Outcome::Accepted
    );
    assert_eq!(bench.selected(), [selection(PUBLIC, true, How::Public)]);
}

#[test]
fn only_the_newest_request_to_each_address_can_be_answered() {
    let (mut bench, old_private, old_public) = asking();
    bench.advance(Duration::from_secs(2));
    let [(_, private), (_, public)] = bench.asked().try_into().unwrap();
    assert_eq!(private.request_number, old_public.request_number.wrapping_add(1));
    assert_eq!(public.request_number, private.request_number.wrapping_add(1));
    for old in [&old_private, &old_public] {
        let outcome = bench.respond(response_to(old, ResponseType::Ok), PRIVATE);
        assert_eq!(outcome, Outcome::UnknownRequest);
    }
    let guess = Request { request_number: 0, ..private.clone() };
    assert_eq!(bench.respond(response_to(&guess, ResponseType::Ok), PRIVATE), Outcome::UnknownRequest);
    assert_eq!(bench.selected(), []);
    assert_eq!(bench.respond(response_to(&private, ResponseType::Ok), PRIVATE), Outcome::Accepted);
}

#[test]
fn nothing_is_accepted_before_anything_was_asked() {
    let mut bench = Bench::new();
    bench.add(remote());
    let unsent = Request { request_number: 0, ..request() };
    assert_eq!(bench.respond(response_to(&unsent, ResponseType::Ok), PRIVATE), Outcome::UnknownRequest);
    assert_eq!(bench.selected(), []);
}

#[test]
fn peers_do_not_learn_one_another_s_numbers() {
    let mut bench = Bench::new();
    bench.add(remote());
    let other = Remote { cluster_id: "c".to_owned(), cable_name: cable("c"), ..remote() };
    bench.add(other);
    let numbers: Vec<u64> = bench.asked().iter().map(|(_, request)| request.request_number).collect();
    assert_eq!(numbers.len(), 4);
    assert!(numbers[0].abs_diff(numbers[2]) > 1 << 32, "{numbers:?}");
    bench.machine.remove(&cable("b"));
    bench.add(remote());
    let again = bench.asked()[0].1.request_number;
    assert!(again.abs_diff(numbers[0]) > 1 << 32, "nor does it start where it was before");
}
