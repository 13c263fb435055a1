use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use trieste_control::api::{Kind, ObjectMeta};

use super::*;

const SERVICES: usize = 6;

/// Something that happens to a service.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Its import on the broker is exported since then and has the address with this number, or none.
    Put(usize, i64, Option<u8>),
    Remove(usize),
    Give(usize),
    Settle(usize),
    Unconfirmed(usize, bool),
    List,
}

fn event() -> impl Strategy<Value = Event> {
    let service = 0..SERVICES;
    prop_oneof![
        4 => (service.clone(), 0..3_i64, proptest::option::of(0..8_u8)).prop_map(|(name, since, ip)| Event::Put(name, since, ip)),
        1 => service.clone().prop_map(Event::Remove),
        4 => service.clone().prop_map(Event::Give),
        2 => service.clone().prop_map(Event::Settle),
        1 => (service, any::<bool>()).prop_map(|(name, is_unconfirmed)| Event::Unconfirmed(name, is_unconfirmed)),
        1 => Just(Event::List),
    ]
}

fn service(number: usize) -> ServiceName {
    ServiceName::new("shop", format!("s{number}"))
}

fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(243, 0, 0, number)
}

fn import(number: usize, since: i64, address: Option<u8>) -> Object {
    let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new("broker", service(number).aggregate()));
    import.metadata.annotations.insert(format!("{}east", annotation::TIMESTAMP_PREFIX), since.to_string());
    if let Some(number) = address {
        import.body.insert("spec".to_owned(), json!({"ips": [ip(number).to_string()]}));
    }
    import
}

/// Returns the imports with an address, the one first whose it is.
fn holders(imports: &BTreeMap<usize, (i64, u8)>, number: u8) -> Vec<usize> {
    let mut holders: Vec<(i64, String, usize)> = imports
        .iter()
        .filter(|(_, (_, ip))| *ip == number)
        .map(|(name, (since, _))| (*since, service(*name).aggregate(), *name))
        .collect();
    holders.sort();
    holders.into_iter().map(|(_, _, name)| name).collect()
}

fn check(known: &ClustersetIps, imports: &BTreeMap<usize, (i64, u8)>, networks: &Networks) {
    let promised: Vec<Ipv4Addr> = (0..SERVICES).filter_map(|name| known.promise(&service(name))).collect();
    let distinct: BTreeSet<Ipv4Addr> = promised.iter().copied().collect();
    assert_eq!(distinct.len(), promised.len(), "no two services are promised one address");
    let free: Vec<Ipv4Addr> = known.blocks.iter().flat_map(Pool::free).collect();
    let expected = (1..7).filter(|number| holders(imports, *number).is_empty()).map(ip);
    assert_eq!(free, expected.filter(|ip| !distinct.contains(ip)).collect::<Vec<_>>());
    for (name, (since, number)) in imports {
        let problem = known.problem(&import(*name, *since, Some(*number)), networks);
        assert_eq!(problem.is_none(), holders(imports, *number)[0] == *name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_free_is_what_no_import_has_and_nobody_is_promised(
        events in proptest::collection::vec(event(), 1..60)
    ) {
        let networks = Networks::new("east");
        let mut known = ClustersetIps::new(&["243.0.0.0/29".parse().unwrap()], &[]);
        let mut imports: BTreeMap<usize, (i64, u8)> = BTreeMap::new();
        for event in events {
            let before: Vec<Vec<usize>> = (0..8).map(|number| holders(&imports, number)).collect();
            let mut told = None;
            match event {
                Event::Put(name, since, address) => {
                    told = Some((name, known.put(&import(name, since, address))));
                    match address {
                        Some(number) => drop(imports.insert(name, (since, number))),
                        None => drop(imports.remove(&name)),
                    }
                }
                Event::Remove(name) => {
                    told = Some((name, known.remove(&service(name).aggregate())));
                    imports.remove(&name);
                }
                Event::Give(name) => {
                    let _ = known.give(&service(name), None, &networks);
                    let given = known.promise(&service(name));
                    let is_others = |number: &u8| holders(&imports, *number).iter().any(|other| *other != name);
                    assert!(given.is_none_or(|ip| !is_others(&ip.octets()[3])));
                    assert_eq!(given.is_none(), known.lacking(&service(name)).is_some());
                }
                Event::Settle(name) => drop(known.settle(&service(name))),
                Event::Unconfirmed(name, is_unconfirmed) => known.note_unconfirmed(&service(name), is_unconfirmed),
                Event::List => drop(known.list(|name| imports.keys().any(|other| service(*other).aggregate() == name))),
            }
            check(&known, &imports, &networks);
            if let Some((name, told)) = told {
                let mut expected = BTreeSet::new();
                for (number, before) in (0..8).zip(before) {
                    let after = holders(&imports, number);
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
    let mut known = ClustersetIps::new(&["243.0.0.0/29".parse().unwrap()], &[]);
    known.give(&service(0), None, &networks);
    known.note_unconfirmed(&service(0), true);
    known.settle(&service(0));
    known.give(&service(1), None, &networks);
    assert_eq!([0, 1].map(|name| known.promise(&service(name))), [Some(ip(1)), Some(ip(2))]);
    let (settled, _) = known.list(|_| true);
    assert_eq!(settled, BTreeSet::from([service(0)]));
    known.settle(&service(0));
    known.give(&service(2), None, &networks);
    assert_eq!([0, 2].map(|name| known.promise(&service(name))), [None, Some(ip(1))]);
    // What a service had it gets again, if nobody else has it.
    known.give(&service(3), Some(ip(5)), &networks);
    known.give(&service(4), Some(ip(5)), &networks);
    known.give(&service(5), Some(Ipv4Addr::new(10, 0, 0, 1)), &networks);
    assert_eq!([3, 4, 5].map(|name| known.promise(&service(name))), [Some(ip(5)), Some(ip(3)), Some(ip(4))]);
}
