//! The kinds of cable of this binary.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use rand_core::OsRng;
use trieste_cables::drivers::Drivers;
use trieste_cables::ipsec::{IpsecKind, KindSettings, SlowHalf};
use trieste_cables::vxlan::{self, VxlanKind};
use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, keys};

use crate::config::{Config, ConfigError, IPSEC_DRIVER, Psk};
use crate::state;

/// The input of a kind of cable.
pub struct KindContext<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The state directory, if it can be used.
    pub state_dir: Option<&'a Path>,
    /// Text that changes when peers have to learn of a new key.
    pub facts: String,
    /// The cables' port.
    pub udp_port: u16,
    /// Whether peers are to begin negotiations: the Node's own setting, if it has one.
    pub preferred_server: Option<bool>,
    /// The time.
    pub now: Instant,
}

/// A kind of cable that was made.
pub struct Made {
    /// The kind.
    pub kind: Arc<dyn CableKind>,
    /// The slow half that all its cables share, where there is one.
    pub slow_half: Option<SlowHalf>,
}

impl<K: CableKind + 'static> From<K> for Made {
    /// Returns a kind whose cables contain their slow halves.
    fn from(kind: K) -> Self {
        Self { kind: Arc::new(kind), slow_half: None }
    }
}

type MakeKind = Box<dyn Fn(&KindContext<'_>) -> anyhow::Result<Made> + Send + Sync>;

/// The kinds of cable of this binary, by name.
pub struct Kinds {
    makers: BTreeMap<String, MakeKind>,
}

impl Default for Kinds {
    /// Returns WireGuard, IPsec and VXLAN.
    fn default() -> Self {
        let mut kinds = Self { makers: BTreeMap::new() };
        kinds.register("wireguard", |context| {
            let config = context.config;
            let private = match context.state_dir {
                Some(dir) => state::private_key(dir, &context.facts)?,
                None => WireguardKind::generate_private_key(),
            };
            let psk = config.psk.as_ref().map(Psk::expose).unwrap_or_else(|| {
                tracing::warn!("no psk is configured: using upstream's well-known default");
                keys::DEFAULT_PSK
            });
            Ok(WireguardKind::new(private, psk, &config.tun_name, context.now).into())
        });
        kinds.register(IPSEC_DRIVER, ipsec);
        kinds.register(vxlan::NAME, |context| {
            tracing::warn!(
                "the vxlan cable neither encrypts nor authenticates: whoever is on the way between the gateways can read \
                 and change all traffic; use it on networks that you trust"
            );
            Ok(VxlanKind::new(&context.config.tun_name, context.now).into())
        });
        kinds
    }
}

impl Kinds {
    /// Adds a kind, or replaces the one of that name.
    pub fn register(
        &mut self,
        name: &str,
        make: impl Fn(&KindContext<'_>) -> anyhow::Result<Made> + Send + Sync + 'static,
    ) {
        self.makers.insert(name.to_owned(), Box::new(make));
    }

    pub(crate) fn make(&self, context: &KindContext<'_>) -> anyhow::Result<Made> {
        let newer = self.make_one("cable-driver", &context.config.cable_driver, context)?;
        let Some(former) = &context.config.former_cable_driver else { return Ok(newer) };
        let former = self.make_one("former-cable-driver", former, context)?;
        tracing::info!(
            newer = newer.kind.name(),
            former = former.kind.name(),
            "the cluster set changes its cable driver: gateways that do not have the newer one are connected by the former"
        );
        Ok(Made {
            kind: Arc::new(Drivers::new(newer.kind, former.kind)),
            slow_half: newer.slow_half.or(former.slow_half),
        })
    }

    fn make_one(&self, key: &'static str, name: &str, context: &KindContext<'_>) -> anyhow::Result<Made> {
        let known: Vec<&str> = self.makers.keys().map(String::as_str).collect();
        let make = self.makers.get(name).ok_or_else(|| ConfigError::Invalid {
            key,
            problem: format!("`{name}` is none of {}", known.join(", ")),
        })?;
        make(context)
    }
}

fn ipsec(context: &KindContext<'_>) -> anyhow::Result<Made> {
    let config = context.config;
    // There is no well-known default: upstream's driver has none either.
    let psk = config
        .psk
        .as_ref()
        .filter(|psk| !psk.expose().is_empty())
        .ok_or(ConfigError::Missing { key: "psk", variable: "CE_IPSEC_PSK or CE_IPSEC_PSKSECRET" })?;
    let is_preferred = context.preferred_server.unwrap_or(config.ipsec.preferred_server);
    let settings = KindSettings {
        interface: config.tun_name.clone(),
        forces_encapsulation: config.ipsec.force_udp_encaps,
        preferred_server: is_preferred.then(|| Timestamp::now().as_second()),
        private_key: match context.state_dir {
            Some(dir) => state::ipsec_key(dir)?,
            None => WireguardKind::generate_private_key(),
        },
    };
    let engine = config.ipsec.engine(psk, context.udp_port);
    let (kind, slow_half) = IpsecKind::new(settings, engine, Box::new(OsRng), context.now);
    Ok(Made { kind: Arc::new(kind), slow_half: Some(slow_half) })
}
