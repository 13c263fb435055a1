//! Calico's IPPools for remote networks: which there should be.
//!
//! Calico masquerades what pods send to addresses of no pool. A pool that is switched off gives nobody addresses; with
//! `natOutgoing: false` it keeps pods' addresses towards its network (behaviour §6.4, Calico's manual). They have upstream's
//! names and label, so that a cluster may move over and back. On IBM's ROKS the pool of the cluster's own pods has another mode.

mod controller;
mod pool_index;
mod roks;

use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Map, Value};
use tokio::sync::watch;
use trieste_control::api::{Kind, Object, ObjectMeta, label};
use trieste_control::remote_pool::fields;
use trieste_control::runner::{Fence, Handle, Limits};
use trieste_control::store::Store;

use crate::status::{self, Status, Wish};

pub use controller::{NAME, PoolsController};

/// Changes come in bursts, of which each pool is written once.
const LIMITS: Limits = Limits { settle: Duration::from_millis(100), ..Limits::DEFAULT };

/// Starts to keep the pools. `namespace` is that of the GatewayRoute objects; how far it is goes to `sender`.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(
    store: S,
    namespace: &str,
    wish: Wish,
    fence: Fence,
    sender: watch::Sender<Status>,
) -> Handle {
    status::spawn(PoolsController::new(namespace, wish), store, fence, LIMITS, sender)
}

/// Returns `true` if a pool is for a remote network, whoever made it.
fn is_ours(pool: &Object) -> bool {
    pool.metadata.labels.get(label::REMOTE_POOL).is_some_and(|value| value == "true")
}

/// Returns a new pool.
fn pool(name: &str, network: IpNet) -> Object {
    let mut metadata = ObjectMeta::new("", name);
    metadata.labels.insert(label::REMOTE_POOL.to_owned(), "true".to_owned());
    let mut pool = Object::new(Kind::IpPool, metadata);
    pool.body.insert("spec".to_owned(), Value::Object(spec(network)));
    pool
}

fn spec(network: IpNet) -> Map<String, Value> {
    fields(network).into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

/// Returns a pool as it should be; `None` if it is.
fn corrected(found: &Object, network: IpNet) -> Option<Object> {
    let wanted = spec(network);
    let there = found.body.get("spec").and_then(Value::as_object);
    if there.is_some_and(|there| wanted.iter().all(|(field, value)| there.get(field) == Some(value))) {
        return None;
    }
    let mut fields = there.cloned().unwrap_or_default();
    fields.extend(wanted);
    let mut object = found.clone();
    object.body.insert("spec".to_owned(), Value::Object(fields));
    Some(object)
}

/// Returns a pool's network, if it can be read.
fn network(pool: &Object) -> Option<IpNet> {
    let text = pool.body.get("spec")?.get("cidr")?.as_str()?;
    text.parse::<IpNet>().ok().map(|network| network.trunc())
}

/// Returns `true` if Calico masquerades what leaves a pool's pods for addresses of no pool.
fn is_masquerading(pool: &Object) -> bool {
    pool.body.get("spec").and_then(|spec| spec.get("natOutgoing")) == Some(&Value::Bool(true))
}
