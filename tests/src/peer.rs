//! Foreign gateways: `tests/peers/NAME.sh` put where a Trieste gateway would stand.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;

use crate::command::Run;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::process::ProcessId;

/// A WireGuard key pair, base64.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// The private key.
    pub private: String,
    /// The public key.
    pub public: String,
}

impl KeyPair {
    /// A fresh one, made by `wg`.
    ///
    /// # Errors
    /// If wireguard-tools are missing.
    pub fn generate() -> anyhow::Result<Self> {
        let private = Run::new("wg").arg("genkey").stdout()?.trim().to_owned();
        let public = Run::new("wg").arg("pubkey").input(private.as_bytes()).stdout()?.trim().to_owned();
        Ok(Self { private, public })
    }
}

/// What a peer is told; see `tests/peers/README.md`.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// Its script's name without `.sh`.
    pub name: String,
    /// Where it runs.
    pub namespace: Namespace,
    /// Its own underlay address and port.
    pub local: SocketAddr,
    /// The other side's; `None` if it only answers.
    pub remote: Option<SocketAddr>,
    /// Inner addresses of its interface.
    pub addresses: Vec<IpNet>,
    /// Prefixes behind the other side.
    pub subnets: Vec<IpNet>,
    /// Its private key, base64.
    pub private_key: String,
    /// The other side's public key, base64.
    pub remote_public_key: String,
    /// The preshared key, base64.
    pub psk: Option<String>,
    /// Seconds between keepalives.
    pub keepalive: Option<u16>,
    /// Inner MTU in bytes.
    pub mtu: u16,
}

/// A foreign gateway that is up; down when dropped.
#[derive(Debug)]
pub struct Peer {
    script: Run,
    lab: Lab,
}

impl Peer {
    /// Starts it.
    ///
    /// # Errors
    /// What the script says.
    pub fn start(lab: &Lab, config: &PeerConfig) -> anyhow::Result<Self> {
        Self::start_of(lab, config, None)
    }

    /// Starts it; where it is a gateway of ours, from the programs in this folder.
    ///
    /// # Errors
    /// What the script says.
    pub fn start_of(lab: &Lab, config: &PeerConfig, programs: Option<&Path>) -> anyhow::Result<Self> {
        // The interface's name also names a socket in /var/run: unique on the machine, at most 15 bytes.
        let interface = format!("{}w{}", lab.id(), last_octets(config.local));
        let state = lab.directory().join(&interface);
        std::fs::create_dir_all(&state)?;
        lab.adopt_file(&Path::new("/var/run/wireguard").join(format!("{interface}.sock")))?;
        let key_file = write(&state.join("private.key"), &config.private_key)?;
        let script = script_path(&config.name)?;
        let list = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let mut run = Run::new(&script)
            .env("PEER_NS", config.namespace.name())
            .env("PEER_IF", &interface)
            .env("PEER_STATE", &state)
            .env("PEER_BIN", binaries())
            .env("PEER_LOCAL", config.local.ip().to_string())
            .env("PEER_PORT", config.local.port().to_string())
            .env("PEER_ADDRESSES", list(&config.addresses))
            .env("PEER_SUBNETS", list(&config.subnets))
            .env("PEER_PRIVATE_KEY_FILE", &key_file)
            .env("PEER_REMOTE_PUBLIC_KEY", &config.remote_public_key)
            .env("PEER_MTU", config.mtu.to_string())
            .timeout(Duration::from_secs(20));
        if let Some(remote) = config.remote {
            run = run
                .env("PEER_REMOTE", remote.ip().to_string())
                .env("PEER_REMOTE_PORT", remote.port().to_string());
        }
        if let Some(psk) = &config.psk {
            run = run.env("PEER_PSK_FILE", write(&state.join("psk.key"), psk)?);
        }
        if let Some(programs) = programs {
            run = run.env("TRIESTE_BIN", programs);
        }
        if let Some(seconds) = config.keepalive {
            run = run.env("PEER_KEEPALIVE", seconds.to_string());
        }
        run.clone().arg("up").stdout().with_context(|| format!("starting the peer {}", config.name))?;
        let peer = Self { script: run, lab: lab.clone() };
        for process in peer.processes()? {
            lab.adopt_process(process)?;
        }
        Ok(peer)
    }

    /// Its daemons.
    ///
    /// # Errors
    /// If the script fails.
    pub fn processes(&self) -> anyhow::Result<Vec<ProcessId>> {
        let pids = self.script.clone().arg("pids").stdout()?;
        pids.split_whitespace().map(|pid| ProcessId::of(pid.parse()?)).collect()
    }

    /// Ends its daemons as a crash would.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(&self) -> anyhow::Result<()> {
        for process in self.processes()? {
            process.signal(nix::sys::signal::Signal::SIGKILL)?;
            process.wait_end(Duration::from_secs(2));
        }
        Ok(())
    }

    /// Starts it again after [`Peer::kill`], with the same configuration.
    ///
    /// # Errors
    /// What the script says.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.script.clone().arg("down").finish()?;
        self.script.clone().arg("up").stdout()?;
        for process in self.processes()? {
            self.lab.adopt_process(process)?;
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.lab.is_kept()
            && let Err(error) = self.script.clone().arg("down").finish()
        {
            eprintln!("ending a peer: {error:#}");
        }
    }
}

/// Tells peers of one lab apart: `172.31.2.1` and `fd00:31::2:1` both give `2-1`.
fn last_octets(address: SocketAddr) -> String {
    let text = address.ip().to_string();
    let mut parts: Vec<_> = text.rsplit(['.', ':']).take(2).collect();
    parts.reverse();
    parts.join("-")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn script_path(name: &str) -> anyhow::Result<PathBuf> {
    let path = repository().join("tests/peers").join(format!("{name}.sh"));
    anyhow::ensure!(path.is_file(), "there is no peer {name}: {} is missing", path.display());
    Ok(path)
}

/// Returns the folder of the foreign programs: where `./dev`, which fetches them, says in `TRIESTE_PEERS`, or else where it
/// keeps them.
pub fn cache() -> PathBuf {
    if let Some(folder) = std::env::var_os("TRIESTE_PEERS") {
        return folder.into();
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("trieste/peers")
}

fn binaries() -> PathBuf {
    cache().join("bin")
}

fn write(path: &Path, text: &str) -> anyhow::Result<PathBuf> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path.to_owned())
}
