//! The one list of settings.

use super::form::Form;

/// A program that reads settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `trieste-gateway`.
    Gateway,
    /// `trieste-routeagent`.
    RouteAgent,
}

impl Program {
    /// Returns the name of the file in the state directory in which it remembers its settings. On gateways' nodes both programs
    /// have the same directory.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Gateway => "settings.json",
            Self::RouteAgent => "routeagent-settings.json",
        }
    }

    /// Returns the name of its DaemonSet.
    pub const fn daemon_set(self) -> &'static str {
        match self {
            Self::Gateway => "submariner-gateway",
            Self::RouteAgent => "submariner-routeagent",
        }
    }
}

/// When a setting takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At once.
    Live,
    /// When the program starts again.
    Restart,
}

impl Effect {
    /// Returns the word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Restart => "restart",
        }
    }
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its key in the ConfigMap: that of the configuration file, with a dot inside its sections.
    pub key: &'static str,
    /// Its values.
    pub form: Form,
    /// The programs that read it.
    pub programs: &'static [Program],
    /// When it takes effect.
    pub effect: Effect,
}

const BOTH: &[Program] = &[Program::Gateway, Program::RouteAgent];
const GATEWAY: &[Program] = &[Program::Gateway];
const ROUTE_AGENT: &[Program] = &[Program::RouteAgent];

/// Whole days and weeks, in seconds.
const DAY: u64 = 24 * 3600;
const WEEK: u64 = 7 * DAY;

const fn number(least: u64, most: u64, unit: &'static str) -> Form {
    Form::Number { least, most, unit }
}

const fn live(key: &'static str, programs: &'static [Program], form: Form) -> Setting {
    Setting { key, form, programs, effect: Effect::Live }
}

const fn restart(key: &'static str, programs: &'static [Program], form: Form) -> Setting {
    Setting { key, form, programs, effect: Effect::Restart }
}

/// A timer of translation (docs/operations/globalnet.md).
const TIMER: Form = number(1, WEEK, "seconds");
/// Sessions of one worker: 256 bytes each.
const SESSIONS: u64 = 1 << 24;
/// The largest number of seconds that the configuration takes.
const MANY: u64 = u32::MAX as u64;

/// Every setting, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    live("log-level", BOTH, Form::LogFilter),
    live("debug", BOTH, Form::Bool),
    live("ipsec-debug", GATEWAY, Form::Bool),
    restart("health-check", BOTH, Form::Bool),
    live("health-check-interval", BOTH, number(0, DAY, "seconds (of route agents: minutes)")),
    live("health-check-max-loss", BOTH, number(0, 1000, "")),
    live("path-probe-interval", GATEWAY, number(5, 1000, "milliseconds")),
    live("path-probe-multiplier", GATEWAY, number(2, 50, "")),
    live("pmtu-probing", GATEWAY, Form::Bool),
    live("weight", GATEWAY, number(1, 1000, "")),
    restart("active-gateways", GATEWAY, Form::Word(&["all", "one"])),
    restart("workers", GATEWAY, number(1, 256, "")),
    restart("cpus", GATEWAY, Form::Text(1024)),
    restart("io", GATEWAY, Form::Word(&["sockets", "af-xdp", "auto"])),
    restart(
        "disable-offloads",
        GATEWAY,
        Form::Words(&["tun-uso", "tun-tso", "tun-checksum", "tun-vnet-header", "udp-gso", "udp-gro"]),
    ),
    restart("path-mtu", GATEWAY, number(1280, 65_535, "bytes")),
    restart("tun-mtu", GATEWAY, number(1280, 65_535, "bytes")),
    restart("tun-name", BOTH, Form::Text(15)),
    restart("notice-port", BOTH, number(0, 65_535, "")),
    restart("allow-remote-cidrs", BOTH, Form::Cidrs),
    restart("lease-duration", GATEWAY, number(0, 3600, "seconds")),
    restart("renew-deadline", GATEWAY, number(0, 3600, "seconds")),
    restart("retry-period", GATEWAY, number(0, 3600, "seconds")),
    restart("close-grace", ROUTE_AGENT, number(0, WEEK, "seconds")),
    restart("metrics", ROUTE_AGENT, Form::Text(64)),
    restart("ipsec.ike-proposals", GATEWAY, Form::Texts),
    restart("ipsec.esp-proposals", GATEWAY, Form::Texts),
    restart("ipsec.esn", GATEWAY, Form::Bool),
    restart("ipsec.pfs", GATEWAY, Form::Bool),
    restart("ipsec.any-address", GATEWAY, Form::Bool),
    live("ipsec.ike-rekey-time", GATEWAY, number(5, MANY, "seconds")),
    live("ipsec.esp-rekey-time", GATEWAY, number(5, MANY, "seconds")),
    live("ipsec.esp-rekey-packets", GATEWAY, number(100, (1 << 32) - 2, "")),
    live("ipsec.esp-rekey-bytes", GATEWAY, number(1 << 20, (1 << 43) - 1, "bytes")),
    live("ipsec.dpd-delay", GATEWAY, number(1, MANY, "seconds")),
    live("ipsec.dpd-timeout", GATEWAY, number(1, MANY, "seconds")),
    live("globalnet.udp-timeout", GATEWAY, TIMER),
    live("globalnet.tcp-established-timeout", GATEWAY, TIMER),
    live("globalnet.tcp-transitory-timeout", GATEWAY, TIMER),
    live("globalnet.tcp-unsolicited-timeout", GATEWAY, TIMER),
    live("globalnet.icmp-timeout", GATEWAY, TIMER),
    live("globalnet.max-mappings-per-source", GATEWAY, number(1, 3 * 65_536, "")),
    live("globalnet.max-sessions-per-source", GATEWAY, number(1, SESSIONS, "")),
    live("globalnet.share-tcp-ports-above", GATEWAY, number(1, 100, "percent")),
    restart("globalnet.max-sessions", GATEWAY, number(1024, SESSIONS, "")),
];

/// Returns the setting of a key.
pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// What objects around the pods depend on: another value here would leave ports, probes or the Submariner object behind.
const JOINS: &str =
    "is chosen by a flag of trieste join, or a field of the Fabric, since other objects go by it";
/// What was found, and is found again by the next join.
const FOUND: &str = "is what trieste join has found; join again";
/// What differs from node to node, or is the same in every pod.
const PODS: &str = "is the pod's own";
const SECRET: &str = "is a secret, and a ConfigMap is no place for one";

/// What programs can be given and a ConfigMap cannot set, and why, to follow the key.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("cluster-id", JOINS),
    ("cluster-cidrs", "is in the ConfigMap trieste-networks"),
    ("service-cidrs", "is in the ConfigMap trieste-networks"),
    ("global-cidrs", FOUND),
    ("namespace", PODS),
    ("broker", JOINS),
    ("broker-kind", JOINS),
    ("broker-server", JOINS),
    ("broker-namespace", JOINS),
    ("broker-insecure", JOINS),
    ("broker-token", SECRET),
    ("broker-ca", SECRET),
    ("broker-secret", SECRET),
    ("psk", SECRET),
    ("psk-file", SECRET),
    ("psk-secret", SECRET),
    ("cable-driver", JOINS),
    ("former-cable-driver", JOINS),
    ("force-udp-encaps", JOINS),
    ("preferred-server", JOINS),
    ("udp-port", JOINS),
    ("nat-discovery-port", JOINS),
    ("nat-enabled", JOINS),
    ("air-gapped", JOINS),
    ("public-ip", JOINS),
    ("metrics-port", JOINS),
    ("network-plugin", FOUND),
    ("ovn-topology", FOUND),
    ("clusterset-ip-range", FOUND),
    ("protected-addresses", FOUND),
    ("broker-names", FOUND),
    ("spiderpool", FOUND),
    ("plugin-sync", FOUND),
    ("node-taint", JOINS),
    ("state-dir", PODS),
    ("store", PODS),
    ("hostname", PODS),
    ("node-name", PODS),
    ("pod-name", PODS),
    ("private-ip", "is the node's own: annotate the Node with trieste.io/endpoint-ip"),
    ("endpoint-interface", "is the node's own: annotate the Node with trieste.io/endpoint-interface"),
    ("health-check-ip", PODS),
    ("admin-socket", PODS),
    ("proc-sys", PODS),
    ("pass-file", PODS),
    ("kubernetes-service-host", PODS),
    ("config", PODS),
    ("uninstall", PODS),
    ("check", PODS),
    ("once", PODS),
    ("dry-run", PODS),
    ("wait-for-node", PODS),
    ("verbosity", "is upstream's; use log-level"),
];

/// Returns why a key that programs can be given cannot be set here.
pub fn elsewhere(key: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(known, _)| *known == key).map(|(_, why)| *why)
}
