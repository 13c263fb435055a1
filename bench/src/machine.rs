//! Where and when a figure was measured.

use serde::Serialize;

/// What every result says about its circumstances.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Circumstances {
    /// The command line.
    pub(crate) command: String,
    /// When it began, with the offset from UTC.
    pub(crate) date: String,
    /// Model and number of CPUs.
    pub(crate) cpu: String,
    /// Kernel release.
    pub(crate) kernel: String,
}

impl Circumstances {
    /// Those of this process, now.
    pub(crate) fn read() -> Self {
        let words: Vec<String> = std::env::args().collect();
        let program = words.first().and_then(|path| path.rsplit('/').next()).unwrap_or("trieste-bench");
        let command = [program].into_iter().chain(words.iter().skip(1).map(String::as_str));
        Self {
            command: command.collect::<Vec<_>>().join(" "),
            date: jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            cpu: cpu(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!("{} · {} · Linux {} · {}", self.date, self.cpu, self.kernel, self.command)
    }
}

/// "2 x AMD EPYC 9R14", with family, model and stepping where the name says little.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))
            .and_then(|line| line.split_once(':'))
            .map_or("?", |(_, value)| value.trim())
    };
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{count} x {} (family {} model {} stepping {})",
        field("model name"),
        field("cpu family"),
        field("model"),
        field("stepping")
    )
}
