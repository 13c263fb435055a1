use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use zeroize::Zeroizing;

use super::message::{Datagram, MAX_DATAGRAM, MAX_SIBLINGS, challenge, hello, parse};
use super::*;

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn a_notice_is_read_as_it_was_written_and_by_its_key_alone() {
    let notice = Notice { siblings: [(key(2), State::Down), (key(3), State::Up)].into(), ..notice(1, 7) };
    let bytes = notice.emit(&signing(1));
    let Some(Datagram::Notice(signed)) = parse(&bytes) else { panic!("{bytes:?}") };
    assert_eq!(signed.notice, notice);
    assert!(signed.is_by(&signing(1).public()));
    assert!(!signed.is_by(&signing(2).public()));
}

#[test]
fn hellos_and_challenges_are_as_long_as_each_other() {
    let cookie = [7; 16];
    assert_eq!(parse(&hello(None)), Some(Datagram::Hello(None)));
    assert_eq!(parse(&hello(Some(cookie))), Some(Datagram::Hello(Some(cookie))));
    assert_eq!(parse(&challenge(cookie)), Some(Datagram::Challenge(cookie)));
    assert_eq!(hello(None).len(), challenge(cookie).len());
}

#[test]
fn every_single_changed_byte_of_a_notice_is_noticed() {
    let now = Instant::now();
    let bytes = notice(1, 7).emit(&signing(1));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let mut view = view(2, now);
            assert!(view.take(&changed, address(1), now).is_err(), "byte {at} bit {bit}");
            assert_eq!(view.last_received(key(1)), None);
        }
    }
}

#[test]
fn what_is_replayed_forged_oversized_or_from_elsewhere_is_refused_and_counted() {
    let now = Instant::now();
    let mut view = view(2, now);
    let newest = Notice { boot: 5, ..notice(1, 7) };
    assert_eq!(view.take(&newest.emit(&signing(1)), address(1), now), Ok(()));
    let mut refuse = |bytes: &[u8], from: IpAddr, why: Refusal| {
        assert_eq!(view.take(bytes, from, now), Err(why));
        assert_eq!(view.refused(why), 1);
    };
    refuse(&newest.emit(&signing(1)), address(1), Refusal::Old);
    let later = Notice { sequence: 8, ..newest.clone() };
    refuse(&later.emit(&signing(2)), address(1), Refusal::Forged);
    refuse(&later.emit(&signing(1)), address(2), Refusal::WrongAddress);
    refuse(&notice(9, 1).emit(&signing(9)), address(9), Refusal::Unknown);
    refuse(&vec![0; 60_000], address(1), Refusal::Malformed);
    // An earlier run's words, however high its numbers were.
    let former = Notice { boot: 4, sequence: u64::MAX, ..newest };
    assert_eq!(view.take(&former.emit(&signing(1)), address(1), now), Err(Refusal::Old));
    assert_eq!(view.take(&later.emit(&signing(1)), address(1), now), Ok(()));
}

#[test]
fn a_flood_of_forged_notices_is_checked_only_so_often() {
    let now = Instant::now();
    let mut view = view(1, now);
    let forged = notice(1, 7).emit(&signing(2));
    for _ in 0..1_500 {
        assert!(view.take(&forged, address(1), now).is_err());
    }
    assert_eq!((view.refused(Refusal::Forged), view.refused(Refusal::TooMany)), (1_000, 500));
    let later = now + Duration::from_secs(1);
    assert_eq!(view.take(&notice(1, 7).emit(&signing(1)), address(1), later), Ok(()));
}

#[test]
fn a_gateway_is_left_out_as_soon_as_one_live_sibling_calls_it_down() {
    let now = Instant::now();
    let mut view = view(3, now);
    assert_eq!(view.live(now), keys(&[1, 2, 3]), "nobody has said anything");
    receive(&mut view, now, &notice(1, 1));
    receive(&mut view, now, &notice(2, 1));
    receive(&mut view, now, &accusing(3, 1, &[1]));
    assert_eq!(view.live(now), keys(&[2, 3]));
    assert_eq!(view.standings(now)[&key(1)], Standing::Accused(key(3)));
    receive(&mut view, now, &notice(3, 2));
    assert_eq!(view.live(now), keys(&[1, 2, 3]));
}

#[test]
fn the_word_of_a_gateway_that_has_no_path_itself_does_not_count() {
    let now = Instant::now();
    let mut view = view(2, now);
    receive(&mut view, now, &Notice { state: State::Down, health: 0, ..accusing(1, 1, &[2]) });
    receive(&mut view, now, &notice(2, 1));
    assert_eq!(view.live(now), keys(&[2]));
}

#[test]
fn where_all_are_down_those_are_used_that_were_well_until_last() {
    let now = Instant::now();
    let mut view = view(2, now);
    let down = |number, boot, sequence| Notice { state: State::Down, boot, ..notice(number, sequence) };
    receive(&mut view, now, &down(1, 1, 1));
    receive(&mut view, now, &down(2, 1, 1));
    assert_eq!(view.live(now), keys(&[1, 2]), "none was ever anything else");
    receive(&mut view, now, &notice(1, 2));
    receive(&mut view, now, &notice(2, 2));
    receive(&mut view, now + MOMENT, &down(1, 1, 3));
    assert_eq!(view.live(now + MOMENT), keys(&[2]));
    receive(&mut view, now + MOMENT, &down(2, 1, 3));
    assert_eq!(view.live(now + MOMENT), keys(&[1, 2]), "both at once");
    // One is started again: it has no path yet, and the other one pauses.
    receive(&mut view, now + MOMENT, &down(1, 6, 1));
    assert_eq!(view.live(now + MOMENT), keys(&[2]));
    receive(&mut view, now + MOMENT, &Notice { boot: 6, ..notice(1, 2) });
    assert_eq!(view.live(now + MOMENT), keys(&[1]));
    let later = now + Duration::from_secs(3);
    receive(&mut view, later, &down(1, 6, 3));
    receive(&mut view, later, &down(2, 1, 4));
    assert_eq!(view.live(later), keys(&[1, 2]));
    receive(&mut view, later, &Notice { boot: 6, ..notice(1, 4) });
    receive(&mut view, later, &down(1, 6, 5));
    assert_eq!(view.live(later), keys(&[1]), "the other one has been down for long");
}

#[test]
fn who_dies_with_an_accusation_on_its_lips_is_left_out_when_it_does_not_repeat_it() {
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    let mut view = view(2, now);
    receive(&mut view, now, &notice(1, 1));
    receive(&mut view, now, &accusing(2, 1, &[1]));
    receive(&mut view, at(250), &accusing(1, 2, &[2]));
    assert_eq!(view.live(at(250)), keys(&[1, 2]), "each could be right");
    receive(&mut view, at(1_250), &accusing(1, 3, &[2]));
    assert_eq!(view.live(at(1_299)), keys(&[1, 2]));
    assert_eq!(view.poll_timeout(at(1_299)), Some(at(1_300)));
    assert_eq!(view.live(at(1_300)), keys(&[1]));
    assert_eq!(view.standings(at(1_300))[&key(2)], Standing::Accused(key(1)));
}

#[test]
fn of_two_that_accuse_each_other_the_one_with_more_paths_is_right() {
    let now = Instant::now();
    let mut view = view(2, now);
    receive(&mut view, now, &Notice { health: 10, ..accusing(1, 1, &[2]) });
    receive(&mut view, now, &Notice { health: 200, ..accusing(2, 1, &[1]) });
    assert_eq!(view.live(now), keys(&[2]));
    // As many: it is the way between them that is cut.
    receive(&mut view, now, &Notice { health: 200, ..accusing(1, 2, &[2]) });
    assert_eq!(view.live(now), keys(&[1, 2]));
}

#[test]
fn one_that_is_not_heard_while_others_are_is_left_out_and_its_word_does_not_count_any_more() {
    let now = Instant::now();
    let mut view = view(2, now);
    receive(&mut view, now, &accusing(1, 1, &[2]));
    assert_eq!(view.live(now), keys(&[1]));
    let late = now + SILENCE;
    receive(&mut view, late - MOMENT, &notice(2, 1));
    assert_eq!(view.live(late - MOMENT), keys(&[1]), "accused");
    assert_eq!(view.poll_timeout(late - MOMENT), Some(late));
    assert_eq!(view.live(late), keys(&[2]));
    assert_eq!(view.standings(late)[&key(1)], Standing::Silent);
    // If nobody is heard, it is the listener who is deaf.
    assert_eq!(view.live(late + SILENCE), keys(&[1, 2]));
    assert_eq!(view.poll_timeout(late + SILENCE), None);
}

#[test]
fn one_that_comes_while_others_are_heard_is_used_once_it_has_said_that_it_is_up() {
    let now = Instant::now();
    let mut view = View::new(now);
    let known = |n: u8| {
        (GatewayKey(n.into()), GatewayIdentity { address: address(n), key: Some(signing(n).public()) })
    };
    view.set_gateways(&[known(1), known(2)].into(), now);
    assert_eq!(view.live(now), keys(&[1, 2]), "nobody is heard yet");
    receive(&mut view, now, &notice(1, 1));
    assert_eq!(view.live(now), keys(&[1, 2]), "both were there before anybody was heard");
    view.set_gateways(&[known(1), known(2), known(3)].into(), now);
    assert_eq!(view.live(now), keys(&[1, 2]));
    assert_eq!(view.standings(now)[&key(3)], Standing::Coming);
    receive(&mut view, now, &Notice { state: State::Draining, ..notice(3, 1) });
    assert_eq!(view.live(now), keys(&[1, 2]), "it says that it would rather not be used yet");
    receive(&mut view, now, &notice(3, 2));
    assert_eq!(view.live(now), keys(&[1, 2, 3]));
}

#[test]
fn a_gateway_without_a_key_is_never_held_to_be_silent_but_can_be_accused() {
    let now = Instant::now();
    let mut view = View::new(now);
    let known =
        |n: u8, key: Option<PublicKey>| (GatewayKey(n.into()), GatewayIdentity { address: address(n), key });
    view.set_gateways(&[known(1, None), known(2, Some(signing(2).public()))].into(), now);
    let late = now + SILENCE * 2;
    receive(&mut view, late, &notice(2, 1));
    assert_eq!(view.live(late), keys(&[1, 2]));
    assert_eq!(view.take(&notice(1, 1).emit(&signing(1)), address(1), late), Err(Refusal::Unknown));
    receive(&mut view, late, &accusing(2, 2, &[1]));
    assert_eq!(view.live(late), keys(&[2]));
}

#[test]
fn those_that_drain_are_used_only_if_nobody_else_is_left() {
    let now = Instant::now();
    let mut view = view(2, now);
    receive(&mut view, now, &Notice { state: State::Draining, ..notice(1, 1) });
    receive(&mut view, now, &notice(2, 1));
    assert_eq!(view.live(now), keys(&[2]));
    receive(&mut view, now, &Notice { state: State::Draining, ..accusing(1, 2, &[2]) });
    assert_eq!(view.live(now), keys(&[1]));
}

#[test]
fn another_key_begins_anew_and_the_same_one_goes_on() {
    let now = Instant::now();
    let mut view = view(2, now);
    receive(&mut view, now, &Notice { boot: 9, ..notice(1, 5) });
    view.set_gateways(&known(2), now);
    assert_eq!(view.take(&notice(1, 1).emit(&signing(1)), address(1), now), Err(Refusal::Old));
    let mut other = known(2);
    other.get_mut(&key(1)).unwrap().key = Some(signing(7).public());
    view.set_gateways(&other, now);
    assert_eq!(view.take(&notice(1, 1).emit(&signing(7)), address(1), now), Ok(()));
}

#[test]
fn an_agent_is_told_once_it_has_shown_where_it_is_and_as_long_as_it_says_hello() {
    let now = Instant::now();
    let mut subscribers = Subscribers::new(Zeroizing::new([3; 32]));
    let agent: SocketAddr = "10.0.0.1:1234".parse().unwrap();
    let Answer::Challenge(cookie) = subscribers.take(&hello(None), agent, now) else { panic!() };
    assert!(subscribers.is_empty());
    assert_eq!(subscribers.take(&hello(Some(cookie)), agent, now), Answer::Welcome);
    assert_eq!(subscribers.take(&hello(Some(cookie)), agent, now), Answer::Renewed);
    let other: SocketAddr = "10.0.0.2:1234".parse().unwrap();
    assert!(
        matches!(subscribers.take(&hello(Some(cookie)), other, now), Answer::Challenge(c) if c != cookie)
    );
    assert_eq!(subscribers.take(b"anything", agent, now), Answer::Nothing);
    assert_eq!(subscribers.iter().collect::<Vec<_>>(), [agent]);
    subscribers.expire(now + TOLD_FOR);
    assert!(subscribers.is_empty());
}

#[test]
fn there_is_room_for_so_many_agents_and_for_few_of_one_address() {
    let now = Instant::now();
    let mut subscribers = Subscribers::new(Zeroizing::new([3; 32]));
    let mut subscribe = |agent: SocketAddr| {
        let Answer::Challenge(cookie) = subscribers.take(&hello(None), agent, now) else { panic!() };
        subscribers.take(&hello(Some(cookie)), agent, now)
    };
    for port in 1..=4 {
        assert_eq!(subscribe(SocketAddr::new(address(1), port)), Answer::Welcome);
    }
    assert_eq!(subscribe(SocketAddr::new(address(1), 5)), Answer::Nothing);
    for node in 4..5_000_u16 {
        let [high, low] = node.to_be_bytes();
        assert_eq!(subscribe(SocketAddr::new([10, 9, high, low].into(), 1)), Answer::Welcome);
    }
    assert_eq!(subscribe(SocketAddr::new(address(2), 1)), Answer::Nothing);
}

proptest! {
    #[test]
    fn whatever_comes_is_read_without_harm_and_written_again_as_it_was(bytes in any::<Vec<u8>>(), kind in 1u8..4) {
        let now = Instant::now();
        let framed = [b"TRSN\x01".as_slice(), &[kind], &bytes].concat();
        for bytes in [&bytes, &framed] {
            if let Some(Datagram::Notice(signed)) = parse(bytes) {
                prop_assert!(bytes.len() <= MAX_DATAGRAM);
                let again = signed.notice.emit(&signing(1));
                prop_assert_eq!(&again[..again.len() - 64], &bytes[..bytes.len() - 64]);
            }
            prop_assert!(view(2, now).take(bytes, address(1), now).is_err());
        }
    }

    #[test]
    fn somebody_is_always_left_and_no_words_make_a_stranger_live(
        words in proptest::collection::vec((1u8..6, 1u8..4, any::<u8>(), proptest::collection::btree_map(1u8..7, 1u8..4, 0..5), 0u64..2_000), 0..40),
        gateways in 1u8..5,
    ) {
        let mut now = Instant::now();
        let mut view = view(gateways, now);
        for (sequence, (from, own, health, siblings, pause)) in words.into_iter().enumerate() {
            now += Duration::from_millis(pause);
            let siblings = siblings.into_iter().filter(|(n, _)| *n != from).map(|(n, s)| (key(n), state(s)));
            let notice = Notice { state: state(own), health, siblings: siblings.collect(), ..notice(from, sequence as u64 + 1) };
            let taken = view.take(&notice.emit(&signing(from)), address(from), now);
            prop_assert_eq!(taken.is_ok(), from <= gateways);
            let live = view.live(now);
            prop_assert!(!live.is_empty() && live.iter().all(|key| (1..=gateways).any(|n| self::key(n) == *key)));
            prop_assert!(view.poll_timeout(now).is_none_or(|at| at > now));
        }
    }
}

#[test]
fn a_notice_has_at_most_so_many_siblings() {
    let siblings = (10..40).map(|n| (key(n), State::Up)).collect();
    let bytes = Notice { siblings, ..notice(1, 1) }.emit(&signing(1));
    assert_eq!(bytes.len(), MAX_DATAGRAM);
    let Some(Datagram::Notice(signed)) = parse(&bytes) else { panic!() };
    assert_eq!(signed.notice.siblings.len(), MAX_SIBLINGS);
}

fn state(byte: u8) -> State {
    [State::Up, State::Draining, State::Down][usize::from(byte - 1)]
}

fn key(n: u8) -> GatewayKey {
    GatewayKey(n.into())
}

fn keys(numbers: &[u8]) -> BTreeSet<GatewayKey> {
    numbers.iter().map(|n| key(*n)).collect()
}

fn address(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

fn signing(n: u8) -> SigningKey {
    SigningKey::from_seed(&Zeroizing::new([n; 32]))
}

fn notice(from: u8, sequence: u64) -> Notice {
    let (gateway, siblings) = (key(from), BTreeMap::new());
    Notice { gateway, boot: 1, sequence, state: State::Up, health: 255, siblings }
}

fn accusing(from: u8, sequence: u64, down: &[u8]) -> Notice {
    Notice { siblings: down.iter().map(|n| (key(*n), State::Down)).collect(), ..notice(from, sequence) }
}

fn receive(view: &mut View, now: Instant, notice: &Notice) {
    let n = u8::try_from(notice.gateway.0).unwrap();
    view.take(&notice.emit(&signing(n)), address(n), now).unwrap();
}

fn known(gateways: u8) -> BTreeMap<GatewayKey, GatewayIdentity> {
    let known = |n: u8| (key(n), GatewayIdentity { address: address(n), key: Some(signing(n).public()) });
    (1..=gateways).map(known).collect()
}

fn view(gateways: u8, now: Instant) -> View {
    let mut view = View::new(now);
    view.set_gateways(&known(gateways), now);
    view
}
