//! Passes that follow changes, compared with passes that compute everything anew.

use std::sync::Arc;

use ipnet::Ipv4Net;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::driver::registry::serving;
use crate::nexthops::NexthopChange;
use crate::plan::tests::model;
use crate::state::{Cluster, Services};

/// One change of the set, of the node or of its network.
#[derive(Debug, Clone)]
enum Step {
    /// An Endpoint comes or changes.
    Put { cluster: u8, gateway: u8, networks: Vec<(u8, u8)>, created: u8, is_multipath: bool, address: u8 },
    /// An Endpoint goes.
    Take { cluster: u8, gateway: u8 },
    /// A Cluster object comes, changes or goes.
    Claim { cluster: u8, networks: Vec<(u8, u8)>, created: u8 },
    /// All of a cluster goes.
    Leave(u8),
    /// The own cluster's second gateway comes or goes.
    Member,
    /// The node gets another address, or loses it.
    Address,
    /// Somebody removes or adds a route.
    Meddle(u8),
    /// The gateway's device goes or comes back.
    Device,
    /// The host refuses something, or no more.
    Refuse(u8),
}

fn networks() -> impl Strategy<Value = Vec<(u8, u8)>> {
    vec((0..24_u8, 0..4_u8), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..6_u8, 0..2_u8, networks(), 0..4_u8, any::<bool>(), 0..32_u8);
    let put = put.prop_map(|(cluster, gateway, networks, created, is_multipath, address)| Step::Put {
        cluster,
        gateway,
        networks,
        created,
        is_multipath,
        address,
    });
    prop_oneof![
        12 => put,
        4 => (0..6_u8, 0..2_u8).prop_map(|(cluster, gateway)| Step::Take { cluster, gateway }),
        4 => (0..6_u8, networks(), 0..4_u8)
            .prop_map(|(cluster, networks, created)| Step::Claim { cluster, networks, created }),
        3 => (0..6_u8).prop_map(Step::Leave),
        1 => Just(Step::Member),
        1 => Just(Step::Address),
        2 => any::<u8>().prop_map(Step::Meddle),
        1 => Just(Step::Device),
        1 => (0..4_u8).prop_map(Step::Refuse),
    ]
}

/// Returns a network that overlaps others of these now and then, in either family; some are not to be claimed.
fn network((place, width): (u8, u8)) -> IpNet {
    if place >= 20 {
        return format!("fd00:{place:x}::/{}", 48 + u32::from(width) * 4).parse::<IpNet>().unwrap().trunc();
    }
    let first = if place == 19 { 169 } else { 10 };
    let address = std::net::Ipv4Addr::new(first, 16 + place / 4, (place % 4) * 64 + width, 0);
    IpNet::V4(Ipv4Net::new(address, 16 + width * 4).unwrap().trunc())
}

impl Step {
    fn change(&self, view: &mut ClusterView) {
        match self {
            Self::Put { cluster, gateway, networks, created, is_multipath, address } => {
                let (id, name) = (format!("c{cluster}"), format!("c{cluster}-{gateway}"));
                view.endpoints.retain(|endpoint| endpoint.name != name);
                let mut endpoint = Endpoint::new(&name, &id, &name);
                endpoint.subnets = networks.iter().copied().map(network).collect();
                endpoint.created = i128::from(*created);
                endpoint.has_multipath = *is_multipath;
                endpoint.addresses = vec![std::net::Ipv4Addr::new(10, 16 + address / 4, *address, 1).into()];
                view.endpoints.push(endpoint);
                view.endpoints.sort_by(|one, other| one.name.cmp(&other.name));
            }
            Self::Take { cluster, gateway } => {
                view.endpoints.retain(|endpoint| endpoint.name != format!("c{cluster}-{gateway}"));
            }
            Self::Claim { cluster, networks, created } => {
                let id = format!("c{cluster}");
                view.clusters.retain(|cluster| cluster.id != id);
                let networks: Vec<IpNet> = networks.iter().copied().map(network).collect();
                if !networks.is_empty() {
                    view.clusters.push(Cluster { id, created: i128::from(*created), networks });
                }
            }
            Self::Leave(cluster) => {
                let id = format!("c{cluster}");
                view.endpoints.retain(|endpoint| endpoint.cluster != id);
                view.clusters.retain(|cluster| cluster.id != id);
            }
            Self::Member if view.members.is_empty() => {
                let member = |name: &str, address: &str| {
                    let mut member = Endpoint::new(name, "a", name);
                    member.addresses = vec![address.parse().unwrap()];
                    member
                };
                view.members = vec![member("a-gw1", "172.31.1.11"), member("a-gw2", "172.31.1.12")];
            }
            Self::Member => view.members.clear(),
            Self::Address | Self::Meddle(_) | Self::Device | Self::Refuse(_) => {}
        }
    }

    fn meddle(&self, host: &mut Model) {
        let observed = host.observed.get_mut();
        match self {
            Self::Address => {
                let own = DeviceAddress { device: "eth1".into(), network: "10.17.64.9/24".parse().unwrap() };
                if !observed.addresses.remove(&own) {
                    observed.addresses.insert(own);
                }
            }
            Self::Meddle(at) if *at < 128 && !observed.routes.is_empty() => {
                let at = usize::from(*at) % observed.routes.len();
                observed.routes.remove(at);
            }
            Self::Meddle(at) => {
                let route = crate::hostnet::Route::unreachable(254, network((*at % 24, *at % 4)));
                let there = ObservedRoute { protocol: 4 - *at % 2, ..ObservedRoute::from_route(&route) };
                if !observed.routes.iter().any(|one| one.is_in_the_place_of(&route)) {
                    observed.routes.push(there);
                }
            }
            Self::Device => {
                let link = observed.links.get_mut("submariner").unwrap();
                link.is_up = !link.is_up;
            }
            Self::Refuse(what) => {
                let refusals =
                    [None, Some("add unreachable 10.17"), Some("update nft"), Some("remove 10.16")];
                host.refuses = refusals[usize::from(*what)];
            }
            Self::Put { .. } | Self::Take { .. } | Self::Claim { .. } | Self::Leave(_) | Self::Member => {}
        }
    }
}

/// A host that does what the kernel would.
struct Model {
    observed: RefCell<Observed>,
    refuses: Option<&'static str>,
}

impl Host for Model {
    async fn observe(&self, _: &Query) -> Result<Observed, PortError> {
        Ok(self.observed.borrow().clone())
    }

    async fn apply(&self, change: &Change) -> Result<(), PortError> {
        if self.refuses.is_some_and(|refused| change.to_string().starts_with(refused)) {
            return Err(PortError::Refused { source: ErrorKind::PermissionDenied.into() });
        }
        // A group whose next hop was not made, because the filter was not.
        if let Change::Nexthops(NexthopChange::MakeGroup(_, members) | NexthopChange::SetGroup(_, members)) =
            change
            && !members.iter().all(|member| self.observed.borrow().nexthops.contains_key(member))
        {
            return Err(PortError::Refused { source: ErrorKind::InvalidInput.into() });
        }
        let plan = Plan { changes: vec![change.clone()], ..Plan::default() };
        let observed = self.observed.take();
        self.observed.replace(model::apply(observed, &plan));
        Ok(())
    }
}

/// The node and its cluster.
#[derive(Debug, Clone, Copy)]
struct Setting {
    is_gateway: bool,
    has_globalnet: bool,
    has_services: bool,
    plugin: &'static str,
}

impl Setting {
    fn view(self) -> ClusterView {
        let mut view = ClusterView { nodes: nodes(), ..view() };
        let own = &mut view.endpoints[0];
        own.addresses = vec!["172.31.1.11".parse().unwrap()];
        if self.has_globalnet {
            own.subnets = vec!["242.0.0.0/16".parse().unwrap()];
            own.interface = Some("submariner".to_owned());
        }
        if self.has_services {
            view.services =
                Services { is_wanted: true, is_asymmetric: self.is_gateway, here: Some(Arc::default()) };
        }
        view
    }
}

async fn compare(setting: Setting, grace: Duration, steps: Vec<(Step, bool)>) {
    let agent = || {
        let mut observed = Fake::new().observed.into_inner();
        let address = DeviceAddress { device: "eth0".into(), network: "172.31.1.11/24".parse().unwrap() };
        observed.addresses.insert(address);
        let port = DeviceAddress { device: "ovn-k8s-mp0".into(), network: "10.1.1.2/24".parse().unwrap() };
        observed.addresses.extend((setting.plugin == "ovnkubernetes").then_some(port));
        let plugin = setting.plugin.to_owned();
        let hostname = if setting.is_gateway { "a-gw1" } else { "a-w1" }.to_owned();
        let has_globalnet = setting.has_globalnet;
        let node = Node { hostname, has_globalnet, plugin, ..reconciler(Fake::new()).node };
        let host = Model { observed: RefCell::new(observed), refuses: None };
        Reconciler::new(host, serving(setting.plugin), node).with_grace(grace)
    };
    let (mut follows, mut anew) = (agent(), agent());
    let mut view = setting.view();
    for (step, is_read) in steps {
        step.change(&mut view);
        let is_read = is_read || matches!(step, Step::Address | Step::Meddle(_) | Step::Device);
        step.meddle(&mut follows.host);
        step.meddle(&mut anew.host);
        anew.memory = None;
        let [this, that] = match is_read {
            true => [follows.pass(&view).await.unwrap(), anew.pass(&view).await.unwrap()],
            false => [follows.follow(&view).await.unwrap(), anew.follow(&view).await.unwrap()],
        };
        assert_eq!(this, that, "{step:?}");
        let [this, that] = [&follows, &anew].map(|agent| agent.memory.as_ref().unwrap().desired());
        assert_eq!(this, that, "{step:?}");
        let [this, that] = [&follows, &anew].map(|agent| agent.host.observed.borrow().clone());
        assert_eq!(this, that, "{step:?}");
    }
}

fn nodes() -> Vec<ClusterNode> {
    let node = |name: &str, address: &str, pods: &str| ClusterNode {
        name: name.to_owned(),
        hostname: name.to_owned(),
        addresses: [address.parse().unwrap()].into(),
        pod_networks: [pods.parse().unwrap()].into(),
        ..ClusterNode::default()
    };
    vec![node("a-gw1", "172.31.1.11", "10.1.1.0/24"), node("a-w1", "172.31.1.21", "10.1.2.0/24")]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_pass_that_follows_changes_does_what_one_does_that_computes_everything(
        steps in vec((step(), any::<bool>()), 1..30),
        (is_gateway, has_globalnet, has_services) in any::<(bool, bool, bool)>(),
        has_grace in any::<bool>(),
        plugin in prop_oneof![2 => Just("generic"), 1 => Just("ovnkubernetes")],
    ) {
        let grace = if has_grace { Duration::from_mins(10) } else { Duration::ZERO };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let setting = Setting { is_gateway, has_globalnet, has_services, plugin };
        runtime.block_on(compare(setting, grace, steps));
    }
}
