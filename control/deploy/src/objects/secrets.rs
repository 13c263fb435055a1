//! A member's Secrets.

use serde_json::json;

use super::names::{BROKER_SECRET, PSK_SECRET};
use super::{Manifest, MemberOptions, Secret};

/// The access to the broker, and the pre-shared key. The key stays the bytes that the join file has: upstream's tools
/// read them here, and gateways make the text out of them that upstream's cables use.
pub(super) fn member(options: &MemberOptions) -> [Manifest; 2] {
    let broker = &options.broker;
    let mut access = json!({
        "token": broker.token.to_base64(),
        "namespace": Secret::new(broker.namespace.as_bytes()).to_base64(),
    });
    if let Some(ca) = &broker.ca {
        access["ca.crt"] = json!(Secret::new(ca.as_slice()).to_base64());
    }
    let secret = |name, data| {
        Manifest::make("v1", "Secret", &options.namespace, name)
            .with("type", json!("Opaque"))
            .with("data", data)
    };
    [secret(BROKER_SECRET, access), secret(PSK_SECRET, json!({"psk": options.psk.to_base64()}))]
}
