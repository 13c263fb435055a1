//! The SAs of IPsec cables.

use super::{bytes, dash_if_empty, or_dash};
use crate::table::{Column, column, limited};
use trieste_control::admin::{CableStatus, ChildSaStatus, GatewayStatus, IkeSaStatus};

pub(super) const IKE_SAS: [Column; 9] = [
    limited("CLUSTER", 24),
    column("STATE"),
    column("BEGUN BY"),
    column("ALGORITHMS"),
    limited("IDS", 60),
    column("NAT"),
    column("AGE"),
    column("REKEY IN"),
    limited("WAITS FOR", 60),
];

/// The IKE SAs of all cables.
pub(super) fn ike_sas(status: &GatewayStatus) -> Vec<Vec<String>> {
    let of_cable = |cable: &CableStatus| -> Vec<Vec<String>> {
        let sas = cable.ipsec.iter().flat_map(|ipsec| &ipsec.ike_sas);
        sas.map(|sa| ike_sa(&cable.connection.endpoint.cluster_id, sa)).collect()
    };
    status.connections.iter().flat_map(of_cable).collect()
}

fn ike_sa(cluster: &str, sa: &IkeSaStatus) -> Vec<String> {
    vec![
        cluster.to_owned(),
        sa.state.clone(),
        if sa.is_initiator { "us" } else { "the peer" }.to_owned(),
        dash_if_empty(&sa.algorithms),
        format!("{} = {}", dash_if_empty(&sa.local_id), dash_if_empty(&sa.remote_id)),
        dash_if_empty(&sa.nat),
        span(sa.age_s),
        sa.rekey_in_s.map_or_else(|| "-".to_owned(), span),
        or_dash(sa.pending.as_ref()),
    ]
}

pub(super) const CHILD_SAS: [Column; 10] = [
    limited("CLUSTER", 24),
    limited("SUBNETS", 100),
    column("STATE"),
    column("SPI IN"),
    column("SPI OUT"),
    column("ALGORITHMS"),
    column("RX"),
    column("TX"),
    column("REKEY IN"),
    limited("ERROR", 120),
];

/// The child SAs of all cables, and the pairs of subnets that lack one.
pub(super) fn child_sas(status: &GatewayStatus) -> Vec<Vec<String>> {
    let of_cable = |cable: &CableStatus| -> Vec<Vec<String>> {
        let sas = cable.ipsec.iter().flat_map(|ipsec| &ipsec.child_sas);
        sas.map(|sa| child_sa(&cable.connection.endpoint.cluster_id, sa)).collect()
    };
    status.connections.iter().flat_map(of_cable).collect()
}

fn child_sa(cluster: &str, sa: &ChildSaStatus) -> Vec<String> {
    vec![
        cluster.to_owned(),
        sa.selectors.clone(),
        sa.state.clone(),
        or_dash(sa.spi_in.as_ref()),
        or_dash(sa.spi_out.as_ref()),
        dash_if_empty(&sa.algorithms),
        bytes(sa.rx_bytes),
        bytes(sa.tx_bytes),
        sa.rekey_in_s.map_or_else(|| "-".to_owned(), span),
        or_dash(sa.error.as_ref()),
    ]
}

/// Seconds for people: whole ones up to two minutes, then minutes, then hours.
fn span(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_subnets_without_an_sa_has_a_row_with_the_reason() {
        let sa = ChildSaStatus {
            selectors: "10.1.0.0/16 === 10.2.0.0/16".to_owned(),
            state: "failed".to_owned(),
            error: Some("TS_UNACCEPTABLE (peer)".to_owned()),
            ..ChildSaStatus::default()
        };
        let row = child_sa("west", &sa);
        assert_eq!(
            row,
            [
                "west",
                "10.1.0.0/16 === 10.2.0.0/16",
                "failed",
                "-",
                "-",
                "-",
                "0 B",
                "0 B",
                "-",
                "TS_UNACCEPTABLE (peer)"
            ]
        );
    }

    #[test]
    fn spans_are_for_people() {
        assert_eq!([3.4, 119.0, 3600.0, 28_000.0].map(span), ["3 s", "119 s", "60 min", "8 h"]);
    }
}
