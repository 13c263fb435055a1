//! What foreign clients are answered, and how answers follow objects.

use std::time::{Duration, Instant};

use trieste_tests::guard::root_test;
use trieste_tests::wait::eventually;

use super::{Bed, DB, OTHER, SERVER, SERVER_V6, WEB, gateway, import, slice};

/// How soon answers have to follow an object of a directory.
const FOLLOWED: Duration = Duration::from_secs(30);

#[test]
fn dig_and_kdig_are_answered_over_both_transports_and_families() {
    let name = "dig_and_kdig_are_answered_over_both_transports_and_families";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::with_services();
    bed.put(slice("web", "web-c", "east", &[("", "fd02::1")]));
    let _server = bed.start(&[]);
    for program in ["dig", "kdig"] {
        for server in [SERVER, OTHER, SERVER_V6] {
            let at = format!("@{server}");
            // Both ask again over TCP for what is cut off over UDP.
            for transport in ["+rec", "+tcp"] {
                let ask = |name: &str, rtype: &str| bed.short(program, &[&at, transport, name, rtype]);
                // A client that connects its socket takes no answer from another address.
                let web = ask(WEB, "A");
                assert!(web == ["10.2.0.1"] || web == ["10.3.0.1"], "{program} {at} {transport}: {web:?}");
                assert_eq!(ask(WEB, "AAAA"), ["fd02::1"]);
                assert_eq!(ask(&format!("db-7.east.{DB}"), "A"), ["10.2.1.7"]);
                let pods = ask(DB, "A");
                assert_eq!(pods.len(), 100, "{program} {at} {transport}: {pods:?}");
                let srv = ask(&format!("_http._tcp.db-7.east.{DB}"), "SRV");
                assert!(srv.is_empty(), "{srv:?}");
                assert_eq!(ask(&format!("_http._tcp.east.{WEB}"), "SRV"), [format!("0 50 80 east.{WEB}.")]);
            }
        }
    }
    let status = |name: &str| bed.client.run("dig").args([&format!("@{SERVER}"), name]).stdout().unwrap();
    let absent = status("nothing.shop.svc.clusterset.local");
    assert!(absent.contains("NXDOMAIN") && absent.contains("SOA"), "{absent}");
    assert!(status("example.org").contains("REFUSED"));
    assert!(status("clusterset.local").contains("NOERROR"));
    assert_eq!(bed.metric("trieste_dns_services"), 2);
    assert!(bed.metric("trieste_dns_queries_total{transport=\"udp\",type=\"a\",result=\"records\"}") > 0);
    assert!(bed.metric("trieste_dns_queries_total{transport=\"tcp\",type=\"a\",result=\"records\"}") > 0);
    assert_eq!(bed.metric("trieste_dns_truncated_total{transport=\"udp\"}"), 6);
    assert_eq!(bed.metric("trieste_dns_truncated_total{transport=\"tcp\"}"), 0);
}

#[test]
fn answers_follow_objects_and_gateways() {
    let Some(_turn) = root_test("answers_follow_objects_and_gateways") else { return };
    let bed = Bed::with_services();
    bed.put(gateway(&[("east", "connected"), ("south", "connected")]));
    let server = bed.start(&[]);
    let at = format!("@{SERVER}");
    let two = || {
        let mut found: Vec<String> = (0..2).flat_map(|_| bed.dig(&[&at, WEB])).collect();
        found.sort();
        found
    };
    let becomes = |what: &str, expected: &[&str]| {
        let begun = Instant::now();
        eventually(what, FOLLOWED, || {
            let found = two();
            anyhow::ensure!(found == expected, "{found:?}");
            Ok(())
        })
        .unwrap();
        eprintln!("{what}: {:?}", begun.elapsed());
    };
    becomes("both clusters", &["10.2.0.1", "10.3.0.1"]);
    bed.put(gateway(&[("east", "error"), ("south", "connected")]));
    becomes("a cluster cut off", &["10.3.0.1", "10.3.0.1"]);
    bed.put(gateway(&[("east", "connected"), ("south", "connected")]));
    becomes("it is back", &["10.2.0.1", "10.3.0.1"]);
    bed.put(slice("web", "web-d", "west", &[("", "10.1.0.1")]));
    becomes("the own cluster serves", &["10.1.0.1", "10.1.0.1"]);
    bed.delete(&slice("web", "web-d", "west", &[]));
    bed.delete(&slice("web", "web-b", "south", &[]));
    becomes("slices are gone", &["10.2.0.1", "10.2.0.1"]);
    // While the store is away, answers are from memory.
    let hidden = bed.store.with_extension("hidden");
    std::fs::rename(&bed.store, &hidden).unwrap();
    eventually("a store that is away", FOLLOWED, || {
        anyhow::ensure!(bed.metric("trieste_dns_store_away") == 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(two(), ["10.2.0.1", "10.2.0.1"]);
    bed.page(8181, "/ready").unwrap();
    std::fs::rename(&hidden, &bed.store).unwrap();
    eventually("a store that is back", FOLLOWED, || {
        anyhow::ensure!(bed.metric("trieste_dns_store_away") == 0);
        Ok(())
    })
    .unwrap();
    bed.delete(&import("web", &serde_json::json!({})));
    becomes("the import is gone", &[]);
    server.check().unwrap();
}

#[test]
fn a_server_that_ends_is_not_ready_first_and_answers_until_its_end() {
    let name = "a_server_that_ends_is_not_ready_first_and_answers_until_its_end";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::with_services();
    let server = bed.start(&["--drain=3"]);
    let at = format!("@{SERVER}");
    server.id().signal(nix::sys::signal::Signal::SIGTERM).unwrap();
    eventually("a server that is not ready", Duration::from_secs(2), || {
        anyhow::ensure!(bed.page(8181, "/ready").is_err());
        Ok(())
    })
    .unwrap();
    bed.page(8080, "/health").unwrap();
    assert_eq!(bed.dig(&[&at, WEB]).len(), 1);
    assert_eq!(bed.dig(&[&at, "+tcp", WEB]).len(), 1);
    assert!(server.id().wait_end(Duration::from_secs(8)), "it goes on");
    assert!(server.stop().unwrap(), "it ended with an error");
}

#[test]
fn until_all_has_been_read_nothing_is_denied() {
    let Some(_turn) = root_test("until_all_has_been_read_nothing_is_denied") else { return };
    let bed = Bed::new();
    std::fs::write(&bed.store, "no directory").unwrap();
    let run = bed.run("trieste-discovery").arg("dns");
    let daemon = trieste_tests::daemon::Daemon::start(&bed.lab, "dns", &run).unwrap();
    eventually("a page", super::START, || bed.page(8080, "/health")).unwrap();
    let refused = bed.page(8181, "/ready").unwrap_err().to_string();
    assert!(refused.contains("503") && refused.contains("serviceimports"), "{refused}");
    let answer = bed.client.run("dig").args([&format!("@{SERVER}"), WEB]).stdout().unwrap();
    assert!(answer.contains("SERVFAIL"), "{answer}");
    daemon.check().unwrap();
}
