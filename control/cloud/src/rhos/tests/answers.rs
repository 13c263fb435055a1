//! What the services answer is not trusted: no answer, whatever it has, makes anything panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use proptest::prelude::*;

use super::*;
use crate::exchange::Exchange;
use crate::played_answers::{answer, json_of};
use crate::provider::Provider as _;
use crate::rhos::CloudChange;

const FIELDS: &[&str] = &[
    "security_groups",
    "security_groups_links",
    "security_group_rules",
    "ports",
    "port",
    "floatingips",
    "rel",
    "href",
    "id",
    "name",
    "description",
    "device_id",
    "device_owner",
    "fixed_ips",
    "ip_address",
    "direction",
    "ethertype",
    "protocol",
    "token",
    "project",
    "catalog",
    "endpoints",
    "type",
    "url",
    "interface",
    "flavor",
    "NeutronError",
];
const TEXTS: &[&str] = &[
    "next",
    "https://é?x",
    "?",
    "east-submariner-gw-sg",
    "east-worker",
    "made by trieste cloud prepare",
    "server-east-worker-a-1",
    "compute:az-a",
    "ingress",
    "IPv4",
    "udp",
    "10.0.0.1",
    "p-1",
    "network",
    "public",
    "https://neutron.example",
    "SecurityGroupInUse",
];

/// A service that answers these in turn; Keystone's own answer unless that is one of them too.
#[derive(Debug, Clone)]
struct Service {
    played: Played,
    answers: Arc<Vec<(u16, String)>>,
    next: Arc<AtomicUsize>,
    signs_in: bool,
}

impl Exchange for Service {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        if self.signs_in && request.uri().host() == Some("keystone.example") {
            return self.played.send(request).await;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let (status, body) = &self.answers[next % self.answers.len()];
        let answer = Response::builder().status(*status).header("x-subject-token", "gAAA");
        Ok(answer.body(body.clone().into_bytes()).unwrap())
    }
}

impl Service {
    fn new(answers: Vec<(u16, String)>, signs_in: bool, provider: Option<Value>) -> Self {
        let mut world = openshift();
        if let (Some(provider), Some(sets)) = (provider, &mut world.sets) {
            let set = crate::cluster::machine_set("east", "0", &provider);
            sets.insert("east-submariner-gw-0".to_owned(), set);
            sets.get_mut("east-worker-a").unwrap()["spec"]["template"]["spec"]["providerSpec"]["value"] =
                provider;
        }
        let (answers, next) = (Arc::new(answers), Arc::default());
        Self { played: Played::new(world), answers, next, signs_in }
    }

    /// Reads, plans, and makes what is planned in the cloud.
    async fn run(&self) {
        let server = self.played.server();
        let rhos = Rhos::new(self.clone(), &server, settings("openstack", Some("east")));
        let chosen = Wanted { instance: Some("m1.xlarge".to_owned()), ..wanted(3) };
        for goal in [Goal::Prepare(wanted(1)), Goal::Prepare(chosen), Goal::CleanUp] {
            let Ok(plan) = run::plan(&rhos, &goal).await else { continue };
            let is_of_cloud = |change: &&CloudChange| !matches!(change, CloudChange::Cluster(_));
            for change in plan.changes.iter().filter(is_of_cloud) {
                let _outcome = rhos.apply(change).await;
            }
        }
        let group = crate::rhos::GroupRef { name: "g".to_owned(), id: Some("g-1".to_owned()) };
        let _outcome =
            rhos.apply(&CloudChange::DeleteGroup { name: "g".to_owned(), id: "g-1".to_owned() }).await;
        let _outcome =
            rhos.apply(&CloudChange::Attach { port: "p".to_owned(), owner: String::new(), group }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn answers_without_the_list_are_refused() {
    for body in ["<html>captive portal</html>", "[]", "7", "", "{}", r#"{"security_groups": {}}"#] {
        let service = Service::new(vec![(200, body.to_owned())], true, None);
        let server = service.played.server();
        let rhos = Rhos::new(service.clone(), &server, settings("openstack", None));
        let error = run::plan(&rhos, &Goal::CleanUp).await.unwrap_err().to_string();
        let start = "OpenStack at keystone.example, region RegionOne: reading security groups: the answer has no `security_groups`";
        assert!(error.starts_with(start), "{body}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_of_which_no_groups_are_seen_keeps_them() {
    for body in ["<html>captive portal</html>", r#"{"port": {"id": "p"}}"#] {
        let service = Service::new(vec![(200, body.to_owned())], true, None);
        let server = service.played.server();
        let rhos = Rhos::new(service.clone(), &server, settings("openstack", None));
        let group = crate::rhos::GroupRef { name: "g".to_owned(), id: Some("g-1".to_owned()) };
        let change = CloudChange::Attach { port: "p".to_owned(), owner: String::new(), group };
        let error = rhos.apply(&change).await.unwrap_err().to_string();
        assert!(error.contains("the answer has no `security_groups`"), "{error}");
        assert_eq!(service.next.load(Ordering::Relaxed), 1, "nothing is written");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        answers in prop::collection::vec(answer(FIELDS, TEXTS), 1..8),
        signs_in in prop::bool::weighted(0.8),
        provider in prop::option::of(json_of(FIELDS, TEXTS)),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(Service::new(answers, signs_in, provider).run());
    }
}
