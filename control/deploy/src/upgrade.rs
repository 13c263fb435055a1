//! Bringing a member to this version: the same choices, other programs.
//!
//! ```text
//!   prepare: read what is installed ──▶ check versions and health ──▶ join's plan        changes nothing
//!   join::execute: objects ──▶ route agents, some at a time ──▶ gateways, one by one ──▶ wait
//! ```
//!
//! It is a join that reads from the cluster what a user would give: no join file is needed, and the broker is asked with the
//! member's own token. Going back is the same command of the earlier version.

mod health;
mod member;

use std::time::Duration;

use trieste_control::api::Fabric;
use trieste_control::steps::Steps;

use crate::carried_out::carried_out;
use crate::connect::{BrokerLogin, connect};
use crate::error::DeployError;
use crate::join::{self, ClustersetIps, Earlier, Join, Plan};
use crate::object_ref::ObjectRef;
use crate::objects::MemberOptions;
use crate::objects::names::{BROKER_NAMESPACE, MEMBER_ROLE, VERSION_LABEL};
use crate::preflight::{self, Finding, conclude};
use crate::server::Server;
use crate::shares::Wish;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Upgrade {
    /// The member's namespace.
    pub namespace: String,
    /// Which image is to run; `None` for this version's, from the repository of the present one.
    pub image: Option<ImageChoice>,
    /// Whether requirements that are not met are doubts.
    pub ignore_requirements: bool,
    /// How long pods may take to come up, and each gateway to be replaced.
    pub limit: Duration,
}

/// An image that somebody has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageChoice {
    /// The whole reference.
    Reference(String),
    /// The tag, in the repository of the present image.
    Tag(String),
}

/// Finds out all that an upgrade needs, and checks it. Nothing is changed. Returns how the broker is reached, and what is going to
/// be done, for [`join::execute`].
///
/// # Errors
/// [`DeployError::Unmet`] with every check that failed; [`DeployError`] if nothing of ours is installed, or the cluster's server
/// does not answer.
pub async fn prepare(
    local: &Server,
    options: &Upgrade,
    steps: &mut dyn Steps,
) -> Result<(Server, Plan), DeployError> {
    steps.begin("Checking what is installed");
    let namespace = options.namespace.as_str();
    let Some(earlier) = join::earlier(local, namespace).await? else {
        return Err(DeployError::refused(
            format!("{} has no member in the namespace {namespace} that trieste has installed", local.name()),
            "trieste show versions names what is installed; trieste join makes the cluster a member",
        ));
    };
    let mut member = member::read(local, namespace, &earlier).await?;
    choose_image(&mut member, options.image.as_ref());
    let mut findings = of_operator(local).await?;
    findings.extend(image(&member));
    let health = health::health(local, namespace).await?;
    findings.extend(health.into_iter().map(|finding| finding.unless_ignored(options.ignore_requirements)));
    findings.extend(broker(local).await?);
    conclude(&findings, steps)?;

    let login = BrokerLogin {
        url: member.broker.api_server.clone(),
        ca: member.broker.ca.clone().unwrap_or_default(),
        token: member.broker.token.clone(),
        insecure: member.broker.insecure,
    };
    let server = connect(&login)?;
    let settled = join_options(options, member, &earlier);
    let plan =
        join::prepare_registered(local, &server, (&settled, Vec::new()), earlier.cable_driver(), steps)
            .await?;
    Ok((server, plan))
}

fn join_options(options: &Upgrade, member: MemberOptions, earlier: &Earlier) -> Join {
    Join {
        globalnet: !member.global_cidrs.is_empty(),
        member,
        given: earlier.networks(),
        kept: Vec::new(),
        replace_psk: false,
        share: Wish::default(),
        clusterset_ips: ClustersetIps::default(),
        gateways: 0,
        ignore_requirements: options.ignore_requirements,
        patience: options.limit,
    }
}

fn choose_image(member: &mut MemberOptions, choice: Option<&ImageChoice>) {
    let reference = match choice {
        None => return,
        Some(ImageChoice::Reference(reference)) => reference.clone(),
        Some(ImageChoice::Tag(tag)) => member.image.clone().with_version(tag).reference,
    };
    member.image.reference = reference;
}

/// Returns that the operator carries out what is wanted here: a command would change it below the hands of who wrote it.
async fn of_operator(local: &Server) -> Result<Vec<Finding>, DeployError> {
    let objects = carried_out(local, &[Fabric::MEMBER_FINALIZER]).await?;
    let next = "apply the operator.yaml of the new version: the operator upgrades the member in the same way";
    let finding =
        |object: &ObjectRef| Finding::bad(format!("trieste-operator carries out {object} here"), next);
    Ok(objects.iter().map(finding).collect())
}

/// Returns what is to be known of the image. Whether this command's version may follow the one that is installed is for join's plan.
fn image(member: &MemberOptions) -> Vec<Finding> {
    let (command, version) = (env!("CARGO_PKG_VERSION"), member.image.version());
    let mut findings = vec![Finding::good(format!("The image is to be {}", member.image.reference))];
    if preflight::is_other_minor(command, version) {
        findings.push(Finding::bad(
            format!("the image's version is {version}, and this command's is {command}"),
            "objects and settings come with the command: take the trieste of the image's version",
        ));
    }
    findings
}

/// Returns that this cluster is also the broker, and has objects of another version.
async fn broker(local: &Server) -> Result<Option<Finding>, DeployError> {
    let place = ObjectRef::namespaced("rbac.authorization.k8s.io/v1", "Role", BROKER_NAMESPACE, MEMBER_ROLE);
    let Some(role) = local.find(&place).await? else { return Ok(None) };
    let version = role["metadata"]["labels"][VERSION_LABEL].as_str().unwrap_or_default();
    let is_other = !version.is_empty() && version != env!("CARGO_PKG_VERSION");
    Ok(is_other.then(|| {
        Finding::suspect(
            format!("this cluster is the broker, too, and the broker's objects are of version {version}"),
            "trieste deploy-broker, with the flags of the first time, brings them up to date: best before its members",
        )
    }))
}

#[cfg(test)]
mod tests;
