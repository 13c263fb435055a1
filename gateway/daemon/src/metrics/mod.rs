//! The Prometheus page: what upstream's gateway says under upstream's names, and what is ours under `trieste_…`.
//!
//! A pure function of the status document and a few numbers beside it; the counters themselves belong to the
//! workers. `docs/operations/metrics.md` describes every metric, and a test compares it with what is rendered.
//!
//! * [`trieste_control::exposition`] — the text format. * [`trieste_control::runner::render`] — the controllers. * `upstream` — names that are API. * `cluster` — stores, election, discovery,
//!   health, conditions. * * `globalnet` — addresses and translation. * `ipsec` — IKE and SAs. * `xdp` — AF_XDP. * `ours` — the packet path and the rest.

mod cluster;
mod extra;
mod globalnet;
mod ipsec;
mod ours;
mod paths;
mod upstream;
mod xdp;

use trieste_control::admin::GatewayStatus;
use trieste_control::exposition::Page;
use trieste_control::process;

use crate::capture::CaptureCounters;
pub use extra::MetricsExtra;
pub use trieste_control::exposition::CONTENT_TYPE;
pub use trieste_control::process::ProcessStats;

/// Renders the page. `refused` are connections to the metrics port that found no slot.
#[must_use]
pub fn render(
    status: &GatewayStatus,
    extra: &MetricsExtra,
    captures: CaptureCounters,
    refused: u64,
) -> String {
    let mut page = Page::default();
    upstream::render(&mut page, status, extra);
    ours::gateway(&mut page, status);
    cluster::stores(&mut page, status, extra);
    cluster::election(&mut page, status, extra);
    cluster::sync(&mut page, &extra.sync);
    trieste_control::runner::render(&mut page, &extra.controllers);
    cluster::discovery(&mut page, status, &extra.discovery);
    cluster::notices(&mut page, extra.notices);
    cluster::health(&mut page, status);
    cluster::state(&mut page, status, extra);
    if let Some(status) = &status.xdp {
        xdp::render(&mut page, status);
    }
    ours::workers(&mut page, status, extra);
    ours::cables(&mut page, status);
    paths::render(&mut page, status);
    if let Some(status) = &extra.globalnet {
        globalnet::render(&mut page, status);
    }
    if let Some(ike) = &extra.ike {
        ipsec::ike(&mut page, ike);
        ipsec::cables(&mut page, status);
    }
    ours::packets(&mut page, status);
    ours::captures(&mut page, captures);
    ours::server(&mut page, refused);
    if let Some(process) = &extra.process {
        process::render(&mut page, process, status.started);
    }
    page.into_text()
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
