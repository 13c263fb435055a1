//! Everything that an API server holds, to be compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trieste_tests::kubernetes::Client;

/// What the server itself writes all the time.
const OWN: [&str; 3] = ["events", "componentstatuses", "apiservices"];

/// Every object by `version/resource namespace/name`, without what the server adds to it.
pub(crate) fn contents(client: &Client) -> anyhow::Result<BTreeMap<String, Value>> {
    every(client, |mut object| {
        let kept = ["labels", "annotations", "finalizers"];
        let metadata: Value = kept
            .iter()
            .filter(|key| !object["metadata"][**key].is_null())
            .map(|key| ((*key).to_owned(), object["metadata"][*key].clone()))
            .collect();
        object["metadata"] = metadata;
        object
    })
}

/// The version of every object: equal means that nobody has written.
pub(crate) fn versions(client: &Client) -> anyhow::Result<BTreeMap<String, Value>> {
    every(client, |object| object["metadata"]["resourceVersion"].clone())
}

/// The keys whose values differ, with both.
pub(crate) fn differences(
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
) -> Vec<(String, Option<Value>, Option<Value>)> {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let pairs = keys.into_iter().map(|key| (key.clone(), before.get(key).cloned(), after.get(key).cloned()));
    pairs.filter(|(_, before, after)| before != after).collect()
}

fn every(client: &Client, keep: impl Fn(Value) -> Value) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    let mut roots = vec![("v1".to_owned(), "/api/v1".to_owned())];
    for group in client.get("/apis")?["groups"].as_array().into_iter().flatten() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
        roots.push((version.to_owned(), format!("/apis/{version}")));
    }
    for (version, root) in roots {
        // A group whose last definition goes may be listed a moment longer.
        let Ok(resources) = client.get(&root) else { continue };
        for resource in resources["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            let can_list = resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list")));
            if !can_list || name.contains('/') || OWN.contains(&name) {
                continue;
            }
            let Ok(objects) = client.list(&format!("{root}/{name}")) else { continue };
            for object in objects {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or("-").to_owned();
                if name == "leases" && namespace == "kube-system" {
                    continue;
                }
                let key =
                    format!("{version}/{name} {namespace}/{}", metadata["name"].as_str().unwrap_or_default());
                all.insert(key, keep(object));
            }
        }
    }
    Ok(all)
}
