//! What an object says.

use std::collections::BTreeMap;

use serde_json::Value;

use super::table::elsewhere;
use crate::api::Object;

/// The ConfigMap's name, in the namespace of the gateways.
pub const OBJECT: &str = "trieste-settings";

/// The entries of the ConfigMap.
pub type Data = BTreeMap<String, String>;

/// The most entries that are read. Ours: there are not half as many settings.
const MOST: usize = 256;
/// The longest key that is named, in bytes.
const LONGEST_KEY: usize = 64;

/// Returns the entries of a ConfigMap, without those that are no texts.
pub fn data_of(object: &Object) -> Data {
    let entries = object.body.get("data").and_then(Value::as_object).into_iter().flatten();
    let texts = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.trim().to_owned())));
    texts.take(MOST).collect()
}

/// Returns why a key is no setting, in a sentence that follows it.
pub(super) fn not_here(key: &str) -> String {
    match elsewhere(key) {
        Some(why) => format!("cannot be set here: it {why}"),
        None => "is no setting".to_owned(),
    }
}

/// Returns a key as it is named to people.
pub(super) fn shown(key: &str) -> String {
    key.chars().take(LONGEST_KEY).collect()
}
