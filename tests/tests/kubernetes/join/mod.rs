//! Brokers made, clusters joined and taken out again, on real API servers: twice, interrupted at every write, and
//! refused.

mod bed;
mod controllers;
mod crash;
mod globalnet;
mod inventory;
mod knitnet;
mod operator;
mod upstream;

use std::net::Ipv4Addr;
use std::time::Duration;

use bed::{Bed, assert_same, bed};
use crash::Crash;
use serde_json::json;
use trieste_control::steps::{Outcome, Record};
use trieste_deploy::broker_info::BrokerInfo;
use trieste_deploy::recover::{Recover, recover};
use trieste_deploy::{DeployError, ObjectRef, objects};
use trieste_tests::cluster::{BROKER_NAMESPACE, NAMESPACE};
use trieste_tests::command::{Output, Run};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::rbac;
use trieste_tests::lab::Lab;
use trieste_tests::programs;

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
            last = Some(east.deploy_as(&east.server(&crash), None).await?.0);
            Ok(())
        });
        assert!(deployed.await > 15);
        let info = last.unwrap();
        let joined = killed("join", async |crash| {
            west.join_as(&west.server(&crash), &info, &west.options(&info, "west"), Some(crash))
                .await
                .map(drop)
        });
        assert!(joined.await >= 30);
        west.settle();
        let versions = west.versions();
        west.join(&info, &west.options(&info, "west")).await.unwrap();
        assert_same(&versions, &west.versions());

        // Each run gets one write further, or a few.
        for (bed, info) in [(&west, Some(&info)), (&east, None)] {
            let mut runs = 0;
            while bed.uninstall_as(&bed.server(&Crash::after(stride())), info).await.is_err() {
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
    let refused = trieste(&west, &format!("{flags} --cable-driver gre"));
    assert!(
        !refused.status.success() && refused.stdout.contains("`gre` is no cable driver that is known"),
        "{refused:?}"
    );
    let output = trieste(&west, &format!("{flags} --natt=false --nattport 4501 --air-gapped"));
    assert!(output.status.success(), "{output:?}");
    assert!(
        output
            .stdout
            .ends_with(" ✓ Cluster \"west\" has joined; trieste show connections tells who answers\n")
    );

    joins_again(&west, &|words| trieste(&west, words));

    let asked = trieste(&west, "uninstall");
    assert!(!asked.status.success() && asked.stderr.contains("--yes"), "{asked:?}");
    east.faults.set(trieste_tests::kubernetes::Mode::Refuse).unwrap();
    east.faults.cut();
    let output = trieste(&west, "uninstall -y");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.contains(" ⚠ The broker was not left: "), "{}", output.stdout);
    west.assert_contents(&before);
}

/// What a second join does not say stays; another key is not taken by mistake.
fn joins_again(west: &Bed, trieste: &dyn Fn(&str) -> Output) {
    let object = format!("/apis/submariner.io/v1alpha1/namespaces/{NAMESPACE}/submariners/submariner");
    let spec = || west.client.get(&object).unwrap()["spec"].clone();
    let settled = spec();
    assert_eq!((&settled["ceIPSecNATTPort"], &settled["natEnabled"]), (&json!(4501), &json!(false)));
    let output = trieste("join broker-info.subm");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.contains("Kept from the earlier join: "), "{}", output.stdout);
    assert!(output.stdout.contains("Cluster CIDRs:  [10.12.0.0/16] (the earlier join)"), "{}", output.stdout);
    assert_eq!(spec(), settled);
    let output = trieste("join broker-info.subm --air-gapped=false");
    assert!(output.stdout.contains("airGappedDeployment changes from true to false"), "{}", output.stdout);
    let mut wanted = settled;
    wanted["airGappedDeployment"] = json!(false);
    assert_eq!(spec(), wanted);

    let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/submariner-ipsec-psk");
    west.client.patch(&secret, &json!({"data": {"psk": "YW5vdGhlciBrZXkgb2Ygc29tZSBsZW5ndGg="}})).unwrap();
    let refused = trieste("join broker-info.subm");
    assert!(!refused.status.success(), "{refused:?}");
    assert!(format!("{}{}", refused.stdout, refused.stderr).contains("--replace-psk"), "{refused:?}");
    let output = trieste("join broker-info.subm --replace-psk --force-conflicts");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_cluster_joins_a_broker_that_subctl_has_made() {
    let Some(_turn) = root_test("a_cluster_joins_a_broker_that_subctl_has_made") else { return };
    let lab = Lab::new().unwrap();
    let (east, west) = bed(&lab);
    let info = upstreams_broker(&east);
    let before = east.contents();

    run(async {
        west.join(&info, &west.options(&info, "west")).await.unwrap();
        let account = format!("/api/v1/namespaces/{BROKER_NAMESPACE}/serviceaccounts/cluster-west");
        assert!(east.exists(&account));
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/submariner-broker-secret");
        let token = west.client.get(&secret).unwrap()["data"]["token"].clone();
        let mut member = info.clone();
        member.client_token.token = objects::Secret::new(decoded(token.as_str().unwrap()));
        let place = ObjectRef::namespaced("submariner.io/v1", "Endpoint", BROKER_NAMESPACE, "x");
        assert!(east.login(&member).is_allowed("create", &place, "endpoints").await.unwrap());

        west.uninstall(Some(&info)).await.unwrap();
    });
    east.assert_contents(&before);
}

/// Accounts, Roles and objects as upstream's tool makes them (its account may not look at Roles), and the join file.
fn upstreams_broker(bed: &Bed) -> BrokerInfo {
    let client = &bed.client;
    rbac::prepare_broker(client).unwrap();
    trieste_tests::kubernetes::objects::install_definitions(client).unwrap();
    let name = "submariner-k8s-broker-admin";
    let group = "rbac.authorization.k8s.io";
    let meta = |name: &str| json!({"namespace": BROKER_NAMESPACE, "name": name});
    let all = ["create", "get", "list", "watch", "patch", "update", "delete"];
    let few = ["create", "get", "list", "delete"];
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let rules = json!([
        rule(&["submariner.io"], &["clusters", "endpoints"], &all),
        rule(&["submariner.io"], &["brokers"], &["get", "list"]),
        rule(&["multicluster.x-k8s.io"], &["serviceimports", "serviceimports/status"], &all),
        rule(&["discovery.k8s.io"], &["endpointslices", "endpointslices/restricted"], &all),
        rule(&[""], &["serviceaccounts", "secrets", "configmaps"], &all),
        rule(&[group], &["rolebindings"], &few),
    ]);
    let version = format!("{group}/v1");
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(name)}),
        json!({"apiVersion": version, "kind": "Role", "metadata": meta(name), "rules": rules}),
        json!({"apiVersion": version, "kind": "RoleBinding", "metadata": meta(name),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": BROKER_NAMESPACE, "name": name}]}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"namespace": BROKER_NAMESPACE, "name": "submariner-k8s-broker-admin-token-x7k2p",
                "annotations": {"kubernetes.io/service-account.name": name}}}),
        json!({"apiVersion": "submariner.io/v1alpha1", "kind": "Broker", "metadata": meta("submariner-broker"),
            "spec": {"components": ["service-discovery", "connectivity"], "globalnetEnabled": false}}),
        // An older member's object, which holds the key itself.
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old-member"}}),
        json!({"apiVersion": "submariner.io/v1alpha1", "kind": "Submariner",
            "metadata": {"namespace": "old-member", "name": "submariner"},
            "spec": {"broker": "k8s", "brokerK8sApiServer": bed.faults.server(), "brokerK8sRemoteNamespace": BROKER_NAMESPACE,
                "ceIPSecPSK": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "ceIPSecDebug": false, "clusterCIDR": "",
                "clusterID": "old", "debug": false, "namespace": "old-member", "natEnabled": true, "serviceCIDR": ""}}),
    ] {
        client.apply(&object).unwrap();
    }
    bed.settle();
    let options = Recover {
        broker_namespace: BROKER_NAMESPACE.to_owned(),
        namespace: "old-member".to_owned(),
        url: None,
        context_url: "https://nowhere:6443".to_owned(),
    };
    let info = run(async { recover(&bed.admin(), None, &options, &mut Record::default()).await.unwrap() });
    assert_eq!((info.broker_url.as_str(), info.psk.expose().len()), (bed.faults.url().as_str(), 32));
    info
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

/// Returns from one killed write to the next: at night a command is killed at each of them.
fn stride() -> i64 {
    if std::env::var_os("TRIESTE_NIGHTLY").is_some() { 1 } else { 3 }
}

/// Runs a command that is killed at its first write, then at a later one, until it comes to its end. Returns how many writes
/// it was given before the last run.
async fn killed(name: &str, mut work: impl AsyncFnMut(Crash) -> Result<(), DeployError>) -> i64 {
    for writes in (1..MANY).step_by(usize::try_from(stride()).unwrap()) {
        if let Err(error) = work(Crash::after(writes)).await {
            assert!(error.to_string().contains("killed"), "{error}");
        } else {
            eprintln!("{name}: killed until write {}", writes - 1);
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

pub(crate) fn findings(error: &DeployError) -> String {
    let DeployError::Unmet(findings) = error else { panic!("{error:?}") };
    findings.iter().map(|finding| format!("{}\n", finding.text)).collect()
}

/// The steps without what depends on the server's version, on how many objects there are, unless there are none, or on which addresses are given out.
pub(crate) fn shown(steps: &Record) -> String {
    let text = steps.to_string();
    let lines = text.lines().map(|line| {
        let line = line.split_once(" \"v1.").map_or(line, |(before, _)| before);
        let words = line.split(' ').map(|word| match word.parse::<u32>() {
            Ok(1..) if line.contains("Objects:") => "N",
            // The address of the DNS servers' Service.
            _ if word.parse::<Ipv4Addr>().is_ok() => "A",
            _ => word,
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    });
    lines.collect()
}

pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
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
  Success Allocated clusterset IP CIDR 243.0.16.0/20
  Success Allocated IPv6 clusterset IP CIDR fdf1:5f29:2642::1:0/112
  Success These credentials have the rights that are needed
  Success The broker can be reached, and lets clusters join
Some(Success) Creating the account of cluster \"west\" on the broker
Some(Success) Deploying the gateway and the route agents
  Success Objects: N created, 0 changed, 0 as they should be
Some(Success) Letting the cluster's DNS forward the set's names
  Success ConfigMap kube-system/coredns: clusterset.local to A
Some(Success) Labelling node \"worker\" as a gateway
Some(Success) Waiting for the route agents
Some(Success) Waiting for the service discovery agent and the DNS servers
Some(Success) Waiting for the gateway
  Success Gateway worker is active
";
const LEAVE_STEPS: &str = "\
Some(Success) Leaving service discovery
  Success ConfigMap kube-system/coredns says no more where the set's names are answered
Some(Success) Cleaning the gateway nodes
Some(Success) Leaving the broker
Some(Success) Cleaning all nodes
Some(Success) Deleting what was installed
  Success Objects: N deleted
Some(Success) Removing the gateway label from nodes
Some(Success) Deleting the definitions
";
