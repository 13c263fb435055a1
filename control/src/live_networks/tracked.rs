//! Which lists follow the cluster's objects, and which of their entries come from these. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::source::Source;
use crate::api::{ClusterNetworks, Object};

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
    use super::*;
    use crate::api::{Kind, ObjectMeta};

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
}
