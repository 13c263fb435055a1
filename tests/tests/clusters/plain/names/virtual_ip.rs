//! One address of each family for a service of the whole set, which every node leads to where the service is served.

use std::net::IpAddr;
use std::time::Instant;

use anyhow::ensure;
use ipnet::Ipv4Net;
use trieste_deploy::objects::ClusterSetIp;
use trieste_tests::clusters::{Pod, PodShape};
use trieste_tests::wait::eventually;

use super::set_link;
use crate::shared::{SOON, Two};

const SERVICE: &str = "one";
const NAME: &str = "one.default.svc.clusterset.local";
const RANGE: &str = "243.0.0.0/8";

/// Has west's service reached by the addresses, then east's own one while west is cut off, and west's again.
pub(super) fn leads(two: &Two, asker: &Pod) {
    let (east, west) = (two.east(), two.west());
    west.start_service(SERVICE, "server").unwrap();
    two.set.export_with_ip(west, SERVICE).unwrap();
    let range: Ipv4Net = RANGE.parse().unwrap();
    let both = eventually("a clusterset IP of each family to be answered", SOON, || {
        let both = asker.resolve(NAME)?;
        let [IpAddr::V4(four), IpAddr::V6(six)] = both[..] else { anyhow::bail!("it is {both:?}") };
        ensure!(range.contains(&four) && ClusterSetIp::IPV6_RANGE.contains(&six), "it is {both:?}");
        Ok(both)
    })
    .unwrap();
    let reach = |what: &str| {
        for address in &both {
            let seen = eventually(what, SOON, || asker.reach(&address.to_string(), 80)).unwrap();
            assert!(asker.addresses.contains(&seen.ip()), "seen as {seen} at {address}");
        }
    };
    reach("west to answer at the clusterset IPs");
    asker.reach(NAME, 80).unwrap();
    two.say(&format!("west answers at {both:?}"));

    set_link(two, "down");
    for address in both.iter().map(IpAddr::to_string) {
        eventually("connections to be refused", SOON, || {
            let begun = Instant::now();
            let output = asker.exec(&["nc", "-w", "5", &address, "80"])?;
            ensure!(!output.status.success() && begun.elapsed().as_secs() < 3, "{}", output.stdout);
            Ok(())
        })
        .unwrap();
    }
    let pod = east.start_pod(PodShape::on(east.node(1), "server")).unwrap();
    east.start_service(SERVICE, "server").unwrap();
    two.set.export_with_ip(east, SERVICE).unwrap();
    reach("the own cluster to answer at the clusterset IPs");
    assert_eq!(asker.resolve(NAME).unwrap(), both, "they stay");
    set_link(two, "up");
    two.say("east answers there while west is cut off");

    two.set.export(east, "unexport", SERVICE).unwrap();
    east.kubectl(&["delete", "pod", "server", "--grace-period=1"]).unwrap().success().unwrap();
    east.kubectl(&["delete", "service", SERVICE]).unwrap().success().unwrap();
    drop(pod);
    reach("west to answer at the clusterset IPs again");
    two.set.export(west, "unexport", SERVICE).unwrap();
    asker.wait_resolved(NAME, &[], SOON).unwrap();
    west.kubectl(&["delete", "service", SERVICE]).unwrap().success().unwrap();
    two.say("and west again");
}
