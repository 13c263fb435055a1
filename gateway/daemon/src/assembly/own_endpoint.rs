//! What this gateway says of itself at start.

use rand_core::OsRng;
use trieste_control::publicip::{HttpsClient, PublicIpWatcher, Resolvers};
use trieste_control::store::AnyStore;

use crate::config::Config;
use crate::memory::Remembered;
use crate::node::Found;

/// Starts to look for the public address, from the one that was found last. Gives whether anybody is asked.
pub(super) fn follow_public_ip(
    config: &Config,
    store: &AnyStore,
    found: &Found,
    remembered: Option<&Remembered>,
) -> (PublicIpWatcher, bool) {
    let resolvers = Resolvers::from_setting(found.resolvers(config), config.air_gapped, &mut OsRng);
    let last = remembered.and_then(Remembered::last_address);
    let is_sought = !resolvers.is_empty();
    let client = HttpsClient::from_environment();
    (PublicIpWatcher::spawn(client, store.clone(), &config.namespace, resolvers, last), is_sought)
}
