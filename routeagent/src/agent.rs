//! The loop: a pass whenever the cluster set or the kernel's state changed, and every few seconds anyway. `schedule.rs` says
//! when.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::pending;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::condition::Condition;
use crate::port::Host;
use crate::port::notice::Notice;
use crate::port::watch::Changes;
use crate::reconcile::{Reconciler, Serving};
use crate::schedule::{Outcome, PassSchedule, RESYNC, Wake};
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
pub async fn run<H: Host>(
    reconciler: &mut Reconciler<H>,
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
    // Whether the network may be different from what the last pass left, and when it was last read.
    let (mut is_stale, mut read) = (true, Instant::now());
    let mut view = ClusterView::default();
    loop {
        if kernel.is_none() {
            kernel = subscribe();
            is_stale = true;
        }
        take_newest(&mut views, &mut view);
        if is_stale {
            read = Instant::now();
        }
        one_pass(reconciler, (&view, is_stale), &mut schedule, reports).await;

        let ended = Instant::now();
        let mut due = ended + schedule.max_wait();
        is_stale = true;
        // A pass is due at the earliest of what its events ask for. The kernel's notifications are dropped meanwhile: the pass
        // reads the state anyway.
        let mut is_reported = kernel.is_none();
        loop {
            let wake = tokio::select! {
                () = &mut stop => return,
                () = sleep_until(due) => break,
                // A closed channel means that the store's reader ended; the periodic pass goes on.
                () = changed(&mut views) => {
                    is_stale = is_reported || read.elapsed() >= RESYNC;
                    Wake::View
                }
                () = changed(&mut live) => Wake::Other,
                () = changed(&mut names) => Wake::Other,
                notice = kernel_notice(kernel.as_mut()) => {
                    handle_notice(notice, reconciler, &mut kernel).await;
                    (is_reported, is_stale) = (true, true);
                    Wake::Other
                }
            };
            due = due.min(ended + schedule.due(wake, ended.elapsed()));
        }
        match drain(kernel.as_mut()) {
            Drained::Nothing => {}
            Drained::Notices => is_stale = true,
            Drained::End => kernel = None,
        }
    }
}

/// Takes over the newest view.
fn take_newest(views: &mut watch::Receiver<Option<ClusterView>>, view: &mut ClusterView) {
    if let Some(newer) = &*views.borrow_and_update() {
        view.renew(newer);
    }
}

/// Handles a notification of the kernel: restores a missing filter at once, and leaves the rest to the next pass.
async fn handle_notice<H: Host>(
    notice: Notice,
    reconciler: &mut Reconciler<H>,
    kernel: &mut Option<Changes>,
) {
    match notice {
        Notice::Changed => {}
        Notice::FilterGone => reconciler.restore_filter(Instant::now().into_std()).await,
        Notice::Closed => *kernel = None,
    }
}

async fn one_pass<H: Host>(
    reconciler: &mut Reconciler<H>,
    (view, is_stale): (&ClusterView, bool),
    schedule: &mut PassSchedule,
    reports: &watch::Sender<Report>,
) {
    let started = Instant::now();
    let pass = if is_stale { reconciler.pass(view).await } else { reconciler.follow(view).await };
    match pass {
        Ok(pass) => {
            schedule.record(pass.outcome, started.elapsed());
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
            schedule.record(Outcome::Failed, started.elapsed());
            let unread = Condition::CannotRead { what: "the node's network", error: error.to_string() };
            publish(reports, (Outcome::Failed, false), &[unread.clone()].into(), None);
            reconciler.report([unread].into());
        }
    }
    debug!(took_ms = elapsed_ms(started), is_stale, "pass");
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

/// Outcome of [`drain`].
enum Drained {
    Nothing,
    Notices,
    /// The subscription has ended.
    End,
}

/// Discards pending notifications of the kernel, most of which are about our own changes; the next pass reads the state
/// anyway.
fn drain(kernel: Option<&mut Changes>) -> Drained {
    let Some(kernel) = kernel else { return Drained::Nothing };
    let mut drained = Drained::Nothing;
    while let Some(notice) = kernel.next().now_or_never() {
        if notice == Notice::Closed {
            return Drained::End;
        }
        drained = Drained::Notices;
    }
    drained
}

async fn kernel_notice(kernel: Option<&mut Changes>) -> Notice {
    match kernel {
        Some(kernel) => kernel.next().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
