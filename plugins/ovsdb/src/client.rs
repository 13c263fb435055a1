//! A client: a task that holds a session with one of several servers, and begins another when it ends.

use tokio::sync::{mpsc, oneshot, watch};

use crate::operation::Operation;
use crate::options::{ClientOptions, Status};
use crate::outcome::{OperationResult, TransactError};
use crate::remote::Remotes;
use crate::replica::{Generation, Replica};
use crate::spec::{DatabaseSpec, Rows};
use crate::task::{Command, Task};

/// How many commands may wait for the task.
const MAX_COMMANDS: usize = 64;

/// A client of one database; clones share its session. When the last one is dropped, the session ends.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
}

impl Client {
    /// Starts a client, and returns it with the replica of what `database` names. The replica is empty and not synced until
    /// the first session is. Call it inside a tokio runtime.
    pub fn spawn(
        remotes: &Remotes,
        database: DatabaseSpec,
        options: ClientOptions,
    ) -> (Self, watch::Receiver<Replica>) {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        let (replica, replica_receiver) = watch::channel(Replica::default());
        let (status_sender, status) = watch::channel(Status::Connecting);
        let task = Task::new(remotes.as_slice().to_vec(), database, options, queue, replica, status_sender);
        tokio::spawn(task.run());
        (Self { commands, status }, replica_receiver)
    }

    /// Executes a transaction: all operations or none. When it returns, all that it has changed is in the replica.
    ///
    /// The transaction goes on if the future is dropped.
    ///
    /// # Errors
    ///
    /// If it failed, or nobody knows ([`TransactError::is_without_effect`]).
    pub async fn transact(&self, operations: Vec<Operation>) -> Result<Vec<OperationResult>, TransactError> {
        self.send_transaction(operations, None).await
    }

    /// Executes a transaction that was decided on a replica of this generation. `wait` operations
    /// ([`Operation::expect`]) guard it against changes that the replica did not have yet.
    ///
    /// # Errors
    ///
    /// If the session is another one by now, and all errors of [`Client::transact`].
    pub async fn transact_on(
        &self,
        generation: Generation,
        operations: Vec<Operation>,
    ) -> Result<Vec<OperationResult>, TransactError> {
        self.send_transaction(operations, Some(generation)).await
    }

    async fn send_transaction(
        &self,
        operations: Vec<Operation>,
        generation: Option<Generation>,
    ) -> Result<Vec<OperationResult>, TransactError> {
        let (reply, result) = oneshot::channel();
        let command = Command::Transact { operations, generation, reply };
        self.commands.send(command).await.map_err(|_| TransactError::Ended)?;
        result.await.map_err(|_| TransactError::Ended)?
    }

    /// Follows other rows of a table from here on. Returns when the replica has them; without a session that may take long.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn follow_rows(&self, table: &str, rows: Rows) -> Result<(), TransactError> {
        let (reply, done) = oneshot::channel();
        let command = Command::FollowRows { table: table.to_owned(), rows, reply };
        self.commands.send(command).await.map_err(|_| TransactError::Ended)?;
        done.await.map_err(|_| TransactError::Ended)
    }

    /// Returns what the client is doing, and tells when that changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}
