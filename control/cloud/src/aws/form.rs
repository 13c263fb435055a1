//! A request with a form.

use http::Request;
use http::header::CONTENT_TYPE;

use crate::form::FORM;

/// Returns a request with a form.
pub(super) fn form_request(url: &str, body: Vec<u8>) -> http::Result<Request<Vec<u8>>> {
    Request::post(url).header(CONTENT_TYPE, FORM).body(body)
}
