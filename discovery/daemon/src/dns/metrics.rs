//! The Prometheus page: upstream's metric under its name, and ours under `trieste_dns_…`.

use jiff::Timestamp;
use trieste_control::exposition::{Family, Kind, Page};
use trieste_control::process::{self, ProcessStats};
use trieste_control::store::kube::Requests;
use trieste_dns::{Answer, DropReason, QueryType, Records, Transport};

use super::counters::{Counters, LATENCY_BOUNDS};
use super::follow::Progress;

/// Most series of upstream's metric; further addresses are left out.
const MAX_SERIES: usize = 10_000;

/// What the page is about.
#[derive(Debug)]
pub struct Snapshot<'s> {
    /// The own cluster.
    pub cluster: &'s str,
    /// The records.
    pub records: &'s Records,
    /// Counters of all threads.
    pub counters: &'s [&'s Counters],
    /// How far the reading of the store is.
    pub progress: &'s Progress,
    /// Number of TCP connections.
    pub connections: usize,
    /// Number of connections to the pages that found no place.
    pub refused: u64,
    /// Requests to the API server; none of a directory.
    pub requests: Option<Requests>,
    /// The process; `None` where it cannot be read.
    pub process: Option<ProcessStats>,
    /// When the process started.
    pub started: Timestamp,
}

/// Renders the page.
#[must_use]
pub fn render(snapshot: &Snapshot<'_>) -> String {
    let mut page = Page::default();
    page.add(upstream(snapshot));
    let mut build = gauge("trieste_build_info", "Version of the program.");
    build.set(&[("version", env!("CARGO_PKG_VERSION"))], 1u64);
    page.add(build);
    queries(&mut page, snapshot.counters);
    page.add(latency(snapshot.counters));
    records(&mut page, snapshot);
    if let Some(requests) = &snapshot.requests {
        page.add(api_requests(requests));
    }
    if let Some(stats) = &snapshot.process {
        process::render(&mut page, stats, snapshot.started);
    }
    page.into_text()
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(Kind::Gauge, name, help)
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(Kind::Counter, name, help)
}

/// Returns upstream's metric: answers that named an address, a gauge there.
fn upstream(snapshot: &Snapshot<'_>) -> Family {
    let mut family = gauge("submariner_service_discovery_query", "Count DNS queries");
    let mut series = 0;
    snapshot.records.each_answered(|answered| {
        let cluster = answered.cluster.map(ToString::to_string).unwrap_or_default();
        for ip in answered.ips.iter().take(MAX_SERIES - series) {
            series += 1;
            let labels = [
                ("destination_cluster", cluster.as_str()),
                ("destination_service_ip", &ip.to_string()),
                ("destination_service_name", answered.service),
                ("destination_service_namespace", answered.namespace),
                ("source_cluster", snapshot.cluster),
            ];
            family.set(&labels, answered.count);
        }
    });
    family
}

fn word(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    }
}

/// Returns the counters of a transport.
fn of<'s>(counters: &'s [&'s Counters], transport: Transport) -> impl Iterator<Item = &'s Counters> {
    counters.iter().copied().filter(move |counters| counters.transport == transport)
}

fn queries(page: &mut Page, counters: &[&Counters]) {
    let mut queries = counter("trieste_dns_queries_total", "Queries answered, by type and result.");
    let mut truncated =
        counter("trieste_dns_truncated_total", "Answers that left records out, which did not fit.");
    let mut drops = counter("trieste_dns_dropped_total", "Queries and connections without an answer.");
    for transport in [Transport::Udp, Transport::Tcp] {
        let word = ("transport", word(transport));
        let sum = |get: &dyn Fn(&Counters) -> u64| of(counters, transport).map(get).sum::<u64>();
        for query in QueryType::ALL {
            for result in Answer::ALL {
                let count = sum(&|counters| counters.answers(*query, *result));
                if count > 0 {
                    queries.set(&[word, ("type", query.as_str()), ("result", result.as_str())], count);
                }
            }
        }
        truncated.set(&[word], sum(&Counters::truncated));
        for reason in DropReason::ALL {
            let count = sum(&|counters| counters.drops(*reason));
            if count > 0 {
                drops.set(&[word, ("reason", reason.as_str())], count);
            }
        }
    }
    page.add(queries);
    page.add(truncated);
    page.add(drops);
}

fn latency(counters: &[&Counters]) -> Family {
    let help = "Time from the reading of a query to its answer.";
    let mut family = Family::new(Kind::Histogram, "trieste_dns_latency_seconds", help);
    for transport in [Transport::Udp, Transport::Tcp] {
        let (mut all, mut seconds) = ([0; LATENCY_BOUNDS.len() + 1], 0.0);
        for (buckets, sum) in of(counters, transport).map(Counters::latency) {
            all.iter_mut().zip(buckets).for_each(|(sum, bucket)| *sum += bucket);
            seconds += sum.as_secs_f64();
        }
        let mut count = 0;
        let bounds = LATENCY_BOUNDS.map(|micros| std::time::Duration::from_micros(micros).as_secs_f64());
        let buckets: Vec<(f64, u64)> = bounds
            .into_iter()
            .zip(all)
            .map(|(bound, bucket)| {
                count += bucket;
                (bound, count)
            })
            .collect();
        let count = all.iter().sum();
        family.observe(&[("transport", word(transport))], &buckets, count, seconds.into());
    }
    family
}

fn records(page: &mut Page, snapshot: &Snapshot<'_>) {
    let Progress { errors, unusable, refused, applied, .. } = snapshot.progress;
    let services = u64::try_from(snapshot.records.services()).unwrap_or(u64::MAX);
    page.add(gauge("trieste_dns_services", "Services that are answered.").with(services));
    let help = "Whether all objects have been read once.";
    page.add(gauge("trieste_dns_synced", help).with(snapshot.records.is_synced()));
    let help = "Whether some kind of objects cannot be read at present.";
    page.add(gauge("trieste_dns_store_away", help).with(!errors.is_empty()));
    let unusable = u64::try_from(*unusable).unwrap_or(u64::MAX);
    page.add(gauge("trieste_dns_unusable_objects", "Objects that cannot be used.").with(unusable));
    page.add(counter("trieste_dns_changes_total", "Changes of records.").with(*applied));
    page.add(counter("trieste_dns_changes_refused_total", "Changes beyond a bound.").with(*refused));
    let connections = u64::try_from(snapshot.connections).unwrap_or(u64::MAX);
    page.add(gauge("trieste_dns_tcp_connections", "TCP connections.").with(connections));
    let help = "Connections to the pages that found no place.";
    page.add(counter("trieste_metrics_refused_connections_total", help).with(snapshot.refused));
}

fn api_requests(requests: &Requests) -> Family {
    let mut family =
        counter("trieste_api_requests_total", "Requests to an API server, by store, verb and outcome");
    for (verb, outcome, count) in requests.iter() {
        family.set(&[("store", "local"), ("verb", verb.as_str()), ("outcome", outcome.as_str())], count);
    }
    family
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trieste_dns::{
        Change, Endpoint, Import, Label, Outcome, ServiceName, Settings, Slice, Writer, Zone, answer,
    };

    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../../docs/operations/dns.md");

    /// Renders the page of a server that has answered something.
    fn page() -> String {
        let (mut writer, records) = Writer::new(Label::new("west").unwrap());
        let name = ServiceName::parse("shop", "web").unwrap();
        let endpoint = Endpoint { addresses: vec!["10.2.0.1".parse().unwrap()], host: None, is_ready: true };
        let slice = Slice { endpoints: vec![endpoint], ..Slice::default() };
        writer.apply(Change::Import(name.clone(), Import::default())).unwrap();
        writer.apply(Change::Slice(name, Label::new("east").unwrap(), "a".into(), slice)).unwrap();
        let settings = Settings::new(vec![Zone::new("clusterset.local").unwrap()], 5).unwrap();
        let query =
            b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03web\x04shop\x03svc\x0aclusterset\x05local\0\0\x01\0\x01";
        let counters = Counters::new(Transport::Udp);
        let outcome = answer(query, Transport::Udp, &records, &settings, &mut Vec::new());
        counters.count(outcome);
        counters.count(Outcome::Drop(DropReason::TooShort));
        counters.observe(2, std::time::Duration::from_micros(30));
        render(&Snapshot {
            cluster: "west",
            records: &records,
            counters: &[&counters, &Counters::new(Transport::Tcp)],
            progress: &Progress::default(),
            connections: 3,
            refused: 0,
            requests: Some(Requests::default()),
            process: None,
            started: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn an_answer_is_counted_under_upstreams_name_and_ours() {
        let page = page();
        for line in [
            "submariner_service_discovery_query{destination_cluster=\"east\",\
             destination_service_ip=\"10.2.0.1\",destination_service_name=\"web\",\
             destination_service_namespace=\"shop\",source_cluster=\"west\"} 1",
            "trieste_dns_queries_total{transport=\"udp\",type=\"a\",result=\"records\"} 1",
            "trieste_dns_dropped_total{transport=\"udp\",reason=\"too_short\"} 1",
            "trieste_dns_latency_seconds_bucket{transport=\"udp\",le=\"0.000025\"} 0",
            "trieste_dns_latency_seconds_bucket{transport=\"udp\",le=\"0.00005\"} 2",
            "trieste_dns_tcp_connections 3",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\nis not in\n{page}");
        }
    }

    #[test]
    fn the_documentation_names_every_metric_and_no_other() {
        let page = page();
        let rendered: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, _)| name)
            .collect();
        let documented: BTreeSet<&str> = DOCUMENTATION
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("submariner_") || name.starts_with("trieste_"))
            .collect();
        assert_eq!(rendered, documented);
    }
}
