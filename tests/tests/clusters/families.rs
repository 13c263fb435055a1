//! Clusters of one family, which are on the same networks; how clusters are kept and how they go.

use std::net::SocketAddr;
use std::path::Path;

use trieste_tests::clusters::{ClusterShape, Clusters, PodShape};
use trieste_tests::lab::Lab;
use trieste_tests::registry;
use trieste_tests::topology::Families;

use super::shared::own;

const SIZES: [usize; 4] = [64, 1400, 3000, 9000];

#[test]
fn clusters_of_one_family_and_of_the_same_network_come_up_can_be_kept_and_leave_nothing() {
    let name = "clusters_of_one_family_and_of_the_same_network_come_up_can_be_kept_and_leave_nothing";
    let Some(_own) = own(name) else { return };
    let lab = Lab::new().unwrap();
    let id = lab.id().to_owned();
    let shape = |name: &str, families| ClusterShape::new(name, 5).with_nodes(1).with_families(families);
    let shapes = [shape("four", Families::V4).with_mtu(1400), shape("six", Families::V6)];
    let clusters = Clusters::up(&lab, &shapes).unwrap();

    for (cluster, net) in clusters.all().iter().zip(["10.50.0.0/16", "fd00:50::/48"]) {
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

    lab.keep().unwrap();
    let kept = Kept { id: id.clone() };
    let ask = clusters.command(clusters.cluster("four").kubectl_path()).args(["kubectl", "get", "nodes"]);
    drop(clusters);
    drop(lab);
    let told = ask.stdout().unwrap();
    assert!(told.contains("four-1"), "{told}");
    drop(kept);
    nothing_is_left(&id);
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
