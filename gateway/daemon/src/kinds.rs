//! The kinds of cable that this binary knows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use trieste_cables::wireguard::WireguardKind;
use trieste_cables::{CableKind, keys};

use crate::config::{Config, ConfigError};
use crate::state;

/// What a kind of cable is made from.
pub struct KindContext<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The state directory, if it can be used.
    pub state_dir: Option<&'a Path>,
    /// Text that changes when peers have to learn of a new key.
    pub facts: String,
    /// The time.
    pub now: Instant,
}

type MakeKind = Box<dyn Fn(&KindContext<'_>) -> anyhow::Result<Arc<dyn CableKind>> + Send + Sync>;

/// The kinds of cable that this binary knows, by name.
pub struct Kinds {
    makers: BTreeMap<String, MakeKind>,
}

impl Default for Kinds {
    /// WireGuard.
    fn default() -> Self {
        let mut kinds = Self { makers: BTreeMap::new() };
        kinds.register("wireguard", |context| {
            let config = context.config;
            let private = match context.state_dir {
                Some(dir) => state::private_key(dir, &context.facts)?,
                None => WireguardKind::generate_private_key(),
            };
            let psk = config.psk.as_deref().unwrap_or_else(|| {
                tracing::warn!("no psk is configured: using upstream's well-known default");
                keys::DEFAULT_PSK
            });
            Ok(Arc::new(WireguardKind::new(private, psk, &config.tun_name, context.now)))
        });
        kinds
    }
}

impl Kinds {
    /// Adds a kind, or replaces the one of that name.
    pub fn register(
        &mut self,
        name: &str,
        make: impl Fn(&KindContext<'_>) -> anyhow::Result<Arc<dyn CableKind>> + Send + Sync + 'static,
    ) {
        self.makers.insert(name.to_owned(), Box::new(make));
    }

    pub(crate) fn make(&self, context: &KindContext<'_>) -> anyhow::Result<Arc<dyn CableKind>> {
        let name = &context.config.cable_driver;
        let known: Vec<&str> = self.makers.keys().map(String::as_str).collect();
        let make = self.makers.get(name).ok_or_else(|| ConfigError::Invalid {
            key: "cable-driver",
            problem: format!("`{name}` is none of {}", known.join(", ")),
        })?;
        make(context)
    }
}
