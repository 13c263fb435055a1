//! The networks of the own cluster, as a ConfigMap says them: what its gateways announce, and may change while they run.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::limits::MAX_CIDRS;
use super::{ApiError, Cluster, ClusterSpec, Object, Resource as _, annotation, parse_cidrs, published};
use crate::parse::words;

/// The networks of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNetworks {
    /// Of pods.
    pub pods: Vec<IpNet>,
    /// Of services.
    pub services: Vec<IpNet>,
    /// Others that are reached by way of this cluster: of pods' second devices, of machines beside the cluster.
    pub extra: Vec<IpNet>,
    /// Globalnet's: the cluster is known by these alone.
    pub global: Vec<IpNet>,
}

impl ClusterNetworks {
    /// The ConfigMap's name, in the namespace of the gateways.
    pub const OBJECT: &str = "trieste-networks";
    /// The keys of its lists, which are separated by commas, spaces or lines. Globalnet's networks are not among them.
    pub const KEYS: [&str; 3] = ["pods", "services", "extra"];
    /// The keys of what pods begin with before they have read the others: those of pods and of services as they were when
    /// somebody joined last, so that a mistake in the others keeps no pod from starting.
    pub const START_KEYS: [&str; 2] = ["pods-at-start", "services-at-start"];

    /// Reads a ConfigMap. Globalnet's networks are `global`.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first entry that is no CIDR or that overlaps another one, and where there is none of pods
    /// and services, or too many.
    pub fn read(object: &Object, global: &[IpNet]) -> Result<Self, ApiError> {
        let data = object.body.get("data");
        let list = |key: &str| {
            let text = data.and_then(|data| data.get(key)?.as_str()).unwrap_or_default();
            let words: Vec<String> = words(text).map(str::to_owned).collect();
            // The order in which somebody writes them is no change.
            let cidrs: BTreeSet<IpNet> = parse_cidrs(&format!("data.{key}"), &words)?.into_iter().collect();
            Ok::<Vec<IpNet>, ApiError>(cidrs.into_iter().collect())
        };
        let [pods, services, extra] = Self::KEYS;
        let networks = Self {
            pods: list(pods)?,
            services: list(services)?,
            extra: list(extra)?,
            global: global.to_vec(),
        };
        networks.check()?;
        Ok(networks)
    }

    /// Reads the networks that a cluster has announced from its own Cluster object; `None` if it is another one's copy, cannot
    /// be read, or says none.
    pub fn announced(cluster: &Object) -> Option<Self> {
        let facts = Cluster::from_object(cluster).ok()?.spec.parse().ok()?;
        let listed = cluster.metadata.annotations.get(annotation::EXTRA_CIDRS).map_or("", String::as_str);
        let is_extra = |network: &IpNet| words(listed).any(|text| text.parse() == Ok(*network));
        let (extra, pods) = facts.cluster_cidr.into_iter().partition(is_extra);
        let networks = Self { pods, services: facts.service_cidr, extra, global: facts.global_cidr };
        let is_empty = networks.pods.is_empty() && networks.services.is_empty() && networks.extra.is_empty();
        Some(networks).filter(|_| !is_empty && cluster.metadata.origin().is_none())
    }

    /// Checks that they can be announced together.
    ///
    /// # Errors
    /// [`ApiError::Field`] for the first that overlaps another one, and where there is none of pods and services, or too many.
    pub fn check(&self) -> Result<(), ApiError> {
        if self.pods.is_empty() && self.services.is_empty() {
            return Err(ApiError::field("data", "has neither `pods` nor `services`".to_owned()));
        }
        let lists = Self::KEYS.into_iter().zip([&self.pods, &self.services, &self.extra]);
        let all = lists.flat_map(|(key, list)| list.iter().map(move |net| (key, net)));
        let all: Vec<(&str, &IpNet)> = all.chain(self.global.iter().map(|net| ("global", net))).collect();
        if all.len() > MAX_CIDRS {
            let problem = format!("has {} CIDRs, and Endpoints take at most {MAX_CIDRS}", all.len());
            return Err(ApiError::field("data", problem));
        }
        for (index, (key, net)) in all.iter().enumerate() {
            let overlaps = |(_, other): &&(&str, &IpNet)| other.contains(*net) || net.contains(*other);
            if let Some((other_key, other)) = all[index + 1..].iter().find(overlaps) {
                let problem = format!("{net} overlaps {other} of `{other_key}`");
                return Err(ApiError::field(format!("data.{key}"), problem));
            }
        }
        Ok(())
    }

    /// Returns the networks of pods, and those that are announced like these.
    pub fn cluster_cidrs(&self) -> Vec<IpNet> {
        self.pods.iter().chain(&self.extra).copied().collect()
    }

    /// Returns what Endpoints publish ([`published`]), the extra networks after those of pods.
    pub fn published(&self) -> Vec<IpNet> {
        published(&self.global, &self.services, &self.cluster_cidrs())
    }

    /// Returns the specification of the Cluster object.
    pub fn cluster(&self, cluster_id: &str) -> ClusterSpec {
        let mut cluster = ClusterSpec::new(cluster_id, &self.services, &self.cluster_cidrs());
        cluster.global_cidr = self.global.iter().map(IpNet::to_string).collect();
        cluster
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Kind, ObjectMeta};

    fn read(pods: &str, services: &str, extra: &str) -> Result<ClusterNetworks, String> {
        let mut object = Object::new(Kind::ConfigMap, ObjectMeta::new("ns", ClusterNetworks::OBJECT));
        object.body.insert("data".to_owned(), json!({"pods": pods, "services": services, "extra": extra}));
        ClusterNetworks::read(&object, &["242.0.0.0/16".parse().unwrap()]).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_separated_by_commas_spaces_or_lines() {
        let networks = read("10.1.0.0/16,10.9.0.0/16\nfd00:1::/48", " 10.96.0.0/12 ", "").unwrap();
        let texts: Vec<String> = networks.cluster_cidrs().iter().map(IpNet::to_string).collect();
        assert_eq!(texts, ["10.1.0.0/16", "10.9.0.0/16", "fd00:1::/48"]);
        assert_eq!(networks.published(), networks.global, "with Globalnet");
        let without = ClusterNetworks { global: Vec::new(), ..networks };
        assert_eq!(without.published()[0].to_string(), "10.96.0.0/12");
        assert_eq!(without.cluster("a").cluster_cidr.len(), 3);
    }

    #[test]
    fn what_cannot_be_announced_is_named() {
        for (lists, expected) in [
            (("10.1.0.0/16, east", "", ""), "data.pods[1]`: `east` is not a CIDR"),
            (("", " ,\n", "10.5.0.0/16"), "has neither `pods` nor `services`"),
            (
                ("10.1.0.0/16", "10.1.4.0/24", ""),
                "data.pods`: 10.1.0.0/16 overlaps 10.1.4.0/24 of `services`",
            ),
            (
                ("10.1.0.0/16", "", "242.0.9.0/24"),
                "data.extra`: 242.0.9.0/24 overlaps 242.0.0.0/16 of `global`",
            ),
            (("127.0.0.0/8", "", ""), "loopback"),
        ] {
            let problem = read(lists.0, lists.1, lists.2).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        let many: Vec<String> =
            (0..=MAX_CIDRS).map(|net| format!("10.{}.{}.0/24", net / 256, net % 256)).collect();
        assert!(read(&many.join(" "), "", "").is_err());
    }
}
