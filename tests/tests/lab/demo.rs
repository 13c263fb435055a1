//! `trieste-lab demo` from outside: it works, and it leaves nothing behind, however it ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use trieste_tests::command::Run;
use trieste_tests::guard::root_test;
use trieste_tests::process::ProcessId;
use trieste_tests::programs;
use trieste_tests::wait::eventually;

#[test]
fn the_demo_shows_what_it_claims_and_leaves_nothing() {
    let Some(_turn) = root_test("the_demo_shows_what_it_claims_and_leaves_nothing") else { return };
    shows_what_it_claims(&[], "a WireGuard message");
}

#[test]
fn the_demo_with_ipsec_shows_what_it_claims_and_leaves_nothing() {
    let Some(_turn) = root_test("the_demo_with_ipsec_shows_what_it_claims_and_leaves_nothing") else {
        return;
    };
    shows_what_it_claims(&["--cable", "ipsec"], "an ESP packet or an IKE message");
}

#[test]
fn the_demo_of_clusters_with_the_same_addresses_shows_what_it_claims_and_leaves_nothing() {
    let name = "the_demo_of_clusters_with_the_same_addresses_shows_what_it_claims_and_leaves_nothing";
    let Some(_turn) = root_test(name) else { return };
    let run = Run::new(programs::path("trieste-lab").unwrap()).args(["demo", "--globalnet"]);

    let told = run.timeout(Duration::from_secs(180)).stdout().unwrap();

    for claim in [
        "known to others as 242.1.0.0/16",
        "one of the cluster's 242.1.0.1-242.1.0.8",
        "one of its GlobalEgressIP's",
        "the address at which it is asked",
        "every one the cable's",
        "GLOBAL",
        "nothing left behind",
    ] {
        assert!(told.contains(claim), "\"{claim}\" is missing in:\n{told}");
    }
    let id = told.split_once("(lab ").unwrap().1.split_once(')').unwrap().0;
    assert_eq!(traces(id), Vec::<String>::new());
}

#[test]
fn plugin_ovn_demo_shows_what_it_claims_and_leaves_nothing() {
    let name = "plugin_ovn_demo_shows_what_it_claims_and_leaves_nothing";
    let Some(_turn) = root_test(name) else { return };
    shows_with_plugin(
        "ovn",
        &["the worker is started and repairs them", "nothing of it was on the WAN in clear"],
    );
}

#[test]
fn plugin_macvlan_demo_shows_what_it_claims_and_leaves_nothing() {
    let name = "plugin_macvlan_demo_shows_what_it_claims_and_leaves_nothing";
    let Some(_turn) = root_test(name) else { return };
    let claims =
        ["services of west, by their cluster IPs", "nothing of it was between the clusters in clear"];
    shows_with_plugin("macvlan", &claims);
}

/// Runs the demo of a network plugin, which ends with an error if a step of it fails.
fn shows_with_plugin(plugin: &str, claims: &[&str]) {
    let run = Run::new(programs::path("trieste-lab").unwrap()).args(["demo", "--plugin", plugin]);

    let told = run.timeout(Duration::from_secs(180)).stdout().unwrap();

    for claim in claims.iter().chain(&["nothing left behind"]) {
        assert!(told.contains(claim), "\"{claim}\" is missing in:\n{told}");
    }
    let id = told.split_once("(lab ").unwrap().1.split_once(')').unwrap().0;
    assert_eq!(traces(id), Vec::<String>::new());
}

#[test]
fn the_demo_of_service_discovery_shows_what_it_claims_and_leaves_nothing() {
    let name = "the_demo_of_service_discovery_shows_what_it_claims_and_leaves_nothing";
    let Some(_turn) = root_test(name) else { return };
    let run = Run::new(programs::path("trieste-lab").unwrap()).args(["demo", "--discovery"]);

    let told = run.timeout(Duration::from_secs(180)).stdout().unwrap();

    // The address is of the one whose export the broker has seen first.
    let is_led =
        ["243.0.2.1", "243.0.3.1"].iter().any(|ip| told.contains(&format!("{ip}, in every cluster")));
    assert!(is_led, "no clusterset IP in:\n{told}");
    for claim in ["; seen as 10.1.1.10", "south 20;", "nothing left behind"] {
        assert!(told.contains(claim), "\"{claim}\" is missing in:\n{told}");
    }
    let id = told.split_once("(lab ").unwrap().1.split_once(')').unwrap().0;
    assert_eq!(traces(id), Vec::<String>::new());
}

fn shows_what_it_claims(options: &[&str], frames: &str) {
    let lab = programs::path("trieste-lab").unwrap();
    let run = Run::new(lab).arg("demo").args(options).timeout(Duration::from_secs(120));

    let told = run.stdout().unwrap();

    assert!(told.contains(frames), "\"{frames}\" is missing in:\n{told}");

    for claim in
        ["connected", "5 of 5 answered", "arrived unchanged", "Gbit/s", "GATEWAY", "nothing left behind"]
    {
        assert!(told.contains(claim), "\"{claim}\" is missing in:\n{told}");
    }
    let id = told.split_once("(lab ").unwrap().1.split_once(')').unwrap().0;
    assert_eq!(traces(id), Vec::<String>::new());
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let Some(_turn) = root_test("an_interrupted_demo_leaves_nothing") else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut demo, id) = start_demo();
        ProcessId::of(demo.id().cast_signed()).unwrap().signal(signal).unwrap();

        let status = demo.wait().unwrap();

        assert_eq!(status.code(), Some(130));
        assert_eq!(traces(&id), Vec::<String>::new(), "after {signal}");
    }
}

#[test]
fn what_a_crashed_demo_leaves_is_removed_by_the_next_run() {
    let Some(_turn) = root_test("what_a_crashed_demo_leaves_is_removed_by_the_next_run") else { return };
    let (mut demo, id) = start_demo();
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert!(traces(&id).len() > 3, "a crash that leaves nothing tests nothing: {:?}", traces(&id));

    Run::new(programs::path("trieste-lab").unwrap()).args(["clean", "--crashed"]).stdout().unwrap();

    assert_eq!(traces(&id), Vec::<String>::new());
}

#[test]
fn a_running_demo_is_not_taken_for_a_crashed_one() {
    let Some(_turn) = root_test("a_running_demo_is_not_taken_for_a_crashed_one") else { return };
    let (mut demo, id) = start_demo();

    Run::new(programs::path("trieste-lab").unwrap()).arg("clean").stdout().unwrap();

    assert!(!traces(&id).is_empty());
    ProcessId::of(demo.id().cast_signed()).unwrap().signal(Signal::SIGINT).unwrap();
    demo.wait().unwrap();
    assert_eq!(traces(&id), Vec::<String>::new());
}

/// Starts a demo and returns once its gateways run, with the lab's name.
fn start_demo() -> (Child, String) {
    let program = programs::path("trieste-lab").unwrap();
    let mut demo =
        Command::new(program).arg("demo").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let id = loop {
        let line = lines.next().expect("the demo says its lab's name").unwrap();
        if let Some((_, rest)) = line.split_once("(lab ") {
            break rest.split_once(')').unwrap().0.to_owned();
        }
    };
    // Its output is read to the end, or it would stop at a full pipe.
    std::thread::spawn(move || lines.count());
    eventually("the demo's gateways to run", Duration::from_secs(20), || {
        let running = processes(&id).into_iter().filter(|name| name.contains("trieste-gateway")).count();
        anyhow::ensure!(running == 2, "{running} gateways run");
        Ok(())
    })
    .unwrap();
    (demo, id)
}

/// Everything on this machine that carries a lab's name.
fn traces(id: &str) -> Vec<String> {
    let mut traces = processes(id);
    for folder in ["/run/netns", "/run/trieste-lab", "/tmp", "/var/run/wireguard"] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        traces.extend(names.filter(|name| name.starts_with(id)).map(|name| format!("{folder}/{name}")));
    }
    traces
}

/// Command lines that name the lab.
fn processes(id: &str) -> Vec<String> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name().to_string_lossy().into_owned();
        name.parse::<i32>().ok()
    });
    let lines = pids.filter_map(|pid| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        ProcessId::of(pid).ok().filter(|process| process.is_running())?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    lines.filter(|line| line.contains(id)).collect()
}
