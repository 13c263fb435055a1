//! The values' forms: lists, CIDRs, CPUs, booleans.

use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;

/// Reads a boolean as Go's `ParseBool` does (env-metrics §1).
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "" | "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

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

/// CIDRs separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cidrs(pub Vec<IpNet>);

impl FromStr for Cidrs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let cidrs = words.map(|word| {
            word.parse::<IpNet>()
                .map(|net| net.trunc())
                .map_err(|_| format!("`{word}` is not a CIDR such as 10.1.0.0/16"))
        });
        cidrs.collect::<Result<_, _>>().map(Self)
    }
}

impl<'de> Deserialize<'de> for Cidrs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        words.join(",").parse().map_err(serde::de::Error::custom)
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
