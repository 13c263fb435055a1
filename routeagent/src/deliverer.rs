//! Finds out whether the route agent on the active gateway's node is ours or upstream's. Ours sends packets of remote
//! clusters to the other nodes over `vx-submariner`; upstream's leaves that to the network plugin, by unknown devices.
//! While a cluster migrates, its workers have to accept both.
//!
//! That node's RouteAgent object tells. It is polled, not watched: upstream's rights have no `watch` for it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;
use trieste_control::api::{Kind, Object, ObjectKey, Resource as _, RouteAgent};
use trieste_control::store::Store;

use crate::state::active_endpoint;
use crate::view::ClusterView;

/// Ours: polling interval while upstream's runs: how soon the end of a migration is noticed.
const INTERVAL_FOREIGN: Duration = Duration::from_secs(5);
/// Ours: polling interval otherwise: one request a minute and node, as for the own object.
const INTERVAL: Duration = Duration::from_secs(60);
/// Ours: how long to wait for an answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the active gateway's node; `None` if there is none, or it is this one.
#[must_use]
pub fn gateways_node(view: &ClusterView, cluster: &str, hostname: &str) -> Option<String> {
    let active = active_endpoint(&view.endpoints, cluster).filter(|active| active.hostname != hostname)?;
    let node = view.nodes.iter().find(|node| node.hostname == active.hostname);
    Some(node.map_or(&active.hostname, |node| &node.name).clone())
}

/// Polls until the sender of `node` is dropped, at once when the node changes, and publishes whether its route agent is
/// another than ours.
pub(crate) async fn follow(
    store: &impl Store,
    namespace: &str,
    mut node: watch::Receiver<Option<String>>,
    is_foreign: &watch::Sender<bool>,
) {
    loop {
        let name = node.borrow_and_update().clone();
        let found = match &name {
            Some(name) => agent_is_foreign(store, namespace, name).await,
            None => Some(false),
        };
        // Without an answer the last state stays.
        if let Some(found) = found {
            is_foreign.send_if_modified(|known| std::mem::replace(known, found) != found);
        }
        let wait = if *is_foreign.borrow() { INTERVAL_FOREIGN } else { INTERVAL };
        tokio::select! {
            changed = node.changed() => if changed.is_err() { return },
            () = sleep(wait), if name.is_some() => {}
        }
    }
}

/// Returns `true` if the route agent of a node is another than ours; `None` if that cannot be read.
pub(crate) async fn agent_is_foreign(store: &impl Store, namespace: &str, node: &str) -> Option<bool> {
    let key = ObjectKey::new(Kind::RouteAgent, namespace, node);
    match timeout(REPLY_TIMEOUT, store.get(&key)).await {
        Ok(Ok(object)) => Some(object.as_ref().is_some_and(is_of_others)),
        Ok(Err(error)) => {
            debug!(node, %error, "cannot read the RouteAgent of the gateway's node");
            None
        }
        Err(_) => None,
    }
}

/// Returns `true` if a RouteAgent object is not ours. Without one, ours has just stopped: it removes its object, while
/// upstream's stays.
fn is_of_others(object: &Object) -> bool {
    RouteAgent::from_object(object).map_or(true, |agent| !agent.is_ours())
}

#[cfg(test)]
mod tests {
    use trieste_control::api::{RouteAgentStatus, annotation};
    use trieste_control::store::DirStore;

    use super::*;
    use crate::state::{ClusterNode, Endpoint};

    #[test]
    fn the_gateways_node_is_the_one_that_calls_itself_as_the_newest_own_endpoint_does() {
        let mut view = ClusterView::default();
        assert_eq!(gateways_node(&view, "a", "w1"), None);
        view.endpoints = vec![Endpoint::new("own", "a", "gw1"), Endpoint::new("other", "b", "gw2")];
        assert_eq!(gateways_node(&view, "a", "w1").as_deref(), Some("gw1"), "nodes may be unknown");
        let node = |name: &str, hostname: &str| ClusterNode {
            name: name.to_owned(),
            hostname: hostname.to_owned(),
            ..ClusterNode::default()
        };
        view.nodes = vec![node("n1", "w1"), node("n2", "gw1")];
        assert_eq!(gateways_node(&view, "a", "w1").as_deref(), Some("n2"));
        assert_eq!(gateways_node(&view, "a", "gw1"), None);
    }

    #[tokio::test]
    async fn upstreams_agent_is_told_from_ours_and_from_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = DirStore::open(folder.path()).unwrap();
        let put = |name: &str, version: &str, marked: Option<&str>| {
            let status = RouteAgentStatus { version: version.to_owned(), ..RouteAgentStatus::default() };
            let mut agent = RouteAgent::new("ns", name, status).unwrap();
            let mark = marked.map(|mark| (annotation::ROUTE_AGENT.to_owned(), mark.to_owned()));
            agent.metadata.annotations.extend(mark);
            store.create(agent.to_object())
        };
        put("upstreams", "release-0.23-abc", None).await.unwrap();
        put("ours", "v0.1.0", Some("v0.1.0")).await.unwrap();
        put("rolled-back", "release-0.23-abc", Some("v0.1.0")).await.unwrap();
        for (node, expected) in [("upstreams", true), ("ours", false), ("rolled-back", true), ("none", false)]
        {
            assert_eq!(agent_is_foreign(&store, "ns", node).await, Some(expected), "{node}");
        }

        let (name, names) = watch::channel(Some("upstreams".to_owned()));
        let (sender, mut is_foreign) = watch::channel(false);
        let task = tokio::spawn(async move { follow(&store, "ns", names, &sender).await });
        is_foreign.wait_for(|foreign| *foreign).await.unwrap();
        name.send_replace(Some("ours".to_owned()));
        is_foreign.wait_for(|foreign| !*foreign).await.unwrap();
        drop(name);
        task.await.unwrap();
    }
}
