//! The ranges that members get their global addresses and clusterset IPs from.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// A range, or a share of it, that cannot be given out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The range is not for hosts of a network.
    #[error("{what}: {range} cannot be given out: it {reason}")]
    NotUsable {
        /// Which range.
        what: &'static str,
        /// The range.
        range: IpNet,
        /// Why.
        reason: &'static str,
    },
    /// A share of no addresses.
    #[error("{what}: a cluster cannot have 0 addresses")]
    Zero {
        /// Which range.
        what: &'static str,
    },
    /// Two shares do not fit.
    #[error(
        "{what}: {size} addresses for each cluster{rounded} are more than half of {range} ({available}): a second \
         cluster would get none; choose at most {most}, or a larger range"
    )]
    TooLarge {
        /// Which range.
        what: &'static str,
        /// The range.
        range: IpNet,
        /// The share that was asked for.
        size: u32,
        /// What it became, as part of a sentence; empty if it is a power of two.
        rounded: String,
        /// Addresses in the range.
        available: u128,
        /// The largest share that fits.
        most: u128,
    },
}

/// The share that each cluster gets of a range: the size that was asked for, rounded up to a power of two.
///
/// # Errors
/// That the range is not for hosts, or that two shares do not fit.
pub(crate) fn share(what: &'static str, range: IpNet, size: u32) -> Result<u32, RangeError> {
    usable(what, range)?;
    if size == 0 {
        return Err(RangeError::Zero { what });
    }
    let available = addresses(range);
    let share = u128::from(size).next_power_of_two();
    let too_large = || RangeError::TooLarge {
        what,
        range,
        size,
        rounded: if share == u128::from(size) { String::new() } else { format!(" (rounded up to {share})") },
        available,
        most: available / 2,
    };
    if share > available / 2 {
        return Err(too_large());
    }
    u32::try_from(share).map_err(|_| too_large())
}

/// Whether a range is for hosts of a network.
///
/// # Errors
/// That it is not.
pub(crate) fn usable(what: &'static str, range: IpNet) -> Result<(), RangeError> {
    match unusable(range) {
        Some(reason) => Err(RangeError::NotUsable { what, range, reason }),
        None => Ok(()),
    }
}

/// Returns how many addresses a network has, as far as that can be counted.
pub(crate) fn addresses(network: IpNet) -> u128 {
    1_u128.checked_shl(u32::from(network.max_prefix_len() - network.prefix_len())).unwrap_or(u128::MAX)
}

/// Why a range cannot be used, if it cannot.
fn unusable(range: IpNet) -> Option<&'static str> {
    let ends = [range.network(), range.broadcast()];
    let touches = |is_such: fn(&IpAddr) -> bool| ends.iter().any(is_such);
    let is_ipv4 = matches!(range, IpNet::V4(_));
    let reason = |of_ipv4, of_ipv6| Some(if is_ipv4 { of_ipv4 } else { of_ipv6 });
    match () {
        () if touches(IpAddr::is_unspecified) => {
            reason("contains 0.0.0.0, which is no address", "contains ::, which is no address")
        }
        () if touches(IpAddr::is_loopback) => {
            reason("is of the loopback network 127.0.0.0/8", "is the loopback address ::1")
        }
        () if touches(is_link_local) => reason("is link-local (169.254.0.0/16)", "is link-local (fe80::/10)"),
        () if touches(IpAddr::is_multicast) => {
            reason("is for multicast (224.0.0.0/4)", "is for multicast (ff00::/8)")
        }
        () if touches(is_mapped) => Some("is of IPv4-mapped addresses (::ffff:0:0/96)"),
        () => None,
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if Ipv6Addr::to_ipv4_mapped(address).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of(range: &str, size: u32) -> Result<u32, String> {
        share("globalnet", range.parse().unwrap(), size).map_err(|error| error.to_string())
    }

    #[test]
    fn a_share_is_rounded_up_to_a_power_of_two_and_two_of_them_fit() {
        assert_eq!(share_of("242.0.0.0/8", 65536), Ok(65536));
        assert_eq!(share_of("242.0.0.0/8", 65537), Ok(131_072));
        assert_eq!(share_of("242.0.0.0/16", 32768), Ok(32768));
        assert_eq!(share_of("10.0.0.0/31", 1), Ok(1));
    }

    #[test]
    fn a_share_that_rounds_to_the_whole_range_is_refused_with_the_reason() {
        let error = share_of("242.0.0.0/16", 32769).unwrap_err();
        assert_eq!(
            error,
            "globalnet: 32769 addresses for each cluster (rounded up to 65536) are more than half of 242.0.0.0/16 \
             (65536): a second cluster would get none; choose at most 32768, or a larger range"
        );
        assert!(share_of("242.0.0.0/16", 65536).is_err());
        assert!(share_of("242.0.0.0/32", 1).is_err());
        assert!(share_of("242.0.0.0/8", u32::MAX).is_err());
        assert!(share_of("242.0.0.0/8", 0).unwrap_err().contains("0 addresses"));
    }

    #[test]
    fn ranges_that_are_not_for_hosts_are_refused() {
        for range in
            ["0.0.0.0/0", "0.0.0.0/8", "127.0.0.0/16", "127.1.0.0/16", "169.254.0.0/16", "224.0.0.0/4"]
        {
            assert!(share_of(range, 16).unwrap_err().contains("cannot be given out"), "{range}");
        }
        for (range, reason) in [
            ("::/0", "no address"),
            ("::1/128", "loopback"),
            ("::ffff:0:0/100", "IPv4-mapped"),
            ("fe80::/64", "link-local"),
            ("ff05::/16", "multicast"),
            ("f000::/4", "multicast"),
        ] {
            let error = share_of(range, 16).unwrap_err();
            assert!(error.contains("cannot be given out") && error.contains(reason), "{range}: {error}");
        }
    }

    #[test]
    fn ranges_of_ipv6_are_shared_by_the_same_rule() {
        assert_eq!(share_of("fd00:243::/48", 65_536), Ok(65_536));
        assert_eq!(share_of("fd00:243::/112", 32_768), Ok(32_768));
        assert!(share_of("fd00:243::/112", 32_769).unwrap_err().contains("choose at most 32768"));
    }
}
