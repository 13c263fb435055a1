//! Transactions that have no answer yet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::operation::Operation;
use crate::outcome::{OperationResult, TransactError, read_error, read_results};
use crate::session::error::SessionError;
use crate::session::outbox::Outbox;

/// Most transactions that wait for their answers.
pub const MAX_TRANSACTIONS: usize = 256;
/// Most bytes of one transaction.
pub const MAX_TRANSACTION_BYTES: usize = 16 << 20;

/// A transaction of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(u64);

impl TransactionId {
    /// Returns the number of its request.
    pub(crate) const fn id(self) -> u64 {
        self.0
    }
}

/// What becomes of a transaction.
type Outcome = Result<Vec<OperationResult>, TransactError>;

/// Transactions that have no answer yet, by the number of their request.
#[derive(Debug)]
pub(crate) struct Transactions {
    timeout: Duration,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    operations: Vec<Operation>,
    deadline: Instant,
    /// Its end was reported; the answer that is still to come tells nobody anything.
    is_cancelled: bool,
}

impl Transactions {
    pub(crate) const fn new(timeout: Duration) -> Self {
        Self { timeout, waiting: BTreeMap::new() }
    }

    /// Sends a transaction.
    pub(crate) fn begin(
        &mut self,
        database: &str,
        operations: Vec<Operation>,
        outbox: &mut Outbox,
        now: Instant,
    ) -> Result<TransactionId, TransactError> {
        if self.waiting.len() >= MAX_TRANSACTIONS {
            return Err(TransactError::Busy);
        }
        let mut params = vec![Value::from(database)];
        params.extend(operations.iter().map(Operation::to_json));
        let params = Value::Array(params);
        if params.to_string().len() > MAX_TRANSACTION_BYTES {
            return Err(TransactError::TooLarge);
        }
        let id = outbox.request("transact", &params).map_err(|_| TransactError::Busy)?;
        let deadline = now + self.timeout;
        self.waiting.insert(id, Waiting { operations, deadline, is_cancelled: false });
        Ok(TransactionId(id))
    }

    /// Handles the answer to a request. Returns the transaction and its end, unless that was reported before.
    pub(crate) fn answer(
        &mut self,
        id: u64,
        outcome: Result<Value, Value>,
    ) -> Result<Option<(TransactionId, Outcome)>, SessionError> {
        let waiting = self.waiting.remove(&id).ok_or(SessionError::Protocol("answer to no request"))?;
        if waiting.is_cancelled {
            return Ok(None);
        }
        let result = match outcome {
            Ok(results) => read_results(&waiting.operations, &results),
            Err(error) if error == "canceled" => Err(TransactError::Cancelled),
            Err(error) => {
                let (failure, details) = read_error(&error);
                Err(TransactError::Request { failure, details })
            }
        };
        Ok(Some((TransactionId(id), result)))
    }

    /// Returns a transaction whose time is over: it is to be cancelled. It stays for its answer, which comes at once from a
    /// server that works; one that never comes is the end of the session.
    pub(crate) fn expire(&mut self, now: Instant) -> Result<Option<TransactionId>, SessionError> {
        let mut due = self.waiting.iter_mut().filter(|(_, waiting)| now >= waiting.deadline);
        let Some((&id, waiting)) = due.next() else { return Ok(None) };
        if waiting.is_cancelled {
            return Err(SessionError::Silent);
        }
        waiting.is_cancelled = true;
        waiting.deadline = now + self.timeout;
        waiting.operations = Vec::new();
        Ok(Some(TransactionId(id)))
    }

    /// Returns when [`Transactions::expire`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.deadline).min()
    }

    /// Returns `true` if the transaction has no end yet.
    pub(crate) fn is_pending(&self, transaction: TransactionId) -> bool {
        self.waiting.get(&transaction.0).is_some_and(|waiting| !waiting.is_cancelled)
    }

    /// Returns those that have no end yet.
    pub(crate) fn pending(&self) -> Vec<TransactionId> {
        let pending = self.waiting.iter().filter(|(_, waiting)| !waiting.is_cancelled);
        pending.map(|(&id, _)| TransactionId(id)).collect()
    }
}
