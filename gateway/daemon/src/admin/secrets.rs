//! The keys of all SAs, for `trieste capture --with-secrets`: the one answer of the admin socket that holds any.
//!
//! It goes on for as long as the client reads: one JSON document a line, another one whenever there are other keys.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use trieste_control::admin::CaptureSecrets;
use zeroize::Zeroizing;

use super::state::{AdminState, refusal};
use crate::capture::secrets::tables;

/// Bytes of a line beside those of its keys.
const FRAME_BYTES: usize = 256;

/// Answers `GET /v1/secrets`.
pub(super) async fn answer(State(state): State<AdminState>) -> Response {
    let Some(ike) = &state.ike else {
        let reason = "the keys of this cable cannot be had: the library that makes WireGuard's sessions keeps them to \
                      itself; packets are in clear at the points opened, inner-rx and inner-tx";
        return refusal(StatusCode::NOT_FOUND, reason.to_owned());
    };
    let Some(secrets) = ike.subscribe_secrets() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many ask for keys at this moment".to_owned());
    };
    tracing::warn!(
        "the keys of all SAs are being given to a capture over the admin socket; whoever has them can read all traffic"
    );
    let lines = stream::unfold(secrets, async |mut secrets| {
        let found = secrets.recv().await?;
        Some((line(&tables(&found)), secrets))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// Renders one document. Its memory is wiped when the connection has sent it.
fn line(secrets: &CaptureSecrets) -> serde_json::Result<Bytes> {
    let CaptureSecrets { esp_sa, ikev2_decryption_table, unreadable } = secrets;
    let parts = esp_sa.iter().chain(ikev2_decryption_table).chain(unreadable);
    // Each is doubled, for quotes are escaped. A buffer that grows would leave keys behind.
    let bytes: usize = parts.map(|part| 2 * part.len()).sum();
    let mut line = Zeroizing::new(Vec::with_capacity(bytes + FRAME_BYTES));
    serde_json::to_writer(&mut *line, secrets)?;
    line.push(b'\n');
    Ok(Bytes::from_owner(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_one_line_and_its_buffer_never_grew() {
        let quoted = r#""IPv4","*","192.0.2.9","0x00010201","0xab","NULL","""#.to_owned();
        let secrets = CaptureSecrets {
            esp_sa: vec![quoted.clone(); 300],
            ikev2_decryption_table: vec!["00a8,9b06,01,02".to_owned(); 3],
            unreadable: vec!["ESP SA \u{9b}".to_owned()],
        };
        let (bytes, room) = (line(&secrets).unwrap(), 300 * 2 * quoted.len());
        assert!(bytes.len() < room + FRAME_BYTES, "{}", bytes.len());
        let (json, end) = bytes.split_at(bytes.len() - 1);
        assert_eq!(end, b"\n");
        assert!(!json.contains(&b'\n'));
        assert_eq!(serde_json::from_slice::<CaptureSecrets>(json).unwrap(), secrets);
    }
}
