use super::*;
use serde_json::json;

fn ruleset() -> Value {
    json!({"nftables": [
        {"metainfo": {"version": "1.0.6"}},
        {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter", "hook": "forward",
            "policy": "drop"}},
        {"chain": {"family": "ip", "table": "filter", "name": "MINE"}},
        {"rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "handle": 3,
            "expr": [{"jump": {"target": "MINE"}}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "MINE", "handle": 4, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}},
                "right": {"set": [4500, {"range": [4800, 4900]}]}}},
            {"counter": {"packets": 7, "bytes": 9}}, {"drop": null}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "MINE", "handle": 5, "expr": [
            {"match": {"op": "!=", "left": {"payload": {"protocol": "ip", "field": "saddr"}},
                "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}},
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth*"}},
            {"reject": {"type": "icmp"}}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "MINE", "handle": 6, "expr": [
            {"xt": {"type": "match", "name": "conntrack"}}, {"counter": {"packets": 0}}, {"drop": null}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "LOST", "handle": 7, "expr": [{"drop": null}]}},
        {"counter": {"family": "inet", "table": "trieste", "name": "spoofed4", "packets": 5, "bytes": 1}},
        {"counter": {"family": "inet", "table": "else", "name": "x", "packets": 5, "bytes": 1}},
        {"rule": {"family": "inet", "table": "trieste", "chain": "source-guard", "expr": [{"drop": null}]}},
    ]})
}

fn facts<'a>(protocol: &'a str, port: Option<u16>, source: &str) -> PacketFacts<'a> {
    let source = source.parse().ok();
    PacketFacts { protocol, port, source, from: Some("eth0"), ..PacketFacts::default() }
}

#[test]
fn rules_that_drop_are_kept_with_what_they_ask_for() {
    let filters = parse(&ruleset());
    assert_eq!(filters.drops.len(), 4);
    let rule = &filters.drops[0];
    assert_eq!((rule.chain.as_str(), rule.handle, rule.packets), ("ip filter MINE", 4, Some(7)));
    assert_eq!(rule.text, "udp dport 4500, 4800-4900 drop");
    assert_eq!(rule.takes("forward", &facts("udp", Some(4850), "1.1.1.1")), Takes::Yes);
    assert_eq!(rule.takes("forward", &facts("udp", Some(4490), "1.1.1.1")), Takes::No);
    assert_eq!(rule.takes("forward", &facts("tcp", Some(4500), "1.1.1.1")), Takes::No);
    assert_eq!(rule.takes("input", &facts("udp", Some(4500), "1.1.1.1")), Takes::No);
}

#[test]
fn addresses_and_devices_are_compared_as_nft_does() {
    let rule = &parse(&ruleset()).drops[1];
    assert_eq!(rule.takes("forward", &facts("icmp", None, "11.0.0.1")), Takes::Yes);
    assert_eq!(rule.takes("forward", &facts("icmp", None, "10.0.0.1")), Takes::No);
    let by_another = PacketFacts { from: Some("vx-submariner"), ..facts("icmp", None, "11.0.0.1") };
    assert_eq!(rule.takes("forward", &by_another), Takes::No);
}

#[test]
fn a_rule_that_is_not_understood_may_take_a_packet() {
    let filters = parse(&ruleset());
    assert_eq!(filters.drops[2].takes("forward", &facts("icmp", None, "1.1.1.1")), Takes::Perhaps);
    assert_eq!(
        filters.drops[3].takes("forward", &facts("icmp", None, "1.1.1.1")),
        Takes::No,
        "nobody goes there"
    );
}

#[test]
fn policies_and_our_own_counters_are_kept() {
    let filters = parse(&ruleset());
    assert_eq!(filters.closed, [ClosedChain { name: "ip filter FORWARD".into(), hook: "forward".into() }]);
    assert_eq!(filters.counters.into_iter().collect::<Vec<_>>(), [("spoofed4".to_owned(), 5)]);
}

#[test]
fn nonsense_is_an_empty_ruleset() {
    for json in [json!(null), json!({"nftables": 5}), json!({"nftables": [1, {"rule": 2}, {"chain": []}]})] {
        let filters = parse(&json);
        assert!(filters.drops.is_empty() && filters.closed.is_empty());
    }
}
