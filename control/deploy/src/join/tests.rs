use super::*;
use trieste_control::live_networks::TrackedLists;

use crate::discover::{Observed, Plugin, Spiderpool, infer};

#[test]
fn plugin_spiderpool_is_told_and_its_workers_are_planned_where_it_was_found() {
    for (coordinators, line) in [
        (None, None),
        (
            Some(vec!["default".to_owned()]),
            Some("Spiderpool:  found (SpiderCoordinator default): its hijackCIDR lists are kept"),
        ),
    ] {
        let spiderpool = coordinators.map(|coordinators| Spiderpool { coordinators, pools: Vec::new() });
        let network = Network { spiderpool, ..Network::default() };
        let lines = describe(&network);
        let told = lines.iter().find(|line| line.starts_with("Spiderpool"));
        assert_eq!(told.map(String::as_str), line);
        // What an earlier join had found does not count.
        let before = MemberOptions { has_spiderpool: line.is_none(), ..objects::example() };
        assert_eq!(complete(&before, &network).has_spiderpool, line.is_some());
    }
}

#[test]
fn a_config_map_that_was_followed_is_followed_on_for_as_long_as_it_is_there_and_its_plugin() {
    let networks: Vec<IpNet> = vec!["10.1.0.0/16".parse().unwrap()];
    let followed = TrackedLists([(Source::FlannelMap, networks.iter().copied().collect())].into());
    let before = MemberOptions { followed: followed.clone(), ..objects::example() };
    for (text, plugin, is_followed) in [
        (Some(r#"{"Network": "10.1.0.0/16"}"#), "flannel", true),
        (Some(r#"{"Network": "10.5.0.0/166"}"#), "flannel", true),
        (Some(""), "flannel", true),
        (None, "flannel", false),
        (Some("{"), "calico", false),
    ] {
        let mut observed = Observed::default();
        let map = text.map(|text| json!({"data": {"net-conf.json": text}}));
        observed.config_maps.extend(map.map(|map| ("kube-flannel/kube-flannel-cfg".to_owned(), map)));
        let found = infer(&observed, &Given::default());
        let network = Network {
            plugin: Plugin { name: plugin.to_owned(), ..found.plugin },
            pods: Subnets { cidrs: networks.clone(), ..Subnets::default() },
            ..found
        };
        let wanted = if is_followed { followed.clone() } else { TrackedLists::default() };
        assert_eq!(complete(&before, &network).followed, wanted, "{text:?} {plugin}");
    }
}
