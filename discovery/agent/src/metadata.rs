//! Labels and annotations that an export asks to have on imports (`exportedLabels`, `exportedAnnotations` of its specification).
//!
//! The oldest export's are on the import. Beside them stands which those are and whose, so that they go when they are not asked
//! for any more: an import has labels and annotations of others too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use trieste_control::api::{Object, ObjectMeta};

/// Ours, on the broker's import: which cluster's labels and annotations are on it, and their keys.
pub(crate) const EXPORTED: &str = "trieste.io/exported";
/// Ours: most of each, in number and in bytes of keys and values. Kubernetes allows 256 KiB of annotations for an object.
const MAX_ENTRIES: usize = 64;
const MAX_BYTES: usize = 16 << 10;
/// From Kubernetes: the longest name of a key, the longest prefix and the longest value of a label.
const MAX_NAME: usize = 63;
const MAX_PREFIX: usize = 253;
const MAX_LABEL_VALUE: usize = 63;
/// Domains whose keys have a meaning on imports; nobody exports them, nor those of domains below.
const RESERVED: [&str; 5] =
    ["submariner.io", "submariner-io", "trieste.io", "multicluster.kubernetes.io", "multicluster.x-k8s.io"];
/// What `kubectl` keeps for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Labels and annotations of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exported {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Exported {
    /// Reads those of an export. What Kubernetes would refuse is left out, as are keys of [`RESERVED`] domains and all that is
    /// too much.
    pub(crate) fn of_export(export: &Object) -> Self {
        let spec = export.body.get("spec");
        let map = |field: &str, is_allowed: fn(&str) -> bool| {
            let entries = spec.and_then(|spec| spec.get(field)).and_then(Value::as_object);
            let entries =
                entries.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)));
            bounded(entries.filter(|(key, value)| is_key(key) && !is_reserved(key) && is_allowed(value)))
        };
        Self {
            labels: map("exportedLabels", is_label_value),
            annotations: map("exportedAnnotations", |_| true),
        }
    }

    /// Reads those of the oldest export from the broker's import.
    pub(crate) fn of_import(import: &Object) -> Self {
        let Some(list) = List::of(&import.metadata) else { return Self::default() };
        let pick = |keys: &BTreeSet<String>, map: &BTreeMap<String, String>| {
            let known = keys.iter().filter_map(|key| map.get_key_value(key));
            known.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        Self {
            labels: pick(&list.labels, &import.metadata.labels),
            annotations: pick(&list.annotations, &import.metadata.annotations),
        }
    }

    /// Puts them on the broker's import in the place of those that are there.
    pub(crate) fn put(&self, metadata: &mut ObjectMeta, cluster_id: &str) {
        remove(metadata);
        metadata.labels.extend(self.labels.clone());
        metadata.annotations.extend(self.annotations.clone());
        if *self != Self::default() {
            let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
            let list = json!({"cluster": cluster_id, "labels": keys(&self.labels),
                "annotations": keys(&self.annotations)});
            metadata.annotations.insert(EXPORTED.to_owned(), list.to_string());
        }
    }
}

/// Removes from the broker's import what a cluster has put there, if it was that one.
pub(crate) fn withdraw(metadata: &mut ObjectMeta, cluster_id: &str) {
    if List::of(metadata).is_some_and(|list| list.cluster == cluster_id) {
        remove(metadata);
    }
}

fn remove(metadata: &mut ObjectMeta) {
    let list = List::of(metadata).unwrap_or_default();
    metadata.labels.retain(|key, _| !list.labels.contains(key));
    metadata.annotations.retain(|key, _| !list.annotations.contains(key));
    metadata.annotations.remove(EXPORTED);
}

/// Whose labels and annotations are on an import, and which.
#[derive(Default)]
struct List {
    cluster: String,
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

impl List {
    /// Reads what somebody has written; of reserved keys nothing is taken.
    fn of(metadata: &ObjectMeta) -> Option<Self> {
        let list: Value = serde_json::from_str(metadata.annotations.get(EXPORTED)?).ok()?;
        let keys = |field: &str| {
            let keys =
                list.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            keys.take(MAX_ENTRIES).filter(|key| !is_reserved(key)).map(str::to_owned).collect()
        };
        let cluster = list.get("cluster").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { cluster, labels: keys("labels"), annotations: keys("annotations") })
    }
}

fn bounded<'a>(entries: impl Iterator<Item = (&'a String, &'a str)>) -> BTreeMap<String, String> {
    let mut left = MAX_BYTES;
    let fitting = entries.take(MAX_ENTRIES).take_while(|(key, value)| {
        let size = key.len() + value.len();
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    fitting.map(|(key, value)| (key.clone(), value.to_owned())).collect()
}

fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |reserved: &str| {
        let above = domain.strip_suffix(reserved);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    };
    key == LAST_APPLIED || RESERVED.iter().any(|reserved| is_of(reserved))
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_domain = |prefix: &str| prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_label);
    !name.is_empty() && name.len() <= MAX_NAME && is_word(name) && prefix.is_none_or(is_domain)
}

fn is_label_value(value: &str) -> bool {
    value.len() <= MAX_LABEL_VALUE && is_word(value)
}

/// Returns `true` for letters and digits, with `-_.` between them; also for nothing.
fn is_word(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_outer = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    text.bytes().all(is_inner) && is_outer(text.as_bytes().first()) && is_outer(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use trieste_control::api::Kind;

    use super::*;

    fn export(labels: &Value, annotations: &Value) -> Exported {
        let mut object = Object::new(Kind::ServiceExport, ObjectMeta::new("shop", "web"));
        let spec = json!({"exportedLabels": labels, "exportedAnnotations": annotations});
        object.body.insert("spec".to_owned(), spec);
        Exported::of_export(&object)
    }

    #[test]
    fn what_kubernetes_would_refuse_or_means_something_else_is_left_out() {
        let read = export(
            &json!({"app": "web", "example.com/tier": "front", "empty": "", "-x": "a", "a/b/c": "a", "X.com/a": "a",
                "bad": "a b", "long": "x".repeat(64), "number": 7, "submariner-io/clusterID": "east",
                "multicluster.kubernetes.io/service-name": "web", "lighthouse.submariner.io/x": "a"}),
            &json!({"note": "any text: {}", "timestamp.submariner.io/east": "1", "trieste.io/routing": "nearest",
                "weight.trieste.io/east": "9", "nottrieste.io/a": "kept", (LAST_APPLIED): "{}"}),
        );
        let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&read.labels), ["app", "empty", "example.com/tier"]);
        assert_eq!(keys(&read.annotations), ["note", "nottrieste.io/a"]);
        assert_eq!(export(&json!("x"), &json!([1])), Exported::default());
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let many: serde_json::Map<_, _> = (0..1_000).map(|n| (format!("k{n}"), json!("v"))).collect();
        let read = export(&many.into(), &json!({"a": "x".repeat(MAX_BYTES), "b": "x"}));
        assert_eq!((read.labels.len(), read.annotations.len()), (MAX_ENTRIES, 0));
    }

    #[test]
    fn they_are_put_on_an_import_found_again_and_removed_by_whose_they_are() {
        let mut import = Object::new(Kind::ServiceImport, ObjectMeta::new("broker", "web-shop"));
        let timestamp = "timestamp.submariner.io/east".to_owned();
        import.metadata.annotations.insert(timestamp.clone(), "1".to_owned());
        let before = import.metadata.clone();
        let first = export(&json!({"app": "web", "tier": "front"}), &json!({"note": "x"}));
        first.put(&mut import.metadata, "east");
        assert_eq!(Exported::of_import(&import), first);
        let second = export(&json!({"app": "api"}), &json!({}));
        second.put(&mut import.metadata, "west");
        assert_eq!((Exported::of_import(&import), import.metadata.labels.len()), (second, 1));
        withdraw(&mut import.metadata, "east");
        assert_eq!(import.metadata.labels.len(), 1, "another one's");
        withdraw(&mut import.metadata, "west");
        assert_eq!(import.metadata, before);
        // Whoever can write there takes nothing away that means something.
        let list = json!({"cluster": "east", "annotations": [timestamp]}).to_string();
        import.metadata.annotations.insert(EXPORTED.to_owned(), list);
        withdraw(&mut import.metadata, "east");
        assert_eq!(import.metadata, before);
    }
}
