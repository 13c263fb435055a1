//! How much memory pods may have.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

const MEBIBYTE: u64 = 1 << 20;
/// Ours: no program does with less, and requests are below it.
const LEAST: u64 = 64 * MEBIBYTE;

/// The most memory that a container may have; nothing bounds what has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit(Option<u64>);

impl MemoryLimit {
    /// No limit.
    pub const NONE: Self = Self(None);
    /// Ours, for gateways: packet buffers take 26 MiB for each worker, a million translated sessions 200 MiB, objects of
    /// other members 64 MiB in each of two stores (docs/performance.md, docs/security.md); and as much again.
    pub const GATEWAY: Self = Self::mebibytes(1024);
    /// Ours, for route agents: objects of other members 64 MiB, Nodes, Services and EndpointSlices of the cluster.
    pub const ROUTE_AGENT: Self = Self::mebibytes(512);
    /// Ours, for the service discovery agent and DNS server: the server alone has 24 MiB under load (docs/performance.md), and
    /// there is room for what other members may export.
    pub(crate) const DISCOVERY: Self = Self::mebibytes(512);
    /// Ours, for workers on a network plugin's database or Spiderpool's lists: objects of other members 64 MiB, and copies of a few of its tables.
    pub(crate) const PLUGIN_SYNC: Self = Self::mebibytes(256);
    /// Ours, for work before and after a program.
    pub(crate) const BESIDE: Self = Self::mebibytes(128);

    const fn mebibytes(mebibytes: u64) -> Self {
        Self(Some(mebibytes * MEBIBYTE))
    }

    /// Returns a container's `resources`, with what is reserved for it.
    pub(crate) fn resources(self, cpu: &str, memory: &str) -> Value {
        let mut resources = json!({"requests": {"cpu": cpu, "memory": memory}});
        if self.0.is_some() {
            resources["limits"] = json!({"memory": self.to_string()});
        }
        resources
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.0 else { return f.write_str("0") };
        let units = [(1 << 30, "Gi"), (MEBIBYTE, "Mi"), (1 << 10, "Ki")];
        match units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", bytes / unit),
            None => write!(f, "{bytes}"),
        }
    }
}

/// A text that is no limit of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryLimitError {
    /// It is no quantity as Kubernetes writes them.
    #[error("expected a number of bytes, or one with Ki, Mi, Gi, k, M or G, such as 1Gi; 0 is no limit")]
    Invalid,
    /// No program does with it.
    #[error("below 64Mi, which is the least")]
    TooSmall,
}

impl FromStr for MemoryLimit {
    type Err = MemoryLimitError;

    fn from_str(text: &str) -> Result<Self, MemoryLimitError> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit: u64 = match unit {
            "" => 1,
            "Ki" => 1 << 10,
            "Mi" => MEBIBYTE,
            "Gi" => 1 << 30,
            "k" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => return Err(MemoryLimitError::Invalid),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        match bytes.ok_or(MemoryLimitError::Invalid)? {
            0 => Ok(Self::NONE),
            bytes if bytes < LEAST => Err(MemoryLimitError::TooSmall),
            bytes => Ok(Self(Some(bytes))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_written_as_kubernetes_does() {
        for (text, shown) in [
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("100M", "100000000"),
            ("67108864", "64Mi"),
            ("0", "0"),
        ] {
            let limit: MemoryLimit = text.parse().unwrap();
            assert_eq!(limit.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(limit));
        }
        for text in ["", "Gi", "1.5Gi", "-1", "1 Gi", "1gi", "99999999999Gi"] {
            assert_eq!(text.parse::<MemoryLimit>(), Err(MemoryLimitError::Invalid), "{text}");
        }
        assert_eq!("63Mi".parse::<MemoryLimit>(), Err(MemoryLimitError::TooSmall));
    }

    #[test]
    fn what_has_no_limit_has_no_field_for_one() {
        assert!(MemoryLimit::NONE.resources("1m", "4Mi")["limits"].is_null());
        assert_eq!(MemoryLimit::GATEWAY.resources("1m", "4Mi")["limits"]["memory"], "1Gi");
    }
}
