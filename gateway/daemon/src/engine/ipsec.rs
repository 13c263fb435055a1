//! Reports of the slow half that all IPsec cables share, as the status document has them.

use trieste_cables::ipsec::ike::{ChildReport, IkeReport, PeerReport};
use trieste_control::admin::{ChildSaStatus, IkeSaStatus, IpsecStatus};

/// Returns the status of a peer; an empty one before its first report.
pub(super) fn status(report: Option<&PeerReport>) -> IpsecStatus {
    let Some(peer) = report else { return IpsecStatus::default() };
    IpsecStatus {
        mode: peer.mode.to_owned(),
        is_trieste: peer.is_trieste,
        is_up: peer.is_up,
        encapsulation: peer.encapsulation.map(str::to_owned),
        error: peer.error.clone(),
        ike_sas: peer.ikes.iter().map(ike_sa).collect(),
        child_sas: peer.children.iter().map(child_sa).collect(),
    }
}

fn ike_sa(ike: &IkeReport) -> IkeSaStatus {
    let nat = match (ike.is_local_nat, ike.is_remote_nat) {
        (true, true) => "both",
        (true, false) => "local",
        (false, true) => "remote",
        (false, false) => "",
    };
    IkeSaStatus {
        initiator_spi: format!("{:016x}", ike.initiator_spi),
        responder_spi: format!("{:016x}", ike.responder_spi),
        is_initiator: ike.is_initiator,
        state: ike.state.to_owned(),
        algorithms: ike.algorithms.clone(),
        local_id: ike.local_id.clone(),
        remote_id: ike.remote_id.clone(),
        address: ike.address.to_string(),
        nat: nat.to_owned(),
        age_s: ike.age.as_secs_f64(),
        rekey_in_s: ike.rekey_in.map(|left| left.as_secs_f64()),
        pending: ike.pending.map(str::to_owned),
    }
}

fn child_sa(child: &ChildReport) -> ChildSaStatus {
    ChildSaStatus {
        selectors: child.selectors.clone(),
        state: child.state.to_owned(),
        spi_in: child.inbound.map(|spi| spi.to_string()),
        spi_out: child.outbound.map(|spi| spi.to_string()),
        algorithms: child.algorithms.clone(),
        is_sealing: child.is_sealing,
        rx_bytes: child.rx_bytes,
        rx_packets: child.rx_packets,
        tx_bytes: child.tx_bytes,
        tx_packets: child.tx_packets,
        bad_packets: child.bad_packets,
        replayed_packets: child.replayed_packets,
        age_s: child.age.map(|age| age.as_secs_f64()),
        rekey_in_s: child.rekey_in.map(|left| left.as_secs_f64()),
        error: child.error.clone(),
    }
}
