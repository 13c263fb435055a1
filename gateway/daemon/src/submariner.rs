//! Devices that Submariner's gateway has left on this node: they keep ours from its UDP port and from its device's name. What else
//! it has left is the route agent's matter, once this gateway's Endpoint says that the node is ours.

use anyhow::Context as _;
use futures::TryStreamExt as _;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::Handle;
use trieste_control::devices::UPSTREAM_VXLAN_CABLE;

/// VNI of Submariner's VXLAN cable (RFC 7348; the same in all sets).
const VNI: u32 = 1000;

/// Removes them: the VXLAN device of its cable, and a WireGuard device that has the name of ours. To be called once the port for
/// metrics is bound, which a living gateway of Submariner's has.
///
/// # Errors
/// The kernel has no netlink socket, or refuses.
pub(crate) async fn remove_devices(tun: &str) -> anyhow::Result<()> {
    let (connection, handle, _) = rtnetlink::new_connection().context("opening a netlink socket")?;
    let connection = tokio::spawn(connection);
    let mut outcome = remove(&handle, UPSTREAM_VXLAN_CABLE, is_vxlan_cable).await;
    if outcome.is_ok() {
        outcome = remove(&handle, tun, is_wireguard).await;
    }
    connection.abort();
    outcome
}

async fn remove(handle: &Handle, name: &str, is_it: impl Fn(&LinkInfo) -> bool) -> anyhow::Result<()> {
    // One that is not there is an error.
    let found = handle.link().get().match_name(name.to_owned()).execute().try_next().await;
    let Ok(Some(link)) = found else { return Ok(()) };
    if !infos(&link).any(is_it) {
        return Ok(());
    }
    let removed = handle.link().del(link.header.index).execute().await;
    removed.with_context(|| {
        format!("removing the device {name} of Submariner's gateway; try `ip link del {name}`")
    })?;
    tracing::info!(device = name, "removed what Submariner's gateway has left");
    Ok(())
}

fn infos(link: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    let infos = link.attributes.iter().filter_map(|attribute| {
        if let LinkAttribute::LinkInfo(infos) = attribute { Some(infos) } else { None }
    });
    infos.flatten()
}

fn is_vxlan_cable(info: &LinkInfo) -> bool {
    let LinkInfo::Data(InfoData::Vxlan(parameters)) = info else { return false };
    parameters.contains(&InfoVxlan::Id(VNI))
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
