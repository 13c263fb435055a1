//! What became of a transaction (RFC 7047, sections 4.1.3 and 5.2).

use serde_json::{Map, Value};

use crate::operation::Operation;
use crate::uuid::Uuid;
use crate::value::{Atom, Row, row_from_json};

/// Result of one operation of a transaction that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationResult {
    /// Of `insert`: the new row.
    Inserted(Uuid),
    /// Of `select`: the rows found.
    Rows(Vec<Row>),
    /// Of `update`, `mutate` and `delete`: how many rows it concerned.
    Count(u64),
    /// Of all others.
    Done,
}

/// Why a transaction, or one operation of it, failed: the `<error>`s of RFC 7047 and those that servers add.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A `wait` was not fulfilled in its time: what the transaction was decided on is no longer true.
    #[error("timed out")]
    TimedOut,
    /// An `abort`.
    #[error("aborted")]
    Aborted,
    /// An `assert` of a lock that the client does not own.
    #[error("not owner")]
    NotOwner,
    /// The database's constraints do not allow it: values, numbers of elements or rows, indexes.
    #[error("constraint violation")]
    ConstraintViolation,
    /// A row that does not exist would be referenced.
    #[error("referential integrity violation")]
    ReferentialIntegrity,
    /// Two operations of the transaction give their rows the same name.
    #[error("duplicate uuid-name")]
    DuplicateUuidName,
    /// An arithmetic mutation is not defined.
    #[error("domain error")]
    DomainError,
    /// An arithmetic mutation leaves the range of the column.
    #[error("range error")]
    RangeError,
    /// The server has too little memory or disk.
    #[error("resources exhausted")]
    ResourcesExhausted,
    /// The server could not write to its disk.
    #[error("I/O error")]
    Io,
    /// The server does not accept writes from this client.
    #[error("not allowed")]
    NotAllowed,
    /// The server of a clustered database lost its leader, or its connection to it; another may take the transaction.
    #[error("not leader")]
    NotLeader,
    /// The server does not have the database (any more).
    #[error("unknown database")]
    UnknownDatabase,
    /// Another, by its tag: a table or column that the server has not, a value of another type. We have a bug.
    #[error("{0}")]
    Invalid(String),
}

impl Failure {
    /// Reads the tag of an `<error>`.
    pub fn of(tag: &str) -> Self {
        match tag {
            "timed out" => Self::TimedOut,
            "aborted" => Self::Aborted,
            "not owner" => Self::NotOwner,
            "constraint violation" => Self::ConstraintViolation,
            "referential integrity violation" => Self::ReferentialIntegrity,
            "duplicate uuid-name" | "duplicate uuid name" => Self::DuplicateUuidName,
            "domain error" => Self::DomainError,
            "range error" => Self::RangeError,
            "resources exhausted" => Self::ResourcesExhausted,
            "I/O error" | "io error" => Self::Io,
            "not allowed" | "permission error" => Self::NotAllowed,
            "not leader" | "cluster error" => Self::NotLeader,
            "unknown database" => Self::UnknownDatabase,
            _ => Self::Invalid(tag.chars().take(MAX_TEXT_CHARS).collect()),
        }
    }

    /// Returns `true` if the same transaction, decided anew on the database as it is then, may well succeed.
    pub const fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::NotOwner | Self::NotLeader | Self::ResourcesExhausted | Self::Io
        )
    }
}

/// Most characters of a server's text that an error keeps.
const MAX_TEXT_CHARS: usize = 500;

/// Why there is no result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactError {
    /// One operation failed; nothing was changed.
    #[error("operation {index} ({operation}) failed: {failure}{}", detail(details))]
    Operation {
        /// Its index, from 0.
        index: usize,
        /// Its name.
        operation: &'static str,
        /// Why.
        failure: Failure,
        /// The server's words.
        details: String,
    },
    /// Every operation succeeded and the commit failed; nothing was changed.
    #[error("commit failed: {failure}{}", detail(details))]
    Commit {
        /// Why.
        failure: Failure,
        /// The server's words.
        details: String,
    },
    /// The server refused the request as a whole; nothing was changed.
    #[error("request refused: {failure}{}", detail(details))]
    Request {
        /// Why.
        failure: Failure,
        /// The server's words.
        details: String,
    },
    /// There is no session at the moment; nothing was sent.
    #[error("not connected")]
    NotConnected,
    /// The session ended before there was an answer: the transaction was committed, or it was not.
    #[error("connection lost before there was an answer")]
    Lost,
    /// The server did not answer in time and the transaction was cancelled; it was committed, or it was not.
    #[error("no answer in time")]
    NoAnswer,
    /// The server cancelled it, as it does when the database is replaced; it was committed, or it was not.
    #[error("cancelled by the server")]
    Cancelled,
    /// It was decided on a replica of an earlier session; nothing was sent.
    #[error("decided on an earlier replica")]
    Stale,
    /// Too many transactions are waiting for their answers; nothing was sent.
    #[error("too many transactions at once")]
    Busy,
    /// The transaction is larger than a message may be; nothing was sent.
    #[error("transaction too large")]
    TooLarge,
    /// The client has ended.
    #[error("the client has ended")]
    Ended,
    /// The server's answer does not fit the request.
    #[error("invalid answer: {0}")]
    InvalidAnswer(&'static str),
}

impl TransactError {
    /// Returns why the server refused it, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Operation { failure, .. }
            | Self::Commit { failure, .. }
            | Self::Request { failure, .. } => Some(failure),
            Self::NotConnected
            | Self::Lost
            | Self::NoAnswer
            | Self::Cancelled
            | Self::Stale
            | Self::Busy
            | Self::TooLarge
            | Self::Ended
            | Self::InvalidAnswer(_) => None,
        }
    }

    /// Returns `true` if nothing can have been changed.
    pub const fn is_without_effect(&self) -> bool {
        !matches!(self, Self::Lost | Self::NoAnswer | Self::Cancelled | Self::InvalidAnswer(_))
    }
}

fn detail(details: &str) -> String {
    if details.is_empty() { String::new() } else { format!(" ({details})") }
}

/// Reads the `result` of a `transact` request: one object per operation, null after the first that failed, and one object
/// more if the commit failed.
///
/// # Errors
///
/// If the transaction failed, or the answer does not fit the operations.
pub fn read_results(operations: &[Operation], result: &Value) -> Result<Vec<OperationResult>, TransactError> {
    let answers = result.as_array().ok_or(TransactError::InvalidAnswer("no array"))?;
    let mut results = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        let answer = answers.get(index).ok_or(TransactError::InvalidAnswer("too few results"))?;
        let answer = answer.as_object().ok_or(TransactError::InvalidAnswer("a result is no object"))?;
        if let Some((failure, details)) = error_of(answer)? {
            return Err(TransactError::Operation { index, operation: operation.name(), failure, details });
        }
        results.push(read_result(operation, answer)?);
    }
    match answers.get(operations.len()..) {
        None | Some([]) => Ok(results),
        Some([commit]) => {
            let commit = commit.as_object().ok_or(TransactError::InvalidAnswer("a result is no object"))?;
            match error_of(commit)? {
                Some((failure, details)) => Err(TransactError::Commit { failure, details }),
                None => Err(TransactError::InvalidAnswer("too many results")),
            }
        }
        Some(_) => Err(TransactError::InvalidAnswer("too many results")),
    }
}

/// Reads the `error` member of a result or of a response: the tag, and the details if there are any.
pub fn read_error(error: &Value) -> (Failure, String) {
    match error {
        Value::Object(error) => match error_of(error) {
            Ok(Some(both)) => both,
            Ok(None) | Err(_) => (Failure::Invalid("an error without a name".to_owned()), String::new()),
        },
        Value::String(tag) => (Failure::of(tag), String::new()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            (Failure::Invalid("an error without a name".to_owned()), String::new())
        }
    }
}

fn error_of(answer: &Map<String, Value>) -> Result<Option<(Failure, String)>, TransactError> {
    let tag = match answer.get("error") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(tag)) => tag,
        Some(_) => return Err(TransactError::InvalidAnswer("an error is no text")),
    };
    let details = answer.get("details").and_then(Value::as_str).unwrap_or_default();
    Ok(Some((Failure::of(tag), details.chars().take(MAX_TEXT_CHARS).collect())))
}

fn read_result(operation: &Operation, answer: &Map<String, Value>) -> Result<OperationResult, TransactError> {
    match operation {
        Operation::Insert { .. } => match answer.get("uuid").map(Atom::from_json) {
            Some(Ok(Atom::Uuid(uuid))) => Ok(OperationResult::Inserted(uuid)),
            _ => Err(TransactError::InvalidAnswer("no UUID of an inserted row")),
        },
        Operation::Select { .. } => {
            let rows = answer.get("rows").and_then(Value::as_array);
            let rows = rows.ok_or(TransactError::InvalidAnswer("no rows of a selection"))?;
            let rows = rows.iter().map(row_from_json).collect::<Result<_, _>>();
            rows.map(OperationResult::Rows)
                .map_err(|_| TransactError::InvalidAnswer("invalid row of a selection"))
        }
        Operation::Update { .. } | Operation::Mutate { .. } | Operation::Delete { .. } => {
            let count = answer.get("count").and_then(Value::as_u64);
            count.map(OperationResult::Count).ok_or(TransactError::InvalidAnswer("no count of rows"))
        }
        Operation::Wait { .. }
        | Operation::Commit { .. }
        | Operation::Abort
        | Operation::Comment(_)
        | Operation::Assert { .. } => Ok(OperationResult::Done),
    }
}

#[cfg(test)]
mod tests;
