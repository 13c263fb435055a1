//! Two clusters, one of them the broker, and the commands as they work on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use trieste_control::steps::Record;
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::deploy_broker::{DeployBroker, deploy_broker};
use trieste_deploy::discover::Given;
use trieste_deploy::join::{self, ClustersetIps, Join, NoOne, member_of};
use trieste_deploy::objects::{BrokerOptions, Secret};
use trieste_deploy::shares::Wish;
use trieste_deploy::uninstall::{self, Scope, Uninstall};
use trieste_deploy::{BrokerLogin, DeployError, Server, connect};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::kubernetes::{ApiServer, Client, Faults};
use trieste_tests::lab::Lab;
use trieste_tests::wait::{eventually, steady};

use super::PATIENCE;
use super::controllers::Controllers;
use super::crash::Crash;
use super::inventory;

/// An API server with two nodes, controllers that play, and clients of it.
pub(crate) struct Bed {
    pub(crate) faults: Faults,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    pub(crate) nets: (&'static str, &'static str),
    _controllers: Controllers,
    _server: ApiServer,
}

/// The broker's cluster and another one.
pub(crate) fn bed(lab: &Lab) -> (Bed, Bed) {
    let servers = ["east", "west"].map(|name| ApiServer::alone(lab, name).unwrap());
    let broker = servers[0].client().clone();
    let [east, west] = servers.map(|server| {
        let client = server.client().clone();
        for (name, role) in [("control", Some("control-plane")), ("worker", None)] {
            let mut labels = json!({"kubernetes.io/os": "linux"});
            if let Some(role) = role {
                labels[format!("node-role.kubernetes.io/{role}")] = json!("");
            }
            let node =
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
            client.apply(&node).unwrap();
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            client.patch(&format!("/api/v1/nodes/{name}/status"), &status).unwrap();
        }
        client.wait("/api/v1/namespaces/kube-system", PATIENCE, |_| true).unwrap();
        let dns = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"Corefile": ".:53 {\n    reload\n}\n"},
            "metadata": {"name": "coredns", "namespace": "kube-system"}});
        client.apply(&dns).unwrap();
        let ca = std::fs::read(server.ca_file()).unwrap();
        let faults = Faults::on_loopback(&server).unwrap();
        let nets = if server.name() == "east" {
            ("10.11.0.0/16,fd00:11::/48", "10.111.0.0/16")
        } else {
            ("10.12.0.0/16,fd00:12::/48", "10.112.0.0/16")
        };
        Bed {
            kubeconfig: faults.admin().unwrap(),
            faults,
            nets,
            _controllers: Controllers::play(&client, &broker, ca),
            client,
            _server: server,
        }
    });
    // What servers make of themselves after a start is there.
    for bed in [&east, &west] {
        bed.settle();
    }
    (east, west)
}

impl Bed {
    pub(crate) fn server(&self, crash: &Crash) -> Server {
        self.server_as(&self.kubeconfig, crash)
    }

    /// Returns the server as the identity of a kubeconfig.
    pub(crate) fn server_as(&self, kubeconfig: &Path, crash: &Crash) -> Server {
        let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
        let config = futures::executor::block_on(config).unwrap();
        let builder = kube::client::ClientBuilder::try_from(config).unwrap();
        Server::new(builder.with_layer(crash).build(), "cluster \"x\"")
    }

    pub(crate) fn admin(&self) -> Server {
        self.server(&Crash::after(i64::MAX))
    }

    pub(crate) async fn deploy(
        &self,
        known: Option<BrokerInfo>,
    ) -> Result<(BrokerInfo, Record), DeployError> {
        self.deploy_as(&self.admin(), known).await
    }

    pub(crate) async fn deploy_as(
        &self,
        server: &Server,
        known: Option<BrokerInfo>,
    ) -> Result<(BrokerInfo, Record), DeployError> {
        self.deploy_with(server, known, BrokerOptions::default()).await
    }

    pub(crate) async fn deploy_with(
        &self,
        server: &Server,
        known: Option<BrokerInfo>,
        broker: BrokerOptions,
    ) -> Result<(BrokerInfo, Record), DeployError> {
        let options = DeployBroker { broker, url: self.faults.url(), psk: None, replace_psk: false, known };
        let mut steps = Record::default();
        let info = deploy_broker(server, &options, &mut steps).await?;
        Ok((info, steps))
    }

    pub(crate) fn options(&self, info: &BrokerInfo, id: &str) -> Join {
        let nets = |list: &str| list.split(',').map(|net| net.parse().unwrap()).collect();
        Join {
            member: member_of(info, id, None, false),
            given: Given { pods: nets(self.nets.0), services: nets(self.nets.1), ..Given::default() },
            kept: Vec::new(),
            replace_psk: false,
            globalnet: true,
            share: Wish::default(),
            clusterset_ips: ClustersetIps::default(),
            gateways: 1,
            ignore_requirements: false,
            patience: PATIENCE,
        }
    }

    pub(crate) fn overlapping(&self, info: &BrokerInfo) -> Join {
        let mut options = self.options(info, "west");
        options.given.pods = vec!["10.11.0.0/16".parse().unwrap()];
        options
    }

    /// Four mistakes at once.
    pub(crate) fn nonsense(&self, info: &BrokerInfo) -> Join {
        let mut options = self.overlapping(info);
        options.member.cable_driver = "gre".to_owned();
        options.member.image.reference = "no image".to_owned();
        options.member.natt_port = 4800;
        options
    }

    pub(crate) fn login(&self, info: &BrokerInfo) -> Server {
        let token = info.client_token.clone();
        let url = info.broker_url.clone();
        connect(&BrokerLogin { url, ca: token.ca, token: token.token, insecure: false }).unwrap()
    }

    pub(crate) async fn prepare(&self, info: &BrokerInfo, options: &Join) -> Result<join::Plan, DeployError> {
        let (local, broker) = (self.admin(), self.login(info));
        join::prepare(&local, &broker, options, &mut NoOne, &mut Record::default()).await
    }

    pub(crate) async fn join(&self, info: &BrokerInfo, options: &Join) -> Result<Record, DeployError> {
        self.join_as(&self.admin(), info, options, None).await
    }

    /// Both servers' writes count for one crash.
    pub(crate) async fn join_as(
        &self,
        local: &Server,
        info: &BrokerInfo,
        options: &Join,
        crash: Option<Crash>,
    ) -> Result<Record, DeployError> {
        let broker = match crash {
            None => self.login(info),
            Some(crash) => broker_of(&info.broker_url, &info.client_token.token, &crash),
        };
        let mut steps = Record::default();
        let plan = join::prepare(local, &broker, options, &mut NoOne, &mut steps).await?;
        join::execute(local, &broker, &plan, &mut steps).await?;
        Ok(steps)
    }

    pub(crate) async fn uninstall(&self, info: Option<&BrokerInfo>) -> Result<Record, DeployError> {
        self.uninstall_as(&self.admin(), info).await
    }

    pub(crate) async fn uninstall_as(
        &self,
        server: &Server,
        info: Option<&BrokerInfo>,
    ) -> Result<Record, DeployError> {
        let options = Uninstall {
            namespace: NAMESPACE.to_owned(),
            broker_namespace: BROKER_NAMESPACE.to_owned(),
            patience: PATIENCE,
            force: false,
            scope: Scope::ALL,
            keeps: Vec::new(),
        };
        let account = info.map(|info| self.login(info));
        let mut steps = Record::default();
        let found = uninstall::observe(server, &options).await?;
        uninstall::uninstall(server, account.as_ref(), &found, &options, &mut steps).await?;
        Ok(steps)
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.client.find(path).unwrap().is_some()
    }

    pub(crate) fn contents(&self) -> BTreeMap<String, Value> {
        inventory::contents(&self.client).unwrap()
    }

    pub(crate) fn versions(&self) -> BTreeMap<String, Value> {
        inventory::versions(&self.client).unwrap()
    }

    /// Waits until nobody writes any more.
    pub(crate) fn settle(&self) {
        let pause = Duration::from_millis(400);
        steady("the server to come to rest", PATIENCE, pause, || self.client.revision()).unwrap();
    }

    pub(crate) fn assert_contents(&self, expected: &BTreeMap<String, Value>) {
        eventually("the server to hold what it held", Duration::from_secs(20), || {
            let differences = inventory::differences(expected, &self.contents());
            anyhow::ensure!(differences.is_empty(), "{differences:#?}");
            Ok(())
        })
        .unwrap();
    }
}

/// The broker with the rights of the join file, killed with the rest.
pub(crate) fn broker_of(url: &str, token: &Secret, crash: &Crash) -> Server {
    let url = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let mut config = kube::Config::new(url.parse().unwrap());
    let text = String::from_utf8(token.expose().to_vec()).unwrap();
    config.auth_info.token = Some(text.into());
    config.accept_invalid_certs = true;
    let builder = kube::client::ClientBuilder::try_from(config).unwrap();
    Server::new(builder.with_layer(crash).build(), "the broker")
}

pub(crate) fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    let differences = inventory::differences(before, after);
    assert!(differences.is_empty(), "{differences:#?}");
}
