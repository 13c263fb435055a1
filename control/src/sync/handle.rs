//! Starting and ending a syncer, and what it says meanwhile.

use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::port::port;
use super::run::Run;
use super::tell::{Outputs, first_state};
use super::{BrokerState, OwnRefusal, Refused, SyncConfig, SyncStats};
use crate::store::Store;

/// Ours: how long a syncer may take to end; writes that are under way get a second of it.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The syncer.
#[derive(Debug)]
pub struct Syncer;

impl Syncer {
    /// Starts syncing in the background, on the current tokio runtime. Ends when the handle is dropped, or when the
    /// [guard](super::WriteGuard) does not let it write. It can be started again, as often as this gateway leads.
    ///
    /// Publish your own objects first: what is on the broker under our ID and not in the local store is stale, and is
    /// removed. The broker need not be there.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<L: Store, B: Store>(local: L, broker: B, config: SyncConfig) -> SyncHandle {
        let (state_sender, state) = watch::channel(first_state());
        let (refused_sender, refused) = watch::channel(Vec::new());
        let (own_refusal_sender, own_refusal) = watch::channel(None);
        let (stats_sender, stats) = watch::channel(SyncStats::default());
        let outputs = Outputs {
            state: state_sender,
            refused: refused_sender,
            own_refusal: own_refusal_sender,
            stats: stats_sender,
        };
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Links start to follow when they are made, which is the task's to do.
            Run::new(port(local), port(broker), config).run(ended, outputs).await;
        });
        SyncHandle { state, refused, own_refusal, stats, end: Some(end), task }
    }
}

/// A running syncer. Dropping it ends it.
#[derive(Debug)]
pub struct SyncHandle {
    /// Whether the broker answers; since when, why not, and when it is tried next.
    pub state: watch::Receiver<BrokerState>,
    /// Objects that are not copied, and why; by cluster and name: foreign ones that are not imported, and our own that the
    /// broker does not take. At most 256, and one that says how many more there are.
    pub refused: watch::Receiver<Vec<Refused>>,
    /// Why the other members refuse our Endpoints, if they do.
    pub own_refusal: watch::Receiver<Option<OwnRefusal>>,
    /// What it has done so far.
    pub stats: watch::Receiver<SyncStats>,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl SyncHandle {
    /// Ends the syncer and waits until it has: no new write is started, and those under way have a second to be
    /// answered. Takes two seconds at most, whatever the stores do.
    pub async fn stop(mut self) {
        // An end that nobody waits for has come already.
        let _ = self.end.take().map(|end| end.send(()));
        if tokio::time::timeout(END_WITHIN, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }

    /// Whether it has ended by itself, because its guard did not let it write.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for SyncHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
