//! Devices that Submariner's gateway has left on this node: they keep ours from its UDP port and from its device's name. What else
//! it has left is the route agent's matter, once this gateway's Endpoint says that the node is ours.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Context as _;
use futures::TryStreamExt as _;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::Handle;
use trieste_control::devices::{TUN, UPSTREAM_VXLAN_CABLE};
use trieste_vxlan::Vni;

use crate::config::METRICS_PORT;

/// Removes them: the VXLAN device of its cable, and a WireGuard device of the name that both give to theirs. `own_port` is this
/// gateway's port for metrics. Returns whether there was one.
///
/// # Errors
/// A gateway of Submariner's runs on this node; the kernel has no netlink socket, or refuses.
pub(crate) async fn remove_devices(tun: &str, own_port: Option<u16>) -> anyhow::Result<bool> {
    let (connection, handle, _) = rtnetlink::new_connection().context("opening a netlink socket")?;
    let connection = tokio::spawn(connection);
    let outcome = remove_all(&handle, tun, own_port).await;
    connection.abort();
    outcome
}

async fn remove_all(handle: &Handle, tun: &str, own_port: Option<u16>) -> anyhow::Result<bool> {
    let mut found: Vec<_> = find(handle, UPSTREAM_VXLAN_CABLE, is_vxlan_cable).await.into_iter().collect();
    if tun == TUN {
        found.extend(find(handle, TUN, is_wireguard).await);
    }
    // A living gateway of Submariner's has the port that is our default, too.
    let is_free = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, METRICS_PORT)).is_ok();
    anyhow::ensure!(
        found.is_empty() || own_port == Some(METRICS_PORT) || is_free(),
        "a gateway of Submariner's may run on this node: there is a device of its, and port {METRICS_PORT} is in use"
    );
    for (name, index) in &found {
        let removed = handle.link().del(*index).execute().await;
        removed.with_context(|| {
            format!("removing the device {name} of Submariner's gateway; try `ip link del {name}`")
        })?;
        tracing::info!(device = name, "removed what Submariner's gateway has left");
    }
    Ok(!found.is_empty())
}

/// Returns a device's name and index, if it is of the kind.
async fn find(
    handle: &Handle,
    name: &'static str,
    is_it: impl Fn(&LinkInfo) -> bool,
) -> Option<(&'static str, u32)> {
    // One that is not there is an error.
    let link = handle.link().get().match_name(name.to_owned()).execute().try_next().await.ok()??;
    infos(&link).any(is_it).then_some((name, link.header.index))
}

fn infos(link: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    let infos = link.attributes.iter().filter_map(|attribute| {
        if let LinkAttribute::LinkInfo(infos) = attribute { Some(infos) } else { None }
    });
    infos.flatten()
}

fn is_vxlan_cable(info: &LinkInfo) -> bool {
    let LinkInfo::Data(InfoData::Vxlan(parameters)) = info else { return false };
    parameters.contains(&InfoVxlan::Id(Vni::GATEWAYS.value()))
}

fn is_wireguard(info: &LinkInfo) -> bool {
    *info == LinkInfo::Kind(InfoKind::Wireguard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_submariners_devices_are_recognised() {
        let vxlan = |vni| LinkInfo::Data(InfoData::Vxlan(vec![InfoVxlan::Id(vni), InfoVxlan::Port(4500)]));
        assert!(is_vxlan_cable(&vxlan(1000)));
        assert!(!is_vxlan_cable(&vxlan(100)) && !is_vxlan_cable(&LinkInfo::Kind(InfoKind::Vxlan)));
        // Ours is a TUN.
        assert!(is_wireguard(&LinkInfo::Kind(InfoKind::Wireguard)));
        assert!(!is_wireguard(&LinkInfo::Kind(InfoKind::Tun)));
    }
}
