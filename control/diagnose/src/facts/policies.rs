//! Network policies that choose a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::ListParams;

use super::{FactError, Found, Source, within};
use crate::path::evidence::PolicyFacts;

impl Source {
    /// Network policies that choose a pod.
    ///
    /// # Errors
    /// As [`Source::list`].
    pub(crate) async fn policies(&self, pod: &Pod) -> Result<Vec<PolicyFacts>, FactError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let policies = Api::<NetworkPolicy>::namespaced(self.client.clone(), namespace);
        let found = within("network policies", policies.list(&ListParams::default())).await?;
        let Found::There(list) = found else { return Ok(Vec::new()) };
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        Ok(list.items.iter().filter_map(|policy| policy_facts(policy, namespace, &labels)).collect())
    }
}

fn policy_facts(
    policy: &NetworkPolicy,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<PolicyFacts> {
    let spec = policy.spec.as_ref()?;
    let chooses = spec.pod_selector.as_ref().is_none_or(|selector| selects(selector, labels));
    chooses.then_some(())?;
    let types = spec.policy_types.as_deref().unwrap_or_default();
    let rules = |word: &str| types.iter().any(|each| each == word);
    Some(PolicyFacts {
        name: format!("{namespace}/{}", policy.metadata.name.as_deref().unwrap_or_default()),
        ingress: types.is_empty() || rules("Ingress"),
        egress: rules("Egress") || (types.is_empty() && spec.egress.is_some()),
    })
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let wanted = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    wanted
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = labels.get(&expression.key);
            let is_in =
                value.is_some_and(|value| expression.values.iter().flatten().any(|each| each == value));
            match expression.operator.as_str() {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_that_chooses_the_pod_is_found_with_its_directions() {
        let policy: NetworkPolicy = serde_json::from_value(json!({"metadata": {"name": "deny"}, "spec": {
            "podSelector": {"matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]},
            "policyTypes": ["Ingress", "Egress"]}}))
        .unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let found = policy_facts(&policy, "shop", &labels(&[("app", "web")])).unwrap();
        assert_eq!((found.name.as_str(), found.ingress, found.egress), ("shop/deny", true, true));
        assert_eq!(policy_facts(&policy, "shop", &labels(&[("app", "web"), ("tier", "db")])), None);
        assert_eq!(policy_facts(&policy, "shop", &labels(&[])), None);
    }
}
