//! What the broker says of globalnet, and whether what it is told makes sense. Addresses are not allocated here:
//! this version translates none.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;

use crate::error::DeployError;

/// The broker's ConfigMap.
pub const CONFIG_MAP: &str = "submariner-globalnet-info";

/// Checks a range and a size of cluster's blocks (addresses), and returns the size rounded up to a power of two.
///
/// # Errors
/// [`DeployError::Refused`] if the range is no IPv4 range that anybody may use, or the size leaves no room for two
/// clusters.
pub fn check(range: &str, size: u32) -> Result<(Ipv4Net, u32), DeployError> {
    let refused = |what: String| {
        DeployError::refused(what, "choose with --globalnet-cidr-range and --globalnet-cluster-size")
    };
    let range: Ipv4Net = range.parse().map_err(|_| {
        refused(format!("the globalnet range `{range}` is not an IPv4 CIDR such as 242.0.0.0/8"))
    })?;
    let first = range.network();
    if first.is_loopback() || first.is_link_local() || first.is_multicast() || first == Ipv4Addr::UNSPECIFIED
    {
        return Err(refused(format!(
            "the globalnet range {range} is loopback, link-local, multicast or unspecified"
        )));
    }
    let total = 1_u64 << (32 - range.prefix_len());
    let rounded = u64::from(size).next_power_of_two();
    if size == 0 || rounded * 2 > total {
        return Err(refused(format!(
            "a globalnet cluster size of {size} addresses, rounded up to {rounded}, leaves no room for a second \
             cluster in {range}, which has {total}"
        )));
    }
    let rounded =
        u32::try_from(rounded).map_err(|_| refused(format!("a size of {size} addresses is too large")))?;
    Ok((range.trunc(), rounded))
}

/// Whether the broker's ConfigMap says that globalnet is on.
pub fn is_enabled(config_map: Option<&Value>) -> bool {
    config_map.is_some_and(|map| map["data"]["globalnetEnabled"].as_str() == Some("true"))
}

/// The range that the broker's ConfigMap names: JSON text inside text.
pub fn range(config_map: &Value) -> Option<IpNet> {
    let text = config_map["data"]["globalnetCidrRange"].as_str()?;
    let text: String = serde_json::from_str(text).ok()?;
    let range: IpNet = text.parse().ok()?;
    matches!(range.network(), IpAddr::V4(_)).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_rounded_up_to_a_power_of_two() {
        assert_eq!(check("242.0.0.0/8", 65536).unwrap().1, 65536);
        assert_eq!(check("242.0.0.0/8", 60000).unwrap().1, 65536);
        assert_eq!(check("242.1.2.3/16", 1).unwrap(), ("242.1.0.0/16".parse().unwrap(), 1));
    }

    #[test]
    fn a_size_that_rounds_to_the_whole_range_is_refused_with_the_numbers() {
        let error = check("242.0.0.0/16", 40000).unwrap_err().to_string();
        assert!(error.contains("rounded up to 65536") && error.contains("which has 65536"), "{error}");
        assert_eq!(check("242.0.0.0/16", 32768).unwrap().1, 32768);
        for (range, size) in [("242.0.0.0/32", 1), ("242.0.0.0/8", 0), ("242.0.0.0/8", u32::MAX)] {
            assert!(check(range, size).is_err(), "{range} {size}");
        }
    }

    #[test]
    fn a_range_that_nobody_may_use_is_refused() {
        for range in ["127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/8", "fd00::/8", "x"] {
            assert!(check(range, 256).is_err(), "{range}");
        }
    }

    #[test]
    fn the_brokers_config_map_is_read_as_upstream_writes_it() {
        let map = json!({"data": {"globalnetEnabled": "true", "globalnetCidrRange": "\"242.0.0.0/8\""}});
        assert!(is_enabled(Some(&map)) && !is_enabled(None));
        assert_eq!(range(&map), Some("242.0.0.0/8".parse().unwrap()));
        assert_eq!(range(&json!({"data": {"globalnetCidrRange": "242"}})), None);
    }
}
