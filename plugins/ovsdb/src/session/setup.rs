//! From a new connection to a complete replica.

use std::time::Instant;

use serde_json::{Value, json};

use super::{DATA_MONITOR, Event, Request, SERVER_MONITOR, Session};
use crate::outcome::read_error;
use crate::schema::Schema;
use crate::server::{DATABASE_TABLE, SERVER_DATABASE, Unsuitable, evaluate, server_spec};
use crate::session::error::SessionError;
use crate::updates::{Format, Tables};

/// Most characters of the list of databases in an error.
const MAX_LIST_CHARS: usize = 200;

impl Session {
    /// Sends the first requests.
    pub(super) fn begin(&mut self) {
        let first = [
            (Request::Databases, "list_dbs", json!([])),
            (Request::ServerSchema, "get_schema", json!([SERVER_DATABASE])),
        ];
        for (request, method, params) in first {
            // The outbox is empty, so there is room; a session without its first request would end by its time-out.
            let _ = self.request(request, method, &params);
        }
    }

    pub(super) fn handle_answer(
        &mut self,
        request: Request,
        outcome: Result<Value, Value>,
        now: Instant,
    ) -> Result<(), SessionError> {
        match (request, outcome) {
            (Request::Probe, _) => {
                self.probe_sent = None;
                Ok(())
            }
            (Request::Databases, Ok(names)) => self.check_databases(&names),
            (Request::ServerSchema, Ok(schema)) => self.monitor_server(&schema),
            // Before Open vSwitch 2.9 there is no such database, and no cluster.
            (Request::ServerSchema, Err(_)) => self.request_schema(),
            (Request::ChangeAware, Ok(_)) => Ok(()),
            (Request::ServerMonitor, Ok(updates)) => {
                let server = self.server.as_mut().ok_or(SessionError::Protocol("answer to no request"))?;
                server.apply(&updates, Format::Update2)?;
                self.evaluate_server()?;
                self.request_schema()
            }
            (Request::Schema, Ok(schema)) => self.monitor_data(&schema),
            (Request::Monitor(format), Ok(updates)) => self.handle_initial(&updates, format, now),
            (Request::Monitor(Format::Update2), Err(error)) if error == "unknown method" => {
                // Before Open vSwitch 2.6.
                self.request_monitor(Format::Update)
            }
            (Request::Conditions(version), Ok(_)) => {
                self.conditions.answered();
                self.events.push_back(Event::RowsChanged(version));
                self.send_conditions(now)
            }
            (request, Err(error)) => {
                let (failure, details) = read_error(&error);
                Err(SessionError::Refused { request: request.name(), failure, details })
            }
        }
    }

    fn check_databases(&self, names: &Value) -> Result<(), SessionError> {
        let names = names.as_array().ok_or(SessionError::Protocol("list of databases is none"))?;
        if names.iter().any(|name| name == self.spec.name.as_str()) {
            return Ok(());
        }
        let found: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let found = found.join(", ").chars().take(MAX_LIST_CHARS).collect();
        Err(SessionError::NoDatabase { name: self.spec.name.clone(), found })
    }

    /// Follows what the server says of itself.
    fn monitor_server(&mut self, schema: &Value) -> Result<(), SessionError> {
        let spec = server_spec();
        let plan = spec.plan(&Schema::from_json(schema)?)?;
        let requests = spec.monitor_requests(&plan, true);
        self.server = Some(Tables::new(plan));
        self.request(Request::ChangeAware, "set_db_change_aware", &json!([true]))?;
        let params = json!([SERVER_DATABASE, SERVER_MONITOR, requests]);
        self.request(Request::ServerMonitor, "monitor_cond", &params)
    }

    /// Leaves a server that will not do, and one whose database has another schema than before.
    pub(super) fn evaluate_server(&mut self) -> Result<(), SessionError> {
        let table = self.server.as_ref().and_then(|server| server.tables().get(DATABASE_TABLE));
        let table = table.ok_or(Unsuitable::NoDatabase)?;
        let standing = evaluate(table, &self.spec.name, self.options.wanted)?;
        if self.standing.as_ref().is_some_and(|before| before.schema != standing.schema) {
            return Err(SessionError::DatabaseChanged);
        }
        self.standing = Some(standing);
        Ok(())
    }

    fn request_schema(&mut self) -> Result<(), SessionError> {
        let params = json!([self.spec.name]);
        self.request(Request::Schema, "get_schema", &params)
    }

    fn monitor_data(&mut self, schema: &Value) -> Result<(), SessionError> {
        let schema = Schema::from_json(schema)?;
        self.version = schema.version;
        self.data = Some(Tables::new(self.spec.plan(&schema)?));
        self.request_monitor(Format::Update2)
    }

    fn request_monitor(&mut self, format: Format) -> Result<(), SessionError> {
        let data = self.data.as_ref().ok_or(SessionError::Protocol("monitor before its schema"))?;
        let (method, with_conditions) = match format {
            Format::Update => ("monitor", false),
            Format::Update2 => ("monitor_cond", true),
        };
        let requests = self.spec.monitor_requests(data.plan(), with_conditions);
        self.conditions.monitored();
        let params = json!([self.spec.name, DATA_MONITOR, requests]);
        self.request(Request::Monitor(format), method, &params)
    }

    fn handle_initial(&mut self, updates: &Value, format: Format, now: Instant) -> Result<(), SessionError> {
        let data = self.data.as_mut().ok_or(SessionError::Protocol("rows before their schema"))?;
        data.apply(updates, format)?;
        self.format = Some(format);
        self.is_synced = true;
        self.events.push_back(Event::Synced);
        self.events.push_back(Event::RowsChanged(self.conditions.sent_version()));
        self.send_conditions(now)
    }
}

impl Request {
    /// Returns the request's method, for errors.
    const fn name(self) -> &'static str {
        match self {
            Self::Databases => "list_dbs",
            Self::ServerSchema | Self::Schema => "get_schema",
            Self::ChangeAware => "set_db_change_aware",
            Self::ServerMonitor => "monitor of the server",
            Self::Monitor(_) => "monitor",
            Self::Conditions(_) => "monitor_cond_change",
            Self::Probe => "echo",
        }
    }
}
