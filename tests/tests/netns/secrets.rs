//! A capture with keys: what two gateways say to each other, as Wireshark's own program reads it with the folder that
//! `trieste capture --with-secrets` has written, and nothing else.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::guard::{root_test, skip};
use trieste_tests::netns::Namespace;
use trieste_tests::pair::{CONNECT_TIMEOUT, Pair};
use trieste_tests::topology::Topology;
use trieste_tests::traffic;
use trieste_tests::wait::eventually;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Exchange type of IKE_AUTH (RFC 7296 section 3.1), and the payload of the initiator's identity.
const IKE_AUTH: &str = "35";
const ID_INITIATOR: &str = "35";
/// The inner protocol of what gateways say to each other inside cables.
const PATH_PROBE: &str = "253";

#[test]
fn tshark_reads_ike_and_every_packet_of_a_capture_with_keys() {
    let name = "tshark_reads_ike_and_every_packet_of_a_capture_with_keys";
    let Some(_turn) = root_test(name) else { return };
    if Run::new("tshark").arg("--version").finish().is_err() {
        return skip(name, "tshark is missing");
    }
    // Debian 12's tshark calls every ICV with extended numbers incorrect.
    let extra = ["cable-driver: ipsec", "ipsec: {esn: false}"];
    let mut pair = Pair::connected_with(&Topology::two_clusters(), &extra).unwrap();
    let file = pair.lab.directory().join("a.pcapng");
    let words = ["capture", "--with-secrets", "--point", "outer-rx,outer-tx", "-w", file.to_str().unwrap()];
    let capture = Daemon::start(&pair.lab, "capture", &pair.east.trieste(&words).unwrap()).unwrap();
    capture.wait_log("capturing from", TIMEOUT).unwrap();
    assert!(pair.east.gateway().unwrap().log_text().contains("the keys of all SAs"));

    // Keys that were there, and keys that come while the capture runs.
    let target = pair.pod("west").ips()[0];
    let ping = |from: &Namespace| {
        eventually("three pings", TIMEOUT, || {
            let received = traffic::ping(from, target, 3, &[])?.received;
            anyhow::ensure!(received == 3, "{received} of 3 were answered");
            Ok(())
        })
    };
    ping(pair.pod_namespace("east")).unwrap();
    pair.west.kill_gateway().unwrap();
    pair.west.start_gateway().unwrap();
    pair.east.wait_connected(1, CONNECT_TIMEOUT).unwrap();
    ping(pair.pod_namespace("east")).unwrap();
    capture.stop().unwrap();

    let folder = pair.lab.directory().join("a.pcapng.secrets");
    for table in ["esp_sa", "ikev2_decryption_table"] {
        let mode = std::fs::metadata(folder.join(table)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{table}");
    }
    let fields =
        ["esp.spi", "esp.icv_good", "icmp.type", "isakmp.exchangetype", "isakmp.typepayload", "ip.proto"];
    let text = read(&file, &folder, &fields);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    let esp: Vec<_> = lines.iter().filter(|line| !line[0].is_empty()).collect();
    let is_ping = |line: &&&Vec<&str>| matches!(line[2], "0" | "8");
    // The gateways' own probes of the path are of a protocol that tshark has no name for.
    let is_opened = |line: &&Vec<&str>| is_ping(&line) || line[5].split(',').any(|inner| inner == PATH_PROBE);
    assert!(esp.iter().all(|line| line[1] == "1" && is_opened(line)), "{text}");
    assert!(esp.iter().filter(is_ping).count() >= 12, "six pings and their answers: {text}");
    let spis: BTreeSet<&str> = esp.iter().map(|line| line[0]).collect();
    assert!(spis.len() >= 4, "both pairs of SAs were used: {text}");
    let auth: Vec<_> = lines.iter().filter(|line| line[3] == IKE_AUTH).collect();
    let is_opened = |line: &&&Vec<&str>| line[4].split(',').any(|payload| payload == ID_INITIATOR);
    assert!(auth.len() >= 2 && auth.iter().filter(is_opened).count() >= auth.len() / 2, "{text}");
}

fn read(file: &Path, folder: &Path, fields: &[&str]) -> String {
    let mut run = Run::new("tshark").env("WIRESHARK_CONFIG_DIR", folder).arg("-r").arg(file);
    run = run.args(["-T", "fields", "-E", "separator=;"]);
    for field in fields {
        run = run.args(["-e", field]);
    }
    run.stdout().unwrap()
}
