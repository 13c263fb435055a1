//! Who owns which field: the command and the operator are two managers to server-side apply.
//!
//! What one has set and the other one sets too is both's; a field that the command alone owns stays whatever the operator
//! applies. So the operator, once it has applied an object that the command had, gives back what the command owns: a
//! variable that a `join` had put into a pod goes when the operator does not want it.

use serde_json::{Value, json};

/// The command, to server-side apply.
pub const FIELD_MANAGER: &str = "trieste";

/// The operator.
pub const OPERATOR_MANAGER: &str = "trieste-operator";

/// Returns `true` if the command has applied an object, and owns fields of it.
pub(super) fn was_applied_by_command(object: &Value) -> bool {
    let mut entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.any(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
}

/// Returns an object without any field of its own: applied, it gives back all that its manager owns.
pub(super) fn nothing_of(object: &Value) -> Value {
    let mut metadata = json!({"name": object["metadata"]["name"]});
    if object["metadata"]["namespace"].is_string() {
        metadata["namespace"] = object["metadata"]["namespace"].clone();
    }
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_that_the_command_has_applied_is_given_back() {
        let entry = |manager: &str, operation: &str| {
            json!({"metadata": {"name": "a",
            "managedFields": [{"manager": "x", "operation": "Update"}, {"manager": manager, "operation": operation}]}})
        };
        assert!(was_applied_by_command(&entry("trieste", "Apply")));
        assert!(!was_applied_by_command(&entry("trieste", "Update")));
        assert!(!was_applied_by_command(&entry("trieste-operator", "Apply")));
        assert!(!was_applied_by_command(&json!({})));
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n",
            "labels": {"a": "b"}}, "spec": {}});
        let expected =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(nothing_of(&object), expected);
    }
}
