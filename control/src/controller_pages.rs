//! The pages of programs that run controllers and have no numbers of their own.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use crate::exposition::{Family, Kind, Page};
use crate::pages::{self, Pages, PagesAddress};
use crate::process::{self, ProcessStats};
use crate::runner::{self, ControllerRegistry};
use crate::slots::Slots;

/// Serves the pages of a program of this version, in the background, unless there is no address. `obstacle` returns why it cannot do
/// its work at present; it is live as long as it answers.
///
/// # Errors
/// Why nothing can listen at the address.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn(
    address: PagesAddress,
    version: &'static str,
    controllers: ControllerRegistry,
    obstacle: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> io::Result<()> {
    let Some(address) = address else { return Ok(()) };
    let listener = pages::bind(address)?;
    let slots = Arc::<Slots>::default();
    let started = Timestamp::now();
    let program = Program { version, controllers, obstacle, slots: Arc::clone(&slots), started };
    tokio::spawn(pages::serve(listener, slots, Arc::new(program)));
    Ok(())
}

/// What the pages are about.
struct Program<F> {
    version: &'static str,
    controllers: ControllerRegistry,
    obstacle: F,
    slots: Arc<Slots>,
    started: Timestamp,
}

impl<F: Fn() -> Option<String> + Send + Sync + 'static> Pages for Program<F> {
    fn health(&self) -> Result<String, String> {
        Ok("OK".to_owned())
    }

    fn ready(&self) -> Result<String, String> {
        (self.obstacle)().map_or_else(|| Ok("OK".to_owned()), Err)
    }

    fn metrics(&self) -> String {
        let mut page = Page::default();
        let mut build = Family::new(Kind::Gauge, "trieste_build_info", "Version of the program.");
        build.set(&[("version", self.version)], 1u64);
        page.add(build);
        runner::render(&mut page, &self.controllers.snapshot(Instant::now()));
        let help = "Connections to the metrics port that were closed at once, since too many were open.";
        let refused = Family::new(Kind::Counter, "trieste_metrics_refused_connections_total", help);
        page.add(refused.with(self.slots.refused()));
        if let Some(stats) = ProcessStats::read() {
            process::render(&mut page, &stats, self.started);
        }
        page.into_text()
    }
}
