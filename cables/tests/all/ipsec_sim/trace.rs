//! Messages and orders in words, for people who look for a fault.

use trieste_cables::ipsec::LaneOrder;

use super::network::{Kind, kind};

/// A message, as far as its outside shows.
pub(crate) fn message(payload: &[u8], is_raw: bool) -> String {
    if kind(payload, is_raw) != Kind::Ike {
        return format!("ESP {} {} bytes", hex(payload, 0, 4), payload.len());
    }
    let exchange = match payload.get(22) {
        Some(34) => "IKE_SA_INIT",
        Some(35) => "IKE_AUTH",
        Some(36) => "CREATE_CHILD_SA",
        Some(37) => "INFORMATIONAL",
        _ => "?",
    };
    let flags = payload.get(23).copied().unwrap_or_default();
    let kind = if flags & 0x20 != 0 { "response" } else { "request" };
    let side = if flags & 0x08 != 0 { "I" } else { "R" };
    let (spis, id) = ((hex(payload, 4, 4), hex(payload, 12, 4)), hex(payload, 26, 2));
    format!("{exchange} {kind} {id} of {side} {}/{} {} bytes", spis.0, spis.1, payload.len())
}

/// An order.
pub(crate) fn order(order: &LaneOrder) -> String {
    match order {
        LaneOrder::Add(child) => format!("Add {} / {} {:?}", child.inbound, child.outbound, child.activation),
        LaneOrder::Path(path) => format!("Path {} {}", path.outer.peer, path.may_move),
        LaneOrder::Expect(_)
        | LaneOrder::Abandon(_)
        | LaneOrder::Seal(_)
        | LaneOrder::Retire(_)
        | LaneOrder::Remove(_)
        | LaneOrder::Down => {
            format!("{order:?}")
        }
    }
}

fn hex(bytes: &[u8], at: usize, count: usize) -> String {
    bytes.iter().skip(at).take(count).map(|byte| format!("{byte:02x}")).collect()
}
