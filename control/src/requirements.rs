//! The Kubernetes and network plugin that this version needs, the same for `join` and `diagnose`.

use std::fmt;

/// The oldest Kubernetes: objects are applied by the server, which does that for everybody since 1.22. Upstream asks
/// for 1.19, but its tool applies objects itself.
pub const OLDEST_KUBERNETES: (u32, u32) = (1, 22);

/// How this version's route agent gets on with a network plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginSupport {
    /// It serves it.
    Served,
    /// It is treated as any other; it may or may not work.
    Generic,
    /// It was never heard of.
    Unknown,
}

/// OVN-Kubernetes, by the name of discovery: packets for remote clusters pass its logical routers, whose database a worker of ours
/// writes.
pub const OVN_KUBERNETES: &str = "OVNKubernetes";

/// Calico, by the name of discovery: it masquerades towards networks of which it has no pool, and a worker of ours makes those.
pub const CALICO: &str = "calico";

/// Cilium: its own objects say which networks a node's pods have, and what Kubernetes assigns to nodes may be others.
pub const CILIUM: &str = "cilium";

/// Weave Net, by the name of discovery.
const WEAVE_NET: &str = "weave-net";

/// Plugins by the names of discovery, which are upstream's where it has one.
pub const PLUGINS: [(&str, PluginSupport); 9] = [
    (CALICO, PluginSupport::Served),
    ("canal-flannel", PluginSupport::Served),
    (CILIUM, PluginSupport::Generic),
    ("flannel", PluginSupport::Served),
    ("generic", PluginSupport::Generic),
    ("kindnet", PluginSupport::Served),
    ("OpenShiftSDN", PluginSupport::Served),
    (OVN_KUBERNETES, PluginSupport::Served),
    (WEAVE_NET, PluginSupport::Served),
];

/// Returns the way in which a plugin is served, in any case of letters.
#[must_use]
pub fn plugin(name: &str) -> PluginSupport {
    let known = PLUGINS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map_or(PluginSupport::Unknown, |(_, support)| *support)
}

/// Who delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deliverer {
    /// The gateway's node, where Kubernetes assigns the pods' networks to nodes.
    Gateway,
    /// The network plugin.
    Plugin,
}

impl fmt::Display for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "gateway",
            Self::Plugin => "network plugin",
        })
    }
}

/// What the route agent's driver does in a cluster with a network plugin, and what it leaves to the plugin. Drivers, gateways,
/// `join` and `diagnose` go by the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Who brings packets of remote clusters from the gateway's node to pods on others. The plugin does where it gives pods
    /// addresses that do not follow from what Kubernetes has of a node.
    pub delivery: Deliverer,
    /// Whether a cluster may have several active gateways. Where the plugin delivers, answers may come by another one than the
    /// question went by, and are lost at kube-proxy's rule against half connections.
    pub has_several_gateways: bool,
    /// Who translates packets of remote clusters for services.
    pub services: Deliverer,
    /// Whether a worker per database of the plugin (`trieste-plugin-sync`) has to write what remote clusters need there.
    pub needs_synchronizer: bool,
}

/// What holds for plugins that are named nowhere.
const OF_OTHERS: Promise = Promise {
    delivery: Deliverer::Gateway,
    has_several_gateways: true,
    services: Deliverer::Gateway,
    needs_synchronizer: false,
};

/// What holds where the plugin has addresses of its own.
const OF_OWN_ADDRESSING: Promise =
    Promise { delivery: Deliverer::Plugin, has_several_gateways: false, ..OF_OTHERS };

/// Plugins of which something else holds.
const PROMISES: [(&str, Promise); 3] = [
    (CALICO, Promise { needs_synchronizer: true, ..OF_OWN_ADDRESSING }),
    (OVN_KUBERNETES, Promise { services: Deliverer::Plugin, needs_synchronizer: true, ..OF_OWN_ADDRESSING }),
    (WEAVE_NET, OF_OWN_ADDRESSING),
];

/// Returns what is promised with a plugin, in any case of letters.
#[must_use]
pub fn promise(name: &str) -> Promise {
    let special = PROMISES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    special.map_or(OF_OTHERS, |(_, promise)| *promise)
}

/// Says whether a plugin is OVN-Kubernetes, in any case of letters.
#[must_use]
pub fn is_ovn_kubernetes(name: &str) -> bool {
    name.eq_ignore_ascii_case(OVN_KUBERNETES)
}

/// Says whether a plugin is Calico, in any case of letters.
#[must_use]
pub fn is_calico(name: &str) -> bool {
    name.eq_ignore_ascii_case(CALICO)
}

/// Says whether a plugin is Cilium, in any case of letters.
#[must_use]
pub fn is_cilium(name: &str) -> bool {
    name.eq_ignore_ascii_case(CILIUM)
}

/// Returns `true` if Cilium is behind another plugin, which gives pods their addresses, by `cni-chaining-mode` of Cilium's settings.
#[must_use]
pub fn is_chained(chaining_mode: Option<&str>) -> bool {
    chaining_mode.is_some_and(|mode| !matches!(mode.trim(), "" | "none" | "portmap"))
}

/// Returns the names of the plugins that are served.
pub fn served_plugins() -> impl Iterator<Item = &'static str> {
    PLUGINS.into_iter().filter(|(_, support)| *support == PluginSupport::Served).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_known_in_any_case() {
        assert_eq!(plugin("Kindnet"), PluginSupport::Served);
        assert_eq!(plugin("generic"), PluginSupport::Generic);
        assert_eq!(plugin("ovnkubernetes"), PluginSupport::Served);
        assert!(is_ovn_kubernetes("ovnkubernetes") && !is_ovn_kubernetes("ovn"));
        assert!(is_calico("Calico") && !is_calico("canal-flannel"));
        assert!(is_cilium("Cilium") && !is_cilium("generic"));
        assert_eq!(plugin("other"), PluginSupport::Unknown);
        assert!([Some("aws-cni"), Some("generic-veth")].into_iter().all(is_chained));
        assert!(![None, Some(""), Some("none"), Some("portmap")].into_iter().any(is_chained));
        assert!(served_plugins().all(|name| plugin(name) == PluginSupport::Served));
    }

    #[test]
    fn plugin_promises_are_the_same_in_any_case() {
        use Deliverer::{Gateway, Plugin};
        let of = |name: &str| {
            let Promise { delivery, has_several_gateways, services, needs_synchronizer } = promise(name);
            (delivery, has_several_gateways, services, needs_synchronizer)
        };
        let expected = |name: &str| match name {
            "calico" => (Plugin, false, Gateway, true),
            "OVNKubernetes" => (Plugin, false, Plugin, true),
            "weave-net" => (Plugin, false, Gateway, false),
            "canal-flannel" | "cilium" | "flannel" | "generic" | "kindnet" | "OpenShiftSDN" => {
                (Gateway, true, Gateway, false)
            }
            name => panic!("what is promised with {name}?"),
        };
        for (name, _) in PLUGINS {
            for written in [name.to_owned(), name.to_uppercase(), name.to_lowercase()] {
                assert_eq!(of(&written), expected(name), "{written}");
            }
        }
        assert!(PROMISES.iter().all(|(name, _)| plugin(name) == PluginSupport::Served));
        assert_eq!((promise(""), promise("somebody-elses")), (OF_OTHERS, OF_OTHERS));
    }
}
