//! What comes when, and in what order.

use super::*;

#[test]
fn plugin_events_handlers_are_used_for_their_plugins_in_the_order_of_registration() {
    for (plugin, used) in [("OVNKubernetes", "ovn all"), ("generic", "all"), ("Calico", "calico all")] {
        let script = Script::default();
        let mut dispatcher = Dispatcher::new(plugin);
        assert!(dispatcher.is_empty());
        let handlers: [(&str, Plugins); 3] = [
            ("ovn", Plugins::Named(&["ovnkubernetes"])),
            ("calico", Plugins::Named(&["canal", "calico"])),
            ("all", Plugins::Others),
        ];
        for (name, plugins) in handlers {
            let is_used = dispatcher.register(Box::new(Recorder { plugins, ..Recorder::new(name, &script) }));
            assert_eq!(is_used, used.contains(name), "{plugin}");
        }
        let expected =
            |event: &str| -> Vec<String> { used.split(' ').map(|name| format!("{name}: {event}")).collect() };
        dispatcher.start().unwrap();
        assert_eq!(script.take(), expected("Init"));
        dispatcher.follow(&state("a-w1", &["b-gw1"]));
        assert_eq!(script.take(), expected("RemoteEndpointCreated b-gw1 [b-gw1]"));
        assert!(dispatcher.stop().is_empty());
        assert_eq!(script.take(), expected("Stop"));
    }
}

#[test]
fn plugin_events_a_failure_of_init_aborts_the_start() {
    let script = Script::default();
    let mut dispatcher = Dispatcher::new("generic");
    for name in ["first", "second", "third"] {
        dispatcher.register(Box::new(Recorder::new(name, &script)));
    }
    script.refuse(&["second: Init"]);
    assert_eq!(dispatcher.start().unwrap_err().to_string(), "second cannot start: refused");
    assert_eq!(script.take(), ["first: Init", "second: Init"]);
}

#[test]
fn plugin_events_uninstalling_is_stop_then_uninstall_of_all_whatever_fails() {
    let script = Script::default();
    let mut dispatcher = Dispatcher::new("generic");
    for name in ["first", "second"] {
        dispatcher.register(Box::new(Recorder::new(name, &script)));
    }
    script.refuse(&["first: Stop", "second: Uninstall"]);
    let refused = dispatcher.uninstall();
    let refused: Vec<_> = refused.iter().map(|one| (one.handler, one.event.as_str())).collect();
    assert_eq!(refused, [("first", "Stop"), ("second", "Uninstall")]);
    assert_eq!(script.take(), ["first: Stop", "second: Stop", "first: Uninstall", "second: Uninstall"]);
}

#[test]
fn plugin_events_every_event_does_nothing_by_default() {
    struct Nothing;

    impl Handler for Nothing {
        fn name(&self) -> &'static str {
            "nothing"
        }

        fn plugins(&self) -> Plugins {
            Plugins::Others
        }
    }

    let mut dispatcher = Dispatcher::new("generic");
    dispatcher.register(Box::new(Nothing));
    dispatcher.start().unwrap();
    for endpoints in [&["a-gw1", "b-gw1"][..], &["a-gw2", "b-gw1@2"], &[]] {
        let mut state = state("a-gw1", endpoints);
        state.nodes = vec![node("a-gw1")];
        assert_eq!(dispatcher.follow(&state), Outcome::default());
    }
    assert!(dispatcher.uninstall().is_empty());
}

#[test]
fn plugin_events_the_state_is_visible_inside_callbacks_and_transitions_follow_the_endpoint() {
    let brought = followed("a-gw1", &[&["a-gw1", "b-gw1"], &["b-gw1"], &["a-gw2", "b-gw1"]]);
    assert_eq!(
        brought[0],
        ["LocalEndpointCreated a-gw1 on", "TransitionToGateway on", "RemoteEndpointCreated b-gw1 on [b-gw1]"]
    );
    assert_eq!(brought[1], ["LocalEndpointRemoved a-gw1 [b-gw1]", "TransitionToNonGateway [b-gw1]"]);
    assert_eq!(brought[2], ["LocalEndpointCreated a-gw2 [b-gw1]"]);
}

#[test]
fn plugin_events_a_gateway_that_moves_is_removed_before_it_is_created() {
    let moved: [&[&str]; 2] = [&["a-gw1@1"], &["a-gw1@1", "a-gw2@2"]];
    let brought = followed("a-gw1", &moved);
    let expected = ["LocalEndpointRemoved a-gw1", "TransitionToNonGateway", "LocalEndpointCreated a-gw2"];
    assert_eq!(brought[1], expected);
    let brought = followed("a-gw2", &moved);
    let expected = ["LocalEndpointRemoved a-gw1", "LocalEndpointCreated a-gw2 on", "TransitionToGateway on"];
    assert_eq!(brought[1], expected);
}

#[test]
fn plugin_events_a_gateway_that_begins_anew_on_its_node_leaves_its_role_first() {
    let (mut dispatcher, script) = one();
    let mut state = state("a-gw1", &["a-gw1"]);
    dispatcher.follow(&state);
    script.take();
    state.endpoints[0].cable_name.push('2');
    dispatcher.follow(&state);
    let expected = [
        "LocalEndpointRemoved a-gw1",
        "TransitionToNonGateway",
        "LocalEndpointCreated a-gw1 on",
        "TransitionToGateway on",
    ];
    assert_eq!(script.take(), expected);
}

#[test]
fn plugin_events_a_gateway_that_is_joined_by_others_makes_no_transition() {
    let (mut dispatcher, script) = one();
    let mut several = state("a-gw1", &["a-gw1@1", "b-gw1"]);
    dispatcher.follow(&several);
    script.take();
    // Its further Endpoint is another object.
    let further = |text: &str| Endpoint { name: format!("{text}-further"), created: 7, ..endpoint(text) };
    several.members = vec![further("a-gw1"), further("a-gw2")];
    dispatcher.follow(&several);
    assert_eq!(
        script.take(),
        ["LocalEndpointUpdated a-gw1-further on [b-gw1]", "LocalEndpointCreated a-gw2-further on [b-gw1]"]
    );
    several.endpoints[0] = endpoint("a-gw2@8");
    dispatcher.follow(&several);
    assert_eq!(script.take(), [""; 0], "the leader changes");
    several.members.remove(0);
    dispatcher.follow(&several);
    let expected = ["LocalEndpointRemoved a-gw1-further [b-gw1]", "TransitionToNonGateway [b-gw1]"];
    assert_eq!(script.take(), expected);
}

#[test]
fn plugin_events_the_newest_endpoint_of_a_remote_cluster_counts_and_an_older_one_is_resurrected() {
    let brought = followed(
        "a-w1",
        &[
            &["b-gw1@1"],
            &["b-gw1@1", "b-gw2@2"],
            &["b-gw1@1", "b-gw2@2", "b-gw0@0"],
            &["b-gw1@1", "b-gw2@2"],
            &["b-gw1@1"],
            &["b-gw1@1", "b-gw2@3"],
            &["b-gw2@3"],
        ],
    );
    let expected: [&[&str]; 7] = [
        &["RemoteEndpointCreated b-gw1 [b-gw1]"],
        &["RemoteEndpointCreated b-gw2 [b-gw2]"],
        &[],
        &[],
        &["RemoteEndpointRemoved b-gw2", "RemoteEndpointCreated b-gw1 [b-gw1]"],
        &["RemoteEndpointCreated b-gw2 [b-gw2]"],
        &[],
    ];
    assert_eq!(brought, expected);
}

#[test]
fn plugin_events_removals_come_before_creations() {
    let brought = followed("a-w1", &[&["b-gw1@1", "d-gw1"], &["b-gw1@2", "c-gw1"]]);
    assert_eq!(
        brought[1],
        [
            "RemoteEndpointRemoved b-gw1 [d-gw1]",
            "RemoteEndpointRemoved d-gw1",
            "RemoteEndpointCreated b-gw1 [b-gw1]",
            "RemoteEndpointCreated c-gw1 [b-gw1 c-gw1]",
        ]
    );
}

#[test]
fn plugin_events_changes_of_an_endpoint_are_updates_unless_a_newer_one_counts() {
    let (mut dispatcher, script) = one();
    let mut state = state("a-gw1", &["a-gw1", "b-gw1@1", "b-gw2@2"]);
    dispatcher.follow(&state);
    script.take();
    for (changed, expected) in [
        (0, &["LocalEndpointUpdated a-gw1 on [b-gw2]"][..]),
        (1, &[]),
        (2, &["RemoteEndpointUpdated b-gw2 on [b-gw2]"]),
    ] {
        state.endpoints[changed].subnets.push("10.9.0.0/16".parse().unwrap());
        dispatcher.follow(&state);
        assert_eq!(script.take(), expected);
    }
}

#[test]
fn plugin_events_nodes_come_first_and_only_to_those_who_want_them() {
    let script = Script::default();
    let mut dispatcher = Dispatcher::new("generic");
    dispatcher.register(Box::new(Recorder::new("one", &script)));
    dispatcher.register(Box::new(Recorder { wants_nodes: false, ..Recorder::new("endpoints", &script) }));
    let mut state = state("a-w1", &["a-gw1"]);
    state.nodes = vec![node("a-gw1"), node("a-w1")];
    dispatcher.follow(&state);
    let local = "LocalEndpointCreated a-gw1";
    let expected = ["NodeCreated a-gw1", "NodeCreated a-w1", local, "endpoints: LocalEndpointCreated a-gw1"];
    assert_eq!(script.take(), expected);

    state.nodes = vec![node("a-w1"), node("a-w2")];
    state.nodes[0].clamp_mss = Some(1400);
    dispatcher.follow(&state);
    assert_eq!(script.take(), ["NodeRemoved a-gw1", "NodeUpdated a-w1", "NodeCreated a-w2"]);
}

#[test]
fn plugin_events_networks_of_the_own_cluster_are_events_in_whatever_order_they_are_listed() {
    let (mut dispatcher, script) = one();
    let mut state = state("a-w1", &[]);
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let steps: [(&[&str], &[&str], &[&str]); 4] = [
        (&["10.1.0.0/16"], &["100.65.0.0/16"], &["PodNetworksUpdated", "ServiceNetworksUpdated"]),
        (&["10.1.0.0/16", "10.3.0.0/16"], &["100.65.0.0/16"], &["PodNetworksUpdated"]),
        (&["10.3.0.0/16", "10.1.0.0/16"], &["100.65.0.0/16"], &[]),
        (&["10.3.0.0/16", "10.1.0.0/16"], &[], &["ServiceNetworksUpdated"]),
    ];
    for (pods, services, expected) in steps {
        (state.node.pod_networks, state.node.service_networks) = (nets(pods), nets(services));
        dispatcher.follow(&state);
        assert_eq!(script.take(), expected);
    }
}

#[test]
fn plugin_events_a_state_that_comes_twice_brings_nothing() {
    let (mut dispatcher, script) = one();
    let mut state = state("a-gw1", &["a-gw1", "b-gw1@1", "b-gw2@2", "c-gw1"]);
    (state.nodes, state.node.pod_networks) = (vec![node("a-gw1")], vec!["10.1.0.0/16".parse().unwrap()]);
    dispatcher.follow(&state);
    assert_eq!(script.take().len(), 6);
    dispatcher.follow(&state);
    assert_eq!(script.take(), [""; 0]);
}
