//! Runs `iptables` and `ip6tables` for the `filter` table, where that exists, and for other tables in which Submariner has
//! chains.

use std::io::ErrorKind;
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::PortError;
use super::nft::first_line;
use crate::family::Family;
use crate::foreign::{self, Backend, ForeignChange};
use crate::leftover::{self, Table};
use crate::nft::Hook;
use crate::observed::Observed;
use crate::takeover::Takeover;

/// Seconds to wait for another program that is changing the same tables.
const LOCK_TIMEOUT: &str = "5";

/// Adds what iptables holds, in both halves of the kernel, and what Submariner has left there.
pub(super) async fn observe(observed: &mut Observed, takeover: Takeover) {
    for family in observed.families.clone() {
        for backend in [Backend::Nft, Backend::Legacy] {
            if !has_table(backend, family, observed) {
                continue;
            }
            match list(backend, family, Table::Filter).await {
                Ok(listing) => {
                    add_leftover(observed, (backend, family, Table::Filter), &listing);
                    let mut table = foreign::read_iptables(&listing);
                    if backend == Backend::Nft {
                        // It prints base chains that do not exist, too, and using one would make it.
                        table.hooks.retain(|hook| observed.foreign.has_iptables_chain(family, *hook));
                    }
                    observed.foreign.iptables.insert((backend, family), table);
                }
                Err(error) => {
                    observed.leftover.is_incomplete = true;
                    observed.conditions.insert(error.unread("iptables"));
                }
            }
        }
        if takeover != Takeover::Nothing {
            observe_leftover(observed, family, takeover).await;
        }
    }
}

/// Adds what Submariner has left in tables that nothing else is read of.
async fn observe_leftover(observed: &mut Observed, family: Family, takeover: Takeover) {
    for table in [Table::Nat, Table::Mangle] {
        for backend in [Backend::Nft, Backend::Legacy] {
            let is_read = match backend {
                Backend::Nft => observed.leftover.may_remove(family, table, takeover),
                Backend::Legacy => has_legacy(family, table),
            };
            if !is_read {
                continue;
            }
            match list(backend, family, table).await {
                Ok(listing) => add_leftover(observed, (backend, family, table), &listing),
                Err(error) => {
                    observed.leftover.is_incomplete = true;
                    observed.conditions.insert(error.unread("iptables"));
                }
            }
        }
    }
}

/// Adds Submariner's chains of a table, if there are any.
fn add_leftover(observed: &mut Observed, at: (Backend, Family, Table), listing: &str) {
    let chains = leftover::read_iptables(listing);
    if !chains.rules.is_empty() {
        observed.leftover.iptables.insert(at, chains);
    }
}

/// Returns `true` if there is a table, without making one by asking.
fn has_table(backend: Backend, family: Family, observed: &Observed) -> bool {
    match backend {
        Backend::Nft => {
            Hook::OF_IPTABLES.iter().any(|hook| observed.foreign.has_iptables_chain(family, *hook))
        }
        Backend::Legacy => has_legacy(family, Table::Filter),
    }
}

fn has_legacy(family: Family, table: Table) -> bool {
    let names = match family {
        Family::V4 => "/proc/self/net/ip_tables_names",
        Family::V6 => "/proc/self/net/ip6_tables_names",
    };
    std::fs::read_to_string(names).is_ok_and(|names| names.lines().any(|name| name == table.name()))
}

/// Applies a change.
pub(super) async fn apply(change: &ForeignChange) -> Result<(), PortError> {
    let ForeignChange::Iptables { backend, family, arguments } = change else { return Ok(()) };
    let mut all = vec!["-t", Table::Filter.name()];
    all.extend(arguments.iter().map(String::as_str));
    run(programs(*backend, *family), &all, "").await.map(drop)
}

/// Makes a transaction: the input of `iptables-restore`, which leaves all else as it is.
pub(super) async fn restore(backend: Backend, family: Family, input: &str) -> Result<(), PortError> {
    let programs: &[&'static str] = match (backend, family) {
        (Backend::Nft, Family::V4) => &["iptables-nft-restore", "iptables-restore"],
        (Backend::Nft, Family::V6) => &["ip6tables-nft-restore", "ip6tables-restore"],
        (Backend::Legacy, Family::V4) => &["iptables-legacy-restore"],
        (Backend::Legacy, Family::V6) => &["ip6tables-legacy-restore"],
    };
    run(programs, &["--noflush"], input).await.map(drop)
}

async fn list(backend: Backend, family: Family, table: Table) -> Result<String, PortError> {
    run(programs(backend, family), &["-t", table.name(), "-S"], "").await
}

/// Returns the commands for that half of the kernel; where it has no name of its own, the plain one.
fn programs(backend: Backend, family: Family) -> &'static [&'static str] {
    match (backend, family) {
        (Backend::Nft, Family::V4) => &["iptables-nft", "iptables"],
        (Backend::Nft, Family::V6) => &["ip6tables-nft", "ip6tables"],
        (Backend::Legacy, Family::V4) => &["iptables-legacy"],
        (Backend::Legacy, Family::V6) => &["ip6tables-legacy"],
    }
}

/// Runs the first of some commands that exists; returns its output.
async fn run(commands: &[&'static str], arguments: &[&str], input: &str) -> Result<String, PortError> {
    let mut missing = "iptables";
    for command in commands {
        match output(command, arguments, input).await {
            Ok(output) if output.status.success() => {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            Ok(output) => {
                let error = first_line(&String::from_utf8_lossy(&output.stderr));
                return Err(PortError::Iptables { command, error });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => missing = command,
            Err(error) => return Err(PortError::Iptables { command, error: error.to_string() }),
        }
    }
    Err(PortError::NoIptables(missing))
}

async fn output(command: &str, arguments: &[&str], input: &str) -> std::io::Result<Output> {
    let mut child = Command::new(command)
        .args(["-w", LOCK_TIMEOUT])
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may fail before it reads; its message is worth more than our broken pipe.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await
}
