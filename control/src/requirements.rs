//! The Kubernetes and network plugin that this version needs, the same for `join` and `diagnose`.

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
    ("weave-net", PluginSupport::Served),
];

/// Returns the way in which a plugin is served, in any case of letters.
#[must_use]
pub fn plugin(name: &str) -> PluginSupport {
    let known = PLUGINS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map_or(PluginSupport::Unknown, |(_, support)| *support)
}

/// Plugins whose pods' addresses do not follow from what Kubernetes says of a node, so that they alone deliver there.
const OWN_ADDRESSING: [&str; 3] = [CALICO, "weave-net", OVN_KUBERNETES];

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

/// Says whether a plugin gives pods addresses that Kubernetes does not know by node. With several active gateways answers
/// may come by another one than the question went by, and are lost at kube-proxy's rule against half connections.
#[must_use]
pub fn has_own_addressing(name: &str) -> bool {
    OWN_ADDRESSING.iter().any(|known| known.eq_ignore_ascii_case(name))
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
        assert!(has_own_addressing("Calico") && !has_own_addressing("canal-flannel"));
        assert!(served_plugins().all(|name| plugin(name) == PluginSupport::Served));
    }
}
