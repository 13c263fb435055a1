//! Errors of stores, with what to do.

use anyhow::anyhow;
use trieste_control::api::Kind;
use trieste_control::store::{Location, StoreError};

/// Says why a store does not answer, and what to do. The error's own text names its cause already.
pub(super) fn explain(error: &StoreError, kind: Kind, location: &Location, namespace: &str) -> anyhow::Error {
    let what_to_do = match (location, error) {
        (Location::Dir(_), _) => "does the path exist, and may you read it?".to_owned(),
        (_, StoreError::Forbidden { .. }) => format!(
            "this command needs to list {} of {} in namespace {namespace}: ask for a role that allows it, or take \
             another context with --store kube:KUBECONFIG#CONTEXT",
            kind.plural(),
            kind.api_version(),
        ),
        _ => "is the API server up, and are kubeconfig, context (kube:KUBECONFIG#CONTEXT) and namespace \
              (--namespace) the right ones?"
            .to_owned(),
    };
    anyhow!("{location}: {error}; {what_to_do}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(location: &str, error: &StoreError) -> String {
        let location: Location = location.parse().unwrap();
        explain(error, Kind::Gateway, &location, "submariner-operator").to_string()
    }

    fn cause(kind: std::io::ErrorKind, text: &str) -> std::io::Error {
        std::io::Error::new(kind, text)
    }

    #[test]
    fn who_may_not_is_told_which_right_is_missing_and_the_cause_once() {
        let source = cause(std::io::ErrorKind::PermissionDenied, "it does not allow this: no role");
        let error = StoreError::Forbidden { operation: "list gateways at https://k:6443".to_owned(), source };
        assert_eq!(
            said("kube:/k#c", &error),
            "kube:/k#c: may not list gateways at https://k:6443: it does not allow this: no role; this command needs \
             to list gateways of submariner.io/v1 in namespace submariner-operator: ask for a role that allows it, or \
             take another context with --store kube:KUBECONFIG#CONTEXT"
        );
    }

    #[test]
    fn a_server_and_a_directory_that_are_away_are_told_apart() {
        let away = |text| StoreError::Unavailable {
            operation: "list gateways".to_owned(),
            source: cause(std::io::ErrorKind::ConnectionRefused, text),
        };
        assert!(said("kube:", &away("refused")).contains("refused; is the API server up"));
        assert!(said("dir:/x", &away("gone")).contains("gone; does the path exist"));
    }
}
