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
use crate::port::{Changes, Host, Notice};
use crate::reconcile::{ClusterView, Reconciler, Serving};
use crate::schedule::{DEBOUNCE, Outcome, Pace};
use crate::state::DeviceAddress;

/// How the last pass went, for those who tell others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many passes were made.
    pub passes: u64,
    /// Whether nothing failed in the last one.
    pub is_good: bool,
    /// Whether it left the node closed.
    pub is_closed: bool,
    /// Everything that is not as it should be.
    pub conditions: BTreeSet<Condition>,
    /// Addresses of this node's devices, as they were read last.
    pub addresses: BTreeSet<DeviceAddress>,
    /// What this node does for services.
    pub serving: Serving,
}

/// Reconciles until `stop` is ready. Leaves everything in place then: a node without its route agent stays closed.
///
/// `views` holds `None` until the store was read for the first time; nothing is done before that, since an empty
/// cluster set would remove what a previous run installed. `reports` hears of every pass.
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
    let mut pace = Pace::default();
    let (mut kernel, mut live, mut names) = (None, reconciler.live(), reconciler.names());
    loop {
        if kernel.is_none() {
            kernel = subscribe();
        }
        let view = views.borrow_and_update().clone().unwrap_or_default();
        one_pass(reconciler, &view, &mut pace, reports).await;

        let (earliest, latest) = (Instant::now() + pace.at_least(), Instant::now() + pace.at_most());
        let woken = tokio::select! {
            () = &mut stop => return,
            () = sleep_until(latest) => false,
            // A closed channel means that the store's reader ended; the periodic pass goes on.
            () = changed(&mut views) => true,
            () = changed(&mut live) => true,
            () = changed(&mut names) => true,
            notice = kernel_notice(kernel.as_mut()) => {
                act(notice, reconciler, &mut kernel).await;
                true
            }
        };
        if woken {
            let due = sleep_until(earliest.max(Instant::now() + DEBOUNCE));
            tokio::pin!(due);
            // What the kernel tells meanwhile is not left to pile up: the next pass sees it anyway.
            loop {
                tokio::select! {
                    () = &mut stop => return,
                    () = &mut due => break,
                    notice = kernel_notice(kernel.as_mut()) => act(notice, reconciler, &mut kernel).await,
                }
            }
            if !drain(kernel.as_mut()) {
                kernel = None;
            }
        }
    }
}

/// Handles what cannot wait for the next pass.
async fn act<H: Host, D: Driver>(
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
    pace: &mut Pace,
    reports: &watch::Sender<Report>,
) {
    let started = Instant::now();
    match reconciler.pass(view).await {
        Ok(pass) => {
            pace.record(pass.outcome);
            let mut conditions = pass.conditions;
            if let (true, Some(change)) = (pace.is_contended(), pass.changes.first()) {
                conditions.insert(Condition::Contended { change: change.to_string() });
            }
            tell(reports, (pass.outcome, pass.is_closed), &conditions, Some((pass.addresses, pass.serving)));
            reconciler.report(conditions);
        }
        Err(error) => {
            pace.record(Outcome::Failed);
            let unread = Condition::CannotRead { what: "the node's network", error: error.to_string() };
            tell(reports, (Outcome::Failed, false), &[unread.clone()].into(), None);
            reconciler.report([unread].into());
        }
    }
    debug!(took_ms = elapsed_ms(started), "pass");
}

fn tell(
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
            warn!("{error}; changes of the kernel's state are noticed by the periodic pass only")
        })
        .ok()
}

async fn changed<T>(views: &mut watch::Receiver<T>) {
    if views.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Takes what the kernel has told until now, which the next pass sees anyway: most of it are our own changes. Gives
/// `false` if nothing will come any more.
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
