//! Globalnet's word on where to ping this node.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::api::{ApiError, ClusterSpec, Object, annotation};

/// Returns the health-check address of a gateway in a cluster with Globalnet, which Globalnet writes onto its Gateway
/// object. `None` without Globalnet, and as long as nothing is written.
///
/// # Errors
/// [`ApiError::Field`] when that is no address, or not one of the cluster's first global CIDR, or when that CIDR is none.
pub fn global_health_check_ip(
    cluster: &ClusterSpec,
    own_gateway: &Object,
) -> Result<Option<IpAddr>, ApiError> {
    let Some(cidr) = cluster.global_cidr.first() else { return Ok(None) };
    let Some(text) = own_gateway.metadata.annotations.get(annotation::GLOBAL_IP) else { return Ok(None) };
    let cidr: IpNet = cidr
        .parse()
        .map_err(|_| ApiError::field("spec.global_cidr[0]", format!("`{cidr}` is not a CIDR")))?;
    let field = format!("metadata.annotations.{}", annotation::GLOBAL_IP);
    let address: IpAddr =
        text.parse().map_err(|_| ApiError::field(&field, format!("`{text}` is not an IP address")))?;
    if !cidr.contains(&address) {
        return Err(ApiError::field(field, format!("{address} is not within our global CIDR {cidr}")));
    }
    Ok(Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Kind, ObjectMeta};

    fn gateway(address: &str) -> Object {
        let mut gateway = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw1"));
        gateway.metadata.annotations.insert(annotation::GLOBAL_IP.to_owned(), address.to_owned());
        gateway
    }

    #[test]
    fn an_address_of_the_first_global_cidr_is_taken_and_no_other() {
        let cluster = ClusterSpec {
            global_cidr: vec!["242.1.0.0/16".to_owned(), "242.2.0.0/16".to_owned()],
            ..ClusterSpec::default()
        };
        let ip = |text| global_health_check_ip(&cluster, &gateway(text));
        assert_eq!(ip("242.1.255.254"), Ok(Some("242.1.255.254".parse().unwrap())));
        assert!(ip("242.2.0.1").unwrap_err().to_string().contains("242.1.0.0/16"));
        assert!(ip("x").unwrap_err().to_string().contains("submariner.io/globalIp"));
        let silent = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw1"));
        assert_eq!(global_health_check_ip(&cluster, &silent), Ok(None));
        assert_eq!(global_health_check_ip(&ClusterSpec::default(), &gateway("242.1.0.1")), Ok(None));
    }
}
