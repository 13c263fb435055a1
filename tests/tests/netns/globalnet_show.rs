//! What an operator sees of translation: the state of Globalnet, what becomes of a packet, and metrics; before and after
//! a restart of the gateway with another number of workers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use trieste_tests::cluster::{Cluster, Settings};
use trieste_tests::flow::{Stream, TcpEcho};
use trieste_tests::globalnet::Scene;
use trieste_tests::guard::root_test;
use trieste_tests::pages;
use trieste_tests::wait::eventually;

/// How soon numbers and sessions must be seen.
const SOON: Duration = Duration::from_secs(60);

fn asked(cluster: &Cluster, words: &[&str]) -> String {
    cluster.trieste(words).unwrap().output().unwrap().stdout
}

fn shown(cluster: &Cluster) -> Value {
    serde_json::from_str(&asked(cluster, &["show", "globalnet", "--output", "json"])).unwrap()
}

fn traced(cluster: &Cluster, from: Ipv4Addr, to: Ipv4Addr, more: &[&str]) -> Value {
    let (from, to) = (from.to_string(), to.to_string());
    let words = [&["trace", &from, &to, "--output", "json"], more].concat();
    serde_json::from_str(&asked(cluster, &words)).unwrap()
}

fn v4(address: SocketAddr) -> Ipv4Addr {
    let std::net::IpAddr::V4(address) = address.ip() else { panic!("IPv4 was asked for") };
    address
}

#[test]
fn what_is_translated_is_shown_traced_and_counted_before_and_after_a_restart() {
    let name = "what_is_translated_is_shown_traced_and_counted_before_and_after_a_restart";
    let Some(_turn) = root_test(name) else { return };
    let mut scene = Scene::start(&[]).unwrap();
    let server = scene.west.worker.server.clone();
    let echo = TcpEcho::start(&server.netns, 0).unwrap();
    let to = SocketAddr::new(server.headless.ip(), echo.port());
    let stream = Stream::start(&scene.east.worker.plain.netns, to, 1 << 10).unwrap();
    stream.wait_on(SOON).unwrap();
    let seen = stream.seen_as();

    eventually("the session to be counted", SOON, || {
        let sessions = shown(&scene.pair.east)["workers"][0]["sessions"].as_u64();
        anyhow::ensure!(sessions.is_some_and(|count| count > 0), "{sessions:?}");
        Ok(())
    })
    .unwrap();
    // The state that is translated by is read before it is written to.
    let state = eventually("the controllers to write", SOON, || {
        let state = shown(&scene.pair.east);
        anyhow::ensure!(state["controllers"]["is_running"] == true, "{}", state["controllers"]);
        Ok(state)
    })
    .unwrap();
    // What the page shows is their rest: until it comes, and at each retry after, they are writing.
    let table = eventually("the controllers to have written", SOON, || {
        let table = asked(&scene.pair.east, &["show", "globalnet"]);
        anyhow::ensure!(table.contains("  controllers run here, settled"), "{table}");
        Ok(table)
    })
    .unwrap();
    assert_eq!(state["pools"][0]["cidr"], "242.1.0.0/16");
    assert_eq!(state["pools"][0]["cluster_egress"], 8);
    let classes: Vec<&str> =
        state["egress"].as_array().unwrap().iter().filter_map(|rule| rule["class"].as_str()).collect();
    let mut sorted = classes.clone();
    let order = ["pods", "headless-pod", "headless-endpoints", "namespace", "cluster"];
    sorted.sort_by_key(|class| order.iter().position(|known| known == class));
    assert_eq!(classes, sorted, "rules stand in the order in which they count");
    let page = pages::read("docs/operations/globalnet.md").unwrap();
    let mut missing = pages::missing_below(&page, "Globalnet", &table);
    // Packets that came before there were addresses are refused, and counted.
    missing.retain(|line| !line.starts_with("  refused"));
    assert_eq!(missing, [""; 0], "{table}");
    for word in ["run here", "EGRESS", "cluster-egress.submariner.io", "INGRESS", "ClusterGlobalEgressIP"] {
        assert!(table.contains(word), "{word} is missing in:\n{table}");
    }

    let ports = [to.port().to_string(), seen.port().to_string()];
    let answer = ["--inbound", "--sport", &ports[0], "--dport", &ports[1]];
    let live = traced(&scene.pair.east, v4(to), v4(seen), &answer);
    assert_eq!(live["is_live"], true, "{live:#}");
    let inside = live["result"]["to"].as_str().unwrap().to_owned();
    assert!(inside.starts_with("10.1."), "{live:#}");
    let first = traced(&scene.pair.east, inside.parse().unwrap(), v4(to), &["--sport", "7", "--dport", "7"]);
    assert_eq!((&first["is_live"], &first["dropped"]), (&Value::from(false), &Value::Null), "{first:#}");
    assert_eq!(first["result"]["from"], v4(seen).to_string(), "one pod, one address: {first:#}");
    let words = ["trace", &inside, &v4(to).to_string(), "--sport", "41000", "--dport", "80"];
    let text = asked(&scene.pair.east, &words);
    assert_eq!(pages::missing(&page, "trieste trace", &text), [""; 0], "{text}");
    let nowhere = traced(&scene.pair.east, inside.parse().unwrap(), Ipv4Addr::new(192, 0, 2, 1), &[]);
    assert_eq!(nowhere["dropped"], "no_route", "{nowhere:#}");
    let stranger = traced(&scene.pair.east, Ipv4Addr::new(192, 0, 2, 1), v4(to), &[]);
    assert_eq!(stranger["dropped"], "source_not_local", "{stranger:#}");

    scene.pair.east.kill_gateway().unwrap();
    let mut settings = Settings::of(&scene.pair.lab);
    settings.extra = vec!["workers: 2".to_owned()];
    scene.pair.east.configure(&settings).unwrap();
    scene.pair.east.start_gateway().unwrap();
    stream.wait_on(Duration::from_secs(60)).unwrap();
    eventually("what was restored to be told", SOON, || {
        let restored = shown(&scene.pair.east)["snapshot"]["restored"].as_u64();
        anyhow::ensure!(restored.is_some_and(|count| count > 0), "{restored:?}");
        Ok(())
    })
    .unwrap();
    let live = traced(&scene.pair.east, v4(to), v4(seen), &answer);
    assert_eq!((&live["is_live"], live["result"]["to"].as_str()), (&Value::from(true), Some(&*inside)));
    assert_eq!(echo.accepted(), 1, "the connection was made anew");
    stream.finish().unwrap();
}
