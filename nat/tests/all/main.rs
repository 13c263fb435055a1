//! Tests of translation: what RFCs ask for, limits, properties, and copies of sessions.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;
mod copies;
mod icmp_requirements;
mod limits;
mod properties;
mod rfc4787;
mod rfc5382;
mod rfc5508;
mod rfc7857;
mod rules;
mod scale;
mod support;
