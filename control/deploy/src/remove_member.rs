//! Taking a cluster off its set that was deleted without leaving it: on the broker, where its ID, networks and account stay.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use trieste_control::steps::{Outcome, Steps};

use crate::error::DeployError;
use crate::objects::names::cluster_account;
use crate::server::{POLL, Server};
use crate::services;
use crate::uninstall::{on_broker, remove_from_broker};

/// How long other members may take to forget the cluster before that is told.
const FORGET_WITHIN: Duration = Duration::from_secs(30);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct RemoveMember {
    /// The ID of the cluster that is gone.
    pub cluster_id: String,
    /// The broker's namespace.
    pub broker_namespace: String,
    /// The namespace of members.
    pub namespace: String,
    /// Whether it is removed whatever others say of it.
    pub force: bool,
}

/// Removes what a cluster has on the broker: Cluster, Endpoints, its account and rights, and what it exports. `members` are other clusters of the
/// set, which say whether it still answers, and are waited for until they have forgotten it.
///
/// # Errors
/// [`DeployError::Refused`], and nothing has been changed, if the broker does not know the cluster, if a member is connected to
/// it, or if no member could be asked; any other, and the next run goes on from there.
pub async fn remove_member(
    broker: &Server,
    members: &[Server],
    options: &RemoveMember,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    let id = options.cluster_id.as_str();
    steps.begin(&format!("Checking that cluster {id} is gone"));
    known(broker, options).await?;
    if !options.force {
        gone(members, options).await?;
    }
    steps.end(Outcome::Success);

    steps.begin(&format!("Removing cluster {id} from the broker"));
    remove_from_broker(broker, true, id, &options.broker_namespace).await?;
    // Whoever has no account any more cannot put it back.
    let removed = services::remove(broker, &options.broker_namespace, id).await?;
    if !removed.is_nothing() {
        steps.remark(Outcome::Success, &removed.to_string());
    }
    steps.end(Outcome::Success);

    steps.begin("Waiting for the other members to forget it");
    for member in members {
        if !has_no_copies(member, options).await? {
            let text = format!(
                "{} still has copies of its Endpoints: its gateway removes them when it reaches the broker",
                member.name()
            );
            steps.remark(Outcome::Warning, &text);
        }
    }
    steps.end(Outcome::Success);
    if !published(broker, &options.broker_namespace).await?.contains(id) {
        return Ok(());
    }
    Err(DeployError::refused(
        format!("cluster {id} is not gone: it has registered itself again"),
        "run trieste uninstall in that cluster, or shut its gateways down first",
    ))
}

/// Lists what [`remove_member`] would remove. Nothing is changed.
///
/// # Errors
/// As those of [`remove_member`], by which it would change nothing.
pub async fn preview(
    broker: &Server,
    members: &[Server],
    options: &RemoveMember,
) -> Result<Vec<String>, DeployError> {
    let id = options.cluster_id.as_str();
    known(broker, options).await?;
    if !options.force {
        gone(members, options).await?;
    }
    let objects = on_broker(broker, true, id, &options.broker_namespace).await?;
    let objects = objects.iter().map(|place| place.to_string());
    let services = services::list(broker, &options.broker_namespace, id).await?;
    Ok(objects.chain(services).collect())
}

/// Returns the IDs of the clusters that have something on the broker.
async fn published(broker: &Server, namespace: &str) -> Result<BTreeSet<String>, DeployError> {
    let mut ids = BTreeSet::new();
    for kind in ["Cluster", "Endpoint"] {
        let all = broker.list("submariner.io/v1", kind, Some(namespace), "").await?;
        ids.extend(all.iter().filter_map(|object| Some(object["spec"]["cluster_id"].as_str()?.to_owned())));
    }
    Ok(ids)
}

/// Checks that there is something to remove.
async fn known(broker: &Server, options: &RemoveMember) -> Result<(), DeployError> {
    let (id, namespace) = (&options.cluster_id, &options.broker_namespace);
    let registered = published(broker, namespace).await?;
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{}", cluster_account(id));
    if registered.contains(id)
        || broker.get(&account, &format!("get the account of {id}")).await?.is_some()
        || !services::list(broker, namespace, id).await?.is_empty()
    {
        return Ok(());
    }
    let next = match registered.is_empty() {
        true => {
            "no cluster is registered there: name the broker's cluster with --context, its namespace with \
                 --broker-namespace"
                .to_owned()
        }
        false => format!("registered are: {}", registered.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Err(DeployError::refused(
        format!("nothing was changed: {} has no cluster {id} in namespace {namespace}", broker.name()),
        next,
    ))
}

/// Checks that members are not connected to the cluster.
async fn gone(members: &[Server], options: &RemoveMember) -> Result<(), DeployError> {
    let id = options.cluster_id.as_str();
    let mut is_asked = false;
    for member in members {
        let gateways = member.list("submariner.io/v1", "Gateway", Some(&options.namespace), "").await?;
        is_asked |= !gateways.is_empty();
        let connected = gateways.iter().find(|gateway| {
            let connections = gateway["status"]["connections"].as_array().into_iter().flatten();
            let mut connections = connections.filter(|connection| connection["status"] == "connected");
            connections.any(|connection| connection["endpoint"]["cluster_id"] == id)
        });
        if let Some(gateway) = connected {
            let name = gateway["metadata"]["name"].as_str().unwrap_or_default();
            return Err(DeployError::refused(
                format!(
                    "nothing was changed: cluster {id} is not gone: gateway {name} of {} is connected to it",
                    member.name()
                ),
                "run trieste uninstall in that cluster; what has just died is seen as dead within a minute; --force removes it \
                 all the same",
            ));
        }
    }
    if is_asked {
        return Ok(());
    }
    Err(DeployError::refused(
        format!("nothing was changed: there is no member to ask whether cluster {id} is gone"),
        "name another member of the set with --member-context, or --force",
    ))
}

/// Waits until a member has no copies of the cluster's Endpoints. Gives whether it has none.
async fn has_no_copies(member: &Server, options: &RemoveMember) -> Result<bool, DeployError> {
    let until = tokio::time::Instant::now() + FORGET_WITHIN;
    loop {
        let all = member.list("submariner.io/v1", "Endpoint", Some(&options.namespace), "").await?;
        let is_copy = |object: &Value| object["spec"]["cluster_id"] == options.cluster_id.as_str();
        if !all.iter().any(is_copy) {
            return Ok(true);
        }
        if tokio::time::Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_ref::ObjectRef;
    use crate::objects::names::{BROKER_NAMESPACE, NAMESPACE};
    use crate::server::fake::Fake;
    use serde_json::json;
    use trieste_control::api::{annotation, label};
    use trieste_control::steps::Record;

    fn object(kind: &str, namespace: &str, name: &str, cluster: &str) -> Value {
        json!({"apiVersion": "submariner.io/v1", "kind": kind, "metadata": {"namespace": namespace, "name": name},
            "spec": {"cluster_id": cluster}})
    }

    /// Makes a broker with the clusters `west`, which has two gateways, and `north`.
    fn broker() -> Fake {
        let fake = Fake::default();
        for cluster in ["west", "north"] {
            fake.put(object("Cluster", BROKER_NAMESPACE, cluster, cluster));
            fake.put(object("Endpoint", BROKER_NAMESPACE, &format!("{cluster}-cable"), cluster));
            fake.put(object("Endpoint", BROKER_NAMESPACE, &format!("trieste-{cluster}-cable"), cluster));
            fake.put(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"namespace": BROKER_NAMESPACE, "name": cluster_account(cluster)}}));
        }
        fake
    }

    /// Makes a member that sees `west` so.
    fn member(status: &str) -> Fake {
        let fake = Fake::default();
        fake.put(json!({"apiVersion": "submariner.io/v1", "kind": "Gateway",
            "metadata": {"namespace": NAMESPACE, "name": "east-gw1"},
            "status": {"connections": [{"status": status, "endpoint": {"cluster_id": "west"}},
                {"status": "connected", "endpoint": {"cluster_id": "north"}}]}}));
        fake
    }

    fn options(cluster: &str, force: bool) -> RemoveMember {
        RemoveMember {
            cluster_id: cluster.to_owned(),
            broker_namespace: BROKER_NAMESPACE.to_owned(),
            namespace: NAMESPACE.to_owned(),
            force,
        }
    }

    async fn remove(broker: &Fake, members: &[&Fake], cluster: &str, force: bool) -> Result<(), DeployError> {
        let options = options(cluster, force);
        let members: Vec<Server> = members.iter().map(|member| member.server()).collect();
        remove_member(&broker.server(), &members, &options, &mut Record::default()).await
    }

    fn has(broker: &Fake, cluster: &str) -> [bool; 4] {
        let of =
            |kind: &str, name: &str| ObjectRef::namespaced("submariner.io/v1", kind, BROKER_NAMESPACE, name);
        let account =
            ObjectRef::namespaced("v1", "ServiceAccount", BROKER_NAMESPACE, &cluster_account(cluster));
        [
            broker.has(&of("Cluster", cluster)),
            broker.has(&of("Endpoint", &format!("{cluster}-cable"))),
            broker.has(&of("Endpoint", &format!("trieste-{cluster}-cable"))),
            broker.has(&account),
        ]
    }

    #[tokio::test]
    async fn everything_of_a_cluster_that_is_gone_goes_and_nothing_of_others() {
        let broker = broker();
        remove(&broker, &[&member("error")], "west", false).await.unwrap();
        assert_eq!((has(&broker, "west"), has(&broker, "north")), ([false; 4], [true; 4]));
        let error = remove(&broker, &[&member("error")], "west", false).await.unwrap_err();
        assert!(error.to_string().contains("has no cluster west"), "{error}");
        assert!(
            matches!(&error, DeployError::Refused { next, .. } if next == "registered are: north"),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn a_cluster_that_lives_stays_and_so_does_one_that_nobody_can_be_asked_about() {
        let broker = broker();
        let error =
            remove(&broker, &[&member("error"), &member("connected")], "west", false).await.unwrap_err();
        assert!(error.to_string().contains("gateway east-gw1"), "{error}");
        let error = remove(&broker, &[], "west", false).await.unwrap_err();
        assert!(error.to_string().contains("no member to ask"), "{error}");
        let error = remove(&broker, &[&Fake::default()], "west", false).await.unwrap_err();
        assert!(error.to_string().contains("no member to ask"), "{error}");
        assert_eq!(has(&broker, "west"), [true; 4]);

        remove(&broker, &[], "west", true).await.unwrap();
        assert_eq!(has(&broker, "west"), [false; 4]);
    }

    /// Puts a service on the broker that these clusters export.
    fn export(broker: &Fake, clusters: &[&str]) {
        let clusters: Vec<Value> = clusters.iter().map(|cluster| json!({"cluster": cluster})).collect();
        broker.put(json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"namespace": BROKER_NAMESPACE, "name": "web-shop", "annotations": {
                label::SERVICE_NAME: "web", label::SOURCE_NAMESPACE: "shop",
                format!("{}west", annotation::TIMESTAMP_PREFIX): "1"}},
            "spec": {"type": "ClusterSetIP"}, "status": {"clusters": clusters}}));
        broker.put(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": BROKER_NAMESPACE, "name": "web-1", "labels": {label::SOURCE_CLUSTER: "west"}}}));
    }

    #[tokio::test]
    async fn what_a_cluster_exports_goes_with_it_and_what_would_go_is_shown() {
        let broker = broker();
        export(&broker, &["west", "north"]);
        let options = options("west", true);
        let preview = preview(&broker.server(), &[], &options).await.unwrap();
        assert_eq!(preview.len(), 6, "{preview:?}");
        assert_eq!(preview[5], "ServiceImport submariner-k8s-broker/web-shop (the part of west)");
        assert_eq!(has(&broker, "west"), [true; 4]);

        let mut record = Record::default();
        remove_member(&broker.server(), &[], &options, &mut record).await.unwrap();
        let remark = &record.steps[1].remarks[0].1;
        assert!(remark.contains("(shop/web): 1 EndpointSlices and 0 ServiceImports deleted, 1"), "{remark}");
        assert!(super::preview(&broker.server(), &[], &options).await.is_err(), "nothing is left");

        // A release that did not know of services has left them.
        export(&broker, &["west"]);
        remove_member(&broker.server(), &[], &options, &mut record).await.unwrap();
        assert!(super::preview(&broker.server(), &[], &options).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_keeps_copies_is_told() {
        let (broker, east) = (broker(), member("error"));
        east.put(object("Endpoint", NAMESPACE, "west-cable", "west"));
        remove(&broker, &[&east], "west", false).await.unwrap();
        assert_eq!(has(&broker, "west"), [false; 4]);
    }
}
