//! The gateway's devices: the TUN device inside, UDP sockets outside; one of each for every worker.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context as _;
use trieste_cables::CableKind;
use trieste_control::admin::{FeatureState, IoCapability, XdpStatus};
#[cfg(feature = "af-xdp")]
use trieste_io::XdpMode;
use trieste_io::link::{self, Family};
use trieste_io::{Fallback, Offloads, PacketIo as _, StepCause, Tun, TunConfig, TunQueue, UdpConfig, UdpIo};

use crate::config::{Config, Offload, OuterIo};
use crate::marks::OUTER_MARK;
use crate::rings::Refused;
use crate::wire::Wire;

/// The devices for the workers.
#[derive(Debug)]
pub struct Devices {
    tuns: Vec<TunQueue>,
    wires: Vec<UdpIo>,
    /// The same with AF_XDP in front; then `wires` is empty.
    #[cfg(feature = "af-xdp")]
    rings: Vec<trieste_io::xdp::XdpIo>,
    fallbacks: Vec<Fallback>,
    /// Why AF_XDP was wanted and could not be had.
    xdp: Option<XdpStatus>,
    /// Whether the TUN device was not there before, as after a start of the machine.
    is_new: bool,
}

impl Devices {
    /// Opens the sockets and the TUN device, and sets the device up.
    ///
    /// # Errors
    /// The problem, and what to do about it.
    pub fn open(config: &Config, underlay_mtu: u16) -> anyhow::Result<Self> {
        let wires = UdpIo::open_group(&udp_config(config), usize::from(config.workers))?;
        let tun = tun_config(config, underlay_mtu);
        let is_new = !link::exists(&tun.name)?;
        let tun = Tun::open(&tun)?;
        set_sysctls(&tun, &config.proc_sys);
        tun.set_up(true)?;
        let of_device = tun.fallbacks().to_vec();
        let mut devices = Self::new(tun.into_queues(), wires, is_new);
        devices.note_fallbacks(&of_device);
        Ok(devices)
    }

    fn new(tuns: Vec<TunQueue>, wires: Vec<UdpIo>, is_new: bool) -> Self {
        Self {
            tuns,
            wires,
            #[cfg(feature = "af-xdp")]
            rings: Vec::new(),
            fallbacks: Vec::new(),
            xdp: None,
            is_new,
        }
    }

    /// Returns `true` if the TUN device did not exist before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Takes over devices that this process was started with (`sd_listen_fds`): one descriptor named `tun` and up to
    /// two named `udp` for each worker; with several workers `tun-0`, `udp-0`, `tun-1` and so on.
    ///
    /// # Errors
    /// A queue or socket is missing, or of another kind.
    pub fn adopt(config: &Config, inherited: Vec<(String, OwnedFd)>) -> anyhow::Result<Self> {
        let workers = usize::from(config.workers);
        let mut tuns: Vec<Option<OwnedFd>> = (0..workers).map(|_| None).collect();
        let mut wires: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
        for (name, fd) in inherited {
            let (kind, worker) = name.split_once('-').unwrap_or((&name, "0"));
            let worker: Option<usize> = worker.parse().ok().filter(|worker| *worker < workers);
            match (kind, worker) {
                ("tun", Some(worker)) => tuns[worker] = Some(fd),
                ("udp", Some(worker)) => wires[worker].push(fd),
                _ => anyhow::bail!(
                    "inherited descriptor {name:?}: expected tun, udp, tun-N or udp-N with N below workers ({workers})"
                ),
            }
        }
        let (udp, tun) = (udp_config(config), tun_config(config, 0));
        let mut devices = Self::new(Vec::new(), Vec::new(), false);
        for (worker, (tun_fd, wire_fds)) in tuns.into_iter().zip(wires).enumerate() {
            let tun_fd = tun_fd.with_context(|| format!("no TUN queue was inherited for worker {worker}"))?;
            devices.tuns.push(TunQueue::adopt(tun_fd, tun.offloads)?);
            devices.wires.push(UdpIo::adopt(wire_fds, &udp)?);
        }
        devices.note_fallbacks(&[]);
        Ok(devices)
    }

    /// Makes the sockets carry ESP, in UDP and raw, and gives the families over which raw ESP can be had.
    pub fn carry_esp(&mut self, config: &Config) -> Offloads {
        UdpIo::carry_esp(&mut self.wires, &udp_config(config));
        self.note_fallbacks(&[]);
        let udp = self.wires.first().map_or(Offloads::NONE, |wire| wire.capabilities().offloads);
        udp.common(Offloads::RAW_ESP4.with(Offloads::RAW_ESP6))
    }

    /// Makes the sockets carry VXLAN, whose datagrams name no worker.
    pub fn carry_vxlan(&mut self) {
        UdpIo::carry_vxlan(&mut self.wires);
        self.note_fallbacks(&[]);
    }

    /// Leads outer packets past the kernel's stack on `interface`, if the configuration wants that. Call it when the sockets
    /// carry what they shall. Where it cannot be, they go on alone, and the reason is one of the fallbacks.
    pub fn pass_stack(&mut self, config: &Config, interface: Option<&str>, kind: &dyn CableKind) {
        if config.io == OuterIo::Sockets {
            return;
        }
        let opened = match interface {
            None => {
                let reason = "no interface has the node's address";
                Err(Box::new(Refused::whole("", StepCause::NoInterface, reason)))
            }
            Some(interface) => self.open_rings(config, interface, kind),
        };
        match opened {
            Ok(()) => self.note_fallbacks(&[]),
            Err(refused) => {
                let Refused { status, reason } = refused.by_choice(config.io);
                self.xdp = Some(status);
                self.note_fallbacks(&[Fallback { feature: "af-xdp", reason }]);
            }
        }
    }

    #[cfg(not(feature = "af-xdp"))]
    #[expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        reason = "what is built otherwise needs it"
    )]
    fn open_rings(&mut self, _: &Config, interface: &str, _: &dyn CableKind) -> Result<(), Box<Refused>> {
        let reason = "this program is built without it";
        Err(Box::new(Refused::whole(interface, StepCause::NotSupported, reason)))
    }

    #[cfg(feature = "af-xdp")]
    fn open_rings(
        &mut self,
        config: &Config,
        interface: &str,
        kind: &dyn CableKind,
    ) -> Result<(), Box<Refused>> {
        use trieste_io::xdp::{XdpConfig, XdpIo};
        let xdp = XdpConfig {
            // Copying costs what the stack's trains save, so that the choice is the sockets.
            least: if config.io == OuterIo::Auto { XdpMode::ZeroCopy } else { XdpMode::Generic },
            esp: kind.carries_esp(),
            zero_checksum6: kind.identifies_by_address(),
            mark: Some(OUTER_MARK),
            ..XdpConfig::new(interface)
        };
        self.rings = XdpIo::open_group(&xdp, &mut self.wires).map_err(|error| {
            let reason = error.to_string();
            let refused = if let trieste_io::Error::NoXdp { steps, .. } = &error
                && !steps.is_empty()
            {
                Refused::after(interface, steps, &reason)
            } else {
                Refused::whole(interface, error.step_cause(), &reason)
            };
            Box::new(refused)
        })?;
        Ok(())
    }

    /// Returns why AF_XDP was wanted and could not be had; `None` if it was not wanted, or is there.
    #[must_use]
    pub fn xdp(&self) -> Option<XdpStatus> {
        self.xdp.clone()
    }

    /// Gathers what the devices do without, `known` first, and says each once.
    fn note_fallbacks(&mut self, known: &[Fallback]) {
        let tuns = self.tuns.iter().flat_map(|tun| tun.fallbacks());
        #[cfg(feature = "af-xdp")]
        let tuns = tuns.chain(self.rings.iter().flat_map(|rings| rings.fallbacks()));
        for fallback in known.iter().chain(tuns).chain(self.wires.iter().flat_map(|wire| wire.fallbacks())) {
            if !self.fallbacks.contains(fallback) {
                tracing::warn!(feature = fallback.feature, reason = %fallback.reason, "doing without something that the kernel does not give; it works, less well");
                self.fallbacks.push(fallback.clone());
            }
        }
    }

    /// Returns the kernel's offloads, and why others are not available.
    #[must_use]
    pub fn capabilities(&self) -> Vec<IoCapability> {
        let tun = self.tuns.first().map_or(Offloads::NONE, |tun| tun.capabilities().offloads);
        let udp = self.wires.first().map_or(Offloads::NONE, |wire| wire.capabilities().offloads);
        #[cfg(feature = "af-xdp")]
        let udp = self.rings.first().map_or(udp, |rings| rings.capabilities().offloads);
        let on = tun.with(udp).names().map(|name| capability(name, None));
        #[cfg(feature = "af-xdp")]
        let on =
            on.chain(self.rings.first().map(|rings| capability(format!("af-xdp-{}", rings.mode()), None)));
        on.chain(self.fallbacks.iter().map(|fallback| capability(fallback.feature, Some(&fallback.reason))))
            .collect()
    }

    /// Returns one TUN queue and one set of sockets for each worker.
    pub fn into_pairs(self) -> impl Iterator<Item = (TunQueue, Wire)> {
        #[cfg(not(feature = "af-xdp"))]
        let wires = self.wires;
        #[cfg(feature = "af-xdp")]
        let wires = self.wires.into_iter().map(Wire::from).chain(self.rings.into_iter().map(Wire::from));
        self.tuns.into_iter().zip(wires)
    }
}

/// Removes the TUN device.
///
/// # Errors
/// The device cannot be removed; a missing one is no error.
pub fn remove(name: &str) -> anyhow::Result<()> {
    if trieste_io::tun::remove(name)? {
        tracing::info!(interface = name, "TUN device removed");
    }
    Ok(())
}

fn udp_config(config: &Config) -> UdpConfig {
    let mut udp = UdpConfig::new(config.udp_port);
    udp.mark = Some(OUTER_MARK);
    udp.gso = !config.disabled.contains(&Offload::UdpGso);
    udp.gro = !config.disabled.contains(&Offload::UdpGro);
    udp
}

fn tun_config(config: &Config, underlay_mtu: u16) -> TunConfig {
    let mut tun = TunConfig::new(&config.tun_name);
    tun.queues = usize::from(config.workers);
    tun.mtu_bytes = Some(usize::from(config.tun_mtu.unwrap_or(underlay_mtu)));
    for disabled in &config.disabled {
        tun.offloads = tun.offloads.without(match disabled {
            Offload::TunUso => Offloads::USO4.with(Offloads::USO6),
            Offload::TunTso => Offloads::TSO4.with(Offloads::TSO6),
            Offload::TunChecksum | Offload::TunVnetHeader => Offloads::TUN,
            Offload::UdpGso | Offload::UdpGro => Offloads::NONE,
        });
    }
    tun
}

/// Sets sysctls of the device. ICMP errors made here carry one of the node's own addresses, which the device must accept.
/// The reverse-path filter is off: the pipeline checks sources, and on a device without an address even the loose filter
/// drops those errors.
fn set_sysctls(tun: &Tun, root: &Path) {
    // The larger of this and the device's own counts.
    let all = std::fs::read_to_string(root.join("net/ipv4/conf/all/rp_filter")).unwrap_or_default();
    if !matches!(all.trim(), "0" | "") {
        tracing::warn!(
            value = all.trim(),
            "net.ipv4.conf.all.rp_filter is not 0: the kernel drops the answers that tell pods of a path's MTU; run \
             sysctl -w net.ipv4.conf.all.rp_filter=0, which leaves every device its own setting"
        );
    }
    let settings = [
        // No link-local address: the kernel's own multicast and router messages stay off the line.
        (Family::Ipv6, "addr_gen_mode", "1"),
        (Family::Ipv4, "accept_local", "1"),
        (Family::Ipv4, "rp_filter", "0"),
        (Family::Ipv4, "forwarding", "1"),
        (Family::Ipv6, "forwarding", "1"),
    ];
    for (family, key, value) in settings {
        if let Err(error) = tun.set_sysctl(root, family, key, value) {
            tracing::warn!(key, value, %error, "cannot set a sysctl of the TUN device; the route agent may do it");
        }
    }
}

/// Returns a feature and whether it is in use.
fn capability(feature: impl Into<String>, reason: Option<&str>) -> IoCapability {
    let state = if reason.is_none() { FeatureState::On } else { FeatureState::Off };
    IoCapability { feature: feature.into(), state, reason: reason.unwrap_or_default().to_owned() }
}
