//! One of the providers, as somebody has chosen it: what the command and the operator have in common.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use trieste_control::https::HttpsClient;
use trieste_control::steps::Steps;
use trieste_deploy::Server;

use crate::CloudError;
use crate::aws::{self, Aws};
use crate::azure::{self, Azure};
use crate::gcp::{self, Gcp};
use crate::generic::Generic;
use crate::provider::{Goal, Provider};
use crate::rhos::{self, Rhos};
use crate::run;

/// A provider with what it needs to work.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Choice {
    /// AWS.
    Aws(Box<(aws::Settings, aws::Found)>),
    /// Google Cloud.
    Gcp(Box<gcp::Settings>),
    /// Microsoft Azure.
    Azure(Box<azure::Settings>),
    /// OpenStack.
    Rhos(Box<rhos::Settings>),
    /// None that has an API here: nodes are labelled, and [`crate::generic::to_open`] is for its administrator.
    Generic,
}

/// What would be done, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Where: the service.
    pub service: String,
    /// The changes, in order.
    pub changes: Vec<String>,
    /// What somebody should see to beside them.
    pub remarks: Vec<String>,
}

/// Returns what would be done for a goal in the cluster of `server` and in its cloud. Changes nothing.
///
/// # Errors
/// [`CloudError`].
pub async fn show(choice: &Choice, server: &Server, goal: &Goal) -> Result<Shown, CloudError> {
    match choice {
        Choice::Aws(given) => shown(&aws(server, given, goal).await?, goal).await,
        Choice::Gcp(settings) => shown(&google(server, settings), goal).await,
        Choice::Azure(settings) => shown(&azure(server, settings), goal).await,
        Choice::Rhos(settings) => shown(&openstack(server, settings)?, goal).await,
        Choice::Generic => shown(&Generic::new(server), goal).await,
    }
}

/// Brings the cluster of `server` and its cloud to a goal. Returns how many changes were made.
///
/// # Errors
/// As [`run::reach`].
pub async fn reach(
    choice: &Choice,
    server: &Server,
    goal: &Goal,
    steps: &mut dyn Steps,
) -> Result<usize, CloudError> {
    match choice {
        Choice::Aws(given) => run::reach(&aws(server, given, goal).await?, goal, steps).await,
        Choice::Gcp(settings) => run::reach(&google(server, settings), goal, steps).await,
        Choice::Azure(settings) => run::reach(&azure(server, settings), goal, steps).await,
        Choice::Rhos(settings) => run::reach(&openstack(server, settings)?, goal, steps).await,
        Choice::Generic => run::reach(&Generic::new(server), goal, steps).await,
    }
}

async fn aws<'s>(
    server: &'s Server,
    (settings, found): &(aws::Settings, aws::Found),
    goal: &Goal,
) -> Result<Aws<'s, HttpsClient>, CloudError> {
    let http = HttpsClient::from_environment();
    Aws::new(http, server, settings.clone(), found.clone(), goal, Arc::new(Timestamp::now)).await
}

fn google<'s>(server: &'s Server, settings: &gcp::Settings) -> Gcp<'s, HttpsClient> {
    Gcp::new(HttpsClient::from_environment(), server, settings.clone(), Arc::new(Timestamp::now))
}

fn azure<'s>(server: &'s Server, settings: &azure::Settings) -> Azure<'s, HttpsClient> {
    Azure::new(HttpsClient::from_environment(), server, settings.clone(), Arc::new(Timestamp::now))
}

fn openstack<'s>(server: &'s Server, settings: &rhos::Settings) -> Result<Rhos<'s, HttpsClient>, CloudError> {
    let mut http = HttpsClient::from_environment();
    if let Some(pem) = settings.credentials.authorities() {
        http = http.believing_pem(pem).map_err(|error| {
            CloudError::credentials(error.to_string(), "see to the key ca.crt of the Secret")
        })?;
    } else if let Some(path) = settings.credentials.cacert() {
        http = http.believing(Path::new(path)).map_err(|error| {
            CloudError::credentials(error.to_string(), "see to cacert of the entry of clouds.yaml")
        })?;
    }
    Ok(Rhos::new(http, server, settings.clone()))
}

async fn shown<P: Provider>(provider: &P, goal: &Goal) -> Result<Shown, CloudError> {
    let plan = run::plan(provider, goal).await?;
    let changes = plan.changes.iter().map(ToString::to_string).collect();
    Ok(Shown { service: provider.name(), changes, remarks: plan.remarks })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn a_text_of_certificates_is_believed_and_no_file_read() {
        let service = tower::service_fn(async |_: http::Request<Body>| {
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        });
        let server = Server::new(kube::Client::new(service, "default"), "cluster \"east\"");
        let clouds =
            "clouds: {x: {auth: {auth_url: 'https://k', user_id: u, password: w}, cacert: /no/such/file}}";
        let credentials = rhos::Credentials::from_clouds(clouds, "x").unwrap();
        let of = |credentials: rhos::Credentials| {
            let settings = rhos::Settings { infra_id: None, region: None, project_id: None, credentials };
            openstack(&server, &settings).map(drop).map_err(|error| format!("{error} ({})", error.next()))
        };
        let error = of(credentials.clone()).unwrap_err();
        assert!(error.contains("/no/such/file") && error.contains("cacert"), "{error}");
        let good = include_bytes!("../../tests/publicip/ca.pem").to_vec();
        assert_eq!(of(credentials.clone().with_authorities(good)), Ok(()));
        let damaged = b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        for pem in [&damaged[..], b"", b"w"] {
            let error = of(credentials.clone().with_authorities(pem.to_vec())).unwrap_err();
            assert!(error.contains("the key ca.crt of the Secret"), "{error}");
        }
    }
}
