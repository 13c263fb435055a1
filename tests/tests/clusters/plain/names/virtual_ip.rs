//! One address for a service of the whole set, which every node leads to where the service is served.

use std::net::IpAddr;
use std::time::Instant;

use anyhow::ensure;
use ipnet::Ipv4Net;
use trieste_tests::clusters::{Pod, PodShape};
use trieste_tests::wait::eventually;

use super::set_link;
use crate::shared::{SOON, Two};

const SERVICE: &str = "one";
const NAME: &str = "one.default.svc.clusterset.local";
const RANGE: &str = "243.0.0.0/8";

/// Has west's service reached by the address, then east's own one while west is cut off, and west's again.
pub(super) fn leads(two: &Two, asker: &Pod) {
    let (east, west) = (two.east(), two.west());
    west.start_service(SERVICE, "server").unwrap();
    two.set.export_with_ip(west, SERVICE).unwrap();
    let range: Ipv4Net = RANGE.parse().unwrap();
    let address = eventually("a clusterset IP to be answered", SOON, || {
        let [IpAddr::V4(address)] = *asker.resolve(NAME)? else { anyhow::bail!("no single address") };
        ensure!(range.contains(&address), "it is {address}");
        Ok(address)
    });
    let address = address.unwrap().to_string();
    let reach = |what: &str| eventually(what, SOON, || asker.reach(&address, 80)).unwrap();
    let seen = reach("west to answer at the clusterset IP");
    assert!(asker.addresses.contains(&seen.ip()), "seen as {seen}");
    asker.reach(NAME, 80).unwrap();
    two.say(&format!("west answers at {address}"));

    set_link(two, "down");
    eventually("connections to be refused", SOON, || {
        let begun = Instant::now();
        let output = asker.exec(&["nc", "-w", "5", &address, "80"])?;
        ensure!(!output.status.success() && begun.elapsed().as_secs() < 3, "{}", output.stdout);
        Ok(())
    })
    .unwrap();
    let pod = east.start_pod(PodShape::on(east.node(1), "server")).unwrap();
    east.start_service(SERVICE, "server").unwrap();
    two.set.export_with_ip(east, SERVICE).unwrap();
    let seen = reach("the own cluster to answer at the clusterset IP");
    assert!(asker.addresses.contains(&seen.ip()), "seen as {seen}");
    assert_eq!(asker.resolve(NAME).unwrap(), [address.parse::<IpAddr>().unwrap()], "it stays");
    set_link(two, "up");
    two.say("east answers there while west is cut off");

    two.set.export(east, "unexport", SERVICE).unwrap();
    east.kubectl(&["delete", "pod", "server", "--grace-period=1"]).unwrap().success().unwrap();
    east.kubectl(&["delete", "service", SERVICE]).unwrap().success().unwrap();
    drop(pod);
    reach("west to answer at the clusterset IP again");
    two.set.export(west, "unexport", SERVICE).unwrap();
    asker.wait_resolved(NAME, &[], SOON).unwrap();
    west.kubectl(&["delete", "service", SERVICE]).unwrap().success().unwrap();
    two.say("and west again");
}
