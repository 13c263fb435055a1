//! The controller against a model of Calico's API.

mod default_pool;
mod laws;

use ipnet::IpNet;
use proptest::prelude::*;
use serde_json::{Value, json};
use trieste_control::api::{
    GatewayRoute, Object, ObjectMeta, Resource as _, RouteSpec, closed_routes_name, label,
};

use super::*;

const NAMESPACE: &str = "submariner-operator";

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn route(cluster: &str, networks: &[&str]) -> Object {
    let hop = "172.31.1.11".parse().unwrap();
    GatewayRoute::new(NAMESPACE, cluster, RouteSpec::new(&[hop], &nets(networks))).unwrap().to_object()
}

/// A pool that somebody else has made.
fn foreign(name: &str, cidr: &str, is_masquerading: bool) -> Object {
    let mut pool = Object::new(Kind::IpPool, ObjectMeta::new("", name));
    pool.body.insert(
        "spec".to_owned(),
        json!({"cidr": cidr, "natOutgoing": is_masquerading, "vxlanMode": "Always"}),
    );
    pool
}

struct Model {
    controller: PoolsController,
    pools: BTreeMap<String, Object>,
    writes: usize,
}

impl Model {
    fn new(wish: Wish, pools: &[Object]) -> Self {
        let pools = pools.iter().map(|pool| (pool.metadata.name.clone(), pool.clone())).collect();
        Self { controller: PoolsController::new(NAMESPACE, wish), pools, writes: 0 }
    }

    fn see(&mut self, kind: Kind, event: StoreEvent) -> usize {
        let namespace = if kind == Kind::IpPool { "" } else { NAMESPACE };
        let keys = self.controller.observe(&Watch::new(0, kind, namespace), event, Instant::now());
        self.settle(&keys)
    }

    fn list(&mut self, routes: Vec<Object>) -> usize {
        let pools = self.pools.values().cloned().collect();
        self.see(Kind::IpPool, StoreEvent::Listed(pools))
            + self.see(Kind::GatewayRoute, StoreEvent::Listed(routes))
    }

    fn settle(&mut self, keys: &[String]) -> usize {
        let before = self.writes;
        let context = Context { now: Instant::now(), wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
        // As the runner does with those that are to be looked at again.
        for key in keys.iter().chain(keys) {
            for write in self.controller.reconcile(key, &context).writes {
                self.writes += 1;
                self.write(write);
                let again = self.controller.reconcile(key, &context).writes;
                assert!(again.is_empty(), "{again:?}");
            }
        }
        self.writes - before
    }

    fn write(&mut self, write: Write) {
        let watch = Watch::new(0, Kind::IpPool, "");
        let event = match write {
            Write::Create(pool) | Write::Update(pool) => {
                self.pools.insert(pool.metadata.name.clone(), pool.clone());
                StoreEvent::Applied(pool)
            }
            Write::Delete(pool) => {
                assert!(is_ours(&pool), "{pool:?}");
                self.pools.remove(&pool.metadata.name);
                StoreEvent::Deleted(pool)
            }
            Write::UpdateStatus(_) | Write::Annotate { .. } => panic!("neither is planned"),
        };
        self.controller.observe(&watch, event, Instant::now());
        let ours: Vec<IpNet> = self.pools.values().filter(|pool| is_ours(pool)).filter_map(network).collect();
        for (at, one) in ours.iter().enumerate() {
            let others = ours.iter().skip(at + 1);
            assert!(others.clone().all(|other| !one.contains(other) && !other.contains(one)), "{ours:?}");
        }
    }

    fn names(&self) -> Vec<&str> {
        self.pools.keys().map(String::as_str).collect()
    }
}

#[test]
fn plugin_calico_each_network_has_upstreams_pool_in_both_families() {
    let mut model = Model::new(Wish::Everything, &[foreign("default-ipv4-ippool", "10.1.0.0/16", true)]);
    let closed = route(&closed_routes_name(0), &["10.9.0.0/16"]);
    let b = route("b", &["10.2.0.0/16", "100.66.0.0/16", "fd00:2::/48", "10.2.3.0/24"]);
    assert_eq!(model.list(vec![b.clone(), closed]), 3, "a network inside of another one needs none");
    let names = [
        "default-ipv4-ippool",
        "submariner-b-10.2.0.0-16",
        "submariner-b-100.66.0.0-16",
        "submariner-b-fd00-2---48",
    ];
    assert_eq!(model.names(), names);
    let pool = &model.pools["submariner-b-10.2.0.0-16"];
    let spec =
        json!({"cidr": "10.2.0.0/16", "natOutgoing": false, "disabled": true, "disableBGPExport": true});
    assert_eq!((&pool.body["spec"], pool.metadata.labels["submariner.io/ippool"].as_str()), (&spec, "true"));
    // The same again, one less, none.
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Applied(b)), 0);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Applied(route("b", &["10.2.0.0/16"]))), 2);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Deleted(route("b", &[]))), 1);
    assert_eq!(model.names(), ["default-ipv4-ippool"]);
}

#[test]
fn plugin_calico_upstreams_pools_are_taken_over_and_what_is_wrong_with_one_is_corrected() {
    let mut taken = foreign("submariner-b-10.2.0.0-16", "10.2.0.0/16", true);
    taken.metadata.labels.insert("submariner.io/ippool".to_owned(), "true".to_owned());
    let mut left = taken.clone();
    left.metadata.name = "submariner-gone-10.7.0.0-16".to_owned();
    let mut model = Model::new(Wish::Everything, &[taken, left]);
    assert_eq!(model.list(vec![route("b", &["10.2.0.0/16"])]), 2);
    assert_eq!(model.names(), ["submariner-b-10.2.0.0-16"]);
    let spec = &model.pools["submariner-b-10.2.0.0-16"].body["spec"];
    assert_eq!(
        (&spec["natOutgoing"], &spec["vxlanMode"]),
        (&Value::Bool(false), &json!("Always")),
        "others' fields stay"
    );
    // Somebody changes it, or takes it away.
    let mut changed = model.pools["submariner-b-10.2.0.0-16"].clone();
    changed.body["spec"]["natOutgoing"] = json!(true);
    assert_eq!(model.see(Kind::IpPool, StoreEvent::Applied(changed.clone())), 1);
    model.pools.clear();
    assert_eq!(model.see(Kind::IpPool, StoreEvent::Deleted(changed)), 1);
    assert_eq!(model.names(), ["submariner-b-10.2.0.0-16"]);
}

#[test]
fn plugin_calico_a_network_that_moves_to_another_cluster_has_one_pool_at_a_time() {
    let mut model = Model::new(Wish::Everything, &[]);
    model.list(vec![route("c", &["10.2.0.0/16"])]);
    // The new owner's first: its pool waits for the other one to go.
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Applied(route("b", &["10.2.0.0/15"]))), 0);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Deleted(route("c", &[]))), 1);
    assert_eq!(model.settle(&["submariner-b-10.2.0.0-15".to_owned()]), 1);
    assert_eq!(model.names(), ["submariner-b-10.2.0.0-15"]);
}

#[test]
fn plugin_calico_a_pool_made_by_hand_serves_and_one_in_the_way_is_named() {
    let problem = |model: &Model| model.controller.problems.values().next().cloned();
    for (cidr, is_masquerading, is_served) in [
        ("10.2.0.0/16", false, true),
        ("10.0.0.0/8", false, true),
        ("10.2.0.0/16", true, false),
        ("10.2.3.0/24", false, false),
    ] {
        let about = format!("{cidr} {is_masquerading}");
        let by_hand = foreign("by-hand", cidr, is_masquerading);
        let mut model = Model::new(Wish::Everything, std::slice::from_ref(&by_hand));
        assert_eq!(model.list(vec![route("b", &["10.2.0.0/16"])]), 0, "{about}");
        assert_eq!(problem(&model).is_none(), is_served, "{about}");
        if let Some(problem) = problem(&model) {
            assert!(problem.contains("IPPool by-hand") && problem.contains("10.2.0.0/16"), "{problem}");
        }
        // It goes, and comes back.
        model.pools.clear();
        assert_eq!(model.see(Kind::IpPool, StoreEvent::Deleted(by_hand.clone())), 1, "{about}");
        assert_eq!(problem(&model), None, "{about}");
        let writes = model.see(Kind::IpPool, StoreEvent::Applied(by_hand));
        assert_eq!(writes, usize::from(is_served), "{about}: ours would overlap");
    }
}

#[test]
fn plugin_calico_an_uninstall_removes_pools_with_the_label_alone() {
    let mut pools =
        vec![foreign("default-ipv4-ippool", "10.1.0.0/16", true), foreign("by-hand", "10.8.0.0/16", false)];
    for number in 2..5 {
        let mut pool =
            foreign(&format!("submariner-b-10.{number}.0.0-16"), &format!("10.{number}.0.0/16"), false);
        pool.metadata.labels.insert("submariner.io/ippool".to_owned(), "true".to_owned());
        pools.push(pool);
    }
    let mut model = Model::new(Wish::Nothing, &pools);
    assert_eq!(model.list(vec![route("b", &["10.2.0.0/16"])]), 3);
    assert_eq!(model.names(), ["by-hand", "default-ipv4-ippool"]);
}

#[test]
fn plugin_calico_objects_that_cannot_be_read_are_named_and_change_nothing() {
    let mut model = Model::new(Wish::Everything, &[]);
    model.list(vec![route("b", &["10.2.0.0/16"])]);
    for (field, value) in
        [("remoteCIDRs", json!(["10.2.0.0/99"])), ("remoteCIDRs", json!(7)), ("nextHops", json!(["x"]))]
    {
        let mut bad = route("c", &["10.3.0.0/16"]);
        bad.body["spec"][field] = value;
        assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Applied(bad)), 0);
        assert!(model.controller.remote.problems().any(|(name, _)| name == "GatewayRoute c"));
    }
    // One that could be read before keeps its pools, until it is gone.
    let mut bad = route("b", &["10.2.0.0/16"]);
    bad.body.remove("spec");
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Applied(bad)), 0);
    assert_eq!(model.names(), ["submariner-b-10.2.0.0-16"]);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Listed(Vec::new())), 1);
    assert!(model.names().is_empty() && model.controller.remote.problems().count() == 0);
}

#[test]
fn plugin_calico_nothing_is_written_before_both_kinds_are_listed() {
    let mut model = Model::new(Wish::Everything, &[]);
    assert_eq!(model.see(Kind::GatewayRoute, StoreEvent::Listed(vec![route("b", &["10.2.0.0/16"])])), 0);
    assert_eq!(model.see(Kind::IpPool, StoreEvent::Listed(Vec::new())), 1);
}

/// One change costs the same, however many clusters there are: `--nocapture` shows the times.
#[test]
fn plugin_calico_a_change_concerns_its_own_pools() {
    for count in [10_u16, 100, 1_000, 10_000] {
        let mut model = Model::new(Wish::Everything, &[]);
        let one = |number: u16| {
            route(&format!("c{number}"), &[&format!("10.{}.{}.0/24", number >> 8, number & 255)])
        };
        let watch = Watch::new(0, Kind::GatewayRoute, NAMESPACE);
        model.see(Kind::IpPool, StoreEvent::Listed(Vec::new()));
        model.controller.observe(&watch, StoreEvent::Listed((0..count).map(one).collect()), Instant::now());
        let began = Instant::now();
        let more = route("more", &["192.168.0.0/24"]);
        let keys = model.controller.observe(&watch, StoreEvent::Applied(more), Instant::now());
        let context = Context { now: Instant::now(), wall: jiff::Timestamp::UNIX_EPOCH, leadership: None };
        let writes: usize =
            keys.iter().map(|key| model.controller.reconcile(key, &context).writes.len()).sum();
        println!("{count} clusters: one more is planned after {:?}", began.elapsed());
        assert_eq!((keys.len(), writes), (1, 1));
    }
}

fn any_networks() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(
        vec!["10.2.0.0/16", "10.2.4.0/24", "10.3.0.0/16", "fd00:2::/48", "fd00:2:0:1::/64"],
        0..4,
    )
}

proptest! {
    #[test]
    fn plugin_calico_after_any_changes_the_pools_are_those_of_the_last_state(
        steps in proptest::collection::vec(("[bc]", any_networks(), any::<bool>()), 1..16),
    ) {
        let mut model = Model::new(Wish::Everything, &[]);
        model.list(Vec::new());
        let mut last = BTreeMap::new();
        for (cluster, networks, is_gone) in steps {
            // Clusters do not overlap: the route agent sees to that.
            let networks: Vec<&str> = networks.into_iter().filter(|net| net.contains(":") == (cluster == "c")).collect();
            let object = route(&cluster, &networks);
            if is_gone {
                last.remove(&cluster);
                model.see(Kind::GatewayRoute, StoreEvent::Deleted(object));
            } else {
                last.insert(cluster, object.clone());
                model.see(Kind::GatewayRoute, StoreEvent::Applied(object));
            }
        }
        let mut anew = Model::new(Wish::Everything, &[]);
        anew.list(last.into_values().collect());
        prop_assert_eq!(model.names(), anew.names());
    }
}
