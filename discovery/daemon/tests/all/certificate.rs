//! The agent and a broker whose certificate it does not accept.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

/// What the agent logs of it.
const REFUSED: &str = "not from an authority that we trust";

/// Longer than the end takes.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Ends an agent that is still there after a minute, and with it whoever reads what it logs.
struct Limit(#[expect(dead_code, reason = "its end is what counts")] mpsc::Sender<()>);

impl Limit {
    fn of(agent: &Child) -> Self {
        let (sender, is_over) = mpsc::channel();
        let pid = Pid::from_raw(agent.id().try_into().unwrap());
        thread::spawn(move || {
            if is_over.recv_timeout(2 * ENDS_WITHIN) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill(pid, Signal::SIGKILL);
            }
        });
        Self(sender)
    }
}

/// Begins a server of TLS, which says nothing; returns its address.
fn serve() -> SocketAddr {
    let server = include_bytes!("../../../../control/tests/publicip/server.pem");
    let key = include_bytes!("../../../../control/tests/publicip/server.key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(server).unwrap()],
            PrivateKeyDer::from_pem_slice(key).unwrap(),
        )
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.unwrap(), Arc::clone(&config));
            thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                let _ = stream.read(&mut [0]);
            });
        }
    });
    address
}

/// Starts the agent under a name, with or without the setting; it trusts another authority than the broker's.
fn start(
    name: &str,
    halts: Option<&str>,
    root: &TempDir,
    broker: SocketAddr,
) -> (Child, BufReader<ChildStderr>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trieste-discovery"));
    command.arg0(name).env_clear();
    if name == "trieste-discovery" {
        command.arg("agent");
    }
    let settings = [
        ("SUBMARINER_CLUSTERID", "east".to_owned()),
        ("BROKER_K8S_APISERVER", broker.to_string()),
        ("BROKER_K8S_APISERVERTOKEN", "token".to_owned()),
        ("BROKER_K8S_CA", include_str!("../../../../control/src/store/kube/tests/authority.pem").to_owned()),
        ("TRIESTE_STATE_DIR", root.path().display().to_string()),
        ("TRIESTE_LEADER_ELECTION", "false".to_owned()),
        ("TRIESTE_AGENT_METRICS", "off".to_owned()),
    ];
    command.envs(settings).envs(halts.map(|halts| ("SUBMARINER_HALT_ON_CERT_ERROR", halts)));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    (child, errors)
}

#[test]
fn a_certificate_that_is_not_accepted_ends_the_agent_where_that_is_set_and_no_other() {
    let broker = serve();
    for name in ["lighthouse-agent", "trieste-discovery"] {
        for halts in [Some("true"), Some("false"), None] {
            let root = TempDir::new().unwrap();
            let (mut child, errors) = start(name, halts, &root, broker);
            let _limit = Limit::of(&child);
            let mut lines = errors.lines().map(Result::unwrap);
            let logged = lines.find(|line| line.contains(REFUSED));
            if halts == Some("true") {
                let begun = Instant::now();
                let status = loop {
                    match child.try_wait().unwrap() {
                        Some(status) => break status,
                        None if begun.elapsed() < ENDS_WITHIN => thread::sleep(Duration::from_millis(10)),
                        None => {
                            child.kill().unwrap();
                            panic!("{name} does not end");
                        }
                    }
                };
                let last = lines.last().or(logged).unwrap();
                assert!(last.contains("SUBMARINER_HALT_ON_CERT_ERROR") && last.contains(REFUSED), "{last}");
                assert!(!status.success());
            } else {
                assert!(logged.is_some(), "{name} {halts:?} ends");
                kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
                assert!(lines.all(|line| !line.contains("SUBMARINER_HALT_ON_CERT_ERROR")));
                assert!(child.wait().unwrap().success(), "{name} {halts:?} ends by a signal alone");
            }
        }
    }
}
