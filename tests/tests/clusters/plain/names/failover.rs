//! Two clusters serve a name, and one of them comes second: all new connections are its own while the other is cut off.

use std::net::IpAddr;

use trieste_tests::clusters::{Cluster, Pod, PodShape};

use super::NAME;
use crate::lookups::{set_link, while_cut_off};
use crate::shared::{SOON, Two};

/// Has east serve the name as well, but no sooner than west cannot be reached.
pub(super) fn follows(two: &Two, asker: &Pod, virtual_ips: &[IpAddr]) {
    let (east, west) = (two.east(), two.west());
    let pod = east.start_pod(PodShape::on(east.node(1), "server")).unwrap();
    let own = east.start_service("web", "server").unwrap();
    // The oldest export's routing counts.
    annotate(west, "trieste.io/routing=failover=west,east");
    two.set.export(east, "export", "web").unwrap();
    asker.wait_resolved(&format!("east.{NAME}"), &own, SOON).unwrap();
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();

    let gateway = (&two.set.clusters, west.node(2));
    two.say(&while_cut_off((east, asker, NAME), [virtual_ips, &own], gateway));

    set_link(gateway.0, gateway.1, "up");
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    annotate(west, "trieste.io/routing-");
    two.set.export(east, "unexport", "web").unwrap();
    east.kubectl(&["delete", "pod", "server", "--grace-period=1"]).unwrap().success().unwrap();
    east.kubectl(&["delete", "service", "web"]).unwrap().success().unwrap();
    drop(pod);
    asker.wait_resolved(NAME, virtual_ips, SOON).unwrap();
    two.say("and back");
}

fn annotate(cluster: &Cluster, annotation: &str) {
    let words = ["annotate", "serviceexport", "web", "-n", "default", annotation];
    cluster.kubectl(&words).unwrap().success().unwrap();
}
