//! One active gateway for each cluster, as `active-gateways: one` has it and upstream: what it costs when another one
//! takes over, and that who leads costs nothing by itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trieste_control::api::HaStatus;
use trieste_tests::cluster::BROKER_NAMESPACE;
use trieste_tests::flow::Outages;
use trieste_tests::guard::root_test;
use trieste_tests::lab::Lab;
use trieste_tests::mesh::Mesh;
use trieste_tests::put_whole;
use trieste_tests::wait::eventually;

use super::{Bed, probe, topology};

/// How long anything but a measured gap may take.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Upstream's lease duration, which gateways have when nobody says otherwise.
const LEASE: Duration = Duration::from_secs(15);
/// The bar for a planned stop and for a process that comes back; twice of what it is with optimised programs.
const BAR: Duration = Duration::from_secs(2);

#[test]
fn another_active_gateway_costs_two_seconds_at_most_and_a_lost_node_its_lease() {
    let name = "another_active_gateway_costs_two_seconds_at_most_and_a_lost_node_its_lease";
    let Some(_turn) = root_test(name) else { return };
    let lab = Lab::new().unwrap();
    let mesh = Mesh::start(&lab, &topology(), &["active-gateways: one"]).unwrap();
    mesh.wait_traffic().unwrap_or_else(|error| {
        lab.show_logs();
        panic!("{error:#}")
    });
    let mut bed = Bed::of(mesh);

    // Asked to end, the leader hands over; afterwards it stands by.
    let endpoints = lab.directory().join("broker").join(BROKER_NAMESPACE).join("endpoints");
    let leader = leader(&bed);
    let old = endpoint_of(&endpoints, &bed.mesh.side("east").gateway_node(leader).name);
    let text = std::fs::read_to_string(&old).unwrap();
    let stop = |bed: &mut Bed| {
        bed.mesh.side_mut("east").stop_gateway(leader, TIMEOUT).unwrap();
        wait_status(bed, 1 - leader, HaStatus::Active);
    };
    gap(&measure(&mut bed, "planned stop", stop), BAR);
    bed.mesh.side_mut("east").start_gateway(leader).unwrap();
    wait_status(&bed, leader, HaStatus::Passive);

    // For a while others know its old Endpoint beside the new one, as with upstream's gateways, and then that goes.
    let come_back = |_: &mut Bed| {
        assert!(!old.exists(), "the old Endpoint was not removed");
        put_whole(&old, &text).unwrap();
        eventually("the old Endpoint to be removed", TIMEOUT, || {
            anyhow::ensure!(!old.exists(), "it is there");
            Ok(())
        })
        .unwrap();
    };
    gap(&measure(&mut bed, "the old Endpoint goes late", come_back), BAR);

    // Killed and started again at once, it still leads.
    let leader = 1 - leader;
    let restart = |bed: &mut Bed| {
        bed.mesh.side_mut("east").kill_gateway(leader).unwrap();
        bed.mesh.side_mut("east").start_gateway(leader).unwrap();
        wait_status(bed, leader, HaStatus::Active);
    };
    gap(&measure(&mut bed, "killed and back", restart), BAR);

    // Without its store a cluster has no leader, and all packets pass.
    let (store, away) = (bed.mesh.side("east").store(), lab.directory().join("away"));
    let lose_store = |bed: &mut Bed| {
        std::fs::rename(&store, &away).unwrap();
        wait_status(bed, leader, HaStatus::Passive);
        std::fs::rename(&away, &store).unwrap();
        eventually("a leader again", TIMEOUT, || find_leader(bed)).unwrap()
    };
    let outages = measure(&mut bed, "without the store", lose_store);
    assert_eq!(outages.lost(), 0, "{}", outages.line());

    // The leader vanishes without a word.
    let leader = self::leader(&bed);
    let vanish = |bed: &mut Bed| {
        bed.mesh.side_mut("east").kill_gateway(leader).unwrap();
        wait_status(bed, 1 - leader, HaStatus::Active);
    };
    gap(&measure(&mut bed, "leader lost", vanish), LEASE + BAR);
}

/// The file of this gateway's Endpoint.
fn endpoint_of(folder: &Path, hostname: &str) -> PathBuf {
    let is_it = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text.contains(hostname));
    eventually("the Endpoint on the broker", TIMEOUT, || {
        let mut files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
        let files = files.by_ref().collect::<std::io::Result<Vec<_>>>()?;
        files.iter().find(|file| is_it(file)).cloned().ok_or_else(|| anyhow::anyhow!("there are {files:?}"))
    })
    .unwrap()
}

fn gap(outages: &Outages, bar: Duration) {
    assert!(outages.longest() <= bar, "the bar is {bar:?}: {outages:#?}");
}

/// Probes flows between workers while something happens, and a second after it.
fn measure<T>(bed: &mut Bed, what: &str, change: impl FnOnce(&mut Bed) -> T) -> Outages {
    let workers = ["east-worker3", "west-worker3"];
    let mut flows = bed.flows();
    flows.retain(|flow| workers.iter().all(|worker| flow.name.contains(worker)));
    assert!(flows.len() >= 4, "{flows:?}");
    let probing = probe(&flows);
    let start = Instant::now();
    change(bed);
    let took = start.elapsed();
    std::thread::sleep(Duration::from_secs(1));
    let outages = probing.finish();
    eprintln!("{what}, {:.1} s: {}", took.as_secs_f64(), outages.line());
    outages
}

fn leader(bed: &Bed) -> usize {
    eventually("a leader", TIMEOUT, || find_leader(bed)).unwrap()
}

fn find_leader(bed: &Bed) -> anyhow::Result<usize> {
    let side = bed.mesh.side("east");
    let statuses = [side.status(0)?.ha_status, side.status(1)?.ha_status];
    let leaders = statuses.each_ref().map(|status| *status == HaStatus::Active);
    anyhow::ensure!(leaders[0] != leaders[1], "{statuses:?}");
    Ok(usize::from(leaders[1]))
}

fn wait_status(bed: &Bed, gateway: usize, wanted: HaStatus) {
    eventually(&format!("east's gateway {gateway} to be {wanted:?}"), TIMEOUT, || {
        let status = bed.mesh.side("east").status(gateway)?;
        anyhow::ensure!(status.ha_status == wanted, "it is {:?}, {:?}", status.ha_status, status.election);
        Ok(())
    })
    .unwrap();
}
