//! What a cluster has on the broker because it exports services: its EndpointSlices, and its part of each ServiceImport.
//!
//! Agents of other clusters write the same imports meanwhile: every write names the version that it is about, and all is read
//! again until nothing of the cluster is left.

use std::collections::BTreeSet;
use std::fmt;

use http::Method;
use serde_json::{Value, json};
use trieste_control::api::{annotation, label};

use crate::error::DeployError;
use crate::object_ref;
use crate::server::{MULTI_CLUSTER_VERSIONS, POLL, Server};

const SLICES: (&str, &str) = ("discovery.k8s.io/v1", "EndpointSlice");
const IMPORT: &str = "ServiceImport";
/// How often everything is read: others may be faster, but not for ever.
const MOST_ROUNDS: u32 = 20;
/// Most services whose names are listed.
const MOST_NAMES: usize = 12;
/// Annotations of an import that are one cluster's, whose ID follows.
const PARTS: [&str; 3] =
    [annotation::TIMESTAMP_PREFIX, annotation::CONFLICT_PREFIX, annotation::WEIGHT_PREFIX];

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The services, as namespace and name.
    services: BTreeSet<String>,
    slices: BTreeSet<String>,
    imports: BTreeSet<String>,
    shared: BTreeSet<String>,
}

impl Removed {
    /// Returns `true` if nothing was there.
    pub(crate) fn is_nothing(&self) -> bool {
        self.services.is_empty() && self.slices.is_empty()
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.services.iter().take(MOST_NAMES).map(String::as_str).collect();
        let more = self.services.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        write!(
            f,
            "Exported services ({}{more}): {} EndpointSlices and {} ServiceImports deleted, {} ServiceImports left to other \
             clusters",
            names.join(", "),
            self.slices.len(),
            self.imports.len(),
            self.shared.len()
        )
    }
}

/// Lists what a cluster has because of its exports: objects of its own, then its parts of others.
///
/// # Errors
/// [`DeployError::Api`].
pub(crate) async fn list(
    broker: &Server,
    namespace: &str,
    cluster_id: &str,
) -> Result<Vec<String>, DeployError> {
    let slices = slices(broker, namespace, cluster_id).await?;
    let own = slices.iter().map(title);
    let imports = imports(broker, namespace, cluster_id).await?;
    let part = |import: &Value| match has_others(import, cluster_id) {
        true => format!("{} (the part of {cluster_id})", title(import)),
        false => title(import),
    };
    Ok(own.chain(imports.iter().map(part)).collect())
}

/// Removes it.
///
/// # Errors
/// [`DeployError`]; the next run goes on from there.
pub(crate) async fn remove(
    broker: &Server,
    namespace: &str,
    cluster_id: &str,
) -> Result<Removed, DeployError> {
    let mut removed = Removed::default();
    for slice in slices(broker, namespace, cluster_id).await? {
        match delete(broker, &slice, &json!({})).await {
            Err(error) if !error.is_missing() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        removed.services.extend(service(&slice["metadata"]["labels"]));
        removed.slices.insert(name(&slice).to_owned());
    }
    for _ in 0..MOST_ROUNDS {
        let imports = imports(broker, namespace, cluster_id).await?;
        if imports.is_empty() {
            return Ok(removed);
        }
        let mut has_lost = false;
        for import in imports {
            removed.services.extend(service(&import["metadata"]["annotations"]));
            let (name, is_shared) = (name(&import).to_owned(), has_others(&import, cluster_id));
            let outcome = match is_shared {
                true => take_out(broker, import, cluster_id).await,
                false => delete_version(broker, &import).await,
            };
            match outcome {
                Ok(()) if is_shared => drop(removed.shared.insert(name)),
                Ok(()) => drop(removed.imports.insert(name)),
                Err(error) if error.is_missing() => {}
                Err(DeployError::Api { code: Some(409), .. }) => has_lost = true,
                Err(error) => return Err(error),
            }
        }
        if has_lost {
            tokio::time::sleep(POLL).await;
        }
    }
    Err(DeployError::NotInTime {
        what: format!("cluster {cluster_id} did not leave the ServiceImports on the broker"),
        seconds: u64::from(MOST_ROUNDS) * POLL.as_secs().max(1),
        state: Vec::new(),
        next: format!("an agent of cluster {cluster_id} puts it back: shut it down, then repeat the command"),
    })
}

async fn slices(broker: &Server, namespace: &str, cluster_id: &str) -> Result<Vec<Value>, DeployError> {
    let selector = format!("labelSelector={}%3D{cluster_id}", label::SOURCE_CLUSTER.replace('/', "%2F"));
    broker.list(SLICES.0, SLICES.1, Some(namespace), &selector).await
}

/// Returns the imports in which a cluster has a part.
async fn imports(broker: &Server, namespace: &str, cluster_id: &str) -> Result<Vec<Value>, DeployError> {
    let mut imports = broker.list_served(&MULTI_CLUSTER_VERSIONS, IMPORT, Some(namespace)).await?;
    imports.retain(|import| {
        let is_aggregate = !import["metadata"]["annotations"][label::SERVICE_NAME].is_null();
        is_aggregate && has_part(import, cluster_id)
    });
    Ok(imports)
}

fn has_part(import: &Value, cluster_id: &str) -> bool {
    let annotations = &import["metadata"]["annotations"];
    PARTS.iter().any(|prefix| !annotations[format!("{prefix}{cluster_id}")].is_null())
        || annotations[annotation::CLUSTERSET_IP_ALLOCATED_BY] == cluster_id
        || clusters(import).any(|cluster| cluster == cluster_id)
}

/// Returns whether another cluster exports the service.
fn has_others(import: &Value, cluster_id: &str) -> bool {
    let annotations = import["metadata"]["annotations"].as_object();
    let keys = annotations.into_iter().flatten().map(|(key, _)| key);
    let stamps = keys.filter_map(|key| key.strip_prefix(annotation::TIMESTAMP_PREFIX));
    stamps.chain(clusters(import)).any(|cluster| cluster != cluster_id)
}

fn clusters(import: &Value) -> impl Iterator<Item = &str> {
    let list = import["status"]["clusters"].as_array();
    list.into_iter().flatten().filter_map(|entry| entry["cluster"].as_str())
}

/// Takes a cluster's part out of an import: first out of the status, as what has no time in the annotations there counts as the
/// oldest. An IP for all clusters that it has allocated stays, as clients use it; the others may take it upon themselves.
async fn take_out(broker: &Server, mut import: Value, cluster_id: &str) -> Result<(), DeployError> {
    if clusters(&import).any(|cluster| cluster == cluster_id) {
        if let Some(list) = import["status"]["clusters"].as_array_mut() {
            list.retain(|entry| entry["cluster"] != cluster_id);
        }
        match put(broker, "/status", &import).await {
            Ok(written) => {
                import["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone()
            }
            // A definition whose status is a field as any other, or an import that has just gone: that shows next.
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(annotations) = import["metadata"]["annotations"].as_object_mut() {
        PARTS.iter().for_each(|prefix| drop(annotations.remove(&format!("{prefix}{cluster_id}"))));
        let has_allocated = |by: &Value| by == cluster_id;
        if annotations.get(annotation::CLUSTERSET_IP_ALLOCATED_BY).is_some_and(has_allocated) {
            annotations.remove(annotation::CLUSTERSET_IP_ALLOCATED_BY);
        }
    }
    put(broker, "", &import).await.map(drop)
}

async fn put(broker: &Server, part: &str, object: &Value) -> Result<Value, DeployError> {
    let path = format!("{}{part}?fieldManager={}", path(object), broker.manager());
    let body = Some(("application/json", object));
    broker.call(Method::PUT, &path, body, &format!("changing {}", title(object))).await
}

/// Deletes an import, unless somebody has become a part of it since.
async fn delete_version(broker: &Server, import: &Value) -> Result<(), DeployError> {
    let metadata = &import["metadata"];
    delete(broker, import, &json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}))
        .await
}

async fn delete(broker: &Server, object: &Value, preconditions: &Value) -> Result<(), DeployError> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    let body = Some(("application/json", &options));
    broker.call(Method::DELETE, &path(object), body, &format!("deleting {}", title(object))).await.map(drop)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the path of an object that was listed.
fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let all = object_ref::collection(&version, &kind, object["metadata"]["namespace"].as_str());
    format!("{all}/{}", name(object))
}

fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}/{}", text(&object["kind"]), text(&object["metadata"]["namespace"]), name(object))
}

/// Returns the service that an object's labels or annotations name.
fn service(names: &Value) -> Option<String> {
    let text = |key: &str| names[key].as_str();
    Some(format!("{}/{}", text(label::SOURCE_NAMESPACE)?, text(label::SERVICE_NAME)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::names::BROKER_NAMESPACE;
    use crate::server::fake::Fake;

    const IMPORTS: (&str, &str) = (MULTI_CLUSTER_VERSIONS[0], IMPORT);

    /// Makes the import of a service that these clusters export.
    fn import(name: &str, clusters: &[&str]) -> Value {
        let status: Vec<Value> = clusters.iter().map(|cluster| json!({"cluster": cluster})).collect();
        let mut import = json!({"apiVersion": IMPORTS.0, "kind": IMPORTS.1,
            "metadata": {"namespace": BROKER_NAMESPACE, "name": format!("{name}-shop"), "resourceVersion": "1",
                "annotations": {label::SERVICE_NAME: name, label::SOURCE_NAMESPACE: "shop"}},
            "spec": {"type": "ClusterSetIP", "ports": []}, "status": {"clusters": status}});
        for cluster in clusters {
            for prefix in PARTS {
                import["metadata"]["annotations"][format!("{prefix}{cluster}")] = json!("1");
            }
        }
        import
    }

    fn slice(cluster: &str, service: &str) -> Value {
        json!({"apiVersion": SLICES.0, "kind": SLICES.1, "metadata": {"namespace": BROKER_NAMESPACE,
            "name": format!("{service}-{cluster}"), "labels": {label::SOURCE_CLUSTER: cluster,
                label::SERVICE_NAME: service, label::SOURCE_NAMESPACE: "shop"}}})
    }

    /// Makes a broker with services of `west` alone, of both and of `east` alone.
    fn broker() -> Fake {
        let fake = Fake::default();
        for (service, clusters) in [("db", &["west"][..]), ("web", &["east", "west"]), ("api", &["east"])] {
            fake.put(import(service, clusters));
            clusters.iter().for_each(|cluster| fake.put(slice(cluster, service)));
        }
        // What has the name and is none of service discovery's.
        let mut other = import("other", &["west"]);
        other["metadata"]["annotations"].as_object_mut().unwrap().remove(label::SERVICE_NAME);
        fake.put(other);
        fake
    }

    async fn found(fake: &Fake, kind: (&str, &str), name: &str) -> Option<Value> {
        let all = object_ref::collection(kind.0, kind.1, Some(BROKER_NAMESPACE));
        fake.server().get(&format!("{all}/{name}"), "reading").await.unwrap()
    }

    #[tokio::test]
    async fn the_services_of_one_cluster_go_and_others_lose_its_part() {
        let fake = broker();
        let before = list(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
        assert_eq!(
            before,
            [
                "EndpointSlice submariner-k8s-broker/db-west",
                "EndpointSlice submariner-k8s-broker/web-west",
                "ServiceImport submariner-k8s-broker/db-shop",
                "ServiceImport submariner-k8s-broker/web-shop (the part of west)",
            ]
        );
        let removed = remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
        assert_eq!(
            removed.to_string(),
            "Exported services (shop/db, shop/web): 2 EndpointSlices and 1 ServiceImports deleted, 1 ServiceImports left to \
             other clusters"
        );
        assert_eq!(found(&fake, IMPORTS, "db-shop").await, None);
        let mut expected = import("web", &["east"]);
        let web = found(&fake, IMPORTS, "web-shop").await.unwrap();
        expected["metadata"]["resourceVersion"] = web["metadata"]["resourceVersion"].clone();
        assert_eq!(web, expected);
        for (kind, name) in
            [(IMPORTS, "api-shop"), (IMPORTS, "other-shop"), (SLICES, "web-east"), (SLICES, "api-east")]
        {
            assert!(found(&fake, kind, name).await.is_some(), "{name}");
        }
        assert_eq!(list(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap(), [""; 0]);
        assert!(remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap().is_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_write_meanwhile_stays() {
        let fake = broker();
        // An agent becomes a part of what would have gone.
        fake.before_replacing(import("db", &["north", "west"]));
        let removed = remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
        assert_eq!((removed.imports.len(), removed.shared.len()), (0, 2));
        let db = found(&fake, IMPORTS, "db-shop").await.unwrap();
        assert_eq!(clusters(&db).collect::<Vec<_>>(), ["north"]);

        let fake = broker();
        fake.put(import("db", &["north", "west"]));
        let mut change = import("db", &["north", "west"]);
        change["spec"]["ports"] = json!([{"port": 80}]);
        fake.before_replacing(change);
        remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
        let db = found(&fake, IMPORTS, "db-shop").await.unwrap();
        assert_eq!((has_part(&db, "west"), db["spec"]["ports"][0]["port"].clone()), (false, json!(80)));
    }

    #[tokio::test]
    async fn a_broker_that_serves_the_newer_version_alone_is_left_all_the_same() {
        let (fake, newer) = (broker(), MULTI_CLUSTER_VERSIONS[1]);
        fake.serve_instead(IMPORTS.0, newer);
        let removed = remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
        assert_eq!((removed.imports.len(), removed.shared.len()), (1, 1));
        assert_eq!(found(&fake, (newer, IMPORT), "db-shop").await, None);
        let web = found(&fake, (newer, IMPORT), "web-shop").await.unwrap();
        assert_eq!((clusters(&web).collect::<Vec<_>>(), has_part(&web, "west")), (vec!["east"], false));
        assert_eq!(list(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap(), [""; 0]);
    }

    #[tokio::test]
    async fn an_address_for_all_clusters_stays_and_is_no_more_the_removed_ones() {
        let allocated = |by: &str| {
            let mut import = import("web", &["east", "west"]);
            import["metadata"]["annotations"][annotation::CLUSTERSET_IP_ALLOCATED_BY] = json!(by);
            import["spec"]["ips"] = json!(["243.0.0.7"]);
            import
        };
        for (by, after) in [("west", Value::Null), ("east", json!("east"))] {
            let fake = broker();
            fake.put(allocated(by));
            remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
            let web = found(&fake, IMPORTS, "web-shop").await.unwrap();
            let annotations = &web["metadata"]["annotations"];
            assert_eq!(annotations[annotation::CLUSTERSET_IP_ALLOCATED_BY], after);
            assert_eq!((&web["spec"]["ips"], has_part(&web, "east")), (&json!(["243.0.0.7"]), true));
        }
        // What its agent has left of it is found.
        let fake = Fake::default();
        let mut rest = import("web", &["east"]);
        rest["metadata"]["annotations"][annotation::CLUSTERSET_IP_ALLOCATED_BY] = json!("west");
        fake.put(rest);
        let part = "ServiceImport submariner-k8s-broker/web-shop (the part of west)";
        assert_eq!(list(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap(), [part]);
        let removed = remove(&fake.server(), BROKER_NAMESPACE, "west").await.unwrap();
        assert_eq!(removed.shared.len(), 1);
    }

    #[tokio::test]
    async fn a_broker_without_the_kinds_has_nothing_of_it() {
        let removed = remove(&Fake::default().server(), BROKER_NAMESPACE, "west").await.unwrap();
        assert!(removed.is_nothing());
    }

    #[test]
    fn of_many_services_some_are_named() {
        let services = (0..20).map(|number| format!("shop/s{number:02}")).collect();
        let removed = Removed { services, ..Removed::default() };
        assert!(removed.to_string().contains("shop/s11 and 8 more)"), "{removed}");
    }
}
