//! Two clusters and their broker, with a relay before each API server: gateways go through the relays, the played route
//! agents and the test itself do not.

use anyhow::Context;

use super::faults::{Faults, Mode};
use super::fleet::Fleet;
use super::lab::GatewaySettings;

/// A fleet whose gateways reach every API server through a relay. The relays end after the gateways.
#[derive(Debug)]
pub struct RelayedFleet {
    /// The gateways, and the lab.
    pub fleet: Fleet,
    /// Before the server of `east`.
    pub east: Faults,
    /// Before the server of `west`.
    pub west: Faults,
    /// Before the broker.
    pub broker: Faults,
}

impl RelayedFleet {
    /// [`Fleet::new`] with relays. No gateway runs yet.
    ///
    /// # Errors
    /// The first thing that does not work.
    pub fn new() -> anyhow::Result<Self> {
        let fleet = Fleet::new()?;
        let before = |cluster: &str| Faults::before(&fleet.lab.cluster(cluster).server);
        let (east, west) = (before("east")?, before("west")?);
        let broker = Faults::before(&fleet.lab.broker)?;
        Ok(Self { fleet, east, west, broker })
    }

    /// What upstream's operator would say, with the relays' addresses.
    ///
    /// # Errors
    /// As [`super::KubernetesLab::settings`].
    pub fn settings(&self, cluster: &str, index: usize) -> anyhow::Result<GatewaySettings> {
        let mut settings = self.fleet.lab.settings(cluster, index)?;
        let own = if cluster == "east" { &self.east } else { &self.west };
        let addresses = [
            ("KUBERNETES_SERVICE_PORT", own.address().port().to_string()),
            ("BROKER_K8S_APISERVER", self.broker.server()),
        ];
        settings.environment.extend(addresses.map(|(name, value)| (name.to_owned(), value)));
        Ok(settings)
    }

    /// Starts a gateway, for the first time or again.
    ///
    /// # Errors
    /// As [`Fleet::start_with`].
    pub fn start(&mut self, cluster: &str, index: usize) -> anyhow::Result<()> {
        let settings = self.settings(cluster, index)?;
        self.fleet.start_with(cluster, index, &settings)
    }

    /// The same where the node's clock is behind by so many seconds. Timers are not: only what the clock shows.
    ///
    /// # Errors
    /// As [`Fleet::start_with`], and if libfaketime is not installed.
    pub fn start_behind(&mut self, cluster: &str, index: usize, seconds: u32) -> anyhow::Result<()> {
        let mut settings = self.settings(cluster, index)?;
        let variables = [
            ("LD_PRELOAD", libfaketime()?),
            ("FAKETIME", format!("-{seconds}s")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        settings.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        self.fleet.start_with(cluster, index, &settings)
    }

    /// Takes the broker away, old connections included.
    ///
    /// # Errors
    /// As [`Faults::set`].
    pub fn refuse_broker(&mut self) -> anyhow::Result<()> {
        self.broker.set(Mode::Refuse)?;
        self.broker.cut();
        Ok(())
    }
}

/// Debian puts it below a directory that is called as the machine is.
fn libfaketime() -> anyhow::Result<String> {
    for directory in std::fs::read_dir("/usr/lib").context("/usr/lib")?.flatten() {
        let library = directory.path().join("faketime/libfaketime.so.1");
        if library.is_file() {
            return Ok(library.to_string_lossy().into_owned());
        }
    }
    anyhow::bail!("libfaketime is not installed: ./dev deps does it (Debian package faketime)")
}
