//! Tests of cables: engines and whole IPsec gateways in a bad network, and what others have recorded.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ike;
mod ike_collisions;
mod ike_errors;
mod ike_identity;
mod ike_net;
mod ike_networks;
mod ike_silent;
mod ipsec_sim;
mod vxlan_recorded;
