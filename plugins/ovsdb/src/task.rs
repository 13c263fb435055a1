//! The task behind a client: connections, time, and who waits for what. What a session does is `session`'s.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rand_core::OsRng;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};
use trieste_control::backoff::Backoff;

use crate::connect::{ConnectError, Stream, connect};
use crate::operation::Operation;
use crate::options::{ClientOptions, Status};
use crate::outcome::{OperationResult, TransactError};
use crate::remote::Remote;
use crate::replica::{Generation, Replica};
use crate::server::{Seen, Wanted};
use crate::session::error::SessionError;
use crate::session::transactions::TransactionId;
use crate::session::{Event, Session, SessionOptions};
use crate::spec::{DatabaseSpec, Rows};

/// Most bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// A session that lasted that long was a good one: the next waits begin anew.
const GOOD_SESSION: Duration = Duration::from_secs(10);

/// Who waits for a transaction.
type Reply = oneshot::Sender<Result<Vec<OperationResult>, TransactError>>;

/// What a client asks of its task.
#[derive(Debug)]
pub(crate) enum Command {
    Transact { operations: Vec<Operation>, generation: Option<Generation>, reply: Reply },
    FollowRows { table: String, rows: Rows, reply: oneshot::Sender<()> },
}

/// Why there is no session any more.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    #[error("connection closed by the server")]
    Closed,
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The last client was dropped.
    #[error("the client has ended")]
    Client,
}

/// See the module.
pub(crate) struct Task {
    remotes: Vec<Remote>,
    spec: DatabaseSpec,
    options: ClientOptions,
    commands: mpsc::Receiver<Command>,
    replica: watch::Sender<Replica>,
    status: watch::Sender<Status>,
    /// Number of the last session.
    generation: u64,
    /// Number of the last change of rows.
    rows_version: u64,
    /// Who waits for a change of rows, by its number.
    rows_waiting: BTreeMap<u64, oneshot::Sender<()>>,
    /// How far a clustered database was seen.
    seen: Option<Seen>,
    synced_at: Option<Instant>,
    is_failure_logged: bool,
}

impl Task {
    pub(crate) fn new(
        remotes: Vec<Remote>,
        spec: DatabaseSpec,
        options: ClientOptions,
        commands: mpsc::Receiver<Command>,
        replica: watch::Sender<Replica>,
        status: watch::Sender<Status>,
    ) -> Self {
        Self {
            remotes,
            spec,
            options,
            commands,
            replica,
            status,
            generation: 0,
            rows_version: 0,
            rows_waiting: BTreeMap::new(),
            seen: None,
            synced_at: None,
            is_failure_logged: false,
        }
    }

    /// Holds one session after the other, until the last client is dropped.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(self.options.first_wait, self.options.max_wait);
        let mut tried = 0;
        let mut next = 0;
        loop {
            let Some(remote) = self.remotes.get(next).cloned() else { return };
            let end = self.attempt(remote.clone()).await;
            if matches!(end, End::Client) {
                return;
            }
            if self.mark_lost(&remote, &end).is_some_and(|lasted| lasted >= GOOD_SESSION) {
                backoff.reset();
                tried = 0;
            }
            // A replaced database is read anew from the same server.
            if !matches!(end, End::Session(SessionError::DatabaseChanged)) {
                next = (next + 1) % self.remotes.len();
            }
            tried += 1;
            if tried >= self.remotes.len() {
                tried = 0;
                self.log_failure(&remote, &end);
                let wait = tokio::time::sleep(backoff.next_wait(&mut OsRng));
                if self.serve_while(wait).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Connects and holds a session as long as it lasts.
    async fn attempt(&mut self, remote: Remote) -> End {
        let name = remote.to_string();
        let connecting = connect(remote, self.options.tls.clone());
        let stream = match self.serve_while(connecting).await {
            None => return End::Client,
            Some(Ok(stream)) => stream,
            Some(Err(error)) => return error.into(),
        };
        self.generation += 1;
        let wanted =
            Wanted { leader_only: self.options.leader_only, cluster: self.options.cluster, seen: self.seen };
        let options = SessionOptions {
            wanted,
            probe_interval: self.options.probe_interval,
            transact_timeout: self.options.transact_timeout,
        };
        let generation = Generation(self.generation);
        let session = Session::new(self.spec.clone(), options, generation, self.rows_version, now());
        let mut held =
            Held { session, generation, remote: name, replies: BTreeMap::new(), rows_done: Vec::new() };
        let end = self.hold(&mut held, stream).await;
        // Not synced first: whoever learns that its transaction is lost finds no replica that looks current.
        self.replica.send_if_modified(|replica| std::mem::take(&mut replica.is_synced));
        for (_, reply) in held.replies {
            let _ = reply.send(Err(TransactError::Lost));
        }
        end
    }

    /// Carries bytes, time and commands to a session, and what comes out of it to those who wait.
    async fn hold(&mut self, held: &mut Held, stream: Box<dyn Stream>) -> End {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut unsent = Unsent::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if unsent.is_sent() {
                unsent.begin(held.session.poll_transmit());
            }
            let due = tokio::time::Instant::from_std(held.session.poll_timeout());
            let result = tokio::select! {
                read = reader.read(&mut buffer) => match read {
                    Ok(0) => Err(End::Closed),
                    Ok(length) => held.session.handle_data(&buffer[..length], now()).map_err(End::from),
                    Err(error) => Err(error.into()),
                },
                written = unsent.send(&mut writer), if !unsent.is_sent() => written.map_err(End::from),
                () = tokio::time::sleep_until(due) => held.session.handle_timeout(now()).map_err(End::from),
                command = self.commands.recv() => match command {
                    Some(command) => self.handle_command(held, command),
                    None => Err(End::Client),
                },
            };
            self.handle_events(held, result.is_ok());
            if let Err(end) = result {
                return end;
            }
        }
    }

    fn handle_command(&mut self, held: &mut Held, command: Command) -> Result<(), End> {
        match command {
            Command::Transact { generation: Some(generation), reply, .. }
                if generation != held.generation =>
            {
                let _ = reply.send(Err(TransactError::Stale));
                Ok(())
            }
            Command::Transact { operations, reply, .. } => {
                match held.session.transact(operations, now()) {
                    Ok(transaction) => {
                        held.replies.insert(transaction, reply);
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error));
                    }
                }
                Ok(())
            }
            Command::FollowRows { table, rows, reply } => {
                self.note_rows(&table, rows.clone(), reply);
                Ok(held.session.change_rows(&table, rows, self.rows_version, now())?)
            }
        }
    }

    /// Passes on what happened. After an error the session's replica is not exact any more, and is not given out.
    fn handle_events(&mut self, held: &mut Held, is_exact: bool) {
        let mut ended = Vec::new();
        let mut has_changed = false;
        while let Some(event) = held.session.poll_event() {
            match event {
                Event::Synced => {
                    has_changed = true;
                    self.mark_synced(&held.remote);
                }
                Event::Changed => has_changed = true,
                Event::Transacted(transaction, result) => ended.push((transaction, result)),
                Event::RowsChanged(version) => {
                    let later = self.rows_waiting.split_off(&(version + 1));
                    held.rows_done.extend(std::mem::replace(&mut self.rows_waiting, later).into_values());
                }
            }
        }
        self.seen = held.session.seen().or(self.seen);
        // The replica first, then what its readers were waiting for.
        if has_changed
            && is_exact
            && let Some(replica) = held.session.replica()
        {
            self.replica.send_replace(replica);
        }
        for done in held.rows_done.drain(..) {
            let _ = done.send(());
        }
        for (transaction, result) in ended {
            if let Some(reply) = held.replies.remove(&transaction) {
                let _ = reply.send(result);
            }
        }
    }

    /// Waits for something without a session: transactions are refused meanwhile. Returns `None` if the last client was
    /// dropped.
    async fn serve_while<F: Future>(&mut self, future: F) -> Option<F::Output> {
        tokio::pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return Some(output),
                command = self.commands.recv() => match command? {
                    Command::Transact { reply, .. } => {
                        let _ = reply.send(Err(TransactError::NotConnected));
                    }
                    Command::FollowRows { table, rows, reply } => self.note_rows(&table, rows, reply),
                },
            }
        }
    }

    fn note_rows(&mut self, table: &str, rows: Rows, reply: oneshot::Sender<()>) {
        self.rows_version += 1;
        // Whoever does not wait any more needs no reply: what is kept is bounded by those who wait.
        self.rows_waiting.retain(|_, waiting| !waiting.is_closed());
        self.rows_waiting.insert(self.rows_version, reply);
        if let Some(spec) = self.spec.tables.iter_mut().find(|spec| spec.name == table) {
            spec.rows = rows;
        }
    }

    fn mark_synced(&mut self, remote: &str) {
        self.synced_at = Some(now());
        self.is_failure_logged = false;
        self.status.send_replace(Status::Synced { remote: remote.to_owned() });
        info!(database = self.spec.name, remote, "database connected");
    }

    /// Notes that a session, or the attempt to begin one, has ended. Returns how long it was synced.
    fn mark_lost(&mut self, remote: &Remote, end: &End) -> Option<Duration> {
        self.status.send_replace(Status::Failed { remote: remote.to_string(), error: end.to_string() });
        let since = self.synced_at.take()?;
        self.log_failure(remote, end);
        Some(now().saturating_duration_since(since))
    }

    /// Logs the first failure since there was a session.
    fn log_failure(&mut self, remote: &Remote, end: &End) {
        if !std::mem::replace(&mut self.is_failure_logged, true) {
            warn!(database = self.spec.name, %remote, error = %end, "database unavailable");
        }
    }
}

/// A session and those who wait for its transactions.
struct Held {
    session: Session,
    generation: Generation,
    remote: String,
    replies: BTreeMap<TransactionId, Reply>,
    rows_done: Vec<oneshot::Sender<()>>,
}

/// What is on its way to the server.
struct Unsent {
    bytes: Vec<u8>,
    written: usize,
    is_flushed: bool,
}

impl Default for Unsent {
    fn default() -> Self {
        Self { bytes: Vec::new(), written: 0, is_flushed: true }
    }
}

impl Unsent {
    const fn is_sent(&self) -> bool {
        self.written == self.bytes.len() && self.is_flushed
    }

    fn begin(&mut self, bytes: Option<Vec<u8>>) {
        if let Some(bytes) = bytes {
            *self = Self { bytes, written: 0, is_flushed: false };
        }
    }

    /// Writes; what was written stays so if the future is dropped.
    async fn send(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match writer.write(&self.bytes[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                length => self.written += length,
            }
        }
        writer.flush().await?;
        *self = Self::default();
        Ok(())
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
