//! What strongSwan is told: one connection, as a file for swanctl.

use std::fmt::Write as _;
use std::net::SocketAddr;

use ipnet::IpNet;

/// The name of the one connection.
pub(super) const NAME: &str = "cable";

/// How ESP packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// In UDP, whatever NAT detection finds: it sends wrong hashes.
    Forced,
    /// As NAT detection finds. (The ESP of strongSwan 5.9 can do UDP alone, and forces it.)
    AsDetected,
}

/// When a child SA is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// When the other side or [`super::Strongswan::initiate`] asks.
    Never,
    /// At once, and when it is lost.
    Now,
}

/// One child SA.
#[derive(Debug, Clone)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// What is behind strongSwan.
    pub local: Vec<IpNet>,
    /// What is behind the other side.
    pub remote: Vec<IpNet>,
    /// ESP proposals in strongSwan's words; a group in one asks for PFS.
    pub proposals: String,
    /// When it is made.
    pub start: Start,
    /// Seconds after which it is renewed; 0 for never.
    pub rekey_s: u32,
}

/// One connection: a peer, and what is protected.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its own address and port; with port 4500, messages carry the non-ESP marker from the first one on.
    pub local: SocketAddr,
    /// The other side's; `None` stands for any.
    pub remote: Option<SocketAddr>,
    /// Its own identity: an address, or a name behind an `@`.
    pub local_id: String,
    /// The other side's.
    pub remote_id: String,
    /// The preshared key, taken literally.
    pub psk: String,
    /// IKE proposals in strongSwan's words.
    pub proposals: String,
    /// How ESP travels.
    pub encapsulation: Encapsulation,
    /// Seconds of silence after which it asks whether the other side is alive; 0 for never.
    pub dpd_s: u32,
    /// Seconds after which the IKE SA is renewed; 0 for never.
    pub rekey_s: u32,
    /// Whether long IKE messages go in fragments (RFC 7383).
    pub fragments: bool,
    /// Whether a second IKE SA with the same identities leaves the first one alone; it takes its place otherwise.
    pub remembers_all: bool,
    /// The child SAs.
    pub children: Vec<Child>,
}

impl Connection {
    /// As swanctl reads it.
    pub fn text(&self) -> String {
        let mut text = format!("connections {{\n  {NAME} {{\n    version = 2\n    mobike = no\n");
        // One that begins by itself goes on until there is an answer.
        let tries = if self.children.iter().any(|child| child.start == Start::Now) { 0 } else { 1 };
        let forced = if self.encapsulation == Encapsulation::Forced { "yes" } else { "no" };
        for (key, value) in [
            ("local_addrs", self.local.ip().to_string()),
            ("local_port", self.local.port().to_string()),
            ("remote_addrs", self.remote.map_or_else(|| "%any".to_owned(), |remote| remote.ip().to_string())),
            ("remote_port", self.remote.unwrap_or(self.local).port().to_string()),
            ("proposals", self.proposals.clone()),
            ("encap", forced.to_owned()),
            ("dpd_delay", format!("{}s", self.dpd_s)),
            ("rekey_time", format!("{}s", self.rekey_s)),
            ("keyingtries", tries.to_string()),
            ("fragmentation", if self.fragments { "yes" } else { "no" }.to_owned()),
            ("unique", if self.remembers_all { "never" } else { "replace" }.to_owned()),
        ] {
            let _ = writeln!(text, "    {key} = {value}");
        }
        for (side, id) in [("local", &self.local_id), ("remote", &self.remote_id)] {
            let _ = writeln!(text, "    {side} {{\n      auth = psk\n      id = {id}\n    }}");
        }
        text += "    children {\n";
        for child in &self.children {
            text += &child.text();
        }
        let _ = write!(
            text,
            "    }}\n  }}\n}}\nsecrets {{\n  ike-1 {{\n    secret = \"{}\"\n  }}\n}}\n",
            self.psk.replace('\\', "\\\\").replace('"', "\\\"")
        );
        text
    }
}

impl Child {
    fn text(&self) -> String {
        let list = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (start, lost) = match self.start {
            Start::Never => ("none", "clear"),
            Start::Now => ("start", "restart"),
        };
        let mut text = format!("      {} {{\n        mode = tunnel\n", self.name);
        for (key, value) in [
            ("local_ts", list(&self.local)),
            ("remote_ts", list(&self.remote)),
            ("esp_proposals", self.proposals.clone()),
            ("start_action", start.to_owned()),
            ("dpd_action", lost.to_owned()),
            ("close_action", "none".to_owned()),
            ("rekey_time", format!("{}s", self.rekey_s)),
        ] {
            let _ = writeln!(text, "        {key} = {value}");
        }
        text + "      }\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_line_of_its_own() {
        let connection = Connection {
            local: "172.31.2.1:4500".parse().unwrap(),
            remote: None,
            local_id: "172.31.2.1".to_owned(),
            remote_id: "@east".to_owned(),
            psk: "a \"word\"".to_owned(),
            proposals: "aes256gcm16-prfsha256-x25519".to_owned(),
            encapsulation: Encapsulation::Forced,
            dpd_s: 2,
            rekey_s: 0,
            fragments: true,
            remembers_all: false,
            children: vec![Child {
                name: "pods".to_owned(),
                local: vec!["10.2.0.0/16".parse().unwrap(), "10.102.0.0/16".parse().unwrap()],
                remote: vec!["10.1.0.0/16".parse().unwrap()],
                proposals: "aes128gcm16".to_owned(),
                start: Start::Now,
                rekey_s: 0,
            }],
        };

        let text = connection.text();

        for line in [
            "remote_addrs = %any",
            "remote_port = 4500",
            "id = @east",
            "local_ts = 10.2.0.0/16,10.102.0.0/16",
            "start_action = start",
            "secret = \"a \\\"word\\\"\"",
        ] {
            assert!(text.lines().any(|other| other.trim() == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
