//! What must not leave a cluster, taken out of what is gathered.
//!
//! Three nets, one behind the other: fields and variables whose names say that they hold a secret; texts that look like
//! one (keys and certificates in PEM, tokens, passwords in addresses, keys of kernel cables); and the very values of
//! the Secrets that were seen, wherever they appear, in logs and commands' output too.

use std::collections::BTreeSet;

use base64::Engine as _;
use serde_json::{Map, Value};

/// What stands where a secret was.
pub(crate) const REDACTED: &str = "##redacted##";

/// Ours: shorter values of Secrets are words that appear everywhere.
const MIN_SECRET: usize = 8;
/// Ours: longer values (whole archives) do not appear in texts.
const MAX_SECRET: usize = 16 << 10;
/// Keys of Secrets that hold no secret.
const PLAIN_KEYS: [&str; 1] = ["namespace"];

/// Takes secrets out.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    /// Longest first, so that none is cut in two by one that it contains.
    values: Vec<String>,
}

impl Redactor {
    /// Learns the values of Secret objects, and those that other objects hold in fields for secrets.
    pub(crate) fn learn(&mut self, objects: &[Value]) {
        let mut found: BTreeSet<String> = self.values.drain(..).collect();
        for object in objects {
            if object["kind"] == "Secret" {
                secret_values(object, &mut found);
            } else {
                field_values(object, &mut found);
            }
        }
        self.values = found.into_iter().collect();
        self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    }

    /// An object without secrets, and without what only its writers need.
    pub(crate) fn object(&self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        if object["kind"] == "Secret" {
            for part in ["data", "stringData"] {
                let values = object.get_mut(part).and_then(Value::as_object_mut);
                values.into_iter().flatten().for_each(|(_, value)| *value = Value::from(REDACTED));
            }
        }
        self.value(object);
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => self.fields(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn fields(&self, fields: &mut Map<String, Value>) {
        let is_variable = is_secret_variable(fields);
        for (key, value) in fields {
            let is_secret = is_secret_name(key) || (is_variable && key == "value");
            if is_secret && value.as_str().is_some_and(|text| !text.is_empty()) {
                *value = Value::from(REDACTED);
            } else {
                self.value(value);
            }
        }
    }

    /// A text without secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), REDACTED);
            }
        }
        without_tokens(&without_pem(&text))
    }
}

/// Whether a field, or a variable, of this name holds a secret. Names of Secrets are none.
fn is_secret_name(name: &str) -> bool {
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // `brokerK8sSecret`, `CE_IPSEC_PSKSECRET`, `secretName`, `tokenFile`, `tokenExpirationSeconds`, …
    let is_about = ["secret", "secretname", "name", "ref", "file", "path", "seconds", "namespace", "mode"];
    if is_about.iter().any(|end| name.ends_with(end)) {
        return false;
    }
    let words = [
        "token",
        "psk",
        "password",
        "passwd",
        "privatekey",
        "secretkey",
        "apikey",
        "credential",
        "passphrase",
    ];
    let ends = ["k8sca", "cabundle", "certificateauthoritydata", "clientkeydata", "clientcertificatedata"];
    words.iter().any(|word| name.contains(word)) || ends.iter().any(|end| name.ends_with(end))
}

/// Whether this is a variable of an environment, or any other pair of name and value, whose value is a secret.
fn is_secret_variable(fields: &Map<String, Value>) -> bool {
    fields.get("name").and_then(Value::as_str).is_some_and(is_secret_name)
}

/// The values of a Secret, as they are written there and as programs see them.
fn secret_values(secret: &Value, found: &mut BTreeSet<String>) {
    let entries = |part: &str| secret.get(part).and_then(Value::as_object).into_iter().flatten();
    let is_secret = |key: &str| !PLAIN_KEYS.contains(&key);
    for (_, value) in entries("stringData").filter(|(key, _)| is_secret(key)) {
        keep(value.as_str().unwrap_or_default(), found);
    }
    for (_, value) in entries("data").filter(|(key, _)| is_secret(key)) {
        let written = value.as_str().unwrap_or_default();
        keep(written, found);
        if let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(written) {
            keep(&String::from_utf8_lossy(&bytes), found);
        }
    }
}

/// The values of fields and variables for secrets.
fn field_values(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| field_values(item, found)),
        Value::Object(fields) => {
            let is_variable = is_secret_variable(fields);
            for (key, value) in fields {
                let is_secret = is_secret_name(key) || (is_variable && key == "value");
                let Some(text) = value.as_str().filter(|_| is_secret) else {
                    field_values(value, found);
                    continue;
                };
                keep(text, found);
                let decoded = base64::engine::general_purpose::STANDARD.decode(text).ok();
                keep(&decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default(), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn keep(value: &str, found: &mut BTreeSet<String>) {
    let value = value.trim();
    if (MIN_SECRET..=MAX_SECRET).contains(&value.len()) && value != REDACTED && !value.contains('\u{fffd}') {
        found.insert(value.to_owned());
    }
}

/// Removes what stands between PEM's markers, and PEM in base64.
fn without_pem(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        clean += before;
        clean += REDACTED;
        // Without an end nothing of what follows can be trusted.
        let after = after.split_once(END).map_or("", |(_, after)| after);
        rest = after.split_once("-----").map_or("", |(_, after)| after);
    }
    clean + rest
}

/// Removes words that are tokens, keys, or addresses with a password, and what follows `token=` and the like.
fn without_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+/=:@%~".contains(c);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        clean += &rest[..start];
        let word = &rest[start..];
        let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
        clean += &without_secret_word(&word[..end], &clean);
        rest = &word[end..];
    }
    clean + rest
}

/// A word without its secret; `before` is the text up to it.
fn without_secret_word(word: &str, before: &str) -> String {
    if is_web_token(word) {
        return REDACTED.to_owned();
    }
    // PEM in base64 begins so, whatever it holds.
    if let Some((before, _)) = word.split_once("LS0tLS1CRUdJTi") {
        return format!("{before}{REDACTED}");
    }
    let digits = word.strip_prefix("0x").unwrap_or_default();
    if digits.len() >= 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return REDACTED.to_owned();
    }
    if let Some((scheme, address)) = word.split_once("://")
        && let Some((user, host)) = address.rsplit_once('@')
        && user.contains(':')
    {
        return format!("{scheme}://{REDACTED}@{host}");
    }
    if let Some((name, value)) = word.split_once('=')
        && value.len() >= MIN_SECRET
        && is_secret_name(name)
    {
        return format!("{name}={REDACTED}");
    }
    let label = before.trim_end_matches([' ', '"', '\'', ':', '=', '\\']);
    let name_start =
        label.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').map_or(0, |at| at + 1);
    let (name, between) = (label.get(name_start..).unwrap_or_default(), &before[label.len()..]);
    let is_labelled = between.contains([':', '=']) && is_secret_name(name);
    if word.len() >= 12 && (is_labelled || (name.eq_ignore_ascii_case("bearer") && !between.is_empty())) {
        return REDACTED.to_owned();
    }
    word.to_owned()
}

/// A JSON Web Token: three parts in base64, of which the first begins with a brace.
fn is_web_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    word.starts_with("eyJ") && parts.len() == 3 && parts.iter().all(|part| part.len() >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_secrets_there_are_none_is_forgotten() {
        use base64::Engine as _;
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let secret = |n: usize| {
            let value = format!("value-{n:05}{}", "x".repeat(n % 7));
            serde_json::json!({"kind": "Secret", "data": {"a": encode(value)}})
        };
        let mut redactor = Redactor::default();
        redactor.learn(&(0..1000).map(secret).collect::<Vec<_>>());
        for n in [0, 7, 700, 999] {
            let text = redactor.text(&format!("seen value-{n:05}{} here", "x".repeat(n % 7)));
            assert!(!text.contains("value-"), "{text}");
        }
    }
}
