//! Servers and OVN's tools. All of a server's files are in a folder of its own, and it ends with its handle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

/// OVN's schema, from the package `ovn-common`.
pub(crate) const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";
/// How long a server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A server of one database.
pub(crate) struct Server {
    pub(crate) directory: PathBuf,
    options: Vec<String>,
    process: Option<Child>,
    /// Removed with the handle.
    temporary: Option<TempDir>,
}

impl Server {
    /// Starts a server of an empty northbound database. Beside its Unix socket it listens on `remotes`, whose ports are 0.
    pub(crate) fn start(options: &[&str]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        create_database(&temporary.path().join("nb.db"), Path::new(SCHEMA));
        Self::of_database(temporary, options)
    }

    /// Starts a server of the database `nb.db` in a folder.
    pub(crate) fn of_database(temporary: TempDir, options: &[&str]) -> Self {
        let directory = temporary.path().to_owned();
        let mut server = Self::in_folder(&directory, options);
        server.temporary = Some(temporary);
        server
    }

    /// Starts a server of the database `nb.db` in a folder of somebody else's.
    pub(crate) fn in_folder(directory: &Path, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let directory = directory.to_owned();
        let mut server = Self { directory, options, process: None, temporary: None };
        server.restart();
        server
    }

    /// Kills the server if it runs, and starts it with the same files.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let file = |name: &str| self.directory.join(name).display().to_string();
        let _ = fs::remove_file(file("log"));
        let process = Command::new("ovsdb-server")
            .args(["--no-chdir", "-vconsole:off"])
            .arg(format!("--unixctl={}", file("ctl")))
            .arg(format!("--pidfile={}", file("pid")))
            .arg(format!("--log-file={}", file("log")))
            .arg(format!("--remote=punix:{}", file("db.sock")))
            .args(&self.options)
            .arg(file("nb.db"))
            .stdin(Stdio::null())
            .spawn()
            .expect("ovsdb-server starts (Debian package openvswitch-switch)");
        self.process = Some(process);
        let until = Instant::now() + START_TIMEOUT;
        while !Path::new(&file("db.sock")).exists() || !self.log().contains("ovsdb-server (Open vSwitch)") {
            assert!(Instant::now() < until, "ovsdb-server does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the server without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
            let _ = fs::remove_file(self.directory.join("db.sock"));
        }
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server runs");
        nix::sys::signal::kill(Pid::from_raw(process.id().try_into().unwrap()), signal).unwrap();
    }

    /// Returns `true` if it was not killed.
    pub(crate) const fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// The remote of its Unix socket.
    pub(crate) fn unix(&self) -> String {
        format!("unix:{}", self.directory.join("db.sock").display())
    }

    /// The port that it got for the remote at this address (as the log writes it).
    pub(crate) fn port(&self, address: &str) -> u16 {
        let listens = format!("0:{address}: listening on port ");
        let log = self.log();
        let port = log
            .lines()
            .find_map(|line| Some(line.split_once(&listens)?.1))
            .unwrap_or_else(|| panic!("{log}"));
        port.parse().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs `ovn-nbctl` on it.
    pub(crate) fn nbctl(&self, arguments: &[&str]) -> String {
        let database = format!("--db={}", self.unix());
        run("ovn-nbctl", &[&["--no-leader-only", "--timeout=20", &database], arguments].concat())
    }

    /// Runs `ovs-appctl` on it.
    pub(crate) fn appctl(&self, arguments: &[&str]) -> String {
        let control = self.directory.join("ctl").display().to_string();
        run("ovs-appctl", &[&["--timeout=20", "-t", &control], arguments].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a database file.
pub(crate) fn create_database(file: &Path, schema: &Path) {
    run("ovsdb-tool", &["create", &file.display().to_string(), &schema.display().to_string()]);
}

/// Runs a program to its end and returns what it wrote.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.unwrap_or_else(|error| panic!("cannot run {program}: {error} (see dev.d/packages.txt)"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {out}{err}");
    out.into_owned()
}
