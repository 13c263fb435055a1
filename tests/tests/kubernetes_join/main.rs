//! Brokers made, clusters joined and taken out again, on real API servers: twice, interrupted at every write, and
//! refused.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod controllers;
mod crash;
mod inventory;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use controllers::Controllers;
use crash::Crash;
use serde_json::{Value, json};
use trieste_control::steps::{Outcome, Record};
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::deploy_broker::{DeployBroker, deploy_broker};
use trieste_deploy::discover::Given;
use trieste_deploy::join::{self, Join, NoOne, member_of};
use trieste_deploy::objects::BrokerOptions;
use trieste_deploy::recover::{Recover, recover};
use trieste_deploy::uninstall::{self, Uninstall};
use trieste_deploy::{BrokerLogin, DeployError, Server, connect};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::command::Run;
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Client, Faults};
use trieste_tests::lab::Lab;
use trieste_tests::programs;
use trieste_tests::wait::eventually;

/// Longer than anything takes that works at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// More writes than any command makes: a loop that runs so often does not end.
const MANY: i64 = 400;

#[test]
fn clusters_join_and_leave_twice_and_leave_nothing() {
    let Some(_turn) = root_test("clusters_join_and_leave_twice_and_leave_nothing") else { return };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    let (before_east, before_west) = (east.contents(), west.contents());

    let info = run(async {
        let (info, steps) = east.deploy(None).await.unwrap();
        assert_eq!(shown(&steps), BROKER_STEPS);
        let versions = east.versions();
        // The file says whose key it is; without it, a new one would be made, since nobody has joined yet.
        let (again, _) = east.deploy(Some(info.clone())).await.unwrap();
        assert_eq!(again, info);
        assert_same(&versions, &east.versions());
        info
    });

    run(async {
        let dry = west.prepare(&info, &west.options(&info, "west")).await;
        assert!(dry.is_ok(), "{dry:?}");
        assert_same(&before_west, &west.contents());

        east.join(&info, &east.options(&info, "east")).await.unwrap();
        east.settle();
        let versions = (east.versions(), west.versions());
        for (options, expected) in [
            (west.options(&info, "east"), "the cluster ID east belongs to another cluster"),
            (west.overlapping(&info), "our 10.11.0.0/16 overlaps 10.11.0.0/16 of cluster east"),
        ] {
            let error = west.prepare(&info, &options).await.unwrap_err();
            assert!(findings(&error).contains(expected), "{error:?}");
        }
        let unmet = west.prepare(&info, &west.nonsense(&info)).await.unwrap_err();
        assert_eq!(findings(&unmet).lines().count(), 4, "{unmet:?}");
        assert_same(&versions.0, &east.versions());
        assert_same(&versions.1, &west.versions());

        let steps = west.join(&info, &west.options(&info, "west")).await.unwrap();
        assert_eq!(shown(&steps), JOIN_STEPS);
        west.settle();
        let versions = (east.versions(), west.versions());
        let steps = west.join(&info, &west.options(&info, "west")).await.unwrap();
        assert!(shown(&steps).contains("Objects: 0 created, 0 changed"), "{}", shown(&steps));
        assert!(shown(&steps).contains("this cluster's own from an earlier join"), "{}", shown(&steps));
        east.join(&info, &east.options(&info, "east")).await.unwrap();
        assert_same(&versions.0, &east.versions());
        assert_same(&versions.1, &west.versions());
    });

    run(async {
        let (again, _) = east.deploy(None).await.unwrap();
        assert_eq!(again, info, "the key of the set is kept where the broker is a member, too");
        let recovered = recover(&east.admin(), None, &recovery(&info), &mut Record::default()).await.unwrap();
        assert_eq!(recovered, info);
        assert!(recover(&west.admin(), None, &recovery(&info), &mut Record::default()).await.is_err());

        let steps = east.uninstall(None).await.unwrap();
        assert!(shown(&steps).contains("registered with it: west"), "{}", shown(&steps));
        assert!(east.exists(&format!("/api/v1/namespaces/{BROKER_NAMESPACE}")));
        assert!(!east.exists(&format!("/api/v1/namespaces/{NAMESPACE}")));

        let steps = west.uninstall(Some(&info)).await.unwrap();
        assert_eq!(shown(&steps), LEAVE_STEPS);
        west.assert_contents(&before_west);
        let steps = east.uninstall(None).await.unwrap();
        assert_eq!(steps.worst(), Outcome::Success, "{}", shown(&steps));
        east.assert_contents(&before_east);
        let steps = east.uninstall(None).await.unwrap();
        assert!(shown(&steps).contains("Objects: 0 deleted"), "{}", shown(&steps));
    });
}

#[test]
fn a_command_that_is_killed_at_any_write_is_finished_by_the_next_run() {
    let Some(_turn) = root_test("a_command_that_is_killed_at_any_write_is_finished_by_the_next_run") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    let (before_east, before_west) = (east.contents(), west.contents());

    run(async {
        let mut last = None;
        let deployed = killed("deploy-broker", async |crash| {
            last = Some(east.deploy_as(&east.server(crash), None).await?.0);
            Ok(())
        });
        assert!(deployed.await > 15);
        let info = last.unwrap();
        let joined = killed("join", async |crash| {
            west.join_as(&west.server(crash.clone()), &info, &west.options(&info, "west"), Some(crash))
                .await
                .map(drop)
        });
        assert!(joined.await > 30);
        west.settle();
        let versions = west.versions();
        west.join(&info, &west.options(&info, "west")).await.unwrap();
        assert_same(&versions, &west.versions());

        // Each run gets one write further.
        for (bed, info) in [(&west, Some(&info)), (&east, None)] {
            let mut runs = 0;
            while bed.uninstall_as(&bed.server(Crash::after(1)), info).await.is_err() {
                runs += 1;
                assert!(runs < MANY);
            }
            eprintln!("uninstall: killed {runs} times");
        }
    });
    west.assert_contents(&before_west);
    east.assert_contents(&before_east);
}

#[test]
fn a_broker_that_is_away_keeps_nobody_and_the_command_prints_what_stays() {
    let Some(_turn) = root_test("a_broker_that_is_away_keeps_nobody_and_the_command_prints_what_stays")
    else {
        return;
    };
    let lab = Lab::new().unwrap();
    let (mut east, west) = bed(&lab);
    let before = west.contents();
    let directory = lab.directory().join("cwd");
    std::fs::create_dir_all(&directory).unwrap();
    let trieste = |cluster: &Bed, words: &str| {
        let program = programs::path("trieste").unwrap();
        let line = format!(
            "cd {} && exec {} {words} --kubeconfig {}",
            directory.display(),
            program.display(),
            cluster.kubeconfig.display()
        );
        Run::new("sh").args(["-c", &line]).timeout(PATIENCE * 2).output().unwrap()
    };

    let output = trieste(&east, "deploy-broker --components connectivity");
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stdout.contains(" ✓ Saving broker info to file \"broker-info.subm\"\n"),
        "{}",
        output.stdout
    );
    let flags =
        "join broker-info.subm --clusterid west --clustercidr 10.12.0.0/16 --servicecidr 10.200.0.0/16";
    let output = trieste(&west, &format!("{flags} --dry-run"));
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with("---\napiVersion: v1\n") && output.stdout.contains("kind: DaemonSet"));
    assert!(output.stdout.contains("psk: REDACTED"), "{}", output.stdout);
    assert_same(&before, &west.contents());
    let refused = trieste(&west, &format!("{flags} --cable-driver libreswan"));
    assert!(!refused.status.success() && refused.stdout.contains("the IPsec cable"), "{refused:?}");
    let output = trieste(&west, flags);
    assert!(output.status.success(), "{output:?}");
    assert!(
        output
            .stdout
            .ends_with(" ✓ Cluster \"west\" has joined; trieste show connections tells who answers\n")
    );

    let asked = trieste(&west, "uninstall");
    assert!(!asked.status.success() && asked.stderr.contains("--yes"), "{asked:?}");
    east.faults.set(trieste_tests::kubernetes::Mode::Refuse).unwrap();
    east.faults.cut();
    let output = trieste(&west, "uninstall -y");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.contains(" ⚠ The broker was not left: "), "{}", output.stdout);
    west.assert_contents(&before);
}

/// An API server with two nodes, controllers that play, and clients of it.
struct Bed {
    faults: Faults,
    kubeconfig: PathBuf,
    client: Client,
    nets: (&'static str, &'static str),
    _controllers: Controllers,
    _server: ApiServer,
}

/// The broker's cluster and another one.
fn bed(lab: &Lab) -> (Bed, Bed) {
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
    fn server(&self, crash: Crash) -> Server {
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
        let config = futures::executor::block_on(config).unwrap();
        let builder = kube::client::ClientBuilder::try_from(config).unwrap();
        Server::new(builder.with_layer(&crash).build(), "cluster \"x\"")
    }

    fn admin(&self) -> Server {
        self.server(Crash::after(i64::MAX))
    }

    async fn deploy(&self, known: Option<BrokerInfo>) -> Result<(BrokerInfo, Record), DeployError> {
        self.deploy_as(&self.admin(), known).await
    }

    async fn deploy_as(
        &self,
        server: &Server,
        known: Option<BrokerInfo>,
    ) -> Result<(BrokerInfo, Record), DeployError> {
        let options =
            DeployBroker { broker: BrokerOptions::default(), url: self.faults.url(), psk: None, known };
        let mut steps = Record::default();
        let info = deploy_broker(server, &options, &mut steps).await?;
        Ok((info, steps))
    }

    fn options(&self, info: &BrokerInfo, id: &str) -> Join {
        let nets = |list: &str| list.split(',').map(|net| net.parse().unwrap()).collect();
        Join {
            member: member_of(info, id, None, false),
            given: Given { pods: nets(self.nets.0), services: nets(self.nets.1) },
            globalnet: true,
            label_gateway: true,
            ignore_requirements: false,
            patience: PATIENCE,
        }
    }

    fn overlapping(&self, info: &BrokerInfo) -> Join {
        let mut options = self.options(info, "west");
        options.given.pods = vec!["10.11.0.0/16".parse().unwrap()];
        options
    }

    /// Four mistakes at once.
    fn nonsense(&self, info: &BrokerInfo) -> Join {
        let mut options = self.overlapping(info);
        options.member.cable_driver = "vxlan".to_owned();
        options.member.image.reference = "no image".to_owned();
        options.member.natt_port = 4800;
        options
    }

    fn login(&self, info: &BrokerInfo) -> Server {
        let token = info.client_token.clone();
        let url = info.broker_url.clone();
        connect(&BrokerLogin { url, ca: token.ca, token: token.token, insecure: false }).unwrap()
    }

    async fn prepare(&self, info: &BrokerInfo, options: &Join) -> Result<join::Plan, DeployError> {
        let (local, broker) = (self.admin(), self.login(info));
        join::prepare(&local, &broker, options, &mut NoOne, &mut Record::default()).await
    }

    async fn join(&self, info: &BrokerInfo, options: &Join) -> Result<Record, DeployError> {
        self.join_as(&self.admin(), info, options, None).await
    }

    /// Both servers' writes count for one crash.
    async fn join_as(
        &self,
        local: &Server,
        info: &BrokerInfo,
        options: &Join,
        crash: Option<Crash>,
    ) -> Result<Record, DeployError> {
        let broker = match crash {
            None => self.login(info),
            Some(crash) => broker_of(info, crash),
        };
        let mut steps = Record::default();
        let plan = join::prepare(local, &broker, options, &mut NoOne, &mut steps).await?;
        join::carry_out(local, &broker, &plan, &mut steps).await?;
        Ok(steps)
    }

    async fn uninstall(&self, info: Option<&BrokerInfo>) -> Result<Record, DeployError> {
        self.uninstall_as(&self.admin(), info).await
    }

    async fn uninstall_as(&self, server: &Server, info: Option<&BrokerInfo>) -> Result<Record, DeployError> {
        let options = Uninstall {
            namespace: NAMESPACE.to_owned(),
            broker_namespace: BROKER_NAMESPACE.to_owned(),
            patience: PATIENCE,
            force: false,
        };
        let account = info.map(|info| self.login(info));
        let mut steps = Record::default();
        let found = uninstall::look(server, &options).await?;
        uninstall::uninstall(server, account.as_ref(), &found, &options, &mut steps).await?;
        Ok(steps)
    }

    fn exists(&self, path: &str) -> bool {
        self.client.find(path).unwrap().is_some()
    }

    fn contents(&self) -> BTreeMap<String, Value> {
        inventory::contents(&self.client).unwrap()
    }

    fn versions(&self) -> BTreeMap<String, Value> {
        inventory::versions(&self.client).unwrap()
    }

    /// Waits until nobody writes any more.
    fn settle(&self) {
        eventually("the server to come to rest", PATIENCE, || {
            let before = self.versions();
            std::thread::sleep(Duration::from_millis(400));
            anyhow::ensure!(before == self.versions(), "somebody writes");
            Ok(())
        })
        .unwrap();
    }

    fn assert_contents(&self, expected: &BTreeMap<String, Value>) {
        eventually("the server to hold what it held", Duration::from_secs(20), || {
            let differences = inventory::differences(expected, &self.contents());
            anyhow::ensure!(differences.is_empty(), "{differences:#?}");
            Ok(())
        })
        .unwrap();
    }
}

/// The broker with the rights of the join file, killed with the rest.
fn broker_of(info: &BrokerInfo, crash: Crash) -> Server {
    let token = &info.client_token;
    let mut config = kube::Config::new(info.broker_url.parse().unwrap());
    let text = String::from_utf8(token.token.expose().to_vec()).unwrap();
    config.auth_info.token = Some(text.into());
    config.accept_invalid_certs = true;
    let builder = kube::client::ClientBuilder::try_from(config).unwrap();
    Server::new(builder.with_layer(&crash).build(), "the broker")
}

/// Runs a command that is killed at its first write, then at its second, until it comes to its end; how often it was.
async fn killed(name: &str, mut work: impl AsyncFnMut(Crash) -> Result<(), DeployError>) -> i64 {
    for writes in 1..MANY {
        if let Err(error) = work(Crash::after(writes)).await {
            assert!(error.to_string().contains("killed"), "{error}");
        } else {
            eprintln!("{name}: killed {} times", writes - 1);
            return writes - 1;
        }
    }
    panic!("{name} does not end");
}

fn recovery(info: &BrokerInfo) -> Recover {
    Recover {
        broker_namespace: BROKER_NAMESPACE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        url: None,
        context_url: info.broker_url.clone(),
    }
}

fn findings(error: &DeployError) -> String {
    let DeployError::Unmet(findings) = error else { panic!("{error:?}") };
    findings.iter().map(|finding| format!("{}\n", finding.text)).collect()
}

/// The steps without what depends on the server's version, or on how many objects there are, unless there are none.
fn shown(steps: &Record) -> String {
    let text = steps.to_string();
    let lines = text.lines().map(|line| {
        let line = line.split_once(" \"v1.").map_or(line, |(before, _)| before);
        let words = line.split(' ').map(|word| match word.parse::<u32>() {
            Ok(1..) if line.contains("Objects:") => "N",
            _ => word,
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    });
    lines.collect()
}

fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    let differences = inventory::differences(before, after);
    assert!(differences.is_empty(), "{differences:#?}");
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

const BROKER_STEPS: &str = "\
Some(Success) Checking requirements
  Success Kubernetes version
  Success These credentials have the rights that are needed
Some(Success) Deploying the broker
  Success Objects: N created, 0 changed, 0 as they should be
Some(Success) Waiting for the token of the account by which clusters join
";
const JOIN_STEPS: &str = "\
Some(Success) Discovering network details
  Success Network plugin:  generic (no known plugin was found)
  Success Service CIDRs:  [10.112.0.0/16] (--servicecidr)
  Success Cluster CIDRs:  [10.12.0.0/16 fd00:12::/48] (--clustercidr)
Some(Success) Gathering relevant information from Broker
Some(Success) Checking requirements
  Success Kubernetes version
  Success The cluster ID west is free
  Warning service CIDRs are 10.112.0.0/16 by --servicecidr, but 10.200.0.0/16 by the ServiceCIDR objects
  Success No CIDR is another cluster's
  Warning the network plugin was not recognised and is treated as \"generic\"; it may or may not work; trieste diagnose all tells
  Success These credentials have the rights that are needed
  Success The broker can be reached, and lets clusters join
Some(Success) Creating the account of cluster \"west\" on the broker
Some(Success) Deploying the gateway and the route agents
  Success Objects: N created, 0 changed, 0 as they should be
Some(Success) Labelling node \"worker\" as a gateway
Some(Success) Waiting for the route agents
Some(Success) Waiting for the gateway
  Success Gateway worker is active
";
const LEAVE_STEPS: &str = "\
Some(Success) Cleaning the gateway nodes
Some(Success) Leaving the broker
Some(Success) Cleaning all nodes
Some(Success) Deleting what was installed
  Success Objects: N deleted
Some(Success) Removing the gateway label from nodes
Some(Success) Deleting the definitions
";
