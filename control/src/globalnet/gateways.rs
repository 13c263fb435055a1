//! Gateways: the address under which a health check reaches this one.

use super::ledger::Ledger;
use super::state::Problem;
use super::writing::Writing;
use crate::api::{Object, ObjectKey, annotation};
use crate::runner::Write;

/// Plans the write of this gateway's own Gateway object. Others' are theirs; their addresses stay reserved.
pub(super) fn own(gateway: &Object, ledger: &mut Ledger, writing: &mut Writing) {
    let key = gateway.key();
    let has_any = gateway.metadata.annotations.contains_key(annotation::GLOBAL_IP);
    let annotate = |key: ObjectKey, value| Write::Annotate { key, annotation: annotation::GLOBAL_IP, value };
    if ledger.broken(&key).is_some() {
        writing.push(annotate(key, None));
    } else if !has_any {
        match ledger.exchange(&key, 1) {
            Ok(addresses) => {
                let value = addresses.first().map(ToString::to_string);
                writing.push(annotate(key, value));
            }
            Err(error) => writing.problem(Problem {
                name: "GatewayHasNoGlobalIp",
                subject: key.to_string(),
                message: format!(
                    "Error allocating a global IP from the pool: {error}; other clusters cannot check this \
                     gateway's health"
                ),
            }),
        }
    }
}
