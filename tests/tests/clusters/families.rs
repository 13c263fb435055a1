//! Clusters of one family, which are on the same networks; how clusters are kept and how they go.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use trieste_deploy::objects::ClusterSetIp;
use trieste_tests::cables;
use trieste_tests::clusters::{Cluster, ClusterSet, ClusterShape, MEMBER, Pod, PodShape, RESPONDER_PORT};
use trieste_tests::lab::Lab;
use trieste_tests::registry;
use trieste_tests::topology::Families;
use trieste_tests::wait::eventually;

use super::shared::{SOON, in_parallel, own};
use crate::lookups::{self, while_cut_off};
use crate::sides::SERVICE_PORT;

const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

#[test]
fn clusters_of_one_family_and_of_the_same_network_come_up_can_be_kept_and_leave_nothing() {
    let name = "clusters_of_one_family_and_of_the_same_network_come_up_can_be_kept_and_leave_nothing";
    let Some(_own) = own(name) else { return };
    let lab = Lab::new().unwrap();
    let id = lab.id().to_owned();
    let shape = |name: &str, network, families| {
        ClusterShape::new(name, network).with_nodes(1).with_families(families)
    };
    let [six, other, third] =
        [("six", 5), ("other", 6), ("third", 7)].map(|(name, network)| shape(name, network, Families::V6));
    let shapes = [six, other, third, shape("four", 5, Families::V4).with_mtu(1400)];
    let clock = Instant::now();
    let set = ClusterSet::bare(&lab, &shapes).unwrap();

    for (cluster, net) in
        set.clusters.all().iter().zip(["fd00:50::/48", "fd00:60::/48", "fd00:70::/48", "10.50.0.0/16"])
    {
        assert_eq!(cluster.pod_nets(), [net.parse().unwrap()]);
        let node = cluster.node(1);
        let shapes = [PodShape::on(node, "one"), PodShape::on(node, "other")];
        let [one, other] = cluster.start_pods(&shapes).unwrap().try_into().unwrap();
        assert!(
            other.addresses.iter().all(|ip| cluster.pod_nets()[0].contains(ip)) && other.addresses.len() == 1
        );
        one.exchange(other.responders()[0], &SIZES, one.addresses[0]).unwrap();
        let service = cluster.start_service("web", "other").unwrap();
        one.tcp(SocketAddr::new(service[0], 80), 64).unwrap();
        let mtu = one.exec(&["cat", "/sys/class/net/eth0/mtu"]).unwrap().success().unwrap();
        assert_eq!(mtu.trim(), if cluster.name() == "four" { "1400" } else { "1500" });
    }
    eprintln!("{:6.1} s  up", clock.elapsed().as_secs_f32());
    names_of_ipv6_alone(&set);
    eprintln!("{:6.1} s  names with IPv6 alone", clock.elapsed().as_secs_f32());

    lab.keep().unwrap();
    let kept = Kept { id: id.clone() };
    let ask =
        set.clusters.command(set.clusters.cluster("six").kubectl_path()).args(["kubectl", "get", "nodes"]);
    drop(set);
    drop(lab);
    let told = ask.stdout().unwrap();
    assert!(told.contains("six-1"), "{told}");
    drop(kept);
    nothing_is_left(&id);
}

/// Joins the three clusters that have IPv6 alone, exports services of one, and asks and reaches them from another. Then two of them
/// serve a name, and one is cut off.
fn names_of_ipv6_alone(set: &ClusterSet) {
    let [six, other, third] = &set.clusters.all()[..3] else { panic!("there are three") };
    if cables::driver() == "vxlan" {
        eprintln!("no names with IPv6 alone: VXLAN has no cables there");
        return;
    }
    set.deploy_broker_with_services().unwrap();
    in_parallel(&[six, other, third], |cluster| {
        cluster.label_gateway(cluster.node(1), true).unwrap();
        set.join(cluster).unwrap();
    });
    let service = other.start_service("web", "other").unwrap();
    let headless = other.start_headless("each", "other").unwrap();
    for name in ["web", "each"] {
        set.export(other, "export", name).unwrap();
    }
    six.restart_dns().unwrap();
    for daemon in ["daemonset/submariner-gateway", "deployment/submariner-lighthouse-coredns"] {
        six.wait_rollout(MEMBER, daemon).unwrap();
    }
    let asker = six.pod("default", "one").unwrap();
    let pods: Vec<IpAddr> = headless.iter().map(SocketAddr::ip).collect();
    for (name, addresses, port) in [
        ("web.default", &service, SERVICE_PORT),
        ("each.default", &pods, RESPONDER_PORT),
        ("other.other.each.default", &pods, RESPONDER_PORT),
    ] {
        let name = format!("{name}.svc.clusterset.local");
        asker.wait_resolved(&name, addresses, SOON).unwrap();
        assert!(addresses.len() == 1 && addresses[0].is_ipv6(), "{name}: {addresses:?}");
        let seen = eventually(&format!("{name} to be reached"), SOON, || asker.reach(&name, port)).unwrap();
        assert_eq!(seen.ip(), asker.addresses[0], "{name}");
    }

    clusterset_ip(set, other, &asker);

    let theirs = third.start_service("web", "other").unwrap();
    set.export(third, "export", "web").unwrap();
    let name = "web.default.svc.clusterset.local";
    asker.wait_resolved(&format!("third.{name}"), &theirs, SOON).unwrap();
    let both = [&service[..], &theirs].concat();
    let gateway = (&set.clusters, third.node(1));
    eprintln!("third: {}", while_cut_off((six, &asker, name), [&both, &service], gateway));
    lookups::set_link(gateway.0, gateway.1, "up");
    eventually("both clusters to have turns again", SOON, || {
        let found: BTreeSet<IpAddr> = (0..4)
            .map(|_| asker.resolve(name))
            .collect::<Result<Vec<_>, _>>()?
            .concat()
            .into_iter()
            .collect();
        anyhow::ensure!(found.len() == both.len(), "{found:?}");
        Ok(())
    })
    .unwrap();
}

/// Has a service of a cluster reached from a pod of another one by its clusterset IP of IPv6, and no more when it is given back.
fn clusterset_ip(set: &ClusterSet, exporter: &Cluster, asker: &Pod) {
    exporter.start_service("virtual", "other").unwrap();
    set.export_with_ip(exporter, "virtual").unwrap();
    let name = "virtual.default.svc.clusterset.local";
    let address = eventually("a clusterset IP to be answered", SOON, || {
        let [IpAddr::V6(address)] = *asker.resolve(name)? else { anyhow::bail!("no single address of IPv6") };
        anyhow::ensure!(ClusterSetIp::IPV6_RANGE.contains(&address), "it is {address}");
        Ok(address.to_string())
    })
    .unwrap();
    let seen = eventually(&format!("{address} to be reached"), SOON, || asker.reach(&address, SERVICE_PORT));
    assert_eq!(seen.unwrap().ip(), asker.addresses[0]);
    // While a gateway that waits for a processor counts as lost, nobody is led there.
    eventually(&format!("{name} to be reached"), SOON, || asker.reach(name, SERVICE_PORT)).unwrap();
    set.export(exporter, "unexport", "virtual").unwrap();
    asker.wait_resolved(name, &[], SOON).unwrap();
    exporter.kubectl(&["delete", "service", "virtual"]).unwrap().success().unwrap();
}

/// A lab that was left up; it goes, however the test ends.
struct Kept {
    id: String,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let claims = registry::abandoned().unwrap();
        for claim in claims.into_iter().filter(|claim| claim.record().id == self.id) {
            claim.remove().unwrap();
        }
    }
}

/// Of namespaces, control groups, mounts, records and files.
pub(crate) fn nothing_is_left(id: &str) {
    let names = |folder: &str| {
        let entries = std::fs::read_dir(folder).map(|all| all.filter_map(Result::ok).collect::<Vec<_>>());
        entries.unwrap_or_default().into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    for folder in ["/run/netns", "/run/trieste-lab"] {
        assert!(!names(folder).any(|name| name.starts_with(id)), "{folder}");
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
        let folder = format!("/sys/fs/cgroup/{}{path}", controllers.trim_start_matches("name="));
        assert!(!names(&folder).any(|name| name.starts_with(id)), "{folder}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(id), "{mounts}");
    assert!(!Path::new("/tmp").join(id).exists());
}
