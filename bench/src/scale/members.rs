//! The members that there are beside the two: their names, keys and networks.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use trieste_control::api::EndpointSpec;

/// Networks of each member.
pub(super) const NETWORKS: u32 = 4;
/// What their cluster IDs begin with.
pub(super) const PREFIX: &str = "member-";

/// A network of a member: 100.64.0.0/24 and those after it.
pub(super) fn network_of(member: u32, network: u32) -> IpNet {
    let address =
        Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + ((member * NETWORKS + network) << 8));
    IpNet::V4(Ipv4Net::new_assert(address, 24))
}

/// Returns a member whose gateway is where nobody is, with so many of its networks.
pub(super) fn silent(member: u32, networks: u32, driver: &str) -> anyhow::Result<EndpointSpec> {
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 1)) + member);
    let mut key = [7_u8; 32];
    key[..4].copy_from_slice(&member.to_be_bytes());
    let mut spec = base(member, networks, driver, address)?;
    let settings =
        [("publicKey", base64(&key)), ("udp-port", "4500".into()), ("natt-discovery-port", "4490".into())];
    spec.backend_config = settings.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(spec)
}

/// Returns what every member's Endpoint says, but for what its cable driver says of itself.
pub(super) fn base(
    member: u32,
    networks: u32,
    driver: &str,
    address: Ipv4Addr,
) -> anyhow::Result<EndpointSpec> {
    let subnets: Vec<IpNet> = (0..networks).map(|network| network_of(member, network)).collect();
    let cluster = format!("{PREFIX}{member}");
    let spec = serde_json::json!({
        "cluster_id": cluster,
        "cable_name": format!("submariner-cable-{cluster}-{}", address.to_string().replace('.', "-")),
        "hostname": format!("{cluster}-gw1"),
        "subnets": subnets,
        "private_ip": address,
        "public_ip": "",
        "nat_enabled": false,
        "backend": driver,
    });
    Ok(serde_json::from_value(spec)?)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_differ_in_everything() {
        let [one, other] = [0, 2999].map(|member| silent(member, NETWORKS, "vxlan").unwrap());
        assert_eq!(one.subnets[3].to_string(), "100.64.3.0/24");
        assert_ne!((&one.cluster_id, &one.private_ip), (&other.cluster_id, &other.private_ip));
        assert_ne!(one.backend_config["publicKey"], other.backend_config["publicKey"]);
    }
}
