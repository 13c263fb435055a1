//! The values' forms that are the gateway's own: lists, CPUs, and one odd boolean.

use std::str::FromStr;

use serde::Deserialize;

/// Reads upstream's switch for closed networks, which is on only if it is exactly `true` (env-metrics §1).
pub(super) fn parse_exactly_true(text: &str) -> Result<bool, String> {
    Ok(text == "true")
}

/// Words separated by commas; in the file a list, or the same text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

impl FromStr for Words {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(Self(words.map(str::to_owned).collect()))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer).map(Self)
    }
}

/// How packets of cables cross the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OuterIo {
    /// Through its UDP sockets.
    #[default]
    Sockets,
    /// Past its stack by AF_XDP, where the interface can do that in any mode.
    AfXdp,
    /// By AF_XDP where that pays: without copies.
    Auto,
}

impl FromStr for OuterIo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sockets" => Ok(Self::Sockets),
            "af-xdp" => Ok(Self::AfXdp),
            "auto" => Ok(Self::Auto),
            _ => Err(format!("`{text}` is none of sockets, af-xdp, auto")),
        }
    }
}

/// Where workers are pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// Nowhere.
    Off,
    /// Worker *i* on the *i*-th of these, beginning again at the end.
    List(Vec<usize>),
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let cpus = text.split(',').map(|word| {
            word.trim()
                .parse()
                .map_err(|_| format!("`{word}` is not a CPU's number; expected a list such as 0,1, or off"))
        });
        cpus.collect::<Result<_, _>>().map(Self::List)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            List(Vec<usize>),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::List(cpus) => Ok(Self::List(cpus)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
