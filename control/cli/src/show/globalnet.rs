//! `trieste show globalnet`: addresses, rules in the order in which they count, sessions, ports, and what is wrong.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use trieste_control::admin::{GLOBALNET_PATH, GlobalnetStatus, PoolStatus, SharingStatus, SnapshotStatus};

use super::SourceArgs;
use crate::gateway::GatewayArgs;
use crate::output::Format;
use crate::output::{Output, printable};
use crate::status::age;
use crate::table::{column, limited, render};

/// Longest list of sources in a row, in characters; all of them are in the other formats.
const SOURCES: usize = 48;

pub(super) async fn run(source: &SourceArgs, format: Format, output: &mut Output) -> anyhow::Result<()> {
    if source.store.is_some() {
        bail!(
            "a store does not tell what is translated: ask a gateway, on its node with --socket, or in its cluster \
             with --context (the objects are in the store as globalegressips, clusterglobalegressips and \
             globalingressips)"
        );
    }
    let gateway = GatewayArgs::of(&source.socket, &source.kube);
    let words = ["trieste", "show", "globalnet", "--output", "json"];
    let body = gateway.document(GLOBALNET_PATH, &words).await?;
    let value: serde_json::Value =
        serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    if format != Format::Table {
        // As it came: a newer gateway may say more than we know.
        return output.write_value(&value, format);
    }
    let status: GlobalnetStatus = serde_path_to_error::deserialize(value)
        .context("the gateway's answer makes no sense; is it of another version than this command?")?;
    output.write(describe(&status, Timestamp::now()).as_bytes())
}

fn describe(status: &GlobalnetStatus, now: Timestamp) -> String {
    if !status.is_enabled {
        return "This cluster has no Globalnet: its gateway has no global CIDR (global-cidrs)\n".to_owned();
    }
    let mut lines = vec!["Globalnet".to_owned()];
    lines.extend(status.pools.iter().map(pool));
    lines.push(format!("  controllers {}", controllers(status)));
    lines.push(format!("  sessions    {}", sessions(status)));
    lines.extend(status.sharing.as_ref().map(|sharing| format!("  shared      {}", shared(sharing))));
    lines.push(format!("  on disk     {}", snapshot(&status.snapshot, now)));
    lines.push(format!("  refused     {}", failures(status)));
    lines.push(format!("  conditions  {}", if status.conditions.is_empty() { "none" } else { "below" }));
    let mut text: String = lines.iter().map(|line| printable(line) + "\n").collect();
    text += &section("CONDITIONS", &conditions(status));
    text += &section("RULES THAT CANNOT BE", &refused_rules(status));
    text += &section("ALLOCATED", &allocations(status));
    text += &section("EGRESS, the first rule that has the source counts", &egress(status));
    text += &section("INGRESS", &ingress(status));
    text += &section("PORTS IN USE", &ports(status));
    if status.left_out > 0 {
        let _ = writeln!(text, "\n{} more rows are not shown", status.left_out);
    }
    text
}

fn section(heading: &str, table: &str) -> String {
    if table.is_empty() { String::new() } else { format!("\n{heading}\n{table}") }
}

fn pool(pool: &PoolStatus) -> String {
    format!(
        "  pool        {}: {} of {} allocated (cluster egress {}, egress {}, ingress {}, gateways {}), {} free",
        pool.cidr,
        pool.allocated,
        pool.size,
        pool.cluster_egress,
        pool.egress,
        pool.ingress,
        pool.gateways,
        pool.available
    )
}

fn controllers(status: &GlobalnetStatus) -> String {
    let controllers = &status.controllers;
    let mut text = match (controllers.is_running, controllers.holder.as_str()) {
        (true, _) => format!("run here, {}", controllers.phase),
        (false, "") => format!("{}; nobody holds their Lease as far as is known", controllers.phase),
        (false, holder) => format!("{}; {holder} holds their Lease", controllers.phase),
    };
    if controllers.is_remembered {
        text += "; rules are those of the process before, as no store has answered yet";
    }
    if let Some(problem) = &controllers.problem {
        let _ = write!(text, "; {problem}");
    }
    text
}

/// What is this gateway's among several.
fn shared(sharing: &SharingStatus) -> String {
    let state = match (sharing.is_ready, sharing.is_draining) {
        (_, true) => "has left its connections to others",
        (true, false) => "translates",
        (false, false) => "is being told its connections",
    };
    let slots: Vec<String> = sharing.slots.iter().map(ToString::to_string).collect();
    let slots = if slots.is_empty() { "none".to_owned() } else { slots.join(",") };
    format!(
        "{} of 64 parts are ours, {state}; port slots {slots}; {} other gateways, {} ready; {} changes told ({} waiting), {} taken, {} parts adopted",
        sharing.buckets,
        sharing.siblings_up,
        sharing.siblings_ready,
        sharing.told,
        sharing.backlog,
        sharing.taken,
        sharing.adopted
    )
}

fn sessions(status: &GlobalnetStatus) -> String {
    if status.workers.is_empty() {
        return "none so far".to_owned();
    }
    let workers: Vec<String> = status
        .workers
        .iter()
        .map(|worker| {
            let mut text = format!(
                "worker {}: {} of {} with {} mappings",
                worker.worker, worker.sessions, worker.max_sessions, worker.mappings
            );
            if worker.shared_ports > 0 {
                let _ = write!(text, ", {} of them on shared ports", worker.shared_ports);
            }
            text
        })
        .collect();
    format!("{} ({})", status.sessions(), workers.join("; "))
}

fn snapshot(snapshot: &SnapshotStatus, now: Timestamp) -> String {
    let mut text = match snapshot.written {
        None => "nothing so far".to_owned(),
        Some(written) => format!(
            "{} sessions and {} changes, {} bytes, written {} ago",
            snapshot.sessions,
            snapshot.changes,
            snapshot.bytes,
            age(written, now)
        ),
    };
    if snapshot.lost > 0 {
        let _ = write!(text, ", {} changes left to the next snapshot", snapshot.lost);
    }
    if snapshot.restored + snapshot.not_restored > 0 {
        let _ = write!(
            text,
            "; of the process before {} were restored, {} not",
            snapshot.restored, snapshot.not_restored
        );
    }
    text
}

fn failures(status: &GlobalnetStatus) -> String {
    let counts: Vec<String> =
        status.failures.iter().map(|failure| format!("{} {}", failure.packets, failure.reason)).collect();
    if counts.is_empty() { "no packets".to_owned() } else { format!("packets: {}", counts.join(", ")) }
}

fn conditions(status: &GlobalnetStatus) -> String {
    let row = |condition: &trieste_control::admin::Condition| {
        let severity = condition.severity.as_str().to_owned();
        vec![severity, condition.name.clone(), condition.subject.clone(), condition.message.clone()]
    };
    let columns = [column("SEVERITY"), column("CONDITION"), limited("ABOUT", 48), column("MESSAGE")];
    render(&columns, &status.conditions.iter().map(row).collect::<Vec<_>>())
}

fn refused_rules(status: &GlobalnetStatus) -> String {
    let rows: Vec<_> =
        status.refused_rules.iter().map(|rule| vec![rule.name.clone(), rule.reason.clone()]).collect();
    render(&[column("OBJECT"), column("REASON")], &rows)
}

fn allocations(status: &GlobalnetStatus) -> String {
    let row = |allocation: &trieste_control::admin::AllocationStatus| {
        let addresses = ranges(&allocation.addresses);
        vec![allocation.kind.clone(), allocation.namespace.clone(), allocation.name.clone(), addresses]
    };
    let columns = [column("KIND"), column("NAMESPACE"), column("NAME"), column("GLOBAL IPS")];
    render(&columns, &status.allocations.iter().map(row).collect::<Vec<_>>())
}

fn egress(status: &GlobalnetStatus) -> String {
    let row = |rule: &trieste_control::admin::EgressStatus| {
        let (addresses, sources) = (ranges(&rule.addresses), sources(&rule.members));
        vec![rule.class.clone(), rule.name.clone(), sources, addresses, rule.sessions.to_string()]
    };
    let columns =
        [column("CLASS"), column("NAME"), column("SOURCES"), column("GLOBAL IPS"), column("SESSIONS")];
    render(&columns, &status.egress.iter().map(row).collect::<Vec<_>>())
}

fn ingress(status: &GlobalnetStatus) -> String {
    let row = |rule: &trieste_control::admin::IngressStatus| {
        let sessions = rule.sessions.map_or_else(|| "-".to_owned(), |count| count.to_string());
        vec![
            rule.global.to_string(),
            rule.inside.to_string(),
            rule.class.clone(),
            rule.name.clone(),
            sessions,
        ]
    };
    let columns =
        [column("GLOBAL IP"), column("INSIDE"), column("CLASS"), column("NAME"), column("SESSIONS")];
    render(&columns, &status.ingress.iter().map(row).collect::<Vec<_>>())
}

fn ports(status: &GlobalnetStatus) -> String {
    let row = |port: &trieste_control::admin::PortUse| {
        vec![port.address.to_string(), port.protocol.clone(), format!("{} of {}", port.used, port.of)]
    };
    let columns = [column("GLOBAL IP"), column("PROTOCOL"), column("USED")];
    render(&columns, &status.ports.iter().map(row).collect::<Vec<_>>())
}

/// Addresses in order, as `first-last` where they follow one another.
fn ranges(addresses: &[Ipv4Addr]) -> String {
    let follows = |a: &Ipv4Addr, b: &Ipv4Addr| u32::from(*a).checked_add(1) == Some(u32::from(*b));
    let word = |range: &[Ipv4Addr]| match range {
        [first, .., last] => format!("{first}-{last}"),
        _ => range.iter().map(ToString::to_string).collect(),
    };
    addresses.chunk_by(follows).map(word).collect::<Vec<_>>().join(", ")
}

/// As many sources as fit, and how many more.
fn sources(members: &[String]) -> String {
    let mut text = String::new();
    for (index, member) in members.iter().enumerate() {
        if index > 0 && text.len() + member.len() > SOURCES {
            let _ = write!(text, " and {} more", members.len() - index);
            break;
        }
        let _ = write!(text, "{}{member}", if index > 0 { ", " } else { "" });
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::admin::{
        AllocationStatus, Condition, ControllersStatus, EgressStatus, FailureCount, IngressStatus,
        NatWorkerStatus, PortUse, Severity,
    };

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn egress(class: &str, name: &str, addresses: &[&str], members: &[&str], sessions: u64) -> EgressStatus {
        EgressStatus {
            class: class.to_owned(),
            name: name.to_owned(),
            addresses: addresses.iter().map(|text| address(text)).collect(),
            members: members.iter().map(|text| (*text).to_owned()).collect(),
            sessions,
        }
    }

    fn pool() -> PoolStatus {
        PoolStatus {
            cidr: "242.1.0.0/16".to_owned(),
            size: 65534,
            allocated: 14,
            available: 65520,
            cluster_egress: 8,
            egress: 3,
            ingress: 2,
            gateways: 1,
        }
    }

    fn status() -> GlobalnetStatus {
        GlobalnetStatus {
            is_enabled: true,
            controllers: ControllersStatus {
                is_running: true,
                phase: "settled".to_owned(),
                holder: "gw1-submariner-gateway".to_owned(),
                ..ControllersStatus::default()
            },
            pools: vec![pool()],
            allocations: vec![AllocationStatus {
                kind: "GlobalEgressIP".to_owned(),
                namespace: "web".to_owned(),
                name: "all".to_owned(),
                addresses: vec![address("242.1.0.9"), address("242.1.0.10"), address("242.1.0.12")],
            }],
            egress: vec![
                egress("namespace", "web/all", &["242.1.0.9", "242.1.0.10"], &["10.1.0.7", "10.1.0.9"], 7),
                egress("cluster", "cluster-egress.submariner.io", &["242.1.0.1"], &["10.1.0.0/16"], 0),
            ],
            ingress: vec![IngressStatus {
                class: "service".to_owned(),
                name: "web/nginx".to_owned(),
                global: address("242.1.255.253"),
                inside: address("100.1.0.80"),
                sessions: None,
            }],
            workers: vec![NatWorkerStatus {
                worker: 0,
                sessions: 7,
                max_sessions: 1_048_576,
                mappings: 5,
                ..NatWorkerStatus::default()
            }],
            ports: vec![PortUse {
                address: address("242.1.0.9"),
                protocol: "tcp".to_owned(),
                used: 5,
                of: 65_536,
            }],
            failures: vec![FailureCount { reason: "no_mapping".to_owned(), packets: 3 }],
            snapshot: SnapshotStatus {
                sessions: 7,
                changes: 2,
                bytes: 300,
                written: Some("2026-11-22T05:00:00Z".parse().unwrap()),
                restored: 6,
                ..SnapshotStatus::default()
            },
            ..GlobalnetStatus::default()
        }
    }

    #[test]
    fn an_operator_sees_pools_rules_in_their_order_sessions_and_what_is_on_disk() {
        let text = describe(&status(), "2026-11-22T05:00:03Z".parse().unwrap());
        let expected = "\
Globalnet
  pool        242.1.0.0/16: 14 of 65534 allocated (cluster egress 8, egress 3, ingress 2, gateways 1), 65520 free
  controllers run here, settled
  sessions    7 (worker 0: 7 of 1048576 with 5 mappings)
  on disk     7 sessions and 2 changes, 300 bytes, written 3s ago; of the process before 6 were restored, 0 not
  refused     packets: 3 no_mapping
  conditions  none

ALLOCATED
KIND             NAMESPACE   NAME   GLOBAL IPS                        
GlobalEgressIP   web         all    242.1.0.9-242.1.0.10, 242.1.0.12   

EGRESS, the first rule that has the source counts
CLASS       NAME                           SOURCES              GLOBAL IPS             SESSIONS   
namespace   web/all                        10.1.0.7, 10.1.0.9   242.1.0.9-242.1.0.10   7          
cluster     cluster-egress.submariner.io   10.1.0.0/16          242.1.0.1              0          

INGRESS
GLOBAL IP       INSIDE       CLASS     NAME        SESSIONS   
242.1.255.253   100.1.0.80   service   web/nginx   -          

PORTS IN USE
GLOBAL IP   PROTOCOL   USED         
242.1.0.9   tcp        5 of 65536   
";
        let trimmed =
            |text: &str| text.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>();
        assert_eq!(trimmed(&text), trimmed(expected));
    }

    #[test]
    fn what_is_wrong_comes_first_and_what_is_too_long_is_counted() {
        let mut status = status();
        status.controllers = ControllersStatus {
            phase: "standby".to_owned(),
            is_remembered: true,
            problem: Some("no answer".to_owned()),
            ..ControllersStatus::default()
        };
        status.conditions.push(Condition {
            name: "GlobalnetPoolExhausted".to_owned(),
            severity: Severity::Warning,
            subject: "242.1.0.0/16".to_owned(),
            message: "no address is left".to_owned(),
            since: Timestamp::UNIX_EPOCH,
        });
        status.egress[0].members = (0..100).map(|host| format!("10.1.0.{host}")).collect();
        status.left_out = 9;
        let text = describe(&status, Timestamp::UNIX_EPOCH);
        assert!(text.contains("standby; nobody holds their Lease") && text.contains("no answer"), "{text}");
        assert!(text.contains("those of the process before"), "{text}");
        assert!(text.contains("\nCONDITIONS\nSEVERITY   CONDITION"), "{text}");
        assert!(text.contains("10.1.0.4 and 95 more") && text.contains("9 more rows"), "{text}");
    }

    #[test]
    fn a_cluster_without_globalnet_is_told() {
        let text = describe(&GlobalnetStatus::default(), Timestamp::UNIX_EPOCH);
        assert!(text.starts_with("This cluster has no Globalnet"), "{text}");
    }
}
