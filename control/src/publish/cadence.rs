//! When a Gateway's status is written whole, and when the time alone. No clock: beats are counted.
//!
//! A whole write costs what the set has, so its rate follows its size. States that somebody acts on are written at the
//! next beat, unless the set changes all the time; counters and round trips follow at a slower rate. The status of a
//! small set fits into every beat either way.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use super::GATEWAY_INTERVAL;
use crate::api::{Connection, EndpointSpec, PublishedStatus, backend_config};

/// Ours: bytes of status a second that counters and round trips may cost. Some 55 connections fit into every beat.
const COUNTERS_RATE: usize = 8 << 10;
/// Ours: bytes of status a second that changes may cost while they do not end. Some 440 connections fit into every beat; of
/// 1,000 a change waits for 15 s after a whole write, and otherwise for none.
const CHANGES_RATE: usize = 64 << 10;

/// The settings of an endpoint that are counters.
const COUNTERS: [&str; 3] =
    [backend_config::RECEIVE_BYTES, backend_config::TRANSMIT_BYTES, backend_config::LAST_CHECKED];

/// The object that was written whole last, and how many beats ago.
#[derive(Debug)]
pub(super) struct Cadence {
    /// Sets this gateway's beats apart from those of others.
    seed: u64,
    /// Whole writes so far.
    writes: u64,
    written: Option<Written>,
}

#[derive(Debug)]
struct Written {
    fingerprint: Fingerprint,
    /// Beats since then in which the time was written alone.
    beats: u32,
    /// In which beat a status is written that has changed.
    changed: u32,
    /// In which beat any status is written.
    any: u32,
}

impl Cadence {
    /// Makes one of a gateway that has written nothing. Its beats differ from those of gateways of another name.
    pub(super) fn new(name: &str) -> Self {
        Self { seed: hash(&name), writes: 0, written: None }
    }

    /// Returns whether a status is to be written whole in this beat.
    pub(super) fn is_due(&self, fingerprint: Fingerprint) -> bool {
        self.written.as_ref().is_none_or(|written| {
            let beat = written.beats + 1;
            let since = if written.fingerprint == fingerprint { written.any } else { written.changed };
            beat >= since.min(written.any)
        })
    }

    /// Takes note that a status of `bytes` was written whole.
    pub(super) fn handle_whole(&mut self, fingerprint: Fingerprint, bytes: usize) {
        let slowest = beats(bytes.div_ceil(per_beat(COUNTERS_RATE)));
        self.writes = self.writes.wrapping_add(1);
        // Never before its time, so that the rate is a bound.
        let later = hash(&(self.seed, self.writes)) % u64::from(slowest / 2 + 1);
        let any = slowest.saturating_add(u32::try_from(later).unwrap_or(u32::MAX));
        let changed = beats(bytes.div_ceil(per_beat(CHANGES_RATE)));
        self.written = Some(Written { fingerprint, beats: 0, changed, any });
    }

    /// Takes note that the time was written alone.
    pub(super) fn handle_time(&mut self) {
        if let Some(written) = &mut self.written {
            written.beats = written.beats.saturating_add(1);
        }
    }

    /// Makes a whole write due: the store does not hold what was written.
    pub(super) fn clear(&mut self) {
        self.written = None;
    }
}

/// Returns the bytes a beat at a rate in bytes a second.
fn per_beat(rate: usize) -> usize {
    rate.saturating_mul(usize::try_from(GATEWAY_INTERVAL.as_secs()).unwrap_or(usize::MAX))
}

fn beats(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A digest of the part of a status that somebody acts on. Two that are equal by chance cost no more than the time until
/// the next whole write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the digest of all but counters, round trips and times. Numbers in messages are such: for how long a peer has
    /// been silent, how many bytes came.
    pub(super) fn of(status: &PublishedStatus) -> Self {
        let mut digest = DefaultHasher::new();
        let PublishedStatus { version, ha_status, local_endpoint, status_failure, connections, extra } =
            status;
        (version, ha_status, status_failure, extra, connections.len()).hash(&mut digest);
        add_endpoint(&mut digest, local_endpoint);
        for connection in connections {
            let Connection { status, status_message, endpoint, using_ip, using_nat, latency_rtt: _, extra } =
                connection;
            (status, using_ip, using_nat, extra).hash(&mut digest);
            status_message
                .bytes()
                .filter(|byte| !byte.is_ascii_digit())
                .for_each(|byte| digest.write_u8(byte));
            // No text has this byte: what comes next is apart.
            digest.write_u8(0xff);
            add_endpoint(&mut digest, endpoint);
        }
        Self(digest.finish())
    }
}

/// Adds all of an endpoint but counters.
fn add_endpoint(digest: &mut DefaultHasher, endpoint: &EndpointSpec) {
    let EndpointSpec {
        cluster_id,
        cable_name,
        health_check_ip,
        health_check_ips,
        hostname,
        subnets,
        private_ip,
        private_ips,
        public_ip,
        public_ips,
        nat_enabled,
        backend,
        backend_config,
        extra,
    } = endpoint;
    (cluster_id, cable_name, hostname, subnets, nat_enabled, backend, extra).hash(digest);
    (health_check_ip, health_check_ips, private_ip, private_ips, public_ip, public_ips).hash(digest);
    for entry in backend_config.iter().filter(|(key, _)| !COUNTERS.contains(&key.as_str())) {
        entry.hash(digest);
    }
    digest.write_u8(0xff);
}

#[cfg(test)]
mod tests;
