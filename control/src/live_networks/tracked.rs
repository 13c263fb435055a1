//! Which lists follow the cluster's objects, and which of their entries come from these. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde_json::Value;

use crate::api::{ClusterNetworks, Kind, Object, label};

/// What says networks of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Of pods: Calico's IPPools.
    CalicoPools,
    /// Of services: the ServiceCIDR objects.
    ServiceCidrs,
    /// Of pods: Cilium's CiliumPodIPPools.
    CiliumPools,
    /// Of pods: OpenShift's Network `cluster`.
    OpenShiftPods,
    /// Of services: the same.
    OpenShiftServices,
}

/// The name of OpenShift's object; others of its kind mean nothing.
const OPENSHIFT_NETWORK: &str = "cluster";

impl Source {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::CalicoPools,
        Self::ServiceCidrs,
        Self::CiliumPools,
        Self::OpenShiftPods,
        Self::OpenShiftServices,
    ];

    /// Returns its name in the annotation. The first two are those of their lists, since there were no others.
    const fn name(self) -> &'static str {
        match self {
            Self::CalicoPools => "pods",
            Self::ServiceCidrs => "services",
            Self::CiliumPools => "cilium-pods",
            Self::OpenShiftPods => "openshift-pods",
            Self::OpenShiftServices => "openshift-services",
        }
    }

    /// Returns the key in the ConfigMap of the list that has its networks.
    #[must_use]
    pub const fn key(self) -> &'static str {
        let [pods, services, _] = ClusterNetworks::KEYS;
        if self.is_of_pods() { pods } else { services }
    }

    /// Returns `true` if its networks are those of pods, `false` if they are those of services.
    #[must_use]
    pub const fn is_of_pods(self) -> bool {
        match self {
            Self::CalicoPools | Self::CiliumPools | Self::OpenShiftPods => true,
            Self::ServiceCidrs | Self::OpenShiftServices => false,
        }
    }

    /// Returns the kind of its objects.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::CalicoPools => Kind::IpPool,
            Self::ServiceCidrs => Kind::ServiceCidr,
            Self::CiliumPools => Kind::CiliumPodIpPool,
            Self::OpenShiftPods | Self::OpenShiftServices => Kind::OpenShiftNetwork,
        }
    }

    /// Returns the networks that an object says, those in `recorded` also where it does not give any addresses of them any more.
    fn networks(self, object: &Object, recorded: &BTreeSet<IpNet>) -> Vec<IpNet> {
        let Some(spec) = object.body.get("spec") else { return Vec::new() };
        let texts: Vec<&str> = match self {
            Self::CalicoPools if is_of_own_pods(object, spec) => spec["cidr"].as_str().into_iter().collect(),
            Self::CalicoPools => Vec::new(),
            Self::ServiceCidrs => texts(&spec["cidrs"], Value::as_str),
            Self::CiliumPools => ["ipv4", "ipv6"]
                .iter()
                .flat_map(|family| texts(&spec[family]["cidrs"], Value::as_str))
                .collect(),
            Self::OpenShiftPods => of_openshift(object, "clusterNetwork", |network| network["cidr"].as_str()),
            Self::OpenShiftServices => of_openshift(object, "serviceNetwork", Value::as_str),
        };
        texts
            .into_iter()
            .filter_map(|text| text.trim().parse().ok())
            .map(|network: IpNet| network.trunc())
            // Pods keep their addresses of a pool that is switched off. One that always was may be for another cluster's network.
            .filter(|network| spec["disabled"] != true || recorded.contains(network))
            .collect()
    }

    /// Returns the networks that objects say; `recorded` are those that they have said before.
    #[must_use]
    pub fn found<'a>(
        self,
        objects: impl IntoIterator<Item = &'a Object>,
        recorded: &BTreeSet<IpNet>,
    ) -> BTreeSet<IpNet> {
        objects.into_iter().flat_map(|object| self.networks(object, recorded)).collect()
    }
}

fn texts(list: &Value, text: fn(&Value) -> Option<&str>) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(text).collect()
}

/// Returns what OpenShift's Network says: what is in force by its status, or what is wanted where there is none.
fn of_openshift<'a>(object: &'a Object, list: &str, text: fn(&Value) -> Option<&str>) -> Vec<&'a str> {
    let parts = ["status", "spec"].into_iter().filter_map(|part| object.body.get(part));
    let mut lists = parts.map(|part| texts(&part[list], text)).filter(|texts| !texts.is_empty());
    (object.metadata.name == OPENSHIFT_NETWORK).then(|| lists.next()).flatten().unwrap_or_default()
}

/// Returns `true` if a pool is for pods of this cluster.
fn is_of_own_pods(pool: &Object, spec: &Value) -> bool {
    let is_remote = pool.metadata.labels.contains_key(label::REMOTE_POOL);
    let uses = spec["allowedUses"].as_array();
    let is_for_pods = uses.is_none_or(|uses| uses.is_empty() || uses.iter().any(|one| one == "Workload"));
    !is_remote && is_for_pods
}

/// What lists of the cluster's networks follow, and the entries that come from each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrackedLists(pub BTreeMap<Source, BTreeSet<IpNet>>);

impl TrackedLists {
    /// The annotation of the ConfigMap.
    pub const ANNOTATION: &str = "trieste.io/networks-followed";

    /// Reads the annotation; without one no list follows anything.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn of(object: &Object) -> Result<Self, String> {
        let Some(text) = object.metadata.annotations.get(Self::ANNOTATION) else {
            return Ok(Self::default());
        };
        let mut sources: BTreeMap<String, BTreeSet<IpNet>> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let known =
            Source::ALL.into_iter().filter_map(|source| Some((source, sources.remove(source.name())?)));
        Ok(Self(known.collect()))
    }

    /// Returns what to follow from now on, where these networks were found, `before` are those that were followed, and a cluster's
    /// networks are `named`. A source that was followed is on if none of its entries was taken out, and keeps its entries; another one
    /// begins if nothing was found that is not named. Any else was given by somebody.
    #[must_use]
    pub fn renewed(&self, before: &Self, named: &ClusterNetworks) -> Self {
        let all = || named.pods.iter().chain(&named.services).chain(&named.extra);
        let follow = |source: Source| {
            let list = if source.is_of_pods() { &named.pods } else { &named.services };
            let entries: BTreeSet<IpNet> = list.iter().map(IpNet::trunc).collect();
            let before = before.0.get(&source);
            let is_on = |recorded: &&BTreeSet<IpNet>| !recorded.is_empty() && recorded.is_subset(&entries);
            if let Some(recorded) = before.filter(is_on) {
                return Some((source, recorded.clone()));
            }
            let Some(found) = self.0.get(&source) else {
                return before.filter(|recorded| recorded.is_empty()).map(|_| (source, BTreeSet::new()));
            };
            let is_named = |network: &IpNet| all().any(|named| named.trunc().contains(network));
            found.iter().all(is_named).then(|| (source, found.intersection(&entries).copied().collect()))
        };
        Self(Source::ALL.into_iter().filter_map(follow).collect())
    }

    /// Returns the annotation's value.
    #[must_use]
    pub fn value(&self) -> String {
        let sources: BTreeMap<&str, &BTreeSet<IpNet>> =
            self.0.iter().map(|(source, nets)| (source.name(), nets)).collect();
        // Strings and lists of strings are always written.
        serde_json::to_string(&sources).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::ObjectMeta;

    #[test]
    fn the_annotation_is_read_back_and_lists_of_later_versions_are_left_out() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let followed =
            TrackedLists([(Source::ServiceCidrs, nets(&["10.96.0.0/16", "fd00:96::/112"]))].into());
        let text = followed.value();
        assert_eq!(text, r#"{"services":["10.96.0.0/16","fd00:96::/112"]}"#);
        let mut object = Object::new(Kind::ConfigMap, ObjectMeta::new("ns", ClusterNetworks::OBJECT));
        assert_eq!(
            (TrackedLists::of(&object), TrackedLists::default().value()),
            (Ok(TrackedLists::default()), "{}".to_owned())
        );
        let later = text.replace('}', ",\"others\":[]}");
        object.metadata.annotations.insert(TrackedLists::ANNOTATION.to_owned(), later);
        assert_eq!(TrackedLists::of(&object), Ok(followed));
        object.metadata.annotations.insert(TrackedLists::ANNOTATION.to_owned(), "services".to_owned());
        assert!(TrackedLists::of(&object).is_err());
    }

    #[test]
    fn a_list_that_somebody_has_given_is_not_followed_and_one_that_was_followed_is_on() {
        let nets =
            |text: &str| text.split_whitespace().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let lists = |pods: &str, services: &str| {
            let both = [(Source::CalicoPools, pods), (Source::ServiceCidrs, services)].into_iter();
            let some = both.filter(|(_, text)| *text != "-");
            TrackedLists(some.map(|(list, text)| (list, nets(text).into_iter().collect())).collect())
        };
        let found = lists("10.1.0.0/16", "10.96.0.0/16 fd00:96::/112");
        for (before, pods, services, extra, expected) in [
            // The first time.
            (lists("-", "-"), "10.1.0.0/16", "10.96.0.0/16 fd00:96::/112", "", found.clone()),
            (lists("-", "-"), "10.0.0.0/13", "10.96.0.0/16", "", lists("", "-")),
            (lists("-", "-"), "10.5.0.0/16", "", "", lists("-", "-")),
            // Gateways have left out what an entry covers, and what appears is theirs to add.
            (
                lists("-", "10.96.0.0/16"),
                "10.1.0.0/16",
                "10.96.0.0/16",
                "fd00:96::/64",
                lists("10.1.0.0/16", "10.96.0.0/16"),
            ),
            // A pool that is switched off is not found, and is an entry still.
            (
                lists("10.1.0.0/16 10.7.0.0/16", "-"),
                "10.1.0.0/16 10.7.0.0/16",
                "10.5.0.0/16",
                "",
                lists("10.1.0.0/16 10.7.0.0/16", "-"),
            ),
            // Somebody has given a wider list, and another one.
            (lists("10.1.0.0/16", "-"), "10.0.0.0/13", "", "", lists("", "-")),
            (
                lists("10.1.0.0/16", "10.96.0.0/16"),
                "10.1.0.0/16",
                "10.98.0.0/16",
                "",
                lists("10.1.0.0/16", "-"),
            ),
        ] {
            let named = ClusterNetworks {
                pods: nets(pods),
                services: nets(services),
                extra: nets(extra),
                global: Vec::new(),
            };
            assert_eq!(found.renewed(&before, &named), expected, "{before:?} {named:?}");
        }
        let nothing = TrackedLists::default();
        let before = lists("10.1.0.0/16", "-");
        let named = ClusterNetworks { pods: nets("10.1.0.0/16"), ..ClusterNetworks::default() };
        assert_eq!(nothing.renewed(&before, &named), before, "what could not be read ends nothing");
        let before = lists("", "-");
        assert_eq!(nothing.renewed(&before, &named), before, "nor where somebody's entry covers all");
    }

    #[test]
    fn networks_are_those_of_objects_for_this_clusters_pods_and_services() {
        let object = |source: Source, spec: Value, label: Option<&str>| {
            let mut object = Object::new(source.kind(), ObjectMeta::new("", "a"));
            object.body.insert("spec".to_owned(), spec);
            object.metadata.labels.extend(label.map(|label| (label.to_owned(), "true".to_owned())));
            object
        };
        for (list, spec, label, expected) in [
            (
                Source::ServiceCidrs,
                json!({"cidrs": ["10.96.0.0/16", "fd00:96::/112"]}),
                None,
                "10.96.0.0/16 fd00:96::/112",
            ),
            (
                Source::ServiceCidrs,
                json!({"cidrs": ["10.96.0.0/16", "10.96.4.0/24", "x", 7]}),
                None,
                "10.96.0.0/16 10.96.4.0/24",
            ),
            (Source::ServiceCidrs, json!({}), None, ""),
            (Source::CalicoPools, json!({"cidr": "10.1.3.4/16"}), None, "10.1.0.0/16"),
            (Source::CalicoPools, json!({"cidr": "10.2.0.0/16", "disabled": true}), None, ""),
            (Source::CalicoPools, json!({"cidr": "10.8.0.0/16", "disabled": true}), None, "10.8.0.0/16"),
            (Source::CalicoPools, json!({"cidr": "10.2.0.0/16"}), Some(label::REMOTE_POOL), ""),
            (Source::CalicoPools, json!({"cidr": "10.9.0.0/16", "allowedUses": ["LoadBalancer"]}), None, ""),
            (
                Source::CiliumPools,
                json!({"ipv4": {"cidrs": ["10.20.0.0/16", "10.30.0.0/16"], "maskSize": 24}, "ipv6": {"cidrs": ["fd00:20::/104", 7]}}),
                None,
                "10.20.0.0/16 10.30.0.0/16 fd00:20::/104",
            ),
            (Source::CiliumPools, json!({"ipv4": {"cidrs": "10.20.0.0/16"}}), None, ""),
            (
                Source::CalicoPools,
                json!({"cidr": "10.9.0.0/16", "allowedUses": ["Tunnel", "Workload"]}),
                None,
                "10.9.0.0/16",
            ),
        ] {
            let recorded = BTreeSet::from(["10.8.0.0/16".parse().unwrap()]);
            let found = list.found(&[object(list, spec.clone(), label)], &recorded);
            let found: Vec<String> = found.iter().map(IpNet::to_string).collect();
            assert_eq!(found.join(" "), expected, "{list:?} {spec}");
        }
    }

    #[test]
    fn openshifts_network_says_what_is_in_force_and_what_is_wanted_where_it_does_not() {
        let networks = |pods: &[&str], services: &[&str]| {
            let pods: Vec<Value> = pods.iter().map(|cidr| json!({"cidr": cidr, "hostPrefix": 23})).collect();
            json!({"clusterNetwork": pods, "serviceNetwork": services})
        };
        let wanted = networks(&["10.128.0.0/14", "10.132.0.0/14"], &["172.30.0.0/16"]);
        let in_force = networks(&["10.128.0.0/14", "fd01::/48"], &[]);
        for (name, status, pods, services) in [
            ("cluster", Some(&in_force), "10.128.0.0/14 fd01::/48", "172.30.0.0/16"),
            ("cluster", Some(&json!({})), "10.128.0.0/14 10.132.0.0/14", "172.30.0.0/16"),
            ("cluster", None, "10.128.0.0/14 10.132.0.0/14", "172.30.0.0/16"),
            ("another", Some(&in_force), "", ""),
        ] {
            let mut object = Object::new(Kind::OpenShiftNetwork, ObjectMeta::new("", name));
            object.body.insert("spec".to_owned(), wanted.clone());
            object.body.extend(status.map(|status| ("status".to_owned(), status.clone())));
            for (source, expected) in [(Source::OpenShiftPods, pods), (Source::OpenShiftServices, services)] {
                let found = source.found([&object], &BTreeSet::new());
                let found: Vec<String> = found.iter().map(IpNet::to_string).collect();
                assert_eq!(found.join(" "), expected, "{source:?} {name} {status:?}");
            }
        }
    }
}
