//! Where AWS's credentials come from: flags, environment, files, a pod's account, the machine's own.
//!
//! The order is that of AWS's own tools ("Standardized credential providers", AWS SDKs and Tools Reference Guide): keys in the
//! environment, a web identity, a profile of the shared files, the instance's role.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use http::{Method, Request};
use jiff::Timestamp;
use serde_json::Value;

use super::form::form_request;
use super::xml::Element;
use crate::CloudError;
use crate::exchange::Exchange;
use crate::form::encode;

/// Ours: how long before its end a session is replaced by a new one, in seconds.
const BEFORE_END: i64 = 300;
/// The instance metadata service (IMDSv2, "Use the Instance Metadata Service", EC2 User Guide).
const METADATA: &str = "http://169.254.169.254";
/// What to do without credentials.
const WHERE: &str = "give --credentials FILE and --profile NAME, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for a role, \
                     SSO or a process: eval \"$(aws configure export-credentials --format env)\"); in a Fabric, a Secret with \
                     aws_access_key_id and aws_secret_access_key";

/// Keys that requests are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The public half.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: String,
    /// The token of a session; `None` for keys of a user.
    pub session_token: Option<String>,
    /// When the session ends.
    pub expires: Option<Timestamp>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Where keys come from.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// These.
    Keys(Keys),
    /// A pod's token, which STS exchanges for the keys of a role (IAM roles for service accounts).
    WebIdentity {
        /// The file with the token.
        token: PathBuf,
        /// The role.
        role: String,
    },
    /// The role of the machine that this runs on.
    Instance,
}

/// What the environment and files name.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where keys come from.
    pub credentials: Credentials,
    /// The region of environment or profile.
    pub region: Option<String>,
}

impl Credentials {
    /// Finds credentials where AWS's tools find them. `variable` reads the environment; a file or profile that is named counts
    /// before everything else, and its lack is an error.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if what is named is not there or has no keys.
    pub fn find(
        file: Option<&Path>,
        profile: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Found, CloudError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let is_given = file.is_some() || profile.is_some();
        if !is_given && let Some(credentials) = of_environment(&variable) {
            return Ok(Found { credentials, region });
        }
        let named = profile.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
        let is_named = file.is_some() || named.is_some();
        let name = named.unwrap_or_else(|| "default".to_owned());
        let home = variable("HOME").map(PathBuf::from);
        let in_home = |file: &str| home.as_ref().map(|home| home.join(".aws").join(file));
        let of = |name: &str, file: &str| variable(name).map(PathBuf::from).or_else(|| in_home(file));
        let path = file.map(Path::to_path_buf).or_else(|| of("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
        let text = match path.as_ref().map(|path| (path, std::fs::read_to_string(path))) {
            Some((path, Err(error))) if file.is_some() => {
                let what = format!("cannot read AWS credentials from {}: {error}", path.display());
                return Err(CloudError::credentials(what, WHERE));
            }
            Some((_, text)) => text.unwrap_or_default(),
            None => String::new(),
        };
        let config = of("AWS_CONFIG_FILE", "config").and_then(|path| std::fs::read_to_string(path).ok());
        let config = section(&config.unwrap_or_default(), &[&format!("profile {name}"), &name]);
        let own = section(&text, &[&name]);
        let region = region.or_else(|| config.get("region").cloned()).or_else(|| own.get("region").cloned());
        // The keys of one file, never half of each.
        let found = [&own, &config].into_iter().find_map(|fields| keys(|name| fields.get(name).cloned()));
        if let Some(keys) = found {
            return Ok(Found { credentials: Self::Keys(keys), region });
        }
        let is_elsewhere = |fields: &BTreeMap<String, String>| {
            ["role_arn", "credential_process", "sso_session", "sso_start_url"]
                .iter()
                .any(|key| fields.contains_key(*key))
        };
        if is_named || is_elsewhere(&own) || is_elsewhere(&config) {
            let shown = path.map(|path| path.display().to_string()).unwrap_or_default();
            let what =
                format!("the profile {name} of {shown} has no aws_access_key_id and aws_secret_access_key");
            return Err(CloudError::credentials(what, WHERE));
        }
        Ok(Found { credentials: Self::Instance, region })
    }

    /// Makes credentials of the entries of a Secret (`aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`).
    pub fn of_secret(entry: impl Fn(&str) -> Option<String>) -> Option<Self> {
        keys(entry).map(Self::Keys)
    }

    /// Returns keys that are valid for a while; `sts` is the URL of the token service.
    pub(super) async fn keys(
        &self,
        http: &impl Exchange,
        sts: &str,
        now: Timestamp,
    ) -> Result<Keys, CloudError> {
        match self {
            Self::Keys(keys) => Ok(keys.clone()),
            Self::WebIdentity { token, role } => of_web_identity(http, sts, token, role, now).await,
            Self::Instance => of_instance(http).await,
        }
    }
}

impl Keys {
    /// Returns `true` if they may be used at this moment.
    pub(super) fn are_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|end| end.as_second() - now.as_second() > BEFORE_END)
    }
}

fn of_environment(variable: &impl Fn(&str) -> Option<String>) -> Option<Credentials> {
    if let Some(keys) = keys(|name| variable(&name.to_uppercase())) {
        return Some(Credentials::Keys(keys));
    }
    let token = variable("AWS_WEB_IDENTITY_TOKEN_FILE")?.into();
    Some(Credentials::WebIdentity { token, role: variable("AWS_ROLE_ARN")? })
}

fn keys(field: impl Fn(&str) -> Option<String>) -> Option<Keys> {
    let field =
        |name: &str| field(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    Some(Keys {
        access_key_id: field("aws_access_key_id")?,
        secret_access_key: field("aws_secret_access_key")?,
        session_token: field("aws_session_token"),
        expires: None,
    })
}

/// Reads the first section of one of these names: lines `key = value` below `[name]`.
fn section(text: &str, names: &[&str]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = names.contains(&name.trim());
        } else if is_inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            fields.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    fields
}

async fn of_web_identity(
    http: &impl Exchange,
    sts: &str,
    file: &Path,
    role: &str,
    now: Timestamp,
) -> Result<Keys, CloudError> {
    let token = tokio::fs::read_to_string(file).await.map_err(|error| {
        CloudError::credentials(
            format!("cannot read the pod's token for AWS from {}: {error}", file.display()),
            WHERE,
        )
    })?;
    let name = format!("trieste-{}", now.as_second());
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role),
        ("RoleSessionName", &name),
        ("WebIdentityToken", token.trim()),
    ];
    let refused = |what: String| {
        CloudError::credentials(
            format!("cannot take on the role {role}: {what}"),
            "see to the role's trust in the pod's account",
        )
    };
    let request = form_request(sts, encode(form).into_bytes()).map_err(|error| refused(error.to_string()))?;
    let answer = http.send(request).await.map_err(refused)?;
    let text = String::from_utf8_lossy(answer.body());
    let root = Element::parse(&text).map_err(|error| refused(format!("{}: {error}", answer.status())))?;
    let field =
        |name: &str| root.find("Credentials").map(|found| found.text(name).to_owned()).unwrap_or_default();
    let (id, secret) = (field("AccessKeyId"), field("SecretAccessKey"));
    if !answer.status().is_success() || id.is_empty() {
        let reason =
            root.find("Error").map(|error| format!("{}: {}", error.text("Code"), error.text("Message")));
        return Err(refused(reason.unwrap_or_else(|| answer.status().to_string())));
    }
    Ok(Keys {
        access_key_id: id,
        secret_access_key: secret,
        session_token: Some(field("SessionToken")).filter(|token| !token.is_empty()),
        expires: field("Expiration").parse().ok(),
    })
}

async fn of_instance(http: &impl Exchange) -> Result<Keys, CloudError> {
    let missing = |why: String| {
        CloudError::credentials(
            format!("there are no AWS credentials, and this machine has no role ({why})"),
            WHERE,
        )
    };
    let ask = async |method: Method, path: &str, header: (&str, String)| {
        let request =
            Request::builder().method(method).uri(format!("{METADATA}{path}")).header(header.0, header.1);
        let request = request.body(Vec::new()).map_err(|error| missing(error.to_string()))?;
        // Elsewhere nobody answers at that address.
        let answer = tokio::time::timeout(std::time::Duration::from_secs(3), http.send(request)).await;
        let answer = answer.map_err(|_| missing("no answer".to_owned()))?.map_err(missing)?;
        if !answer.status().is_success() {
            return Err(missing(answer.status().to_string()));
        }
        Ok(String::from_utf8_lossy(answer.body()).trim().to_owned())
    };
    let seconds = ("x-aws-ec2-metadata-token-ttl-seconds", "300".to_owned());
    let token = ask(Method::PUT, "/latest/api/token", seconds).await?;
    let with_token = || ("x-aws-ec2-metadata-token", token.clone());
    let roles = "/latest/meta-data/iam/security-credentials/";
    let listed = ask(Method::GET, roles, with_token()).await?;
    let role = listed.lines().next().unwrap_or_default();
    let text = ask(Method::GET, &format!("{roles}{role}"), with_token()).await?;
    let found: Value = serde_json::from_str(&text).map_err(|error| missing(error.to_string()))?;
    let field = |name: &str| found[name].as_str().map(str::to_owned);
    let (Some(access_key_id), Some(secret_access_key)) = (field("AccessKeyId"), field("SecretAccessKey"))
    else {
        return Err(missing(field("Code").unwrap_or_default()));
    };
    let expires = field("Expiration").and_then(|end| end.parse().ok());
    Ok(Keys { access_key_id, secret_access_key, session_token: field("Token"), expires })
}
