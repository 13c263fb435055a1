//! A name of the set, resolved from a cluster's objects as its DNS server answers it.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use serde::Serialize;
use trieste_control::api::{Kind, Object};
use trieste_control::store::{AnyStore, Location};
use trieste_discovery::ask::Question;
use trieste_dns::{Settings, Survey, Transport, Zone, answer};

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
    /// The cluster whose address it is; missing with a clusterset IP.
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
    let mut discovery = Discovery::new(lists.objects(gateways).await?);
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
    let mut settings = Settings::new(parsed, trieste_dns::DEFAULT_TTL).context("the set's zones")?;
    settings.answers_missing_namespaces = true;
    let records = discovery.snapshot.records();
    let key = trieste_dns::ServiceName::parse(&service.namespace, &service.name).ok();
    let survey = key.and_then(|key| records.survey(&key));
    let mut code = String::new();
    for family in families {
        let question = Question::new(name, family.rtype())?;
        let mut reply = Vec::new();
        answer(&question.query(0), Transport::Tcp, records, &settings, &mut reply);
        let reply = question.read(0, &reply).context("the answer cannot be read")?;
        if let Some(address) = reply.addresses().next() {
            return Ok(Resolved::of(name, address, *family, survey.as_ref()));
        }
        code = reply.code;
    }
    bail!("{}", why_not(name, service, &code, families, survey.as_ref(), discovery))
}

impl Resolved {
    fn of(name: &str, address: IpAddr, family: Family, survey: Option<&Survey>) -> Self {
        let clusters = survey.into_iter().flat_map(|survey| &survey.clusters);
        let is_of_set = survey.is_some_and(|survey| survey.ips.contains(&address));
        let mut its = clusters.filter(|cluster| !is_of_set && cluster.addresses.contains(&address));
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
        Self { name: name.to_owned(), address, cluster, clusters }
    }
}

impl std::fmt::Display for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, address, cluster, clusters } = self;
        match cluster {
            None => write!(f, "{name} is {address}, the clusterset IP"),
            Some(cluster) if clusters.len() > 1 => {
                write!(f, "{name} is {address} of cluster {cluster}; answered are {}", clusters.join(", "))
            }
            Some(cluster) => write!(f, "{name} is {address} of cluster {cluster}"),
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
    fn clusters_that_take_turns_and_clusterset_ips_are_told() {
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
        let mut objects = super::super::tests::objects();
        objects.imports[0].body["spec"]["ips"] = serde_json::json!(["243.0.0.1"]);
        let found = resolved(objects, "web.shop.svc.clusterset.local", &[Family::V4]).unwrap();
        assert_eq!(found.to_string(), "web.shop.svc.clusterset.local is 243.0.0.1, the clusterset IP");
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
