//! Service discovery of a cluster with an API server: what is asked for, and which step is broken.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use trieste_discovery::dns::udp;

use crate::command::{stdout, trieste};
use crate::discovery::{OBJECTS, document, server};

const AGENT: &str = "submariner-lighthouse-agent";
const DNS: &str = "submariner-lighthouse-coredns";
const COREFILE: &str = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT\nclusterset.local:53 {\n    forward . \
                        10.96.0.77\n}\n#lighthouse-end\n.:53 {\n    forward . /etc/resolv.conf\n}\n";

/// What the API server has: an object or a list for each path.
type Paths = Vec<(String, Value)>;

/// A cluster in which everything is well.
fn cluster() -> Paths {
    let operator = "namespaces/submariner-operator";
    let list = |items: &[Value]| json!({"kind": "ThingList", "apiVersion": "v1", "items": items});
    let of = |plural: &str| -> Vec<Value> {
        let found = OBJECTS.iter().filter(|(path, _)| path.contains(&format!("/{plural}/")));
        found.map(|(path, text)| document(path, text)).collect()
    };
    let deployment =
        |replicas: u64| json!({"spec": {"replicas": replicas}, "status": {"readyReplicas": replicas}});
    let pod =
        json!({"metadata": {"name": "agent-1", "labels": {"app": AGENT}}, "status": {"phase": "Running"}});
    let namespaces = [json!({"metadata": {"name": "shop"}})];
    let coredns = json!({"metadata": {"name": "coredns"}, "data": {"Corefile": COREFILE}});
    let paths = [
        (
            "/version".to_owned(),
            json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
        (format!("/apis/submariner.io/v1/{operator}/gateways"), list(&of("gateways"))),
        ("/apis/multicluster.x-k8s.io/v1alpha1/serviceexports".to_owned(), list(&of("serviceexports"))),
        ("/apis/multicluster.x-k8s.io/v1alpha1/serviceimports".to_owned(), list(&of("serviceimports"))),
        ("/apis/discovery.k8s.io/v1/endpointslices".to_owned(), list(&of("endpointslices"))),
        (format!("/apis/apps/v1/{operator}/deployments/{AGENT}"), deployment(1)),
        (format!("/apis/apps/v1/{operator}/deployments/{DNS}"), deployment(2)),
        (format!("/api/v1/{operator}/services/{DNS}"), json!({"spec": {"clusterIPs": ["10.96.0.77"]}})),
        (format!("/api/v1/{operator}/pods"), list(&[pod])),
        ("/api/v1/namespaces".to_owned(), list(&namespaces)),
        ("/api/v1/namespaces/kube-system/configmaps".to_owned(), list(&[coredns])),
    ];
    paths.into()
}

/// Runs the command against an API server with these paths; returns what was asked of it, in order.
fn run(paths: Paths, words: &[&str]) -> (Output, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "west",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", listener.local_addr().unwrap())}}],
        "contexts": [{"name": "west", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let root = tempfile::tempdir().unwrap();
    let kubeconfig = root.path().join("config");
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    // It ends with the test's process.
    std::thread::spawn(move || {
        let paths = Arc::new(paths);
        for stream in listener.incoming() {
            let (stream, paths, requests) = (stream.unwrap(), Arc::clone(&paths), Arc::clone(&requests));
            std::thread::spawn(move || serve(stream, &paths, &requests));
        }
    });
    let output = trieste(&[words, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    let asked = asked.lock().unwrap().clone();
    (output, asked)
}

/// Answers one request, and keeps its path and query.
fn serve(mut stream: TcpStream, paths: &Paths, requests: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(request)) = lines.next() else { return };
    for _ in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {}
    let target = request.split(' ').nth(1).unwrap().to_owned();
    requests.lock().unwrap().push(target.clone());
    let path = target.split('?').next().unwrap();
    let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "message": "not found", "reason": "NotFound"});
    let (status, body) = match paths.iter().find(|(known, _)| known == path) {
        Some((_, body)) => ("200 OK", body.to_string()),
        None => ("404 Not Found", missing.to_string()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // The client may have gone.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body.as_bytes());
}

#[test]
fn services_are_shown_by_one_list_of_each_kind() {
    let (output, asked) = run(cluster(), &["show", "services"]);
    let text = stdout(&output);
    assert!(
        text.contains("\nshop/web   ClusterSetIP   80/TCP   east 1/1, west 1/1 (local)   west      \n"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0));
    for (plural, query) in [
        ("gateways", "limit=500"),
        ("serviceexports", "limit=500"),
        ("serviceimports", "limit=500"),
        (
            "endpointslices",
            "limit=500&labelSelector=endpointslice.kubernetes.io/managed-by%3Dlighthouse-agent.submariner.io",
        ),
    ] {
        let of_kind: Vec<&String> = asked.iter().filter(|path| path.contains(plural)).collect();
        assert!(of_kind.len() == 1 && of_kind[0].ends_with(&format!("/{plural}?{query}")), "{of_kind:?}");
    }
    let (all, _) = run(cluster(), &["show", "all", "-o", "json"]);
    let all: Value = serde_json::from_str(&stdout(&all)).unwrap();
    assert_eq!(all[0]["services"][0]["name"], "web");
}

#[test]
fn each_step_that_is_broken_in_kubernetes_is_named_alone() {
    let missing = |end: &'static str| move |paths: &mut Paths| paths.retain(|(path, _)| !path.ends_with(end));
    let no_stanza = |paths: &mut Paths| {
        let maps = paths.iter_mut().find(|(path, _)| path.ends_with("configmaps")).unwrap();
        maps.1["items"][0]["data"]["Corefile"] = json!(".:53 {\n    forward . /etc/resolv.conf\n}\n");
    };
    type Case = (Box<dyn Fn(&mut Paths)>, &'static str);
    let cases: [Case; 5] = [
        (Box::new(missing("deployments/submariner-lighthouse-agent")), "Checking the agent"),
        (Box::new(missing("deployments/submariner-lighthouse-coredns")), "Checking the DNS server"),
        (Box::new(missing("services/submariner-lighthouse-coredns")), "Checking the DNS server"),
        (Box::new(no_stanza), "Checking that the cluster's DNS forwards to the DNS server"),
        (Box::new(missing("serviceimports")), "Checking the imports"),
    ];
    let (workers, address) = server();
    for (change, step) in cases {
        let mut paths = cluster();
        change(&mut paths);
        let (output, _) = run(paths, &["diagnose", "service-discovery", "--server", &address.to_string()]);
        let text = stdout(&output);
        let failed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(" ✗ "))
            .filter(|line| !line.contains(": "))
            .collect();
        assert_eq!(failed, [step], "{text}");
        assert_eq!(output.status.code(), Some(1));
    }
    let (output, _) = run(cluster(), &["diagnose", "service-discovery", "--server", &address.to_string()]);
    assert!(
        output.status.success() && stdout(&output).ends_with(" ✓ Asking the DNS\n\n"),
        "{}",
        stdout(&output)
    );
    workers.into_iter().for_each(udp::Worker::stop);
}

#[test]
fn the_agents_pod_is_asked_and_its_refusal_is_told() {
    let (output, asked) = run(cluster(), &["diagnose", "service-discovery", "shop/web"]);
    let text = stdout(&output);
    let command = "/api/v1/namespaces/submariner-operator/pods/agent-1/exec?";
    let exec: Vec<&String> = asked.iter().filter(|path| path.starts_with(command)).collect();
    assert_eq!(exec.len(), 1, "{asked:?}");
    let words = "command=trieste-discovery&command=ask&command=web.shop.svc.clusterset.local&command=A&command=--json";
    assert!(exec[0].contains(words) && exec[0].contains("container=submariner-lighthouse-agent"), "{exec:?}");
    assert!(text.contains(" ✗ Asking the DNS\n ✗ no command can be run in pod agent-1: "), "{text}");
    assert!(text.ends_with("; --server ADDRESS asks a server from here\n\n"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_name_is_resolved_from_the_api_server() {
    let (output, _) = run(cluster(), &["trace", "10.1.0.5", "x.web.shop.svc.clusterset.local"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("does not exist: service shop/web is exported by east, west"), "{error}");
}
