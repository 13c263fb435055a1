//! Metrics of AF_XDP, where it is to be used.

use trieste_control::admin::{XdpStatus, XdpWorker};
use trieste_control::exposition::Page;

use super::ours::{counter, gauge};

const MODES: [&str; 4] = ["zero-copy", "native", "generic", "sockets"];

/// Adds the mode, the steps down to it, and what the rings have counted.
pub(super) fn render(page: &mut Page, status: &XdpStatus) {
    let mut mode = gauge("trieste_xdp_mode", "Where outer packets leave the kernel: 1 for the present mode");
    for name in MODES {
        mode.set(&[("interface", &status.interface), ("mode", name)], status.mode == name);
    }
    page.add(mode);
    let mut steps = gauge("trieste_xdp_step_down", "Modes of AF_XDP that could not be had, and why");
    for step in &status.steps {
        let labels = [("interface", &*status.interface), ("mode", &*step.mode), ("cause", &*step.cause)];
        steps.set(&labels, 1u64);
    }
    page.add(steps);
    let aside = gauge(
        "trieste_xdp_aside",
        "Whether IPsec policies of the host make all that arrives go through the kernel",
    );
    page.add(aside.with(status.is_aside));
    workers(page, &status.workers);
}

fn workers(page: &mut Page, workers: &[XdpWorker]) {
    let mut datagrams = counter("trieste_xdp_datagrams_total", "Datagrams by the rings of AF_XDP");
    let mut by_sockets =
        counter("trieste_xdp_by_sockets_total", "Datagrams that left by the sockets instead, by reason");
    let mut partial = counter(
        "trieste_xdp_partial_checksums_total",
        "Datagrams whose checksum the sender's kernel had left to a device",
    );
    let mut drops = counter(
        "trieste_xdp_kernel_drops_total",
        "Frames that the kernel dropped for want of room, or as unfit",
    );
    let mut bad = counter("trieste_xdp_bad_descriptors_total", "Descriptors that named no frame");
    let mut wakeups =
        counter("trieste_xdp_wakeups_total", "System calls that made the kernel send or take frames");
    let mut reopened = counter(
        "trieste_xdp_reopened_total",
        "Times the rings were opened anew on an interface that came back",
    );
    for worker in workers {
        let id = worker.id.to_string();
        for (direction, copies, count) in [
            ("in", "0", worker.received_in_place),
            ("in", "1", worker.received_copied),
            ("out", "0", worker.sent_in_place),
            ("out", "1", worker.sent_copied),
        ] {
            datagrams.set(&[("worker", &id), ("direction", direction), ("copies", copies)], count);
        }
        for (reason, count) in &worker.by_sockets {
            by_sockets.set(&[("worker", &id), ("reason", reason)], *count);
        }
        let labels = [("worker", id.as_str())];
        partial.set(&labels, worker.partial_checksums);
        drops.set(&labels, worker.kernel_drops);
        bad.set(&labels, worker.bad_descriptors);
        wakeups.set(&labels, worker.wakeups);
        reopened.set(&labels, worker.reopened);
    }
    for family in [datagrams, by_sockets, partial, drops, bad, wakeups, reopened] {
        page.add(family);
    }
}
