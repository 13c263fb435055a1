//! Forms, as the bodies of requests.

use trieste_control::https::escaped;

/// The form's type.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Encodes parameters as a form, or as a query.
pub(crate) fn encode<'p>(parameters: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
    let pairs = parameters.into_iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}
