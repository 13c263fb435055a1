//! Credentials for OpenStack, from a `clouds.yaml`.
//!
//! The fields are those of <https://docs.openstack.org/openstacksdk/latest/user/config/configuration.html>, the bodies those of
//! <https://docs.openstack.org/api-ref/identity/v3/#authentication-and-token-management>.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::CloudError;

/// The entry that upstream's tool uses where none is named.
pub const DEFAULT_ENTRY: &str = "openstack";
/// The ID that Keystone gives the domain which a new installation has (`[identity] default_domain_id`).
const DEFAULT_DOMAIN: &str = "default";
/// Where errors lead.
const CHECK_ENTRY: &str =
    "compare the entry with the clouds.yaml that OpenStack's dashboard offers under API Access";

/// One entry of a `clouds.yaml`.
#[derive(Clone, PartialEq)]
pub struct Credentials {
    entry: String,
    auth_url: String,
    /// Keystone's `identity`, which has the secret.
    identity: Value,
    /// The project that is named, if one is; application credentials bring theirs along.
    scope: Option<Value>,
    region: Option<String>,
    interface: String,
    cacert: Option<String>,
    authorities: Option<Vec<u8>>,
    is_scoped_by_itself: bool,
}

// Written by hand: what Keystone is sent has a secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("entry", &self.entry)
            .field("auth_url", &self.auth_url)
            .field("region", &self.region)
            .field("interface", &self.interface)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads an entry of the text of a `clouds.yaml`.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if the entry is not there, or lacks what it needs. No error has anything of the text but names.
    pub fn from_clouds(text: &str, entry: &str) -> Result<Self, CloudError> {
        // What the parser reports may quote lines, and lines may have passwords.
        let clouds: Value = serde_saphyr::from_str(text).map_err(|_| {
            CloudError::credentials("the clouds.yaml is no valid YAML", "correct it, or download it again")
        })?;
        let found = clouds["clouds"].as_object().and_then(|clouds| clouds.get(entry));
        let Some(found) = found.and_then(Value::as_object) else {
            let names = clouds["clouds"].as_object().map(|clouds| clouds.keys().cloned().collect::<Vec<_>>());
            let names = names.unwrap_or_default().join(", ");
            let names = if names.is_empty() { "no entry at all".to_owned() } else { names };
            return Err(CloudError::credentials(
                format!("the clouds.yaml has no entry {entry}; it has {names}"),
                "name one with --cloud-entry",
            ));
        };
        Fields { entry, outer: found, auth: found.get("auth").and_then(Value::as_object) }.read()
    }

    /// Returns the region that the entry names.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Returns the file with the certificate authorities of the cloud, if the entry names one.
    pub fn cacert(&self) -> Option<&str> {
        self.cacert.as_deref()
    }

    /// Believes the certificate authorities of a PEM text, whatever file the entry names.
    #[must_use]
    pub fn with_authorities(self, pem: Vec<u8>) -> Self {
        Self { authorities: Some(pem), ..self }
    }

    /// Returns the PEM text with the certificate authorities of the cloud, if one was given.
    pub fn authorities(&self) -> Option<&[u8]> {
        self.authorities.as_deref()
    }

    /// Returns the entry's name.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// Returns Keystone's address, which ends in `/v3`.
    pub fn auth_url(&self) -> &str {
        &self.auth_url
    }

    /// Returns which of the catalogue's addresses are used: `public`, `internal` or `admin`.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the body of the question for a token of a project: the one that is named here, or the entry's.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if neither names one.
    pub(crate) fn question(&self, project_id: Option<&str>) -> Result<Value, CloudError> {
        let identity = &self.identity;
        if self.is_scoped_by_itself {
            return Ok(json!({"auth": {"identity": identity}}));
        }
        let named = project_id.map(|id| json!({"id": id}));
        let Some(project) = named.or_else(|| self.scope.clone()) else {
            return Err(CloudError::credentials(
                format!("entry {} names no project", self.entry),
                "name it with --project-id, or as project_id or project_name in the clouds.yaml",
            ));
        };
        Ok(json!({"auth": {"identity": identity, "scope": {"project": project}}}))
    }
}

/// An entry's fields.
struct Fields<'y> {
    entry: &'y str,
    outer: &'y Map<String, Value>,
    auth: Option<&'y Map<String, Value>>,
}

impl Fields<'_> {
    fn read(&self) -> Result<Credentials, CloudError> {
        let auth_url = auth_url(&self.needed("auth_url")?)?;
        let kind = self.text(&["auth_type"]).unwrap_or_default();
        let by_application = self.text(&["application_credential_secret"]).is_some();
        let identity = match kind.as_str() {
            "v3applicationcredential" => self.application_credential()?,
            "" if by_application => self.application_credential()?,
            "" | "password" | "v3password" => self.password()?,
            other => {
                return Err(CloudError::credentials(
                    format!("entry {} has auth_type {other}, which is not supported", self.entry),
                    "use an application credential (openstack application credential create) or a password",
                ));
            }
        };
        // `endpoint_type` is the older name, and its values may have the suffix of the catalogue's older form.
        let interface = self.text(&["interface", "endpoint_type"]).unwrap_or_else(|| "public".to_owned());
        Ok(Credentials {
            entry: self.entry.to_owned(),
            auth_url,
            is_scoped_by_itself: identity["application_credential"].is_object(),
            identity,
            scope: self.project(),
            region: self.text(&["region_name"]),
            interface: interface.trim_end_matches("URL").to_owned(),
            cacert: self.text(&["cacert"]),
            authorities: None,
        })
    }

    fn password(&self) -> Result<Value, CloudError> {
        let password = self.needed("password")?;
        let user = match self.text(&["user_id"]) {
            Some(id) => json!({"id": id, "password": password}),
            None => {
                json!({"name": self.needed("username")?, "domain": self.domain("user"), "password": password})
            }
        };
        Ok(json!({"methods": ["password"], "password": {"user": user}}))
    }

    fn application_credential(&self) -> Result<Value, CloudError> {
        let secret = self.needed("application_credential_secret")?;
        let credential = match self.text(&["application_credential_id"]) {
            Some(id) => json!({"id": id, "secret": secret}),
            None => {
                let name = self.needed("application_credential_name")?;
                let user = match self.text(&["user_id"]) {
                    Some(id) => json!({"id": id}),
                    None => json!({"name": self.needed("username")?, "domain": self.domain("user")}),
                };
                json!({"name": name, "secret": secret, "user": user})
            }
        };
        Ok(json!({"methods": ["application_credential"], "application_credential": credential}))
    }

    fn project(&self) -> Option<Value> {
        if let Some(id) = self.text(&["project_id", "tenant_id"]) {
            return Some(json!({"id": id}));
        }
        let name = self.text(&["project_name", "tenant_name"])?;
        Some(json!({"name": name, "domain": self.domain("project")}))
    }

    /// Returns the domain of the user or of the project.
    fn domain(&self, of: &str) -> Value {
        let (id, name) = (format!("{of}_domain_id"), format!("{of}_domain_name"));
        let by_id = |fields: &[&str]| self.text(fields).map(|id| json!({"id": id}));
        let by_name = |fields: &[&str]| self.text(fields).map(|name| json!({"name": name}));
        let own = by_id(&[&id]).or_else(|| by_name(&[&name]));
        let shared = || by_id(&["domain_id"]).or_else(|| by_name(&["domain_name"]));
        let fallback = || by_id(&["default_domain"]).unwrap_or_else(|| json!({"id": DEFAULT_DOMAIN}));
        own.or_else(shared).unwrap_or_else(fallback)
    }

    /// Returns the first of these fields that stands in `auth`, or beside it.
    fn text(&self, names: &[&str]) -> Option<String> {
        let found =
            |name: &&str| self.auth.and_then(|auth| auth.get(*name)).or_else(|| self.outer.get(*name));
        names.iter().filter_map(found).find_map(|value| match value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            // A password of digits is a number to YAML.
            Value::Number(number) => Some(number.to_string()),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        })
    }

    fn needed(&self, name: &str) -> Result<String, CloudError> {
        self.text(&[name]).ok_or_else(|| {
            CloudError::credentials(
                format!("entry {} of the clouds.yaml has no {name}", self.entry),
                CHECK_ENTRY,
            )
        })
    }
}

/// Returns Keystone's address in version 3, which `auth_url` names with or without its version.
fn auth_url(named: &str) -> Result<String, CloudError> {
    let base = named.trim_end_matches('/');
    let base = base.strip_suffix("/v3").or_else(|| base.strip_suffix("/v2.0")).unwrap_or(base);
    let url = format!("{}/v3", base.trim_end_matches('/'));
    let is_url = url.parse::<http::Uri>().is_ok_and(|uri| {
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        matches!(uri.scheme_str(), Some("https" | "http")) && uri.host().is_some() && !has_user
    });
    if is_url && !base.contains(['?', '#']) {
        return Ok(url);
    }
    Err(CloudError::credentials("auth_url in the clouds.yaml is no URL of http or https", CHECK_ENTRY))
}
