use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use trieste_control::api::{Kind, ObjectMeta};

use super::*;

const SERVICES: usize = 6;

/// The addresses with these numbers, of each family.
type Numbers = [Option<u8>; 2];

/// Something that happens to a service.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Its import on the broker is exported since then and has the addresses with these numbers, or none.
    Put(usize, i64, Numbers),
    Remove(usize),
    Give(usize, Family),
    Settle(usize, Family),
    Unconfirmed(usize, bool),
    List,
}

fn event() -> impl Strategy<Value = Event> {
    let service = 0..SERVICES;
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let number = || proptest::option::of(0..8_u8);
    prop_oneof![
        4 => (service.clone(), 0..3_i64, [number(), number()]).prop_map(|(name, since, ips)| Event::Put(name, since, ips)),
        1 => service.clone().prop_map(Event::Remove),
        4 => (service.clone(), family.clone()).prop_map(|(name, family)| Event::Give(name, family)),
        2 => (service.clone(), family).prop_map(|(name, family)| Event::Settle(name, family)),
        1 => (service, any::<bool>()).prop_map(|(name, is_unconfirmed)| Event::Unconfirmed(name, is_unconfirmed)),
        1 => Just(Event::List),
    ]
}

fn service(number: usize) -> ServiceName {
    ServiceName::new("shop", format!("s{number}"))
}

fn ip(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => format!("243.0.0.{number}").parse().unwrap(),
        Family::V6 => format!("fd00:243::{number}").parse().unwrap(),
    }
}

fn known() -> ClustersetIps {
    ClustersetIps::new(&["243.0.0.0/29".parse().unwrap(), "fd00:243::/125".parse().unwrap()], &[])
}

/// Returns an import; of IPv6 in the specification if the number is odd, else in our annotation.
fn import(number: usize, since: i64, [four, six]: Numbers) -> Object {
    let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new("broker", service(number).aggregate()));
    let annotations = &mut import.metadata.annotations;
    annotations.insert(format!("{}east", annotation::TIMESTAMP_PREFIX), since.to_string());
    let (four, six) = (four.map(|four| ip(Family::V4, four)), six.map(|six| ip(Family::V6, six)));
    let is_annotated = number.is_multiple_of(2);
    if let Some(six) = six.filter(|_| is_annotated) {
        annotations.insert(annotation::CLUSTERSET_IPV6.to_owned(), six.to_string());
    }
    let ips = four.into_iter().chain(six.filter(|_| !is_annotated));
    import.body.insert("spec".to_owned(), json!({"ips": ips.collect::<Vec<_>>()}));
    import
}

type Imports = BTreeMap<usize, (i64, Numbers)>;

/// Returns the imports with an address, the one first whose it is.
fn holders(imports: &Imports, family: Family, number: u8) -> Vec<usize> {
    let mut holders: Vec<(i64, String, usize)> = imports
        .iter()
        .filter(|(_, (_, ips))| ips[family as usize] == Some(number))
        .map(|(name, (since, _))| (*since, service(*name).aggregate(), *name))
        .collect();
    holders.sort();
    holders.into_iter().map(|(_, _, name)| name).collect()
}

/// Returns who has which address of either family.
fn all_holders(imports: &Imports) -> Vec<Vec<usize>> {
    let of_family = |family| (0..8).map(move |number| holders(imports, family, number));
    Family::ALL.into_iter().flat_map(of_family).collect()
}

fn check(known: &ClustersetIps, imports: &Imports, networks: &Networks) {
    for family in Family::ALL {
        let promised: Vec<IpAddr> =
            (0..SERVICES).filter_map(|name| known.promise(&service(name), family)).collect();
        let distinct: BTreeSet<IpAddr> = promised.iter().copied().collect();
        assert_eq!(distinct.len(), promised.len(), "no two services are promised one address");
        let blocks = known.blocks.iter().filter(|block| block.family() == family);
        let free: Vec<IpAddr> = blocks.flat_map(Block::free).collect();
        let is_free = |number: &u8| holders(imports, family, *number).is_empty();
        let expected = (1..7).filter(is_free).map(|number| ip(family, number));
        assert_eq!(free, expected.filter(|ip| !distinct.contains(ip)).collect::<Vec<_>>());
        for (name, (since, numbers)) in imports {
            let Some(number) = numbers[family as usize] else { continue };
            let problem = known.problem_of(&import(*name, *since, *numbers), family, networks);
            assert_eq!(problem.is_none(), holders(imports, family, number)[0] == *name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_free_is_what_no_import_has_and_nobody_is_promised(
        events in proptest::collection::vec(event(), 1..60)
    ) {
        let networks = Networks::new("east");
        let mut known = known();
        let mut imports = Imports::new();
        for event in events {
            let before = all_holders(&imports);
            let mut told = None;
            match event {
                Event::Put(name, since, ips) => {
                    told = Some((name, known.put(&import(name, since, ips))));
                    match ips {
                        [None, None] => drop(imports.remove(&name)),
                        ips => drop(imports.insert(name, (since, ips))),
                    }
                }
                Event::Remove(name) => {
                    told = Some((name, known.remove(&service(name).aggregate())));
                    imports.remove(&name);
                }
                Event::Give(name, family) => {
                    let _ = known.give(&service(name), family, None, &networks);
                    let given = known.promise(&service(name), family);
                    let is_others = |number: u8| holders(&imports, family, number).iter().any(|other| *other != name);
                    let taken: Vec<IpAddr> = (0..8).filter(|number| is_others(*number)).map(|number| ip(family, number)).collect();
                    assert!(given.is_none_or(|ip| !taken.contains(&ip)));
                    assert_eq!(given.is_none(), known.lacking(&service(name), family).is_some());
                }
                Event::Settle(name, family) => drop(known.settle(&service(name), family)),
                Event::Unconfirmed(name, is_unconfirmed) => known.note_unconfirmed(&service(name), is_unconfirmed),
                Event::List => drop(known.list(|name| imports.keys().any(|other| service(*other).aggregate() == name))),
            }
            check(&known, &imports, &networks);
            if let Some((name, told)) = told {
                let mut expected = BTreeSet::new();
                for (before, after) in before.into_iter().zip(all_holders(&imports)) {
                    if before.first() != after.first() {
                        expected.extend(before.first().into_iter().chain(after.first()).copied());
                    }
                }
                expected.remove(&name);
                let expected: BTreeSet<String> = expected.into_iter().map(|name| service(name).aggregate()).collect();
                assert_eq!(told, expected);
            }
        }
    }
}

#[test]
fn an_unconfirmed_promise_is_kept_until_it_is_known_what_became_of_it() {
    let networks = Networks::new("east");
    for family in Family::ALL {
        let mut known = known();
        let promised = |known: &ClustersetIps, name| known.promise(&service(name), family);
        known.give(&service(0), family, None, &networks);
        known.note_unconfirmed(&service(0), true);
        known.settle(&service(0), family);
        known.give(&service(1), family, None, &networks);
        assert_eq!([0, 1].map(|name| promised(&known, name)), [1, 2].map(|number| Some(ip(family, number))));
        let (settled, _) = known.list(|_| true);
        assert_eq!(settled, BTreeSet::from([service(0)]));
        known.settle(&service(0), family);
        known.give(&service(2), family, None, &networks);
        assert_eq!([0, 2].map(|name| promised(&known, name)), [None, Some(ip(family, 1))]);
        // What a service had it gets again, if nobody else has it.
        known.give(&service(3), family, Some(ip(family, 5)), &networks);
        known.give(&service(4), family, Some(ip(family, 5)), &networks);
        known.give(&service(5), family, Some("10.0.0.1".parse().unwrap()), &networks);
        let expected = [5, 3, 4].map(|number| Some(ip(family, number)));
        assert_eq!([3, 4, 5].map(|name| promised(&known, name)), expected);
    }
}

#[test]
fn families_are_given_apart() {
    let networks = Networks::new("east");
    let ranges = ["243.0.0.0/8".parse().unwrap()];
    let mut known = ClustersetIps::new(&["243.0.0.0/30".parse().unwrap()], &ranges);
    known.give(&service(0), Family::V4, None, &networks);
    known.give(&service(0), Family::V6, None, &networks);
    assert_eq!(known.promise(&service(0), Family::V4), Some(ip(Family::V4, 1)));
    assert_eq!(known.lacking(&service(0), Family::V6), Some(&Lacking::Block(Family::V6)));
    assert!(known.settle(&service(0), Family::V6) && !known.settle(&service(0), Family::V6));
    assert_eq!(known.promise(&service(0), Family::V4), Some(ip(Family::V4, 1)), "the other one stays");
    // An address of a family that the set has no range of does not count.
    known.put(&import(1, 1, [Some(2), Some(1)]));
    let problem = |family| known.problem_of(&import(1, 1, [Some(2), Some(1)]), family, &networks);
    assert_eq!(problem(Family::V4), None);
    assert!(problem(Family::V6).is_some_and(|why| why.contains("is not in the set's range 243.0.0.0/8")));
}
