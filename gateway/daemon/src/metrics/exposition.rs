//! Prometheus' text format, version 0.0.4.
//!
//! Written by hand: the usual encoder appends `_total` to every counter, and one of upstream's has none.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page's content type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, and starts at 0 with the process.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A sample's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A count, exact.
    Whole(u64),
    /// Anything else.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// One metric with all its samples. Samples are sorted by their labels, and one with the same labels as another
/// replaces it: Prometheus refuses a page that says a thing twice.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: BTreeMap<String, Value>,
}

impl Family {
    /// A metric without samples.
    #[must_use]
    pub fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind, samples: BTreeMap::new() }
    }

    /// Adds a sample. Labels are written in the order given.
    pub fn set(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.samples.insert(label_text(labels), value.into());
    }

    /// Adds a sample without labels, and returns the metric.
    #[must_use]
    pub fn with(mut self, value: impl Into<Value>) -> Self {
        self.set(&[], value);
        self
    }
}

/// A page in the making.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Writes a metric; one without samples is left out, as upstream's library does.
    pub fn add(&mut self, family: Family) {
        let Family { name, help, kind, samples } = family;
        if samples.is_empty() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        let text = &mut self.text;
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes everything");
        for (labels, value) in samples {
            match value {
                Value::Whole(value) => writeln!(text, "{name}{labels} {value}"),
                Value::Real(value) if value.is_infinite() => {
                    writeln!(text, "{name}{labels} {}Inf", if value > 0.0 { '+' } else { '-' })
                }
                Value::Real(value) => writeln!(text, "{name}{labels} {value}"),
            }
            .expect("a string takes everything");
        }
    }

    /// The page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

fn label_text(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", labels.join(","))
}

fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut family = Family::new(Kind::Gauge, "x", "a\\b\nc");
        family.set(&[("a", "say \"hi\"\\\n"), ("b", "")], 1u64);
        let mut page = Page::default();
        page.add(family);
        assert_eq!(
            page.into_text(),
            "# HELP x a\\\\b\\nc\n# TYPE x gauge\nx{a=\"say \\\"hi\\\"\\\\\\n\",b=\"\"} 1\n"
        );
    }

    #[test]
    fn values_are_exact_and_in_the_formats_words() {
        let mut page = Page::default();
        for value in [
            Value::from(u64::MAX),
            f64::INFINITY.into(),
            f64::NEG_INFINITY.into(),
            f64::NAN.into(),
            0.5.into(),
        ] {
            page.add(Family::new(Kind::Counter, "x", "").with(value));
        }
        let values: Vec<_> =
            page.text.lines().filter_map(|line| line.strip_prefix("x ")).map(str::to_owned).collect();
        assert_eq!(values, ["18446744073709551615", "+Inf", "-Inf", "NaN", "0.5"]);
    }

    #[test]
    fn nothing_is_said_twice_and_nothing_about_nothing() {
        let mut family = Family::new(Kind::Gauge, "x", "h");
        family.set(&[("a", "1")], 1u64);
        family.set(&[("a", "1")], 2u64);
        let mut page = Page::default();
        page.add(family);
        page.add(Family::new(Kind::Gauge, "y", "h"));
        assert_eq!(page.into_text(), "# HELP x h\n# TYPE x gauge\nx{a=\"1\"} 2\n");
    }
}
