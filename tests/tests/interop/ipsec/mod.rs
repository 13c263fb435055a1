//! Our gateway against strongSwan, each side as initiator and as responder.
//!
//! ```text
//!   east pods ── trieste-gateway ══ WAN: UDP 4500, or IP protocol 50 ══ charon ── west pods
//! ```
//! strongSwan is known to our gateway by an Endpoint file on the broker that has no word of Trieste in it, so that it is
//! spoken to as upstream's gateways are: a child SA for each pair of subnets. It asks for what upstream's does not: ciphers
//! and groups of the test's choice.

mod algorithms;
mod bed;
mod crashes;
mod libreswan;
mod raw;
mod refusals;
mod rekeying;
