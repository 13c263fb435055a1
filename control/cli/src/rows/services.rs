//! Services of the set: who exports them, what works, and who answers.

use std::net::IpAddr;

use serde::Serialize;
use trieste_control::api::ImportPort;
use trieste_dns::{Label, Protocol, Survey};

use super::{Row, whole_items};
use crate::discovery::{Condition, Count, Discovery, Endpoints, Service};
use crate::table::{Column, column};

/// How long a list of clusters may be.
const CLUSTERS_BYTES: usize = 60;
/// How long a list of ports may be.
const PORTS_BYTES: usize = 40;

/// A service that this cluster exports or imports.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceRow {
    namespace: String,
    name: String,
    /// `ClusterSetIP` or `Headless`; missing where nothing is imported.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Addresses for the whole set, which are answered instead of a cluster's.
    #[serde(rename = "clustersetIPs", skip_serializing_if = "Vec::is_empty")]
    ips: Vec<IpAddr>,
    ports: Vec<ServicePort>,
    is_exported: bool,
    is_imported: bool,
    #[serde(skip)]
    is_without_conditions: bool,
    clusters: Vec<ExportingCluster>,
    answers: Answers,
    /// Those of this cluster's own export that are not as they should be, conflicts among them.
    conditions: Vec<Condition>,
    /// Why the import cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct ServicePort {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    protocol: String,
    port: u16,
}

/// A cluster that exports a service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportingCluster {
    cluster: String,
    is_local: bool,
    /// Whether this cluster's gateways are connected to it; missing if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_connected: Option<bool>,
    endpoints: FamilyCounts,
}

#[derive(Debug, Serialize)]
struct FamilyCounts {
    ipv4: Count,
    ipv6: Count,
}

/// The clusters that the DNS server answers with: one, or those that take turns or are answered together.
#[derive(Debug, Default, Serialize)]
struct Answers {
    a: Vec<String>,
    aaaa: Vec<String>,
}

impl Row for ServiceRow {
    const COLUMNS: &'static [Column] =
        &[column("SERVICE"), column("TYPE"), column("PORTS"), column("CLUSTERS"), column("ANSWERS")];

    fn cells(&self) -> Vec<String> {
        let ports: Vec<String> =
            self.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect();
        let clusters: Vec<String> = self.clusters.iter().map(ExportingCluster::cell).collect();
        vec![
            format!("{}/{}", self.namespace, self.name),
            self.kind.unwrap_or("-").to_owned(),
            dash(whole_items(&ports, PORTS_BYTES)),
            dash(whole_items(&clusters, CLUSTERS_BYTES)),
            self.answered(),
        ]
    }

    fn remark(&self) -> Option<String> {
        let about = format!("{}/{}", self.namespace, self.name);
        let conditions = self.conditions.iter().map(|condition| format!("{about}: {condition}"));
        let problem = self.problem.iter().map(|why| format!("{about}: the import cannot be used: {why}"));
        let new = "the export has no conditions: does an agent of service discovery run here?";
        let is_new = self.is_exported && self.is_without_conditions;
        let new = is_new.then(|| format!("{about}: {new}"));
        let all: Vec<String> = conditions.chain(problem).chain(new).collect();
        (!all.is_empty()).then(|| all.join("\n   "))
    }
}

impl ServiceRow {
    /// Says who answers: clusterset IPs, or clusters; of each type by itself where they differ.
    fn answered(&self) -> String {
        if !self.ips.is_empty() {
            return self.ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        }
        let list = |clusters: &[String]| dash(whole_items(clusters, CLUSTERS_BYTES));
        let Answers { a, aaaa } = &self.answers;
        let has = |count: fn(&FamilyCounts) -> Count| {
            self.clusters.iter().any(|cluster| count(&cluster.endpoints).all > 0)
        };
        match (has(|counts| counts.ipv4), has(|counts| counts.ipv6)) {
            (true, true) if a != aaaa => format!("A {}; AAAA {}", list(a), list(aaaa)),
            (false, true) => list(aaaa),
            (_, _) => list(a),
        }
    }
}

impl ExportingCluster {
    fn cell(&self) -> String {
        let Self { cluster, is_local, is_connected, endpoints } = self;
        let counts = Endpoints { v4: endpoints.ipv4, v6: endpoints.ipv6 };
        let remark = match (is_local, is_connected) {
            (true, _) => " (local)",
            (false, Some(false)) => " (not connected)",
            (false, Some(true) | None) => "",
        };
        format!("{cluster} {counts}{remark}")
    }
}

/// Makes one row per service.
pub(crate) fn services(discovery: &Discovery) -> Vec<ServiceRow> {
    discovery.services().into_iter().map(|service| row(discovery, service)).collect()
}

fn row(discovery: &Discovery, service: Service) -> ServiceRow {
    let cluster = |id: String| {
        let is_local = discovery.local.as_ref() == Some(&id);
        let is_up = service.is_up(&id).filter(|_| discovery.has_active_gateway || is_local);
        let counts = service.endpoints.get(&id).copied().unwrap_or_default();
        let endpoints = FamilyCounts { ipv4: counts.v4, ipv6: counts.v6 };
        ExportingCluster { cluster: id, is_local, is_connected: is_up, endpoints }
    };
    let clusters = service.clusters().into_iter().map(cluster).collect();
    let survey = service.survey.as_ref();
    let ids = |labels: &[Label]| labels.iter().map(Label::to_string).collect();
    let conditions = service.export.iter().flatten().filter(|condition| condition.is_bad());
    ServiceRow {
        kind: service.import.as_ref().map(|import| import.kind.as_str()),
        ips: survey.map(|survey| survey.ips.clone()).unwrap_or_default(),
        ports: ports(&service),
        is_exported: service.export.is_some(),
        is_imported: service.import.is_some(),
        is_without_conditions: service.export.as_ref().is_some_and(Vec::is_empty),
        clusters,
        answers: survey
            .map(|survey| Answers { a: ids(&survey.v4), aaaa: ids(&survey.v6) })
            .unwrap_or_default(),
        conditions: conditions.cloned().collect(),
        problem: service.problem,
        namespace: service.name.namespace,
        name: service.name.name,
    }
}

/// Returns the import's ports, or those of the slices where it has none.
fn ports(service: &Service) -> Vec<ServicePort> {
    let of_import = |port: &ImportPort| ServicePort {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        port: port.port,
    };
    let named = service.import.iter().flat_map(|import| &import.ports).map(of_import).collect::<Vec<_>>();
    if named.is_empty() { service.survey.as_ref().map(of_slices).unwrap_or_default() } else { named }
}

fn of_slices(survey: &Survey) -> Vec<ServicePort> {
    let port = |port: &trieste_dns::Port| ServicePort {
        name: port.name.as_ref().map(Label::to_string).unwrap_or_default(),
        protocol: match port.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
        .to_owned(),
        port: port.number,
    };
    survey.ports.iter().map(port).collect()
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Objects;
    use crate::discovery::tests::{WELL, export, import, objects, slice};
    use crate::rows::table;

    fn shown(objects: Objects) -> (String, Vec<String>) {
        let rows = services(&Discovery::new(objects));
        (table(&rows), rows.iter().filter_map(Row::remark).collect())
    }

    #[test]
    fn each_service_says_who_exports_it_and_who_answers() {
        let (text, remarks) = shown(objects());
        let expected = "\
            SERVICE    TYPE           PORTS    CLUSTERS                              ANSWERS   \n\
            shop/db    Headless       80/TCP   east 1/2, north 1/1 (not connected)   east      \n\
            shop/web   ClusterSetIP   80/TCP   east 1/1, west 1/1 (local)            west      \n";
        assert_eq!(text, expected);
        assert!(remarks.is_empty(), "{remarks:?}");
    }

    /// What is changed, and who answers for `db` and `web`.
    type Case = (fn(&mut Objects), [&'static str; 2]);

    #[test]
    fn who_answers_follows_health_families_and_clusterset_ips() {
        let answers = |change: fn(&mut Objects)| {
            let mut objects = objects();
            change(&mut objects);
            services(&Discovery::new(objects)).iter().map(ServiceRow::answered).collect::<Vec<_>>()
        };
        let cases: [Case; 6] = [
            (|objects| objects.slices[0] = slice("web", "west", &[("10.1.0.1", false)]), ["east", "east"]),
            (|objects| objects.gateways.clear(), ["A east, north; AAAA east", "west"]),
            (
                |objects| {
                    objects.gateways.clear();
                    objects.slices[0] = slice("web", "west", &[("10.1.0.1", false)]);
                    objects.slices[1] = slice("web", "east", &[("10.2.0.1", false)]);
                },
                ["A east, north; AAAA east", "-"],
            ),
            (|objects| objects.slices.truncate(2), ["-", "west"]),
            (
                |objects| {
                    objects.imports[0].body["spec"]["ips"] = serde_json::json!(["243.0.0.1", "fd00:243::1"])
                },
                ["east", "243.0.0.1, fd00:243::1"],
            ),
            (
                |objects| objects.slices[0] = slice("web", "west", &[("fd00:1::1", true)]),
                ["east", "A -; AAAA west"],
            ),
        ];
        for (index, (change, expected)) in cases.into_iter().enumerate() {
            assert_eq!(answers(change), expected, "case {index}");
        }
    }

    #[test]
    fn conditions_that_are_not_as_they_should_be_stand_below() {
        let mut objects = objects();
        objects.exports = vec![
            export(
                "web",
                &[
                    ("Valid", "True", "Valid"),
                    ("Ready", "False", "Pending"),
                    ("Conflict", "True", "ConflictingPorts"),
                ],
            ),
            export("db", WELL),
            export("new", &[]),
        ];
        let (text, remarks) = shown(objects);
        assert!(text.contains("\nshop/new   -              -        -"), "{text}");
        assert_eq!(
            remarks,
            [
                "shop/new: the export has no conditions: does an agent of service discovery run here?",
                "shop/web: Ready is False: Pending: about Ready\n   shop/web: Conflict is True: ConflictingPorts: \
                 about Conflict"
            ]
        );
    }

    #[test]
    fn clusters_that_do_not_fit_are_counted() {
        let clusters: Vec<String> = (0..200).map(|number| format!("cluster-{number}")).collect();
        let ids: Vec<&str> = clusters.iter().map(String::as_str).collect();
        let objects = Objects { imports: vec![import("web", "ClusterSetIP", &ids)], ..Objects::default() };
        let (text, _) = shown(objects);
        assert!(text.contains("cluster-0 0/0, cluster-1 0/0, cluster-10 0/0, +197 more"), "{text}");
    }

    #[test]
    fn programs_are_told_the_same() {
        let rows = serde_json::to_value(services(&Discovery::new(objects()))).unwrap();
        assert_eq!(
            rows[0],
            serde_json::json!({"namespace": "shop", "name": "db", "type": "Headless",
                "ports": [{"name": "http", "protocol": "TCP", "port": 80}], "isExported": false, "isImported": true,
                "clusters": [
                    {"cluster": "east", "isLocal": false, "isConnected": true,
                        "endpoints": {"ipv4": {"ready": 1, "all": 2}, "ipv6": {"ready": 1, "all": 2}}},
                    {"cluster": "north", "isLocal": false, "isConnected": false,
                        "endpoints": {"ipv4": {"ready": 1, "all": 1}, "ipv6": {"ready": 0, "all": 0}}}],
                "answers": {"a": ["east"], "aaaa": ["east"]}, "conditions": []})
        );
        assert_eq!(rows[1]["clusters"][1]["isLocal"], true);
    }
}
