//! Forms, as the bodies of requests.

use http::Request;
use http::header::CONTENT_TYPE;

/// The form's type.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Returns a request with a form.
pub(super) fn form_request(url: &str, body: Vec<u8>) -> http::Result<Request<Vec<u8>>> {
    Request::post(url).header(CONTENT_TYPE, FORM).body(body)
}

/// Encodes a form; all but RFC 3986's unreserved characters are escaped.
pub(super) fn encode<'p>(parameters: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
    let mut form = String::new();
    for (key, value) in parameters {
        if !form.is_empty() {
            form.push('&');
        }
        escape(&mut form, key);
        form.push('=');
        escape(&mut form, value);
    }
    form
}

fn escape(form: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                form.push(char::from(byte))
            }
            _ => form.push_str(&format!("%{byte:02X}")),
        }
    }
}
