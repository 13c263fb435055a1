//! `trieste status`: one gateway in detail.
//!
//! A few lines that say how it is, then tables; what is as it should be is left out unless all of it is asked for, so
//! that the answer is short when all is well.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;

use super::gateway::GatewayArgs;
use super::output::{Format, Output, printable};
use super::sections;
use trieste_control::admin::{BrokerStatus, ElectionStatus, GatewayStatus, Severity};
use trieste_control::api::GoDuration;

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Show also what is as it should be, and every event
    #[arg(long, short)]
    verbose: bool,
}

pub(super) async fn run(args: &StatusArgs, output: &mut Output) -> anyhow::Result<()> {
    let body = args.gateway.status().await?;
    let value: serde_json::Value =
        serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    if args.output != Format::Table {
        // As it came: a newer gateway may say more than we know.
        return output.write_value(&value, args.output);
    }
    let status: GatewayStatus = serde_path_to_error::deserialize(value)
        .context("the gateway's answer is not a status; is it of another version than this command?")?;
    output.write(describe(&status, args.verbose, Timestamp::now()).as_bytes())
}

/// The status, for people.
fn describe(status: &GatewayStatus, is_verbose: bool, now: Timestamp) -> String {
    summary(status, now) + &sections::describe(status, is_verbose, now)
}

fn summary(status: &GatewayStatus, now: Timestamp) -> String {
    let GatewayStatus { version, pid, endpoint, conservation: sum, .. } = status;
    let mut lines = vec![
        format!("Gateway {} of cluster \"{}\", {}", status.hostname, status.cluster, status.ha_status),
        format!("  version    {version}, process {pid}, up {}", age(status.started, now)),
        format!(
            "  endpoint   {} over {}, subnets {}",
            address(status),
            endpoint.backend,
            endpoint.subnets.join(", ")
        ),
        format!("  store      {}", link(&status.store, now)),
        format!("  broker     {}", link(&status.broker, now)),
    ];
    if let Some(election) = &status.election {
        lines.push(format!("  election   {}", self::election(election, now)));
    }
    if let Some(drain) = &status.drain {
        let how =
            if drain.is_done { "nothing comes any more; it may be stopped" } else { "flows still come" };
        lines.push(format!("  drain      for {}: {how}", age(drain.since, now)));
    }
    lines.push(format!(
        "  packets    in {} + made {} = out {} + held {} + dropped {}{}",
        sum.received,
        sum.made,
        sum.out,
        sum.held,
        sum.dropped,
        // The counters are read one after the other while packets pass, so a busy gateway may be off by a few.
        if sum.holds() { "" } else { "  (in motion)" }
    ));
    lines.push(format!("  conditions {}", conditions(status)));
    if !status.failure.is_empty() {
        lines.push(format!("  FAILURE    {}", status.failure));
    }
    lines.iter().map(|line| printable(line) + "\n").collect()
}

fn address(status: &GatewayStatus) -> String {
    let (private, public) = (status.endpoint.private_address(), status.endpoint.public_address());
    if public.is_empty() || public == private {
        private.to_owned()
    } else {
        format!("{private} (public {public})")
    }
}

/// A store: its state, since when, why, and when it is tried next.
fn link(link: &BrokerStatus, now: Timestamp) -> String {
    let mut text = link.state.as_str().to_owned();
    if let Some(since) = link.since {
        let _ = write!(text, " for {}", age(since, now));
    }
    if let Some(error) = &link.error {
        let _ = write!(text, ": {error}");
    }
    if let Some(next) = link.next_try.filter(|next| *next > now) {
        let _ = write!(text, " (next try in {})", age(now, next));
    }
    text
}

/// The election: whether this gateway leads, or who does.
fn election(election: &ElectionStatus, now: Timestamp) -> String {
    let ElectionStatus { lease, identity, holder, is_leader, term, since, error } = election;
    let mut text = if *is_leader {
        format!("leads, term {term}")
    } else if holder.is_empty() {
        "nobody leads as far as is known".to_owned()
    } else if holder == identity {
        format!("does not lead; the Lease still names this gateway, term {term}")
    } else {
        format!("stands by; {holder} leads, term {term}")
    };
    if let Some(since) = since {
        let _ = write!(text, ", for {}", age(*since, now));
    }
    let _ = write!(text, " (Lease {lease})");
    if let Some(error) = error {
        let _ = write!(text, ": {error}");
    }
    text
}

/// How many conditions of which severity.
fn conditions(status: &GatewayStatus) -> String {
    let severities = [Severity::Error, Severity::Warning, Severity::Info];
    let counts = severities.map(|severity| {
        let count = status.conditions.iter().filter(|condition| condition.severity == severity).count();
        (count > 0).then(|| format!("{count} {}", severity.as_str()))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// The time between two moments for people: Go's form without fractions, such as `2m10s`.
pub(super) fn age(since: Timestamp, now: Timestamp) -> GoDuration {
    let age = now.duration_since(since).unsigned_abs();
    GoDuration::from(Duration::from_secs(age.as_secs()))
}

#[cfg(test)]
mod tests;
