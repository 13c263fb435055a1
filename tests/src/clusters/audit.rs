//! What the accounts of a cluster set have asked of an API server: its audit log, which has nothing but them.

use anyhow::Context;
use serde_json::Value;

use super::cluster::Cluster;

/// A request that the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// `NAMESPACE:ACCOUNT`.
    pub account: String,
    /// The API group; empty for Kubernetes' core group, and for what is no resource.
    pub group: String,
    /// The resource, subresources as `pods/log`; empty for what is no resource.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// The namespace; empty for what is in none, and for a list of all.
    pub namespace: String,
    /// Whether the account did not have the right.
    pub is_forbidden: bool,
}

impl Cluster {
    /// Every request of an account of ours since the cluster is up.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let path = self.node(1).folder().join("log/audit.log");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        // The last line may be half written.
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(events.filter_map(|event| Request::of(&event)).collect())
    }
}

impl Request {
    fn of(event: &Value) -> Option<Self> {
        let account = event["user"]["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
        let object = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subresource = text(&object["subresource"]);
        let slash = if subresource.is_empty() { "" } else { "/" };
        Some(Self {
            account: account.to_owned(),
            group: text(&object["apiGroup"]),
            resource: format!("{}{slash}{subresource}", text(&object["resource"])),
            verb: text(&event["verb"]),
            namespace: text(&object["namespace"]),
            is_forbidden: event["annotations"]["authorization.k8s.io/decision"] == "forbid",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_the_log_says_who_asked_for_what_and_whether_it_was_forbidden() {
        let event = json!({"verb": "get", "user": {"username": "system:serviceaccount:ns:east"},
            "objectRef": {"resource": "pods", "subresource": "log", "namespace": "ns"},
            "annotations": {"authorization.k8s.io/decision": "forbid"}});

        let request = Request::of(&event).unwrap();

        assert_eq!((request.account.as_str(), request.resource.as_str()), ("ns:east", "pods/log"));
        assert!(request.is_forbidden && request.group.is_empty());
        assert!(Request::of(&json!({"user": {"username": "system:kube-proxy"}})).is_none());
    }
}
