//! The loop: a pass whenever the cluster set or the kernel's state changed, and every few seconds anyway.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::pending;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::condition::Condition;
use crate::driver::Driver;
use crate::port::Host;
use crate::port::notice::Notice;
use crate::port::watch::Changes;
use crate::reconcile::{Reconciler, Serving};
use crate::schedule::{DEBOUNCE, Outcome, PassSchedule};
use crate::state::DeviceAddress;
use crate::view::ClusterView;

/// Result of the last pass, for the RouteAgent object, the liveness file and the taint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of passes so far.
    pub passes: u64,
    /// Whether nothing failed in the last one.
    pub is_good: bool,
    /// Whether it left the node failing closed.
    pub is_closed: bool,
    /// Conditions of the last pass.
    pub conditions: BTreeSet<Condition>,
    /// Addresses of this node's devices, when they were last read.
    pub addresses: BTreeSet<DeviceAddress>,
    /// What this node does for services.
    pub serving: Serving,
}

/// Reconciles until `stop` is ready, and leaves everything in place: a node without its route agent fails closed.
///
/// `views` holds `None` until the store was read for the first time; nothing is done before that, since an empty
/// cluster set would remove what a previous run installed. Every pass is published on `reports`.
pub async fn run<H: Host, D: Driver>(
    reconciler: &mut Reconciler<H, D>,
    mut views: watch::Receiver<Option<ClusterView>>,
    reports: &watch::Sender<Report>,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    tokio::select! {
        () = &mut stop => return,
        first = views.wait_for(Option::is_some) => if first.is_err() { return },
    }
    let mut schedule = PassSchedule::default();
    let (mut kernel, mut live, mut names) = (None, reconciler.live(), reconciler.names());
    loop {
        if kernel.is_none() {
            kernel = subscribe();
        }
        let view = views.borrow_and_update().clone().unwrap_or_default();
        one_pass(reconciler, &view, &mut schedule, reports).await;

        let (earliest, latest) = (Instant::now() + schedule.min_wait(), Instant::now() + schedule.max_wait());
        let woken = tokio::select! {
            () = &mut stop => return,
            () = sleep_until(latest) => false,
            // A closed channel means that the store's reader ended; the periodic pass goes on.
            () = changed(&mut views) => true,
            () = changed(&mut live) => true,
            () = changed(&mut names) => true,
            notice = kernel_notice(kernel.as_mut()) => {
                handle_notice(notice, reconciler, &mut kernel).await;
                true
            }
        };
        if woken {
            let due = sleep_until(earliest.max(Instant::now() + DEBOUNCE));
            tokio::pin!(due);
            // Drops the kernel's notifications meanwhile: the next pass reads the state anyway.
            loop {
                tokio::select! {
                    () = &mut stop => return,
                    () = &mut due => break,
                    notice = kernel_notice(kernel.as_mut()) => handle_notice(notice, reconciler, &mut kernel).await,
                }
            }
            if !drain(kernel.as_mut()) {
                kernel = None;
            }
        }
    }
}

/// Handles a notification of the kernel: restores a missing filter at once, and leaves the rest to the next pass.
async fn handle_notice<H: Host, D: Driver>(
    notice: Notice,
    reconciler: &mut Reconciler<H, D>,
    kernel: &mut Option<Changes>,
) {
    match notice {
        Notice::Changed => {}
        Notice::FilterGone => reconciler.restore_filter(Instant::now().into_std()).await,
        Notice::Closed => *kernel = None,
    }
}

async fn one_pass<H: Host, D: Driver>(
    reconciler: &mut Reconciler<H, D>,
    view: &ClusterView,
    schedule: &mut PassSchedule,
    reports: &watch::Sender<Report>,
) {
    let started = Instant::now();
    match reconciler.pass(view).await {
        Ok(pass) => {
            schedule.record(pass.outcome);
            let mut conditions = pass.conditions;
            if let (true, Some(change)) = (schedule.is_contended(), pass.changes.first()) {
                conditions.insert(Condition::Contended { change: change.to_string() });
            }
            publish(
                reports,
                (pass.outcome, pass.is_closed),
                &conditions,
                Some((pass.addresses, pass.serving)),
            );
            reconciler.report(conditions);
        }
        Err(error) => {
            schedule.record(Outcome::Failed);
            let unread = Condition::CannotRead { what: "the node's network", error: error.to_string() };
            publish(reports, (Outcome::Failed, false), &[unread.clone()].into(), None);
            reconciler.report([unread].into());
        }
    }
    debug!(took_ms = elapsed_ms(started), "pass");
}

fn publish(
    reports: &watch::Sender<Report>,
    (outcome, is_closed): (Outcome, bool),
    conditions: &BTreeSet<Condition>,
    found: Option<(BTreeSet<DeviceAddress>, Serving)>,
) {
    reports.send_modify(|report| {
        report.passes += 1;
        report.is_good = outcome != Outcome::Failed;
        report.is_closed = is_closed;
        report.conditions.clone_from(conditions);
        if let Some((addresses, serving)) = found {
            report.addresses = addresses;
            report.serving = serving;
        }
    });
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().min(Duration::from_secs(3600)).as_millis()).unwrap_or(u64::MAX)
}

fn subscribe() -> Option<Changes> {
    Changes::subscribe()
        .inspect_err(|error| {
            warn!(%error, "no notifications from the kernel; changes are found by the periodic pass only")
        })
        .ok()
}

/// Waits for a change; for ever once the sender is gone.
pub(crate) async fn changed<T>(views: &mut watch::Receiver<T>) {
    if views.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Discards pending notifications of the kernel, most of which are about our own changes; the next pass reads the state
/// anyway. Returns `false` if the subscription has ended.
fn drain(kernel: Option<&mut Changes>) -> bool {
    let Some(kernel) = kernel else { return true };
    while let Some(notice) = kernel.next().now_or_never() {
        if notice == Notice::Closed {
            return false;
        }
    }
    true
}

async fn kernel_notice(kernel: Option<&mut Changes>) -> Notice {
    match kernel {
        Some(kernel) => kernel.next().await,
        None => pending().await,
    }
}
