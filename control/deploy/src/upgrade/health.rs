//! Whether a member is well enough to be changed.

use serde_json::Value;

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{GATEWAY, ROUTE_AGENT};
use crate::pods::{counts, not_ready_with, status};
use crate::preflight::Finding;
use crate::server::Server;

/// Returns what is to be known of the pods on nodes before they are replaced.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub(super) async fn health(server: &Server, namespace: &str) -> Result<Vec<Finding>, DeployError> {
    let mut findings = Vec::new();
    for name in [ROUTE_AGENT, GATEWAY] {
        let place = ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, name);
        let set = server.find(&place).await?.unwrap_or_default();
        let not_ready = not_ready_with(server, namespace, name).await?.len() as u64;
        findings.extend(of_set(name, &set, not_ready));
    }
    Ok(findings)
}

fn of_set(name: &str, set: &Value, not_ready: u64) -> Vec<Finding> {
    let status = |field: &str| status(set, field);
    let (desired, ready, updated) =
        (status("desiredNumberScheduled"), status("numberReady"), status("updatedNumberScheduled"));
    let shown = format!("pods of {name} that are ready: {}", counts(set));
    let mut findings = Vec::new();
    if ready + not_ready >= desired {
        findings.push(Finding::good(format!("Pods of {name} that are ready: {}", counts(set))));
    } else if updated < desired || set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        // Of an upgrade that has stopped: this one goes on, or back.
        findings
            .push(Finding::suspect(format!("{shown}, and an earlier change has not come to its end"), ""));
    } else {
        let next = "trieste diagnose all names what is wrong; --ignore-requirements goes on all the same";
        findings.push(Finding::bad(shown, next));
    }
    if name == GATEWAY && desired == 1 {
        findings.push(Finding::suspect(
            "there is one gateway: traffic pauses for some seconds while its pod is replaced",
            "with the label submariner.io/gateway=true on a second node it does not",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trieste_control::steps::Outcome::{Failure, Success, Warning};

    use super::*;

    #[test]
    fn a_member_that_is_not_well_is_not_changed_unless_a_change_has_made_it_so() {
        let set = |desired: u64, ready: u64, updated: u64, strategy: &str| {
            json!({"spec": {"updateStrategy": {"type": strategy}}, "status": {"desiredNumberScheduled": desired,
                "numberReady": ready, "updatedNumberScheduled": updated}})
        };
        let found = |name: &str, set: &Value, not_ready: u64| -> Vec<_> {
            of_set(name, set, not_ready).into_iter().map(|finding| finding.outcome).collect()
        };
        assert_eq!(found(ROUTE_AGENT, &set(3, 3, 3, "RollingUpdate"), 0), [Success]);
        assert_eq!(found(ROUTE_AGENT, &set(3, 2, 3, "RollingUpdate"), 1), [Success], "a node is away");
        assert_eq!(found(ROUTE_AGENT, &set(3, 2, 3, "RollingUpdate"), 0), [Failure]);
        assert_eq!(found(ROUTE_AGENT, &set(3, 2, 1, "RollingUpdate"), 0), [Warning]);
        assert_eq!(found(GATEWAY, &set(2, 1, 2, "OnDelete"), 0), [Warning]);
        assert_eq!(found(GATEWAY, &set(1, 1, 1, "RollingUpdate"), 0), [Success, Warning]);
    }
}
