//! How much of a CPU is set aside for pods.

use std::fmt;
use std::str::FromStr;

/// Ours: nothing does with less.
const LEAST: u32 = 10;
/// Ours: what is more is a typing error.
const MOST: u32 = 256_000;

/// The share of CPUs that is set aside for a container, in thousandths of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuRequest(u32);

impl CpuRequest {
    /// Ours, for gateways: one worker that is busy takes a whole one, if there is.
    pub const GATEWAY: Self = Self(100);
    /// Ours, for route agents.
    pub const ROUTE_AGENT: Self = Self(20);
}

impl fmt::Display for CpuRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_multiple_of(1000) {
            true => write!(f, "{}", self.0 / 1000),
            false => write!(f, "{}m", self.0),
        }
    }
}

/// A text that is no share of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected CPUs such as 2, or thousandths of one such as 250m, from 10m to 256")]
pub struct CpuRequestError;

impl FromStr for CpuRequest {
    type Err = CpuRequestError;

    fn from_str(text: &str) -> Result<Self, CpuRequestError> {
        let (number, unit) = match text.strip_suffix('m') {
            Some(number) => (number, 1),
            None => (text, 1000),
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let thousandths = number.parse::<u32>().ok().filter(|_| is_number).and_then(|n| n.checked_mul(unit));
        thousandths.filter(|share| (LEAST..=MOST).contains(share)).map(Self).ok_or(CpuRequestError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written_as_kubernetes_does() {
        for (text, shown) in [("2", "2"), ("2000m", "2"), ("250m", "250m"), ("10m", "10m"), ("256", "256")] {
            assert_eq!(text.parse::<CpuRequest>().unwrap().to_string(), shown);
        }
        for text in ["", "m", "0", "9m", "0.5", "-1", "+1", "257", "99999999999", "1 "] {
            assert_eq!(text.parse::<CpuRequest>(), Err(CpuRequestError), "{text}");
        }
    }
}
