use super::*;

const NOW: &str = "2026-11-21T05:50:38Z";

/// A gateway to which something of everything has happened.
const TROUBLED: &str = r#"{"version":"1.2","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"a-gw1",
    "haStatus":"active","endpoint":{"cluster_id":"a","cable_name":"c","hostname":"a-gw1","subnets":["10.1.0.0/16"],
    "private_ip":"10.0.0.1","public_ip":"192.0.2.1","backend":"wireguard"},
    "workers":[{"id":0,"cpu":null,"state":"running","packets":5,"restarts":1,"last_error":"injected"}],
    "io":[{"feature":"tun-uso","state":"off","reason":"kernel 6.1 lacks it"},{"feature":"udp-gso","state":"on"}],
    "xdp":{"interface":"eth0","mode":"native","isAside":true,"steps":[{"mode":"zero-copy","cause":"not_supported",
    "reason":"Operation not supported"}],"workers":[{"id":0,"receivedInPlace":100,"receivedCopied":20,"sentInPlace":3,
    "sentCopied":400,"partialChecksums":0,"bySockets":{"oversized":1,"unresolved":7},"kernelDrops":5,"badDescriptors":0,
    "wakeups":9,"reopened":0}]},
    "connections":[{"status":"error","statusMessage":"no answer","endpoint":{"cluster_id":"b","cable_name":"c",
    "hostname":"b-gw1","subnets":[],"private_ip":"10.0.0.2","backend":"wireguard"},
    "latencyRTT":{"last":"3ms","min":"1ms","average":"2ms","max":"9ms","stdDev":"1ms"},
    "discovery":{"state":"fallback","message":"nobody answered within 60s"},
    "health":{"status":"error","message":"Failed to successfully ping","address":"10.2.0.1","sent":40,"received":33},
    "lane":{"rx_bytes":2048,"tx_bytes":1,"last_handshake_age_s":12.4,"outer_address":"[fd00::2]:4500"}}],
    "drops":[{"reason":"replay","cable":"c","worker":0,"packets":3}],
    "refused":[{"cluster":"z","reason":"subnet 10.1.0.0/16 overlaps our own"}],
    "broker":{"state":"away","since":"2026-11-21T05:48:28Z","error":"gone","next_try":"2026-11-21T05:50:40Z"},
    "store":{"state":"synced","since":"2026-11-21T05:48:30Z"},
    "election":{"lease":"ns/lock","identity":"a-gw1-x","holder":"a-gw2-x","is_leader":false,"term":4,
    "since":"2026-11-21T05:50:00Z","error":"cannot get the Lease"},
    "conditions":[{"name":"EventsNotWritten","severity":"info","message":"no right","since":"2026-11-21T05:50:28Z"},
    {"name":"UnknownNodeSetting","severity":"error","subject":"Node a-gw1","message":"udp-prot","since":"2026-11-21T05:49:38Z"}],
    "events":[{"time":"2026-11-21T05:48:38Z","severity":"info","reason":"LeadershipAcquired","message":"won","count":1},
    {"time":"2026-11-21T05:50:00Z","severity":"warning","reason":"LeadershipLost","message":"lost","count":2}],
    "conservation":{"in":5,"made":0,"out":2,"held":0,"dropped":3}}"#;

fn described(text: &str, is_verbose: bool) -> String {
    let status: GatewayStatus = serde_json::from_str(text).unwrap();
    describe(&status, is_verbose, NOW.parse().unwrap())
}

#[test]
fn a_status_says_what_is_up_and_what_is_not() {
    let described = described(TROUBLED, false);
    for expected in [
        "Gateway a-gw1 of cluster \"a\", active",
        "up 2m10s",
        "10.0.0.1 (public 192.0.2.1) over wireguard",
        "  store      synced for 2m8s\n",
        "away for 2m10s: gone (next try in 2s)",
        "  election   stands by; a-gw2-x leads, term 4, for 38s (Lease ns/lock): cannot get the Lease\n",
        "  conditions 1 error, 1 info\n",
        "in 5 + made 0 = out 2 + held 0 + dropped 3\n",
        "[fd00::2]:4500   fallback   12 s ago    2.0 KiB",
        "fallback   nobody answered within 60s",
        "10.2.0.1   error     3ms    2ms       1ms   9ms   7 of 40   Failed to successfully ping",
        "injected",
        "kernel 6.1 lacks it",
        "eth0        native   0        120        403    420      oversized 1, unresolved 7   5         no zero-copy: Operation not \
         supported; the host's IPsec policies are about what arrives: it goes through the kernel",
        "replay",
        "overlaps our own",
        "LeadershipLost       lost (2 times)",
    ] {
        assert!(described.contains(expected), "{expected:?} is missing in:\n{described}");
    }
    assert!(
        described.lines().all(|line| line == line.trim_end()),
        "blanks at the end of a line:\n{described}"
    );
    assert!(!described.contains("udp-gso"), "a feature that is in use is left out:\n{described}");
    let (error, info) = (described.find("UnknownNodeSetting"), described.find("EventsNotWritten"));
    assert!(error.unwrap() < info.unwrap(), "the worst condition comes first:\n{described}");
    let (lost, won) = (described.find("LeadershipLost"), described.find("LeadershipAcquired"));
    assert!(lost.unwrap() < won.unwrap(), "the newest event comes first:\n{described}");
}

#[test]
fn when_all_is_well_it_is_short_and_all_of_it_is_there_when_asked_for() {
    let well = r#"{"version":"1.2","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"a-gw1",
        "haStatus":"active","endpoint":{"cluster_id":"a","cable_name":"c","hostname":"a-gw1","subnets":["10.1.0.0/16"],
        "private_ip":"10.0.0.1","backend":"wireguard"},
        "workers":[{"id":0,"cpu":0,"state":"running","packets":5,"restarts":0}],
        "io":[{"feature":"udp-gso","state":"on"}],
        "connections":[{"status":"connected","statusMessage":"","endpoint":{"cluster_id":"b","cable_name":"c",
        "hostname":"b-gw1","subnets":[],"private_ip":"10.0.0.2","backend":"wireguard"},"lane":{"rx_bytes":1,"tx_bytes":1},
        "discovery":{"state":"private","message":"it answered"}}],
        "election":{"lease":"ns/lock","identity":"a-gw1-x","holder":"a-gw1-x","is_leader":true,"term":3}}"#;
    let short = described(well, false);
    assert!(short.contains("  election   leads, term 3 (Lease ns/lock)\n  packets"), "{short}");
    assert!(short.contains("  conditions none\n\nCables\n"), "{short}");
    assert!(short.lines().count() <= 12, "{short}");
    let long = described(well, true);
    for title in [
        "Conditions",
        "NAT discovery",
        "Health",
        "Refused clusters",
        "Workers",
        "Packet I/O",
        "Drops",
        "Events",
    ] {
        assert!(long.contains(&format!("\n{title}\n")), "{title} is missing in:\n{long}");
        assert!(!short.contains(&format!("\n{title}\n")), "{title} is in:\n{short}");
    }
    assert!(long.contains("it answered"), "{long}");
}

#[test]
fn siblings_have_cables_and_paths_of_their_own() {
    let text = r#"{"version":"1.2","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"a-gw1",
        "haStatus":"active","endpoint":{"cluster_id":"a","cable_name":"c","hostname":"a-gw1","subnets":["10.1.0.0/16"],
        "private_ip":"10.0.0.1","backend":"wireguard"},
        "siblings":[{"status":"connected","statusMessage":"","endpoint":{"cluster_id":"a","cable_name":"d",
        "hostname":"a-gw2","subnets":[],"private_ip":"10.0.0.2","backend":"wireguard"},"lane":{"rx_bytes":1,"tx_bytes":1},
        "path":{"state":"held","since_s":3,"held_for_s":1,"transitions":3,"loss_in":0,"loss_out":0,"timeout_ms":75,
        "probes_sent":1,"probes_received":1,"probes_missing":0}}]}"#;
    let text = described(text, false);
    let section = |title: &str| text.split_once(&format!("\n{title}\n")).map(|(_, rows)| rows.to_owned());
    assert!(section("Cables to siblings").is_some_and(|rows| rows.contains("a-gw2")), "{text}");
    assert!(section("Paths").is_some_and(|rows| rows.contains("held (1 s more)")), "{text}");
}

#[test]
fn a_passive_gateway_that_knows_no_leader_says_so() {
    let nobody = ElectionStatus {
        lease: "ns/lock".to_owned(),
        identity: "me".to_owned(),
        ..ElectionStatus::default()
    };
    let now = NOW.parse().unwrap();
    assert_eq!(election(&nobody, now), "nobody leads as far as is known (Lease ns/lock)");
    let stale = ElectionStatus { holder: "me".to_owned(), term: 2, ..nobody };
    assert_eq!(
        election(&stale, now),
        "does not lead; the Lease still names this gateway, term 2 (Lease ns/lock)"
    );
}
