//! From a spec and a Secret to a cloud that can be asked. The Secret's keys are those of OpenShift's cloud credentials.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use trieste_cloud::choice::Choice;
use trieste_cloud::{CloudError, aws, azure, gcp, rhos};
use trieste_control::api::CloudPrepareConfig;
use trieste_deploy::objects::Secret;
use trieste_deploy::{ObjectRef, Server};

use crate::translate::{Cloud, cloud};
use crate::worker::failure::Failure;

/// The key with the certificate authorities of the cloud, as PEM.
const AUTHORITIES: &str = "ca.crt";

/// Returns the cloud of a spec, with what its credentials say.
///
/// # Errors
/// [`CloudError::Credentials`] naming a key that the Secret lacks; [`CloudError::Refused`] for a cloud that cannot be asked.
pub(super) fn choice(config: &CloudPrepareConfig, secret: &Credentials) -> Result<Choice, Failure> {
    let (infra_id, region) = (config.infra_id.clone(), config.region.clone());
    Ok(match cloud(config)? {
        Cloud::Generic(_) => Choice::Generic,
        Cloud::Aws(aws) => {
            let settings = aws::Settings {
                infra_id,
                region,
                vpc: aws.vpc_name.clone(),
                subnets: aws.subnet_names.clone(),
                worker_group: aws.worker_security_group.clone(),
                control_plane_group: aws.control_plane_security_group.clone(),
                endpoint: secret.value("aws_endpoint_url").map(|url| text(&url)).or_else(aws_endpoint),
                sts_endpoint: None,
            };
            Choice::Aws(Box::new((settings, aws_keys(secret)?)))
        }
        Cloud::Gcp(gcp) => {
            let [account] = secret.all(["service_account.json"])?;
            let settings = gcp::Settings {
                infra_id,
                region,
                project: gcp.project_id.clone(),
                credentials: gcp::Credentials::Key(Arc::new(gcp::ServiceAccount::from_json(&text(
                    &account,
                ))?)),
                network: gcp.vpc_name.clone(),
                subnet: gcp.public_subnet_name.clone(),
                node_tags: gcp.node_tags.clone(),
                endpoint: variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"),
                resource_manager: variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER"),
                metadata_server: None,
            };
            Choice::Gcp(Box::new(settings))
        }
        Cloud::Azure(azure) => {
            let settings = azure::Settings {
                infra_id,
                region,
                resource_group: secret.value("azure_resourcegroup").map(|group| text(&group)),
                credentials: azure_credentials(secret)?,
                air_gapped: azure.air_gapped,
            };
            Choice::Azure(Box::new(settings))
        }
        Cloud::Rhos(rhos) => {
            let settings = rhos::Settings {
                infra_id,
                region,
                project_id: rhos.project_id.clone(),
                credentials: openstack_credentials(secret, &rhos.cloud_entry)?,
            };
            Choice::Rhos(Box::new(settings))
        }
    })
}

fn aws_endpoint() -> Option<String> {
    variable("AWS_ENDPOINT_URL_EC2").or_else(|| variable("AWS_ENDPOINT_URL"))
}

fn aws_keys(secret: &Credentials) -> Result<aws::Found, CloudError> {
    let [id, key] = secret.all(["aws_access_key_id", "aws_secret_access_key"])?;
    let keys = aws::Keys {
        access_key_id: text(&id),
        secret_access_key: text(&key),
        session_token: secret.value("aws_session_token").map(|token| text(&token)),
        expires: None,
    };
    Ok(aws::Found { credentials: aws::Credentials::Keys(keys), region: None })
}

/// Reads one file of all, or a key for each.
fn azure_credentials(secret: &Credentials) -> Result<azure::Credentials, CloudError> {
    if let Some(file) = secret.value("auth.json") {
        return azure::Credentials::from_auth_file(&text(&file));
    }
    let keys = ["subscription_id", "client_id", "client_secret", "tenant_id"];
    let [subscription, client, password, tenant] = secret.all(keys.map(|key| format!("azure_{key}")))?;
    azure::Credentials::from_parts(text(&subscription), text(&client), text(&password), text(&tenant))
}

/// Reads an entry of `clouds.yaml`, of which nothing may lead to a file of the operator's pod, nor send secrets in clear.
fn openstack_credentials(secret: &Credentials, entry: &str) -> Result<rhos::Credentials, CloudError> {
    let [clouds] = secret.all(["clouds.yaml"])?;
    let found = rhos::Credentials::from_clouds(&text(&clouds), entry)?;
    if !is_secure(found.auth_url()) {
        return Err(CloudError::credentials(
            format!(
                "entry {entry} of the clouds.yaml has an auth_url without TLS, and the password goes there"
            ),
            "name Keystone's https address",
        ));
    }
    match secret.value(AUTHORITIES) {
        Some(pem) => Ok(found.with_authorities(pem.expose().to_vec())),
        None if found.cacert().is_none() => Ok(found),
        None => Err(CloudError::credentials(
            format!("entry {entry} of the clouds.yaml has cacert, and no file of the operator's pod is read"),
            format!("put the certificate into the key {AUTHORITIES} of the Secret"),
        )),
    }
}

/// Returns `true` unless what is sent to an address can be read on its way.
fn is_secure(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else { return false };
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    url.scheme_str() == Some("https") || is_loopback
}

/// Returns a value as text; what is no text is refused by whoever reads it.
fn text(secret: &Secret) -> String {
    String::from_utf8_lossy(secret.expose()).trim().to_owned()
}

/// Returns a variable of the operator's own environment that has a value.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What a Secret has; its `Debug` form shows none of it.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    /// The Secret, for people.
    name: String,
    values: BTreeMap<String, Secret>,
    /// Another one than before when the Secret has changed.
    pub(super) version: String,
}

impl Credentials {
    /// Reads the Secret that a spec names; nothing if it names none and needs none.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if it is not there, or if none is named; [`Failure::Deploy`].
    pub(super) async fn read(server: &Server, config: &CloudPrepareConfig) -> Result<Self, Failure> {
        let Some(secret) = &config.credentials_secret else {
            let is_needed = !matches!(cloud(config)?, Cloud::Generic(_));
            let missing = CloudError::credentials(
                "cloudPrepareConfig.credentialsSecret is missing",
                "name the Secret that has the cloud's credentials",
            );
            return if is_needed { Err(missing.into()) } else { Ok(Self::default()) };
        };
        let place = ObjectRef::namespaced("v1", "Secret", &secret.namespace, &secret.name);
        let Some(found) = server.find(&place).await? else {
            let next =
                format!("create it in the namespace {}: the operator reads it again", secret.namespace);
            return Err(CloudError::credentials(format!("{place} is not there"), next).into());
        };
        let data = found["data"].as_object().into_iter().flatten();
        let decoded =
            data.filter_map(|(key, text)| Some((key.clone(), STANDARD.decode(text.as_str()?).ok()?)));
        let values = decoded.filter(|(_, bytes)| !bytes.is_empty());
        let of = |field: &str| found["metadata"][field].as_str().unwrap_or_default();
        Ok(Self {
            name: place.to_string(),
            values: values.map(|(key, bytes)| (key, Secret::new(bytes))).collect(),
            version: format!("{} {}", of("uid"), of("resourceVersion")),
        })
    }

    /// Returns the value of a key; `None` if there is none.
    fn value(&self, key: &str) -> Option<Secret> {
        self.values.get(key).cloned()
    }

    /// Returns the values of keys all of which are needed.
    fn all<const N: usize>(&self, keys: [impl AsRef<str>; N]) -> Result<[Secret; N], CloudError> {
        let missing: Vec<&str> =
            keys.iter().map(AsRef::as_ref).filter(|key| !self.values.contains_key(*key)).collect();
        if missing.is_empty() {
            return Ok(keys.map(|key| self.value(key.as_ref()).unwrap_or_default()));
        }
        let what =
            if self.name.is_empty() { "cloudPrepareConfig.credentialsSecret" } else { self.name.as_str() };
        Err(CloudError::credentials(
            format!("{what} has no key {}", missing.join(", nor ")),
            "its keys are those of OpenShift's cloud credentials (docs/operations/operator.md)",
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::order::Reason;

    fn credentials(keys: &[&str]) -> Credentials {
        let values = keys.iter().map(|key| ((*key).to_owned(), Secret::new("hidden")));
        Credentials { name: "Secret n/s".to_owned(), values: values.collect(), version: "1".to_owned() }
    }

    fn chosen(cloud: &str, keys: &[&str]) -> Result<Choice, String> {
        let config: CloudPrepareConfig = serde_json::from_value(json!({cloud: {}})).unwrap();
        choice(&config, &credentials(keys)).map_err(|failure| {
            let reason = failure.reason();
            format!("{}: {}", reason.reason, reason.message)
        })
    }

    #[test]
    fn a_key_that_a_secret_lacks_is_named() {
        let azure = ["azure_client_id", "azure_client_secret", "azure_tenant_id"];
        for (cloud, keys, missing) in [
            ("aws", &["aws_access_key_id"][..], "Secret n/s has no key aws_secret_access_key"),
            ("aws", &[], "has no key aws_access_key_id, nor aws_secret_access_key"),
            ("gcp", &["key"], "has no key service_account.json"),
            ("azure", &azure, "has no key azure_subscription_id"),
            ("rhos", &["clouds.conf"], "has no key clouds.yaml"),
        ] {
            let error = chosen(cloud, keys).unwrap_err();
            assert!(error.starts_with("CredentialsMissing: ") && error.contains(missing), "{cloud}: {error}");
            assert!(!error.contains("hidden"));
        }
        assert!(matches!(chosen("generic", &[]), Ok(Choice::Generic)));
        let aws = ["aws_access_key_id", "aws_secret_access_key"];
        assert!(matches!(chosen("aws", &aws), Ok(Choice::Aws(_))));
        let all = [&azure[..], &["azure_subscription_id"]].concat();
        assert!(matches!(chosen("azure", &all), Ok(Choice::Azure(_))));
        for (cloud, key) in [("gcp", "service_account.json"), ("azure", "auth.json"), ("rhos", "clouds.yaml")]
        {
            let error = chosen(cloud, &[key]).unwrap_err();
            assert!(
                error.starts_with("CredentialsMissing: ") && !error.contains("hidden"),
                "{cloud}: {error}"
            );
        }
    }

    #[test]
    fn a_clouds_yaml_leads_to_no_file_of_the_pod_and_sends_nothing_in_clear() {
        let chosen = |url: &str, more: &str, authorities: Option<&str>| {
            let clouds = format!(
                "clouds: {{openstack: {{auth: {{auth_url: '{url}', user_id: u, password: hidden}}{more}}}}}"
            );
            let mut secret = credentials(&[]);
            secret.values.insert("clouds.yaml".to_owned(), Secret::new(clouds));
            if let Some(pem) = authorities {
                secret.values.insert("ca.crt".to_owned(), Secret::new(pem));
            }
            let config: CloudPrepareConfig = serde_json::from_value(json!({"rhos": {}})).unwrap();
            choice(&config, &secret).map_err(|failure| failure.reason())
        };
        let (secure, file) = ("https://k:5000", ", cacert: /etc/passwd");
        for (url, more, authorities, refused) in [
            (secure, "", None, None),
            (secure, file, None, Some("put the certificate into the key ca.crt of the Secret")),
            (secure, file, Some("PEM"), None),
            (secure, "", Some("PEM"), None),
            ("http://k:5000", "", None, Some("auth_url without TLS")),
            ("http://localhost.k:5000", "", None, Some("auth_url without TLS")),
            ("http://127.0.0.1:5000", "", None, None),
            ("http://[::1]:5000", "", None, None),
            ("http://localhost:5000", "", None, None),
        ] {
            match (chosen(url, more, authorities), refused) {
                (Ok(Choice::Rhos(settings)), None) => {
                    assert_eq!(settings.credentials.authorities(), authorities.map(str::as_bytes), "{url}");
                }
                (Err(Reason { reason, message }), Some(part)) => {
                    assert_eq!(reason, "CredentialsMissing", "{message}");
                    assert!(message.contains(part) && !message.contains("hidden"), "{url}: {message}");
                }
                (other, _) => panic!("{url} {more}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_spec_names_one_cloud() {
        for config in [json!({}), json!({"aws": {}, "gcp": {}})] {
            let config: CloudPrepareConfig = serde_json::from_value(config).unwrap();
            let failure = choice(&config, &credentials(&[])).unwrap_err().reason();
            assert_eq!(failure.reason, "InvalidSpec");
            assert!(failure.message.contains("name one of aws, gcp"), "{}", failure.message);
        }
        let shown = format!("{:?}", credentials(&["auth.json"]));
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
