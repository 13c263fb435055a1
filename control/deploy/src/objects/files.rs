//! The objects as files, for those who apply YAML with their own tools.
//!
//! The files in `control/deploy/manifests/` are those of [`example`]; a test says when they are stale. Secrets are in none
//! of them: they are made beside, as each file says.

use super::names::{BROKER_SECRET, OVN_TLS_SECRET, PSK_SECRET, cluster_token};
use super::{
    BrokerAccess, BrokerOptions, Manifest, MemberOptions, RangeError, Secret, broker, broker_member,
    definitions, member, operator, service_export, service_import, to_yaml,
};

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its text: YAML documents, with comments on what has to be done beside.
    pub text: String,
}

/// A member whose values show where others belong: addresses and names that are kept for documentation.
pub fn example() -> MemberOptions {
    let access = BrokerAccess::new("broker.example.com:6443", None, Secret::default());
    let mut options = MemberOptions::new("example", access, Secret::default());
    options.cluster_cidrs = ["192.0.2.0/25".parse().expect("a network of documentation")].into();
    options.service_discovery = true;
    options.service_cidrs = ["192.0.2.128/25".parse().expect("a network of documentation")].into();
    options
}

/// Definitions, broker, what a broker keeps for this member, and the member, in the order in which they are applied.
///
/// # Errors
/// A range or size of the broker that cannot be given out.
pub fn files(broker_options: &BrokerOptions, options: &MemberOptions) -> Result<Vec<File>, RangeError> {
    let (id, namespace) = (&options.cluster_id, &broker_options.namespace);
    let shown = |manifests: Vec<Manifest>| {
        let is_beside = |manifest: &Manifest| {
            manifest.kind() == "CustomResourceDefinition"
                || (manifest.is_secret() && manifest.as_value().get("data").is_some())
        };
        let shown: Vec<Manifest> = manifests.into_iter().filter(|manifest| !is_beside(manifest)).collect();
        to_yaml(&shown)
    };
    let file = |name, head: String, body: String| File { name, text: format!("{}{body}", comment(&head)) };
    Ok(vec![
        file(
            "crds.yaml",
            "The definitions, for the broker's cluster and for every member's. Apply them first.".to_owned(),
            to_yaml(&definitions()),
        ),
        file(
            "service-crds.yaml",
            "The definitions of exported and imported services, for every cluster in which nobody else has made them: others \
             of the same\nname are to stay."
                .to_owned(),
            to_yaml(&[service_export(), service_import()]),
        ),
        file(
            "broker.yaml",
            "The broker, for one cluster of the set. Apply crds.yaml before.".to_owned(),
            shown(broker(broker_options)?),
        ),
        file(
            "broker-member.yaml",
            format!(
                "What the broker keeps for the member {id}, for the broker's cluster. The control plane writes a token \
                 into the Secret\n{token}, which the member's Secret {BROKER_SECRET} holds a copy of.",
                token = cluster_token(id)
            ),
            shown(broker_member(id, namespace)),
        ),
        file("member.yaml", member_head(options), shown(member(options))),
        file("operator.yaml", operator_head(), to_yaml(&operator(&options.image))),
    ])
}

fn operator_head() -> String {
    format!(
        "The operator, for every cluster that Fabric resources are to make a broker or a member (docs/operations/operator.md). The \
         namespaces of\nmember and broker are among its objects: its right to read Secrets is in these and in {} alone.",
        super::names::OPERATOR
    )
}

fn member_head(options: &MemberOptions) -> String {
    let MemberOptions { namespace, cluster_id, .. } = options;
    let (sets, ovn) = match options.has_ovn() {
        true => ("all DaemonSets", ovn_head(namespace)),
        false => ("both DaemonSets", String::new()),
    };
    format!(
        "The member {cluster_id}. Apply crds.yaml before. Values that are each cluster's own are in the Submariner object \
         and in the\nenvironment of {sets}: cluster ID, CIDRs, the broker's address. The two Secrets are not \
         here. Make them of the token\nand the authority that broker-member.yaml leads to, and of a key that all members \
         share (head -c 48 /dev/urandom >psk):\n\
         kubectl -n {namespace} create secret generic {BROKER_SECRET} --from-file=token --from-file=ca.crt \
         --from-literal=namespace={broker}\n\
         kubectl -n {namespace} create secret generic {PSK_SECRET} --from-file=psk\n\
         Gateways run where nodes are labelled so: kubectl label node NODE submariner.io/gateway=true\n\
         Pods find exported services by name once the cluster's DNS forwards to the Service {dns}\n\
         (docs/operations/dns.md says how); service-crds.yaml is to be there before.{ovn}",
        dns = super::names::DISCOVERY_DNS,
        broker = options.broker.namespace
    )
}

fn ovn_head(namespace: &str) -> String {
    format!(
        "\nWorkers look for OVN's northbound database at unix sockets of their nodes, unless TRIESTE_OVN_NB says where it is. \
         For one\nthat is reached over TLS:\n\
         kubectl -n {namespace} create secret generic {OVN_TLS_SECRET} --from-file=tls.key --from-file=tls.crt \
         --from-file=ca.crt"
    )
}

fn comment(head: &str) -> String {
    let made = "Generated by `trieste manifests`; do not edit. To make the example anew:\n\
                cargo run -p trieste-cli -- manifests --directory control/deploy/manifests";
    head.lines().chain(made.lines()).map(|line| format!("# {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_files_are_what_the_objects_say() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        let files = files(&BrokerOptions::default(), &example()).unwrap();
        for file in &files {
            let found = std::fs::read_to_string(directory.join(file.name)).unwrap_or_default();
            assert!(
                found == file.text,
                "control/deploy/manifests/{} is stale. Make it anew from the repository's root with:\n\
                 cargo run -p trieste-cli -- manifests --directory control/deploy/manifests",
                file.name
            );
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), files.len(), "files that nobody makes");
    }

    #[test]
    fn plugin_ovn_member_is_what_the_objects_say() {
        let mut options = example();
        options.network_plugin = "OVNKubernetes".to_owned();
        let files = files(&BrokerOptions::default(), &options).unwrap();
        let made = files.iter().find(|file| file.name == "member.yaml").unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/member-ovn.yaml");
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == made.text,
            "control/deploy/tests/data/member-ovn.yaml is stale. Make it anew from the repository's root with:\n\
             cargo run -p trieste-cli -- manifests member --network-plugin OVNKubernetes \
             >control/deploy/tests/data/member-ovn.yaml"
        );
    }

    #[test]
    fn no_file_holds_a_secret() {
        let mut options = example();
        options.psk = Secret::new(*b"hush hush");
        options.broker.token = Secret::new(*b"hush hush");
        let files = files(&BrokerOptions::default(), &options).unwrap();
        for file in files {
            assert!(!file.text.contains(&options.psk.to_base64()), "{}", file.name);
            let documents = file.text.matches("\n---\n").count();
            let least = if file.name == "service-crds.yaml" { 2 } else { 3 };
            assert!(documents >= least, "{} has {documents} objects", file.name);
        }
    }
}
