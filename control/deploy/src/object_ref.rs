//! What names an object of any kind, and where it is on an API server.

use std::fmt;

use serde_json::Value;

/// What names an object: version, kind, namespace (if its kind has one) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Group and version, as in manifests: `v1`, `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; `None` for kinds that have none.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// An object in a namespace.
    pub fn namespaced(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::cluster_wide(api_version, kind, name) }
    }

    /// An object of a kind without namespaces.
    pub fn cluster_wide(api_version: &str, kind: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }

    /// The place of an object that says everything itself; `None` if it lacks version, kind or name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Some(Self {
            api_version: text(&object["apiVersion"])?,
            kind: text(&object["kind"])?,
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"])?,
        })
    }

    /// The kind's group; empty for Kubernetes' oldest kinds.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The object's path on an API server.
    pub fn path(&self) -> String {
        format!("{}/{}", collection(&self.api_version, &self.kind, self.namespace.as_deref()), self.name)
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The path of all objects of a kind: in one namespace, or everywhere.
pub(crate) fn collection(api_version: &str, kind: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let namespace = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    format!("{root}/{api_version}{namespace}/{}", plural(kind))
}

/// The name of a kind's collection. Kubernetes' names follow English, but for one.
pub(crate) fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let ends = |ending| kind.ends_with(ending);
    if kind == "endpoints" {
        return kind;
    }
    if ends("s") {
        return format!("{kind}es");
    }
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_found_by_what_it_says_of_itself() {
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "n", "name": "d"}});
        let place = ObjectRef::of(&set).unwrap();
        assert_eq!(place.path(), "/apis/apps/v1/namespaces/n/daemonsets/d");
        assert_eq!((place.group(), place.to_string().as_str()), ("apps", "DaemonSet n/d"));
        let node = ObjectRef::cluster_wide("v1", "Node", "w1");
        assert_eq!((node.path().as_str(), node.group()), ("/api/v1/nodes/w1", ""));
        assert_eq!(ObjectRef::of(&json!({"kind": "Node", "metadata": {"name": ""}})), None);
    }

    #[test]
    fn plurals_are_those_of_the_kinds_that_we_use() {
        for (kind, expected) in [
            ("Gateway", "gateways"),
            ("Endpoint", "endpoints"),
            ("Endpoints", "endpoints"),
            ("Ingress", "ingresses"),
            ("ServiceDiscovery", "servicediscoveries"),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ClusterGlobalEgressIP", "clusterglobalegressips"),
            ("ServiceCIDR", "servicecidrs"),
            ("CiliumPodIPPool", "ciliumpodippools"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
