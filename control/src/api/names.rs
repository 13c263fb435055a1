//! Names: how upstream derives them, and which ones are allowed.

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

/// Longest object name or namespace, in bytes. Kubernetes allows 253; three less, so that `NAME.yaml` is a file name.
pub const MAX_NAME_LEN: usize = 250;

/// Longest cluster ID, in bytes: a DNS-1123 label.
const MAX_LABEL_LEN: usize = 63;

/// A name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` {reason}")]
pub struct NameError {
    /// The name, escaped for printing.
    pub name: String,
    /// The reason why it is invalid.
    pub reason: &'static str,
}

/// Makes an object name of any text: lower case; every character outside `[a-z0-9.-]` becomes a dash; dashes at both
/// ends are cut. The result can still be empty or otherwise unusable; [`check_object_name`] tells.
pub fn ensure_valid_name(text: &str) -> String {
    let mapped: String = text
        .to_lowercase()
        .chars()
        .map(|c| if matches!(c, 'a'..='z' | '0'..='9' | '.' | '-') { c } else { '-' })
        .collect();
    mapped.trim_matches('-').to_owned()
}

/// Returns a cable's name: `submariner-cable-<cluster>-<private IP, its dots (and colons, with IPv6) as dashes>`.
pub fn cable_name(cluster_id: &str, private_ip: IpAddr) -> String {
    let address = private_ip.to_string().replace(['.', ':'], "-");
    format!("submariner-cable-{cluster_id}-{address}")
}

/// Returns the name of an Endpoint object: `<cluster>-<cable name>`, made valid.
///
/// # Errors
/// [`NameError`] when either part is empty or the result is not an object name.
pub fn endpoint_object_name(cluster_id: &str, cable_name: &str) -> Result<String, NameError> {
    if cluster_id.is_empty() || cable_name.is_empty() {
        let name = format!("{cluster_id}-{cable_name}");
        return Err(NameError { name, reason: "needs both a cluster ID and a cable name" });
    }
    let name = ensure_valid_name(&format!("{cluster_id}-{cable_name}"));
    check_object_name(&name)?;
    Ok(name)
}

/// Returns the name of the internal Service that has an exported service's global IP: `submariner-` and the first 32
/// characters of the lower-case base32 of the SHA-256 of the service's name. The namespace is the service's own.
pub fn internal_service_name(service: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(service.as_bytes());
    let mut name = "submariner-".to_owned();
    for five_bytes in digest.chunks_exact(5).take(4) {
        let bits = five_bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        for place in (0..8).rev() {
            let digit = usize::try_from(bits >> (5 * place) & 31).unwrap_or(0);
            name.push(char::from(ALPHABET[digit]));
        }
    }
    name
}

/// Checks a cluster ID: a DNS-1123 label of 1 to 63 characters.
///
/// # Errors
/// [`NameError`] saying which rule is broken.
pub fn check_cluster_id(id: &str) -> Result<(), NameError> {
    if id.len() > MAX_LABEL_LEN {
        return Err(error(id, "is longer than 63 characters"));
    }
    check_label(id, id)
}

/// Checks a namespace: the same rule as a cluster ID's.
///
/// # Errors
/// [`NameError`] saying which rule is broken.
pub fn check_namespace(namespace: &str) -> Result<(), NameError> {
    check_cluster_id(namespace)
}

/// Checks an object name: DNS-1123 labels joined by dots, at most [`MAX_NAME_LEN`] bytes. Such a name can be a file
/// name as it is: it has no slash and is neither `.` nor `..`.
///
/// # Errors
/// [`NameError`] saying which rule is broken.
pub fn check_object_name(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_NAME_LEN {
        return Err(error(name, "is longer than 250 characters"));
    }
    name.split('.').try_for_each(|part| check_label(name, part))
}

fn check_label(whole: &str, part: &str) -> Result<(), NameError> {
    if part.is_empty() {
        return Err(error(
            whole,
            if whole.is_empty() { "is empty" } else { "has an empty part between dots" },
        ));
    }
    if !part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
        return Err(error(whole, "may only contain a-z, 0-9 and `-` (object names also `.`)"));
    }
    if part.starts_with('-') || part.ends_with('-') {
        return Err(error(whole, "must not start or end with `-`"));
    }
    Ok(())
}

fn error(name: &str, reason: &'static str) -> NameError {
    NameError { name: name.escape_debug().collect(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_derived_as_upstream_does() {
        assert_eq!(ensure_valid_name("Node_1.Example.COM"), "node-1.example.com");
        assert_eq!(ensure_valid_name("--a b--"), "a-b");
        assert_eq!(ensure_valid_name("Ünder"), "nder");
        let cable = cable_name("cluster-a", "172.31.1.11".parse().unwrap());
        assert_eq!(cable, "submariner-cable-cluster-a-172-31-1-11");
        assert_eq!(
            endpoint_object_name("cluster-a", &cable).unwrap(),
            "cluster-a-submariner-cable-cluster-a-172-31-1-11"
        );
    }

    #[test]
    fn an_internal_service_is_named_after_its_service_as_recorded() {
        assert_eq!(internal_service_name("web-cip"), "submariner-mphifiprpevyrnyxv7bzskbwirevhjyt");
    }

    #[test]
    fn an_endpoint_name_needs_both_parts() {
        assert!(endpoint_object_name("", "x").is_err());
        assert!(endpoint_object_name("x", "").is_err());
    }

    #[test]
    fn an_ipv6_cable_name_makes_a_valid_object_name() {
        for address in ["fd00::1", "::1", "fd00::", "2001:db8::ffff:1"] {
            let cable = cable_name("c1", address.parse().unwrap());
            endpoint_object_name("c1", &cable).unwrap();
        }
    }

    #[test]
    fn no_accepted_name_can_leave_its_directory() {
        for name in
            ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "a..b", ".hidden", "-a", "a-", "A", "a.", "é"]
        {
            assert!(check_object_name(name).is_err(), "{name:?} was accepted");
            assert!(check_namespace(name).is_err(), "{name:?} was accepted as namespace");
        }
        assert!(check_object_name(&"a".repeat(251)).is_err());
        assert!(check_object_name(&"a".repeat(250)).is_ok());
        assert!(check_cluster_id(&"a".repeat(64)).is_err());
        assert!(check_cluster_id("a.b").is_err());
        assert!(check_object_name("b-gw1.example.com").is_ok());
    }
}
