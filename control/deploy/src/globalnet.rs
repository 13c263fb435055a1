//! What the broker says of globalnet. Addresses are not allocated here: this version translates none.

use serde_json::Value;

/// Whether the broker's ConfigMap says that globalnet is on.
pub(crate) fn is_enabled(config_map: Option<&Value>) -> bool {
    config_map.is_some_and(|map| map["data"]["globalnetEnabled"].as_str() == Some("true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_brokers_config_map_is_read_as_upstream_writes_it() {
        assert!(is_enabled(Some(&json!({"data": {"globalnetEnabled": "true"}}))));
        assert!(!is_enabled(Some(&json!({"data": {"globalnetEnabled": "false"}}))) && !is_enabled(None));
    }
}
