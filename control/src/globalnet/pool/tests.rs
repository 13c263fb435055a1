use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn pool(cidr: &str) -> Pool {
    Pool::new(cidr).unwrap()
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn single_addresses_come_from_the_top_and_blocks_from_the_bottom() {
    let mut pool = pool("242.1.0.0/16");
    assert_eq!((pool.size(), pool.available()), (65_534, 65_534));
    let cluster = pool.allocate(8).unwrap();
    assert_eq!((cluster[0], cluster[7]), (ip("242.1.0.1"), ip("242.1.0.8")));
    assert_eq!(pool.allocate(1).unwrap(), [ip("242.1.255.254")]);
    assert_eq!(pool.allocate(2).unwrap(), [ip("242.1.0.9"), ip("242.1.0.10")]);
    assert_eq!(pool.allocate(1).unwrap(), [ip("242.1.255.253")]);
    assert_eq!(pool.available(), 65_534 - 12);
}

#[test]
fn a_released_address_is_given_again_and_a_gap_is_filled_from_the_bottom() {
    let mut pool = pool("10.0.0.0/28");
    let first = pool.allocate(4).unwrap();
    let second = pool.allocate(4).unwrap();
    pool.release(&first);
    assert_eq!(pool.allocate(3).unwrap(), first[..3]);
    assert_eq!(pool.allocate(2).unwrap(), [ip("10.0.0.9"), ip("10.0.0.10")]);
    pool.release(&second);
    pool.release(&second);
    assert_eq!(pool.available(), 9);
    let free = [4, 5, 6, 7, 8, 11, 12, 13, 14].map(|last| Ipv4Addr::new(10, 0, 0, last));
    assert_eq!(pool.free().collect::<Vec<_>>(), free);
}

#[test]
fn exhaustion_and_fragmentation_are_told_apart_in_upstreams_words() {
    let mut pool = pool("10.0.0.0/29");
    pool.reserve(&[ip("10.0.0.2"), ip("10.0.0.4")]).unwrap();
    let words = |error: PoolError| error.to_string();
    assert_eq!(
        words(pool.allocate(3).unwrap_err()),
        "unable to find contiguous block of 3 IPs for allocation"
    );
    assert_eq!(words(pool.allocate(5).unwrap_err()), "insufficient IPs available for allocation");
    // A block that ends at the last address is a block.
    assert_eq!(pool.allocate(2).unwrap(), [ip("10.0.0.5"), ip("10.0.0.6")]);
    assert_eq!(pool.allocate(0).unwrap(), Vec::<Ipv4Addr>::new());
}

#[test]
fn reservations_are_all_or_nothing_and_say_what_is_in_the_way() {
    let mut pool = pool("10.0.0.0/29");
    pool.reserve(&[ip("10.0.0.3")]).unwrap();
    let taken = pool.reserve(&[ip("10.0.0.1"), ip("10.0.0.3")]).unwrap_err();
    assert_eq!(taken.to_string(), "requested IP 10.0.0.3 already allocated");
    assert!(pool.is_free(ip("10.0.0.1")), "nothing was taken");
    let twice = pool.reserve(&[ip("10.0.0.1"), ip("10.0.0.1")]).unwrap_err();
    assert!(matches!(twice, PoolError::Taken(_)), "{twice}");
    for foreign in ["10.0.0.0", "10.0.0.7", "10.0.1.1"] {
        let error = pool.reserve(&[ip(foreign)]).unwrap_err();
        assert!(error.to_string().contains("not an address of 10.0.0.0/29"), "{error}");
    }
    assert_eq!(pool.available(), 5);
}

#[test]
fn only_ipv4_cidrs_with_room_are_pools() {
    assert!(matches!(Pool::new("fd00::/112"), Err(PoolError::Ipv6(_))));
    assert!(matches!(Pool::new("10.0.0.0/31"), Err(PoolError::TooSmall(_))));
    assert!(matches!(Pool::new("10.0.0.0"), Err(PoolError::NotACidr(_))));
    assert_eq!(pool("10.0.0.9/30").cidr(), "10.0.0.8/30".parse().unwrap());
    assert_eq!(pool("0.0.0.0/0").size(), u32::MAX - 1);
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u32),
    Reserve(Vec<u8>),
    Release(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = || prop::collection::vec(any::<u8>(), 0..5);
    let step = prop_oneof![
        (0u32..9).prop_map(Step::Allocate),
        some().prop_map(Step::Reserve),
        some().prop_map(Step::Release),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// The pool against the set of free addresses that it stands for.
    #[test]
    fn the_pool_is_the_set_of_its_free_addresses(steps in steps()) {
        let mut pool = pool("10.0.0.0/26");
        let all: BTreeSet<u8> = (1..63).collect();
        let mut free = all.clone();
        let address = |last: u8| Ipv4Addr::new(10, 0, 0, last);
        for step in steps {
            match step {
                Step::Allocate(number) => {
                    let wanted = match number {
                        0 => Some(Vec::new()),
                        1 => free.last().map(|last| vec![*last]),
                        _ => free.iter().find_map(|first| {
                            let block: Vec<u8> = (*first..).take(number as usize).collect();
                            block.iter().all(|one| free.contains(one)).then_some(block)
                        }),
                    };
                    let given = pool.allocate(number);
                    prop_assert_eq!(given.is_ok(), wanted.is_some());
                    if let (Ok(given), Some(wanted)) = (given, wanted) {
                        prop_assert_eq!(given, wanted.iter().copied().map(address).collect::<Vec<_>>());
                        free.retain(|one| !wanted.contains(one));
                    }
                }
                Step::Reserve(some) => {
                    let distinct: BTreeSet<u8> = some.iter().copied().collect();
                    let is_possible = distinct.len() == some.len() && distinct.is_subset(&free);
                    let addresses: Vec<_> = some.iter().copied().map(address).collect();
                    prop_assert_eq!(pool.reserve(&addresses).is_ok(), is_possible);
                    if is_possible {
                        free.retain(|one| !distinct.contains(one));
                    }
                }
                Step::Release(some) => {
                    pool.release(&some.iter().copied().map(address).collect::<Vec<_>>());
                    free.extend(some.into_iter().filter(|one| all.contains(one)));
                }
            }
            prop_assert_eq!(pool.available() as usize, free.len());
            prop_assert!((0..=255).all(|last| pool.is_free(address(last)) == free.contains(&last)));
        }
    }
}
