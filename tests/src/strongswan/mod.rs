//! strongSwan as the foreign IPsec gateway: charon with its ESP in user space (kernel-libipsec), as many as there are
//! namespaces.
//!
//! ```text
//!   Strongswan ── swanctl ── vici socket ── charon ── UDP 4500, or IP protocol 50 ── eth0
//!                                              └───── TUN ipsec0, routes in table 220 ── pods
//! ```
//! [`connection`] is what it is told, [`sas`] what it tells. Everything that it writes lies in the lab's directory.

pub mod connection;
pub mod sas;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::peer;
use crate::wait::eventually;
pub use connection::{Child, Connection, Encapsulation, Start};
pub use sas::{ChildSa, IkeSa};

/// How long it may take to answer on its socket.
const READY: Duration = Duration::from_secs(30);
/// What it loads; the order is that of Debian's own list.
const PLUGINS: &str = "random nonce openssl aes sha1 sha2 hmac kdf gcm chapoly curve25519 pem pkcs1 x509 pubkey \
                       constraints kernel-libipsec kernel-netlink socket-default vici updown";
/// Where charon in a folder of its own sees the lab's directory: a folder that every Debian has.
const MOUNT_POINT: &str = "/mnt";
/// Lines of its log that an error shows.
const LOG_TAIL_LINES: usize = 30;

/// Whose strongSwan it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// 5.9, installed on this machine: ESP in UDP alone.
    Installed,
    /// 6.0 of Debian trixie, in a folder that `./dev` unpacks: raw ESP.
    Trixie,
}

/// A charon that is running; it ends when this is dropped, and its device and routes with it.
#[derive(Debug)]
pub struct Strongswan {
    lab: Lab,
    namespace: Namespace,
    release: Release,
    name: String,
    directory: PathBuf,
    charon: Option<Daemon>,
}

impl Strongswan {
    /// Starts it without any connection. Its log is `NAME-charon` of the lab.
    ///
    /// # Errors
    /// If it is not installed, or does not answer.
    pub fn start(lab: &Lab, name: &str, namespace: &Namespace, release: Release) -> anyhow::Result<Self> {
        let directory = lab.directory().join(format!("{name}-charon"));
        // swanctl looks for certificates in folders beside its file, and complains about those that are missing.
        for folder in [
            "x509", "x509ca", "x509ocsp", "x509aa", "x509ac", "x509crl", "pubkey", "private", "rsa", "ecdsa",
            "pkcs8", "pkcs12",
        ] {
            std::fs::create_dir_all(directory.join(folder))?;
        }
        let mut strongswan = Self {
            lab: lab.clone(),
            namespace: namespace.clone(),
            release,
            name: name.to_owned(),
            directory,
            charon: None,
        };
        std::fs::write(strongswan.settings_path(), strongswan.settings())?;
        strongswan.restart()?;
        Ok(strongswan)
    }

    /// Starts it again after [`Strongswan::kill`]. It has forgotten its connections.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let run = self.program()?.env("STRONGSWAN_CONF", self.seen(&self.settings_path()));
        let charon = Daemon::start(&self.lab, &format!("{}-charon-output", self.name), &run)?;
        let (socket, stats) = (self.directory.join("vici"), self.swanctl(&["--stats"]));
        eventually("charon to answer", READY, || {
            charon.check()?;
            anyhow::ensure!(socket.exists(), "{} is not there", socket.display());
            stats.stdout()
        })
        .with_context(|| self.last_words())?;
        self.charon = Some(charon);
        Ok(())
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.charon.take().context("charon does not run")?.kill()?;
        let _ = std::fs::remove_file(self.directory.join("vici"));
        Ok(())
    }

    /// Replaces all its connections and secrets by this one. SAs stay: [`Strongswan::terminate`] ends them.
    ///
    /// # Errors
    /// What swanctl says.
    pub fn load(&self, connection: &Connection) -> anyhow::Result<()> {
        let file = self.directory.join("swanctl.conf");
        std::fs::write(&file, connection.text())?;
        let run = self.swanctl(&["--load-all", "--clear", "--noprompt", "--file"]).arg(&file);
        let told = run.stdout().with_context(|| self.last_words())?;
        anyhow::ensure!(told.contains("successfully loaded 1 connections"), "swanctl: {told}");
        Ok(())
    }

    /// Sets up a child SA, and the IKE SA below it unless there is one.
    ///
    /// # Errors
    /// What charon has logged about it.
    pub fn initiate(&self, child: &str) -> anyhow::Result<()> {
        self.ask(&["--initiate", "--child", child, "--timeout", "8"])
    }

    /// Renews child SAs.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn rekey_child(&self, child: &str) -> anyhow::Result<()> {
        self.ask(&["--rekey", "--child", child])
    }

    /// Renews the IKE SA.
    ///
    /// # Errors
    /// If there is none.
    pub fn rekey_ike(&self) -> anyhow::Result<()> {
        self.ask(&["--rekey", "--ike", connection::NAME])
    }

    /// Ends the IKE SA with all its children, telling the other side.
    ///
    /// # Errors
    /// If there is none.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.ask(&["--terminate", "--ike", connection::NAME, "--timeout", "8"])
    }

    /// Forgets all its IKE SAs without a word to the other side.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn forget(&self) -> anyhow::Result<()> {
        if self.sas()?.is_empty() {
            return Ok(());
        }
        self.ask(&["--terminate", "--force", "--timeout", "-1", "--ike", connection::NAME])?;
        eventually("charon to forget its SAs", READY, || {
            anyhow::ensure!(self.sas()?.is_empty(), "some are left");
            Ok(())
        })
    }

    /// Its IKE SAs, with their children.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn sas(&self) -> anyhow::Result<Vec<IkeSa>> {
        sas::parse(&self.swanctl(&["--list-sas", "--raw"]).stdout()?)
    }

    /// Waits until there is exactly one established IKE SA, with exactly this many installed child SAs; returns it with
    /// those alone. Renewed ones stay in the list for a few seconds.
    ///
    /// # Errors
    /// If there is not within `timeout`; the error shows its log.
    pub fn wait_children(&self, count: usize, timeout: Duration) -> anyhow::Result<IkeSa> {
        let found = eventually("strongSwan's SAs", timeout, || {
            let sas = self.sas()?;
            let established: Vec<_> = sas.iter().filter(|ike| ike.state == "ESTABLISHED").collect();
            let [ike] = established.as_slice() else { anyhow::bail!("{} IKE SAs: {sas:?}", sas.len()) };
            let mut ike = (*ike).clone();
            ike.children.retain(|child| child.state == "INSTALLED");
            anyhow::ensure!(ike.children.len() == count, "{sas:?}");
            Ok(ike)
        });
        found.with_context(|| self.last_words())
    }

    /// Waits until none of these child SAs is left, and as many others have taken their place.
    ///
    /// # Errors
    /// If they have not within `timeout`; the error shows its log.
    pub fn wait_renewed(&self, before: &IkeSa, timeout: Duration) -> anyhow::Result<IkeSa> {
        eventually("new child SAs", timeout, || {
            let now = self.wait_children(before.children.len(), timeout)?;
            let is_old = |child: &ChildSa| before.children.iter().any(|other| other.spi_in == child.spi_in);
            anyhow::ensure!(!now.children.iter().any(is_old), "{now:?}");
            Ok(now)
        })
    }

    /// Its process.
    ///
    /// # Errors
    /// If it does not run.
    pub fn charon(&self) -> anyhow::Result<&Daemon> {
        self.charon.as_ref().context("charon does not run")
    }

    /// What it has logged so far.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn ask(&self, words: &[&str]) -> anyhow::Result<()> {
        self.swanctl(words).stdout().map(drop).with_context(|| self.last_words())
    }

    /// swanctl is that of this machine for both releases: their sockets speak the same.
    fn swanctl(&self, words: &[&str]) -> Run {
        Run::new("swanctl")
            .env("STRONGSWAN_CONF", self.settings_path())
            .args(&words[..1])
            .arg("--uri")
            .arg(self.uri())
            .args(&words[1..])
            .timeout(Duration::from_secs(15))
    }

    fn uri(&self) -> String {
        format!("unix://{}", self.directory.join("vici").display())
    }

    fn program(&self) -> anyhow::Result<Run> {
        match self.release {
            Release::Installed => {
                // Where AppArmor confines Debian's file, it does so by its path.
                let own = self.directory.join("charon");
                let debian = Path::new("/usr/sbin/charon-systemd");
                std::fs::copy(debian, &own)
                    .with_context(|| format!("{}: run ./dev deps", debian.display()))?;
                Ok(self.namespace.run(&own.to_string_lossy()))
            }
            Release::Trixie => {
                let root = peer::cache().join("trixie");
                anyhow::ensure!(root.is_dir(), "{} is missing: run ./dev deps", root.display());
                // ip netns exec has made a mount namespace for us: what is mounted goes with the process.
                let script = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
                              mount --bind \"$1\" \"$0$2\" && exec chroot \"$0\" /usr/sbin/charon-systemd";
                let directory = self.lab.directory();
                Ok(self.namespace.run("sh").args(["-c", script]).arg(root).arg(directory).arg(MOUNT_POINT))
            }
        }
    }

    fn settings_path(&self) -> PathBuf {
        self.directory.join("strongswan.conf")
    }

    fn log_path(&self) -> PathBuf {
        self.lab.log_path(&format!("{}-charon", self.name))
    }

    fn settings(&self) -> String {
        let raw_esp = match self.release {
            Release::Installed => "",
            Release::Trixie => "      raw_esp = yes\n",
        };
        format!(
            "charon-systemd {{\n\
             \x20 load = {PLUGINS}\n\
             \x20 retransmit_tries = 3\n\
             \x20 retransmit_timeout = 1.0\n\
             \x20 retransmit_base = 1.5\n\
             \x20 plugins {{\n\
             \x20   vici {{\n\
             \x20     socket = unix://{socket}\n\
             \x20   }}\n\
             \x20   kernel-libipsec {{\n\
             \x20     allow_peer_ts = no\n{raw_esp}\
             \x20   }}\n\
             \x20 }}\n\
             \x20 journal {{\n\
             \x20   default = -1\n\
             \x20 }}\n\
             \x20 filelog {{\n\
             \x20   log {{\n\
             \x20     path = {log}\n\
             \x20     default = 1\n\
             \x20     ike = 2\n\
             \x20     enc = 1\n\
             \x20     cfg = 2\n\
             \x20     flush_line = yes\n\
             \x20     time_format = %T\n\
             \x20   }}\n\
             \x20 }}\n\
             }}\n",
            socket = self.seen(&self.directory.join("vici")).display(),
            log = self.seen(&self.log_path()).display(),
        )
    }

    /// A path in the lab's directory as charon sees it.
    fn seen(&self, path: &Path) -> PathBuf {
        match (self.release, path.strip_prefix(self.lab.directory())) {
            (Release::Trixie, Ok(inside)) => Path::new(MOUNT_POINT).join(inside),
            _ => path.to_owned(),
        }
    }

    fn last_words(&self) -> String {
        let text = self.log_text();
        let lines: Vec<_> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("the end of {}:\n{}\n", self.log_path().display(), tail.join("\n"))
    }
}

impl Drop for Strongswan {
    fn drop(&mut self) {
        if self.lab.is_kept() {
            return;
        }
        // The device goes with the process, and the routes with the device; the rule that looks at their table stays.
        drop(self.charon.take());
        for family in ["-4", "-6"] {
            let words = ["-n", self.namespace.name(), family, "rule", "del", "table", "220"];
            let _ = Run::new("ip").args(words).finish();
        }
    }
}
