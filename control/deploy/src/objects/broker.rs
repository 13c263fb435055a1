//! A broker, and what it keeps for each member.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

use super::names::{
    BROKER_ADMIN, BROKER_NAMESPACE, CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO, GLOBALNET_INFO, MEMBER_ROLE,
    broker_admin_token, cluster_account, cluster_binding, cluster_token,
};
use super::{Manifest, RangeError};
use super::{crds, custom, namespaces, policy, ranges, rbac};

/// What can be chosen about a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerOptions {
    /// The members' namespace.
    pub namespace: String,
    /// What the set offers.
    pub components: Vec<Component>,
    /// Global addresses, where clusters' own overlap.
    pub globalnet: Globalnet,
    /// Addresses for services of the set.
    pub clusterset_ip: ClusterSetIp,
    /// Domains beside `clusterset.local`.
    pub custom_domains: Vec<String>,
}

/// A part of what a set offers, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Services are found by name.
    ServiceDiscovery,
    /// Pods and services are reached.
    Connectivity,
}

/// Global addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globalnet {
    /// Whether there are any.
    pub enabled: bool,
    /// Where they are taken from.
    pub cidr_range: Ipv4Net,
    /// How many a member gets, rounded up to a power of two.
    pub cluster_size: u32,
}

/// Addresses for services of the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSetIp {
    /// Whether services get one unless they say otherwise.
    pub enabled: bool,
    /// Where they are taken from.
    pub cidr_range: Ipv4Net,
    /// How many a member gives out, rounded up to a power of two.
    pub cluster_size: u32,
    /// Where those of IPv6 are taken from; `None` if there are none.
    pub ipv6_range: Option<Ipv6Net>,
    /// How many of IPv6 a member gives out, rounded up to a power of two.
    pub ipv6_cluster_size: u32,
}

/// Every object of a broker, in the order in which they are applied.
///
/// # Errors
/// A range or size that cannot be given out.
pub fn broker(options: &BrokerOptions) -> Result<Vec<Manifest>, RangeError> {
    let namespace = options.namespace.as_str();
    let allocations =
        [globalnet_info(options)?, clusterset_ip_info(options)?, clusterset_ipv6_info(options)?];
    let mut manifests = vec![namespaces::broker(namespace)];
    manifests.extend(crds::definitions());
    manifests.extend(rbac::broker(namespace));
    manifests.push(token(namespace, &broker_admin_token(), BROKER_ADMIN));
    // Before any member can write.
    manifests.extend(policy::admission_policy(namespace));
    manifests.extend(allocations);
    manifests.push(custom::broker_resource(options));
    Ok(manifests)
}

/// What a broker keeps for one member: its account, the account's token, and its rights.
pub fn broker_member(cluster_id: &str, broker_namespace: &str) -> Vec<Manifest> {
    let account = cluster_account(cluster_id);
    vec![
        rbac::service_account(broker_namespace, &account),
        token(broker_namespace, &cluster_token(cluster_id), &account),
        rbac::binding(
            broker_namespace,
            &cluster_binding(cluster_id),
            MEMBER_ROLE,
            (broker_namespace, &account),
        ),
    ]
}

/// A Secret into which the control plane writes a lasting token of an account.
fn token(namespace: &str, name: &str, account: &str) -> Manifest {
    Manifest::make("v1", "Secret", namespace, name)
        .annotated("kubernetes.io/service-account.name", account)
        .with("type", json!("kubernetes.io/service-account-token"))
}

/// Who has which global addresses (api §12.2). Whoever applies it must not touch `clusterinfo` of one that is there.
fn globalnet_info(options: &BrokerOptions) -> Result<Manifest, RangeError> {
    let Globalnet { enabled, cidr_range, cluster_size } = options.globalnet;
    // Upstream checks the range only where it is used.
    let size =
        if enabled { ranges::share("globalnet", cidr_range.into(), cluster_size)? } else { cluster_size };
    let data = json!({
        "globalnetEnabled": enabled.to_string(),
        // A JSON text, quotes included, as upstream reads it.
        "globalnetCidrRange": Value::from(cidr_range.to_string()).to_string(),
        "globalnetClusterSize": size.to_string(),
        "clusterinfo": "[]",
    });
    let info = Manifest::make("v1", "ConfigMap", &options.namespace, GLOBALNET_INFO);
    Ok(info.labelled("component", "submariner-globalnet").with("data", data))
}

fn clusterset_ip_info(options: &BrokerOptions) -> Result<Manifest, RangeError> {
    let ClusterSetIp { cidr_range, cluster_size, .. } = options.clusterset_ip;
    let size = ranges::share("clusterset IP", cidr_range.into(), cluster_size)?;
    Ok(clusterset_info(options, CLUSTERSET_IP_INFO, &cidr_range.to_string(), size))
}

/// Returns ours of IPv6, in the same form. Without a range that is empty, and nothing is given out.
fn clusterset_ipv6_info(options: &BrokerOptions) -> Result<Manifest, RangeError> {
    let ClusterSetIp { ipv6_range, ipv6_cluster_size, .. } = options.clusterset_ip;
    let size = match ipv6_range {
        Some(range) => ranges::share("clusterset IP", range.into(), ipv6_cluster_size)?,
        None => ipv6_cluster_size,
    };
    let range = ipv6_range.map(|range| range.to_string()).unwrap_or_default();
    Ok(clusterset_info(options, CLUSTERSET_IPV6_INFO, &range, size))
}

fn clusterset_info(options: &BrokerOptions, name: &str, range: &str, size: u32) -> Manifest {
    let data = json!({
        "clustersetIPEnabled": options.clusterset_ip.enabled.to_string(),
        "clustersetIPCidrRange": Value::from(range).to_string(),
        "clustersetIPClusterSize": size.to_string(),
        "clusterinfo": "[]",
    });
    let info = Manifest::make("v1", "ConfigMap", &options.namespace, name);
    info.labelled("component", "submariner-clustersetip").with("data", data)
}

impl Default for BrokerOptions {
    /// Upstream's.
    fn default() -> Self {
        Self {
            namespace: BROKER_NAMESPACE.to_owned(),
            components: vec![Component::ServiceDiscovery, Component::Connectivity],
            globalnet: Globalnet::default(),
            clusterset_ip: ClusterSetIp::default(),
            custom_domains: Vec::new(),
        }
    }
}

impl Default for Globalnet {
    /// Upstream's: off (api §10.2).
    fn default() -> Self {
        Self { enabled: false, cidr_range: net([242, 0, 0, 0]), cluster_size: 65536 }
    }
}

impl ClusterSetIp {
    /// Ours: where those of IPv6 are taken from unless something else is said, a unique local network (RFC 4193). Its 40 bits behind
    /// `fd` are the first of the SHA-256 of `trieste clusterset IPs`: the same in all sets, as upstream's of IPv4 is, since no packet
    /// with such an address leaves a node.
    pub const IPV6_RANGE: Ipv6Net =
        Ipv6Net::new_assert(Ipv6Addr::new(0xfdf1, 0x5f29, 0x2642, 0, 0, 0, 0, 0), 48);
}

impl Default for ClusterSetIp {
    /// Upstream's: off (api §10.2), 4096 for each member. Ours of IPv6: 65536 for each.
    fn default() -> Self {
        Self {
            enabled: false,
            cidr_range: net([243, 0, 0, 0]),
            cluster_size: 4096,
            ipv6_range: Some(Self::IPV6_RANGE),
            ipv6_cluster_size: 65_536,
        }
    }
}

fn net(address: [u8; 4]) -> Ipv4Net {
    Ipv4Net::new_assert(address.into(), 8)
}

impl Component {
    /// Upstream's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceDiscovery => "service-discovery",
            Self::Connectivity => "connectivity",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Component {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::ServiceDiscovery, Self::Connectivity]
            .into_iter()
            .find(|component| component.as_str() == text)
            .ok_or_else(|| format!("`{text}` is no component: known are service-discovery and connectivity"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(options: &BrokerOptions, name: &str) -> Value {
        let manifests = broker(options).unwrap();
        let found = manifests.iter().find(|manifest| manifest.name() == name).unwrap();
        found.as_value()["data"].clone()
    }

    #[test]
    fn the_config_maps_are_upstreams_to_the_letter() {
        let mut options = BrokerOptions::default();
        options.globalnet.enabled = true;
        options.globalnet.cluster_size = 60000;
        assert_eq!(
            info(&options, GLOBALNET_INFO),
            json!({"globalnetEnabled": "true", "globalnetCidrRange": "\"242.0.0.0/8\"",
                "globalnetClusterSize": "65536", "clusterinfo": "[]"})
        );
        assert_eq!(
            info(&options, CLUSTERSET_IP_INFO),
            json!({"clustersetIPEnabled": "false", "clustersetIPCidrRange": "\"243.0.0.0/8\"",
                "clustersetIPClusterSize": "4096", "clusterinfo": "[]"})
        );
    }

    #[test]
    fn ranges_of_ipv6_have_a_config_map_of_their_own_in_the_same_form() {
        let mut options = BrokerOptions::default();
        assert_eq!(
            info(&options, CLUSTERSET_IPV6_INFO),
            json!({"clustersetIPEnabled": "false", "clustersetIPCidrRange": "\"fdf1:5f29:2642::/48\"",
                "clustersetIPClusterSize": "65536", "clusterinfo": "[]"})
        );
        options.clusterset_ip.ipv6_range = None;
        assert_eq!(info(&options, CLUSTERSET_IPV6_INFO)["clustersetIPCidrRange"], "\"\"");
        options.clusterset_ip.ipv6_range = Some("fd00:243::/112".parse().unwrap());
        assert!(broker(&options).unwrap_err().to_string().contains("a second cluster would get none"));
    }

    #[test]
    fn a_globalnet_that_nobody_asked_for_is_not_judged_and_one_that_is_full_at_once_is_refused() {
        let mut options = BrokerOptions::default();
        options.globalnet.cluster_size = 1 << 24;
        assert!(broker(&options).is_ok());
        options.globalnet.enabled = true;
        assert!(broker(&options).unwrap_err().to_string().contains("a second cluster would get none"));
    }

    #[test]
    fn the_policy_is_there_before_anybody_can_join() {
        let manifests = broker(&BrokerOptions::default()).unwrap();
        let at = |kind: &str| manifests.iter().position(|manifest| manifest.kind() == kind).unwrap();
        assert!(at("ValidatingAdmissionPolicyBinding") < at("Broker"));
        assert_eq!(at("Namespace"), 0);
    }

    #[test]
    fn a_members_account_its_token_and_its_binding_belong_together() {
        let [account, token, binding] = <[Manifest; 3]>::try_from(broker_member("east", "ns")).unwrap();
        assert_eq!(account.name(), "cluster-east");
        assert_eq!(
            token.as_value()["metadata"]["annotations"]["kubernetes.io/service-account.name"],
            "cluster-east"
        );
        assert_eq!(binding.as_value()["subjects"][0]["name"], "cluster-east");
        assert!([account, token, binding].iter().all(|manifest| manifest.namespace() == Some("ns")));
    }
}
