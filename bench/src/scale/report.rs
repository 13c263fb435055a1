//! Everything that was measured, for people and for programs.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::figures::{Curves, Point};
use super::plot;
use crate::machine::Circumstances;

/// Everything that was measured. What has a bar is judged, and nothing fails for it.
#[derive(Debug)]
pub(crate) struct Report {
    circumstances: Circumstances,
    sets: Vec<Set>,
}

/// One kind of set at several sizes.
#[derive(Debug)]
struct Set {
    curves: Curves,
    rows: Vec<Value>,
    failed: Vec<Failed>,
}

/// A size at which it could not be measured.
#[derive(Debug, Serialize)]
struct Failed {
    size: u32,
    error: String,
}

impl Report {
    pub(crate) fn new(circumstances: Circumstances) -> Self {
        Self { circumstances, sets: Vec::new() }
    }

    /// Begins with another kind of set.
    pub(crate) fn begin(&mut self, title: String, unit: &'static str) {
        self.sets.push(Set { curves: Curves::new(title, unit), rows: Vec::new(), failed: Vec::new() });
    }

    /// Takes what came of a size of the last set, and says on standard error what that was.
    ///
    /// # Errors
    /// If the row is no JSON.
    pub(crate) fn take<R: Serialize + fmt::Display>(
        &mut self,
        size: u32,
        row: anyhow::Result<R>,
        point: impl Fn(&R) -> Point,
    ) -> anyhow::Result<()> {
        let Some(set) = self.sets.last_mut() else { return Ok(()) };
        match row {
            Ok(row) => {
                eprintln!("{}, {row}", set.curves.title);
                set.rows.push(serde_json::to_value(&row)?);
                set.curves.points.push(point(&row));
            }
            Err(error) => {
                eprintln!("{}, {size} {}: {error:#}", set.curves.title, set.curves.unit);
                set.failed.push(Failed { size, error: format!("{error:#}") });
            }
        }
        Ok(())
    }

    /// Says whether nothing at all was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.iter().all(|set| set.rows.is_empty())
    }

    /// Returns the tables of all sets, and what could not be measured.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.circumstances.line());
        for set in &self.sets {
            text += &format!("\n{}", set.curves.text());
            for failed in &set.failed {
                text += &format!("NOT MEASURED: {} {}: {}\n", failed.size, set.curves.unit, failed.error);
            }
        }
        text
    }

    /// Returns all rows and verdicts.
    pub(crate) fn json(&self) -> Value {
        let sets: Vec<Value> = self
            .sets
            .iter()
            .map(|set| {
                json!({
                    "title": set.curves.title, "unit": set.curves.unit, "rows": set.rows,
                    "failed": set.failed, "verdicts": set.curves.verdicts(),
                })
            })
            .collect();
        json!({ "circumstances": self.circumstances, "sets": sets })
    }

    /// Returns the picture of each figure, of all sets.
    pub(super) fn svg(&self) -> String {
        let curves: Vec<Curves> = self.sets.iter().map(|set| set.curves.clone()).collect();
        plot::svg(&curves)
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::curves;
    use super::super::figures::{Bar, Growth};
    use super::*;

    #[test]
    fn what_was_not_measured_is_said() {
        let circumstances = Circumstances {
            command: String::new(),
            date: String::new(),
            cpu: String::new(),
            kernel: String::new(),
        };
        let mut report = Report::new(circumstances);
        report.begin("wireguard".to_owned(), "members");
        let point = |_: &Value| curves(Growth::Total, Some(Bar::Below(5.0)), &[(100, 7.0)]).points.remove(0);
        report.take(3000, Err(anyhow::anyhow!("no route")), point).unwrap();
        assert!(report.is_empty());
        report.take(100, Ok(json!({"members": 100})), point).unwrap();

        assert!(!report.is_empty());
        let (text, json) = (report.text(), report.json());
        assert!(text.contains("NOT MEASURED: 3000 members: no route"), "{text}");
        assert_eq!(json["sets"][0]["failed"][0]["size"], 3000);
        let verdict = &json["sets"][0]["verdicts"][0];
        assert_eq!((&verdict["is_met"][0], &verdict["missed_by"][0]), (&json!(false), &json!(2.0)));
        assert_eq!(json["sets"][0]["rows"][0]["members"], 100);
    }
}
