//! One session with a server, without I/O.
//!
//! ```text
//!  list_dbs, get_schema _Server ─▶ set_db_change_aware, monitor_cond _Server ─▶ will it do?
//!      ─▶ get_schema ─▶ does it have what is needed? ─▶ monitor_cond (or monitor) ─▶ synced: updates, transactions
//! ```
//!
//! The caller carries bytes and time: [`Session::handle_data`] with what arrived, [`Session::handle_timeout`] when
//! [`Session::poll_timeout`] is due; after each of them [`Session::poll_transmit`] for what is to be sent and
//! [`Session::poll_event`] for what happened. The first error is the session's end: connect again, to another server where
//! [`SessionError::is_for_another_server`] says so, and begin a new one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operation::Operation;
use crate::outcome::{OperationResult, TransactError};
use crate::replica::{Generation, Replica};
use crate::schema::Version;
use crate::server::{Seen, Standing, Wanted};
use crate::session::conditions::Conditions;
use crate::session::error::SessionError;
use crate::session::outbox::{MAX_UNSENT_BYTES, Outbox};
use crate::session::transactions::{TransactionId, Transactions};
use crate::spec::{DatabaseSpec, Rows};
use crate::updates::{Format, Tables};
use crate::wire::{Decoder, Message};

pub(crate) mod conditions;
pub mod error;
pub(crate) mod outbox;
mod setup;
pub mod transactions;

/// How long a session may take until it is synced.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the monitor of the database's tables.
const DATA_MONITOR: &str = "trieste";
/// Name of the monitor of `_Server`.
const SERVER_MONITOR: &str = "_Server";

/// How a session is held.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Which servers of a clustered database will do.
    pub wanted: Wanted,
    /// After how much silence the server is asked for a sign of life; after as much again it is given up.
    pub probe_interval: Duration,
    /// How long a transaction may take before it is cancelled.
    pub transact_timeout: Duration,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The replica is complete.
    Synced,
    /// The replica has changed.
    Changed,
    /// A transaction has ended. All that it changed is in the replica.
    Transacted(TransactionId, Result<Vec<OperationResult>, TransactError>),
    /// The replica has the rows that were asked for by this and every earlier [`Session::change_rows`].
    RowsChanged(u64),
}

/// What a request of ours asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Databases,
    ServerSchema,
    ChangeAware,
    ServerMonitor,
    Schema,
    Monitor(Format),
    Conditions(u64),
    Probe,
}

/// A session. See the module for the order of calls.
#[derive(Debug)]
pub struct Session {
    spec: DatabaseSpec,
    options: SessionOptions,
    generation: Generation,
    started: Instant,
    last_received: Instant,
    /// When the server was asked for a sign of life, for as long as that is not answered.
    probe_sent: Option<Instant>,
    decoder: Decoder,
    outbox: Outbox,
    requests: BTreeMap<u64, Request>,
    server: Option<Tables>,
    standing: Option<Standing>,
    version: Option<Version>,
    /// Present from the schema on.
    data: Option<Tables>,
    format: Option<Format>,
    is_synced: bool,
    conditions: Conditions,
    transactions: Transactions,
    has_changed: bool,
    events: VecDeque<Event>,
}

impl Session {
    /// Begins a session on a new connection. `generation` is its number among those of this client, and `rows_version` that
    /// of the last [`Session::change_rows`] which `spec` has.
    pub fn new(
        spec: DatabaseSpec,
        options: SessionOptions,
        generation: Generation,
        rows_version: u64,
        now: Instant,
    ) -> Self {
        let mut session = Self {
            spec,
            transactions: Transactions::new(options.transact_timeout),
            options,
            generation,
            started: now,
            last_received: now,
            probe_sent: None,
            decoder: Decoder::default(),
            outbox: Outbox::new(MAX_UNSENT_BYTES),
            requests: BTreeMap::new(),
            server: None,
            standing: None,
            version: None,
            data: None,
            format: None,
            is_synced: false,
            conditions: Conditions::new(rows_version),
            has_changed: false,
            events: VecDeque::new(),
        };
        session.begin();
        session
    }

    /// Handles what arrived, in pieces of some 64 KiB.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn handle_data(&mut self, bytes: &[u8], now: Instant) -> Result<(), SessionError> {
        self.last_received = now;
        self.decoder.push(bytes);
        while let Some(message) = self.decoder.poll()? {
            self.handle_message(message, now)?;
        }
        Ok(())
    }

    /// Handles that time has passed.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), SessionError> {
        if !self.is_synced && now >= self.started + SETUP_TIMEOUT {
            return Err(SessionError::SetupTimeout);
        }
        if self.conditions.is_late(now) {
            return Err(SessionError::Silent);
        }
        if now >= self.probe_due() {
            if self.probe_sent.is_some() {
                return Err(SessionError::Silent);
            }
            self.probe_sent = Some(now);
            self.request(Request::Probe, "echo", &Value::Array(Vec::new()))?;
        }
        while let Some(expired) = self.transactions.expire(now)? {
            self.outbox.cancel(expired.id())?;
            self.events.push_back(Event::Transacted(expired, Err(TransactError::NoAnswer)));
        }
        Ok(())
    }

    /// Returns when [`Session::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Instant {
        let setup = (!self.is_synced).then(|| self.started + SETUP_TIMEOUT);
        [setup, self.conditions.deadline(), self.transactions.deadline()]
            .into_iter()
            .flatten()
            .fold(self.probe_due(), Instant::min)
    }

    /// Returns what is to be sent. Do not ask again before it was sent.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outbox.take()
    }

    /// Returns what happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        // The replica first: what a transaction changed is in it before its result is known.
        if std::mem::take(&mut self.has_changed) && self.is_synced {
            return Some(Event::Changed);
        }
        self.events.pop_front()
    }

    /// Returns `true` if the replica is complete.
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Returns the replica if it is complete. Rows are shared, so that it costs little.
    pub fn replica(&self) -> Option<Replica> {
        let data = self.data.as_ref().filter(|_| self.is_synced)?;
        let tables: BTreeMap<_, _> =
            data.tables().iter().map(|(name, table)| (name.clone(), Arc::clone(table))).collect();
        Some(Replica { generation: self.generation, is_synced: true, version: self.version, tables })
    }

    /// Returns how far a clustered database was seen, for [`Wanted::seen`] of the next session.
    pub fn seen(&self) -> Option<Seen> {
        self.standing.as_ref()?.seen
    }

    /// Begins a transaction; its end is an event.
    ///
    /// # Errors
    ///
    /// If nothing was sent.
    pub fn transact(
        &mut self,
        operations: Vec<Operation>,
        now: Instant,
    ) -> Result<TransactionId, TransactError> {
        if !self.is_synced {
            return Err(TransactError::NotConnected);
        }
        self.transactions.begin(&self.spec.name, operations, &mut self.outbox, now)
    }

    /// Cancels a transaction: its end, which is an event in any case, may be that it was committed.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn cancel(&mut self, transaction: TransactionId) -> Result<(), SessionError> {
        if self.transactions.is_pending(transaction) {
            self.outbox.cancel(transaction.id())?;
        }
        Ok(())
    }

    /// Returns the transactions that have no end yet, when the session has ended: nobody knows whether they were committed.
    pub fn pending(&self) -> Vec<TransactionId> {
        self.transactions.pending()
    }

    /// Follows other rows of a table from here on. `version` is larger than that of every earlier change.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn change_rows(
        &mut self,
        table: &str,
        rows: Rows,
        version: u64,
        now: Instant,
    ) -> Result<(), SessionError> {
        if let Some(spec) = self.spec.tables.iter_mut().find(|spec| spec.name == table) {
            spec.rows = rows;
        }
        let is_followed = self.data.as_ref().is_some_and(|data| data.plan().contains_key(table));
        self.conditions.change(is_followed.then_some(table), version);
        self.send_conditions(now)
    }

    fn probe_due(&self) -> Instant {
        let last = self.probe_sent.map_or(self.last_received, |sent| sent.max(self.last_received));
        last + self.options.probe_interval
    }

    fn request(&mut self, request: Request, method: &str, params: &Value) -> Result<(), SessionError> {
        let id = self.outbox.request(method, params)?;
        self.requests.insert(id, request);
        Ok(())
    }

    fn handle_message(&mut self, message: Message, now: Instant) -> Result<(), SessionError> {
        match message {
            Message::Request { method, params, id } => {
                let outcome =
                    if method == "echo" { Ok(Value::Array(params)) } else { Err("unknown method".into()) };
                self.outbox.respond(id, outcome)
            }
            Message::Notification { method, params } => self.handle_notification(&method, &params),
            Message::Response { id, outcome } => {
                let id = id.as_u64().ok_or(SessionError::Protocol("answer to no request"))?;
                if let Some(request) = self.requests.remove(&id) {
                    return self.handle_answer(request, outcome, now);
                }
                if let Some((transaction, result)) = self.transactions.answer(id, outcome)? {
                    self.events.push_back(Event::Transacted(transaction, result));
                }
                Ok(())
            }
        }
    }

    fn handle_notification(&mut self, method: &str, params: &[Value]) -> Result<(), SessionError> {
        let format = match method {
            "update" => Format::Update,
            "update2" => Format::Update2,
            "monitor_canceled" => return Err(SessionError::DatabaseChanged),
            // Locks, which nobody here takes, and what later servers may add.
            _ => return Ok(()),
        };
        let [monitor, updates] = params else {
            return Err(SessionError::Protocol("update without monitor and rows"));
        };
        match monitor.as_str() {
            Some(DATA_MONITOR) if self.is_synced && self.format == Some(format) => {
                let data = self.data.as_mut().ok_or(SessionError::Protocol("update before its monitor"))?;
                self.has_changed |= data.apply(updates, format)?;
                Ok(())
            }
            Some(SERVER_MONITOR) if format == Format::Update2 && self.standing.is_some() => {
                let server =
                    self.server.as_mut().ok_or(SessionError::Protocol("update before its monitor"))?;
                server.apply(updates, format)?;
                self.evaluate_server()
            }
            _ => Err(SessionError::Protocol("update for an unknown monitor")),
        }
    }

    /// Sends what has changed of the conditions, unless an earlier change is still on its way.
    fn send_conditions(&mut self, now: Instant) -> Result<(), SessionError> {
        if !self.is_synced {
            return Ok(());
        }
        let Some((version, tables)) = self.conditions.next() else { return Ok(()) };
        if self.format == Some(Format::Update) || tables.is_empty() {
            // A server that knows no conditions sends all rows.
            self.events.push_back(Event::RowsChanged(version));
            return Ok(());
        }
        let rows = self.spec.tables.iter().filter(|table| tables.contains(&table.name));
        let changes: serde_json::Map<String, Value> =
            rows.map(|table| (table.name.clone(), json!([{"where": table.rows.to_json()}]))).collect();
        self.conditions.sent(now + SETUP_TIMEOUT);
        let params = json!([DATA_MONITOR, DATA_MONITOR, changes]);
        self.request(Request::Conditions(version), "monitor_cond_change", &params)
    }
}

#[cfg(test)]
mod tests;
