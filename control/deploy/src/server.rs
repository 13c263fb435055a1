//! One API server, spoken to by the places of objects: read, list, apply, delete, wait.
//!
//! Objects are JSON here: what is applied is generated, what is read is looked at in a few fields, and kinds of other
//! projects come along. Every request ends within [`REQUEST`], and errors say which server and which object.

#[cfg(test)]
pub(crate) mod fake;
mod journal;
mod managers;

use std::fmt;
use std::time::Duration;

use http::{Method, Request};
use serde_json::{Value, json};
use trieste_control::cause::innermost;

use self::journal::digest;
pub use self::journal::{Applied, Change, Journal};
pub use self::managers::{FIELD_MANAGER, OPERATOR_MANAGER};
use crate::error::DeployError;
use crate::object_ref::{ObjectRef, collection};

/// How long one answer may take.
const REQUEST: Duration = Duration::from_secs(30);

/// How often something is looked at again that is waited for.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// Objects per page of a list.
const PAGE: usize = 500;

/// Most objects of a list that we read: what is looked for is among far fewer.
const MOST: usize = 20_000;
/// Ours: the most pages of a list.
const MOST_PAGES: usize = 1_000;
/// Ours: the most characters of what a server says that are kept: it may be a page of HTML, or somebody's secret.
const MOST_REASON: usize = 512;

/// The versions of the Multi-Cluster Services API whose kinds we know: a server may serve either, or both.
pub(crate) const MULTI_CLUSTER_VERSIONS: [&str; 2] =
    ["multicluster.x-k8s.io/v1alpha1", "multicluster.x-k8s.io/v1beta1"];

/// An API server and what errors call it. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    client: kube::Client,
    name: String,
    force: bool,
    manager: &'static str,
    journal: Option<Journal>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    /// A server; its name is for errors, as in `cluster "east"`.
    pub fn new(client: kube::Client, name: impl Into<String>) -> Self {
        Self { client, name: name.into(), force: false, manager: FIELD_MANAGER, journal: None }
    }

    /// The same, taking over fields that others manage.
    #[must_use]
    pub fn forcing_conflicts(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// Makes the operator of it: fields are its own ([`OPERATOR_MANAGER`]), those that others have set to something else are
    /// taken over, and the journal says of which object that was so.
    #[must_use]
    pub fn for_operator(self, journal: Journal) -> Self {
        Self { manager: OPERATOR_MANAGER, journal: Some(journal), ..self }
    }

    /// Returns who writes, to server-side apply.
    pub(crate) const fn manager(&self) -> &'static str {
        self.manager
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads an object; `None` if it, its kind or its namespace is not there.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn find(&self, place: &ObjectRef) -> Result<Option<Value>, DeployError> {
        self.get(&place.path(), &format!("reading {place}")).await
    }

    /// Reads what is at a path; `None` if there is nothing.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn get(&self, path: &str, doing: &str) -> Result<Option<Value>, DeployError> {
        absent(self.call(Method::GET, path, None, doing).await)
    }

    /// Reads all objects of a kind, in one namespace or everywhere, that a selector chooses (a query such as
    /// `labelSelector=a%3Db`, or nothing). Empty if the server has no such kind.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Value>, DeployError> {
        Ok(self.list_if_served(api_version, kind, namespace, selector).await?.unwrap_or_default())
    }

    /// Reads all objects of a kind in the first of these versions that the server serves; empty if it serves none.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub(crate) async fn list_served(
        &self,
        api_versions: &[&str],
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Value>, DeployError> {
        for api_version in api_versions {
            if let Some(found) = self.list_if_served(api_version, kind, namespace, "").await? {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Reads all objects of a kind as [`Self::list`] does; `None` if the server has no such kind.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn list_if_served(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Option<Vec<Value>>, DeployError> {
        let path = collection(api_version, kind, namespace);
        let doing = format!("listing objects of kind {kind}");
        let (mut found, mut next, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = format!("{path}?limit={PAGE}&{selector}&continue={next}");
            let Some(mut list) = self.get(&page, &doing).await? else { return Ok(None) };
            if let Value::Array(items) = list["items"].take() {
                // Items of a list say neither version nor kind.
                found.extend(items.into_iter().map(|mut item| {
                    item["apiVersion"] = json!(api_version);
                    item["kind"] = json!(kind);
                    item
                }));
            }
            let token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            let is_last = token.is_empty() || token == next;
            next = token;
            pages += 1;
            // A server that gives out tokens for ever must not keep us.
            if is_last || found.len() >= MOST || pages >= MOST_PAGES {
                return Ok(Some(found));
            }
        }
    }

    /// Makes an object be as this one says (server-side apply), whether or not it is there.
    ///
    /// # Errors
    /// [`DeployError::Conflict`] if somebody else has set a field to another value, [`DeployError::Api`] otherwise.
    pub async fn apply(&self, object: &Value) -> Result<Applied, DeployError> {
        let Some(place) = ObjectRef::of(object) else {
            return Err(DeployError::refused(
                "an object without version, kind or name was generated",
                "this is a mistake in trieste, please report it",
            ));
        };
        let before = self.find(&place).await?;
        let mut conflicts = Vec::new();
        let after = match self.patch(&place, object, self.manager, self.force).await {
            Err(DeployError::Conflict { owners, .. }) if self.journal.is_some() => {
                conflicts = owners;
                self.patch(&place, object, self.manager, true).await?
            }
            outcome => outcome?,
        };
        if self.manager != FIELD_MANAGER && before.as_ref().is_some_and(managers::was_applied_by_command) {
            self.patch(&place, &managers::nothing_of(object), FIELD_MANAGER, false).await?;
        }
        // Of what has a generation, somebody's writing of the status in between is no change of ours.
        let version = |object: &Value| match &object["metadata"] {
            metadata if metadata["generation"].is_null() => metadata["resourceVersion"].clone(),
            metadata => json!([metadata["generation"], metadata["labels"], metadata["annotations"]]),
        };
        let applied = match before {
            None => Applied::Created,
            Some(before) if version(&before) == version(&after) => Applied::Unchanged,
            Some(_) => Applied::Changed,
        };
        if let Some(journal) = &self.journal {
            journal.note(Change { place, applied, conflicts, wanted: digest(object) });
        }
        Ok(applied)
    }

    /// Makes an object be as this one says, as [`Self::apply`], and takes no note of it: what was noted of it before stays the last
    /// word on whether somebody else has changed it.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) async fn apply_unnoted(&self, object: &Value) -> Result<(), DeployError> {
        let unnoted = Self { journal: None, force: self.force || self.journal.is_some(), ..self.clone() };
        unnoted.apply(object).await.map(drop)
    }

    /// Returns `true` if applying an object would change a part of the one that was found.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub(crate) async fn would_change(
        &self,
        object: &Value,
        found: &Value,
        part: &str,
    ) -> Result<bool, DeployError> {
        let Some(place) = ObjectRef::of(object) else { return Ok(false) };
        // What the command has applied and the operator does not want goes in a second step.
        if self.manager != FIELD_MANAGER && managers::was_applied_by_command(found) {
            return Ok(true);
        }
        // Whose fields they are is for the application itself.
        let path = format!("{}?fieldManager={}&force=true&dryRun=All", place.path(), self.manager);
        let body = Some(("application/apply-patch+yaml", object));
        let after = self.call(Method::PATCH, &path, body, &format!("trying out {place}")).await?;
        Ok(after.pointer(part) != found.pointer(part))
    }

    /// Applies an object under the name of this manager.
    async fn patch(
        &self,
        place: &ObjectRef,
        object: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, DeployError> {
        let path = format!("{}?fieldManager={manager}&force={force}", place.path());
        let body = Some(("application/apply-patch+yaml", object));
        self.call(Method::PATCH, &path, body, &format!("applying {place}")).await
    }

    /// Creates an object: `object` says where.
    ///
    /// # Errors
    /// [`DeployError::Api`], also if it is there.
    pub async fn create(&self, object: &Value) -> Result<Value, DeployError> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str();
        let path = format!(
            "{}?fieldManager={}",
            collection(text("apiVersion"), text("kind"), namespace),
            self.manager
        );
        let doing = format!("creating a {}", text("kind"));
        self.call(Method::POST, &path, Some(("application/json", object)), &doing).await
    }

    /// Merges a change into an object; `null` removes. `false` if the object is not there.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn merge(&self, place: &ObjectRef, change: &Value) -> Result<bool, DeployError> {
        let path = format!("{}?fieldManager={}", place.path(), self.manager);
        let body = Some(("application/merge-patch+json", change));
        let answer = self.call(Method::PATCH, &path, body, &format!("changing {place}")).await;
        absent(answer).map(|answer| answer.is_some())
    }

    /// Writes an object that was read, as a whole; `false` if somebody else has changed it since.
    ///
    /// # Errors
    /// [`DeployError::Api`], also if it is not there any more.
    pub(crate) async fn replace(&self, object: &Value) -> Result<bool, DeployError> {
        let Some(place) = ObjectRef::of(object) else {
            return Err(DeployError::refused(
                "an object without version, kind or name was read",
                "this is a mistake in trieste, please report it",
            ));
        };
        let path = format!("{}?fieldManager={}", place.path(), self.manager);
        let body = Some(("application/json", object));
        match self.call(Method::PUT, &path, body, &format!("changing {place}")).await {
            Ok(_) => Ok(true),
            Err(DeployError::Api { code: Some(409), .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks for the deletion of an object; `false` if it is not there. It may take a while to go.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn delete(&self, place: &ObjectRef) -> Result<bool, DeployError> {
        let path = format!("{}?propagationPolicy=Background", place.path());
        let answer = self.call(Method::DELETE, &path, None, &format!("deleting {place}")).await;
        absent(answer).map(|answer| answer.is_some())
    }

    /// Asks for the deletion of a set of pods that leaves them; one that is not there is no error.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub(crate) async fn delete_orphaning(&self, place: &ObjectRef) -> Result<(), DeployError> {
        let path = format!("{}?propagationPolicy=Orphan", place.path());
        let answer = self.call(Method::DELETE, &path, None, &format!("deleting {place}")).await;
        absent(answer).map(drop)
    }

    /// Deletes a pod whose node cannot say that it has ended.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub(crate) async fn forget(&self, pod: &ObjectRef) -> Result<(), DeployError> {
        let path = format!("{}?gracePeriodSeconds=0", pod.path());
        let answer = self.call(Method::DELETE, &path, None, &format!("deleting {pod}")).await;
        absent(answer).map(drop)
    }

    /// Waits until an object has gone, or another one has taken its place.
    ///
    /// # Errors
    /// [`DeployError::NotInTime`] if it does not go, with what holds it; [`DeployError::Api`].
    pub async fn wait_gone(&self, place: &ObjectRef, within: Duration) -> Result<(), DeployError> {
        let until = tokio::time::Instant::now() + within;
        let mut uid = None;
        loop {
            let Some(object) = self.find(place).await? else { return Ok(()) };
            let found = object["metadata"]["uid"].clone();
            if uid.get_or_insert_with(|| found.clone()) != &found {
                return Ok(());
            }
            if tokio::time::Instant::now() >= until {
                return Err(DeployError::NotInTime {
                    what: format!("{place} did not go"),
                    seconds: within.as_secs(),
                    state: vec![format!("its finalizers: {}", object["metadata"]["finalizers"])],
                    next: format!(
                        "look at it with kubectl get {} -o yaml, then repeat the command",
                        kubectl_name(place)
                    ),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether the server says that we may do this.
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn is_allowed(
        &self,
        verb: &str,
        place: &ObjectRef,
        resource: &str,
    ) -> Result<bool, DeployError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": place.group(), "resource": resource, "namespace": place.namespace,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body = Some(("application/json", &review));
        let answer = self.call(Method::POST, path, body, "asking for our rights").await?;
        Ok(answer["status"]["allowed"] == json!(true))
    }

    /// The server's version as (major, minor, whole text).
    ///
    /// # Errors
    /// [`DeployError::Api`].
    pub async fn version(&self) -> Result<(u32, u32, String), DeployError> {
        let version = self.call(Method::GET, "/version", None, "asking for the version").await?;
        let number = |field: &str| {
            let text = version[field].as_str().unwrap_or_default();
            text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
        };
        let text = version["gitVersion"].as_str().unwrap_or_default();
        Ok((number("major"), number("minor"), text.to_owned()))
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
        doing: &str,
    ) -> Result<Value, DeployError> {
        let failed = |code, reason: String| DeployError::Api {
            server: self.name.clone(),
            doing: doing.to_owned(),
            code,
            reason: reason.chars().take(MOST_REASON).collect(),
        };
        let mut request = Request::builder().method(method).uri(path);
        if let Some((content_type, _)) = body {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let bytes = body.map_or_else(Vec::new, |(_, value)| value.to_string().into_bytes());
        let request = request.body(bytes).map_err(|error| failed(None, error.to_string()))?;
        match tokio::time::timeout(REQUEST, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => match owners(&status) {
                Some((object, owners)) => {
                    let object = doing.strip_prefix("applying ").map_or(object, str::to_owned);
                    Err(DeployError::Conflict { server: self.name.clone(), object, owners })
                }
                None => Err(failed(Some(status.code), status.message.clone())),
            },
            Ok(Err(error)) => Err(failed(None, innermost(&error))),
            Err(_) => Err(failed(None, format!("no answer within {} seconds", REQUEST.as_secs()))),
        }
    }
}

/// What a person would type to name an object to kubectl.
pub(crate) fn kubectl_name(place: &ObjectRef) -> String {
    let namespace = place.namespace.as_ref().map_or_else(String::new, |name| format!("-n {name} "));
    format!("{namespace}{} {}", place.kind.to_lowercase(), place.name)
}

fn absent(answer: Result<Value, DeployError>) -> Result<Option<Value>, DeployError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who owns which field, if that is why the server refused: the object's name and one text per field.
fn owners(status: &kube::core::Status) -> Option<(String, Vec<String>)> {
    let details = status.details.as_ref()?;
    let causes = details.causes.iter().filter(|cause| cause.reason == "FieldManagerConflict");
    let owners: Vec<String> =
        causes.map(|cause| format!("{} ({})", cause.field, cause.message)).take(8).collect();
    (!owners.is_empty()).then(|| (format!("{} {}", details.kind, details.name), owners))
}
