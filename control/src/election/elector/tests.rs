use super::*;
use crate::election::Timings;

const LEASE: Duration = Duration::from_secs(15);

#[test]
fn the_first_candidate_creates_the_lease_as_upstream_does_and_leads() {
    let mut one = Bed::new("gw1");
    assert_eq!(one.request(), Some(Request::Read));
    one.elector.handle_read(Ok(None), one.now);
    let Some(Request::Create(lease)) = one.request() else { panic!("the Lease is to be created") };
    assert_eq!(lease.metadata, crate::api::ObjectMeta::new("ns", "submariner-gateway-lock"));
    let stamp = Some(MicroTime::new(Timestamp::UNIX_EPOCH));
    let expected = LeaseSpec {
        holder_identity: "gw1-submariner-gateway".to_owned(),
        lease_duration_seconds: Some(15),
        acquire_time: stamp,
        renew_time: stamp,
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    assert_eq!(lease.spec, expected);
    assert_eq!(one.elector.leadership(one.now), None, "not before the store has said so");
    one.elector.handle_written(Ok(stored(lease, "1")), one.now);
    assert_eq!(
        one.events(),
        [
            ElectionEvent::Acquired { term: Term(0) },
            ElectionEvent::HolderChanged { holder: "gw1-submariner-gateway".to_owned() }
        ]
    );
    assert_eq!(one.request(), None, "the next renewal is due after the retry period");
    one.pass(2.0);
    let Some(Request::Update(lease)) = one.request() else { panic!("a renewal is due") };
    assert_eq!(lease.version(), "1");
    assert_eq!((lease.spec.lease_transitions, lease.spec.acquire_time), (Some(0), stamp));
}

#[test]
fn a_candidate_waits_for_the_duration_that_the_record_states_from_when_it_saw_it_change() {
    let mut one = Bed::new("gw1");
    let mut lease = held_by("gw2", 4, "10");
    lease.spec.lease_duration_seconds = Some(3);
    // Its times are nonsense and do not count.
    lease.spec.renew_time = Some(MicroTime::new("2001-01-01T00:00:00Z".parse().unwrap()));
    one.observe(lease.clone());
    one.pass(2.0);
    lease.metadata.resource_version = Some("11".to_owned());
    lease.spec.renew_time = Some(MicroTime::new("2001-01-01T00:00:01Z".parse().unwrap()));
    one.observe(lease);
    one.pass(2.9);
    assert_eq!(one.request(), None);
    one.pass(0.1);
    let Some(Request::Update(taken)) = one.request() else { panic!("the Lease has expired") };
    assert_eq!(taken.version(), "11");
    assert_eq!(taken.spec.lease_transitions, Some(5));
    assert_eq!(taken.spec.acquire_time, Some(MicroTime::new(Timestamp::UNIX_EPOCH)));
}

#[test]
fn a_record_that_is_only_repeated_is_not_renewed_by_that() {
    let mut one = Bed::new("gw1");
    let mut at = 0.0;
    one.observe(held_by("gw2", 4, "10"));
    while at < 14.0 {
        one.pass(1.0);
        at += 1.0;
        one.observe(held_by("gw2", 4, "10"));
        assert_eq!(one.request(), None, "after {at} s");
    }
    one.pass(1.0);
    assert!(matches!(one.request(), Some(Request::Update(_))));
}

#[test]
fn a_watch_that_has_gone_quiet_is_made_up_for_by_reading() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("gw2", 4, "10"));
    one.pass(4.0);
    assert_eq!(one.request(), Some(Request::Read));
    one.elector.handle_read(Ok(Some(held_by("gw2", 4, "12"))), one.now);
    assert_eq!(one.request(), None);
    one.pass(4.0);
    assert_eq!(one.request(), Some(Request::Read));
}

#[test]
fn after_a_restart_the_same_identity_takes_its_lease_back_at_once_and_keeps_the_term() {
    let mut one = Bed::new("gw1");
    let mut lease = held_by("gw1", 4, "10");
    lease.spec.extra.insert("strategy".to_owned(), "X".into());
    lease.metadata.annotations.insert("theirs".to_owned(), "kept".to_owned());
    lease.spec.acquire_time = Some(MicroTime::new("2026-01-01T00:00:00Z".parse().unwrap()));
    one.observe(lease.clone());
    let Some(Request::Update(taken)) = one.request() else { panic!("it is ours") };
    assert_eq!(taken.spec.lease_transitions, Some(4));
    assert_eq!(taken.spec.acquire_time, lease.spec.acquire_time);
    assert_eq!((taken.spec.extra, taken.metadata), (lease.spec.extra, lease.metadata));
}

#[test]
fn a_released_lease_is_taken_at_once_in_a_new_term() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("gw2", 4, "10"));
    assert_eq!(one.request(), None);
    one.observe(held_by("", 4, "11"));
    let Some(Request::Update(taken)) = one.request() else { panic!("nobody holds it") };
    assert_eq!(taken.spec.lease_transitions, Some(5));
}

#[test]
fn a_leader_gives_up_at_the_renew_deadline_although_requests_hang() {
    let mut one = Bed::leader(7);
    one.pass(2.0);
    assert!(one.request().is_some());
    one.pass(7.9);
    assert!(one.elector.leadership(one.now).is_some());
    assert_eq!(one.elector.poll_timeout(), Some(one.now + Duration::from_millis(100)));
    one.pass(0.1);
    one.elector.handle_timeout(one.now);
    assert_eq!(
        one.events(),
        [ElectionEvent::Lost { term: Term(7), reason: LossReason::RenewDeadline(None) }]
    );
}

#[test]
fn a_process_that_was_stopped_knows_by_its_clock_that_it_leads_no_more() {
    let mut one = Bed::leader(7);
    one.pass(60.0);
    assert_eq!(one.elector.leadership(one.now), None, "before anything else was called");
    // What it asks first is whether the Lease is still its own.
    let Some(Request::Update(lease)) = one.request() else { panic!("it was the holder") };
    one.elector.handle_written(Err(Failure::Race), one.now);
    assert_eq!(lease.version(), "1");
    assert_eq!(one.request(), Some(Request::Read));
    one.elector.handle_read(Ok(Some(held_by("gw2", 8, "50"))), one.now);
    assert_eq!((one.elector.leadership(one.now), one.request()), (None, None));
}

#[test]
fn an_answer_that_comes_too_late_gives_no_leadership() {
    let mut one = Bed::leader(7);
    one.pass(2.0);
    let Some(Request::Update(lease)) = one.request() else { panic!("a renewal is due") };
    one.pass(13.0);
    one.elector.handle_written(Ok(stored(lease, "2")), one.now);
    assert_eq!(one.elector.leadership(one.now), None, "others count from when it was written");
}

#[test]
fn answers_that_take_five_seconds_do_not_cost_the_leadership() {
    let mut one = Bed::leader(7);
    for version in 2..50 {
        one.pass(2.0);
        let request = one.request();
        let Some(Request::Update(lease)) = request else { continue };
        one.pass(5.0);
        one.elector.handle_written(Ok(stored(lease, &version.to_string())), one.now);
        assert!(one.elector.leadership(one.now).is_some(), "at version {version}");
    }
    assert_eq!(one.events(), []);
}

#[test]
fn a_takeover_that_is_seen_ends_leadership_at_once() {
    let mut one = Bed::leader(7);
    one.observe(held_by("somebody", 7, "2"));
    let lost = ElectionEvent::Lost { term: Term(7), reason: LossReason::TakenOver("somebody".to_owned()) };
    assert_eq!(one.events(), [lost, ElectionEvent::HolderChanged { holder: "somebody".to_owned() }]);
    assert_eq!(one.request(), None, "the name that somebody wrote by hand is honoured");
}

#[test]
fn a_late_event_from_before_our_term_is_looked_into_and_does_not_end_it() {
    let mut one = Bed::leader(7);
    one.observe(held_by("gw2", 6, "0.5"));
    assert!(one.elector.leadership(one.now).is_some());
    assert_eq!(one.request(), Some(Request::Read));
    one.elector.handle_read(Ok(Some(held_by("gw1", 7, "1"))), one.now);
    assert_eq!((one.events().len(), one.request()), (0, None));
}

#[test]
fn versions_that_are_known_to_be_old_are_not_believed_again() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("gw2", 4, "10"));
    one.observe(held_by("", 4, "11"));
    one.observe(held_by("gw3", 5, "12"));
    one.observe(held_by("", 4, "11"));
    assert_eq!(one.elector.holder(), "gw3-submariner-gateway");
    assert_eq!(one.request(), None);
    // The store's own word counts more: somebody put the old file back.
    one.pass(4.0);
    assert_eq!(one.request(), Some(Request::Read));
    one.elector.handle_read(Ok(Some(held_by("", 4, "11"))), one.now);
    assert!(matches!(one.request(), Some(Request::Update(_))));
}

#[test]
fn a_deleted_lease_is_made_anew_by_its_leader_in_the_same_term_and_by_another_in_a_new_one() {
    let mut leader = Bed::leader(7);
    leader.observe_none();
    assert_eq!(leader.request(), Some(Request::Read), "the news may be old");
    leader.elector.handle_read(Ok(None), leader.now);
    let Some(Request::Create(lease)) = leader.request() else { panic!("it is missing") };
    assert_eq!(lease.spec.lease_transitions, Some(7));
    leader.elector.handle_written(Ok(stored(lease, "20")), leader.now);
    assert!(leader.elector.leadership(leader.now).is_some());
    assert!(leader.events().iter().all(|event| matches!(event, ElectionEvent::HolderChanged { .. })));

    let mut other = Bed::new("gw1");
    other.observe(held_by("gw2", 7, "10"));
    other.observe_none();
    let Some(Request::Create(lease)) = other.request() else { panic!("it is missing") };
    assert_eq!(lease.spec.lease_transitions, Some(8));
}

#[test]
fn an_edit_of_other_fields_is_renewed_over_and_a_higher_count_is_taken_on() {
    let mut one = Bed::leader(7);
    let mut edited = held_by("gw1", 9, "2");
    edited.spec.lease_duration_seconds = Some(1_000);
    one.observe(edited);
    one.pass(2.0);
    let Some(Request::Update(lease)) = one.request() else { panic!("a renewal is due") };
    assert_eq!((lease.version(), lease.spec.lease_duration_seconds), ("2", Some(15)));
    one.elector.handle_written(Ok(stored(lease, "3")), one.now);
    assert_eq!(one.events(), [ElectionEvent::Acquired { term: Term(9) }]);
}

#[test]
fn being_named_by_somebody_else_is_a_change_of_holder_and_a_new_term() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("gw2", 4, "10"));
    one.observe(held_by("gw1", 4, "11"));
    let Some(Request::Update(taken)) = one.request() else { panic!("it has our name") };
    assert_eq!(taken.spec.lease_transitions, Some(5));
}

#[test]
fn a_write_whose_answer_was_lost_is_recognised() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("", 4, "10"));
    let Some(Request::Update(taken)) = one.request() else { panic!("nobody holds it") };
    one.elector.handle_written(Err(Failure::Store("connection reset".to_owned())), one.now);
    assert_eq!(one.elector.error(), Some("connection reset"));
    one.observe(stored(taken, "11"));
    let Some(Request::Update(again)) = one.request() else { panic!("it is ours") };
    assert_eq!(again.spec.lease_transitions, Some(5));
}

#[test]
fn what_cannot_be_is_not_believed() {
    let mut one = Bed::new("gw1");
    let mut lease = held_by("gw2", 4, "10");
    lease.spec.lease_transitions = Some(-3);
    lease.spec.lease_duration_seconds = Some(-1);
    one.observe(lease);
    one.pass(4.0);
    assert_eq!(one.request(), Some(Request::Read), "our own lease duration counts");
    let mut lease = held_by("gw2", 0, "11");
    lease.spec.lease_transitions = Some(i32::MAX);
    one.elector.handle_read(Ok(Some(lease)), one.now);
    one.pass(LEASE.as_secs_f64());
    one.elector.handle_observed(None, one.now);
    let Some(Request::Create(lease)) = one.request() else { panic!("it is missing") };
    assert_eq!(lease.spec.lease_transitions, Some(1));
}

#[test]
fn a_candidate_that_may_not_run_gives_the_lease_back_and_may_run_again() {
    let mut one = Bed::leader(7);
    one.elector.set_eligible(false, one.now);
    assert_eq!(one.elector.leadership(one.now), None);
    assert!(!one.elector.is_released());
    let Some(Request::Update(lease)) = one.request() else { panic!("it has to be given back") };
    let given = (lease.spec.holder_identity.as_str(), lease.spec.lease_duration_seconds);
    assert_eq!((given, lease.spec.lease_transitions), (("", Some(1)), Some(7)));
    one.elector.handle_written(Ok(stored(lease, "2")), one.now);
    assert!(one.elector.is_released());
    one.pass(60.0);
    assert_eq!(one.request(), None);
    one.elector.set_eligible(true, one.now);
    let Some(Request::Update(lease)) = one.request() else { panic!("nobody holds it") };
    assert_eq!(lease.spec.lease_transitions, Some(8));
}

#[test]
fn a_release_waits_for_the_renewal_under_way_and_gives_back_what_that_brought() {
    let mut one = Bed::leader(7);
    one.pass(2.0);
    let Some(Request::Update(renewal)) = one.request() else { panic!("a renewal is due") };
    one.elector.set_eligible(false, one.now);
    assert_eq!(one.request(), None);
    one.elector.handle_written(Ok(stored(renewal, "2")), one.now);
    assert_eq!(one.elector.leadership(one.now), None);
    let Some(Request::Update(lease)) = one.request() else { panic!("it has to be given back") };
    assert_eq!((lease.version(), lease.spec.holder_identity.as_str()), ("2", ""));
}

#[test]
fn failures_are_repeated_with_pauses_and_races_in_a_row_too() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("", 4, "10"));
    assert!(one.request().is_some());
    one.elector.handle_written(Err(Failure::Store("no route to host".to_owned())), one.now);
    assert_eq!(one.request(), None);
    one.pass(4.4);
    assert!(one.request().is_some());
    one.elector.handle_written(Err(Failure::Race), one.now);
    assert_eq!(one.request(), None, "the second failure in a row");
    one.pass(4.4);
    assert_eq!(one.request(), Some(Request::Read));
}

#[test]
fn after_an_outage_of_the_store_the_holder_has_its_time_anew() {
    let mut one = Bed::new("gw1");
    one.observe(held_by("gw2", 4, "10"));
    for _ in 0..10 {
        one.pass(6.0);
        assert!(matches!(one.request(), None | Some(Request::Read)), "nobody has looked");
        one.elector.handle_read(Err(Failure::Store("no route to host".to_owned())), one.now);
    }
    one.observe(held_by("gw2", 4, "10"));
    for _ in 0..7 {
        one.pass(2.0);
        one.observe(held_by("gw2", 4, "10"));
        assert!(matches!(one.request(), None | Some(Request::Read)));
    }
    one.pass(1.0);
    assert!(matches!(one.request(), Some(Request::Update(_))), "it has had it");
}

#[test]
fn a_leader_whose_renewal_hung_has_the_time_for_another() {
    let mut one = Bed::leader(4);
    one.pass(2.0);
    assert!(matches!(one.request(), Some(Request::Update(_))));
    one.pass(6.0);
    one.elector.handle_written(Err(Failure::Store("no answer within 6s".to_owned())), one.now);
    assert!(one.elector.leadership(one.now).is_some());
    assert!(one.request().is_some(), "it has waited already");
}

#[test]
fn a_term_seen_elsewhere_is_outbid_by_a_renewal() {
    let mut one = Bed::leader(7);
    one.elector.raise_term(Term(11), one.now);
    let Some(Request::Update(lease)) = one.request() else { panic!("at once") };
    assert_eq!(lease.spec.lease_transitions, Some(12));
    one.elector.handle_written(Ok(stored(lease, "2")), one.now);
    assert_eq!(one.events(), [ElectionEvent::Acquired { term: Term(12) }]);
    one.elector.raise_term(Term(11), one.now);
    assert_eq!(one.request(), None, "it has been");
}

#[test]
fn events_nobody_takes_do_not_pile_up() {
    let mut one = Bed::new("gw1");
    for number in 0..1_000 {
        one.observe(held_by(&format!("gw{number}"), number, &number.to_string()));
    }
    assert_eq!(one.events().len(), MAX_EVENTS);
}

struct Bed {
    elector: Elector,
    now: Instant,
}

impl Bed {
    fn new(host: &str) -> Self {
        let config = ElectionConfig::gateway("ns", host, Timings::default());
        Self { elector: Elector::new(config, 1), now: Instant::now() }
    }

    /// gw1, leading in `term`, with version 1 of the Lease.
    fn leader(term: i32) -> Self {
        let mut one = Self::new("gw1");
        one.observe(held_by("gw1", term, "0"));
        let Some(Request::Update(lease)) = one.request() else { panic!("it is ours") };
        one.elector.handle_written(Ok(stored(lease, "1")), one.now);
        assert!(one.elector.leadership(one.now).is_some());
        one.events();
        one
    }

    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    fn observe(&mut self, lease: Lease) {
        self.elector.handle_observed(Some(lease), self.now);
    }

    fn observe_none(&mut self) {
        self.elector.handle_observed(None, self.now);
    }

    fn request(&mut self) -> Option<Request> {
        self.elector.handle_timeout(self.now);
        self.elector.poll_request(self.now, Timestamp::UNIX_EPOCH)
    }

    fn events(&mut self) -> Vec<ElectionEvent> {
        std::iter::from_fn(|| self.elector.poll_event()).collect()
    }
}

fn held_by(host: &str, term: i32, version: &str) -> Lease {
    let holder = if host.is_empty() || host == "somebody" {
        host.to_owned()
    } else {
        format!("{host}-submariner-gateway")
    };
    let spec = LeaseSpec {
        holder_identity: holder,
        lease_duration_seconds: Some(15),
        lease_transitions: Some(term),
        ..LeaseSpec::default()
    };
    stored(Lease::new("ns", "submariner-gateway-lock", spec), version)
}

fn stored(mut lease: Lease, version: &str) -> Lease {
    lease.metadata.resource_version = Some(version.to_owned());
    lease
}
