//! IBM's ROKS: there Calico's default pool has to put packets into IP in IP always (upstream's finding). Its mode, and back. Pure.
//!
//! As upstream does it, with its names (behaviour §6.4): a cluster is one of ROKS if the gateways' Service has the annotation of IBM's
//! load balancers. The mode before is kept at the pool until an uninstallation.

use serde_json::{Map, Value, json};
use trieste_control::api::Object;

/// Calico's pool of pods' IPv4 addresses.
pub(super) const DEFAULT_POOL: &str = "default-ipv4-ippool";
/// The Service of type LoadBalancer that leads to the active gateway.
pub(super) const GATEWAY_SERVICE: &str = "submariner-gateway";
/// IBM's annotation of such Services: whether the address is `public` or `private`.
const IBM_ADDRESS_TYPE: &str = "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type";
/// The label of the pool while its mode is ours.
const MANAGED: &str = "submariner-managed";
/// The annotation with its mode before; empty if it had none.
const PREVIOUS_MODE: &str = "submariner-prev-ipipmode";
/// The label of pools that somebody else keeps, and who that is where Calico is installed by its operator.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const TIGERA_OPERATOR: &str = "tigera-operator";
/// The field of its specification.
const MODE: &str = "ipipMode";
/// What it is on ROKS.
const ALWAYS: &str = "Always";
/// All that it may be, without the empty one that means the last of these.
const MODES: [&str; 3] = [ALWAYS, "CrossSubnet", "Never"];

/// Returns `true` if a Service of the gateways is one of IBM's load balancers.
pub(super) fn is_of_ibm(service: &Object) -> bool {
    let kind = service.metadata.annotations.get(IBM_ADDRESS_TYPE);
    service.metadata.name == GATEWAY_SERVICE && kind.is_some_and(|kind| !kind.is_empty())
}

/// Returns `true` if the mode of a pool is ours.
pub(super) fn is_managed(pool: &Object) -> bool {
    let metadata = &pool.metadata;
    let has_mark = metadata.labels.get(MANAGED).is_some_and(|value| value == "true")
        || metadata.annotations.contains_key(PREVIOUS_MODE);
    metadata.name == DEFAULT_POOL && has_mark
}

/// Returns the pool with the mode that it needs on ROKS; `None` if it has that.
///
/// # Errors
/// For people, if Calico would not take it.
pub(super) fn managed(pool: &Object) -> Result<Option<Object>, String> {
    let Some(spec) = spec_of(pool) else { return Ok(None) };
    let before = text(spec, MODE);
    if before == ALWAYS {
        return Ok(None);
    }
    if pool.metadata.labels.get(MANAGED_BY).is_some_and(|owner| owner == TIGERA_OPERATOR) {
        return Err(format!(
            "its ipipMode is {before:?}, while on IBM's ROKS packets of remote clusters need {ALWAYS}, and {TIGERA_OPERATOR} \
             would take back what is written there: set the encapsulation of this pool to IPIP in the Installation \
             `default` (spec.calicoNetwork.ipPools) if they do not reach pods of other nodes than the gateway's"
        ));
    }
    let vxlan = text(spec, "vxlanMode");
    if !["", "Never"].contains(&vxlan) {
        return Err(format!(
            "its vxlanMode is {vxlan}, beside which Calico takes no other mode, while on IBM's ROKS packets of remote clusters need \
             ipipMode {ALWAYS}: set its vxlanMode to Never if they do not reach pods of other nodes than the gateway's"
        ));
    }
    let mut wanted = pool.clone();
    wanted.metadata.labels.insert(MANAGED.to_owned(), "true".to_owned());
    wanted.metadata.annotations.insert(PREVIOUS_MODE.to_owned(), before.to_owned());
    set_mode(&mut wanted, Some(ALWAYS));
    Ok(Some(wanted))
}

/// Returns the pool as it was before its mode was ours; `None` if that is not so. A mode that somebody has set since stays.
pub(super) fn restored(pool: &Object) -> Option<Object> {
    if !is_managed(pool) {
        return None;
    }
    let mut wanted = pool.clone();
    wanted.metadata.labels.remove(MANAGED);
    let before = wanted.metadata.annotations.remove(PREVIOUS_MODE);
    let is_ours = spec_of(pool).is_some_and(|spec| text(spec, MODE) == ALWAYS);
    match before.as_deref().filter(|_| is_ours) {
        Some("") => set_mode(&mut wanted, None),
        Some(mode) if MODES.contains(&mode) => set_mode(&mut wanted, Some(mode)),
        Some(_) | None => {}
    }
    Some(wanted)
}

fn spec_of(pool: &Object) -> Option<&Map<String, Value>> {
    pool.body.get("spec").and_then(Value::as_object)
}

fn text<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn set_mode(pool: &mut Object, mode: Option<&str>) {
    let Some(spec) = pool.body.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match mode {
        Some(mode) => drop(spec.insert(MODE.to_owned(), json!(mode))),
        None => drop(spec.remove(MODE)),
    }
}
