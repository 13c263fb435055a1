//! What comes of an event that a handler refuses.

use super::*;

#[test]
fn plugin_events_a_failure_holds_up_what_follows_of_its_handler_and_no_other_one() {
    let script = Script::default();
    let mut dispatcher = Dispatcher::new("generic");
    dispatcher.register(Box::new(Recorder::new("one", &script)));
    dispatcher.register(Box::new(Recorder::new("other", &script)));
    script.refuse(&["LocalEndpointCreated"]);
    let state = state("a-w1", &["a-gw1", "b-gw1"]);
    let outcome = dispatcher.follow(&state);
    let refusal = Refusal {
        handler: "one",
        event: "LocalEndpointCreated a-gw1".into(),
        error: "refused".into(),
        is_dropped: false,
    };
    assert_eq!(outcome, Outcome { refused: vec![refusal], dropped: vec![] });
    assert_eq!(
        script.take(),
        [
            "LocalEndpointCreated a-gw1",
            "other: LocalEndpointCreated a-gw1",
            "other: RemoteEndpointCreated b-gw1 [b-gw1]"
        ]
    );
    script.refuse(&[]);
    assert_eq!(dispatcher.follow(&state), Outcome::default());
    assert_eq!(script.take(), ["LocalEndpointCreated a-gw1", "RemoteEndpointCreated b-gw1 [b-gw1]"]);
}

#[test]
fn plugin_events_an_event_is_dropped_after_twenty_failures_until_its_object_changes() {
    let (mut dispatcher, script) = one();
    script.refuse(&["RemoteEndpointCreated b"]);
    let mut state = state("a-w1", &["b-gw1", "c-gw1"]);
    for attempt in 1..MAX_ATTEMPTS {
        let outcome = dispatcher.follow(&state);
        assert_eq!((outcome.refused.len(), outcome.dropped.len()), (1, 0), "{attempt}");
        assert_eq!(script.take(), ["RemoteEndpointCreated b-gw1 [b-gw1]"]);
    }
    let last = dispatcher.follow(&state);
    assert_eq!((last.dropped.len(), dispatcher.dropped()), (1, 1));
    let expected = ["RemoteEndpointCreated b-gw1 [b-gw1]", "RemoteEndpointCreated c-gw1 [c-gw1]"];
    assert_eq!(script.take(), expected, "what it held up comes at once");

    let outcome = dispatcher.follow(&state);
    assert_eq!(outcome, Outcome { refused: last.dropped, dropped: vec![] }, "it is still shown");
    assert!(outcome.refused[0].is_dropped && script.take().is_empty());

    script.refuse(&[]);
    dispatcher.follow(&state);
    assert_eq!(script.take(), [""; 0]);
    state.endpoints[0].subnets.push("10.2.0.0/16".parse().unwrap());
    assert_eq!(dispatcher.follow(&state), Outcome::default());
    let expected = ["RemoteEndpointCreated b-gw1 [b-gw1 c-gw1]"];
    assert_eq!(script.take(), expected, "it has not taken the first one in");
}

#[test]
fn plugin_events_a_removal_that_is_dropped_leaves_nothing_to_remove() {
    let (mut dispatcher, script) = one();
    dispatcher.follow(&state("a-w1", &["b-gw1@1"]));
    script.refuse(&["RemoteEndpointRemoved"]);
    for _ in 0..MAX_ATTEMPTS {
        dispatcher.follow(&state("a-w1", &["b-gw1@2"]));
    }
    assert_eq!(dispatcher.dropped(), 1);
    assert_eq!(script.take().last().unwrap(), "RemoteEndpointCreated b-gw1 [b-gw1]");
    assert_eq!(dispatcher.follow(&state("a-w1", &["b-gw1@2"])), Outcome::default());
    assert_eq!(script.take(), [""; 0]);
}

#[test]
fn plugin_events_a_removal_counts_its_own_failures() {
    let (mut dispatcher, script) = one();
    script.refuse(&["RemoteEndpointCreated", "RemoteEndpointRemoved"]);
    for _ in 1..MAX_ATTEMPTS {
        dispatcher.follow(&state("a-w1", &["b-gw1"]));
    }
    dispatcher.follow(&state("a-w1", &[]));
    script.take();
    script.refuse(&[]);
    assert_eq!(dispatcher.follow(&state("a-w1", &[])), Outcome::default());
    assert_eq!((script.take(), dispatcher.dropped()), (vec!["RemoteEndpointRemoved b-gw1".to_owned()], 0));
}

#[test]
fn plugin_events_a_newer_endpoint_that_was_begun_leaves_the_older_one_to_be_created_again() {
    let (mut dispatcher, script) = one();
    dispatcher.follow(&state("a-w1", &["b-gw1@1"]));
    script.refuse(&["RemoteEndpointCreated"]);
    dispatcher.follow(&state("a-w1", &["b-gw1@1", "b-gw2@2"]));
    script.take();
    script.refuse(&[]);
    dispatcher.follow(&state("a-w1", &["b-gw1@1"]));
    assert_eq!(script.take(), ["RemoteEndpointCreated b-gw1 [b-gw1]"]);
}

#[test]
fn plugin_events_what_was_begun_and_is_gone_is_removed() {
    let (mut dispatcher, script) = one();
    script.refuse(&["RemoteEndpointCreated"]);
    dispatcher.follow(&state("a-w1", &["b-gw1"]));
    script.refuse(&[]);
    dispatcher.follow(&state("a-w1", &[]));
    assert_eq!(script.take(), ["RemoteEndpointCreated b-gw1 [b-gw1]", "RemoteEndpointRemoved b-gw1"]);
    dispatcher.follow(&state("a-w1", &[]));
    assert_eq!(script.take(), [""; 0]);
}

#[test]
fn plugin_events_what_was_changed_or_removed_in_part_is_made_whole_where_the_change_is_taken_back() {
    let (mut dispatcher, script) = one();
    let first = state("a-w1", &["b-gw1", "c-gw1"]);
    dispatcher.follow(&first);
    script.take();
    let mut changed = first.clone();
    changed.endpoints[0].subnets.push("10.2.0.0/16".parse().unwrap());
    script.refuse(&["RemoteEndpointUpdated"]);
    dispatcher.follow(&changed);
    script.refuse(&["RemoteEndpointRemoved"]);
    dispatcher.follow(&state("a-w1", &["b-gw1"]));
    script.refuse(&[]);
    dispatcher.follow(&first);
    assert_eq!(
        script.take(),
        [
            "RemoteEndpointUpdated b-gw1 [b-gw1 c-gw1]",
            "RemoteEndpointRemoved c-gw1 [b-gw1]",
            "RemoteEndpointUpdated b-gw1 [b-gw1 c-gw1]",
            "RemoteEndpointCreated c-gw1 [b-gw1 c-gw1]",
        ]
    );
}

#[test]
fn plugin_events_a_transition_that_fails_comes_again_by_itself() {
    let (mut dispatcher, script) = one();
    script.refuse(&["TransitionToGateway"]);
    let gateway = state("a-gw1", &["a-gw1", "b-gw1"]);
    dispatcher.follow(&gateway);
    assert_eq!(script.take(), ["LocalEndpointCreated a-gw1 on", "TransitionToGateway on"]);
    dispatcher.follow(&gateway);
    assert_eq!(script.take(), ["TransitionToGateway on"]);
    // It may have become one in part.
    dispatcher.follow(&state("a-gw1", &[]));
    assert_eq!(script.take(), ["LocalEndpointRemoved a-gw1", "TransitionToNonGateway"]);
    dispatcher.follow(&state("a-gw1", &[]));
    assert_eq!(script.take(), [""; 0]);
}

#[test]
fn plugin_events_no_transition_comes_before_its_endpoint_is_taken_in() {
    let (mut dispatcher, script) = one();
    script.refuse(&["LocalEndpointCreated"]);
    dispatcher.follow(&state("a-gw1", &["a-gw1"]));
    assert_eq!(script.take(), ["LocalEndpointCreated a-gw1 on"]);
    script.refuse(&["LocalEndpointRemoved"]);
    dispatcher.follow(&state("a-gw1", &["a-gw1"]));
    assert_eq!(script.take(), ["LocalEndpointCreated a-gw1 on", "TransitionToGateway on"]);
    for _ in 0..2 {
        dispatcher.follow(&state("a-gw1", &[]));
        assert_eq!(script.take(), ["LocalEndpointRemoved a-gw1"]);
    }
    script.refuse(&[]);
    dispatcher.follow(&state("a-gw1", &[]));
    assert_eq!(script.take(), ["LocalEndpointRemoved a-gw1", "TransitionToNonGateway"]);
}

#[test]
fn plugin_events_a_transition_that_is_dropped_comes_again_with_the_next_change_of_role() {
    let (mut dispatcher, script) = one();
    script.refuse(&["TransitionToGateway"]);
    let gateway = state("a-gw1", &["a-gw1"]);
    for _ in 0..MAX_ATTEMPTS {
        dispatcher.follow(&gateway);
    }
    assert_eq!(dispatcher.dropped(), 1);
    script.take();
    dispatcher.follow(&gateway);
    assert_eq!(script.take(), [""; 0]);
    // By another Endpoint of the node, in one step.
    let mut other = gateway.clone();
    other.endpoints[0].cable_name.push('2');
    dispatcher.follow(&other);
    let expected = ["LocalEndpointRemoved a-gw1", "LocalEndpointCreated a-gw1 on", "TransitionToGateway on"];
    assert_eq!(script.take(), expected);
    script.refuse(&[]);
    dispatcher.follow(&state("a-gw1", &[]));
    dispatcher.follow(&gateway);
    let calls = script.take();
    assert_eq!(calls[..2], ["LocalEndpointRemoved a-gw1", "TransitionToNonGateway"]);
    assert_eq!(calls[2..], ["LocalEndpointCreated a-gw1 on", "TransitionToGateway on"]);
}

/// Its Endpoint is back, and refused for good: the handler is no gateway's, and hears so.
#[test]
fn plugin_events_a_transition_that_failed_comes_though_the_endpoint_is_back_and_dropped() {
    let (mut dispatcher, script) = one();
    let gateway = state("a-gw1", &["a-gw1"]);
    dispatcher.follow(&gateway);
    script.refuse(&["TransitionToNonGateway"]);
    dispatcher.follow(&state("a-gw1", &[]));
    script.refuse(&["LocalEndpointCreated"]);
    for _ in 0..MAX_ATTEMPTS {
        dispatcher.follow(&gateway);
    }
    assert_eq!(script.take().last().unwrap(), "TransitionToNonGateway");
}
