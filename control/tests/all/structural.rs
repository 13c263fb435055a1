//! What an API server does with an object and a structural schema: refuses it, or stores it without the fields that
//! the schema neither names nor keeps. Patterns are left to real servers.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The object as it would be stored, or the path of the first field for which it would be refused.
pub(crate) fn stored(schema: &Value, object: &Value) -> Result<Value, String> {
    let fields = object.as_object().unwrap();
    // The server knows these three itself.
    let is_own = |key: &String| matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
    let (own, body): (Map<_, _>, Map<_, _>) = fields.clone().into_iter().partition(|(key, _)| is_own(key));
    let mut result = visit_fields(schema, &body, "")?;
    result.extend(own);
    Ok(Value::Object(result))
}

fn visit(schema: &Value, value: &Value, at: &str) -> Result<Value, String> {
    let refuse = || Err(at.to_owned());
    if value.is_null() && schema["nullable"] == true {
        return Ok(Value::Null);
    }
    let is_listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
    match (schema["type"].as_str().unwrap(), value) {
        ("boolean", Value::Bool(_)) => Ok(value.clone()),
        ("integer", Value::Number(number)) => {
            let Some(number) = number.as_i64() else { return refuse() };
            let is_low = schema["minimum"].as_i64().is_some_and(|least| number < least);
            let is_high = schema["maximum"].as_i64().is_some_and(|most| number > most);
            if is_low || is_high { refuse() } else { Ok(value.clone()) }
        }
        ("string", Value::String(text)) => {
            let length = u64::try_from(text.chars().count()).unwrap();
            let is_short = schema["minLength"].as_u64().is_some_and(|least| length < least);
            let is_long = schema["maxLength"].as_u64().is_some_and(|most| length > most);
            let is_malformed = schema["format"] == "date-time" && text.parse::<Timestamp>().is_err();
            if is_short || is_long || is_malformed || !is_listed { refuse() } else { Ok(value.clone()) }
        }
        ("array", Value::Array(values)) => values
            .iter()
            .enumerate()
            .map(|(index, value)| visit(&schema["items"], value, &format!("{at}[{index}]")))
            .collect(),
        ("object", Value::Object(fields)) => visit_fields(schema, fields, at).map(Value::Object),
        _ => refuse(),
    }
}

fn visit_fields(schema: &Value, fields: &Map<String, Value>, at: &str) -> Result<Map<String, Value>, String> {
    let path = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    for key in schema["required"].as_array().into_iter().flatten().map(|key| key.as_str().unwrap()) {
        if !fields.contains_key(key) {
            return Err(path(key));
        }
    }
    let mut kept = Map::new();
    for (key, value) in fields {
        let child = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        match child {
            Some(child) => {
                kept.insert(key.clone(), visit(child, value, &path(key))?);
            }
            None if schema["x-kubernetes-preserve-unknown-fields"] == true => {
                kept.insert(key.clone(), value.clone());
            }
            None => {}
        }
    }
    Ok(kept)
}
