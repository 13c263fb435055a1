//! A name of the set, resolved from a cluster's objects as its DNS server answers it.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use serde::Serialize;
use trieste_control::api::{Kind, Object};
use trieste_control::store::{AnyStore, Location};
use trieste_discovery::ask::Question;
use trieste_dns::{Lead, Records, Settings, Survey, Transport, Zone, answer};

use super::{Discovery, Lists, Name};
use crate::api::Api;
use crate::contexts::KubeArgs;

/// Between the names of services and the zone.
const SVC: &str = ".svc.";

/// What a name has been resolved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Resolved {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// The clusterset IP that is answered, which nodes lead to the address.
    #[serde(rename = "clustersetIP", skip_serializing_if = "Option::is_none")]
    pub(crate) clusterset_ip: Option<IpAddr>,
    /// The cluster whose address it is; missing with a clusterset IP that leads nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// The clusters that are answered: those that take turns, or of a headless service all.
    pub(crate) clusters: Vec<String>,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Returns whether a text is a name of a service in a zone, and no other name.
pub(crate) fn is_name(text: &str) -> bool {
    text.contains(SVC) && Question::new(text, "A").is_ok()
}

impl Family {
    /// Returns the family of an address.
    pub(crate) const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn rtype(self) -> &'static str {
        match self {
            Self::V4 => "A",
            Self::V6 => "AAAA",
        }
    }
}

/// Resolves a name from a cluster's API server, or from a store; to an address of the first of these families that it has.
///
/// # Errors
/// When the objects cannot be listed, or the name has no address; with what to look at.
pub(crate) async fn resolve(
    name: &str,
    families: &[Family],
    kube: &KubeArgs,
    store: Option<&Location>,
) -> anyhow::Result<Resolved> {
    let namespace = &kube.namespace;
    match store {
        Some(location) => {
            let store = AnyStore::attach(location);
            from_lists(name, families, &Lists::Store(&store, location), namespace).await
        }
        None => {
            let api = Api::new(kube.target()?.client().await?);
            from_lists(name, families, &Lists::Kube(&api), namespace).await
        }
    }
}

async fn from_lists(
    name: &str,
    families: &[Family],
    lists: &Lists<'_>,
    namespace: &str,
) -> anyhow::Result<Resolved> {
    let zones = zones(&lists.list(Kind::Submariner, namespace, None).await?);
    let name = name.trim_end_matches('.');
    let service = service(name, &zones)?;
    let gateways = lists.list(Kind::Gateway, namespace, None).await?;
    let mut discovery = Discovery::new(lists.objects(gateways, namespace).await?);
    discovery.read_own(lists, Some(&service)).await?;
    from_objects(name, &service, families, &discovery, &zones)
}

/// Returns the zone of the API, and those of the set.
fn zones(submariners: &[Object]) -> Vec<String> {
    let custom =
        submariners.iter().filter_map(|object| object.body.get("spec")?.get("customDomains")?.as_array());
    trieste_deploy::objects::zones(custom.flatten().filter_map(serde_json::Value::as_str))
}

/// Returns the service that a name is about.
fn service(name: &str, zones: &[String]) -> anyhow::Result<Name> {
    let lower = name.to_ascii_lowercase();
    let below = zones.iter().find_map(|zone| lower.strip_suffix(&format!("{SVC}{zone}")));
    let Some(below) = below else {
        bail!(
            "{name} is no name of the set: names are SERVICE.NAMESPACE.svc.ZONE, with zone {}, and may have a cluster's \
             id in front",
            zones.join(" or ")
        );
    };
    let mut labels = below.rsplit('.');
    match (labels.next(), labels.next()) {
        (Some(namespace), Some(service)) => {
            Ok(Name { namespace: namespace.to_owned(), name: service.to_owned() })
        }
        (_, _) => bail!("{name} is no name of a service: names are SERVICE.NAMESPACE.svc.ZONE"),
    }
}

fn from_objects(
    name: &str,
    service: &Name,
    families: &[Family],
    discovery: &Discovery,
    zones: &[String],
) -> anyhow::Result<Resolved> {
    let parsed =
        zones.iter().map(|zone| Zone::new(zone)).collect::<Result<_, _>>().context("the set's zones")?;
    let settings = Settings::new(parsed, trieste_dns::DEFAULT_TTL).context("the set's zones")?;
    let records = discovery.snapshot.records();
    let key = trieste_dns::ServiceName::parse(&service.namespace, &service.name).ok();
    let survey = key.as_ref().and_then(|key| records.survey(key));
    let mut code = String::new();
    for family in families {
        let question = Question::new(name, family.rtype())?;
        let mut reply = Vec::new();
        answer(&question.query(0), Transport::Tcp, records, &settings, &mut reply);
        let reply = question.read(0, &reply).context("the answer cannot be read")?;
        if let Some(address) = reply.addresses().next() {
            let of_set = survey.as_ref().filter(|survey| survey.ips.contains(&address)).zip(key.as_ref());
            return Ok(match of_set {
                Some((survey, key)) => Resolved::led(name, address, &leads(records, key, survey, *family)),
                None => Resolved::of(name, address, *family, survey.as_ref()),
            });
        }
        code = reply.code;
    }
    bail!("{}", why_not(name, service, &code, families, survey.as_ref(), discovery))
}

/// Returns where nodes lead the first port of a service that is led anywhere.
fn leads(
    records: &Records,
    service: &trieste_dns::ServiceName,
    survey: &Survey,
    family: Family,
) -> Vec<Lead> {
    let of_port = |port| records.leads(service, port, family == Family::V4);
    survey.ports.iter().map(of_port).find(|leads| !leads.is_empty()).unwrap_or_default()
}

impl Resolved {
    /// Names what a clusterset IP leads to, if it is anything.
    fn led(name: &str, ip: IpAddr, leads: &[Lead]) -> Self {
        let first = leads.iter().find_map(|lead| Some((lead.cluster.to_string(), *lead.addresses.first()?)));
        Self {
            name: name.to_owned(),
            address: first.as_ref().map_or(ip, |(_, address)| *address),
            clusterset_ip: Some(ip),
            cluster: first.map(|(cluster, _)| cluster),
            clusters: leads.iter().map(|lead| lead.cluster.to_string()).collect(),
        }
    }

    fn of(name: &str, address: IpAddr, family: Family, survey: Option<&Survey>) -> Self {
        let clusters = survey.into_iter().flat_map(|survey| &survey.clusters);
        let mut its = clusters.filter(|cluster| cluster.addresses.contains(&address));
        let answered = survey.map(|survey| match family {
            Family::V4 => &survey.v4,
            Family::V6 => &survey.v6,
        });
        let cluster = its.next().map(|cluster| cluster.id.to_string());
        let clusters: Vec<String> = answered.into_iter().flatten().map(ToString::to_string).collect();
        // A cluster that the name itself says has no turn to take.
        let has_turn = cluster.as_ref().is_some_and(|cluster| clusters.contains(cluster));
        let is_named = cluster.as_ref().is_some_and(|cluster| name.starts_with(&format!("{cluster}.")));
        let clusters = if has_turn && !is_named { clusters } else { cluster.iter().cloned().collect() };
        Self { name: name.to_owned(), address, clusterset_ip: None, cluster, clusters }
    }
}

impl std::fmt::Display for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, address, clusterset_ip, cluster, clusters } = self;
        match (clusterset_ip, cluster) {
            (Some(ip), None) => write!(f, "{name} is the clusterset IP {ip}, which leads nowhere at present"),
            (Some(ip), Some(cluster)) => {
                write!(f, "{name} is the clusterset IP {ip}, which leads to {address} of cluster {cluster}")?;
                if clusters.len() > 1 { write!(f, "; in turn {}", clusters.join(", ")) } else { Ok(()) }
            }
            (None, Some(cluster)) if clusters.len() > 1 => {
                write!(f, "{name} is {address} of cluster {cluster}; answered are {}", clusters.join(", "))
            }
            (None, Some(cluster)) => write!(f, "{name} is {address} of cluster {cluster}"),
            (None, None) => write!(f, "{name} is {address}"),
        }
    }
}

/// Says why a name has no address, and what to look at.
fn why_not(
    name: &str,
    service: &Name,
    code: &str,
    families: &[Family],
    survey: Option<&Survey>,
    discovery: &Discovery,
) -> String {
    let walk = format!("`trieste diagnose service-discovery {service}` walks from the export to the answer");
    let Some(survey) = survey else {
        let known: Vec<String> = discovery
            .services()
            .iter()
            .filter(|other| {
                other.survey.is_some()
                    && (other.name.name == service.name || other.name.namespace == service.namespace)
            })
            .map(|other| other.name.to_string())
            .take(3)
            .collect();
        let like = if known.is_empty() { String::new() } else { format!(" (there is {})", known.join(", ")) };
        return format!(
            "{name} does not exist: service {service} is not imported in this cluster{like}; {walk}"
        );
    };
    let ids: Vec<String> = survey.clusters.iter().map(|cluster| cluster.id.to_string()).collect();
    if code != "NOERROR" {
        return format!("{name} does not exist: service {service} is exported by {}; {walk}", ids.join(", "));
    }
    let family = match families {
        [Family::V4] => "IPv4 ",
        [Family::V6] => "IPv6 ",
        _ => "",
    };
    let state = |cluster: &trieste_dns::ClusterSurvey| {
        let state = match (cluster.is_ready, cluster.is_up) {
            (false, _) => "nothing is ready",
            (true, false) => "not connected",
            (true, true) => "ready",
        };
        format!("{}: {state}", cluster.id)
    };
    let states: Vec<String> = survey.clusters.iter().map(state).collect();
    let states =
        if states.is_empty() { "no EndpointSlice of it is here".to_owned() } else { states.join(", ") };
    format!("{name} has no {family}address at present ({states}); {walk}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Objects;
    use crate::discovery::tests::{gateway, import, object, objects, slice};

    fn resolved(objects: Objects, name: &str, families: &[Family]) -> Result<Resolved, String> {
        let zones = vec![trieste_deploy::objects::SET_DOMAIN.to_owned(), "set.example".to_owned()];
        let service = service(name, &zones).map_err(|error| error.to_string())?;
        let found = from_objects(name, &service, families, &Discovery::new(objects), &zones);
        found.map_err(|error| format!("{error:#}"))
    }

    fn said(name: &str, family: Family) -> String {
        match resolved(objects(), name, &[family]) {
            Ok(found) => found.to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn a_name_is_what_the_dns_server_answers() {
        for (name, family, text) in [
            ("web.shop.svc.clusterset.local", Family::V4, "10.1.0.1 of cluster west"),
            ("web.shop.svc.set.example", Family::V4, "10.1.0.1 of cluster west"),
            ("east.web.shop.svc.clusterset.local", Family::V4, "10.2.0.1 of cluster east"),
            ("db.shop.svc.clusterset.local", Family::V6, "fd00:2::1 of cluster east"),
            ("north.db.shop.svc.clusterset.local", Family::V4, "10.3.1.1 of cluster north"),
        ] {
            assert_eq!(said(name, family), format!("{name} is {text}"));
        }
    }

    #[test]
    fn clusters_that_take_turns_are_told() {
        let mut objects = objects();
        objects.slices =
            vec![slice("web", "east", &[("10.2.0.1", true)]), slice("web", "south", &[("10.4.0.1", true)])];
        objects.gateways.clear();
        objects.imports[0] = import("web", "ClusterSetIP", &["east", "south"]);
        let found = resolved(objects, "web.shop.svc.clusterset.local", &[Family::V6, Family::V4]).unwrap();
        assert_eq!(
            found.to_string(),
            "web.shop.svc.clusterset.local is 10.2.0.1 of cluster east; answered are east, south"
        );
    }

    #[test]
    fn a_clusterset_ip_is_resolved_to_what_nodes_lead_it_to() {
        let led = |slices: Vec<Object>| {
            let mut objects = Objects { slices, ..objects() };
            objects.imports[0].body["spec"]["ips"] = serde_json::json!(["243.0.0.1"]);
            let found = resolved(objects, "web.shop.svc.clusterset.local", &[Family::V4]).unwrap();
            (found.address.to_string(), found.to_string())
        };
        let is = "web.shop.svc.clusterset.local is the clusterset IP 243.0.0.1, which leads";
        let west = slice("web", "west", &[("10.1.0.1", true)]);
        let [east, south] =
            [("east", "10.2.0.1"), ("south", "10.4.0.1")].map(|(id, ip)| slice("web", id, &[(ip, true)]));
        assert_eq!(
            led(vec![west, east.clone()]),
            ("10.1.0.1".to_owned(), format!("{is} to 10.1.0.1 of cluster west"))
        );
        let (address, text) = led(vec![east]);
        assert_eq!((address.as_str(), text), ("10.2.0.1", format!("{is} to 10.2.0.1 of cluster east")));
        let (address, text) = led(vec![south]);
        assert_eq!((address.as_str(), text), ("243.0.0.1", format!("{is} nowhere at present")));
    }

    #[test]
    fn clusterset_ips_of_both_families_are_resolved_apart() {
        let meaning = |family| {
            let mut objects = objects();
            objects.imports[0].body["spec"]["ips"] = serde_json::json!(["243.0.0.1", "fd00:243::1"]);
            objects.slices = vec![
                slice("web", "west", &[("10.1.0.1", true)]),
                slice("web", "east", &[("fd00:2::1", true)]),
            ];
            let found = resolved(objects, "web.shop.svc.clusterset.local", &[family]).unwrap();
            found.to_string().split_once(" is ").unwrap().1.to_owned()
        };
        assert_eq!(
            meaning(Family::V4),
            "the clusterset IP 243.0.0.1, which leads to 10.1.0.1 of cluster west"
        );
        assert_eq!(
            meaning(Family::V6),
            "the clusterset IP fd00:243::1, which leads to fd00:2::1 of cluster east"
        );
    }

    #[test]
    fn a_name_without_an_address_says_what_to_look_at() {
        for (name, family, texts) in [
            (
                "new.shop.svc.clusterset.local",
                Family::V4,
                [
                    "service shop/new is not imported in this cluster (there is shop/db, shop/web)",
                    "service-discovery shop/new",
                ],
            ),
            ("x.web.shop.svc.clusterset.local", Family::V4, ["does not exist", "is exported by east, west"]),
            (
                "web.shop.svc.clusterset.local",
                Family::V6,
                ["has no IPv6 address at present", "east: ready, west: ready"],
            ),
            (
                "web.shop.svc.cluster.local",
                Family::V4,
                ["no name of the set", "zone clusterset.local or set.example"],
            ),
            (
                "web.svc.clusterset.local",
                Family::V4,
                ["is no name of a service", "SERVICE.NAMESPACE.svc.ZONE"],
            ),
        ] {
            let found = said(name, family);
            assert!(texts.iter().all(|text| found.contains(text)), "{found}");
        }
        let mut objects = objects();
        objects.slices =
            vec![slice("web", "north", &[("10.3.0.1", true)]), slice("web", "east", &[("10.2.0.1", false)])];
        let found = resolved(objects, "web.shop.svc.clusterset.local", &[Family::V4]).unwrap_err();
        assert!(found.contains("(east: nothing is ready, north: not connected)"), "{found}");
        let objects = Objects { slices: Vec::new(), ..super::super::tests::objects() };
        let found = resolved(objects, "web.shop.svc.clusterset.local", &[Family::V4]).unwrap_err();
        assert!(found.contains("(no EndpointSlice of it is here)"), "{found}");
    }

    #[test]
    fn zones_are_the_apis_and_the_sets() {
        let submariner = object(
            Kind::Submariner,
            ("submariner-operator", "submariner"),
            &serde_json::json!({"spec": {"customDomains": ["set.example."]}}),
        );
        assert_eq!(zones(&[submariner, gateway()]), ["clusterset.local", "set.example"]);
        assert!(is_name("web.shop.svc.clusterset.local") && !is_name("web-1") && !is_name("a..svc.b"));
    }
}
