//! The whole of it: the OVSDB client's replicas, the index of rows, the controller, a real OVN.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use trieste_ovn::controller::{Controller, Next, State};
use trieste_ovn::{Chassis, Rows, northbound_spec, southbound_spec};
use trieste_ovsdb::client::Client;
use trieste_ovsdb::options::{ClientOptions, Status};
use trieste_ovsdb::replica::Replica;

use crate::rows::ovn::{Addresses, Ovn, golden};
use crate::rows::submariner_router::without_guards;
use crate::rows::support::Facts;

/// How long the replica may take to show what the test did.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a node's agent does for one zone.
struct Agent {
    client: Client,
    northbound: watch::Receiver<Replica>,
    southbound: watch::Receiver<Replica>,
    /// Keeps the southbound session.
    _southbound_client: Client,
    seen: (Replica, Replica),
    rows: Rows,
    chassis: Chassis,
    controller: Controller,
    sent: usize,
}

impl Agent {
    fn start(ovn: &Ovn) -> Self {
        let options = ClientOptions { first_wait: Duration::from_millis(20), ..ClientOptions::default() };
        let remote = |database: &str| ovn.address(database).parse().unwrap();
        let (client, northbound) = Client::spawn(&remote("nb"), northbound_spec(), options.clone());
        let (southbound_client, southbound) = Client::spawn(&remote("sb"), southbound_spec(), options);
        Self {
            client,
            northbound,
            southbound,
            _southbound_client: southbound_client,
            seen: Default::default(),
            rows: Rows::new(),
            chassis: Chassis::new(),
            controller: Controller::new(),
            sent: 0,
        }
    }

    /// Follows the replicas; returns `true` if both are complete.
    fn follow(&mut self) -> bool {
        let northbound = self.northbound.borrow_and_update().clone();
        let southbound = self.southbound.borrow_and_update().clone();
        let differences = northbound.differences(&self.seen.0);
        for difference in &differences {
            if self.rows.follow(difference) {
                self.controller.handle_change();
            }
        }
        for difference in southbound.differences(&self.seen.1) {
            self.chassis.follow(&difference);
            self.controller.handle_change();
        }
        self.seen = (northbound, southbound);
        self.seen.0.is_synced() && self.seen.1.is_synced()
    }

    /// Works until there is nothing to do and `is_done`.
    async fn settle(&mut self, facts: &Facts, is_done: impl Fn(&Self) -> bool) {
        let wanted = facts.wanted();
        loop {
            let next = if self.follow() {
                let (rows, chassis, schema) = (&self.rows, &self.chassis, self.seen.0.version());
                let state = State { wanted: Some(&wanted), rows, chassis, schema };
                self.controller.poll_transaction(&state, Instant::now())
            } else {
                Next::AwaitChange
            };
            match next {
                Next::Transact(transaction) => {
                    self.sent += 1;
                    let outcome =
                        self.client.transact_on(self.seen.0.generation(), transaction.operations).await;
                    let delay = Duration::from_millis(10);
                    self.controller.handle_outcome(outcome.as_ref().map(|_| ()), Instant::now(), delay);
                }
                Next::AwaitRetry(at) => tokio::time::sleep_until(at.into()).await,
                Next::AwaitChange if is_done(self) => return,
                Next::AwaitChange => {
                    let changed = async {
                        tokio::select! {
                            change = self.northbound.changed() => change,
                            change = self.southbound.changed() => change,
                        }
                    };
                    tokio::time::timeout(CHANGE_TIMEOUT, changed).await.expect("nothing changes").unwrap();
                }
                Next::AwaitOutcome => panic!("every outcome was given"),
            }
        }
    }
}

#[tokio::test]
async fn plugin_ovn_the_client_and_the_controller_keep_a_database() {
    let mut ovn = Ovn::start();
    ovn.add_kubernetes(&["node1"], Addresses::V4);
    let facts = Facts::proposal();
    let mut agent = Agent::start(&ovn);
    agent.settle(&facts, |agent| agent.rows.count_ours() > 0).await;
    assert_eq!(without_guards(&ovn.dump()), golden());
    assert_eq!(agent.sent, 1);

    for harm in
        ["lr-del submariner_router", "lr-policy-del ovn_cluster_router 10", "lsp-del subm_ext_sw_port"]
    {
        let sent = agent.sent;
        assert!(ovn.try_nbctl(harm));
        agent.settle(&facts, |agent| agent.sent > sent).await;
        assert_eq!(without_guards(&ovn.dump()), golden(), "{harm}");
    }

    // The server dies, comes back, and somebody is faster than we are.
    let generation = agent.seen.0.generation();
    let sent = agent.sent;
    ovn.kill_northbound();
    ovn.start_northbound();
    assert!(ovn.try_nbctl("ls-del submariner_join"));
    agent.settle(&facts, |agent| agent.seen.0.generation() > generation && agent.sent > sent).await;
    assert_eq!(without_guards(&ovn.dump()), golden());
    assert_eq!(agent.controller.conditions().iter().collect::<Vec<_>>(), []);

    // What OVN-Kubernetes changes concerns nobody.
    let sent = agent.sent;
    assert!(ovn.try_nbctl("ls-add another"));
    let is_seen = |agent: &Agent| {
        let mut switches = agent.seen.0.rows("Logical_Switch");
        switches.any(|(_, row)| row["name"].as_str() == Some("another"))
    };
    agent.settle(&facts, is_seen).await;
    assert_eq!(agent.sent, sent);
}

#[tokio::test]
async fn plugin_ovn_a_database_without_groups_of_load_balancers_is_kept_like_any_other() {
    let mut ovn = Ovn::start();
    ovn.restart_with_schema(|schema| {
        let tables = schema["tables"].as_object_mut().unwrap();
        tables.remove("Load_Balancer_Group").unwrap();
        for table in ["Logical_Router", "Logical_Switch"] {
            let columns = tables[table]["columns"].as_object_mut().unwrap();
            columns.remove("load_balancer_group").unwrap();
        }
    });
    ovn.nbctl(&["init"]);
    ovn.add_kubernetes(&["node1"], Addresses::V4);
    ovn.nbctl(&["lb-add", "web", "172.30.0.3:80", "10.128.0.5:8080", "tcp"]);
    ovn.nbctl(&["ls-lb-add", "node1", "web"]);

    let facts = Facts::proposal();
    let mut agent = Agent::start(&ovn);
    agent.settle(&facts, |agent| agent.rows.count_ours() > 0).await;
    assert_eq!(without_guards(&ovn.dump()), golden());
    assert!(ovn.nbctl(&["lr-lb-list", "submariner_router"]).contains("web"));
    assert_eq!(agent.controller.conditions().iter().collect::<Vec<_>>(), []);

    ovn.nbctl(&["ls-lb-del", "node1", "web"]);
    agent.settle(&facts, |agent| agent.sent == 2).await;
    assert_eq!(ovn.nbctl(&["lr-lb-list", "submariner_router"]).trim(), "");
}

#[tokio::test]
async fn plugin_ovn_a_database_whose_schema_is_too_old_is_left_alone_and_named() {
    let mut ovn = Ovn::start();
    ovn.restart_with_schema(|schema| schema["version"] = "5.99.0".into());
    let before = ovn.written();
    let agent = Agent::start(&ovn);
    let mut status = agent.client.status();
    let failed = status.wait_for(|status| matches!(status, Status::Failed { .. }));
    let status =
        tokio::time::timeout(CHANGE_TIMEOUT, failed).await.expect("it does not fail").unwrap().clone();
    let Status::Failed { remote, error } = status else { panic!("{status:?}") };
    let text = format!("{remote}: {error}");
    assert!(text.contains("nb.sock") && text.contains("5.99.0") && text.contains("6.1.0"), "{text}");
    assert!(!agent.northbound.borrow().is_synced());
    assert_eq!(ovn.written(), before);
}
