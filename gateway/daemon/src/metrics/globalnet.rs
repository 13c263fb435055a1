//! Globalnet: upstream's counts of addresses, and what is translated.

use trieste_control::admin::{GlobalnetStatus, PoolStatus};
use trieste_control::exposition::{Family, Kind, Page};

use super::ours::{counter, gauge};

/// Upstream's names and help texts, which are API, with what each counts.
type Counted = (&'static str, &'static str, fn(&PoolStatus) -> u64);

const UPSTREAM: [Counted; 5] = [
    (
        "submariner_cluster_global_egress_IP_allocated",
        "Count of global Egress IPs allocated for clusters per CIDR",
        |pool| pool.cluster_egress,
    ),
    ("submariner_global_IP_allocated", "Count of global IPs allocated for Pods/Services per CIDR", |pool| {
        pool.allocated
    }),
    ("submariner_global_IP_availability", "Count of available global IPs per CIDR", |pool| pool.available),
    (
        "submariner_global_egress_IP_allocated",
        "Count of global Egress IPs allocated for Pods/Services per CIDR",
        |pool| pool.egress,
    ),
    (
        "submariner_global_ingress_IP_allocated",
        "Count of global Ingress IPs allocated for Pods/Services per CIDR",
        |pool| pool.ingress,
    ),
];

pub(super) fn render(page: &mut Page, status: &GlobalnetStatus) {
    for (name, help, count) in UPSTREAM {
        let mut family = Family::new(Kind::Gauge, name, help);
        for pool in &status.pools {
            family.set(&[("cidr", &pool.cidr)], count(pool));
        }
        page.add(family);
    }
    page.add(
        gauge("trieste_globalnet_controllers", "Whether this gateway allocates its cluster's global IPs")
            .with(status.controllers.is_running),
    );
    page.add(
        gauge("trieste_globalnet_refused_rules", "Rules that objects ask for and that cannot be")
            .with(status.refused_rules.len() as u64),
    );
    workers(page, status);
    rules(page, status);
    sharing(page, status);
    snapshot(page, status);
}

fn workers(page: &mut Page, status: &GlobalnetStatus) {
    let mut sessions = gauge("trieste_nat_sessions", "Translated sessions of a worker");
    let mut limit = gauge("trieste_nat_session_limit", "Most translated sessions that a worker may have");
    let mut mappings = gauge("trieste_nat_mappings", "Mappings of inside addresses and ports to global ones");
    let mut shared = gauge("trieste_nat_shared_ports", "Mappings that share their port with another one");
    let mut turnover = counter("trieste_nat_sessions_total", "Sessions that a worker has begun and ended");
    for worker in &status.workers {
        let id = worker.worker.to_string();
        let labels = [("worker", id.as_str())];
        sessions.set(&labels, worker.sessions);
        limit.set(&labels, worker.max_sessions);
        mappings.set(&labels, worker.mappings);
        shared.set(&labels, worker.shared_ports);
        turnover.set(&[labels[0], ("event", "begun")], worker.begun);
        turnover.set(&[labels[0], ("event", "ended")], worker.ended);
    }
    for family in [sessions, limit, mappings, shared, turnover] {
        page.add(family);
    }
}

fn rules(page: &mut Page, status: &GlobalnetStatus) {
    let mut of_rules =
        gauge("trieste_nat_rule_sessions", "Translated sessions, by the rule that gave them their global IP");
    for rule in &status.egress {
        of_rules.set(&[("class", &rule.class), ("rule", &rule.name)], rule.sessions);
    }
    page.add(of_rules);
    let mut ports =
        gauge("trieste_nat_ports_in_use", "Ports, or ICMP identifiers, of a global IP that are taken");
    for port in &status.ports {
        let address = port.address.to_string();
        ports.set(&[("address", &address), ("protocol", &port.protocol)], port.used);
    }
    page.add(ports);
    let mut refused = counter("trieste_nat_refused_total", "Packets that could not be translated, by reason");
    for failure in &status.failures {
        refused.set(&[("reason", &failure.reason)], failure.packets);
    }
    page.add(refused);
}

fn sharing(page: &mut Page, status: &GlobalnetStatus) {
    let Some(sharing) = &status.sharing else { return };
    page.add(
        gauge("trieste_nat_ready", "Whether this gateway has the sessions that are its and translates")
            .with(sharing.is_ready && !sharing.is_draining),
    );
    page.add(
        gauge("trieste_nat_buckets", "How many of the 64 parts of all connections are this gateway's")
            .with(u64::from(sharing.buckets)),
    );
    page.add(
        counter(
            "trieste_nat_adopted_buckets_total",
            "Parts of all connections taken over from other gateways",
        )
        .with(sharing.adopted),
    );
    let mut copies =
        counter("trieste_nat_copies_total", "Changes of sessions between gateways, by what became of them");
    copies.set(&[("event", "told")], sharing.told);
    copies.set(&[("event", "taken")], sharing.taken);
    copies.set(&[("event", "refused")], sharing.refused);
    copies.set(&[("event", "repeated")], sharing.repeated);
    copies.set(&[("event", "lost")], sharing.lost);
    page.add(copies);
    page.add(
        gauge("trieste_nat_copies_waiting", "Messages about sessions that other gateways have not heard yet")
            .with(sharing.backlog),
    );
    page.add(
        gauge("trieste_nat_ports_waiting", "Ports that wait until other gateways know that they are free")
            .with(sharing.quarantined),
    );
}

fn snapshot(page: &mut Page, status: &GlobalnetStatus) {
    let snapshot = &status.snapshot;
    page.add(
        gauge("trieste_nat_snapshot_bytes", "What is on disk of translated sessions, in bytes")
            .with(snapshot.bytes),
    );
    if let Some(written) = snapshot.written {
        page.add(
            gauge("trieste_nat_snapshot_written_seconds", "When it was last written, in Unix time")
                .with(written.as_duration().as_secs_f64()),
        );
    }
    page.add(
        counter(
            "trieste_nat_snapshot_lost_total",
            "Changes of sessions that did not get to the disk one by one; the next whole snapshot has them",
        )
        .with(snapshot.lost),
    );
    let mut restored =
        gauge("trieste_nat_restored_sessions", "Sessions of the process before, by what became of them");
    restored.set(&[("outcome", "restored")], snapshot.restored);
    restored.set(&[("outcome", "given_up")], snapshot.not_restored);
    page.add(restored);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use trieste_control::admin::{
        ControllersStatus, EgressStatus, FailureCount, NatWorkerStatus, PortUse, RefusedRule, SharingStatus,
        SnapshotStatus,
    };

    /// The answer of upstream's Globalnet, its own metrics only.
    const UPSTREAM_PAGE: &str = "\
# HELP submariner_cluster_global_egress_IP_allocated Count of global Egress IPs allocated for clusters per CIDR
# TYPE submariner_cluster_global_egress_IP_allocated gauge
submariner_cluster_global_egress_IP_allocated{cidr=\"242.1.0.0/16\"} 8
# HELP submariner_global_IP_allocated Count of global IPs allocated for Pods/Services per CIDR
# TYPE submariner_global_IP_allocated gauge
submariner_global_IP_allocated{cidr=\"242.1.0.0/16\"} 14
# HELP submariner_global_IP_availability Count of available global IPs per CIDR
# TYPE submariner_global_IP_availability gauge
submariner_global_IP_availability{cidr=\"242.1.0.0/16\"} 65520
# HELP submariner_global_egress_IP_allocated Count of global Egress IPs allocated for Pods/Services per CIDR
# TYPE submariner_global_egress_IP_allocated gauge
submariner_global_egress_IP_allocated{cidr=\"242.1.0.0/16\"} 3
# HELP submariner_global_ingress_IP_allocated Count of global Ingress IPs allocated for Pods/Services per CIDR
# TYPE submariner_global_ingress_IP_allocated gauge
submariner_global_ingress_IP_allocated{cidr=\"242.1.0.0/16\"} 2
";

    /// Returns the status of a recorded cluster, with every field set.
    pub(in super::super) fn status() -> GlobalnetStatus {
        GlobalnetStatus {
            is_enabled: true,
            controllers: ControllersStatus { is_running: true, ..ControllersStatus::default() },
            pools: vec![PoolStatus {
                cidr: "242.1.0.0/16".to_owned(),
                size: 65_534,
                allocated: 14,
                available: 65_520,
                cluster_egress: 8,
                egress: 3,
                ingress: 2,
                gateways: 1,
            }],
            egress: vec![EgressStatus {
                class: "namespace".to_owned(),
                name: "web/all".to_owned(),
                sessions: 7,
                ..EgressStatus::default()
            }],
            refused_rules: vec![RefusedRule::default()],
            workers: vec![NatWorkerStatus {
                worker: 1,
                sessions: 7,
                max_sessions: 1024,
                mappings: 5,
                shared_ports: 1,
                begun: 9,
                ended: 2,
            }],
            ports: vec![PortUse {
                address: [242, 1, 0, 9].into(),
                protocol: "tcp".to_owned(),
                used: 5,
                of: 65_536,
            }],
            failures: vec![FailureCount { reason: "no_mapping".to_owned(), packets: 3 }],
            snapshot: SnapshotStatus {
                bytes: 300,
                written: Some("2026-11-21T05:50:01Z".parse().unwrap()),
                restored: 6,
                ..SnapshotStatus::default()
            },
            sharing: Some(SharingStatus {
                is_ready: true,
                buckets: 31,
                told: 12,
                ..SharingStatus::default()
            }),
            ..GlobalnetStatus::default()
        }
    }

    #[test]
    fn the_page_begins_with_upstreams_in_its_words() {
        let mut page = Page::default();
        render(&mut page, &status());
        let text = page.into_text();
        assert!(text.starts_with(UPSTREAM_PAGE), "{text}");
        for line in [
            r#"trieste_nat_sessions{worker="1"} 7"#,
            r#"trieste_nat_sessions_total{worker="1",event="ended"} 2"#,
            r#"trieste_nat_rule_sessions{class="namespace",rule="web/all"} 7"#,
            r#"trieste_nat_ports_in_use{address="242.1.0.9",protocol="tcp"} 5"#,
            r#"trieste_nat_refused_total{reason="no_mapping"} 3"#,
            r#"trieste_nat_restored_sessions{outcome="restored"} 6"#,
            "trieste_globalnet_refused_rules 1",
            "trieste_nat_buckets 31",
            r#"trieste_nat_copies_total{event="told"} 12"#,
        ] {
            assert!(text.lines().any(|other| other == line), "missing: {line}\nin:\n{text}");
        }
    }
}
