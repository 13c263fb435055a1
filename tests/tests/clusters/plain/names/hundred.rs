//! An answer of a hundred records, which no datagram holds: by TCP, and by the resolvers of C libraries.

use std::net::IpAddr;

use serde_json::json;
use trieste_tests::clusters::{Asker, C_LIBRARIES, Pod, RESPONDER_PORT};

use crate::shared::{SOON, Two};

const SERVICE: &str = "hundred";
const NAME: &str = "hundred.default.svc.clusterset.local";
/// How many addresses fit into a datagram of 512 bytes, beside header and question.
const IN_A_DATAGRAM: usize = (512 - 12 - NAME.len() - 6) / 16;

/// Gives a server of the other cluster a hundred addresses of its pod network, and exports them.
pub(super) fn answered(two: &Two, asker: &Pod, server: &Pod) {
    let west = two.west();
    let IpAddr::V4(first) = server.addresses[0] else { panic!("{:?} begins with IPv6", server.addresses) };
    let [a, b, c, _] = first.octets();
    let addresses: Vec<String> = (101..=200).map(|number| format!("{a}.{b}.{c}.{number}")).collect();
    let lines: Vec<String> =
        addresses.iter().map(|address| format!("addr add {address}/32 dev eth0")).collect();
    server.netns().ip(&lines.join("\n")).unwrap();
    let ports = json!([{"name": "tcp", "port": RESPONDER_PORT, "protocol": "TCP"}]);
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    for object in [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": "default"},
            "spec": {"clusterIP": "None", "ports": ports}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": SERVICE, "namespace": "default", "labels": {"kubernetes.io/service-name": SERVICE}},
            "endpoints": endpoints, "ports": ports}),
    ] {
        west.client().apply(&object).unwrap();
    }
    two.set.export(west, "export", SERVICE).unwrap();

    let client = Asker::new(two.east(), asker).unwrap();
    client.wait_records(&["+tcp", NAME], &addresses, SOON).unwrap();
    // Over UDP, then over TCP.
    client.wait_records(&["+notcp", NAME], &addresses, SOON).unwrap();
    let cut = client.dig(&["+ignore", NAME]).unwrap();
    assert!(cut.contains("flags: qr aa tc") || cut.contains("flags: qr tc"), "{cut}");
    assert_eq!(client.records(&["SRV", &format!("_tcp._tcp.{NAME}")]).unwrap().len(), addresses.len());
    asker.reach(NAME, RESPONDER_PORT).unwrap();
    for (library, compiler) in C_LIBRARIES {
        resolved(two, asker, &addresses, library, compiler);
    }
    two.set.export(west, "unexport", SERVICE).unwrap();
    west.kubectl(&["delete", "service,endpointslice", SERVICE]).unwrap().success().unwrap();
    two.say("a hundred records");
}

/// A program of this C library has all of them, or where it knows no TCP (musl before 1.2.4) what a datagram holds; and
/// reaches one.
fn resolved(two: &Two, asker: &Pod, addresses: &[String], library: &str, compiler: &str) {
    let program = asker.install_resolver(compiler).unwrap();
    let told = asker.exec(&[&program, NAME, &RESPONDER_PORT.to_string()]).unwrap().success().unwrap();
    let mut found: Vec<&str> = told.lines().collect();
    let reached = found.pop().and_then(|line| line.strip_prefix("reached ")).unwrap_or_default().to_owned();
    found.sort_unstable();
    found.dedup();
    let is_known = |one: &str| addresses.iter().any(|address| address == one);
    assert!(is_known(&reached) && found.iter().all(|one| is_known(one)), "{library}: {told}");
    let is_whole = found.len() == addresses.len();
    assert!(is_whole || library == "musl" && found.len() == IN_A_DATAGRAM, "{library}: {told}");
    two.say(&format!("{library} has {} addresses", found.len()));
}
