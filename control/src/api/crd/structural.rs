//! From a JSON schema to what Kubernetes calls a structural schema: every node typed, nothing referred to, unknown
//! fields either dropped or kept as the node says.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Returns the schema of a whole object of type `T` that programs write.
pub(super) fn root_schema<T: JsonSchema>() -> Value {
    schema_of::<T>(|node| drop(node.remove("default")))
}

/// Returns the schema of a whole object of type `T` that people write: defaults are in it, and a null is no value.
pub(super) fn user_schema<T: JsonSchema>() -> Value {
    schema_of::<T>(|node| {
        node.remove("nullable");
        if node
            .get("default")
            .is_some_and(|default| *default == Value::Null || *default == json!([]) || *default == json!({}))
        {
            node.remove("default");
        }
    })
}

fn schema_of<T: JsonSchema>(adapt: fn(&mut Map<String, Value>)) -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    structure(&mut schema, adapt);
    // The API server has its own schema for these three, and takes none of ours for metadata.
    let properties = &mut schema["properties"];
    properties["apiVersion"] =
        json!({"type": "string", "description": "Group and version of this representation."});
    properties["kind"] = json!({"type": "string", "description": "The kind of this object."});
    properties["metadata"] = json!({"type": "object"});
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| name != "metadata");
        if required.is_empty() {
            schema.as_object_mut().and_then(|schema| schema.remove("required"));
        }
    }
    schema
}

/// Makes a node structural, and those below. A default would be written into stored objects by the API server; whether it is to
/// be is for `adapt` to say.
fn structure(schema: &mut Value, adapt: fn(&mut Map<String, Value>)) {
    let Value::Object(node) = schema else { return };
    for key in ["$schema", "title"] {
        node.remove(key);
    }
    adapt(node);
    if node.get("additionalProperties") == Some(&Value::Bool(true)) {
        node.remove("additionalProperties");
        node.insert("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true));
    }
    if let Some(Value::String(description)) = node.get_mut("description") {
        *description = plain(description);
    }
    if let Some(Value::Array(required)) = node.get_mut("required") {
        required.sort_by(|left, right| left.as_str().cmp(&right.as_str()));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = node.get_mut(key) {
            structure(child, adapt);
        }
    }
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        properties.values_mut().for_each(|child| structure(child, adapt));
    }
}

/// Removes the brackets of rustdoc's links.
fn plain(description: &str) -> String {
    description.replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::super::{definitions, fabric, tkestack};
    use super::*;

    /// The keywords that our schemas may use; the API server knows more, but refuses much of JSON schema.
    const KEYWORDS: [&str; 22] = [
        "additionalProperties",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minLength",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
        "maxProperties",
    ];

    #[test]
    fn every_schema_is_structural() {
        for definition in definitions().into_iter().chain([fabric()]).chain(tkestack()) {
            let name = definition["metadata"]["name"].as_str().unwrap();
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            assert_eq!(schema["properties"]["metadata"], json!({"type": "object"}), "{name}");
            check(name, schema.as_object().unwrap());
        }
    }

    fn check(at: &str, node: &Map<String, Value>) {
        for key in node.keys() {
            assert!(KEYWORDS.contains(&key.as_str()), "{at}: {key}");
        }
        let kind = node.get("type").and_then(Value::as_str).unwrap_or_else(|| panic!("{at} has no type"));
        assert!(["object", "array", "string", "integer", "boolean"].contains(&kind), "{at} is a {kind}");
        assert_eq!(kind == "array", node.contains_key("items"), "{at}");
        for key in ["properties", "additionalProperties", "required"] {
            assert!(kind == "object" || !node.contains_key(key), "{at} is a {kind} with {key}");
        }
        assert!(!(node.contains_key("properties") && node.contains_key("additionalProperties")), "{at}");
        if let Some(format) = node.get("format") {
            assert!(["int32", "int64", "date-time"].contains(&format.as_str().unwrap()), "{at}: {format}");
        }
        if let Some(properties) = node.get("properties") {
            let properties = properties.as_object().unwrap();
            for name in node.get("required").and_then(Value::as_array).into_iter().flatten() {
                assert!(properties.contains_key(name.as_str().unwrap()), "{at} requires {name}");
            }
            for (name, child) in properties {
                assert!(
                    child["description"].is_string() || name == "metadata",
                    "{at}.{name} is not described"
                );
                check(&format!("{at}.{name}"), child.as_object().unwrap());
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(child) = node.get(key) {
                check(&format!("{at}[]"), child.as_object().unwrap());
            }
        }
    }
}
