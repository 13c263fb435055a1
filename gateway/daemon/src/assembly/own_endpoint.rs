//! The own Endpoint at start.

use rand_core::OsRng;
use trieste_cables::CableKind;
use trieste_control::api::EndpointSpec;
use trieste_control::https::HttpsClient;
use trieste_control::publicip::{PublicIpWatcher, Resolvers};

use super::environment::Environment;
use crate::memory::Remembered;
use crate::node::{self, Found};

/// This gateway's Endpoint, and what it was put together from.
pub(super) struct OwnEndpoint {
    pub(super) spec: EndpointSpec,
    pub(super) found: Found,
    /// The resolver of the public address.
    pub(super) public_ip: PublicIpWatcher,
    /// Whether anybody is asked for the public address.
    pub(super) is_sought: bool,
}

impl OwnEndpoint {
    /// Puts the Endpoint together, and starts to look for the public address. Until it is found, the one that is
    /// remembered counts if it is still configured.
    pub(super) fn find(environment: &Environment<'_>, kind: &dyn CableKind) -> Self {
        let Environment { config, node, settings, networks, store, remembered, .. } = environment;
        let mut found = Found {
            settings: settings.clone(),
            inside: node::inside(networks),
            networks: networks.clone(),
            ..Found::default()
        };
        let resolvers = Resolvers::from_setting(found.resolvers(config), config.air_gapped, &mut OsRng);
        let last = remembered.as_ref().and_then(Remembered::last_address);
        let is_sought = !resolvers.is_empty();
        let client = HttpsClient::from_environment();
        let public_ip = PublicIpWatcher::spawn(client, store.clone(), &config.namespace, resolvers, last);
        found.public_ip = public_ip.public_ip.borrow().address;
        found.is_load_balancer = public_ip.public_ip.borrow().is_load_balancer;
        let spec = node::endpoint(config, node, &found, kind.name(), kind.backend_config());
        Self { spec, found, public_ip, is_sought }
    }
}
