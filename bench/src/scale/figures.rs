//! Figures over the size of a set: what each of them may be, how it may grow, and whether it does.

use std::fmt;

use serde::Serialize;

use crate::report::Table;

/// How much more than its share a figure may have grown: what one run differs from the next.
const TOLERANCE: f64 = 1.2;

/// What a figure may be at any size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// Less than this.
    Below(f64),
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

/// How a figure may follow the size of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Growth {
    /// It is of the whole set, and grows no more than the set.
    Total,
    /// It is of one change, and stays.
    PerChange,
    /// It has a bar alone.
    Free,
}

/// One figure at one size.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figure {
    /// What it is, with its unit.
    pub(crate) name: &'static str,
    /// Its value; NaN if it could not be measured.
    pub(crate) value: f64,
    /// What it is measured in steps of: less than one is no growth.
    pub(crate) resolution: f64,
    /// How it may grow.
    pub(crate) growth: Growth,
    /// What it may be.
    pub(crate) bar: Option<Bar>,
}

/// All figures at one size.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Point {
    /// Members, exports or endpoints.
    pub(crate) size: u32,
    /// The same ones in the same order at every size.
    pub(crate) figures: Vec<Figure>,
}

/// All figures at all sizes of one kind of set.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Curves {
    /// What the set is of: cable, store.
    pub(crate) title: String,
    /// What is counted by the sizes.
    pub(crate) unit: &'static str,
    /// In the order in which they were measured.
    pub(crate) points: Vec<Point>,
}

/// How a figure has grown from one size to the next one above 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Step {
    from: u32,
    to: u32,
    /// The power of the size that it follows: 1 where it grows with the set, 0 where it stays; none from or to nothing.
    exponent: Option<f64>,
    /// Whether it is as wanted, or nothing is.
    is_met: bool,
    /// By what factor it is larger than wanted; none where it is met, or comes from nothing.
    missed_by_factor: Option<f64>,
}

/// Everything that is said about a figure, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    figure: &'static str,
    bar: Option<Bar>,
    growth: Growth,
    /// Whether the bar, if there is one, is met at each size.
    is_met: Vec<bool>,
    /// By how much it is missed; none where it is met, or nothing could be measured.
    missed_by: Vec<Option<f64>>,
    steps: Vec<Step>,
}

impl Bar {
    /// Returns by how much a value misses it; `None` if it is met. What was not measured is missed by NaN.
    pub(crate) fn missed_by(self, value: f64) -> Option<f64> {
        let (is_met, by) = match self {
            Self::Below(bar) => (value < bar, value - bar),
            Self::AtMost(bar) => (value <= bar, value - bar),
            Self::AtLeast(bar) => (value >= bar, bar - value),
        };
        (!is_met).then_some(by)
    }

    /// Returns the number.
    pub(crate) fn value(self) -> f64 {
        match self {
            Self::Below(bar) | Self::AtMost(bar) | Self::AtLeast(bar) => bar,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Below(_) => "below",
            Self::AtMost(_) => "at most",
            Self::AtLeast(_) => "at least",
        };
        write!(f, "{words} {}", self.value())
    }
}

impl Growth {
    /// Returns the largest value wanted where the size is `ratio` times that at which it was `value`.
    fn allowed(self, value: f64, ratio: f64) -> Option<f64> {
        match self {
            Self::Total => Some(value * ratio * TOLERANCE),
            Self::PerChange => Some(value * TOLERANCE),
            Self::Free => None,
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Total => "at most 1",
            Self::PerChange => "0",
            Self::Free => "any",
        }
    }
}

impl Step {
    fn between((from, before): (u32, &Figure), (to, after): (u32, &Figure)) -> Self {
        let ratio = f64::from(to) / f64::from(from);
        let exponent = (after.value / before.value).ln() / ratio.ln();
        let allowed = before.growth.allowed(before.value, ratio);
        let is_met = allowed.is_none_or(|allowed| after.value <= allowed + after.resolution);
        let factor = allowed.filter(|_| !is_met).map(|allowed| after.value / allowed);
        let finite = |value: f64| value.is_finite().then_some(value);
        Self { from, to, exponent: finite(exponent), is_met, missed_by_factor: factor.and_then(finite) }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exponent {
            Some(exponent) => write!(f, "{exponent:.2}")?,
            None => write!(f, "–")?,
        }
        match self.missed_by_factor {
            Some(factor) => write!(f, " missed by a factor of {factor:.2}"),
            None if self.is_met => write!(f, " met"),
            None => write!(f, " missed"),
        }
    }
}

impl Curves {
    /// Makes one without a size.
    pub(crate) fn new(title: String, unit: &'static str) -> Self {
        Self { title, unit, points: Vec::new() }
    }

    /// Returns what there is to say about each figure.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        (0..self.count()).map(|number| self.verdict(number)).collect()
    }

    /// Returns a figure at each size.
    pub(crate) fn values(&self, number: usize) -> impl Iterator<Item = (u32, &Figure)> {
        self.points.iter().filter_map(move |point| Some((point.size, point.figures.get(number)?)))
    }

    /// Counts the figures.
    pub(crate) fn count(&self) -> usize {
        self.points.first().map_or(0, |point| point.figures.len())
    }

    /// Returns three tables: values and what they may be, where each bar is met, and the exponents.
    pub(crate) fn text(&self) -> String {
        let sizes: Vec<String> =
            self.points.iter().map(|point| format!("{} {}", point.size, self.unit)).collect();
        let header = |more: &[&'static str]| -> Table {
            let first = [self.title.as_str()].into_iter().chain(more.iter().copied());
            Table::new(&first.chain(sizes.iter().map(String::as_str)).collect::<Vec<_>>())
        };
        let (mut values, mut bars) = (header(&[]), header(&["wanted"]));
        let verdicts = self.verdicts();
        for (number, verdict) in verdicts.iter().enumerate() {
            let name = || verdict.figure.to_owned();
            let cells = self.values(number).map(|(_, figure)| format!("{:.2}", figure.value));
            values.row([name()].into_iter().chain(cells).collect());
            if let Some(bar) = verdict.bar {
                let cells = verdict.missed_by.iter().map(|missed| cell(*missed));
                bars.row([name(), bar.to_string()].into_iter().chain(cells).collect());
            }
        }
        let mut text = format!("{}\n{}", values.text(), bars.text());
        let steps: Vec<String> = verdicts
            .first()
            .map(|verdict| verdict.steps.iter().map(|step| format!("{} to {}", step.from, step.to)).collect())
            .unwrap_or_default();
        if !steps.is_empty() {
            text += &format!("\n{}", growth(&verdicts, &steps).text());
        }
        text
    }

    fn verdict(&self, number: usize) -> Verdict {
        let values: Vec<_> = self.values(number).collect();
        let first = values[0].1;
        let missed = |figure: &Figure| figure.bar.and_then(|bar| bar.missed_by(figure.value));
        let mut sized: Vec<_> = values.iter().copied().filter(|(size, _)| *size > 0).collect();
        sized.sort_by_key(|(size, _)| *size);
        sized.dedup_by_key(|(size, _)| *size);
        Verdict {
            figure: first.name,
            bar: first.bar,
            growth: first.growth,
            is_met: values.iter().map(|(_, figure)| missed(figure).is_none()).collect(),
            missed_by: values.iter().map(|(_, figure)| missed(figure)).collect(),
            steps: sized.windows(2).map(|pair| Step::between(pair[0], pair[1])).collect(),
        }
    }
}

/// The exponents of what may not grow as it likes.
fn growth(verdicts: &[Verdict], steps: &[String]) -> Table {
    let first = ["exponent of the size", "wanted"].into_iter();
    let mut table = Table::new(&first.chain(steps.iter().map(String::as_str)).collect::<Vec<_>>());
    for verdict in verdicts.iter().filter(|verdict| verdict.growth != Growth::Free) {
        let cells = verdict.steps.iter().map(ToString::to_string);
        let first = [verdict.figure.to_owned(), verdict.growth.wanted().to_owned()];
        table.row(first.into_iter().chain(cells).collect());
    }
    table
}

fn cell(missed_by: Option<f64>) -> String {
    match missed_by {
        None => "met".to_owned(),
        Some(by) if by.is_nan() => "not measured".to_owned(),
        // Missed by nothing is missed all the same: nothing of it may be rounded off.
        Some(by) if by < 0.005 => format!("missed by {by:.0e}"),
        Some(by) => format!("missed by {by:.2}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Curves of one figure.
    pub(in super::super) fn curves(growth: Growth, bar: Option<Bar>, values: &[(u32, f64)]) -> Curves {
        let mut curves = Curves::new("wireguard".to_owned(), "members");
        curves.points = values
            .iter()
            .map(|&(size, value)| Point {
                size,
                figures: vec![Figure { name: "time, s", value, resolution: 0.02, growth, bar }],
            })
            .collect();
        curves
    }

    #[test]
    fn a_bar_is_met_or_missed_by_something() {
        assert_eq!(Bar::Below(5.0).missed_by(4.99), None);
        assert_eq!(Bar::Below(5.0).missed_by(5.0), Some(0.0));
        assert_eq!(Bar::AtMost(0.0).missed_by(0.0), None);
        assert_eq!(Bar::AtMost(0.0).missed_by(3.0), Some(3.0));
        assert_eq!(Bar::AtLeast(0.5).missed_by(0.5), None);
        assert_eq!(Bar::AtLeast(0.5).missed_by(0.25), Some(0.25));
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let found: Vec<_> = [Bar::Below(5.0), Bar::AtMost(5.0), Bar::AtLeast(5.0)]
            .into_iter()
            .map(|bar| bar.missed_by(f64::NAN).map(f64::is_nan))
            .collect();
        assert_eq!(found, [Some(true); 3]);
        let grown = curves(Growth::Total, None, &[(100, 1.0), (200, f64::NAN)]);
        assert!(!grown.verdicts()[0].steps[0].is_met);
        assert_eq!(cell(Some(f64::NAN)), "not measured");
        assert_eq!(cell(Some(0.0)), "missed by 0e0");
    }

    #[test]
    fn totals_grow_with_the_set_and_changes_do_not() {
        let steps = |growth, values: &[(u32, f64)]| curves(growth, None, values).verdicts()[0].steps.clone();

        let total = steps(Growth::Total, &[(0, 0.1), (1000, 2.0), (2000, 4.7), (4000, 12.0)]);
        assert_eq!((total[0].from, total[0].to, total.len()), (1000, 2000, 2));
        assert!(total[0].is_met);
        assert!((total[1].missed_by_factor.unwrap() - 12.0 / 11.28).abs() < 1e-9);
        assert!((total[0].exponent.unwrap() - 2.35_f64.log2()).abs() < 1e-9);

        let change = steps(Growth::PerChange, &[(1000, 0.2), (2000, 0.25), (4000, 0.5)]);
        assert_eq!(change.iter().map(|step| step.is_met).collect::<Vec<_>>(), [true, false]);
        assert!(steps(Growth::Free, &[(1, 1.0), (2, 100.0)])[0].is_met);
    }

    #[test]
    fn a_figure_that_comes_from_nothing_has_no_exponent() {
        let grown = curves(Growth::Total, None, &[(100, 0.0), (200, 0.01), (400, 7.0)]);
        let steps = &grown.verdicts()[0].steps;
        assert_eq!((steps[0].exponent, steps[0].is_met), (None, true), "less than can be measured");
        assert!(steps[1].missed_by_factor.is_some());
        let sudden = curves(Growth::Total, None, &[(100, 0.0), (200, 7.0)]).verdicts()[0].steps[0];
        assert_eq!((sudden.is_met, sudden.to_string().as_str()), (false, "– missed"));
        assert_eq!(steps[0].to_string(), "– met");
    }

    #[test]
    fn sizes_are_compared_in_their_order() {
        let grown = curves(Growth::Total, None, &[(400, 4.0), (100, 1.0), (100, 9.0)]);
        let step = grown.verdicts()[0].steps[0];
        assert_eq!((step.from, step.to, step.exponent), (100, 400, Some(1.0)));
    }

    #[test]
    fn the_text_has_values_verdicts_and_exponents() {
        let text = curves(Growth::Total, Some(Bar::Below(5.0)), &[(0, 0.1), (100, 1.0), (200, 9.0)]).text();
        for expected in ["0.10", "below 5", "missed by 4.00", "3.17 missed by a factor of 3.75", "at most 1"]
        {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
        assert_eq!(Curves::new(String::new(), "members").verdicts().len(), 0);
    }
}
