//! Runs `nft` for the source guard's table. Reads and writes that table only, each write one transaction.

use std::io::ErrorKind;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::PortError;
use crate::guard::{self, GuardChange, TABLE_FAMILY, TABLE_NAME};
use crate::observed::ObservedGuard;

/// Reads the table.
pub(super) async fn observe() -> Result<ObservedGuard, PortError> {
    let output = run(&["-j", "list", "table", TABLE_FAMILY, TABLE_NAME], None).await?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        // ENOENT, in the words of strerror(3) in the C locale.
        if error.contains("No such file or directory") {
            return Ok(ObservedGuard::Absent);
        }
        return Err(PortError::Nft(first_line(&error)));
    }
    let listing: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| PortError::Nft(format!("the listing is not JSON: {error}")))?;
    Ok(guard::read(&listing))
}

/// Applies a change to the table.
pub(super) async fn apply(change: &GuardChange) -> Result<(), PortError> {
    let output = run(&["-j", "-f", "-"], Some(guard::render(change).to_string())).await?;
    if output.status.success() {
        return Ok(());
    }
    Err(PortError::Nft(first_line(&String::from_utf8_lossy(&output.stderr))))
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

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("failed without a message").to_owned()
}
