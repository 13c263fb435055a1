//! Applying and removing many objects, in an order in which each finds what it needs.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::Manifest;
use crate::server::{Applied, POLL, Server};

/// How long a definition may take to be served, or a namespace to go that is being deleted.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a definition that is being deleted may stand still before its server is told to look at it again.
const STUCK: Duration = Duration::from_secs(5);

/// The annotation by which it is told: how often it was.
const AGAIN: &str = "trieste.io/deletion-attempts";

/// How long after its definition's promise a kind may still be unknown: servers tell each other.
const KIND_LAG: Duration = Duration::from_secs(15);

const DEFINITION: &str = "CustomResourceDefinition";

/// How many objects became what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Objects that were not there.
    pub created: usize,
    /// Objects that were different.
    pub changed: usize,
    /// Objects that were as they should be.
    pub unchanged: usize,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, applied: Applied) {
        match applied {
            Applied::Created => self.created += 1,
            Applied::Changed => self.changed += 1,
            Applied::Unchanged => self.unchanged += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { created, changed, unchanged } = self;
        write!(f, "Objects: {created} created, {changed} changed, {unchanged} as they should be")
    }
}

/// Applies objects in their order. Definitions are served before anything else is applied; a namespace that is being
/// deleted is waited for.
///
/// # Errors
/// [`DeployError`] naming the object; those before it are applied.
pub async fn apply_all(server: &Server, manifests: &[Manifest]) -> Result<Tally, DeployError> {
    let mut tally = Tally::default();
    let mut promised: Vec<ObjectRef> = Vec::new();
    for manifest in manifests {
        let Some(place) = ObjectRef::of(manifest.as_value()) else { continue };
        if manifest.kind() == "Namespace" {
            outlive(server, &place).await?;
        }
        if manifest.kind() == DEFINITION {
            promised.push(place);
        } else {
            for definition in promised.drain(..) {
                established(server, &definition).await?;
            }
        }
        tally.count(apply_known(server, manifest).await?);
    }
    for definition in promised {
        established(server, &definition).await?;
    }
    Ok(tally)
}

/// Makes an object be there with at least these fields, by means that every account of a broker has: upstream's may
/// create role bindings but not patch them. Created, not applied: of two clusters that join under one ID at the same
/// moment, one must lose.
///
/// # Errors
/// [`DeployError`] naming the object.
pub(crate) async fn ensure(server: &Server, manifest: &Manifest) -> Result<Applied, DeployError> {
    let Some(place) = ObjectRef::of(manifest.as_value()) else { return Ok(Applied::Unchanged) };
    let Some(found) = server.find(&place).await? else {
        server.create(manifest.as_value()).await?;
        return Ok(Applied::Created);
    };
    if contains(&found, manifest.as_value()) {
        return Ok(Applied::Unchanged);
    }
    match server.merge(&place, manifest.as_value()).await {
        Err(DeployError::Api { code: Some(403), .. }) if manifest.kind() == "RoleBinding" => {
            Ok(Applied::Unchanged)
        }
        outcome => outcome.map(|_| Applied::Changed),
    }
}

/// Whether every field of `wanted` is in `found`, lists as they are.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| contains(found, value)))
        }
        _ => found == wanted,
    }
}

/// Applies an object whose kind may have become known a moment ago.
async fn apply_known(server: &Server, manifest: &Manifest) -> Result<Applied, DeployError> {
    let until = Instant::now() + KIND_LAG;
    let is_ours = manifest.api_version().contains("submariner.io/");
    // Gateways write it too; `join` looks before whether it is as it has read it.
    let forcing = manifest.is_of_gateways_too().then(|| server.clone().forcing_conflicts(true));
    let server = forcing.as_ref().unwrap_or(server);
    loop {
        match server.apply(manifest.as_value()).await {
            Err(error) if error.is_missing() && is_ours && Instant::now() < until => sleep(POLL).await,
            outcome => return outcome,
        }
    }
}

/// Waits until a namespace that is being deleted has gone: nothing can be made in it.
async fn outlive(server: &Server, namespace: &ObjectRef) -> Result<(), DeployError> {
    match server.find(namespace).await? {
        Some(found) if !found["metadata"]["deletionTimestamp"].is_null() => {
            server.wait_gone(namespace, PATIENCE).await
        }
        _ => Ok(()),
    }
}

/// Makes a kind, unless somebody has: whoever brings service discovery, or another project.
///
/// # Errors
/// [`DeployError`] if the server refuses, or does not serve it.
pub(crate) async fn define(server: &Server, definition: &Manifest) -> Result<(), DeployError> {
    let Some(place) = ObjectRef::of(definition.as_value()) else { return Ok(()) };
    if server.find(&place).await?.is_none() {
        server.create(definition.as_value()).await?;
        established(server, &place).await?;
    }
    Ok(())
}

/// Waits until a definition is served.
///
/// # Errors
/// [`DeployError::NotInTime`] if it is not; [`DeployError`] if the server refuses.
async fn established(server: &Server, definition: &ObjectRef) -> Result<(), DeployError> {
    let is_true = |object: &Value, kind: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|condition| condition["type"] == kind)
            .any(|condition| condition["status"] == "True")
    };
    let until = Instant::now() + PATIENCE;
    loop {
        let found = server.find(definition).await?.unwrap_or_default();
        if is_true(&found, "Established") {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(DeployError::NotInTime {
                what: format!("{definition} was not served"),
                seconds: PATIENCE.as_secs(),
                state: vec![found["status"]["conditions"].to_string()],
                next: format!(
                    "kubectl get crd {} -o yaml says why; then repeat the command",
                    definition.name
                ),
            });
        }
        sleep(POLL).await;
    }
}

/// Which of these objects we may not apply: (verb, object, resource), each resource and namespace once.
///
/// # Errors
/// [`DeployError`] if the server does not answer.
pub(crate) async fn missing_rights(
    server: &Server,
    manifests: &[Manifest],
    others: &[(&'static str, ObjectRef)],
) -> Result<Vec<(&'static str, ObjectRef, String)>, DeployError> {
    let mut wanted: Vec<(&'static str, ObjectRef, String)> = Vec::new();
    let places = manifests.iter().filter_map(|manifest| ObjectRef::of(manifest.as_value()));
    let pairs =
        places.flat_map(|place| [("get", place.clone()), ("create", place.clone()), ("patch", place)]);
    for (verb, place) in pairs.chain(others.iter().cloned()) {
        let resource = crate::object_ref::plural(&place.kind);
        let is_same = |(v, p, r): &(&str, ObjectRef, String)| {
            *v == verb && *r == resource && p.namespace == place.namespace && p.group() == place.group()
        };
        if !wanted.iter().any(is_same) {
            wanted.push((verb, place, resource));
        }
    }
    let asked = futures::future::try_join_all(
        wanted.iter().map(|(verb, place, resource)| server.is_allowed(verb, place, resource)),
    );
    let allowed = asked.await?;
    Ok(wanted.into_iter().zip(allowed).filter(|(_, allowed)| !allowed).map(|(wanted, _)| wanted).collect())
}

/// Deletes an object and waits until it has gone; `false` if it was not there.
///
/// # Errors
/// [`DeployError`] naming the object.
pub(crate) async fn remove(server: &Server, place: &ObjectRef) -> Result<bool, DeployError> {
    if !server.delete(place).await? {
        return Ok(false);
    }
    server.wait_gone(place, PATIENCE).await?;
    Ok(true)
}

/// Deletes a definition and waits until it has gone; `false` if it was not there.
///
/// A busy API server may find the kind's storage "(re)initializing" while it deletes the objects of that kind, run into
/// a conflict with its own note of that, and then forget the definition for up to five minutes
/// (kubernetes/apiextensions-apiserver, `crd_finalizer.go`: changes of the condition `Terminating` alone are not
/// looked at). Any other change makes it look again.
///
/// # Errors
/// [`DeployError`] naming the definition.
pub(crate) async fn remove_definition(server: &Server, definition: &ObjectRef) -> Result<bool, DeployError> {
    if !server.delete(definition).await? {
        return Ok(false);
    }
    for attempt in 1..PATIENCE.as_secs() / STUCK.as_secs() {
        match server.wait_gone(definition, STUCK).await {
            Err(DeployError::NotInTime { .. }) => {}
            outcome => return outcome.map(|()| true),
        }
        let again = json!({"metadata": {"annotations": {AGAIN: attempt.to_string()}}});
        if !server.merge(definition, &again).await? {
            return Ok(true);
        }
    }
    match server.wait_gone(definition, STUCK).await {
        Err(DeployError::NotInTime { what, state, next, .. }) => {
            Err(DeployError::NotInTime { what, seconds: PATIENCE.as_secs(), state, next })
        }
        outcome => outcome.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::Fake;

    fn definition(fake: &Fake) -> ObjectRef {
        let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": DEFINITION,
            "metadata": {"name": "a.submariner.io", "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}});
        fake.put(object.clone());
        ObjectRef::of(&object).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_the_server_has_forgotten_is_brought_to_its_mind() {
        let fake = Fake::default();
        let place = definition(&fake);
        fake.forget_deletions(2);
        let start = Instant::now();
        assert!(remove_definition(&fake.server(), &place).await.unwrap());
        assert!(!fake.has(&place) && start.elapsed() <= STUCK * 2 + POLL * 4, "{:?}", start.elapsed());
        assert!(!remove_definition(&fake.server(), &place).await.unwrap(), "it was not there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_does_not_go_is_not_waited_for_for_ever() {
        let fake = Fake::default();
        let place = definition(&fake);
        fake.forget_deletions(u32::MAX);
        let start = Instant::now();
        let error = remove_definition(&fake.server(), &place).await.unwrap_err().to_string();
        assert!(error.contains("a.submariner.io did not go") && error.contains("120"), "{error}");
        assert!(start.elapsed() >= PATIENCE && start.elapsed() < PATIENCE * 2, "{:?}", start.elapsed());
    }

    #[test]
    fn an_object_with_more_than_was_asked_for_is_left_alone() {
        let found = json!({"a": {"b": 1, "c": 2}, "d": [1, 2], "status": {}});
        assert!(contains(&found, &json!({"a": {"b": 1}, "d": [1, 2]})));
        assert!(!contains(&found, &json!({"a": {"b": 2}})));
        assert!(!contains(&found, &json!({"d": [1]})));
        assert!(!contains(&found, &json!({"e": null})));
    }

    #[test]
    fn a_tally_counts_what_became_of_objects() {
        let mut tally = Tally::default();
        [Applied::Created, Applied::Unchanged, Applied::Unchanged]
            .iter()
            .for_each(|applied| tally.count(*applied));
        assert_eq!(tally.to_string(), "Objects: 1 created, 0 changed, 2 as they should be");
    }
}
