//! The cluster's own DNS: what a join has to do with it.

use std::net::IpAddr;

use trieste_control::steps::{Outcome, Steps};

use crate::cluster_dns;
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::MemberOptions;
use crate::objects::names::DISCOVERY_DNS;
use crate::server::Server;

/// Lets the cluster's DNS forward the set's names to our servers. A DNS that cannot be changed is told, with what to write
/// by hand: pods reach pods without it.
pub(super) async fn forward(
    local: &Server,
    member: &MemberOptions,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    steps.begin("Letting the cluster's DNS forward the set's names");
    let place = ObjectRef::namespaced("v1", "Service", &member.namespace, DISCOVERY_DNS);
    let service = local.find(&place).await?.unwrap_or_default();
    let address: Option<IpAddr> = service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
    let Some(address) = address else {
        let text = format!("{place} has no address (yet); repeat the command");
        steps.remark(Outcome::Warning, &text);
        steps.end(Outcome::Success);
        return Ok(());
    };
    let zones = member.zones();
    match cluster_dns::forward(local, &zones, address, member.coredns_custom_place()).await {
        Ok(forwarded) => {
            let text = format!("{}: {} to {address}", forwarded.place, zones.join(", "));
            steps.remark(Outcome::Success, &text);
            if forwarded.is_changed && !forwarded.is_reloaded {
                let text = "its Corefile has no `reload`: restart the cluster's DNS, such as with kubectl -n \
                            kube-system rollout restart deployment coredns";
                steps.remark(Outcome::Warning, text);
            }
        }
        Err(error) => {
            let next = error.next();
            let text = format!("Names of the set are not answered in this cluster: {error}; {next}");
            steps.remark(Outcome::Warning, &text);
        }
    }
    steps.end(Outcome::Success);
    Ok(())
}
