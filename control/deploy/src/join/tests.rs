use super::*;
use crate::discover::Spiderpool;

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
