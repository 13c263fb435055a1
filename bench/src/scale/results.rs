//! What was found at each size, and how it grows.

use std::fmt;
use std::time::Instant;

use serde::Serialize;
use trieste_tests::process::ProcessId;

use crate::machine::Circumstances;
use crate::report::Table;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    circumstances: Circumstances,
    cable_driver: String,
    rows: Vec<Row>,
}

/// One size of the set.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// Members beside the two.
    pub(crate) members: u32,
    /// Seconds that it took to write them.
    pub(crate) written_s: f64,
    /// Seconds from then until every node had all routes.
    pub(crate) last_route_s: f64,
    /// The same for one more member.
    pub(crate) one_more_s: f64,
    /// The same for one more network of it.
    pub(crate) one_changed_s: f64,
    /// At rest.
    pub(crate) rest: Usage,
    /// One TCP stream before there were others, Gbit/s.
    pub(crate) alone_gbit_s: f64,
    /// The same beside them.
    pub(crate) gbit_s: f64,
    /// Seconds from the start of a gateway that was killed until a pod was answered.
    pub(crate) restart_s: f64,
    /// Seconds until no route of the others was left.
    pub(crate) removed_s: f64,
    /// Datagrams lost between the two in the minute in which the others leave, of one every 10 ms.
    pub(crate) removal_lost: u32,
    /// The longest silence between the two in it, milliseconds.
    pub(crate) removal_longest_ms: f64,
    /// Memory of the gateway before there were others, MiB.
    pub(crate) before_mib: f64,
    /// And a minute after they have left.
    pub(crate) after_mib: f64,
}

/// Processor and memory of a gateway, of the route agent beside it, and of a worker's.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Usage {
    #[serde(skip)]
    at: Option<Instant>,
    /// Percent of one core in that time; seconds used so far, before [`Usage::since`].
    cpu: [f64; 3],
    /// MiB of resident memory.
    memory_mib: [f64; 3],
}

impl Usage {
    /// Reads what these processes have used so far.
    ///
    /// # Errors
    /// If one of them is gone.
    pub(crate) fn of(gateway: ProcessId, agent: ProcessId, worker: ProcessId) -> anyhow::Result<Self> {
        let all = [gateway, agent, worker];
        let (mut cpu, mut memory_mib) = ([0.0; 3], [0.0; 3]);
        for (number, process) in all.into_iter().enumerate() {
            cpu[number] = process.cpu_seconds()?;
            memory_mib[number] = process.resident_bytes()? as f64 / f64::from(1 << 20);
        }
        Ok(Self { at: Some(Instant::now()), cpu, memory_mib })
    }

    /// Returns what was used from then to now, in percent of one core.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let between = |(now, then): (Instant, Instant)| now.duration_since(then).as_secs_f64();
        let seconds = self.at.zip(before.at).map_or(f64::NAN, between);
        let mut cpu = self.cpu;
        for (now, then) in cpu.iter_mut().zip(before.cpu) {
            *now = (*now - then) / seconds * 100.0;
        }
        Self { cpu, ..*self }
    }

    /// Returns the gateway's memory.
    pub(crate) fn mib(&self) -> f64 {
        self.memory_mib[0]
    }
}

impl Row {
    /// Figures by name; those that have a time or a use of something in them, to be compared over sizes.
    fn figures(&self) -> [(&'static str, f64); 12] {
        let (cpu, memory) = (self.rest.cpu, self.rest.memory_mib);
        [
            ("last route, s", self.last_route_s),
            ("one more, s", self.one_more_s),
            ("one changed, s", self.one_changed_s),
            ("gateway at rest, %", cpu[0]),
            ("its route agent, %", cpu[1]),
            ("a worker's, %", cpu[2]),
            ("gateway, MiB", memory[0]),
            ("its route agent, MiB", memory[1]),
            ("started again, s", self.restart_s),
            ("all removed, s", self.removed_s),
            ("TCP, of alone", self.gbit_s / self.alone_gbit_s),
            ("memory after, of before", self.after_mib / self.before_mib),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} members:", self.members)?;
        for (name, value) in self.figures() {
            write!(f, " {name} {value:.2};")?;
        }
        write!(f, " lost as they leave {} (silent for {:.0} ms)", self.removal_lost, self.removal_longest_ms)
    }
}

impl Report {
    pub(crate) fn new(circumstances: Circumstances, cable_driver: String) -> Self {
        Self { circumstances, cable_driver, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// A row for each figure, a column for each size, and the exponent between the two largest sizes: 1 where it grows with the
    /// set, 0 where it stays.
    pub(crate) fn text(&self) -> String {
        let sizes: Vec<String> = self.rows.iter().map(|row| format!("{} members", row.members)).collect();
        let header: Vec<&str> = [self.cable_driver.as_str()]
            .into_iter()
            .chain(sizes.iter().map(String::as_str))
            .chain(["exponent"])
            .collect();
        let mut table = Table::new(&header);
        let all: Vec<_> = self.rows.iter().map(Row::figures).collect();
        for number in 0..all.first().map_or(0, |figures| figures.len()) {
            let values: Vec<f64> = all.iter().map(|figures| figures[number].1).collect();
            let cells = values.iter().map(|value| format!("{value:.2}"));
            let name = all[0][number].0.to_owned();
            let exponent =
                self.exponent(&values).map_or_else(|| "–".to_owned(), |exponent| format!("{exponent:.2}"));
            table.row([name].into_iter().chain(cells).chain([exponent]).collect());
        }
        let lost = self.rows.iter().map(|row| row.removal_lost.to_string());
        table
            .row(["lost as they leave".to_owned()].into_iter().chain(lost).chain(["–".to_owned()]).collect());
        format!("{}\n\n{}", self.circumstances.line(), table.text())
    }

    fn exponent(&self, values: &[f64]) -> Option<f64> {
        let [.., before, last] = self.rows.as_slice() else { return None };
        let [.., from, to] = values else { return None };
        let (size, value) = (f64::from(last.members) / f64::from(before.members), to / from);
        (size.is_finite() && size > 1.0 && value > 0.0).then(|| value.ln() / size.ln())
    }
}
