//! What one change costs where there are many clusters, and that what follows from changes is what follows from all.

use super::*;

/// A cluster of one gateway and four networks.
fn made_up(index: usize) -> Endpoint {
    let (high, low) = (index / 256, index % 256);
    let spec = EndpointSpec {
        cluster_id: format!("cluster-{index}"),
        cable_name: format!("submariner-cable-cluster-{index}-100-64-{high}-{low}"),
        hostname: format!("gateway-{index}"),
        subnets: (index * 4..index * 4 + 4).map(network).collect(),
        private_ip: format!("100.64.{high}.{low}"),
        backend: "wireguard".to_owned(),
        backend_config: [("publicKey".to_owned(), keys::emit(&key(index)))].into(),
        ..EndpointSpec::default()
    };
    let mut endpoint = Endpoint::new("ns", spec).unwrap();
    endpoint.metadata.creation_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
    endpoint
}

fn network(number: usize) -> String {
    format!("10.{}.{}.0/24", 16 + number / 256, number % 256)
}

fn key(index: usize) -> [u8; 32] {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&u64::try_from(index + 1).unwrap().to_be_bytes());
    key
}

/// The shortest time of several rounds.
fn shortest(rounds: usize, mut round: impl FnMut()) -> Duration {
    let timed = |_| {
        let start = Instant::now();
        round();
        start.elapsed()
    };
    (0..rounds).map(timed).min().unwrap()
}

/// Returns what one changed Endpoint costs until tables are published, once, and what the status costs, among `count`
/// clusters.
async fn costs(count: usize) -> (Duration, Duration) {
    let mut rig = Rig::new(1);
    let mut endpoints: Vec<Arc<Endpoint>> = (0..count).map(made_up).map(Arc::new).collect();
    let all: Vec<Endpoint> = endpoints.iter().map(|endpoint| Endpoint::clone(endpoint)).collect();
    let choices = chosen(&all);
    rig.reconcile(&all, &choices).await;
    for _ in 0..50 {
        rig.turn();
    }
    assert_eq!(rig.lanes().len(), count);
    let mut change = Duration::MAX;
    for round in 0..12 {
        // Another network each time: tables change.
        let changed = Arc::make_mut(&mut endpoints[round % count]);
        changed.spec.subnets[0] = format!("10.8.{round}.0/24");
        let epoch = rig.epoch();
        let start = Instant::now();
        let targets = targets("a", &endpoints, &Members::default());
        let gateways = Gateways { targets: &targets, ..Gateways::default() };
        rig.engine.reconcile(&gateways, &choices, rig.now).await;
        change = change.min(start.elapsed());
        assert_eq!(rig.epoch(), epoch + 1);
    }
    let refresh = shortest(12, || {
        rig.engine.observe(rig.now, 1_000);
        std::hint::black_box(rig.engine.connections(rig.now, 0));
    });
    (change, refresh)
}

#[tokio::test(start_paused = true)]
async fn one_change_among_many_is_one_publication() {
    // Times are for people: a machine that is busy with other tests has no say.
    for count in [10, 100, 1_000, 3_000] {
        let (change, refresh) = costs(count).await;
        println!("{count} clusters: one changed {change:?}, status {refresh:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn which_cables_the_status_is_about_is_found_out_once_for_all_looks() {
    let mut rig = Rig::new(1);
    let all: Vec<Endpoint> = (0..20).map(made_up).collect();
    let choices = chosen(&all);
    let look = |rig: &mut Rig| {
        rig.turn();
        let states = rig.engine.cable_states(rig.now, 0).connections().len();
        let standing = rig.engine.standing.get().unwrap();
        assert_eq!(states, standing.connections.len());
        (standing.connections.as_ptr(), states)
    };
    rig.reconcile(&all, &choices).await;
    let first = look(&mut rig);
    assert_eq!(first.1, 20);
    (0..5).for_each(|_| assert_eq!(look(&mut rig), first));
    rig.reconcile(&all[1..], &choices).await;
    assert_eq!(look(&mut rig).1, 19);
    rig.reconcile(&[], &choices).await;
    assert_eq!((look(&mut rig).1, rig.engine.cables.len()), (0, 0));
}

/// All that follows from the gateways, without the numbers of lanes.
#[derive(Debug, PartialEq)]
struct Outcome {
    peers: Vec<Peer>,
    siblings: Vec<Peer>,
    refused: Vec<(String, Option<String>, String)>,
    connected: Vec<String>,
    superseded: Vec<String>,
    pending: Vec<String>,
    /// By destination, the cable that packets for it take.
    taken: Vec<Option<String>>,
}

fn outcome(rig: &Rig) -> Outcome {
    let owned = |peers: &[Arc<Peer>]| peers.iter().map(|peer| Peer::clone(peer)).collect();
    let refused = rig.engine.refused().iter();
    let mut refused: Vec<_> =
        refused.map(|entry| (entry.cluster.clone(), entry.endpoint.clone(), entry.reason.clone())).collect();
    refused.sort();
    let cable = |net: u8| {
        let lane = rig.lane_to(&format!("10.{net}.0.9"))?;
        rig.engine.cables.with_lane(lane).map(|cable| cable.peer.facts.cable_name.clone())
    };
    Outcome {
        peers: owned(rig.engine.peers()),
        siblings: owned(rig.engine.siblings()),
        refused,
        connected: rig.connected(),
        superseded: names(&rig.engine.superseded(rig.now, 0)),
        pending: names(&rig.engine.pending(rig.now)),
        taken: (0..12).map(cable).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn changes_in_any_order_come_to_the_same_as_all_at_once() {
    let mut rig = Rig::new(1);
    let mut endpoints: BTreeMap<u32, Endpoint> = BTreeMap::new();
    let mut choices = Choices::new();
    let mut random = 3_u32;
    let mut draw = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    for step in 0..250 {
        let which = draw(14);
        match draw(4) {
            0 => drop(endpoints.remove(&which)),
            1 => {
                for (name, choice) in chosen(&endpoints.values().cloned().collect::<Vec<_>>()) {
                    choices.insert(name, Choice { use_nat: draw(2) == 0, ..choice });
                }
            }
            _ => {
                let cluster = ["b", "c", "d", "e", "f"][usize::try_from(draw(5)).unwrap()];
                let (net, host) = (u8::try_from(draw(12)).unwrap(), u8::try_from(which + 1).unwrap());
                let mut made = endpoint(cluster, net, host, u8::try_from(draw(9) + 1).unwrap());
                made.spec.set_supports_paths(draw(2) == 0);
                made.metadata.resource_version = Some(step.to_string());
                endpoints.insert(which, made);
            }
        }
        let all: Vec<Endpoint> = endpoints.values().cloned().collect();
        let members = Members { is_multi: draw(2) == 0, ..Members::default() };
        rig.reconcile_with(&all, &members, &choices).await;
        let mut fresh = Rig::new(1);
        fresh.reconcile_with(&all, &members, &choices).await;
        assert_eq!(outcome(&rig), outcome(&fresh), "step {step}");
    }
}

/// 200 clusters of one Endpoint and two subnets each.
fn many() -> Vec<Endpoint> {
    let endpoint = |index: u8| {
        let mut endpoint = endpoint(&format!("c{index}"), 2, index, 1);
        endpoint.spec.subnets = vec![format!("10.16.{index}.0/24"), format!("10.17.{index}.0/24")];
        let mut key = [7; 32];
        key[0] = index;
        endpoint.spec.backend_config.insert("publicKey".to_owned(), keys::emit(&key));
        endpoint.metadata.uid = Some(format!("uid-{index}"));
        endpoint.metadata.resource_version = Some("1".to_owned());
        endpoint
    };
    (0..200).map(endpoint).collect()
}

#[tokio::test(start_paused = true)]
async fn one_changed_endpoint_among_two_hundred_is_one_that_is_read() {
    let mut rig = Rig::new(2);
    let mut endpoints = many();
    let choices = chosen(&endpoints);
    rig.reconcile(&endpoints, &choices).await;
    for _ in 0..10 {
        rig.turn();
    }
    assert_eq!(rig.lanes().len(), 200);
    assert_eq!(rig.engine.cable_names().len(), 200);
    let drops: Vec<_> =
        rig.engine.workers().iter().flat_map(|worker| worker.published().drops.clone()).collect();
    assert_eq!(drops, [], "all greetings went out");
    let epoch = rig.epoch();

    // 5,000 updates, in bursts as a watch brings them: every second burst means nothing to cables.
    let mut version = 1;
    for burst in 0..100usize {
        for update in 0..50 {
            version += 1;
            let endpoint = &mut endpoints[(burst * 50 + update) % 200];
            endpoint.metadata.resource_version = Some(version.to_string());
            if burst % 2 == 0 {
                endpoint.metadata.annotations.insert("seen".to_owned(), version.to_string());
            } else {
                endpoint.spec.health_check_ip = format!("10.16.0.{}", burst % 250 + 1);
            }
        }
        let targets = targets("a", &shared(&endpoints), &Members::default());
        let gateways = Gateways { targets: &targets, ..Gateways::default() };
        rig.engine.reconcile(&gateways, &choices, rig.now).await;
    }
    rig.turn();
    assert_eq!(rig.engine.endpoint_reads(), 200 + 5000);
    assert_eq!(rig.kind.identities.load(Ordering::Relaxed), 200 + 5000);
    assert_eq!(rig.kind.connects.load(Ordering::Relaxed), 200, "no cable was made anew");
    assert_eq!(
        rig.epoch() - epoch,
        50,
        "tables are published once per burst, and only for those that matter"
    );
    assert_eq!(rig.lanes().len(), 200);
}
