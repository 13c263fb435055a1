//! The program in the place of Lighthouse's.

use std::os::unix::fs::symlink;
use std::time::Duration;

use trieste_tests::daemon::Daemon;
use trieste_tests::guard::root_test;
use trieste_tests::programs;
use trieste_tests::wait::eventually;

use super::{Bed, SERVER, START, WEB};

#[test]
fn lighthouses_name_takes_its_arguments_and_its_corefile() {
    let Some(_turn) = root_test("lighthouses_name_takes_its_arguments_and_its_corefile") else { return };
    let bed = Bed::with_services();
    let program = bed.lab.directory().join("lighthouse-coredns");
    symlink(programs::path("trieste-discovery").unwrap(), &program).unwrap();
    let version = bed.server.run(program.to_str().unwrap()).arg("-subm-version").stdout().unwrap();
    assert!(version.starts_with("submariner-lighthouse-coredns version: v"), "{version}");

    let corefile = bed.lab.directory().join("Corefile");
    let block = |zone: &str| {
        format!(
            "{zone}:53 {{\n  lighthouse {{\n    ttl 30\n  }}\n  errors\n  health\n  ready\n  prometheus :9153\n}}\n"
        )
    };
    std::fs::write(&corefile, block("clusterset.local") + &block("example.org")).unwrap();
    let run = bed
        .server
        .run("env")
        .args(["SUBMARINER_CLUSTERID=west", "SUBMARINER_NAMESPACE="])
        .arg(format!("TRIESTE_STORE=dir:{}", bed.store.display()))
        .arg(&program)
        .args(["-conf"])
        .arg(&corefile);
    let daemon = Daemon::start(&bed.lab, "lighthouse", &run).unwrap();
    eventually("a server that is ready", START, || {
        daemon.check()?;
        bed.page(8181, "/ready")
    })
    .unwrap();
    let answer =
        bed.client.run("dig").args([&format!("@{SERVER}"), "+noall", "+answer", WEB]).stdout().unwrap();
    assert!(answer.split_whitespace().nth(1) == Some("30"), "{answer}");
    assert_eq!(bed.dig(&[&format!("@{SERVER}"), "web.shop.svc.example.org"]).len(), 1);
    let series = "submariner_service_discovery_query{destination_cluster=\"east\",\
                  destination_service_ip=\"10.2.0.1\",destination_service_name=\"web\",\
                  destination_service_namespace=\"shop\",source_cluster=\"west\"}";
    assert_eq!(bed.metric(series), 1);
    assert!(daemon.stop_within(Duration::from_secs(5)).unwrap());

    std::fs::write(&corefile, "clusterset.local:53 {\n  lighthouse\n  forward . 10.0.0.1\n}\n").unwrap();
    let refused = run.output().unwrap();
    assert!(!refused.status.success() && refused.stderr.contains("forward"), "{}", refused.stderr);
}
