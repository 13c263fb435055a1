//! The part that prepares the cluster's cloud.
//!
//! First it is found out how: the credentials are there, and name a cloud that can be asked. That is reported, and the object's status
//! has it before anything is done in the cloud, so that what may be there is known whatever becomes of the spec. The cloud itself is
//! asked when something has changed, and otherwise seldom.

mod asking;
mod choice;

use std::time::Duration;

use tokio::time::{Instant, timeout};
use trieste_cloud::choice::{self as clouds, Choice};
use trieste_cloud::cluster::{Cluster, vxlan_port};
use trieste_cloud::{Goal, Ports, Wanted};
use trieste_control::api::{CloudPrepareConfig, Fabric, FabricSpec};
use trieste_control::steps::{Outcome as StepOutcome, Record};
use trieste_deploy::Server;

use super::failure::Failure;
use super::remark::remark;
use super::tools::Tools;
use crate::order::{Asked, Facts, Order, Outcome, Reason};
use crate::translate::cloud_wanted;
use asking::{digest, is_due, pending_machines};
use choice::{Credentials, choice};

/// What the titles of steps begin and end with that change nothing.
const READING: (&str, &str) = ("Reading what ", " has");

/// What the IDs of nodes begin with that are AWS's machines.
const AWS: &str = "aws://";

/// Ours: how long a pass may take in the cloud. Others wait meanwhile, such as a broker that is to be repaired.
const LIMIT: Duration = Duration::from_secs(60);

/// Prepares the cloud, or brings it up to date. `earlier` is what was found out the last time, if that was a success.
pub(super) async fn install(
    tools: &Tools,
    order: &Order,
    spec: &FabricSpec,
    earlier: Option<&Facts>,
    steps: &mut Record,
) -> Result<Outcome, Failure> {
    let Some(config) = &spec.cloud_prepare_config else { return Ok(Outcome::Removed) };
    let server = &tools.server;
    let wanted = cloud_wanted(config, spec.join_config.as_ref())?;
    let (choice, version) = chosen(server, config).await?;
    if order.cloud.is_none() {
        // What is refused, or cannot be asked, is never begun: there is nothing of it to take back.
        let goal = Goal::Prepare(with_vxlan(server, &wanted).await?);
        let shown = timeout(LIMIT, clouds::show(&choice, server, &goal)).await;
        shown.map_err(|_| late("Reading the cloud"))??;
        return Ok(Outcome::Chosen(Box::new(config.clone())));
    }
    let mut cluster = Cluster::read(server).await?;
    let now = |cluster: &Cluster| digest(config, &wanted, &version, cluster);
    let mut asked = earlier.and_then(|facts| facts.asked);
    if is_due(asked, now(&cluster), Instant::now()) {
        let goal = Goal::Prepare(with_vxlan(server, &wanted).await?);
        reach(&choice, server, &goal, steps).await?;
        // It has changed the cluster itself.
        cluster = Cluster::read(server).await?;
        asked = Some(Asked { digest: now(&cluster), at: Instant::now() });
    } else if let Some(facts) = earlier {
        remark(&facts.warnings, steps);
    }
    let awaits = pending_machines(&cluster).map(|message| Reason { reason: "MachinesPending", message });
    let facts = Facts { cloud: Some(config.clone()), asked, awaits, ..Facts::default() };
    Ok(Outcome::Installed(Box::new(facts)))
}

/// Takes back what was prepared. Where nothing was begun in the cloud nothing is asked of it. A cloud that can be asked, and takes its
/// time, is given up only by a pass in which nothing has gone.
pub(super) async fn remove(tools: &Tools, order: &Order, steps: &mut Record) -> Result<Outcome, Failure> {
    let Some(config) = &order.cloud else { return Ok(Outcome::Removed) };
    if order.is_cloud_assumed && !is_aws(&tools.server).await? {
        return Ok(Outcome::Removed);
    }
    let Err(failure) = clean_up(&tools.server, config, steps).await else { return Ok(Outcome::Removed) };
    let goes_on = matches!(failure, Failure::CloudLate(_)) && !changes(steps).is_empty();
    let Reason { reason, message } = failure.reason();
    if order.force && !goes_on {
        let warning = format!("what was prepared in the cloud is given up and stays there: {message}");
        remark(&[warning], steps);
        return Ok(Outcome::Removed);
    }
    let annotation = Fabric::FORCE_REMOVAL;
    let message = format!(
        "{message}. What was prepared in the cloud is not taken back yet; with the annotation {annotation}=true on the {} it is \
         given up",
        order.source.kind
    );
    Ok(Outcome::Failed(Reason { reason, message }))
}

async fn clean_up(server: &Server, config: &CloudPrepareConfig, steps: &mut Record) -> Result<(), Failure> {
    let (choice, _) = chosen(server, config).await?;
    reach(&choice, server, &Goal::CleanUp, steps).await?;
    Ok(())
}

/// Returns what is wanted with the port that the network plugin needs between nodes.
async fn with_vxlan(server: &Server, wanted: &Wanted) -> Result<Wanted, Failure> {
    let ports = Ports { vxlan: vxlan_port(server).await?, ..wanted.ports.clone() };
    Ok(Wanted { ports, ..wanted.clone() })
}

/// Brings the cloud to a goal, for as long as a pass may take: the next one goes on from there, since every change can be repeated.
async fn reach(choice: &Choice, server: &Server, goal: &Goal, steps: &mut Record) -> Result<(), Failure> {
    let done = timeout(LIMIT, clouds::reach(choice, server, goal, steps)).await;
    let Ok(done) = done else {
        let step = steps.steps.last().map_or("Reading the cloud", |step| step.title.as_str());
        return Err(late(step));
    };
    Ok(done.map(drop)?)
}

fn late(step: &str) -> Failure {
    Failure::CloudLate(format!(
        "the cloud takes longer than {} s, at the step \"{step}\": the next try goes on from there",
        LIMIT.as_secs()
    ))
}

/// Returns the cloud with what it takes to ask it, and which version of the credentials that is.
async fn chosen(server: &Server, config: &CloudPrepareConfig) -> Result<(Choice, String), Failure> {
    let secret = Credentials::read(server, config).await?;
    Ok((choice(config, &secret)?, secret.version))
}

/// Returns `true` if a node is a machine of AWS's.
pub(super) async fn is_aws(server: &Server) -> Result<bool, Failure> {
    let nodes = server.list("v1", "Node", None, "").await?;
    Ok(nodes.iter().any(|node| node["spec"]["providerID"].as_str().is_some_and(|id| id.starts_with(AWS))))
}

/// Returns the changes that a pass has made.
pub(super) fn changes(steps: &Record) -> Vec<String> {
    let made = steps.steps.iter().filter(|step| step.outcome.is_some_and(|end| end == StepOutcome::Success));
    made.filter(|step| !is_reading(&step.title)).map(|step| step.title.clone()).collect()
}

fn is_reading(title: &str) -> bool {
    title.starts_with(READING.0) && title.ends_with(READING.1)
}

#[cfg(test)]
#[path = "cloud/tests.rs"]
mod tests;
