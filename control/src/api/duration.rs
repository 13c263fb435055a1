//! Go's duration text, as in `Gateway.status.connections[].latencyRTT`: `388.079µs`, `1.2ms`, `1m30s`, `0s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds per unit, in the spellings that Go reads.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, what Go writes
    ("μs", 1_000), // U+03BC, what Go also reads
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A signed duration of whole nanoseconds, at most about 292 years either way, written and read as Go does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    nanos: i64,
}

impl GoDuration {
    /// Returns a duration of this many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// Returns the duration in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }
}

/// Saturates at the longest duration that Go knows.
impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self { nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX) }
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let nanos = self.nanos.unsigned_abs();
        let text = match nanos {
            0 => "0s".to_owned(),
            1..1_000 => format!("{sign}{nanos}ns"),
            1_000..1_000_000 => format!("{sign}{}µs", decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(nanos, 1_000_000)),
            _ => {
                let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
                match (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60) {
                    (0, 0) => format!("{sign}{seconds}s"),
                    (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                    (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
                }
            }
        };
        f.pad(&text)
    }
}

/// Formats `value / unit` with as many decimals as needed, none of them a trailing zero. `unit` is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

/// A text that is no Go duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration such as 388.079µs or 1m30s")]
pub struct GoDurationError(String);

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| GoDurationError(text.escape_debug().collect()))
    }
}

fn parse(text: &str) -> Option<GoDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(GoDuration::default());
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, after) = parse_element(rest)?;
        total = total.checked_add(nanos)?;
        rest = after;
    }
    let nanos = if negative { 0i64.checked_sub_unsigned(total)? } else { i64::try_from(total).ok()? };
    Some(GoDuration { nanos })
}

/// Reads one number and its unit, such as `1.5ms`; gives nanoseconds (fractions of one are cut) and what follows.
fn parse_element(text: &str) -> Option<(u64, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (number, rest) = text.split_at(text.find(|c| !is_number(c))?);
    let (unit, after) = rest.split_at(rest.find(is_number).unwrap_or(rest.len()));
    let per_unit = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Sixteen digits are more than a nanosecond of an hour, and cannot overflow.
    let digits = &fraction[..fraction.len().min(16)];
    let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
    let parts: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let nanos = u64::try_from(parts * u128::from(per_unit) / scale).ok()?;
    Some((whole.checked_mul(per_unit)?.checked_add(nanos)?, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let cases: [(i64, &str); 14] = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (388_079, "388.079µs"),
            (1_200_000, "1.2ms"),
            (929_517_052, "929.517052ms"),
            (1_000_000_000, "1s"),
            (3_001_000_000, "3.001s"),
            (60_000_000_000, "1m0s"),
            (130_000_000_000, "2m10s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1_500_000, "-1.5ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(GoDuration::from_nanos(nanos).to_string(), text);
            assert_eq!(text.parse(), Ok(GoDuration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn every_spelling_that_go_reads_is_read() {
        for (text, nanos) in
            [("0", 0), ("+5s", 5_000_000_000), ("1.s", 1_000_000_000), (".5s", 500_000_000), ("1us", 1_000)]
        {
            assert_eq!(text.parse(), Ok(GoDuration::from_nanos(nanos)), "{text}");
        }
        assert_eq!("1μs".parse(), Ok(GoDuration::from_nanos(1_000)));
        assert_eq!("0.3333333333333333333h".parse(), Ok(GoDuration::from_nanos(1_199_999_999_999)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "-", "3", ".s", "s", "1.2.3s", "1x", "1 s", "99999999999h", "1e3s", "µ", "1s1"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?} was read");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos: i64) {
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}|[0-9.µmnsh+-]{0,20}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
