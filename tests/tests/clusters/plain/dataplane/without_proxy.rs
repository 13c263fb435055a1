//! Services of a cluster that has no kube-proxy: nodes with back ends translate what its gateway sends them.

use trieste_tests::lab::Lab;
use trieste_tests::table::Table;
use trieste_tests::wait::eventually;

use super::flows;
use crate::shared::{SOON, without_proxy};
use crate::sides::{SERVICE_PORT, Side};

/// Pods of east ask services of west, whose nodes have no kube-proxy meanwhile.
pub(crate) fn run(lab: &Lab, sides: &[Side<'_>; 2], table: &Table) {
    let west = sides[1].cluster;
    without_proxy(west, || {
        let own = &sides[1].on_gateway;
        table.row("SV-2", "pod of the cluster → its own service: nobody translates", || {
            let answered = own.service.iter().any(|ip| own.pod.tcp((*ip, SERVICE_PORT).into(), 64).is_ok());
            anyhow::ensure!(!answered, "kube-proxy, or what it has made, is still there");
            Ok("no answer".to_owned())
        });
        flows::to_services(lab, sides, table);
    });
    eventually("kube-proxy to translate again", SOON, || {
        let own = &sides[1].on_gateway;
        own.pod.tcp((own.service[0], SERVICE_PORT).into(), 64)
    })
    .unwrap();
}
