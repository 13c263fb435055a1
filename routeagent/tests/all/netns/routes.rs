//! Writes of many routes at once, by the port alone.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use trieste_routeagent::change::Change;
use trieste_routeagent::constants::TABLE_GATEWAY;
use trieste_routeagent::hostnet::{Hop, Route};
use trieste_routeagent::observed::ObservedRoute;
use trieste_routeagent::port::netlink::Kernel;
use trieste_routeagent::port::{Host as _, PortError, Query};

use super::lab::lab;

const MANY: u16 = 4_000;

#[test]
fn thousands_of_routes_are_written_together_in_their_order_and_each_has_its_own_result() {
    let lab = lab!();
    let network = |number: u16| -> IpNet {
        format!("10.{}.{}.0/24", 100 + number / 256, number % 256).parse().unwrap()
    };
    let device = |name: &str, number: u16| {
        let hop = Hop::Device { name: name.to_owned(), source: None };
        Route::leading(TABLE_GATEWAY, network(number), hop)
    };
    let add = |number: u16| Change::AddRoute(device("submariner", number));
    let remove = |number: u16| Change::RemoveRoute(ObservedRoute::from_route(&device("submariner", number)));
    let mut changes: Vec<Change> = (0..MANY).map(add).collect();
    // Each of these depends on the one before.
    changes.extend([remove(7), remove(7), add(7), add(7)]);
    let refused = [MANY + 1, MANY + 3].map(usize::from);
    changes.push(Change::AddRoute(device("nowhere", MANY)));

    let (together, one_by_one) = lab.inside("node", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let kernel = Kernel::open().unwrap();
            let started = Instant::now();
            let outcomes = kernel.apply_all(&changes.iter().collect::<Vec<_>>()).await;
            let together = started.elapsed();

            assert_eq!(outcomes.len(), changes.len());
            for (number, outcome) in outcomes.iter().enumerate() {
                match outcome {
                    Ok(()) => assert!(number < changes.len() - 1 && !refused.contains(&number), "{number}"),
                    Err(PortError::NoDevice(device)) => {
                        assert_eq!((number, &**device), (changes.len() - 1, "nowhere"))
                    }
                    Err(PortError::Refused { .. }) => {
                        assert!(refused.contains(&number), "{number}: {outcome:?}")
                    }
                    Err(other) => panic!("{number}: {other}"),
                }
            }
            let there = kernel.observe(&Query::default()).await.unwrap().routes;
            assert_eq!(
                there.iter().filter(|route| route.device.as_deref() == Some("submariner")).count(),
                usize::from(MANY)
            );

            let started = Instant::now();
            for number in 0..MANY {
                kernel.apply(&remove(number)).await.unwrap();
            }
            (together, started.elapsed())
        })
    });
    let each = |time: Duration| time / u32::from(MANY);
    println!("{MANY} routes: {:.1?} each together, {:.1?} one by one", each(together), each(one_by_one));
}
