//! What the services answer is not trusted: no answer, whatever it has, makes anything panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use proptest::prelude::*;

use super::*;
use crate::cluster::machine_set;
use crate::exchange::Exchange;
use crate::gcp::Gcp;
use crate::gcp::change::Kind;
use crate::played_answers::{answer, json_of};
use crate::provider::Provider as _;
use crate::run;

const FIELDS: &[&str] = &[
    "items",
    "nextPageToken",
    "name",
    "tags",
    "fingerprint",
    "canIpForward",
    "networkInterfaces",
    "network",
    "accessConfigs",
    "natIP",
    "region",
    "status",
    "zone",
    "error",
    "errors",
    "code",
    "message",
    "httpErrorStatusCode",
    "permissions",
    "allowed",
    "denied",
    "IPProtocol",
    "ports",
    "direction",
    "sourceRanges",
    "targetTags",
    "disks",
    "image",
    "machineType",
    "access_token",
    "expires_in",
];
const TEXTS: &[&str] = &[
    "DONE",
    "UP",
    "é",
    "east-x1-worker-c-1",
    "east-x1-worker",
    "submariner-io-gateway-node",
    "projects/",
    "x/projects/p-1/global/networks/east-x1-network",
    "us-east1",
    "us-east1-b",
    "operation-1",
    "udp",
    "4500",
    "a-a",
    "70000-é",
    "INGRESS",
    "compute.firewalls.create",
];

/// A service that answers these in turn; with a token of its own unless that is one of them too.
#[derive(Debug, Clone)]
struct Service {
    answers: Arc<Vec<(u16, String)>>,
    next: Arc<AtomicUsize>,
    gives_tokens: bool,
}

impl Exchange for Service {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        if self.gives_tokens && request.uri().host() == Some("oauth2.googleapis.com") {
            let token = json!({"access_token": "ya29", "expires_in": 3600});
            return Ok(Response::new(token.to_string().into_bytes()));
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let (status, body) = &self.answers[next % self.answers.len()];
        Ok(Response::builder().status(*status).body(body.clone().into_bytes()).unwrap())
    }
}

impl Service {
    fn new(answers: Vec<(u16, String)>, gives_tokens: bool) -> Self {
        Self { answers: Arc::new(answers), next: Arc::default(), gives_tokens }
    }

    /// Reads, plans, and makes what is planned in the cloud.
    async fn run(&self, world: &World) {
        let server = world.cluster.server();
        let clock = Arc::new(|| jiff::Timestamp::from_second(world::START).unwrap());
        let gcp = Gcp::new(self.clone(), &server, settings(Some("east-x1")), clock);
        let chosen = Wanted { instance: Some("n2-standard-8".to_owned()), gateways: 3, ..Wanted::default() };
        for goal in [gateways(1), Goal::Prepare(chosen), Goal::CleanUp] {
            let Ok(plan) = run::plan(&gcp, &goal).await else { continue };
            for change in plan.changes.iter().filter(|change| !matches!(change.0, Kind::Cluster(_))) {
                let _text = change.to_string();
                let _denied = gcp.denies(change).await;
                let _outcome = gcp.apply(change).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_no_objects_are_refused() {
    for body in ["<html>captive portal</html>", "[]", "7", ""] {
        let service = Service::new(vec![(200, body.to_owned())], true);
        let server = openshift().cluster.server();
        let clock = Arc::new(|| jiff::Timestamp::from_second(world::START).unwrap());
        let gcp = Gcp::new(service, &server, settings(None), clock);
        let error = run::plan(&gcp, &Goal::CleanUp).await.unwrap_err().to_string();
        let start = "Compute Engine: listing the instances of us-east1-b: the answer is no object of JSON";
        assert!(error.starts_with(start), "{body}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        answers in prop::collection::vec(answer(FIELDS, TEXTS), 1..8),
        gives_tokens in prop::bool::weighted(0.8),
        is_openshift in any::<bool>(),
        provider in prop::option::of(json_of(FIELDS, TEXTS)),
    ) {
        let world = if is_openshift { openshift() } else { gke() };
        if let Some(provider) = provider {
            world.cluster.put_set(machine_set("east-x1", "us-east1-b", &provider));
            let mut set = world::worker_set("us-east1-c");
            set["spec"]["template"]["spec"]["providerSpec"]["value"] = provider;
            world.cluster.put_set(set);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(Service::new(answers, gives_tokens).run(&world));
    }
}
