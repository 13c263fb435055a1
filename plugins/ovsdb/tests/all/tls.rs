//! TLS with the certificates that Open vSwitch's own tool makes.

use std::path::{Path, PathBuf};

use trieste_ovsdb::options::ClientOptions;
use trieste_ovsdb::tls::TlsFiles;

use crate::follower::{Follower, options, spec};
use crate::server::{Server, run};

/// Two CAs (`switch` and `controller`) and what they have issued.
struct Pki {
    folder: tempfile::TempDir,
}

impl Pki {
    fn new() -> Self {
        let pki = Self { folder: tempfile::tempdir().unwrap() };
        pki.call(&["init"]);
        pki
    }

    fn call(&self, arguments: &[&str]) {
        let path = self.folder.path().display();
        // ovs-pki writes into the folder that it runs in.
        let command = format!("cd {path} && exec ovs-pki --batch --dir={path}/pki --log={path}/log \"$@\"");
        run("sh", &[&["-c", &command, "ovs-pki"], arguments].concat());
    }

    /// Has a CA issue a certificate, and returns key and certificate.
    fn issue(&self, name: &str, ca: &str) -> (PathBuf, PathBuf) {
        self.call(&["-u", "req+sign", name, ca]);
        let file = |suffix: &str| self.folder.path().join(format!("{name}-{suffix}.pem"));
        (file("privkey"), file("cert"))
    }

    fn ca(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("pki/{name}ca/cacert.pem"))
    }
}

fn server(files: &(PathBuf, PathBuf), ca: &Path) -> Server {
    let (key, certificate) = (files.0.display(), files.1.display());
    Server::start(&[
        "--remote=pssl:0:127.0.0.1",
        &format!("--private-key={key}"),
        &format!("--certificate={certificate}"),
        &format!("--ca-cert={}", ca.display()),
    ])
}

fn follower(server: &Server, files: (PathBuf, PathBuf), ca: PathBuf) -> Follower {
    let remote = format!("ssl:127.0.0.1:{}", server.port("127.0.0.1"));
    let tls = TlsFiles { key: files.0, certificate: files.1, ca };
    Follower::with(&remote, spec(), ClientOptions { tls: Some(tls), ..options() })
}

#[tokio::test]
async fn plugin_ovn_db_both_sides_show_certificates_of_their_ca() {
    let pki = Pki::new();
    let server = server(&pki.issue("server", "switch"), &pki.ca("switch"));
    server.nbctl(&["lr-add", "one"]);
    let client = pki.issue("client", "switch");
    let mut ours = follower(&server, client.clone(), pki.ca("switch"));
    assert_eq!(ours.synced().await.rows("Logical_Router").count(), 1);

    // A server of another CA.
    let strange = follower(&server, client, pki.ca("controller"));
    let error = strange.failed("TLS handshake failed").await;
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert!(!strange.replica.borrow().is_synced());

    // A client of another CA: in TLS 1.3 it learns that after its handshake.
    let refused = follower(&server, pki.issue("stranger", "controller"), pki.ca("switch"));
    refused.failed("").await;
    assert!(!refused.replica.borrow().is_synced());

    let remote = format!("ssl:127.0.0.1:{}", server.port("127.0.0.1"));
    let without = Follower::new(&remote);
    without.failed("no key, certificate and CA are configured").await;
    let missing = follower(&server, ("/nothing/key".into(), "/nothing/cert".into()), pki.ca("switch"));
    missing.failed("cannot read /nothing/key").await;
    let swapped = pki.issue("swapped", "switch");
    let swapped = follower(&server, (swapped.1, swapped.0), pki.ca("switch"));
    swapped.failed("has no private key in PEM").await;
}

#[tokio::test]
async fn plugin_ovn_db_certificates_are_read_again_with_each_connection() {
    let pki = Pki::new();
    let server = server(&pki.issue("server", "switch"), &pki.ca("switch"));
    let stranger = pki.issue("client", "controller");
    let mut follower = follower(&server, stranger.clone(), pki.ca("switch"));
    follower.failed("").await;
    let renewed = pki.issue("renewed", "switch");
    // Key and certificate do not fit each other for a moment, which is one more failure.
    std::fs::rename(renewed.0, stranger.0).unwrap();
    std::fs::rename(renewed.1, stranger.1).unwrap();
    follower.synced().await;
}
