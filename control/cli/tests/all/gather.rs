//! `trieste gather` from an API server that plants secrets in every place that there is.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// What must not appear: a pre-shared key, a token, and a password, each also as it is written in Secrets.
const PSK: &str = "planted-pre-shared-key-bytes";
const PSK_BASE64: &str = "cGxhbnRlZC1wcmUtc2hhcmVkLWtleS1ieXRlcw==";
const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.cGxhbnRlZC1zaWduYXR1cmU";
const PASSWORD: &str = "planted-pass";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nUExBTlRFRC1DQQ==\n-----END CERTIFICATE-----\n";
const PLANTED: [&str; 5] = [PSK, PSK_BASE64, TOKEN, PASSWORD, "UExBTlRFRC1DQQ=="];

#[test]
fn what_is_gathered_has_no_secret_in_any_file() {
    let (root, output) = gather(&[]);
    let files = files(&root.path().join("out"));
    for (name, text) in &files {
        for secret in PLANTED {
            assert!(!text.contains(secret), "{secret} is in {name}:\n{text}");
        }
    }
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    for name in [
        "summary.html",
        "cluster-a/summary.html",
        "cluster-a/secrets_submariner-operator_submariner-ipsec-psk.yaml",
        "cluster-a/submariners_submariner-operator_submariner.yaml",
        "cluster-a/pods_submariner-operator_submariner-gateway-x.yaml",
        "cluster-a/submariner-gateway-x.log",
        "cluster-a/submariner-gateway-x.log.prev",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let submariner = &files["cluster-a/submariners_submariner-operator_submariner.yaml"];
    assert!(
        submariner.contains("submariner-ipsec-psk") && submariner.contains("##redacted##"),
        "{submariner}"
    );
    assert!(files["cluster-a/submariner-gateway-x.log.prev"].contains("crashed with ##redacted##"));
    // It goes on after a refusal, and says so in every place.
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with("Cluster \"cluster-a\"\nGathering information from cluster \"cluster-a\"\n"),
        "{text}"
    );
    assert!(text.contains(" ✗ nodes: the API server does not allow this: nodes are forbidden"), "{text}");
    assert!(text.contains(" ✗ commands in pod submariner-gateway-x: no command can be run in pod"), "{text}");
    assert!(text.contains(" ✓ Found 1 submariners in namespace \"submariner-operator\"\n"), "{text}");
    assert!(files["cluster-a/summary.html"].contains("nodes are forbidden"));
    let mode = fs::metadata(root.path().join("out/cluster-a/submariner-gateway-x.log"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn secrets_stay_in_only_where_somebody_asks_for_them() {
    let (root, _) = gather(&["--include-sensitive-data", "--type", "logs"]);
    let files = files(&root.path().join("out"));
    assert!(files["cluster-a/submariner-gateway-x.log"].contains(PSK));
    assert!(!files.keys().any(|name| name.ends_with(".yaml")), "only logs were asked for");
}

#[test]
fn without_the_right_to_read_secrets_nothing_is_gathered_unless_somebody_says_so() {
    let root = tempfile::tempdir().unwrap();
    let output = run_with(root.path(), &[], answer_without_secrets);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in
        ["cannot list secrets in namespace submariner-operator", "--allow-unreadable-secrets", "forbidden"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!root.path().join("out").exists(), "there are files");

    run_with(root.path(), &["--allow-unreadable-secrets"], answer_without_secrets);
    let files = files(&root.path().join("out"));
    assert!(files["cluster-a/summary.html"].contains("cannot list secrets in namespace submariner-operator"));
    let log = &files["cluster-a/submariner-gateway-x.log"];
    assert!(
        log.contains("loaded") && !log.contains("UExBTlRFRC1DQQ=="),
        "what looks like a secret is out: {log}"
    );
}

#[test]
fn secrets_of_a_broker_that_is_not_gathered_need_not_be_read() {
    let root = tempfile::tempdir().unwrap();
    let refusing: Answer = |path| match path {
        path if path.contains("submariner-k8s-broker/secrets") => forbidden("secrets"),
        path => answer(path),
    };
    let output = run_with(root.path(), &[], refusing);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("cannot list secrets in namespace submariner-k8s-broker"), "{text}");
    run_with(root.path(), &["--module", "connectivity"], refusing);
    assert!(files(&root.path().join("out")).contains_key("cluster-a/submariner-gateway-x.log"));
}

#[test]
fn an_older_directory_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("out/cluster-a")).unwrap();
    let output = run(root.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("exists already"));
}

fn gather(words: &[&str]) -> (tempfile::TempDir, Output) {
    let root = tempfile::tempdir().unwrap();
    let output = run(root.path(), words);
    (root, output)
}

/// What the server answers to a path.
type Answer = fn(&str) -> (&'static str, String);

fn run(root: &Path, words: &[&str]) -> Output {
    run_with(root, words, answer)
}

fn run_with(root: &Path, words: &[&str], answer: Answer) -> Output {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "cluster-a", "cluster": {"server": format!("http://{}", listener.local_addr().unwrap())}}],
        "contexts": [{"name": "a", "context": {"cluster": "cluster-a", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let kubeconfig = root.join("config");
    fs::write(&kubeconfig, config.to_string()).unwrap();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream, answer));
        }
    });
    Command::new(env!("CARGO_BIN_EXE_trieste"))
        .args(["gather", "--dir"])
        .arg(root.join("out"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(words)
        .output()
        .unwrap()
}

fn serve(mut stream: TcpStream, answer: Answer) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(request)) = lines.next() else { return };
    for _ in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {}
    let path = request.split(' ').nth(1).unwrap();
    let (status, body) = answer(path);
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // The client may have gone.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body.as_bytes());
}

fn answer_without_secrets(path: &str) -> (&'static str, String) {
    if path.contains("/secrets") { forbidden("secrets") } else { answer(path) }
}

fn forbidden(kind: &str) -> (&'static str, String) {
    ("403 Forbidden", failure(403, &format!("{kind} are forbidden")))
}

fn failure(code: u16, message: &str) -> String {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "x"})
        .to_string()
}

fn answer(path: &str) -> (&'static str, String) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let own = "/namespaces/submariner-operator/";
    let list = |items: Value| ("200 OK", json!({"kind": "ThingList", "items": items}).to_string());
    match path.replace(own, "//").as_str() {
        "/version" => (
            "200 OK",
            json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
            .to_string(),
        ),
        "/api/v1/nodes" => forbidden("nodes"),
        "/api/v1//secrets" => list(json!([secret()])),
        "/api/v1//pods" => list(json!([pod()])),
        "/api/v1//configmaps" => list(json!([thing(
            "ConfigMap",
            "c",
            json!({"data": {"ca.crt": PEM,
            "note": format!("the key is {PSK}, proxy http://u:{PASSWORD}@proxy:1")}})
        )])),
        "/api/v1//events" => {
            list(json!([thing("Event", "e", json!({"message": format!("rejected Bearer {TOKEN}")}))]))
        }
        "/apis/submariner.io/v1alpha1//submariners" => list(json!([submariner()])),
        "/apis/submariner.io/v1//gateways" => list(json!([thing(
            "Gateway",
            "g",
            json!({"status": {
            "statusFailure": format!("cannot use {PSK_BASE64}")}})
        )])),
        path if path.ends_with("/pods/submariner-gateway-x/log")
            || path.ends_with("//pods/submariner-gateway-x/log") =>
        {
            let text = if query.contains("previous=true") { "crashed with" } else { "loaded" };
            ("200 OK", format!("{text} {PSK}\npassword: {PASSWORD}word\n{PEM}"))
        }
        _ => ("404 Not Found", failure(404, "not found")),
    }
}

fn thing(kind: &str, name: &str, mut rest: Value) -> Value {
    rest["kind"] = json!(kind);
    rest["apiVersion"] = json!("v1");
    rest["metadata"] = json!({"name": name, "namespace": "submariner-operator",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"psk\":\"{PSK}\"}}")}});
    rest
}

fn secret() -> Value {
    thing("Secret", "submariner-ipsec-psk", json!({"data": {"psk": PSK_BASE64}}))
}

fn submariner() -> Value {
    thing(
        "Submariner",
        "submariner",
        json!({"spec": {"brokerK8sApiServerToken": TOKEN, "ceIPSecPSK": PSK_BASE64,
        "brokerK8sCA": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tClVFeEJUbFJGUkMxRFFRPT0K",
        "ceIPSecPSKSecret": "submariner-ipsec-psk"}}),
    )
}

fn pod() -> Value {
    let env = json!([{"name": "CE_IPSEC_PSK", "value": PSK_BASE64}, {"name": "BROKER_K8S_APISERVERTOKEN", "value": TOKEN}]);
    let mut pod = thing(
        "Pod",
        "submariner-gateway-x",
        json!({
        "spec": {"nodeName": "gw1", "containers": [{"name": "submariner-gateway", "env": env,
            "args": ["--psk", PSK]}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "submariner-gateway", "restartCount": 1}]}}),
    );
    pod["metadata"]["labels"] = json!({"app": "submariner-gateway"});
    pod
}

/// Every file below a directory, by its path there.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)));
        } else {
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    found
}
