//! Taking a member out of its set, or a broker away, without a trace.
//!
//! ```text
//!   services withdrawn ──▶ gateways cleaned ──▶ left the broker ──▶ next hops withdrawn ──▶ other nodes cleaned
//!                      ──▶ OVN's database or Calico's pools cleaned, and Spiderpool's lists ──▶ objects
//!                      ──▶ namespace, node labels, definitions
//! ```
//!
//! Gateways go first: peers stop sending, and what is still sent here for a remote cluster ends in the guards of each
//! node instead of leaving in clear; those go last. With OVN-Kubernetes pods' packets do not pass the nodes' guards: rows of
//! its database refuse them, and go after the guards. The rows that lead packets to the former gateway's node go before its
//! guard: that node would forward them in clear. With Calico pods' packets pass the guards, and pools lead nowhere: they go
//! last, so that nobody is masqueraded while anything still flows. So do the entries of Spiderpool's lists, by which what
//! new pods send comes to the guards: their workers stop before next hops go. Every step looks at what is there, so that a run that
//! was interrupted is finished by the next one.

mod clean;
mod leave;
mod look;
mod options;
mod plugin;
mod pools;

use serde_json::{Value, json};
use trieste_control::steps::{Outcome, Steps};

pub(crate) use leave::{on_broker, remove_from_broker};
pub use look::{Elsewhere, Found, broker_namespace, observe, registered_members};
pub use options::{Scope, Uninstall};

use self::options::LEFT;
use crate::apply::{remove, remove_definition};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{
    GATEWAY, GATEWAY_LABEL, MANAGED_BY_LABEL, PLUGIN_SYNC, ROUTE_AGENT, TRIESTE, UPSTREAM_FINALIZER,
};
use crate::server::Server;
use crate::service_discovery;

/// The name in the labels of pods that `trieste diagnose` starts.
const PROBE: &str = "trieste-probe";

/// Removes what [`observe`] has found. `account` speaks to the broker with the rights of `broker-info.subm`; without it
/// the member's account there stays, and is told.
///
/// # Errors
/// [`DeployError`]; the next run goes on from there.
pub async fn uninstall(
    server: &Server,
    account: Option<&Server>,
    found: &Found,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    if found.is_nothing() && found.member.is_none() && !found.elsewhere.is_nothing() {
        return Err(nothing_here(options, &found.elsewhere));
    }
    if options.scope.member {
        leave_set(server, account, found, options, steps).await?;
    }
    // Whatever clusters are left on the broker, one of them may be the one that has just left.
    let own = found.member.as_ref().filter(|_| options.scope.member);
    let stays = look::registered(server, &options.broker_namespace, own).await?;

    steps.begin("Deleting what was installed");
    let mut count = 0;
    for place in &found.objects {
        if stays.is_empty() || !found.is_brokers(place) {
            release(server, place).await?;
            count += usize::from(remove_with_reason(server, place).await?);
        }
    }
    steps.remark(Outcome::Success, &format!("Objects: {count} deleted"));
    steps.end(Outcome::Success);

    probes(server, steps).await?;
    // Somebody may have come meanwhile.
    let elsewhere = look::elsewhere(server, options).await?;
    // Who keeps the object that asks for gateways has labelled their nodes.
    if options.scope.member && options.keeps.is_empty() && elsewhere.members.is_empty() {
        unlabel(server, steps).await?;
    }
    if options.scope.broker && found.has_broker && !stays.is_empty() {
        let text = format!(
            "The broker stays, with the definitions: these clusters are registered with it: {}",
            stays.join(", ")
        );
        steps.remark(Outcome::Warning, &text);
        return Ok(());
    }
    if !elsewhere.is_nothing() {
        steps.remark(Outcome::Warning, &shared(&elsewhere));
        return Ok(());
    }
    if !options.keeps.is_empty() {
        return Ok(());
    }
    definitions(server, steps).await
}

/// Lets the member leave its set, and cleans its nodes.
async fn leave_set(
    server: &Server,
    account: Option<&Server>,
    found: &Found,
    options: &Uninstall,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    service_discovery::leave(server, &options.namespace, options.patience, steps).await?;
    let mut left = clean::nodes(server, options, GATEWAY, "Cleaning the gateway nodes", steps).await?;
    if let Some(member) = &found.member {
        // An account that somebody else has made, for whom the object stays, is not ours to remove.
        let local = (options.keeps.is_empty() && found.is_broker_of(member)).then_some(server);
        leave::broker(server, account.or(local), member, options, steps).await?;
    }
    pools::hold_lists(server, options, steps).await?;
    plugin::withdraw(server, &options.namespace, options.patience, steps).await?;
    left.extend(clean::nodes(server, options, ROUTE_AGENT, "Cleaning all nodes", steps).await?);
    left.extend(clean::nodes(server, options, PLUGIN_SYNC, "Cleaning OVN's database", steps).await?);
    still_there(left, options, steps)?;
    pools::remove_written(server, options, steps).await
}

/// Nodes that were not cleaned since they are not ready. What cleans them stays for them, unless they are given up.
fn still_there(mut left: Vec<String>, options: &Uninstall, steps: &mut dyn Steps) -> Result<(), DeployError> {
    left.sort();
    left.dedup();
    if left.is_empty() {
        return Ok(());
    }
    let more = left.len().saturating_sub(12);
    left.truncate(12);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let names = format!("{}{more}", left.join(", "));
    if options.force {
        steps.remark(Outcome::Warning, &format!("Not ready and not cleaned: {names}; {LEFT}"));
        return Ok(());
    }
    Err(DeployError::refused(
        format!(
            "these nodes are not ready and were not cleaned: {names}; all others are, and the broker was left"
        ),
        format!(
            "once they are ready, repeat trieste uninstall: it goes on there. With --force it gives them up: {LEFT}"
        ),
    ))
}

/// What stays for the sake of others.
fn shared(elsewhere: &Elsewhere) -> String {
    let mut text = format!(
        "The definitions stay: without them nothing would be left of what is in {}",
        namespaces(elsewhere)
    );
    if !elsewhere.members.is_empty() {
        text.push_str("; the cluster-wide rights and the nodes' gateway label stay too");
    }
    text
}

fn nothing_here(options: &Uninstall, elsewhere: &Elsewhere) -> DeployError {
    DeployError::refused(
        format!(
            "nothing was changed: there is nothing in the namespaces {} and {}, but in {}",
            options.namespace,
            options.broker_namespace,
            namespaces(elsewhere)
        ),
        "name a member's namespace with --namespace, a broker's with --broker-namespace",
    )
}

fn namespaces(elsewhere: &Elsewhere) -> String {
    let mut all: Vec<&str> = elsewhere.members.iter().chain(&elsewhere.users).map(String::as_str).collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(8);
    all.join(", ")
}

/// Removes an object; what keeps a namespace from going is in its conditions.
async fn remove_with_reason(server: &Server, place: &ObjectRef) -> Result<bool, DeployError> {
    match remove(server, place).await {
        Err(DeployError::NotInTime { what, seconds, mut state, next }) if place.kind == "Namespace" => {
            let found = server.find(place).await?.unwrap_or_default();
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let messages = conditions.iter().filter_map(|condition| condition["message"].as_str());
            state.extend(messages.map(str::to_owned));
            Err(DeployError::NotInTime { what, seconds, state, next })
        }
        outcome => outcome,
    }
}

/// Pods that an interrupted `diagnose path` has left: in the namespaces of what it looked at, which are anybody's.
async fn probes(server: &Server, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let chosen = format!("labelSelector=app.kubernetes.io%2Fname%3D{PROBE}");
    let found = server.list("v1", "Pod", None, &chosen).await?;
    let is_ours = |pod: &&Value| pod["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE;
    let places: Vec<ObjectRef> = found.iter().filter(is_ours).filter_map(ObjectRef::of).collect();
    let mut count = 0;
    for place in &places {
        match server.delete(place).await {
            // The operator's account may delete no pods of others' namespaces. They end by themselves.
            Err(DeployError::Api { code: Some(403), .. }) => {
                steps.remark(Outcome::Warning, &format!("{place}, of trieste diagnose, may not be deleted"));
            }
            outcome => {
                outcome?;
                count += 1;
            }
        }
    }
    if count > 0 {
        steps.remark(Outcome::Success, &format!("Probe pods of trieste diagnose: {count} deleted"));
    }
    Ok(())
}

/// Takes the mark of upstream's operator off an object that nobody else will: there is no operator (any more).
async fn release(server: &Server, place: &ObjectRef) -> Result<(), DeployError> {
    if place.kind != "Submariner" && place.kind != "ServiceDiscovery" {
        return Ok(());
    }
    let Some(object) = server.find(place).await? else { return Ok(()) };
    let left: Vec<&Value> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != UPSTREAM_FINALIZER)
        .collect();
    if object["metadata"]["finalizers"].as_array().is_some_and(|all| all.len() != left.len()) {
        server.merge(place, &json!({"metadata": {"finalizers": left}})).await?;
    }
    Ok(())
}

async fn unlabel(server: &Server, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let selector = format!("labelSelector={}", GATEWAY_LABEL.replace('/', "%2F"));
    let nodes = server.list("v1", "Node", None, &selector).await?;
    if nodes.is_empty() {
        return Ok(());
    }
    steps.begin("Removing the gateway label from nodes");
    for place in nodes.iter().filter_map(ObjectRef::of) {
        server.merge(&place, &json!({"metadata": {"labels": {GATEWAY_LABEL: null}}})).await?;
    }
    steps.end(Outcome::Success);
    Ok(())
}

/// Removes definitions of upstream's kinds, whoever has installed them, as upstream's tool does; those of other projects stay, and ours
/// of a kind of theirs while there is an object.
async fn definitions(server: &Server, steps: &mut dyn Steps) -> Result<(), DeployError> {
    let found = look::definitions(server).await?;
    if found.is_empty() {
        return Ok(());
    }
    steps.begin("Deleting the definitions");
    for place in &found {
        let left = service_discovery::left_of(server, place).await?;
        if left.is_empty() {
            remove_definition(server, place).await?;
        } else {
            let text = format!("{place} stays: it is that of {}", left.join(", "));
            steps.remark(Outcome::Warning, &text);
        }
    }
    steps.end(Outcome::Success);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::fake::Fake;
    use trieste_control::steps::Record;

    #[tokio::test]
    async fn probe_pods_go_in_every_namespace_and_nobody_elses_with_them() {
        let fake = Fake::default();
        let pod = |namespace: &str, name: &str, by: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name,
                "labels": {"app.kubernetes.io/name": PROBE, MANAGED_BY_LABEL: by}}})
        };
        let place = |namespace: &str, name: &str| ObjectRef::namespaced("v1", "Pod", namespace, name);
        for (namespace, by) in [("shop", TRIESTE), ("other", TRIESTE), ("theirs", "helm")] {
            fake.put(pod(namespace, "p", by));
        }
        probes(&fake.server(), &mut Record::default()).await.unwrap();
        assert!(!fake.has(&place("shop", "p")) && !fake.has(&place("other", "p")));
        assert!(fake.has(&place("theirs", "p")));
    }

    #[tokio::test]
    async fn plugin_ovn_rows_that_refuse_go_after_the_nodes_guards_and_next_hops_before() {
        let fake = Fake::default();
        let mut member = crate::objects::example();
        member.network_plugin = "OVNKubernetes".to_owned();
        let namespace = member.namespace.as_str();
        let set = |name: &str| ObjectRef::namespaced("apps/v1", "DaemonSet", namespace, name);
        let sets = [ROUTE_AGENT, PLUGIN_SYNC];
        for manifest in crate::objects::member(&member) {
            if manifest.kind() == "DaemonSet" && sets.contains(&manifest.name()) {
                fake.put(manifest.as_value().clone());
            }
        }
        let route = ObjectRef::namespaced("submariner.io/v1", "GatewayRoute", namespace, "west");
        fake.put(json!({"apiVersion": "submariner.io/v1", "kind": "GatewayRoute",
            "metadata": {"namespace": namespace, "name": "west"}}));
        let options = Uninstall {
            namespace: namespace.to_owned(),
            broker_namespace: "meet".to_owned(),
            patience: Duration::ZERO,
            force: false,
            scope: Scope::ALL,
            keeps: Vec::new(),
        };
        let server = fake.server();
        let run = async || {
            let found = observe(&server, &options).await.unwrap();
            uninstall(&server, None, &found, &options, &mut Record::default()).await.unwrap_err().to_string()
        };
        // Nobody says that the nodes are clean, and so the workers and their rows stay.
        assert!(run().await.contains("not all nodes were cleaned"));
        let cleaner = set("submariner-routeagent-uninstall");
        assert_eq!((sets.map(|name| fake.has(&set(name))), fake.has(&cleaner)), ([false, true], true));
        assert!(!fake.has(&route));
        fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"namespace": namespace, "name": cleaner.name, "generation": 1},
            "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}));
        // They are: now the workers' turn has come.
        assert!(run().await.contains("not all nodes were cleaned"));
        let there = [PLUGIN_SYNC, "submariner-routeagent-uninstall", "trieste-plugin-sync-uninstall"];
        assert_eq!(there.map(|name| fake.has(&set(name))), [false, false, true]);
    }

    #[tokio::test]
    async fn a_mistyped_namespace_changes_nothing_and_is_told_where_things_are() {
        let fake = Fake::default();
        fake.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "one", "name": GATEWAY}}));
        let options = Uninstall {
            namespace: "oen".to_owned(),
            broker_namespace: "meet".to_owned(),
            patience: Duration::ZERO,
            force: false,
            scope: Scope::ALL,
            keeps: Vec::new(),
        };
        let server = fake.server();
        let found = observe(&server, &options).await.unwrap();
        let outcome = uninstall(&server, None, &found, &options, &mut Record::default()).await;
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("nothing was changed") && error.contains("but in one"), "{error}");
    }
}
