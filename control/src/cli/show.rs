//! `trieste show`.

use anyhow::bail;
use serde::Serialize;

use super::output::{Output, printable};
use super::rows::{ConnectionRow, EndpointRow, GatewayRow, Row, connections, endpoints, gateways, table};
use super::{Format, ShowArgs, What, source};
use crate::api::Gateway;

/// Everything, for programs.
#[derive(Debug, Serialize)]
struct All {
    connections: Vec<ConnectionRow>,
    endpoints: Vec<EndpointRow>,
    gateways: Vec<GatewayRow>,
}

pub(super) async fn run(args: &ShowArgs, output: &mut Output) -> anyhow::Result<()> {
    let found = source::gateways(&args.source).await?;
    match args.output {
        Format::Table => show_tables(args.what, &found, output),
        format @ (Format::Json | Format::Yaml) => show_values(args.what, &found, format, output),
    }
}

/// For programs: no connections are an empty list, and no failure.
fn show_values(what: What, found: &[Gateway], format: Format, output: &mut Output) -> anyhow::Result<()> {
    match what {
        What::Connections => output.write_value(&connections(found), format),
        What::Endpoints => output.write_value(&endpoints(found), format),
        What::Gateways => output.write_value(&gateways(found), format),
        What::All => {
            let all = All {
                connections: connections(found),
                endpoints: endpoints(found),
                gateways: gateways(found),
            };
            output.write_value(&all, format)
        }
    }
}

/// For people, in upstream's form: the cluster, then each step with its table and an empty line.
fn show_tables(what: What, found: &[Gateway], output: &mut Output) -> anyhow::Result<()> {
    if let Some(gateway) = found.first() {
        let cluster = printable(&gateway.status.local_endpoint.cluster_id);
        output.write(format!("Cluster \"{cluster}\"\n").as_bytes())?;
    }
    let mut missing = Vec::new();
    if matches!(what, What::Connections | What::All) {
        missing.extend(step("Connections", found, &connections(found), output)?);
    }
    if matches!(what, What::Endpoints | What::All) {
        missing.extend(step("Endpoints", found, &endpoints(found), output)?);
    }
    if matches!(what, What::Gateways | What::All) {
        missing.extend(step("Gateways", found, &gateways(found), output)?);
    }
    match missing.first() {
        Some(reason) => bail!("{reason}"),
        None => Ok(()),
    }
}

/// Prints one step; gives what is missing, in upstream's words.
fn step<R: Row>(
    title: &str,
    found: &[Gateway],
    rows: &[R],
    output: &mut Output,
) -> anyhow::Result<Option<&'static str>> {
    let missing = if found.is_empty() {
        Some(("There are no gateways detected", "no gateways detected"))
    } else if rows.is_empty() {
        Some(("No connections found", "no connections found"))
    } else {
        None
    };
    let text = match missing {
        Some((remark, _)) => format!(" ✗ Showing {title}: {remark}\n\n"),
        None => format!(" ✓ Showing {title}\n{}\n", table(rows)),
    };
    output.write(text.as_bytes())?;
    Ok(missing.map(|(_, reason)| reason))
}
