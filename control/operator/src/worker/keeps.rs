//! What a removal leaves.

use trieste_control::api::OPERATOR_API_VERSION;
use trieste_deploy::ObjectRef;
use trieste_deploy::objects::names::{BROKER, BROKER_NAMESPACE, NAMESPACE, SERVICE_DISCOVERY, SUBMARINER};

use crate::order::Order;

/// Returns the objects that a removal does not remove: those that say what is wanted, which go by themselves.
pub(super) fn keeps(order: &Order) -> Vec<ObjectRef> {
    let all = [
        ("Broker", BROKER_NAMESPACE, BROKER),
        ("Submariner", NAMESPACE, SUBMARINER),
        ("ServiceDiscovery", NAMESPACE, SERVICE_DISCOVERY),
    ];
    let all =
        all.map(|(kind, namespace, name)| ObjectRef::namespaced(OPERATOR_API_VERSION, kind, namespace, name));
    all.into_iter().filter(|_| order.is_of_upstream()).collect()
}
