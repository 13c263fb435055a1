//! A member: all of its objects, in the order in which they are applied.

use super::{Manifest, MemberOptions};
use super::{crds, custom, gateway, namespaces, rbac, routeagent, secrets, services};

/// Every object of a member, in the order in which they are applied: what others refer to comes first.
pub fn member(options: &MemberOptions) -> Vec<Manifest> {
    let namespace = options.namespace.as_str();
    let mut manifests = vec![namespaces::member(namespace)];
    manifests.extend(crds::definitions());
    manifests.extend(rbac::member(namespace));
    manifests.extend(secrets::member(options));
    manifests.push(custom::submariner_resource(options));
    manifests.push(gateway::daemon_set(options));
    manifests.push(routeagent::daemon_set(options));
    manifests.extend(services::member(options));
    manifests
}
