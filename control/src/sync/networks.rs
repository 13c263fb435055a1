//! The networks of clusters, by their Cluster objects on the broker, by the same rule as their Endpoints' subnets: whoever
//! was there first has them, and nobody but us has ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::claims::{Claims, Conflict};
use super::name::Name;
use super::state::age_of;
use crate::api::{Cluster, Kind, Object, Resource as _, ensure_valid_name};

/// The networks of every cluster.
#[derive(Debug)]
pub struct Networks {
    own_id: String,
    /// This cluster's networks, those that are not published among them; `None` while it is not registered.
    own: Option<Vec<IpNet>>,
    /// What the others say that they have, by their IDs.
    others: BTreeMap<String, Claim>,
    claims: Claims,
    changed: BTreeSet<String>,
}

/// What a cluster says that it has. Each part is judged by itself.
#[derive(Debug, Default)]
struct Claim {
    /// What its Endpoints publish.
    published: Vec<IpNet>,
    /// With Globalnet: IPv6 networks, whose addresses are not translated.
    untranslated: Vec<IpNet>,
}

/// Why an address is not one of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotIts {
    /// It is this cluster's.
    Ours,
    /// The cluster is not registered.
    Unregistered,
    /// It is in none of the cluster's networks.
    Outside,
    /// It is in one of them, and another cluster had that first: what is claimed, what is held and whose that is.
    Held(IpNet, IpNet, String),
}

impl Networks {
    /// Returns what a cluster of this ID sees before it has read anything.
    pub fn new(own_id: &str) -> Self {
        Self {
            own_id: own_id.to_owned(),
            own: None,
            others: BTreeMap::new(),
            claims: Claims::default(),
            changed: BTreeSet::new(),
        }
    }

    /// Takes in all Clusters of the broker.
    pub fn list(&mut self, clusters: &[Object]) {
        let present: BTreeSet<&str> = clusters.iter().map(|object| object.metadata.name.as_str()).collect();
        let ids = self.others.keys().chain(self.own.is_some().then_some(&self.own_id));
        let gone: Vec<String> =
            ids.map(|id| ensure_valid_name(id)).filter(|name| !present.contains(name.as_str())).collect();
        gone.iter().for_each(|name| self.remove(name));
        clusters.iter().for_each(|cluster| self.put(cluster));
    }

    /// Takes in a Cluster of the broker as it is now. One whose name, label and spec do not name one cluster, or that makes no
    /// sense, is none.
    pub fn put(&mut self, object: &Object) {
        let name = object.metadata.name.as_str();
        let cluster = Cluster::from_object(object).ok().and_then(|cluster| cluster.spec.parse().ok());
        let is_meant = |id: &str| ensure_valid_name(id) == name && object.metadata.origin() == Some(id);
        let Some(facts) = cluster.filter(|facts| is_meant(&facts.cluster_id)) else {
            return self.remove(name);
        };
        let id = facts.cluster_id.clone();
        let age = Some(age_of(object));
        let published = facts.published_subnets();
        let inside = || facts.service_cidr.iter().chain(&facts.cluster_cidr).copied();
        let untranslated: Vec<IpNet> = match facts.global_cidr.is_empty() {
            true => Vec::new(),
            false => inside().filter(|net| matches!(net, IpNet::V6(_))).collect(),
        };
        self.claims.age(&id, age);
        for (name, nets) in names(&id).iter().zip([&published, &untranslated]) {
            self.claims.claim(name, &id, nets);
        }
        if id == self.own_id {
            let own: Vec<IpNet> = inside().chain(facts.global_cidr.iter().copied()).collect();
            if self.own.as_ref() != Some(&own) {
                self.own = Some(own);
                self.changed.insert(id);
            }
            return;
        }
        let known = self.others.get(&id);
        if known.is_none_or(|known| known.published != published || known.untranslated != untranslated) {
            self.others.insert(id.clone(), Claim { published, untranslated });
            self.changed.insert(id);
        }
    }

    /// Takes in that there is no Cluster of this name any more.
    pub fn remove(&mut self, name: &str) {
        let is_named = |id: &&String| ensure_valid_name(id) == name;
        let own = Some(&self.own_id).filter(|_| self.own.is_some()).filter(is_named);
        // IDs are labels, of which nothing has to be changed to make a name.
        let other = self.others.get_key_value(name).map(|(id, _)| id);
        let Some(id) = own.or(other).cloned() else { return };
        for name in names(&id) {
            self.claims.withdraw(&name);
        }
        self.claims.age(&id, None);
        if id == self.own_id {
            self.own = None;
        }
        self.others.remove(&id);
        self.changed.insert(id);
    }

    /// Drains the clusters of whose addresses [`Networks::check`] may say something else now. Where ours changed, that is all
    /// of them.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        let turned = self.claims.evaluate();
        let ids = turned.iter().filter_map(|name| name.name.split('/').next());
        // Whoever was there first, what is ours stays so here.
        self.changed.extend(ids.filter(|id| *id != self.own_id).map(str::to_owned));
        std::mem::take(&mut self.changed)
    }

    /// Checks that an address is one of a cluster, as of the last [`Networks::take_changed`]. While this cluster is not registered
    /// itself, those that are not may have any.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self, cluster_id: &str, address: IpAddr) -> Result<(), NotIts> {
        if contains(self.own.iter().flatten(), address) {
            return Err(NotIts::Ours);
        }
        let Some(claim) = self.others.get(cluster_id) else {
            return if self.own.is_none() { Ok(()) } else { Err(NotIts::Unregistered) };
        };
        let mut lost = None;
        for (nets, name) in [&claim.published, &claim.untranslated].into_iter().zip(names(cluster_id)) {
            if !contains(nets, address) {
                continue;
            }
            match self.claims.conflict(&name) {
                None => return Ok(()),
                Some(conflict) => lost = Some(NotIts::from(conflict)),
            }
        }
        Err(lost.unwrap_or(NotIts::Outside))
    }

    /// Returns why other clusters do not take this cluster's IPv6 addresses, which Globalnet does not translate: another cluster has
    /// one of their networks, and had it first. `None` if they take them.
    pub fn untaken(&self) -> Option<NotIts> {
        let [_, untranslated] = names(&self.own_id);
        self.claims.conflict(&untranslated).map(NotIts::from)
    }

    /// Returns the cluster in whose networks an address is; this one if it is in its own.
    pub fn holder(&self, address: IpAddr) -> Option<&str> {
        match contains(self.own.iter().flatten(), address) {
            true => Some(&self.own_id),
            false => self.claims.claimant(IpNet::from(address)),
        }
    }
}

/// Returns the names under which a cluster claims what is published, and what is not translated.
fn names(cluster_id: &str) -> [Name; 2] {
    [Name::new(Kind::Cluster, cluster_id), Name::new(Kind::Cluster, &format!("{cluster_id}/untranslated"))]
}

fn contains<'n>(nets: impl IntoIterator<Item = &'n IpNet>, address: IpAddr) -> bool {
    nets.into_iter().any(|net| net.contains(&address))
}

impl From<&Conflict> for NotIts {
    fn from(conflict: &Conflict) -> Self {
        Self::Held(conflict.claimed, conflict.held, conflict.holder.to_string())
    }
}

impl fmt::Display for NotIts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => write!(f, "it is in this cluster's own networks"),
            Self::Unregistered => write!(f, "that cluster is not registered with the broker"),
            Self::Outside => write!(f, "it is in none of that cluster's networks"),
            Self::Held(claimed, held, holder) => {
                write!(f, "its network {claimed} overlaps {held} of cluster {holder}, which was there first")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::ClusterSpec;

    /// Returns a Cluster of the broker that was made at this second: its Service, pod and global networks.
    fn cluster(id: &str, since: i64, [service, pods, global]: [&[&str]; 3]) -> Object {
        let texts = |nets: &[&str]| nets.iter().map(|net| (*net).to_owned()).collect();
        let spec = ClusterSpec {
            service_cidr: texts(service),
            cluster_cidr: texts(pods),
            global_cidr: texts(global),
            ..ClusterSpec::new(id, &[], &[])
        };
        let mut object = Cluster::new("broker", spec).unwrap().to_object();
        object.metadata.creation_timestamp = jiff::Timestamp::from_second(since).ok();
        object.metadata.labels.insert(crate::api::label::CLUSTER_ID.to_owned(), id.to_owned());
        object
    }

    fn plain(id: &str, since: i64, pods: &str) -> Object {
        cluster(id, since, [&[], &[pods], &[]])
    }

    fn check(networks: &Networks, id: &str, address: &str) -> Result<(), NotIts> {
        networks.check(id, address.parse().unwrap())
    }

    fn changed(networks: &mut Networks) -> Vec<String> {
        networks.take_changed().into_iter().collect()
    }

    #[test]
    fn an_address_is_a_clusters_if_it_is_in_its_networks_of_either_family() {
        let mut networks = Networks::new("east");
        let west = cluster("west", 2, [&["10.97.0.0/16", "fd97::/112"], &["10.2.0.0/16", "fd02::/64"], &[]]);
        networks.list(&[plain("east", 1, "10.1.0.0/16"), west]);
        assert_eq!(changed(&mut networks), ["east", "west"]);
        for address in ["10.97.0.7", "10.2.255.255", "fd97::1", "fd02::1"] {
            assert_eq!(check(&networks, "west", address), Ok(()), "{address}");
        }
        for address in ["10.3.0.0", "8.8.8.8", "fd03::1"] {
            assert_eq!(check(&networks, "west", address), Err(NotIts::Outside), "{address}");
        }
        assert_eq!(check(&networks, "west", "10.1.0.1"), Err(NotIts::Ours));
        assert_eq!(check(&networks, "north", "10.2.0.1"), Err(NotIts::Unregistered));
        let holder = |address: &str| networks.holder(address.parse().unwrap());
        assert_eq!(
            [holder("10.1.0.1"), holder("fd02::1"), holder("243.0.0.1")],
            [Some("east"), Some("west"), None]
        );
    }

    #[test]
    fn a_cluster_with_globalnet_learns_whether_others_take_its_ipv6_addresses() {
        let mut networks = Networks::new("east");
        let of_east =
            |since| cluster("east", since, [&[], &["10.42.0.0/16", "fd42::/64"], &["242.1.0.0/16"]]);
        let west = cluster("west", 2, [&[], &["10.42.0.0/16", "fd42::/48"], &["242.2.0.0/16"]]);
        networks.list(&[of_east(1), west.clone()]);
        networks.take_changed();
        assert_eq!(networks.untaken(), None, "it was there first");
        networks.list(&[of_east(3), west]);
        networks.take_changed();
        let held = |text: &str| text.parse().unwrap();
        let expected = NotIts::Held(held("fd42::/64"), held("fd42::/48"), "west".to_owned());
        assert_eq!(networks.untaken(), Some(expected));
        networks.remove("west");
        networks.take_changed();
        assert_eq!(networks.untaken(), None);
    }

    #[test]
    fn with_globalnet_global_addresses_count_and_ipv6_ones_as_they_are() {
        let mut networks = Networks::new("east");
        let both: &[&str] = &["10.42.0.0/16", "fd42::/64"];
        networks.list(&[
            cluster("east", 1, [&[], &["10.42.0.0/16", "fd41::/64"], &["242.1.0.0/16"]]),
            cluster("west", 2, [&[], both, &["242.2.0.0/16"]]),
            cluster("north", 3, [&[], both, &["242.3.0.0/16"]]),
        ]);
        networks.take_changed();
        assert_eq!(check(&networks, "west", "242.2.0.1"), Ok(()));
        assert_eq!(check(&networks, "west", "fd42::1"), Ok(()));
        assert_eq!(check(&networks, "west", "10.42.0.1"), Err(NotIts::Ours));
        assert_eq!(check(&networks, "north", "242.3.0.1"), Ok(()), "what is equal inside costs nothing");
        assert!(matches!(check(&networks, "north", "fd42::1"), Err(NotIts::Held(..))));
    }

    #[test]
    fn who_claims_what_an_older_cluster_has_gets_none_of_it_until_one_of_them_changes() {
        let mut networks = Networks::new("east");
        networks.list(&[plain("east", 1, "10.1.0.0/16"), plain("west", 2, "10.2.0.0/16")]);
        networks.take_changed();
        networks.put(&plain("rogue", 3, "10.2.4.0/24"));
        assert_eq!(changed(&mut networks), ["rogue"], "who has it is not judged anew");
        let held = check(&networks, "rogue", "10.2.4.1").unwrap_err();
        assert_eq!(
            held.to_string(),
            "its network 10.2.4.0/24 overlaps 10.2.0.0/16 of cluster west, which was there first"
        );
        assert_eq!(check(&networks, "west", "10.2.4.1"), Ok(()));

        networks.put(&plain("west", 2, "10.9.0.0/16"));
        assert_eq!(changed(&mut networks), ["rogue", "west"]);
        assert_eq!(check(&networks, "rogue", "10.2.4.1"), Ok(()));
        networks.put(&plain("west", 2, "10.9.0.0/16"));
        networks.put(&plain("other", 4, "10.8.0.0/16"));
        assert_eq!(changed(&mut networks), ["other"], "one change concerns one cluster");
    }

    #[test]
    fn without_a_registration_of_ours_only_those_that_have_one_are_held_to_it() {
        let mut networks = Networks::new("east");
        assert_eq!(check(&networks, "west", "10.2.0.1"), Ok(()));
        networks.put(&plain("west", 2, "10.2.0.0/16"));
        networks.take_changed();
        assert_eq!(check(&networks, "west", "10.3.0.1"), Err(NotIts::Outside));
        assert_eq!(check(&networks, "north", "10.3.0.1"), Ok(()));
        networks.put(&plain("east", 1, "10.3.0.0/16"));
        assert_eq!(changed(&mut networks), ["east"]);
        assert_eq!(check(&networks, "north", "10.4.0.1"), Err(NotIts::Unregistered));
        networks.remove("east");
        networks.remove("west");
        networks.remove("nobody");
        assert_eq!(changed(&mut networks), ["east", "west"]);
        assert_eq!(check(&networks, "west", "10.3.0.1"), Ok(()));
    }

    #[test]
    fn objects_that_name_two_clusters_or_make_no_sense_are_none() {
        let mut networks = Networks::new("east");
        networks.put(&plain("east", 1, "10.1.0.0/16"));
        let mut other_label = plain("west", 2, "10.2.0.0/16");
        other_label.metadata.labels.insert(crate::api::label::CLUSTER_ID.to_owned(), "north".to_owned());
        let mut other_name = plain("west", 2, "10.2.0.0/16");
        other_name.metadata.name = "a-west".to_owned();
        let mut no_sense = plain("west", 2, "10.2.0.0/16");
        no_sense.body["spec"]["cluster_cidr"] = json!(["nowhere"]);
        for bad in [other_label, other_name, no_sense] {
            networks.put(&plain("west", 2, "10.2.0.0/16"));
            networks.put(&bad);
            networks.take_changed();
            let is_known = check(&networks, "west", "10.2.0.1").is_ok();
            assert_eq!(is_known, bad.metadata.name != "west", "{bad:?}");
        }
    }
}
