//! Calico's IPPools for networks of remote clusters, as upstream, the worker and `diagnose cni --fix` make them. Pure.

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::api::ensure_valid_name;

/// Returns the name of the pool for a network of a cluster: upstream's for IPv4, `:` as `-` for IPv6.
#[must_use]
pub fn name(cluster: &str, network: IpNet) -> String {
    ensure_valid_name(&format!("submariner-{cluster}-{network}"))
}

/// Returns the fields of its specification that matter; others are Calico's defaults.
#[must_use]
pub fn fields(network: IpNet) -> [(&'static str, Value); 4] {
    [
        ("cidr", json!(network.to_string())),
        ("natOutgoing", json!(false)),
        ("disabled", json!(true)),
        ("disableBGPExport", json!(true)),
    ]
}
