//! With which rights Azure is asked, and where it is.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use crate::CloudError;

/// Where Azure's public cloud gives tokens, and where its Resource Manager is.
const LOGIN: &str = "https://login.microsoftonline.com";
const MANAGEMENT: &str = "https://management.azure.com";

/// Who asks, for which subscription, and in which of Azure's clouds.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The subscription; empty where the one of the cluster's machines is meant.
    pub subscription: String,
    /// Who asks.
    pub identity: Identity,
    /// Where tokens are given: the address of Microsoft Entra ID, without the tenant.
    pub login: String,
    /// Where the Resource Manager is.
    pub management: String,
}

/// Who asks.
#[derive(Clone)]
pub enum Identity {
    /// A service principal with a secret.
    Secret {
        /// Its tenant.
        tenant: String,
        /// Its client.
        client: String,
        /// Its secret.
        secret: String,
    },
    /// A service principal that trusts the tokens of somebody else, such as a cluster's (workload identity).
    Federated {
        /// Its tenant.
        tenant: String,
        /// Its client.
        client: String,
        /// The file with such a token, which is read anew for each of Azure's.
        token_file: PathBuf,
    },
    /// The managed identity of the machine on which this runs.
    Managed {
        /// Which one of several; `None` is the machine's own.
        client: Option<String>,
    },
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret { tenant, client, secret: _ } => f
                .debug_struct("Secret")
                .field("tenant", tenant)
                .field("client", client)
                .finish_non_exhaustive(),
            Self::Federated { tenant, client, token_file } => f
                .debug_struct("Federated")
                .field("tenant", tenant)
                .field("client", client)
                .field("token_file", token_file)
                .finish(),
            Self::Managed { client } => f.debug_struct("Managed").field("client", client).finish(),
        }
    }
}

impl Credentials {
    /// Returns credentials for Azure's public cloud.
    pub fn new(subscription: impl Into<String>, identity: Identity) -> Self {
        Self {
            subscription: subscription.into(),
            identity,
            login: LOGIN.to_owned(),
            management: MANAGEMENT.to_owned(),
        }
    }

    /// Returns the credentials of an authorization file, as `az ad sp create-for-rbac --sdk-auth` writes it.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if it is none, or lacks something.
    pub fn from_auth_file(text: &str) -> Result<Self, CloudError> {
        let next = "write the file with az ad sp create-for-rbac --sdk-auth, and name it with --auth-file";
        let wrong = |what: &str| CloudError::credentials(format!("the authorization file {what}"), next);
        // The parser's own words may quote the file.
        let file: Value = serde_json::from_str(text).map_err(|_| wrong("is not JSON"))?;
        let field = |name: &str| {
            let text = file[name].as_str().map(str::trim).filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| wrong(&format!("has no `{name}`")))
        };
        let mut credentials = Self::from_parts(
            field("subscriptionId")?,
            field("clientId")?,
            field("clientSecret")?,
            field("tenantId")?,
        )?;
        if let Ok(login) = field("activeDirectoryEndpointUrl") {
            credentials.login = address(&login)?;
        }
        if let Ok(management) = field("resourceManagerEndpointUrl") {
            credentials.management = address(&management)?;
        }
        Ok(credentials)
    }

    /// Returns the credentials of a service principal with a secret, in Azure's public cloud: what OpenShift's Secret
    /// `azure-credentials` has as `azure_subscription_id`, `azure_client_id`, `azure_client_secret` and `azure_tenant_id`.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if something is empty, or the tenant can be no part of an address.
    pub fn from_parts(
        subscription: impl Into<String>,
        client: impl Into<String>,
        secret: impl Into<String>,
        tenant: impl Into<String>,
    ) -> Result<Self, CloudError> {
        let trimmed = |text: String| text.trim().to_owned();
        let (subscription, client) = (trimmed(subscription.into()), trimmed(client.into()));
        let (secret, tenant) = (trimmed(secret.into()), trimmed(tenant.into()));
        for (what, text) in
            [("subscription", &subscription), ("client ID", &client), ("client secret", &secret)]
        {
            if text.is_empty() {
                return Err(CloudError::credentials(
                    format!("Azure's credentials have no {what}"),
                    "add it to the Secret or file that has the others",
                ));
            }
        }
        check_part("subscription", &subscription)?;
        check_part("tenant", &tenant)?;
        Ok(Self::new(subscription, Identity::Secret { tenant, client, secret }))
    }

    /// Returns the credentials of workload identity: what `AZURE_TENANT_ID`, `AZURE_CLIENT_ID` and `AZURE_FEDERATED_TOKEN_FILE` name.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if the tenant can be no part of an address.
    pub fn from_federated(
        subscription: impl Into<String>,
        client: impl Into<String>,
        tenant: impl Into<String>,
        token_file: impl Into<PathBuf>,
    ) -> Result<Self, CloudError> {
        let (subscription, tenant) = (subscription.into(), tenant.into());
        check_part("tenant", &tenant)?;
        if !subscription.is_empty() {
            check_part("subscription", &subscription)?;
        }
        let identity = Identity::Federated { tenant, client: client.into(), token_file: token_file.into() };
        Ok(Self::new(subscription, identity))
    }
}

/// Returns an address without the slash at its end.
fn address(text: &str) -> Result<String, CloudError> {
    let wrong = || {
        CloudError::credentials(
            format!("the authorization file has `{text}`, which is no https address"),
            "write the file anew with az ad sp create-for-rbac --sdk-auth",
        )
    };
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    if uri.scheme_str() != Some("https") || uri.host().is_none() {
        return Err(wrong());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn check_part(what: &str, text: &str) -> Result<(), CloudError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !text.is_empty() && text.chars().all(is_fine) {
        return Ok(());
    }
    Err(CloudError::credentials(
        format!("`{text}` is no {what}"),
        format!("az account show lists the {what} that is meant"),
    ))
}
