//! What says networks of the cluster: objects of Kubernetes and of network plugins. Pure.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::Value;

use super::network_map::NetworkMap;
use crate::api::{ClusterNetworks, Kind, Object, ObjectKey, label};

/// What says networks of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Of pods: Calico's IPPools.
    CalicoPools,
    /// Of services: the ServiceCIDR objects.
    ServiceCidrs,
    /// Of pods: Cilium's CiliumPodIPPools.
    CiliumPools,
    /// Of pods: OpenShift's Network `cluster`.
    OpenShiftPods,
    /// Of services: the same.
    OpenShiftServices,
    /// Of pods: flannel's ConfigMap, in the namespace that it has had since version 0.20.
    FlannelMap,
    /// Of pods: flannel's ConfigMap in `kube-system`, as before.
    FlannelSystemMap,
    /// Of pods: canal's ConfigMap.
    CanalMap,
    /// Of pods: Cilium's ConfigMap, where it gives addresses by it.
    CiliumMap,
    /// Of pods: OVN-Kubernetes' ConfigMap.
    OvnPodsMap,
    /// Of services: the same.
    OvnServicesMap,
    /// Of pods: kube-proxy's ConfigMap.
    KubeProxyMap,
    /// Of pods: kubeadm's ConfigMap.
    KubeadmPodsMap,
    /// Of services: the same.
    KubeadmServicesMap,
}

/// Reads the networks that an object says, by it and its `spec`.
type Reader = for<'a> fn(&'a Object, &'a Value) -> Vec<&'a str>;

/// Where a source's networks stand.
enum Origin {
    /// In all objects of a kind.
    Objects(Kind, Reader),
    /// In one ConfigMap.
    Map(NetworkMap),
}

/// The name of OpenShift's object; others of its kind mean nothing.
const OPENSHIFT_NETWORK: &str = "cluster";

impl Source {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::CalicoPools,
        Self::ServiceCidrs,
        Self::CiliumPools,
        Self::OpenShiftPods,
        Self::OpenShiftServices,
        Self::FlannelMap,
        Self::FlannelSystemMap,
        Self::CanalMap,
        Self::CiliumMap,
        Self::OvnPodsMap,
        Self::OvnServicesMap,
        Self::KubeProxyMap,
        Self::KubeadmPodsMap,
        Self::KubeadmServicesMap,
    ];

    /// Returns its name in the annotation. The first two are those of their lists, since there were no others.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::CalicoPools => "pods",
            Self::ServiceCidrs => "services",
            Self::CiliumPools => "cilium-pods",
            Self::OpenShiftPods => "openshift-pods",
            Self::OpenShiftServices => "openshift-services",
            Self::FlannelMap => "flannel-map",
            Self::FlannelSystemMap => "flannel-system-map",
            Self::CanalMap => "canal-map",
            Self::CiliumMap => "cilium-map",
            Self::OvnPodsMap => "ovn-map-pods",
            Self::OvnServicesMap => "ovn-map-services",
            Self::KubeProxyMap => "kube-proxy-map",
            Self::KubeadmPodsMap => "kubeadm-map-pods",
            Self::KubeadmServicesMap => "kubeadm-map-services",
        }
    }

    /// Returns the key in the ConfigMap of the list that has its networks.
    #[must_use]
    pub const fn key(self) -> &'static str {
        let [pods, services, _] = ClusterNetworks::KEYS;
        if self.is_of_pods() { pods } else { services }
    }

    /// Returns `true` if its networks are those of pods, `false` if they are those of services.
    #[must_use]
    pub const fn is_of_pods(self) -> bool {
        !matches!(
            self,
            Self::ServiceCidrs | Self::OpenShiftServices | Self::OvnServicesMap | Self::KubeadmServicesMap
        )
    }

    /// Returns the kind of its objects.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self.origin() {
            Origin::Objects(kind, _) => kind,
            Origin::Map(_) => Kind::ConfigMap,
        }
    }

    /// Returns its ConfigMap, if it is one.
    const fn map(self) -> Option<NetworkMap> {
        match self.origin() {
            Origin::Objects(..) => None,
            Origin::Map(map) => Some(map),
        }
    }

    const fn origin(self) -> Origin {
        match self {
            Self::CalicoPools => Origin::Objects(Kind::IpPool, of_calico),
            Self::ServiceCidrs => Origin::Objects(Kind::ServiceCidr, of_service_cidr),
            Self::CiliumPools => Origin::Objects(Kind::CiliumPodIpPool, of_cilium),
            Self::OpenShiftPods => Origin::Objects(Kind::OpenShiftNetwork, of_openshift_pods),
            Self::OpenShiftServices => Origin::Objects(Kind::OpenShiftNetwork, of_openshift_services),
            Self::FlannelMap => Origin::Map(NetworkMap::of_flannel("kube-flannel", "kube-flannel-cfg")),
            Self::FlannelSystemMap => Origin::Map(NetworkMap::of_flannel("kube-system", "kube-flannel-cfg")),
            Self::CanalMap => Origin::Map(NetworkMap::of_flannel("kube-system", "canal-config")),
            Self::CiliumMap => Origin::Map(NetworkMap::of_cilium()),
            Self::OvnPodsMap => Origin::Map(NetworkMap::of_ovn(&["net_cidr"])),
            Self::OvnServicesMap => Origin::Map(NetworkMap::of_ovn(&["svc_cidr"])),
            Self::KubeProxyMap => Origin::Map(NetworkMap::of_kube_proxy()),
            Self::KubeadmPodsMap => Origin::Map(NetworkMap::of_kubeadm(&["/networking/podSubnet"])),
            Self::KubeadmServicesMap => Origin::Map(NetworkMap::of_kubeadm(&["/networking/serviceSubnet"])),
        }
    }

    /// Returns the key of its object, if that is one ConfigMap; `None` if all objects of its kind count.
    #[must_use]
    pub fn object(self) -> Option<ObjectKey> {
        self.map().map(NetworkMap::key)
    }

    /// Returns `true` for ConfigMaps of what has installed the cluster: networks are in use whatever they say later.
    #[must_use]
    pub const fn is_of_installer(self) -> bool {
        matches!(self, Self::KubeProxyMap | Self::KubeadmPodsMap | Self::KubeadmServicesMap)
    }

    /// Returns the networks that objects say; `recorded` are those that they have said before.
    ///
    /// # Errors
    /// Why what a ConfigMap says cannot be read, with its name.
    pub fn found<'a>(
        self,
        objects: impl IntoIterator<Item = &'a Object>,
        recorded: &BTreeSet<IpNet>,
    ) -> Result<BTreeSet<IpNet>, String> {
        let mut objects = objects.into_iter();
        match self.origin() {
            Origin::Objects(_, read) => {
                Ok(objects.flat_map(|object| networks(object, read, recorded)).collect())
            }
            Origin::Map(map) => {
                let found = objects.next().map_or_else(|| Ok(BTreeSet::new()), |object| map.networks(object));
                found.map_err(|reason| format!("{} {reason}", map.key()))
            }
        }
    }
}

/// Returns the networks that an object says, by the reader of its kind, those in `recorded` also where it does not give any
/// addresses of them any more.
fn networks(object: &Object, read: Reader, recorded: &BTreeSet<IpNet>) -> Vec<IpNet> {
    let Some(spec) = object.body.get("spec") else { return Vec::new() };
    read(object, spec)
        .into_iter()
        .filter_map(|text| text.trim().parse().ok())
        .map(|network: IpNet| network.trunc())
        // Pods keep their addresses of a pool that is switched off. One that always was may be for another cluster's network.
        .filter(|network| spec["disabled"] != true || recorded.contains(network))
        .collect()
}

fn texts(list: &Value, text: fn(&Value) -> Option<&str>) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(text).collect()
}

fn of_calico<'a>(pool: &'a Object, spec: &'a Value) -> Vec<&'a str> {
    spec["cidr"].as_str().filter(|_| is_of_own_pods(pool, spec)).into_iter().collect()
}

fn of_service_cidr<'a>(_: &'a Object, spec: &'a Value) -> Vec<&'a str> {
    texts(&spec["cidrs"], Value::as_str)
}

fn of_cilium<'a>(_: &'a Object, spec: &'a Value) -> Vec<&'a str> {
    ["ipv4", "ipv6"].iter().flat_map(|family| texts(&spec[family]["cidrs"], Value::as_str)).collect()
}

fn of_openshift_pods<'a>(object: &'a Object, _: &'a Value) -> Vec<&'a str> {
    of_openshift(object, "clusterNetwork", |network| network["cidr"].as_str())
}

fn of_openshift_services<'a>(object: &'a Object, _: &'a Value) -> Vec<&'a str> {
    of_openshift(object, "serviceNetwork", Value::as_str)
}

/// Returns what OpenShift's Network says: what is in force by its status, or what is wanted where there is none.
fn of_openshift<'a>(object: &'a Object, list: &str, text: fn(&Value) -> Option<&str>) -> Vec<&'a str> {
    let parts = ["status", "spec"].into_iter().filter_map(|part| object.body.get(part));
    let mut lists = parts.map(|part| texts(&part[list], text)).filter(|texts| !texts.is_empty());
    (object.metadata.name == OPENSHIFT_NETWORK).then(|| lists.next()).flatten().unwrap_or_default()
}

/// Returns `true` if a pool is for pods of this cluster.
fn is_of_own_pods(pool: &Object, spec: &Value) -> bool {
    let is_remote = pool.metadata.labels.contains_key(label::REMOTE_POOL);
    let uses = spec["allowedUses"].as_array();
    let is_for_pods = uses.is_none_or(|uses| uses.is_empty() || uses.iter().any(|one| one == "Workload"));
    !is_remote && is_for_pods
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::ObjectMeta;

    #[test]
    fn networks_are_those_of_objects_for_this_clusters_pods_and_services() {
        let object = |source: Source, spec: Value, label: Option<&str>| {
            let mut object = Object::new(source.kind(), ObjectMeta::new("", "a"));
            object.body.insert("spec".to_owned(), spec);
            object.metadata.labels.extend(label.map(|label| (label.to_owned(), "true".to_owned())));
            object
        };
        for (list, spec, label, expected) in [
            (
                Source::ServiceCidrs,
                json!({"cidrs": ["10.96.0.0/16", "fd00:96::/112"]}),
                None,
                "10.96.0.0/16 fd00:96::/112",
            ),
            (
                Source::ServiceCidrs,
                json!({"cidrs": ["10.96.0.0/16", "10.96.4.0/24", "x", 7]}),
                None,
                "10.96.0.0/16 10.96.4.0/24",
            ),
            (Source::ServiceCidrs, json!({}), None, ""),
            (Source::CalicoPools, json!({"cidr": "10.1.3.4/16"}), None, "10.1.0.0/16"),
            (Source::CalicoPools, json!({"cidr": "10.2.0.0/16", "disabled": true}), None, ""),
            (Source::CalicoPools, json!({"cidr": "10.8.0.0/16", "disabled": true}), None, "10.8.0.0/16"),
            (Source::CalicoPools, json!({"cidr": "10.2.0.0/16"}), Some(label::REMOTE_POOL), ""),
            (Source::CalicoPools, json!({"cidr": "10.9.0.0/16", "allowedUses": ["LoadBalancer"]}), None, ""),
            (
                Source::CiliumPools,
                json!({"ipv4": {"cidrs": ["10.20.0.0/16", "10.30.0.0/16"], "maskSize": 24}, "ipv6": {"cidrs": ["fd00:20::/104", 7]}}),
                None,
                "10.20.0.0/16 10.30.0.0/16 fd00:20::/104",
            ),
            (Source::CiliumPools, json!({"ipv4": {"cidrs": "10.20.0.0/16"}}), None, ""),
            (
                Source::CalicoPools,
                json!({"cidr": "10.9.0.0/16", "allowedUses": ["Tunnel", "Workload"]}),
                None,
                "10.9.0.0/16",
            ),
        ] {
            let recorded = BTreeSet::from(["10.8.0.0/16".parse().unwrap()]);
            let found = list.found(&[object(list, spec.clone(), label)], &recorded).unwrap();
            let found: Vec<String> = found.iter().map(IpNet::to_string).collect();
            assert_eq!(found.join(" "), expected, "{list:?} {spec}");
        }
    }

    #[test]
    fn openshifts_network_says_what_is_in_force_and_what_is_wanted_where_it_does_not() {
        let networks = |pods: &[&str], services: &[&str]| {
            let pods: Vec<Value> = pods.iter().map(|cidr| json!({"cidr": cidr, "hostPrefix": 23})).collect();
            json!({"clusterNetwork": pods, "serviceNetwork": services})
        };
        let wanted = networks(&["10.128.0.0/14", "10.132.0.0/14"], &["172.30.0.0/16"]);
        let in_force = networks(&["10.128.0.0/14", "fd01::/48"], &[]);
        for (name, status, pods, services) in [
            ("cluster", Some(&in_force), "10.128.0.0/14 fd01::/48", "172.30.0.0/16"),
            ("cluster", Some(&json!({})), "10.128.0.0/14 10.132.0.0/14", "172.30.0.0/16"),
            ("cluster", None, "10.128.0.0/14 10.132.0.0/14", "172.30.0.0/16"),
            ("another", Some(&in_force), "", ""),
        ] {
            let mut object = Object::new(Kind::OpenShiftNetwork, ObjectMeta::new("", name));
            object.body.insert("spec".to_owned(), wanted.clone());
            object.body.extend(status.map(|status| ("status".to_owned(), status.clone())));
            for (source, expected) in [(Source::OpenShiftPods, pods), (Source::OpenShiftServices, services)] {
                let found = source.found([&object], &BTreeSet::new()).unwrap();
                let found: Vec<String> = found.iter().map(IpNet::to_string).collect();
                assert_eq!(found.join(" "), expected, "{source:?} {name} {status:?}");
            }
        }
    }

    #[test]
    fn every_source_has_a_name_of_its_own_and_config_maps_are_named_by_their_object() {
        let names: BTreeSet<&str> = Source::ALL.into_iter().map(Source::name).collect();
        assert_eq!(names.len(), Source::ALL.len());
        for source in Source::ALL {
            let kind = source.object().map(|key| key.kind);
            assert_eq!(kind.is_some(), source.kind() == Kind::ConfigMap, "{source:?}");
        }
        let mut object = Object::new(Kind::ConfigMap, ObjectMeta::new("kube-system", "canal-config"));
        object.body.insert("data".to_owned(), json!({"net-conf.json": r#"{"Network": "10.7.0.0/16"}"#}));
        let nothing = BTreeSet::new();
        assert_eq!(Source::CanalMap.found([&object], &nothing), Ok(["10.7.0.0/16".parse().unwrap()].into()));
        assert_eq!(Source::CanalMap.found([], &nothing), Ok(BTreeSet::new()));
        object.body.insert("data".to_owned(), json!({"net-conf.json": "7.0.0.0/8: ["}));
        let error = Source::CanalMap.found([&object], &nothing).unwrap_err();
        assert!(
            error.starts_with("ConfigMap kube-system/canal-config has an entry net-conf.json"),
            "{error}"
        );
    }
}
