//! Everything that an API server holds, to be compared.

use std::collections::BTreeMap;

use serde_json::Value;
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
    client.every_object(&OWN, |version, resource, object| {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("-");
        if resource == "leases" && namespace == "kube-system" {
            return;
        }
        let name = metadata["name"].as_str().unwrap_or_default();
        all.insert(format!("{version}/{resource} {namespace}/{name}"), keep(object));
    })?;
    Ok(all)
}
