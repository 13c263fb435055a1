//! Runs `iptables` and `ip6tables` for the `filter` table, where that exists.

use std::io::ErrorKind;
use std::process::{Output, Stdio};

use tokio::process::Command;

use super::PortError;
use super::nft::first_line;
use crate::family::Family;
use crate::foreign::{self, Backend, ForeignChange};
use crate::nft::Hook;
use crate::observed::Observed;

/// Seconds to wait for another program that is changing the same tables.
const LOCK_TIMEOUT: &str = "5";

/// Adds what iptables holds, in both halves of the kernel.
pub(super) async fn observe(observed: &mut Observed) {
    for family in observed.families.clone() {
        for backend in [Backend::Nft, Backend::Legacy] {
            if !has_table(backend, family, observed) {
                continue;
            }
            match run(backend, family, &["-S"]).await {
                Ok(listing) => {
                    let mut table = foreign::read_iptables(&listing);
                    if backend == Backend::Nft {
                        // It prints base chains that do not exist, too, and using one would make it.
                        table.hooks.retain(|hook| observed.foreign.has_iptables_chain(family, *hook));
                    }
                    observed.foreign.iptables.insert((backend, family), table);
                }
                Err(error) => {
                    observed.conditions.insert(error.unread("iptables"));
                }
            }
        }
    }
}

/// Returns `true` if there is a table, without making one by asking.
fn has_table(backend: Backend, family: Family, observed: &Observed) -> bool {
    match backend {
        Backend::Nft => Hook::ALL.iter().any(|hook| observed.foreign.has_iptables_chain(family, *hook)),
        Backend::Legacy => {
            let names = match family {
                Family::V4 => "/proc/self/net/ip_tables_names",
                Family::V6 => "/proc/self/net/ip6_tables_names",
            };
            std::fs::read_to_string(names).is_ok_and(|names| names.lines().any(|name| name == "filter"))
        }
    }
}

/// Applies a change.
pub(super) async fn apply(change: &ForeignChange) -> Result<(), PortError> {
    let ForeignChange::Iptables { backend, family, arguments } = change else { return Ok(()) };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(*backend, *family, &arguments).await.map(drop)
}

/// Runs the command for that half of the kernel; where it has no name of its own, the plain one.
async fn run(backend: Backend, family: Family, arguments: &[&str]) -> Result<String, PortError> {
    let commands: &[&'static str] = match (backend, family) {
        (Backend::Nft, Family::V4) => &["iptables-nft", "iptables"],
        (Backend::Nft, Family::V6) => &["ip6tables-nft", "ip6tables"],
        (Backend::Legacy, Family::V4) => &["iptables-legacy"],
        (Backend::Legacy, Family::V6) => &["ip6tables-legacy"],
    };
    let mut missing = "iptables";
    for command in commands {
        match output(command, arguments).await {
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

async fn output(command: &str, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(command)
        .args(["-w", LOCK_TIMEOUT, "-t", "filter"])
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
}
