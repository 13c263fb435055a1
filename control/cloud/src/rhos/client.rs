//! A token of Keystone's, and questions to Neutron with it.

use std::collections::HashSet;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Uri};
use serde_json::Value;
use tokio::sync::Mutex;

use super::credentials::Credentials;
use crate::CloudError;
use crate::exchange::Exchange;
use crate::form::encode;
use crate::rest::{Answer, Question, Rest, secret_header};

/// Ours: how many pages of one list are read.
const MOST_PAGES: usize = 1_000;
/// The header in which Keystone gives a token, and the one in which services want it.
const GIVEN: &str = "x-subject-token";
const WANTED: HeaderName = HeaderName::from_static("x-auth-token");
/// The header for a version that has to be the present one.
const IF_MATCH: HeaderName = http::header::IF_MATCH;

/// OpenStack, for one project in one region.
#[derive(Debug)]
pub(crate) struct Client<E> {
    rest: Rest<E>,
    credentials: Credentials,
    project_id: Option<String>,
    region: Option<String>,
    session: Mutex<Option<Arc<Session>>>,
}

/// A token, and what came with it.
#[derive(Debug)]
struct Session {
    token: (HeaderName, HeaderValue),
    /// Neutron's address, without a version and without a slash at its end.
    network: String,
    project: String,
}

/// One question to Neutron.
#[derive(Debug, Clone)]
pub(crate) struct ToNetwork<'q> {
    /// The method.
    pub(crate) method: Method,
    /// What stands behind `/v2.0/`.
    pub(crate) path: &'q str,
    /// Its body.
    pub(crate) body: Option<&'q Value>,
    /// The revision that the object has to have.
    pub(crate) revision: Option<u64>,
    /// What it is for.
    pub(crate) purpose: &'q str,
}

impl<E: Exchange> Client<E> {
    /// Takes credentials; asks for no token yet.
    pub(crate) fn new(
        http: E,
        credentials: Credentials,
        project_id: Option<String>,
        region: Option<String>,
    ) -> Self {
        let uri: Option<Uri> = credentials.auth_url().parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().to_owned();
        let region = region.or_else(|| credentials.region().map(str::to_owned));
        let within = region.as_ref().map_or_else(String::new, |region| format!(", region {region}"));
        let rest = Rest::new(http, format!("OpenStack at {host}{within}"));
        Self { rest, credentials, project_id, region, session: Mutex::new(None) }
    }

    /// Returns what errors call the cloud.
    pub(crate) fn name(&self) -> &str {
        self.rest.name()
    }

    /// Returns the project's ID.
    pub(crate) async fn project(&self) -> Result<String, CloudError> {
        Ok(self.session().await?.project.clone())
    }

    /// Asks Neutron; once more, with a new token, if it does not take the one that there is.
    pub(crate) async fn ask(&self, question: ToNetwork<'_>) -> Result<Answer, CloudError> {
        let session = self.session().await?;
        match self.ask_with(&session, &question).await {
            Err(error) if error.has_status(401) => {
                let mut held = self.session.lock().await;
                if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &session)) {
                    *held = None;
                }
                drop(held);
                self.ask_with(&*self.session().await?, &question).await
            }
            outcome => outcome,
        }
    }

    async fn ask_with(&self, session: &Session, question: &ToNetwork<'_>) -> Result<Answer, CloudError> {
        let url = format!("{}/v2.0/{}", session.network, question.path);
        let mut headers = vec![session.token.clone()];
        // https://docs.openstack.org/api-ref/network/v2/#revisions: with this header an update of another revision is refused.
        if let Some(revision) = question.revision
            && let Ok(value) = HeaderValue::from_str(&format!("revision_number={revision}"))
        {
            headers.push((IF_MATCH, value));
        }
        let asked = match question.body {
            Some(body) => Question::json(question.method.clone(), &url, body, question.purpose),
            None => Question { method: question.method.clone(), ..Question::get(&url, question.purpose) },
        };
        self.rest.ask(asked, &headers).await
    }

    /// Reads a list, page by page (<https://docs.openstack.org/api-ref/network/v2/#pagination>): what stands under `key`.
    pub(crate) async fn list(
        &self,
        collection: &str,
        query: &str,
        purpose: &str,
    ) -> Result<Vec<Value>, CloudError> {
        let key = collection.replace('-', "_");
        let (links, mut found) = (format!("{key}_links"), Vec::new());
        let (mut query, mut seen) = (query.to_owned(), HashSet::new());
        for _ in 0..MOST_PAGES {
            if !seen.insert(query.clone()) {
                break;
            }
            let path = format!("{collection}?{query}");
            let asked = ToNetwork { method: Method::GET, path: &path, body: None, revision: None, purpose };
            let mut body = self.ask(asked).await?.body;
            let Some(Value::Array(items)) = body.get_mut(&key).map(Value::take) else {
                return Err(self.incomplete(purpose, &key));
            };
            found.extend(items);
            // Of the next page's address only the query counts: proxies are known to leave a wrong host in it.
            let mut rest = body[&links].as_array().into_iter().flatten();
            let next = rest.find(|link| link["rel"] == "next").and_then(|link| link["href"].as_str());
            let Some((_, next)) = next.and_then(|next| next.split_once('?')) else { break };
            query = next.to_owned();
        }
        Ok(found)
    }

    /// Returns the error of an answer of success without what was asked for, such as a proxy's page.
    pub(crate) fn incomplete(&self, purpose: &str, key: &str) -> CloudError {
        CloudError::Api {
            service: self.name().to_owned(),
            operation: purpose.to_owned(),
            status: None,
            code: "INCOMPLETE".to_owned(),
            reason: format!(
                "the answer has no `{key}`: see whether something between here and Neutron answers in its stead"
            ),
        }
    }

    async fn session(&self) -> Result<Arc<Session>, CloudError> {
        let mut held = self.session.lock().await;
        if let Some(session) = held.as_ref() {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.sign_in().await?);
        *held = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn sign_in(&self) -> Result<Session, CloudError> {
        let url = format!("{}/auth/tokens", self.credentials.auth_url());
        let body = self.credentials.question(self.project_id.as_deref())?;
        let asked = Question::json(Method::POST, &url, &body, "asking Keystone for a token");
        let answer = self.rest.ask(asked, &[]).await.map_err(|error| match error.has_status(401) {
            true => CloudError::credentials(
                format!("Keystone does not accept the credentials of entry {}", self.credentials.entry()),
                "check user, password and project, or whether the application credential has expired",
            ),
            false => error,
        })?;
        let given = answer.headers.get(GIVEN).and_then(|token| token.to_str().ok());
        let Some(given) = given else {
            return Err(self.unusable("Keystone answered without a token"));
        };
        let token = secret_header(WANTED, given)?;
        let body = &answer.body["token"];
        let project = body["project"]["id"].as_str().unwrap_or_default().to_owned();
        if project.is_empty() {
            return Err(self.unusable("Keystone gave a token of no project"));
        }
        if let Some(named) = &self.project_id
            && *named != project
        {
            let text = format!("the credentials are of project {project}, and --project-id names {named}");
            return Err(self.unusable(&text));
        }
        let network = self.network(&body["catalog"])?;
        Ok(Session { token, network, project })
    }

    /// Returns Neutron's address in a catalogue.
    fn network(&self, catalogue: &Value) -> Result<String, CloudError> {
        let services = catalogue.as_array().into_iter().flatten();
        let all = services.filter(|service| service["type"] == "network");
        let all = all.flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
        let of_interface = |endpoint: &&Value| endpoint["interface"] == self.credentials.interface();
        let region = |endpoint: &Value| {
            let named = endpoint["region_id"].as_str().or_else(|| endpoint["region"].as_str());
            named.unwrap_or_default().to_owned()
        };
        let mut all: Vec<&Value> = all.filter(of_interface).collect();
        if let Some(wanted) = &self.region {
            all.retain(|endpoint| region(endpoint) == *wanted || endpoint["region"] == wanted.as_str());
        }
        let mut regions: Vec<String> = all.iter().map(|endpoint| region(endpoint)).collect();
        regions.sort();
        regions.dedup();
        if regions.len() > 1 {
            return Err(CloudError::credentials(
                format!("the cloud has the regions {}, and none was chosen", regions.join(", ")),
                "name one with --region, or as region_name in the clouds.yaml",
            ));
        }
        let Some(url) = all.first().and_then(|endpoint| endpoint["url"].as_str()) else {
            let within =
                self.region.as_deref().map_or_else(String::new, |region| format!(" in region {region}"));
            let interface = self.credentials.interface();
            return Err(
                self.unusable(&format!("the catalogue has no {interface} address of Neutron{within}"))
            );
        };
        if self.credentials.auth_url().starts_with("https:") && !url.starts_with("https:") {
            return Err(self
                .unusable("the catalogue has an address of Neutron without TLS, and the token goes there"));
        }
        let url = url.trim_end_matches('/');
        Ok(url.strip_suffix("/v2.0").unwrap_or(url).to_owned())
    }

    fn unusable(&self, what: &str) -> CloudError {
        let entry = self.credentials.entry();
        CloudError::credentials(
            format!("{what} (entry {entry})"),
            "check auth_url, project, region_name and interface in the clouds.yaml",
        )
    }
}

/// Returns `true` if Neutron refused with this type of error.
pub(crate) fn has_code(error: &CloudError, wanted: &str) -> bool {
    matches!(error, CloudError::Api { code, .. } if code == wanted)
}

/// Returns a query in which a field has one of these values.
pub(crate) fn one_of<'v>(field: &'v str, values: impl IntoIterator<Item = &'v str>) -> String {
    encode(values.into_iter().map(|value| (field, value)))
}
