//! What differs between two objects, field by field.

use std::collections::BTreeSet;

use serde_json::Value;

/// What stores give an object, and times of changes.
const OF_STORES: [&str; 5] =
    ["creationTimestamp", "generation", "resourceVersion", "uid", "lastTransitionTime"];

/// Returns the paths of all fields that are in one object alone, or differ. What stores give is left out, and so is `managedFields`.
pub(crate) fn differences(wanted: &Value, found: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    collect("", wanted, found, &mut paths);
    paths
}

fn collect(path: &str, wanted: &Value, found: &Value, paths: &mut BTreeSet<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            let keys: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
            let keys =
                keys.into_iter().filter(|key| !OF_STORES.contains(&key.as_str()) && *key != "managedFields");
            for key in keys {
                let (one, other) = (wanted.get(key), found.get(key));
                let path = format!("{path}/{key}");
                collect(&path, one.unwrap_or(&Value::Null), other.unwrap_or(&Value::Null), paths);
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                collect(&format!("{path}/{index}"), wanted, found, paths);
            }
        }
        (Value::Object(map), Value::Null) | (Value::Null, Value::Object(map)) if !map.is_empty() => {
            let (one, other) = (Value::Object(map.clone()), Value::Object(serde_json::Map::new()));
            collect(path, &one, &other, paths);
        }
        (wanted, found) if wanted != found => drop(paths.insert(path.to_owned())),
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => {}
    }
}
