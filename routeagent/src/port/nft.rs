//! Runs `nft`: for our table, and for what others' chains let through. Each write is one transaction.

use std::io::ErrorKind;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::PortError;
use crate::foreign::{self, FIREWALLD, Foreign};
use crate::guard::{self, GuardChange, ObservedGuard};
use crate::leftover::{self, Leftover};
use crate::nft::{BaseChain, GUARD_TABLE, Hook, TABLE_FAMILY, Transaction};
use crate::services::{self, ObservedServices};

/// Reads the table.
pub(super) async fn observe() -> Result<ObservedGuard, PortError> {
    let listing = list_tree(&["table", TABLE_FAMILY, GUARD_TABLE]).await?;
    Ok(listing.map_or(ObservedGuard::Absent, |listing| ObservedGuard::Present(guard::read(&listing))))
}

/// Reads a table that translates destinations of services.
pub(super) async fn services(table: &'static str) -> Result<ObservedServices, PortError> {
    let Some(listing) = list(&["table", TABLE_FAMILY, table]).await? else {
        return Ok(ObservedServices::Absent);
    };
    services::read::read(table, &listing).map(ObservedServices::Present).map_err(|error| not_json(&error))
}

/// Reads what of other programs' tables can be in the way, and the names of Submariner's chains.
pub(super) async fn foreign(leftover: &mut Leftover) -> Result<Foreign, PortError> {
    let listing = list_tree(&["chains"]).await?.unwrap_or_default();
    leftover.chains = leftover::read_nft(&listing);
    let mut foreign = Foreign {
        base_chains: foreign::read_base_chains(&listing),
        earlier: foreign::read_earlier(&listing),
        ..Foreign::default()
    };
    let (family, table) = FIREWALLD;
    for hook in Hook::OF_FIREWALLD {
        let name = hook.firewalld();
        let is_there =
            |chain: &&BaseChain| (&*chain.family, &*chain.table, &*chain.name) == (family, table, name);
        if foreign.base_chains.iter().any(|chain| is_there(&chain))
            && let Some(listing) = list_tree(&["chain", family, table, name]).await?
        {
            foreign.firewalld.insert(hook, foreign::read_rules(&listing));
        }
    }
    if !foreign.firewalld.is_empty() {
        let output = run(&["--terse", "list", "table", family, table], None).await?;
        foreign.is_firewalld_owned = foreign::is_owned(&String::from_utf8_lossy(&output.stdout));
    }
    Ok(foreign)
}

/// Applies a change to the table.
pub(super) async fn apply(change: &GuardChange) -> Result<(), PortError> {
    transact(&guard::render(change)).await
}

/// Runs a transaction.
pub(super) async fn transact(transaction: &Transaction) -> Result<(), PortError> {
    let output = run(&["-j", "-f", "-"], Some(transaction.to_string())).await?;
    if output.status.success() {
        return Ok(());
    }
    Err(PortError::Nft(first_line(&String::from_utf8_lossy(&output.stderr))))
}

/// Lists something as a tree of values; `None` if it does not exist.
async fn list_tree(what: &[&str]) -> Result<Option<Value>, PortError> {
    let listing = list(what).await?;
    listing.map(|listing| serde_json::from_slice(&listing).map_err(|error| not_json(&error))).transpose()
}

/// Lists something, as JSON; `None` if it does not exist.
async fn list(what: &[&str]) -> Result<Option<Vec<u8>>, PortError> {
    let output = run(&[&["-a", "-j", "list"], what].concat(), None).await?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        // ENOENT, in the words of strerror(3) in the C locale.
        if error.contains("No such file or directory") {
            return Ok(None);
        }
        return Err(PortError::Nft(first_line(&error)));
    }
    Ok(Some(output.stdout))
}

fn not_json(error: &serde_json::Error) -> PortError {
    PortError::Nft(format!("the listing is not JSON: {error}"))
}

async fn run(arguments: &[&str], input: Option<String>) -> Result<Output, PortError> {
    let start_error = |error: std::io::Error| {
        if error.kind() == ErrorKind::NotFound { PortError::NoNft } else { PortError::NftStart(error) }
    };
    let mut child = Command::new("nft")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(start_error)?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // nft may fail before it reads; its message is worth more than our broken pipe.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await.map_err(PortError::NftStart)
}

pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("failed without a message").to_owned()
}
