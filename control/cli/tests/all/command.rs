//! The command as its users run it: against a store, against a socket, into pipes, and against nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use trieste_control::api::crd;

const RECORDED: &str = include_str!("../../../tests/golden/plain/a-gateways.yaml");
const CLUSTERS: &str = include_str!("../../../tests/golden/plain/a-clusters.yaml");
/// An API server at a port that nobody listens on.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                          contexts: [{name: lab, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
const NAMESPACE: &str = "submariner-operator";

#[test]
fn tables_come_from_a_store_in_upstreams_form() {
    let root = store_of_gateways();
    let output = trieste(&["show", "all", "--store", &location(root.path())]);
    let text = stdout(&output);
    assert!(output.status.success());
    assert!(
        text.starts_with(
            "Cluster \"cluster-a\"\n • Showing Connections  ...\n ✓ Showing Connections\nGATEWAY   CLUSTER "
        ),
        "{text}"
    );
    assert!(text.contains("\n • Showing Endpoints  ...\n ✓ Showing Endpoints\nCLUSTER "), "{text}");
    assert!(text.contains("a-gw2   passive     There are no connections              \n"), "{text}");
    assert!(text.ends_with("\n\n\n"), "each step and each cluster ends with an empty line: {text:?}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn the_definitions_are_one_stream() {
    for (words, files, count) in
        [(&["crds"][..], crd::files(), 13), (&["crds", "--tkestack"], crd::tkestack_files(), 2)]
    {
        let output = trieste(words);
        assert!(output.status.success() && output.stderr.is_empty());
        let expected: String = files.into_iter().map(|file| file.text).collect();
        assert_eq!(stdout(&output), expected);
        assert_eq!(expected.matches("\n---\n").count(), count, "one document per kind");
    }
}

#[test]
fn programs_get_json_or_yaml_and_nothing_else() {
    let root = store_of_gateways();
    let location = location(root.path());
    let json = trieste(&["show", "connections", "--output", "json", "--store", &location]);
    let rows: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(rows[0]["gateway"], "b-gw1");
    assert_eq!(rows[0]["remoteIP"], "172.31.2.11");
    assert_eq!(rows[0]["nat"], false);
    assert_eq!(rows[0]["subnets"][1], "10.2.0.0/16");
    let yaml = trieste(&["show", "all", "-o", "yaml", "--store", &location]);
    let all: Value = serde_saphyr::from_str(&stdout(&yaml)).unwrap();
    assert_eq!(all["connections"], rows);
    assert_eq!(all["gateways"][1]["haStatus"], "passive");
}

#[test]
fn an_empty_store_and_a_missing_one_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let empty = trieste(&["show", "gateways", "--store", &location(root.path())]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(stderr(&empty).contains("is trieste-gateway running with this store"), "{}", stderr(&empty));
    assert!(stderr(&empty).contains("error: no gateways detected"), "{}", stderr(&empty));
    let missing = trieste(&["show", "gateways", "--store", &location(&root.path().join("nowhere"))]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("does the path exist"), "{}", stderr(&missing));
    assert_eq!(stderr(&missing).matches("No such file").count(), 1, "{}", stderr(&missing));
}

#[test]
fn networks_are_shown_from_a_store_that_has_the_own_cluster() {
    let root = store_of_gateways();
    let location = location(root.path());
    let without = trieste(&["show", "networks", "--store", &location]);
    assert_eq!(without.status.code(), Some(1));
    assert!(stderr(&without).contains("no Cluster object of this cluster"), "{}", stderr(&without));
    let dir = root.path().join(NAMESPACE).join("clusters");
    fs::create_dir_all(&dir).unwrap();
    let list: Value = serde_saphyr::from_str(CLUSTERS).unwrap();
    for item in list["items"].as_array().unwrap() {
        let path = dir.join(format!("{}.yaml", item["metadata"]["name"].as_str().unwrap()));
        fs::write(path, serde_saphyr::to_string(item).unwrap()).unwrap();
    }
    let networks = trieste(&["show", "networks", "--store", &location]);
    assert!(stdout(&networks).contains("        Cluster CIDRs:   [10.1.0.0/16]\n"), "{}", stderr(&networks));
    let all = trieste(&["show", "all", "-o", "json", "--store", &location]);
    let all: Value = serde_json::from_str(&stdout(&all)).unwrap();
    assert_eq!(all["networks"]["serviceCidrs"][0], "100.1.0.0/16");
}

#[test]
fn an_api_server_that_does_not_answer_is_told_from_a_kubeconfig_that_is_not_there() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("config");
    fs::write(&config, KUBECONFIG).unwrap();
    let away = trieste(&["show", "all", "--store", &format!("kube:{}#lab", config.display())]);
    assert_eq!(away.status.code(), Some(1));
    assert!(stderr(&away).contains("is the API server up"), "{}", stderr(&away));
    let by_context = trieste(&["show", "all", "--kubeconfig", &config.display().to_string()]);
    assert_eq!(by_context.status.code(), Some(1));
    assert!(
        stdout(&by_context).starts_with("Cluster \"c\"\n ✗ context lab: the API server http://127.0.0.1:1")
    );
    assert!(stdout(&by_context).ends_with("is the context right?\n\n"), "{}", stdout(&by_context));
    let for_programs = trieste(&["show", "all", "-o", "json", "--kubeconfig", &config.display().to_string()]);
    assert_eq!(for_programs.status.code(), Some(1));
    let views: Value = serde_json::from_str(&stdout(&for_programs)).unwrap();
    assert!(views[0]["context"] == "lab" && views[0]["error"].is_string(), "{views}");
    let missing = trieste(&["show", "all", "--store", &format!("kube:{}#other", config.display())]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("other"), "{}", stderr(&missing));
}

#[test]
fn a_corrupt_file_is_a_warning_and_the_others_are_shown() {
    let root = store_of_gateways();
    fs::write(root.path().join(NAMESPACE).join("gateways/bad.yaml"), "kind: [").unwrap();
    let output = trieste(&["show", "gateways", "--store", &location(root.path())]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("a-gw1"));
    assert!(
        stderr(&output).contains("warning:") && stderr(&output).contains("bad.yaml"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_a_source_it_says_what_to_pass() {
    if Path::new("/run/trieste/gateway.sock").exists() {
        return;
    }
    let output = trieste(&["show", "connections"]);
    assert_eq!(output.status.code(), Some(1));
    for word in ["--socket", "--store", "Start trieste-gateway"] {
        assert!(stderr(&output).contains(word), "{word} is missing in {}", stderr(&output));
    }
}

#[test]
fn a_socket_that_is_missing_or_dead_is_explained() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("gateway.sock");
    for command in [&["status"][..], &["show", "all"], &["capture", "-w", "/dev/null"]] {
        let output = trieste(&[command, &["--socket", path.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("Is trieste-gateway running"), "{}", stderr(&output));
    }
    drop(UnixListener::bind(&path).unwrap());
    let output = trieste(&["status", "--socket", path.to_str().unwrap()]);
    assert!(stderr(&output).contains("the gateway that made this socket has ended"), "{}", stderr(&output));
}

#[test]
fn one_gateway_is_shown_through_its_socket() {
    let gateway = Gateway::serve(|path, stream| {
        assert_eq!(path, "/v1/gateway");
        let list: Value = serde_saphyr::from_str(RECORDED).unwrap();
        answer(stream, "200 OK", list["items"][0].to_string().as_bytes());
    });
    let output = trieste(&["show", "connections", "--socket", gateway.socket()]);
    assert!(stdout(&output).contains("b-gw1     cluster-b"), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_refusal_is_told_in_the_gateways_own_words() {
    let gateway = Gateway::serve(|path, stream| {
        assert_eq!(path, "/v1/capture?point=opened,drops&host=10.0.0.1&port=53&proto=udp&snaplen=64");
        answer(stream, "409 Conflict", br#"{"error":"four captures are running already; end one"}"#);
    });
    let words = "capture --point opened,drops --host 10.0.0.1 --port 53 --proto udp --snaplen 64 -w -";
    let words: Vec<&str> = words.split(' ').chain(["--socket", gateway.socket()]).collect();
    let output = trieste(&words);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("four captures are running already"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_capture_passes_packets_as_they_come_and_counts_them_when_interrupted() {
    let gateway = capturing_gateway(3);
    let mut child = spawn(&["capture", "-w", "-", "--socket", gateway.socket()]);
    let mut seen = vec![0; pcapng(3).len()];
    child.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
    assert_eq!(seen, pcapng(3), "what passes must not wait for more");
    let (code, remarks) = interrupt(child);
    assert_eq!(code, Some(0), "{remarks}");
    assert!(remarks.contains(&format!("3 packets, {} bytes captured", seen.len())), "{remarks}");
}

#[test]
fn a_capture_to_a_file_is_complete_when_interrupted() {
    let gateway = capturing_gateway(5);
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("out.pcapng");
    let child = spawn(&["capture", "-w", file.to_str().unwrap(), "--socket", gateway.socket()]);
    let start = Instant::now();
    while fs::read(&file).unwrap_or_default() != pcapng(5) {
        assert!(start.elapsed() < Duration::from_secs(10), "the file does not grow");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, remarks) = interrupt(child);
    assert_eq!(code, Some(0), "{remarks}");
    assert_eq!(fs::read(&file).unwrap(), pcapng(5));
}

#[test]
fn a_capture_is_not_written_to_a_terminal() {
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    let output = command(&["capture"]).stdout(terminal).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("| tcpdump -n -r -"), "{}", stderr(&output));
}

#[test]
fn a_capture_ends_when_nobody_reads_even_without_traffic() {
    let gateway = capturing_gateway(1);
    let mut child = spawn(&["capture", "-w", "-", "--socket", gateway.socket()]);
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child), Some(0));
}

#[test]
fn a_gateway_that_stops_ends_the_capture_with_an_error() {
    let gateway = Gateway::serve(|_, stream| answer(stream, "200 OK", &pcapng(2)));
    let output = trieste(&["capture", "-w", "-", "--socket", gateway.socket()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, pcapng(2));
    assert!(stderr(&output).contains("the gateway ended the capture"), "{}", stderr(&output));
}

#[test]
fn a_refused_capture_leaves_an_older_file_alone() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("old.pcapng");
    fs::write(&file, "old").unwrap();
    let gateway = Gateway::serve(|_, stream| answer(stream, "400 Bad Request", b"no"));
    let output = trieste(&["capture", "-w", file.to_str().unwrap(), "--socket", gateway.socket()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let root = store_of_gateways();
    let location = location(root.path());
    for words in [&["show", "all", "--store", &location][..], &["completions", "bash"], &["version"]] {
        let mut child = spawn(words);
        drop(child.stdout.take());
        let mut remarks = String::new();
        child.stderr.take().unwrap().read_to_string(&mut remarks).unwrap();
        assert_eq!(wait(&mut child), Some(0), "{words:?}: {remarks}");
        assert_eq!(remarks, "", "{words:?}");
    }
}

#[test]
fn wrong_words_are_an_error_of_code_1_and_help_is_an_answer() {
    for words in [
        &["show", "nothing"][..],
        &["nonsense"],
        &["capture", "--point", "nowhere"],
        &["capture", "--port", "99999"],
    ] {
        let output = trieste(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(stderr(&output).contains("error:"), "{words:?}");
    }
    let output = trieste(&["--help"]);
    assert!(output.status.success() && stdout(&output).contains("capture"));
    assert_eq!(stdout(&trieste(&["version"])), format!("trieste version: {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&trieste(&["completions", shell])).contains("trieste"), "{shell}");
    }
}

/// Longer than a command waits for anything.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// A gateway that serves one request.
pub(crate) struct Gateway {
    _root: tempfile::TempDir,
    socket: String,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Gateway {
    pub(crate) fn serve(work: impl FnOnce(&str, &mut UnixStream) + Send + 'static) -> Self {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("gateway.sock").to_str().unwrap().to_owned();
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(ANSWERS_WITHIN)).unwrap();
            let mut request = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            work(&path, &mut stream);
        });
        Self { _root: root, socket, thread: Some(thread) }
    }

    pub(crate) fn socket(&self) -> &str {
        &self.socket
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A test that fails may have asked nothing.
        if !std::thread::panicking() {
            // Nor may one that passes: then it is this that is asked for, and no request.
            drop(UnixStream::connect(&self.socket));
            self.thread.take().unwrap().join().unwrap();
        }
    }
}

/// Sends so many packets, then nothing until the client has gone.
fn capturing_gateway(packets: usize) -> Gateway {
    Gateway::serve(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        for piece in pcapng(packets).chunks(100) {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
            stream.write_all(piece).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    })
}

pub(crate) fn answer(stream: &mut UnixStream, status: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
}

/// A section, an interface, and so many packets.
fn pcapng(packets: usize) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(12 + body.len()).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut bytes = block(0x0a0d_0d0a, &section);
    bytes.extend(block(1, &[101, 0, 0, 0, 0, 0, 0, 0]));
    for _ in 0..packets {
        bytes.extend(block(6, &[0; 48]));
    }
    bytes
}

fn store_of_gateways() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join(NAMESPACE).join("gateways");
    fs::create_dir_all(&dir).unwrap();
    let list: Value = serde_saphyr::from_str(RECORDED).unwrap();
    for item in list["items"].as_array().unwrap() {
        let path = dir.join(format!("{}.yaml", item["metadata"]["name"].as_str().unwrap()));
        fs::write(path, serde_saphyr::to_string(item).unwrap()).unwrap();
    }
    root
}

pub(crate) fn location(path: &Path) -> String {
    format!("dir:{}", path.display())
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trieste"));
    command
        .args(words)
        .env_remove("TRIESTE_ADMIN_SOCKET")
        .env_remove("SUBMARINER_NAMESPACE")
        .env_remove("KUBECONFIG")
        .env("HOME", "/nowhere")
        .stdin(Stdio::null());
    command
}

pub(crate) fn trieste(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn spawn(words: &[&str]) -> Child {
    command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Presses Ctrl-C; gives the exit code and the remarks.
fn interrupt(mut child: Child) -> (Option<i32>, String) {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let code = wait(&mut child);
    let mut remarks = String::new();
    child.stderr.take().unwrap().read_to_string(&mut remarks).unwrap();
    (code, remarks)
}

/// Waits for the end, for a bounded time.
fn wait(child: &mut Child) -> Option<i32> {
    let (sender, receiver) = mpsc::channel::<()>();
    let pid = Pid::from_child(child);
    let guard = std::thread::spawn(move || {
        if receiver.recv_timeout(Duration::from_secs(10)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let code = child.wait().unwrap().code();
    drop(sender);
    guard.join().unwrap();
    code
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
