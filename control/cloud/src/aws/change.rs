//! Changes in EC2: in words, and as requests.

use std::fmt;

use super::names;
use super::query::Parameters;
use super::state::{Machine, Permission, Source};
use crate::cluster::NodeChange;
use crate::provider::Change;

/// EC2's number of ESP (RFC 4303).
pub(super) const ESP: &str = "50";

/// A group that may be yet to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupRef {
    /// One that is there: its ID.
    Id(String),
    /// The gateways', which an earlier change of the plan makes.
    New,
}

/// A change in EC2, or of nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    CreateGroup { vpc: String, name: String },
    Authorize { group: GroupRef, name: String, permission: Permission },
    Revoke { group: String, name: String, permission: Permission },
    DeleteGroup { id: String, name: String },
    Tag { what: String, id: String, tags: Vec<(String, String)> },
    Untag { what: String, id: String, tags: Vec<(String, Option<String>)> },
    Attach { machine: Machine, groups: Vec<GroupRef>, is_added: bool },
    CheckSource { machine: Machine, is_on: bool },
    Node(NodeChange),
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub struct AwsChange(pub(super) Step);

impl fmt::Display for AwsChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |machine: &Machine| format!("{} (node {})", machine.id, machine.node);
        match &self.0 {
            Step::CreateGroup { vpc, name } => write!(f, "create security group {name} in {vpc}"),
            Step::Authorize { name, permission, .. } => {
                write!(f, "let {permission} into security group {name}")
            }
            Step::Revoke { name, permission, .. } => {
                write!(f, "let {permission} into security group {name} no longer")
            }
            Step::DeleteGroup { id, name } => write!(f, "delete security group {name} ({id})"),
            Step::Tag { what, id, tags } => {
                write!(f, "tag {what} {id} with {}", joined(tags.iter().map(|(key, _)| key.as_str())))
            }
            Step::Untag { what, id, tags } => {
                write!(
                    f,
                    "remove from {what} {id} the tags {}",
                    joined(tags.iter().map(|(key, _)| key.as_str()))
                )
            }
            Step::Attach { machine, is_added: true, .. } => {
                write!(f, "put instance {} into the gateways' security group", of(machine))
            }
            Step::Attach { machine, .. } => {
                write!(f, "take instance {} out of the gateways' security group", of(machine))
            }
            Step::CheckSource { machine, is_on } => {
                let word = if *is_on { "on" } else { "off" };
                write!(f, "switch the source/destination check of instance {} {word}", of(machine))
            }
            Step::Node(change) => change.fmt(f),
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.protocol.as_str(), self.ports) {
            (ESP, _) => f.write_str("ESP")?,
            (protocol, Some((from, to))) if from == to => write!(f, "{} {from}", protocol.to_uppercase())?,
            (protocol, Some((from, to))) => write!(f, "{} {from}-{to}", protocol.to_uppercase())?,
            (protocol, None) => write!(f, "protocol {protocol}")?,
        }
        match &self.source {
            Source::Group(id) => write!(f, " from security group {id}"),
            Source::Network(network) => write!(f, " from {network}"),
        }
    }
}

impl Change for AwsChange {
    fn right(&self) -> Option<String> {
        let (action, _) = requests(&self.0, Some("")).into_iter().next()?;
        Some(match &self.0 {
            Step::Tag { what, .. } | Step::Untag { what, .. } => format!("ec2:{action} of {what}s"),
            Step::CreateGroup { .. }
            | Step::Authorize { .. }
            | Step::Revoke { .. }
            | Step::DeleteGroup { .. }
            | Step::Attach { .. }
            | Step::CheckSource { .. }
            | Step::Node(_) => format!("ec2:{action}"),
        })
    }

    fn waits(&self) -> bool {
        match &self.0 {
            Step::Authorize { group, .. } => *group == GroupRef::New,
            Step::Attach { groups, .. } => groups.contains(&GroupRef::New),
            Step::CreateGroup { .. }
            | Step::Revoke { .. }
            | Step::DeleteGroup { .. }
            | Step::Tag { .. }
            | Step::Untag { .. }
            | Step::CheckSource { .. }
            | Step::Node(_) => false,
        }
    }
}

/// Returns `true` if a refusal means that what was to be done is so already.
pub(super) fn is_done(action: &str, code: &str) -> bool {
    matches!(
        (action, code),
        ("CreateSecurityGroup", "InvalidGroup.Duplicate")
            | ("AuthorizeSecurityGroupIngress", "InvalidPermission.Duplicate")
            | ("RevokeSecurityGroupIngress", "InvalidPermission.NotFound" | "InvalidGroup.NotFound")
            | ("DeleteSecurityGroup", "InvalidGroup.NotFound")
    )
}

/// Returns the actions that make a change, with their parameters; none for what is not in EC2. With `stand_in` also those on a group
/// that is yet to be made, for which it stands.
pub(super) fn requests(step: &Step, stand_in: Option<&str>) -> Vec<(&'static str, Parameters)> {
    let one = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    match step {
        Step::CreateGroup { vpc, name } => {
            let mut parameters = vec![
                one("GroupName", name),
                one("GroupDescription", names::GROUP),
                one("VpcId", vpc),
                one("TagSpecification.1.ResourceType", "security-group"),
            ];
            parameters.extend([
                one("TagSpecification.1.Tag.1.Key", "Name"),
                one("TagSpecification.1.Tag.1.Value", name),
            ]);
            vec![("CreateSecurityGroup", parameters)]
        }
        Step::Authorize { group: GroupRef::Id(group), permission, .. } => {
            vec![("AuthorizeSecurityGroupIngress", ingress(group, permission))]
        }
        Step::Revoke { group, permission, .. } => {
            vec![("RevokeSecurityGroupIngress", ingress(group, permission))]
        }
        Step::DeleteGroup { id, .. } => vec![("DeleteSecurityGroup", vec![one("GroupId", id)])],
        Step::Tag { id, tags, .. } => {
            vec![(
                "CreateTags",
                tagged(id, tags.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())))),
            )]
        }
        Step::Untag { id, tags, .. } => {
            vec![("DeleteTags", tagged(id, tags.iter().map(|(key, value)| (key.as_str(), value.as_deref()))))]
        }
        Step::Attach { machine, groups, .. } => {
            let ids = groups.iter().filter_map(|group| match group {
                GroupRef::Id(id) => Some(id),
                GroupRef::New => None,
            });
            let mut parameters = vec![one("NetworkInterfaceId", &machine.interface)];
            parameters
                .extend(ids.enumerate().map(|(at, id)| one(&format!("SecurityGroupId.{}", at + 1), id)));
            vec![("ModifyNetworkInterfaceAttribute", parameters)]
        }
        Step::CheckSource { machine, is_on } => {
            let value = if *is_on { "true" } else { "false" };
            let parameters =
                vec![one("NetworkInterfaceId", &machine.interface), one("SourceDestCheck.Value", value)];
            vec![("ModifyNetworkInterfaceAttribute", parameters)]
        }
        Step::Authorize { group: GroupRef::New, permission, .. } => {
            let of = |group| ("AuthorizeSecurityGroupIngress", ingress(group, permission));
            stand_in.map(of).into_iter().collect()
        }
        Step::Node(_) => Vec::new(),
    }
}

fn ingress(group: &str, permission: &Permission) -> Parameters {
    let of = |name: &str, value: &str| (format!("IpPermissions.1.{name}"), value.to_owned());
    let mut parameters =
        vec![("GroupId".to_owned(), group.to_owned()), of("IpProtocol", &permission.protocol)];
    // Upstream's tool sends 0 for protocols without ports.
    let (from, to) = permission.ports.unwrap_or_default();
    parameters.extend([of("FromPort", &from.to_string()), of("ToPort", &to.to_string())]);
    let (list, key, value) = match &permission.source {
        Source::Group(id) => ("Groups.1", "GroupId", id.clone()),
        Source::Network(network @ ipnet::IpNet::V4(_)) => ("IpRanges.1", "CidrIp", network.to_string()),
        Source::Network(network @ ipnet::IpNet::V6(_)) => ("Ipv6Ranges.1", "CidrIpv6", network.to_string()),
    };
    parameters.push(of(&format!("{list}.{key}"), &value));
    if !permission.description.is_empty() {
        parameters.push(of(&format!("{list}.Description"), &permission.description));
    }
    parameters
}

fn tagged<'t>(id: &str, tags: impl Iterator<Item = (&'t str, Option<&'t str>)>) -> Parameters {
    let mut parameters = vec![("ResourceId.1".to_owned(), id.to_owned())];
    for (at, (key, value)) in tags.enumerate() {
        parameters.push((format!("Tag.{}.Key", at + 1), key.to_owned()));
        parameters.extend(value.map(|value| (format!("Tag.{}.Value", at + 1), value.to_owned())));
    }
    parameters
}

fn joined<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}
