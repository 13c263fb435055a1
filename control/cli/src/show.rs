//! `trieste show`.

use anyhow::bail;
use serde::Serialize;

use super::output::{Output, printable};
use super::rows::{ConnectionRow, EndpointRow, GatewayRow, Row, connections, endpoints, gateways, table};
use super::source::{self, Found, WantsCluster};
use super::{Format, ShowArgs, What};
use trieste_control::api::{ClusterSpec, Gateway};

/// Everything, for programs.
#[derive(Debug, Serialize)]
struct All {
    connections: Vec<ConnectionRow>,
    endpoints: Vec<EndpointRow>,
    gateways: Vec<GatewayRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    networks: Option<Networks>,
}

/// A cluster's CIDRs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Networks {
    cluster: String,
    service_cidrs: Vec<String>,
    cluster_cidrs: Vec<String>,
    global_cidrs: Vec<String>,
}

impl Networks {
    fn of(spec: &ClusterSpec) -> Self {
        Self {
            cluster: spec.cluster_id.clone(),
            service_cidrs: spec.service_cidr.clone(),
            cluster_cidrs: spec.cluster_cidr.clone(),
            global_cidrs: spec.global_cidr.clone(),
        }
    }

    /// Upstream's lines, but for the network plugin, which is in no object of ours.
    fn text(&self) -> String {
        let line = |name: &str, cidrs: &[String]| {
            let cidrs: Vec<String> = cidrs.iter().map(|cidr| printable(cidr)).collect();
            format!("        {name:<16} [{}]\n", cidrs.join(" "))
        };
        let mut text = "    Discovered network details via Submariner:\n".to_owned();
        text += &line("Service CIDRs:", &self.service_cidrs);
        text += &line("Cluster CIDRs:", &self.cluster_cidrs);
        if !self.global_cidrs.is_empty() {
            text += &line("Global CIDR:", &self.global_cidrs);
        }
        text
    }
}

/// Why there are no networks to show.
const NO_NETWORKS: &str = "no Cluster object of this cluster is known: read a store with --store (a gateway's socket does not tell \
                           its cluster's networks), and check --namespace";

pub(super) async fn run(args: &ShowArgs, output: &mut Output) -> anyhow::Result<()> {
    let wants = match args.what {
        What::Networks => WantsCluster::Yes,
        What::All => WantsCluster::IfPossible,
        What::Connections | What::Endpoints | What::Gateways => WantsCluster::No,
    };
    let found = source::read(&args.source, wants).await?;
    match args.output {
        Format::Table => show_tables(args.what, &found, output),
        format @ (Format::Json | Format::Yaml) => show_values(args.what, &found, format, output),
    }
}

/// For programs: no connections are an empty list, and no failure.
fn show_values(what: What, found: &Found, format: Format, output: &mut Output) -> anyhow::Result<()> {
    let networks = found.cluster.as_ref().map(|cluster| Networks::of(&cluster.spec));
    let found = &found.gateways;
    match what {
        What::Connections => output.write_value(&connections(found), format),
        What::Endpoints => output.write_value(&endpoints(found), format),
        What::Gateways => output.write_value(&gateways(found), format),
        What::Networks => match networks {
            Some(networks) => output.write_value(&networks, format),
            None => bail!(NO_NETWORKS),
        },
        What::All => {
            let all = All {
                connections: connections(found),
                endpoints: endpoints(found),
                gateways: gateways(found),
                networks,
            };
            output.write_value(&all, format)
        }
    }
}

/// For people, in upstream's form: the cluster, then each step with its table and an empty line.
fn show_tables(what: What, all: &Found, output: &mut Output) -> anyhow::Result<()> {
    let found = &all.gateways;
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
    match &all.cluster {
        Some(cluster) if matches!(what, What::Networks | What::All) => {
            let text = Networks::of(&cluster.spec).text();
            output.write(format!(" ✓ Showing Network details\n{text}\n").as_bytes())?;
        }
        None if what == What::Networks => bail!(NO_NETWORKS),
        Some(_) | None => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_control::api::{Cluster, Object, Resource as _};

    const RECORDED: &str = include_str!("../../tests/golden/cli/show-all.txt");
    const A_CLUSTERS: &str = include_str!("../../tests/golden/plain/a-clusters.yaml");

    #[test]
    fn network_details_are_upstreams_but_for_the_plugin() {
        let list: serde_json::Value = serde_saphyr::from_str(A_CLUSTERS).unwrap();
        let clusters = list["items"].as_array().unwrap().iter();
        let clusters: Vec<Cluster> = clusters
            .map(|item| Cluster::from_object(&Object::from_value(item.clone()).unwrap()).unwrap())
            .collect();
        let own = clusters.iter().find(|cluster| cluster.spec.cluster_id == "cluster-a").unwrap();
        let a = RECORDED.split_once("Cluster \"cluster-a\"").unwrap().1;
        let (_, block) = a.split_once(" ✓ Showing Network details\n").unwrap();
        let (lines, _) = block.split_once("\n\n").unwrap();
        let expected: String = lines
            .lines()
            .filter(|line| !line.contains("Network plugin"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(Networks::of(&own.spec).text(), expected);
        assert_eq!(own.metadata.origin(), None, "the own Cluster is no copy");
    }
}
