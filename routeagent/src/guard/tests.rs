use super::*;

#[test]
fn a_table_that_was_built_is_read_back_as_it_was_meant() {
    assert_eq!(read(&listing(&guard())), Table::of(&guard()));
}

#[test]
fn counters_handles_and_the_order_of_sets_do_not_matter() {
    let mut listing = listing(&guard());
    let objects = listing["nftables"].as_array_mut().unwrap();
    objects.swap(2, 5);
    for object in objects.iter_mut().flat_map(|object| object.as_object_mut().unwrap().values_mut()) {
        object["handle"] = json!(7);
        object["packets"] = json!(99);
    }
    assert_eq!(read(&listing), Table::of(&guard()));
}

#[test]
fn a_rule_that_was_changed_added_removed_or_moved_is_noticed() {
    let written = listing(&guard());
    let first_rule =
        written["nftables"].as_array().unwrap().iter().position(|o| o.get("rule").is_some()).unwrap();
    let alter = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut listing = written.clone();
        change(listing["nftables"].as_array_mut().unwrap());
        read(&listing)
    };
    let changes: [Alteration<'_>; 4] = [
        &|all| drop(all.pop()),
        &|all| all.swap(first_rule, first_rule + 1),
        &|all| all.push(all[first_rule].clone()),
        &|all| all[first_rule]["rule"]["expr"][1] = json!({"drop": null}),
    ];
    for change in changes {
        let there = ObservedGuard::Present(alter(change));
        assert_eq!(guard_change(Some(&guard()), &there), Some(GuardChange::Build(guard().into())));
    }
}

#[test]
fn an_element_that_we_would_never_write_makes_the_table_altered() {
    let mut listing = listing(&guard());
    for object in listing["nftables"].as_array_mut().unwrap() {
        if object["set"]["name"] == "remote4" {
            object["set"]["elem"] = json!([{"range": ["10.0.0.1", "10.0.0.9"]}]);
        }
    }
    let there = ObservedGuard::Present(read(&listing));
    assert_eq!(guard_change(Some(&guard()), &there), Some(GuardChange::Build(guard().into())));
}

#[test]
fn a_new_network_touches_only_its_set() {
    let mut desired = guard();
    desired.remote.insert("10.9.0.0/16".parse().unwrap());
    desired.remote.remove(&"100.66.0.0/16".parse().unwrap());
    let change = guard_change(Some(&desired), &ObservedGuard::Present(Table::of(&guard()))).unwrap();
    assert_eq!(
        change.to_string(),
        "update nftables table inet trieste: remote4-100.66.0.0/16 remote4+10.9.0.0/16"
    );
    let commands = render(&change).to_tree();
    assert_eq!(
        commands["nftables"][2],
        json!({"add": {"element": {"family": "inet", "table": "trieste", "name": "remote4",
                                   "elem": [{"prefix": {"addr": "10.9.0.0", "len": 16}}]}}})
    );
}

#[test]
fn what_is_loosened_is_remembered_with_its_former_value() {
    let loosened: BTreeMap<String, u32> = [("cni0".to_owned(), 0), ("flannel.1".to_owned(), 1)].into();
    let guard = Guard { loosened: loosened.clone(), ..guard() };
    assert_eq!(read(&listing(&guard)).loosened(), loosened);
}

#[test]
fn a_fixed_segment_size_is_smaller_for_ipv6_and_making_it_keeps_nothing_of_the_former_rules() {
    let fixed = Guard { clamp: Some(1300), ..guard() };
    let text = rules::structure(&fixed).iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("\"value\":1300") && text.contains("\"value\":1280") && !text.contains("\"mtu\""));
    let there = ObservedGuard::Present(Table::of(&guard()));
    assert!(matches!(guard_change(Some(&fixed), &there), Some(GuardChange::Build(_))));
}

#[test]
fn sources_that_another_program_translates_are_not_kept() {
    let rules = |is_translated_elsewhere| {
        let sources = ["10.1.1.1".parse().unwrap()].into();
        let text = rules::structure(&Guard { is_translated_elsewhere, sources, ..guard() });
        let comments =
            ["local to remote: nobody", "gets a source that is known there", "remote to local: nobody"];
        comments.map(|comment| serde_json::to_string(&text).unwrap().contains(comment))
    };
    assert_eq!(rules(false), [true; 3]);
    assert_eq!(rules(true), [false, false, true]);
}

#[test]
fn a_table_that_could_not_be_read_is_left_alone() {
    assert_eq!(guard_change(Some(&guard()), &ObservedGuard::Unknown), None);
    assert_eq!(guard_change(None, &ObservedGuard::Unknown), None);
}

#[test]
fn every_command_names_our_table() {
    for change in
        [GuardChange::Build(guard().into()), GuardChange::Restore(guard().into()), GuardChange::Remove]
    {
        for command in &render(&change).to_tree()["nftables"].as_array().unwrap()[1..] {
            let text = command.to_string();
            assert!(text.contains(r#""inet""#) && text.contains(r#""trieste""#), "{text}");
        }
    }
}

type Alteration<'a> = &'a dyn Fn(&mut Vec<Value>);

fn guard() -> Guard {
    Guard {
        inlets: ["lo", "submariner", "vx-submariner"].map(str::to_owned).into(),
        tunnels: ["submariner", "vx-submariner"].map(str::to_owned).into(),
        remote: ["10.2.0.0/16", "100.66.0.0/16", "10.7.7.7/32", "fd00:2::/48"]
            .map(|t| t.parse().unwrap())
            .into(),
        beside: ["172.20.1.0/24".parse().unwrap(), "fd00:20::/64".parse().unwrap()].into(),
        routers: ["172.31.1.1".parse().unwrap(), "fd31::1".parse().unwrap()].into(),
        node: ["10.2.3.0/24".parse().unwrap()].into(),
        gateways: ["10.2.0.21".parse().unwrap(), "fd00:2::21".parse().unwrap()].into(),
        ports: [4490, 4500].into(),
        ..Guard::default()
    }
}

/// What `nft -j list table` would say of a table that holds exactly this guard.
fn listing(guard: &Guard) -> Value {
    let elements = elements(guard);
    let mut objects = rules::structure(guard);
    for object in &mut objects {
        let name = object["set"]["name"].as_str().map(str::to_owned);
        if let Some(all) = name.and_then(|name| elements.get(name.as_str())).filter(|all| !all.is_empty()) {
            object["set"]["elem"] = all.iter().map(Element::to_json).collect();
        }
    }
    objects.insert(0, json!({"metainfo": {"version": "1.0.6"}}));
    json!({"nftables": objects})
}
