//! Tests of whole lines joined back to back, and simulations of several gateways.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod early;
mod globalnet;
mod health;
mod line;
mod paths;
mod probes;
mod services;
mod several_sim;
mod siblings;
mod silent;
mod support;
mod traces;
mod watching;
