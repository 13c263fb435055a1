//! Prometheus' text format, version 0.0.4.
//!
//! Written by hand: the usual encoder appends `_total` to every counter, and one of upstream's has none.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page's content type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, and starts at 0 with the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size: its samples are those of [`Family::observe`].
    Histogram,
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
    samples: BTreeMap<SampleKey, Value>,
}

/// A sample's place in its metric: histograms keep their buckets in order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SampleKey {
    /// The labels but for a bucket's bound.
    group: String,
    suffix: &'static str,
    index: usize,
    labels: String,
}

impl Family {
    /// Returns a metric without samples.
    #[must_use]
    pub fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind, samples: BTreeMap::new() }
    }

    /// Adds a sample. Labels are written in the order given.
    pub fn set(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.put("", 0, labels, value.into());
    }

    /// Adds a histogram: the number of observations up to each bound, all of them, and their sum.
    pub fn observe(&mut self, labels: &[(&str, &str)], buckets: &[(f64, u64)], count: u64, sum: Value) {
        let infinite = (String::from("+Inf"), count);
        let buckets = buckets.iter().map(|(bound, count)| (bound.to_string(), *count)).chain([infinite]);
        for (index, (bound, count)) in buckets.enumerate() {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.put("_bucket", index, &labels, count.into());
        }
        self.put("_sum", 0, labels, sum);
        self.put("_count", 0, labels, count.into());
    }

    fn put(&mut self, suffix: &'static str, index: usize, labels: &[(&str, &str)], value: Value) {
        let text = label_text(labels);
        let without_bound = label_text(
            labels.split_last().map_or(labels, |(last, rest)| if last.0 == "le" { rest } else { labels }),
        );
        self.samples.insert(SampleKey { group: without_bound, suffix, index, labels: text }, value);
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
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        let text = &mut self.text;
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes everything");
        for (SampleKey { suffix, labels, .. }, value) in samples {
            match value {
                Value::Whole(value) => writeln!(text, "{name}{suffix}{labels} {value}"),
                Value::Real(value) if value.is_infinite() => {
                    writeln!(text, "{name}{suffix}{labels} {}Inf", if value > 0.0 { '+' } else { '-' })
                }
                Value::Real(value) => writeln!(text, "{name}{suffix}{labels} {value}"),
            }
            .expect("a string takes everything");
        }
    }

    /// Returns the page as text.
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
    fn a_histogram_has_its_buckets_in_order_then_count_and_sum() {
        let mut family = Family::new(Kind::Histogram, "x", "h");
        family.observe(&[("a", "1")], &[(0.5, 1), (10.0, 2)], 3, 12.5.into());
        let mut page = Page::default();
        page.add(family);
        assert_eq!(
            page.into_text(),
            "# HELP x h\n# TYPE x histogram\nx_bucket{a=\"1\",le=\"0.5\"} 1\nx_bucket{a=\"1\",le=\"10\"} 2\n\
             x_bucket{a=\"1\",le=\"+Inf\"} 3\nx_count{a=\"1\"} 3\nx_sum{a=\"1\"} 12.5\n"
        );
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
