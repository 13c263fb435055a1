//! Where the tests take place: two clusters, ours in the east, strongSwan in the west.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use trieste_control::admin::{CableStatus, ChildSaStatus, IpsecStatus};
use trieste_control::api::EndpointSpec;
use trieste_tests::broker;
use trieste_tests::cluster::{Cluster, PSK, Settings};
use trieste_tests::fault::Fault;
use trieste_tests::lab::Lab;
use trieste_tests::strongswan::{Child, Connection, Encapsulation, Release, Start, Strongswan};
use trieste_tests::topology::{ClusterPlan, Families, Plan, PodPlan, Topology};
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

pub(crate) const PORT: u16 = 4500;
/// How long anything may take that both sides do at once.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// What both sides take unless a test says otherwise.
pub(crate) const IKE: &str = "aes256gcm16-prfsha256-x25519";
/// The same for ESP.
pub(crate) const ESP: &str = "aes128gcm16";

/// Who begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Initiator {
    Ours,
    Theirs,
}

/// Both gateways. The fields are in the order in which they have to end.
pub(crate) struct Bed {
    deaf: Option<Fault>,
    pub(crate) ours: Cluster,
    pub(crate) theirs: Strongswan,
    settings: Settings,
    pub(crate) plan: Plan,
    pub(crate) lab: Lab,
}

impl Bed {
    /// Starts both, our gateway with these lines in its configuration. They do not know of each other yet.
    pub(crate) fn new(underlay: Families, inner: Families, release: Release, lines: &[&str]) -> Self {
        let lab = Lab::new().unwrap();
        let mut topology = Topology::two_clusters().with_underlay(underlay);
        for cluster in &mut topology.clusters {
            cluster.inner = inner;
        }
        let plan = lab.build(&topology).unwrap();
        let theirs =
            Strongswan::start(&lab, "west", &plan.cluster("west").gateway().namespace, release).unwrap();
        let mut settings = Settings::of(&lab);
        settings.extra = lines.iter().map(|line| (*line).to_owned()).collect();
        settings.extra.push("cable-driver: ipsec".to_owned());
        let ours = Cluster::start(&lab, plan.cluster("east"), &settings).unwrap();
        Self { deaf: None, ours, theirs, settings, plan, lab }
    }

    /// The same with everything in IPv4 and always in UDP.
    pub(crate) fn in_udp(lines: &[&str]) -> Self {
        let mut all = vec!["force-udp-encaps: true"];
        all.extend(lines);
        Self::new(Families::V4, Families::V4, Release::Installed, &all)
    }

    /// strongSwan's Endpoint, as upstream's gateway would publish it.
    pub(crate) fn endpoint(&self) -> EndpointSpec {
        let west = self.plan.cluster("west");
        let address = west.gateway().underlay_address();
        EndpointSpec {
            cluster_id: "west".to_owned(),
            cable_name: format!(
                "submariner-cable-west-{}",
                address.to_string().replace(['.', ':'], "-").trim_matches('-')
            ),
            hostname: west.gateway().name.clone(),
            subnets: west.pod_cidrs.iter().map(ToString::to_string).collect(),
            private_ip: address.to_string(),
            backend: "libreswan".to_owned(),
            backend_config: [
                ("udp-port", "4500"),
                ("preferred-server", "false"),
                ("interface-name", "submariner"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            ..EndpointSpec::default()
        }
    }

    /// Makes our gateway know of it.
    pub(crate) fn publish(&self, endpoint: &EndpointSpec) {
        broker::publish(self.settings.broker.as_ref().unwrap(), endpoint).unwrap();
    }

    /// A connection of strongSwan's that fits our gateway: a child SA for each pair of subnets.
    pub(crate) fn connection(&self) -> Connection {
        let (east, west) = (self.plan.cluster("east"), self.plan.cluster("west"));
        let address = |cluster: &ClusterPlan| SocketAddr::new(cluster.gateway().underlay_address(), PORT);
        let mut children = Vec::new();
        for own in &west.pod_cidrs {
            let same = |net: &&IpNet| matches!(net, IpNet::V4(_)) == matches!(own, IpNet::V4(_));
            for (name, nets) in [("pods", &east.pod_cidrs), ("services", &east.service_cidrs)] {
                for net in nets.iter().filter(same) {
                    let family = if net.addr().is_ipv4() { "v4" } else { "v6" };
                    children.push(Child {
                        name: format!("{name}-{family}"),
                        local: vec![*own],
                        remote: vec![*net],
                        proposals: ESP.to_owned(),
                        start: Start::Never,
                        rekey_s: 0,
                    });
                }
            }
        }
        Connection {
            local: address(west),
            remote: Some(address(east)),
            local_id: address(west).ip().to_string(),
            remote_id: address(east).ip().to_string(),
            psk: PSK.to_owned(),
            proposals: IKE.to_owned(),
            encapsulation: Encapsulation::Forced,
            dpd_s: 2,
            rekey_s: 0,
            fragments: true,
            remembers_all: false,
            children,
        }
    }

    /// Has only one side begin: the other's first messages do not arrive, or it never sends any.
    pub(crate) fn let_begin(&mut self, initiator: Initiator) {
        // UDP 8 bytes, marker 4 (zero; ESP has its SPI there), SPIs 16, next payload and version 2: then exchange type and
        // flags. IKE_SA_INIT is 34, and 8 is a request of the original initiator.
        let rule = format!("udp dport {PORT} @th,64,32 0 @th,240,16 0x2208 counter drop");
        let namespace = &self.plan.cluster("west").gateway().namespace;
        match initiator {
            Initiator::Ours => self.deaf = None,
            Initiator::Theirs if self.deaf.is_none() => {
                self.deaf = Some(Fault::ingress(namespace, "eth0", &rule).unwrap());
            }
            Initiator::Theirs => {}
        }
    }

    /// Ends what there is, and connects anew; both sides are up when this returns.
    pub(crate) fn connect(&mut self, initiator: Initiator, connection: &Connection) {
        self.connect_to(&self.endpoint(), initiator, connection);
    }

    /// The same with an Endpoint of the caller's, if our gateway does not have one yet.
    pub(crate) fn connect_to(
        &mut self,
        endpoint: &EndpointSpec,
        initiator: Initiator,
        connection: &Connection,
    ) {
        self.let_begin(initiator);
        self.theirs.load(connection).unwrap();
        if self.theirs.sas().unwrap().is_empty() {
            self.publish(endpoint);
        } else {
            self.theirs.terminate().unwrap();
        }
        if initiator == Initiator::Theirs {
            self.wait_known();
            for child in &connection.children {
                self.theirs.initiate(&child.name).unwrap();
            }
        }
        self.wait_up(connection.children.len());
    }

    /// Waits until our gateway has a cable to strongSwan, up or not: until then it does not answer.
    pub(crate) fn wait_known(&self) {
        eventually("our gateway to know its peer", TIMEOUT, || self.try_ipsec()).unwrap();
    }

    /// Waits until both sides have this many child SAs, the same and no others, and our node routes into them: until its
    /// route agent has the Endpoint, what our pods send leaves in clear.
    pub(crate) fn wait_up(&self, children: usize) -> IpsecStatus {
        eventually("the same child SAs on both sides", TIMEOUT, || {
            let theirs = self.theirs.wait_children(children, TIMEOUT)?;
            let ipsec = self.try_ipsec()?;
            let known = |child: &ChildSaStatus| {
                let spi = child.spi_out.as_deref().unwrap_or_default().trim_start_matches("0x");
                theirs.children.iter().any(|other| other.spi_in == spi)
            };
            let sealing: Vec<_> = ipsec.child_sas.iter().filter(|child| child.is_sealing).collect();
            anyhow::ensure!(
                ipsec.is_up && sealing.len() == children && sealing.into_iter().all(known),
                "{ipsec:#?}\n{theirs:#?}"
            );
            self.ours.check_routes(&self.ours.status()?)?;
            Ok(ipsec)
        })
        .unwrap()
    }

    /// What our gateway says of its one cable.
    pub(crate) fn cable(&self) -> anyhow::Result<CableStatus> {
        let status = self.ours.status()?;
        let [cable] = status.connections.as_slice() else {
            anyhow::bail!("{} cables; refused: {:?}", status.connections.len(), status.refused)
        };
        Ok(cable.clone())
    }

    /// The IPsec part of it.
    pub(crate) fn try_ipsec(&self) -> anyhow::Result<IpsecStatus> {
        self.cable()?.ipsec.ok_or_else(|| anyhow::anyhow!("the cable is not IPsec"))
    }

    /// The first pods of both clusters, ours first.
    pub(crate) fn pods(&self) -> (&PodPlan, &PodPlan) {
        (self.plan.cluster("east").pod(0), self.plan.cluster("west").pod(0))
    }

    /// Pings in both directions and families.
    pub(crate) fn assert_pods_reach_each_other(&self) {
        let (east, west) = self.pods();
        for (from, to) in [(east, west), (west, east)] {
            for address in to.ips() {
                // charon may lose some while others keep the machine busy: every ping, but not at once.
                eventually(&format!("three of three pings, {} to {address}", from.name), TIMEOUT, || {
                    let ping = traffic::ping(&from.namespace, address, 3, &[])?;
                    anyhow::ensure!(ping.received == 3, "{ping:?}\n{}", self.counters());
                    Ok(())
                })
                .unwrap();
            }
        }
    }

    /// Where packets went, as both sides tell it.
    fn counters(&self) -> String {
        let (drops, theirs) = (self.ours.status().map(|status| status.drops), self.theirs.sas());
        format!("drops of ours: {drops:?}\nour cable: {:#?}\ntheirs: {theirs:#?}", self.try_ipsec())
    }

    /// Waits until pods reach each other (again).
    pub(crate) fn wait_reachable(&self, timeout: Duration) {
        let (east, west) = self.pods();
        let to: IpAddr = west.ips()[0];
        eventually("pods to reach each other", timeout, || {
            let ping = traffic::ping(&east.namespace, to, 1, &["-W", "0.3"])?;
            anyhow::ensure!(ping.received == 1, "{ping:?}\n{}", self.counters());
            Ok(())
        })
        .unwrap();
    }

    /// Kills our gateway and starts it again, with other lines in its configuration if there are some.
    pub(crate) fn restart_ours(&mut self, lines: Option<&[&str]>) {
        self.ours.kill_gateway().unwrap();
        if let Some(lines) = lines {
            self.settings.extra = lines.iter().map(|line| (*line).to_owned()).collect();
            self.settings.extra.push("cable-driver: ipsec".to_owned());
            self.ours.configure(&self.settings).unwrap();
        }
        self.ours.start_gateway().unwrap();
    }

    /// Waits until our gateway's status has this text as an error, of the cable or of a child SA, and `trieste status`
    /// prints it.
    pub(crate) fn wait_error(&self, text: &str) {
        let error = eventually(&format!("our gateway to say {text}"), TIMEOUT, || {
            let ipsec = self.try_ipsec()?;
            let of_children = ipsec.child_sas.iter().filter_map(|child| child.error.clone());
            let mut errors = ipsec.error.clone().into_iter().chain(of_children);
            errors.find(|error| error.contains(text)).ok_or_else(|| anyhow::anyhow!("{ipsec:#?}"))
        })
        .unwrap();
        let shown = self.ours.trieste(&["status"]).unwrap().stdout().unwrap();
        assert!(shown.contains(text), "{error} is not in\n{shown}");
    }
}
