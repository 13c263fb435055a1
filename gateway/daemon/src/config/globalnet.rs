//! The section `globalnet` of the configuration: how long what is translated is remembered, and how much of it.

use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use trieste_nat::{Limits, Timers};

use super::error::{ConfigError, invalid};

/// Least of every timer, in seconds: the wheel that they are in turns once a second.
const SHORTEST_SECONDS: u32 = 1;
/// Longest of every timer: a week. What is longer is a typing error.
const LONGEST_SECONDS: u32 = 7 * 24 * 3600;
/// Fewest sessions of a worker that make sense.
const FEWEST_SESSIONS: u32 = 1024;
/// Most sessions of a worker: 256 bytes each, 4 GiB.
const MOST_SESSIONS: u32 = 1 << 24;
/// Most mappings of one inside address: all ports of an external address, for each protocol that has ports.
const MOST_MAPPINGS: u32 = 3 * 65_536;

/// The smallest global CIDR: 14 addresses, of which the cluster's egress takes 8 and the gateway one.
const LONGEST_PREFIX: u8 = 28;

/// The section, as it was written. Absent means: ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct GlobalnetOptions {
    /// Seconds that a UDP mapping, and one of a protocol that is not looked into, lives without packets.
    pub udp_timeout: Option<u32>,
    /// Seconds that an established TCP connection lives without packets.
    pub tcp_established_timeout: Option<u32>,
    /// Seconds that a TCP connection lives that is being made or ended, or was reset.
    pub tcp_transitory_timeout: Option<u32>,
    /// Seconds that a SYN from outside waits for one from inside.
    pub tcp_unsolicited_timeout: Option<u32>,
    /// Seconds that an ICMP query waits for its answer.
    pub icmp_timeout: Option<u32>,
    /// Most sessions of one worker.
    pub max_sessions: Option<u32>,
    /// Most mappings of one inside address.
    pub max_mappings_per_source: Option<u32>,
    /// Most sessions of one inside address.
    pub max_sessions_per_source: Option<u32>,
    /// Percent of the ports of a block that are taken before TCP connections to different peers share one.
    pub share_tcp_ports_above: Option<u8>,
}

/// Settings of translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globalnet {
    /// How long a UDP mapping, and one of a protocol that is not looked into, lives without packets.
    pub udp: Duration,
    /// How long an established TCP connection lives without packets.
    pub tcp_established: Duration,
    /// How long a TCP connection lives that is being made or ended, or was reset.
    pub tcp_transitory: Duration,
    /// How long a SYN from outside waits for one from inside.
    pub tcp_unsolicited: Duration,
    /// How long an ICMP query waits for its answer.
    pub icmp: Duration,
    /// Most sessions of one worker.
    pub max_sessions: u32,
    /// Most mappings of one inside address.
    pub max_mappings_per_source: u32,
    /// Most sessions of one inside address.
    pub max_sessions_per_source: u32,
    /// Percent of the ports of a block that are taken before TCP connections to different peers share one.
    pub share_tcp_ports_above: u8,
}

impl Default for Globalnet {
    fn default() -> Self {
        let (timers, limits) = (Timers::default(), Limits::default());
        Self {
            udp: timers.udp,
            tcp_established: timers.tcp_established,
            tcp_transitory: timers.tcp_opening,
            tcp_unsolicited: timers.unsolicited_syn,
            icmp: timers.icmp,
            max_sessions: limits.sessions,
            max_mappings_per_source: limits.mappings_per_source,
            max_sessions_per_source: limits.sessions_per_source,
            share_tcp_ports_above: limits.share_tcp_above_percent,
        }
    }
}

impl Globalnet {
    /// Returns the configuration of a worker's translation.
    #[must_use]
    pub fn nat(&self) -> trieste_nat::Config {
        trieste_nat::Config {
            timers: Timers {
                udp: self.udp,
                tcp_established: self.tcp_established,
                tcp_opening: self.tcp_transitory,
                tcp_closing: self.tcp_transitory,
                icmp: self.icmp,
                unsolicited_syn: self.tcp_unsolicited,
            },
            limits: Limits {
                sessions: self.max_sessions,
                mappings_per_source: self.max_mappings_per_source,
                sessions_per_source: self.max_sessions_per_source,
                share_tcp_above_percent: self.share_tcp_ports_above,
                ..Limits::default()
            },
        }
    }

    /// Returns the timers that are shorter than the standards for NATs allow, one sentence each.
    #[must_use]
    pub fn below_standard(&self) -> Vec<String> {
        let least = [
            //= https://www.rfc-editor.org/rfc/rfc4787#section-4.3
            //# A NAT UDP mapping timer MUST NOT expire in less than two minutes
            ("udp-timeout", self.udp, 120, "RFC 4787 section 4.3"),
            //= https://www.rfc-editor.org/rfc/rfc5382#section-5
            //# the value of the "established connection idle-timeout" MUST NOT be less than 2 hours 4 minutes.
            ("tcp-established-timeout", self.tcp_established, 7440, "RFC 5382 section 5"),
            //= https://www.rfc-editor.org/rfc/rfc5382#section-5
            //# The value of the "transitory connection idle-timeout" MUST NOT be less than 4 minutes.
            ("tcp-transitory-timeout", self.tcp_transitory, 240, "RFC 5382 section 5"),
            //= https://www.rfc-editor.org/rfc/rfc5382#section-4.3
            //# a NAT MUST NOT respond to an unsolicited inbound SYN packet for at least 6 seconds after the packet is received.
            ("tcp-unsolicited-timeout", self.tcp_unsolicited, 6, "RFC 5382 section 4.3"),
            //= https://www.rfc-editor.org/rfc/rfc5508#section-3.2
            //# An ICMP Query session timer MUST NOT expire in less than 60 seconds.
            ("icmp-timeout", self.icmp, 60, "RFC 5508 section 3.2"),
        ];
        let is_below = |(_, set, least, _): &(_, Duration, u64, _)| set.as_secs() < *least;
        least
            .into_iter()
            .filter(is_below)
            .map(|(key, set, least, standard)| {
                format!(
                    "globalnet.{key} is {} s, {standard} asks for {least} s at least: connections that pause for \
                     longer break without a word",
                    set.as_secs()
                )
            })
            .collect()
    }
}

impl GlobalnetOptions {
    /// Takes from `other` what is not value here.
    pub(super) fn or(self, other: Self) -> Self {
        first_of!(
            self,
            other,
            [
                udp_timeout,
                tcp_established_timeout,
                tcp_transitory_timeout,
                tcp_unsolicited_timeout,
                icmp_timeout,
                max_sessions,
                max_mappings_per_source,
                max_sessions_per_source,
                share_tcp_ports_above,
            ]
        )
    }

    /// Checks every value and fills in the defaults.
    pub(super) fn resolve(self) -> Result<Globalnet, ConfigError> {
        let ours = Globalnet::default();
        let percent = self.share_tcp_ports_above.unwrap_or(ours.share_tcp_ports_above);
        if !(1..=100).contains(&percent) {
            let problem = format!("{percent} is no percentage from 1 to 100; 100 never shares a port");
            return Err(invalid("globalnet.share-tcp-ports-above", problem));
        }
        Ok(Globalnet {
            udp: timer("globalnet.udp-timeout", self.udp_timeout, ours.udp)?,
            tcp_established: timer(
                "globalnet.tcp-established-timeout",
                self.tcp_established_timeout,
                ours.tcp_established,
            )?,
            tcp_transitory: timer(
                "globalnet.tcp-transitory-timeout",
                self.tcp_transitory_timeout,
                ours.tcp_transitory,
            )?,
            tcp_unsolicited: timer(
                "globalnet.tcp-unsolicited-timeout",
                self.tcp_unsolicited_timeout,
                ours.tcp_unsolicited,
            )?,
            icmp: timer("globalnet.icmp-timeout", self.icmp_timeout, ours.icmp)?,
            max_sessions: number(
                "globalnet.max-sessions",
                self.max_sessions,
                FEWEST_SESSIONS..=MOST_SESSIONS,
                ours.max_sessions,
            )?,
            max_mappings_per_source: number(
                "globalnet.max-mappings-per-source",
                self.max_mappings_per_source,
                1..=MOST_MAPPINGS,
                ours.max_mappings_per_source,
            )?,
            max_sessions_per_source: number(
                "globalnet.max-sessions-per-source",
                self.max_sessions_per_source,
                1..=MOST_SESSIONS,
                ours.max_sessions_per_source,
            )?,
            share_tcp_ports_above: percent,
        })
    }
}

/// Checks that global CIDRs are of IPv4, have enough addresses, and overlap neither each other nor `inside`.
pub(super) fn check_cidrs(global: &[IpNet], inside: [&[IpNet]; 2]) -> Result<(), ConfigError> {
    const KEY: &str = "global-cidrs";
    for (index, cidr) in global.iter().enumerate() {
        if !cidr.addr().is_ipv4() {
            return Err(invalid(
                KEY,
                format!("{cidr}: Globalnet has no IPv6 addresses; give a CIDR of IPv4"),
            ));
        }
        if cidr.prefix_len() > LONGEST_PREFIX {
            let problem = format!("{cidr} has too few addresses; /{LONGEST_PREFIX} is the smallest");
            return Err(invalid(KEY, problem));
        }
        let others = global[index + 1..].iter().chain(inside.into_iter().flatten());
        for other in others {
            if cidr.contains(other) || other.contains(cidr) {
                let problem = format!("{cidr} overlaps {other}, which is also ours; take another range");
                return Err(invalid(KEY, problem));
            }
        }
    }
    Ok(())
}

fn timer(key: &'static str, value: Option<u32>, default: Duration) -> Result<Duration, ConfigError> {
    match value {
        None => Ok(default),
        Some(value) if (SHORTEST_SECONDS..=LONGEST_SECONDS).contains(&value) => {
            Ok(Duration::from_secs(value.into()))
        }
        Some(value) => Err(invalid(
            key,
            format!("{value} s are not between {SHORTEST_SECONDS} s and {LONGEST_SECONDS} s"),
        )),
    }
}

fn number(
    key: &'static str,
    value: Option<u32>,
    allowed: std::ops::RangeInclusive<u32>,
    default: u32,
) -> Result<u32, ConfigError> {
    match value {
        None => Ok(default),
        Some(value) if allowed.contains(&value) => Ok(value),
        Some(value) => {
            let (least, most) = allowed.into_inner();
            Err(invalid(key, format!("{value} is not between {least} and {most}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;

    const BASE: &str =
        "cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nglobal-cidrs: [242.1.0.0/16]\nglobalnet:\n";

    fn resolve(section: &str) -> Result<Globalnet, String> {
        let options = Options::parse_file(&format!("{BASE}{section}"))?;
        options.resolve().map(|config| config.globalnet).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_ours_and_meets_the_standards() {
        let globalnet = resolve("  max-sessions: 2048\n").unwrap();
        assert_eq!(globalnet, Globalnet { max_sessions: 2048, ..Globalnet::default() });
        assert_eq!(globalnet.below_standard(), Vec::<String>::new());
    }

    #[test]
    fn shorter_timers_than_the_standards_allow_are_taken_and_named() {
        let globalnet = resolve("  udp-timeout: 30\n  tcp-transitory-timeout: 3\n").unwrap();
        assert_eq!((globalnet.udp.as_secs(), globalnet.tcp_transitory.as_secs()), (30, 3));
        let value = globalnet.below_standard();
        assert_eq!(value.len(), 2);
        assert!(value[0].contains("udp-timeout is 30 s") && value[0].contains("RFC 4787"), "{value:?}");
    }

    #[test]
    fn a_global_cidr_overlaps_nothing_of_ours_and_is_of_ipv4() {
        let check = |global: &str| {
            let text = format!(
                "cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\nservice-cidrs: [100.1.0.0/16]\nglobal-cidrs: {global}"
            );
            Options::parse_file(&text).unwrap().resolve().map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(check("[242.1.0.0/16, 242.2.0.0/28]"), Ok(()));
        for (global, word) in [
            ("[10.0.0.0/8]", "10.1.0.0/16"),
            ("[100.1.7.0/24]", "100.1.0.0/16"),
            ("[242.1.0.0/16, 242.1.4.0/24]", "242.1.4.0/24"),
            ("['fd00:1::/64']", "IPv6"),
            ("[242.1.0.0/29]", "too few"),
        ] {
            let error = check(global).unwrap_err();
            assert!(error.starts_with("global-cidrs: ") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_key() {
        for (section, key) in [
            ("  udp-timeout: 0\n", "globalnet.udp-timeout"),
            ("  tcp-established-timeout: 700000\n", "globalnet.tcp-established-timeout"),
            ("  max-sessions: 10\n", "globalnet.max-sessions"),
            ("  max-mappings-per-source: 0\n", "globalnet.max-mappings-per-source"),
            ("  share-tcp-ports-above: 101\n", "globalnet.share-tcp-ports-above"),
            ("  udp-timeouts: 7\n", "udp-timeouts"),
            ("  udp-timeout: soon\n", "udp-timeout"),
        ] {
            let error = resolve(section).unwrap_err();
            assert!(error.contains(key), "{section}: {error}");
        }
    }
}
