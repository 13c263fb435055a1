//! The program on nodes of OVN-Kubernetes that have no database. With one: `tests/tests/netns/plugin_ovn.rs`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trieste-plugin-sync");
const PATIENCE: Duration = Duration::from_secs(60);

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(directory: &Path) -> Command {
    command_at(directory, &format!("unix:{}", directory.join("absent.sock").display()))
}

fn command_at(directory: &Path, remote: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["--store", &format!("dir:{}", directory.join("store").display())])
        .args([
            "--network-plugin=OVNKubernetes",
            "--cluster-id=a",
            "--node-name=n1",
            "--cluster-cidrs=10.1.0.0/16",
        ])
        .args(["--ovn-northbound", remote])
        .env("TRIESTE_PASS_FILE", directory.join("pass.json"));
    command
}

#[test]
fn plugin_ovn_on_a_node_without_a_database_the_worker_waits_is_well_and_has_nothing_to_remove() {
    let directory = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let _worker = Worker(command(directory.path()).stderr(log).spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while !command(directory.path()).arg("--check").stderr(Stdio::null()).status().unwrap().success() {
        assert!(Instant::now() < deadline, "it is not well");
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = std::fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(said.contains("this node has no northbound database"), "{said}");
    assert!(command(directory.path()).arg("--uninstall").status().unwrap().success());
}

#[test]
fn plugin_ovn_a_database_that_cannot_be_reached_is_named_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody listens there, and it is another machine's: what is in it is not known.
    let remote = "tcp:127.0.0.1:1";
    let far = || {
        let mut command = command_at(directory.path(), remote);
        command.arg("--leader-election=false").stderr(Stdio::piped());
        command
    };
    let _worker = Worker(far().stderr(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = far().arg("--check").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if !output.status.success() && said.contains(remote) {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
