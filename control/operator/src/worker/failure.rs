//! Why a part could not be carried out, in a word and a sentence.

use trieste_cloud::CloudError;
use trieste_control::steps::Outcome;
use trieste_deploy::DeployError;

use crate::order::{Order, Reason};
use crate::translate::FieldError;

use super::tools::THIS_CLUSTER;

/// Why a part could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The library says so.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// The cloud, or what it takes to ask it.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// The cloud takes longer than a pass may; the text has the step.
    #[error("{0}")]
    CloudLate(String),
    /// A field makes no sense.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// What is needed is not there.
    #[error("{message}")]
    Missing {
        /// One word.
        reason: &'static str,
        /// What is missing, and what to do.
        message: String,
    },
}

impl Failure {
    /// Returns it as conditions have it.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Field(error) => Reason { reason: "InvalidSpec", message: error.to_string() },
            Self::Missing { reason, message } => Reason { reason, message: message.clone() },
            Self::CloudLate(message) => Reason { reason: "CloudUnsettled", message: message.clone() },
            Self::Deploy(error) | Self::Cloud(CloudError::Cluster(error)) => {
                Reason { reason: word(error), message: text(error) }
            }
            Self::Cloud(error) => Reason { reason: cloud_word(error), message: cloud_text(error) },
        }
    }

    /// Returns it in the words of those who write the object that an order is about.
    pub(super) fn reason_for(&self, order: &Order) -> Reason {
        let Reason { reason, message } = self.reason();
        if !order.is_of_upstream() {
            return Reason { reason, message };
        }
        let translated =
            UPSTREAM_WORDS.iter().fold(message, |text, (ours, theirs)| text.replace(ours, theirs));
        Reason { reason, message: translated }
    }
}

/// Fields of a Fabric, and what they are in objects of upstream's kinds.
const UPSTREAM_WORDS: &[(&str, &str)] = &[
    ("the Fabric gives them up", "the object gives them up"),
    ("on the Fabric", "on the object"),
    ("joinConfig.brokerURL", "spec.brokerK8sApiServer"),
    ("joinConfig.cableDriver", "spec.cableDriver"),
    ("joinConfig.checkBrokerCertificate", "spec.brokerK8sInsecure"),
    ("joinConfig.clusterCIDR", "spec.clusterCIDR"),
    ("joinConfig.clusterID", "spec.clusterID"),
    ("joinConfig.globalnetClusterSize", "spec.globalCIDR"),
    ("joinConfig.nattPort", "spec.ceIPSecNATTPort"),
    ("joinConfig.serviceCIDR", "spec.serviceCIDR"),
    ("brokerConfig.clustersetIPCIDRRange", "spec.clustersetIPCIDRRange"),
    ("brokerConfig.globalnetCIDRRange", "spec.globalnetCIDRRange"),
];

fn word(error: &DeployError) -> &'static str {
    match error {
        DeployError::Api { code: Some(403), .. } => "Forbidden",
        DeployError::Api { code: None, .. } | DeployError::Unreachable { .. } => "ServerUnavailable",
        DeployError::Api { .. } => "ServerRefused",
        DeployError::Conflict { .. } => "FieldConflict",
        DeployError::Unmet(_) => "RequirementsNotMet",
        DeployError::NotInTime { .. } => "NotInTime",
        DeployError::BrokerInfo(_) => "BrokerInfoUnusable",
        DeployError::Refused { .. } => "Refused",
        _ => "Failed",
    }
}

fn cloud_word(error: &CloudError) -> &'static str {
    match error {
        CloudError::Api { code, .. } if code.is_empty() => "CloudUnreachable",
        CloudError::Api { .. } => "CloudRefused",
        CloudError::Denied(_) => "RightsMissing",
        CloudError::Credentials { .. } => "CredentialsMissing",
        CloudError::Refused { .. } => "Refused",
        CloudError::Unsettled { .. } => "CloudUnsettled",
        CloudError::Cluster(_) | _ => "Failed",
    }
}

/// Returns what is wrong in the cloud, with the service's own code, and what to do.
fn cloud_text(error: &CloudError) -> String {
    let (code, next) = match error {
        CloudError::Api { code, .. } if code.is_empty() => (
            "",
            "the operator's pod has to reach the cloud's API, by a proxy where HTTPS_PROXY names one"
                .to_owned(),
        ),
        CloudError::Api { code, .. } => (code.as_str(), "see to what the service answered".to_owned()),
        CloudError::Unsettled { .. } => {
            ("", "if it stays so, somebody else may be changing the same rules".to_owned())
        }
        other @ (CloudError::Denied(_)
        | CloudError::Credentials { .. }
        | CloudError::Refused { .. }
        | CloudError::Cluster(_)
        | _) => ("", other.next()),
    };
    let what = error.to_string();
    let code = if what.contains(code) { String::new() } else { format!(" [{code}]") };
    let text = format!("{what}{code} ({next}; it is tried again)");
    CLOUD_WORDS.iter().fold(text, |text, (command, resource)| text.replace(command, resource))
}

/// Flags of the command `trieste cloud`, and what the same is in a resource.
const CLOUD_WORDS: &[(&str, &str)] = &[
    (", then repeat the command", ""),
    // No field is for these.
    (", or --ocp-metadata with the installer's metadata.json", ""),
    (
        "give --vxlan-port 0",
        "prepare it with the command trieste cloud prepare instead, which takes 0 as the port of VXLAN",
    ),
    ("--vxlan-port", "the port of VXLAN"),
    ("--air-gapped", "cloudPrepareConfig.azure.airGapped"),
    ("--auth-file", "the key auth.json of cloudPrepareConfig.credentialsSecret"),
    ("--cloud-entry", "cloudPrepareConfig.rhos.cloudEntry"),
    ("--control-plane-security-group", "cloudPrepareConfig.aws.controlPlaneSecurityGroup"),
    ("--credentials", "cloudPrepareConfig.credentialsSecret"),
    ("--gateway-instance", "gatewayInstance"),
    ("--gateways", "gateways"),
    ("--ike-port", "joinConfig.ikePort"),
    ("--infra-id", "cloudPrepareConfig.infraID"),
    ("--load-balancer", "joinConfig.loadBalancerEnabled"),
    ("--nat-discovery-port", "joinConfig.natDiscoveryPort"),
    ("--natt-port", "joinConfig.nattPort"),
    ("--node-tags", "cloudPrepareConfig.gcp.nodeTags"),
    ("--ocp-metadata", "cloudPrepareConfig.infraID"),
    ("--profile", "cloudPrepareConfig.credentialsSecret"),
    ("--project-id", "projectID"),
    ("--public-subnet-name", "cloudPrepareConfig.gcp.publicSubnetName"),
    ("--region", "cloudPrepareConfig.region"),
    ("--sources", "cloudPrepareConfig.sources"),
    ("--subnet-names", "cloudPrepareConfig.aws.subnetNames"),
    ("--resource-group", "the key azure_resourcegroup of cloudPrepareConfig.credentialsSecret"),
    ("--vpc-name", "vpcName"),
    ("--worker-security-group", "cloudPrepareConfig.aws.workerSecurityGroup"),
];

/// What the library says to those who run commands, and what that is for those who write resources.
const WORDS: &[(&str, &str)] = &[
    (
        "repeat trieste uninstall: it goes on there. With --force it gives them up",
        "the operator goes on there. With the annotation trieste.io/force-removal=true on the Fabric it gives them up",
    ),
    (
        "--ipsec-psk-from",
        "the Secret submariner-broker-info, made of the broker's broker-info.subm (docs/operations/operator.md)",
    ),
    ("--active-gateways", "joinConfig.activeGateways"),
    ("--allow-remote-cidrs", "joinConfig.allowRemoteCIDRs"),
    ("--broker-url", "joinConfig.brokerURL"),
    ("--cable-driver", "joinConfig.cableDriver"),
    ("--check-broker-certificate", "joinConfig.checkBrokerCertificate"),
    ("--clustercidr", "joinConfig.clusterCIDR"),
    ("--clusterid", "joinConfig.clusterID"),
    ("--extra-cidrs", "joinConfig.extraCIDRs"),
    ("--globalnet-cidr-range", "brokerConfig.globalnetCIDRRange"),
    ("--globalnet-cluster-size", "joinConfig.globalnetClusterSize"),
    ("--ignore-requirements", "joinConfig.ignoreRequirements"),
    ("--missing-namespaces", "joinConfig.missingNamespaces"),
    ("--nat-discovery-port", "joinConfig.natDiscoveryPort"),
    ("--nattport", "joinConfig.nattPort"),
    ("--replace-psk", "joinConfig.replacePSK"),
    ("--servicecidr", "joinConfig.serviceCIDR"),
];

/// Returns what is wrong; of checks that failed, each with what to do, in the words of those who write resources.
fn text(error: &DeployError) -> String {
    WORDS.iter().fold(plain(error), |text, (command, resource)| text.replace(command, resource))
}

fn plain(error: &DeployError) -> String {
    let with_next =
        |text: &str, next: &str| if next.is_empty() { text.to_owned() } else { format!("{text} ({next})") };
    let DeployError::Unmet(findings) = error else { return with_next(&error.to_string(), &next(error)) };
    let failed = findings.iter().filter(|finding| finding.outcome == Outcome::Failure);
    failed.map(|finding| with_next(&finding.text, &finding.next)).collect::<Vec<_>>().join("; ")
}

/// Returns what to do. Where a newer operator hands out rights that its account was not given, Kubernetes refuses.
fn next(error: &DeployError) -> String {
    let is_own_right =
        matches!(error, DeployError::Api { server, code: Some(403), .. } if server == THIS_CLUSTER);
    if is_own_right {
        "the operator's account lacks the right: apply the operator.yaml of this version of the operator \
         (trieste manifests operator)"
            .to_owned()
    } else {
        error.next()
    }
}

#[cfg(test)]
mod tests {
    use trieste_deploy::preflight::Finding;

    use super::*;

    #[test]
    fn what_a_cloud_refuses_is_a_word_with_the_services_own_code_and_what_to_do() {
        let api = |code: &str, reason: &str| CloudError::Api {
            service: "EC2 in eu-west-1".to_owned(),
            operation: "creating a security group".to_owned(),
            status: None,
            code: code.to_owned(),
            reason: reason.to_owned(),
        };
        let denied = CloudError::Denied(vec!["ec2:CreateTags".to_owned()]);
        let credentials = CloudError::credentials("Secret n/aws has no key a", "add it");
        let unsettled =
            CloudError::Unsettled { service: "EC2".to_owned(), changes: vec!["open UDP 4500".to_owned()] };
        let refused =
            CloudError::refused("there is no VPC", "name it with --infra-id, then repeat the command");
        for (error, word, parts) in [
            (api("", "no route"), "CloudUnreachable", &["no route", "HTTPS_PROXY"][..]),
            (
                api("RulesPerGroup", "too many"),
                "CloudRefused",
                &["EC2 in eu-west-1: ", "too many", "[RulesPerGroup]"],
            ),
            (api("QuotaX", "QuotaX: too many"), "CloudRefused", &["group: QuotaX: too many (see"]),
            (denied, "RightsMissing", &["ec2:CreateTags", "docs/operations/cloud.md"]),
            (credentials, "CredentialsMissing", &["Secret n/aws has no key a (add it"]),
            (unsettled, "CloudUnsettled", &["open UDP 4500", "somebody else"]),
            (refused, "Refused", &["there is no VPC (name it with cloudPrepareConfig.infraID; it is tried"]),
        ] {
            let reason = Failure::from(error).reason();
            assert_eq!(reason.reason, word, "{}", reason.message);
            assert!(parts.iter().all(|part| reason.message.contains(part)), "{}", reason.message);
            assert!(!reason.message.contains("repeat the command"), "{}", reason.message);
        }
        let own = DeployError::Api {
            server: THIS_CLUSTER.to_owned(),
            doing: "changing Node a".to_owned(),
            code: Some(403),
            reason: "forbidden".to_owned(),
        };
        assert_eq!(Failure::from(CloudError::from(own)).reason().reason, "Forbidden");
    }

    #[test]
    fn no_flag_of_the_command_is_in_a_condition() {
        // All flags of `trieste cloud prepare` and `cleanup` that are about the cloud.
        for flag in [
            "air-gapped",
            "auth-file",
            "cloud-entry",
            "control-plane-security-group",
            "credentials",
            "gateway-instance",
            "gateways",
            "ike-port",
            "infra-id",
            "load-balancer",
            "nat-discovery-port",
            "natt-port",
            "node-tags",
            "ocp-metadata",
            "profile",
            "project-id",
            "public-subnet-name",
            "region",
            "resource-group",
            "sources",
            "subnet-names",
            "vpc-name",
            "vxlan-port",
            "worker-security-group",
        ] {
            let (what, next) =
                (format!("--{flag} is wrong"), format!("give --{flag} 0, or another --{flag}"));
            for error in
                [CloudError::refused(what.clone(), next.clone()), CloudError::credentials(what, next)]
            {
                let message = Failure::from(error).reason().message;
                assert!(!message.contains("--"), "{message}");
            }
        }
        let next = "name it with --node-tags; or, if the network lets everything pass, give --vxlan-port 0";
        let message = Failure::from(CloudError::refused("nodes have no tag", next)).reason().message;
        let wanted = "name it with cloudPrepareConfig.gcp.nodeTags; or, if the network lets everything pass, prepare it with the \
                      command trieste cloud prepare instead";
        assert!(message.contains(wanted), "{message}");
    }

    #[test]
    fn a_condition_has_every_check_that_failed_and_what_to_do() {
        let findings =
            vec![Finding::good("a"), Finding::bad("b is wrong", "do c"), Finding::bad("d is, too", "")];
        let reason = Failure::from(DeployError::Unmet(findings)).reason();
        assert_eq!(
            (reason.reason, reason.message.as_str()),
            ("RequirementsNotMet", "b is wrong (do c); d is, too")
        );
        let unreachable =
            DeployError::Api { server: "s".into(), doing: "d".into(), code: None, reason: "r".into() };
        assert_eq!(Failure::from(unreachable).reason().reason, "ServerUnavailable");
        let late = DeployError::Unreachable { what: "w".into(), next: "see --broker-url".into() };
        let late = Failure::from(late).reason();
        assert_eq!(
            (late.reason, late.message.as_str()),
            ("ServerUnavailable", "w (see joinConfig.brokerURL)")
        );
        let forbidden = |server: &str| {
            let (doing, reason) = ("applying the Role r".to_owned(), "forbidden".to_owned());
            let error = DeployError::Api { server: server.to_owned(), doing, code: Some(403), reason };
            Failure::from(error).reason()
        };
        let own = forbidden(THIS_CLUSTER);
        assert_eq!(own.reason, "Forbidden");
        assert!(own.message.contains("apply the operator.yaml of this version"), "{}", own.message);
        let of_broker = forbidden("the broker https://192.0.2.1:6443");
        assert!(!of_broker.message.contains("operator.yaml"), "{}", of_broker.message);
        let refused = DeployError::refused("the ID is taken", "choose another one with --clusterid");
        assert_eq!(
            Failure::from(refused).reason().message,
            "the ID is taken (choose another one with joinConfig.clusterID)"
        );
        let field = FieldError { field: "joinConfig.clusterID", reason: "is empty".to_owned() };
        assert_eq!(Failure::from(field).reason().message, "joinConfig.clusterID: is empty");
    }
}
