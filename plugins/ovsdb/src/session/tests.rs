use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::operation::Condition;
use crate::outcome::Failure;
use crate::server::Unsuitable;
use crate::spec::{SchemaError, TableSpec};
use crate::updates::UpdateError;
use crate::value::tests::any_json;
use crate::wire::{MAX_DEPTH, WireError};

const ONE: &str = "00000000-0000-0000-0000-000000000001";
const PROBE: Duration = Duration::from_secs(10);
const TRANSACT: Duration = Duration::from_secs(30);

/// A session and the server's side of it.
struct Peer {
    session: Session,
    decoder: Decoder,
    now: Instant,
}

impl Peer {
    fn new() -> Self {
        let tables = vec![TableSpec::new("T", &["name", "tags"]).with_optional(&["size"])];
        let spec = DatabaseSpec { name: "D".to_owned(), min_version: Some(Version(6, 1, 0)), tables };
        let wanted = Wanted { leader_only: true, cluster: None, seen: None };
        let options = SessionOptions { wanted, probe_interval: PROBE, transact_timeout: TRANSACT };
        let now = Instant::now();
        let session = Session::new(spec, options, Generation(1), 0, now);
        Self { session, decoder: Decoder::default(), now }
    }

    /// What the client has sent, as method, parameters and id.
    fn sent(&mut self) -> Vec<(String, Value, Value)> {
        if let Some(bytes) = self.session.poll_transmit() {
            self.decoder.push(&bytes);
        }
        let mut found = Vec::new();
        while let Some(message) = self.decoder.poll().unwrap() {
            found.push(match message {
                Message::Request { method, params, id } => (method, params.into(), id),
                Message::Notification { method, params } => (method, params.into(), Value::Null),
                Message::Response { id, outcome } => ("answer".to_owned(), outcome.unwrap(), id),
            });
        }
        found
    }

    fn send(&mut self, message: &Value) -> Result<(), SessionError> {
        self.session.handle_data(message.to_string().as_bytes(), self.now)
    }

    fn answer(&mut self, id: &Value, result: &Value) -> Result<(), SessionError> {
        self.send(&json!({"result": result, "error": null, "id": id}))
    }

    fn refuse(&mut self, id: &Value, error: &Value) -> Result<(), SessionError> {
        self.send(&json!({"result": null, "error": error, "id": id}))
    }

    fn update(&mut self, rows: &Value) -> Result<(), SessionError> {
        self.send(&json!({"method": "update2", "params": [DATA_MONITOR, {"T": rows}], "id": null}))
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// Answers requests as a server does until there are none, or an error; `refused` are methods that it does not know.
    fn set_up(&mut self, database: &Value, refused: &[&str]) -> Result<(), SessionError> {
        loop {
            let sent = self.sent();
            if sent.is_empty() {
                return Ok(());
            }
            for (method, params, id) in sent {
                if refused.contains(&method.as_str())
                    || refused.contains(&format!("{method} {}", params[0]).as_str())
                {
                    self.refuse(&id, &"unknown method".into())?;
                    continue;
                }
                let result = match (method.as_str(), params[0].as_str()) {
                    ("list_dbs", _) => json!(["D", "_Server"]),
                    ("get_schema", Some("_Server")) => server_schema(),
                    ("get_schema", _) => schema(),
                    ("monitor_cond", Some("_Server")) => json!({"Database": {ONE: {"initial": database}}}),
                    ("monitor_cond", _) => json!({"T": {ONE: {"initial": {"name": "a"}}}}),
                    ("monitor", _) => json!({"T": {ONE: {"new": {"name": "a", "tags": ["set", []]}}}}),
                    _ => json!({}),
                };
                self.answer(&id, &result)?;
            }
        }
    }

    fn synced() -> Self {
        let mut peer = Self::new();
        peer.set_up(&alone(), &[]).unwrap();
        assert_eq!(peer.events(), [Event::Synced, Event::RowsChanged(0)]);
        peer
    }

    fn names(&self) -> Vec<String> {
        let replica = self.session.replica().unwrap();
        replica.rows("T").map(|(_, row)| row["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn schema() -> Value {
    json!({"name": "D", "version": "7.0.0", "tables": {"T": {"columns": {"name": {"type": "string"},
        "tags": {"type": {"key": "string", "min": 0, "max": "unlimited"}}}}}})
}

fn server_schema() -> Value {
    json!({"name": "_Server", "version": "1.2.0", "tables": {"Database": {"columns": {
        "name": {"type": "string"}, "connected": {"type": "boolean"}, "leader": {"type": "boolean"},
        "model": {"type": {"key": {"type": "string", "enum": ["set", ["standalone", "clustered"]]}}},
        "schema": {"type": {"key": "string", "min": 0}}, "cid": {"type": {"key": "uuid", "min": 0}},
        "index": {"type": {"key": "integer", "min": 0}}}}}})
}

fn alone() -> Value {
    json!({"name": "D", "connected": true, "leader": true, "model": "standalone", "schema": "{}"})
}

fn clustered(leader: bool) -> Value {
    json!({"name": "D", "connected": true, "leader": leader, "model": "clustered", "schema": "{}", "index": 5,
        "cid": ["uuid", ONE]})
}

fn comment() -> Vec<Operation> {
    vec![Operation::Comment("a".to_owned())]
}

#[test]
fn plugin_ovn_db_a_session_is_set_up_and_follows_the_tables() {
    let mut peer = Peer::new();
    assert!(peer.session.replica().is_none());
    assert_eq!(peer.session.transact(comment(), peer.now), Err(TransactError::NotConnected));
    peer.set_up(&alone(), &[]).unwrap();
    assert_eq!(peer.names(), ["a"]);
    peer.events();
    peer.update(&json!({ONE: {"modify": {"name": "b", "tags": "x"}}})).unwrap();
    assert_eq!(peer.events(), [Event::Changed]);
    assert_eq!(peer.names(), ["b"]);
    let replica = peer.session.replica().unwrap();
    assert!(replica.is_synced());
    assert_eq!((replica.generation(), replica.version()), (Generation(1), Some(Version(7, 0, 0))));
}

#[test]
fn plugin_ovn_db_old_servers_are_followed_without_what_they_do_not_know() {
    let mut peer = Peer::new();
    peer.set_up(&alone(), &["get_schema \"_Server\"", "monitor_cond"]).unwrap();
    assert_eq!(peer.events(), [Event::Synced, Event::RowsChanged(0)]);
    let update = json!({ONE: {"old": {"name": "a"}, "new": {"name": "b", "tags": ["set", []]}}});
    peer.send(&json!({"method": "update", "params": [DATA_MONITOR, {"T": update}], "id": null})).unwrap();
    assert_eq!(peer.names(), ["b"]);
    peer.session.change_rows("T", Rows::Nothing, 1, peer.now).unwrap();
    assert_eq!(peer.events(), [Event::Changed, Event::RowsChanged(1)], "nothing more to wait for");
    assert_eq!(peer.sent(), []);
}

#[test]
fn plugin_ovn_db_only_the_leader_of_a_cluster_will_do_and_only_as_long_as_it_leads() {
    let mut peer = Peer::new();
    let error = peer.set_up(&clustered(false), &[]).unwrap_err();
    assert_eq!(error, SessionError::Unsuitable(Unsuitable::NotLeader));
    assert!(error.is_for_another_server());

    let mut peer = Peer::new();
    peer.set_up(&clustered(true), &[]).unwrap();
    assert_eq!(peer.session.seen().unwrap().index, 5);
    let update = |row: Value| json!({"method": "update2", "params": [SERVER_MONITOR, {"Database": {ONE: row}}], "id": null});
    peer.send(&update(json!({"modify": {"index": 6}}))).unwrap();
    assert_eq!(peer.session.seen().unwrap().index, 6);
    let error = peer.send(&update(json!({"modify": {"leader": false}}))).unwrap_err();
    assert_eq!(error, SessionError::Unsuitable(Unsuitable::NotLeader));
}

#[test]
fn plugin_ovn_db_a_database_that_is_replaced_is_read_anew() {
    let mut peer = Peer::synced();
    let update = json!({"Database": {ONE: {"modify": {"schema": "{\"version\":\"8.0.0\"}"}}}});
    let update = json!({"method": "update2", "params": [SERVER_MONITOR, update], "id": null});
    assert_eq!(peer.send(&update), Err(SessionError::DatabaseChanged));
    let cancelled = json!({"method": "monitor_canceled", "params": [DATA_MONITOR], "id": null});
    assert_eq!(Peer::synced().send(&cancelled), Err(SessionError::DatabaseChanged));
}

#[test]
fn plugin_ovn_db_databases_and_schemas_that_do_not_do_are_named() {
    let mut peer = Peer::new();
    let (_, _, id) = peer.sent().remove(0);
    let error = peer.answer(&id, &json!(["_Server", "Open_vSwitch"])).unwrap_err();
    assert_eq!(error.to_string(), "server has no database D (it has _Server, Open_vSwitch)");

    let mut peer = Peer::new();
    peer.session.spec.min_version = Some(Version(8, 0, 0));
    let error = peer.set_up(&alone(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "schema of D is 7.0.0, and 8.0.0 or newer is needed");

    let mut peer = Peer::new();
    peer.session.spec.tables[0].columns.push("age".to_owned());
    let error = peer.set_up(&alone(), &[]).unwrap_err();
    assert!(matches!(error, SessionError::Schema(SchemaError::NoColumn { .. })), "{error}");

    let mut peer = Peer::new();
    let error = peer.set_up(&alone(), &["monitor"]).err();
    assert_eq!(error, None, "monitor_cond is enough");
}

#[test]
fn plugin_ovn_db_a_transaction_has_its_result_after_what_it_changed() {
    let mut peer = Peer::synced();
    let transaction = peer.session.transact(comment(), peer.now).unwrap();
    let (method, params, id) = peer.sent().remove(0);
    assert_eq!((method.as_str(), params), ("transact", json!(["D", {"op": "comment", "comment": "a"}])));
    assert_eq!(peer.session.pending(), [transaction]);
    peer.update(&json!({ONE: {"modify": {"name": "b"}}})).unwrap();
    peer.answer(&id, &json!([{}])).unwrap();
    let done = Event::Transacted(transaction, Ok(vec![OperationResult::Done]));
    assert_eq!(peer.events(), [Event::Changed, done]);
    assert_eq!(peer.session.pending(), []);
}

#[test]
fn plugin_ovn_db_errors_of_transactions_are_told_apart() {
    let outcome = |answer: &dyn Fn(&mut Peer, &Value)| {
        let mut peer = Peer::synced();
        let transaction = peer.session.transact(comment(), peer.now).unwrap();
        let (_, _, id) = peer.sent().remove(0);
        answer(&mut peer, &id);
        let Some(Event::Transacted(ended, Err(error))) = peer.events().pop() else { panic!("no end") };
        assert_eq!(ended, transaction);
        error
    };
    let failed = |tag: &'static str| {
        outcome(&move |peer, id| peer.answer(id, &json!([{"error": tag, "details": "why"}])).unwrap())
    };
    assert_eq!(failed("timed out").failure(), Some(&Failure::TimedOut));
    assert_eq!(failed("not leader").failure(), Some(&Failure::NotLeader));
    assert_eq!(failed("constraint violation").failure(), Some(&Failure::ConstraintViolation));
    let commit = outcome(&|peer, id| peer.answer(id, &json!([{}, {"error": "aborted"}])).unwrap());
    assert!(matches!(commit, TransactError::Commit { failure: Failure::Aborted, .. }), "{commit}");
    let request = outcome(&|peer, id| peer.refuse(id, &json!({"error": "unknown database"})).unwrap());
    assert!(matches!(request, TransactError::Request { failure: Failure::UnknownDatabase, .. }), "{request}");
    let cancelled = outcome(&|peer, id| peer.refuse(id, &"canceled".into()).unwrap());
    assert_eq!(cancelled, TransactError::Cancelled);
    assert!(!cancelled.is_without_effect());
    let invalid = outcome(&|peer, id| peer.answer(id, &json!(1)).unwrap());
    assert!(matches!(invalid, TransactError::InvalidAnswer(_)), "{invalid}");
}

#[test]
fn plugin_ovn_db_a_transaction_without_answer_is_cancelled_and_a_server_that_ignores_that_is_left() {
    let mut peer = Peer::synced();
    let transaction = peer.session.transact(comment(), peer.now).unwrap();
    let (_, _, id) = peer.sent().remove(0);
    peer.now += TRANSACT;
    peer.session.last_received = peer.now;
    assert!(peer.session.poll_timeout() <= peer.now);
    peer.session.handle_timeout(peer.now).unwrap();
    assert_eq!(peer.events(), [Event::Transacted(transaction, Err(TransactError::NoAnswer))]);
    assert_eq!(peer.sent(), [("cancel".to_owned(), json!([id]), Value::Null)]);
    // The late answer is none of another request's.
    let mut answered = peer;
    answered.answer(&id, &json!([{}])).unwrap();
    assert_eq!(answered.events(), []);

    let mut peer = Peer::synced();
    peer.session.transact(comment(), peer.now).unwrap();
    for _ in 0..2 {
        peer.now += TRANSACT;
        peer.session.last_received = peer.now;
        if peer.session.handle_timeout(peer.now).is_err() {
            return;
        }
    }
    panic!("the session goes on");
}

#[test]
fn plugin_ovn_db_too_many_and_too_large_transactions_are_refused() {
    let mut peer = Peer::synced();
    let large = vec![Operation::Comment("x".repeat(transactions::MAX_TRANSACTION_BYTES))];
    assert_eq!(peer.session.transact(large, peer.now), Err(TransactError::TooLarge));
    for _ in 0..transactions::MAX_TRANSACTIONS {
        peer.session.transact(comment(), peer.now).unwrap();
    }
    assert_eq!(peer.session.transact(comment(), peer.now), Err(TransactError::Busy));
}

#[test]
fn plugin_ovn_db_a_server_is_asked_for_a_sign_of_life_and_given_up_without_one() {
    let mut peer = Peer::synced();
    assert_eq!(peer.session.poll_timeout(), peer.now + PROBE);
    peer.now += PROBE;
    peer.session.handle_timeout(peer.now).unwrap();
    let (method, _, id) = peer.sent().remove(0);
    assert_eq!(method, "echo");
    peer.answer(&id, &json!([])).unwrap();
    peer.now += PROBE;
    peer.session.handle_timeout(peer.now).unwrap();
    // What else it sends puts that off, and does not answer it.
    peer.now += PROBE / 2;
    peer.update(&json!({ONE: {"modify": {"name": "b"}}})).unwrap();
    peer.now += PROBE;
    assert_eq!(peer.session.poll_timeout(), peer.now);
    assert_eq!(peer.session.handle_timeout(peer.now), Err(SessionError::Silent));
}

#[test]
fn plugin_ovn_db_a_server_that_never_comes_to_an_end_is_given_up() {
    let mut peer = Peer::new();
    peer.now += SETUP_TIMEOUT;
    peer.send(&json!({"method": "echo", "params": ["a"], "id": "x"})).unwrap();
    assert_eq!(peer.sent().pop(), Some(("answer".to_owned(), json!(["a"]), "x".into())));
    assert_eq!(peer.session.handle_timeout(peer.now), Err(SessionError::SetupTimeout));
}

#[test]
fn plugin_ovn_db_rows_are_changed_while_they_are_followed() {
    let mut peer = Peer::synced();
    let rows = Rows::AnyOf(vec![Condition::equal("name", "b")]);
    peer.session.change_rows("T", rows, 1, peer.now).unwrap();
    let (method, params, id) = peer.sent().remove(0);
    let changes = json!({"T": [{"where": [["name", "==", "b"]]}]});
    assert_eq!(
        (method.as_str(), params),
        ("monitor_cond_change", json!([DATA_MONITOR, DATA_MONITOR, changes]))
    );
    peer.session.change_rows("T", Rows::Nothing, 2, peer.now).unwrap();
    peer.session.change_rows("T", Rows::All, 3, peer.now).unwrap();
    assert_eq!(peer.sent(), [], "one at a time");
    peer.update(&json!({ONE: {"delete": null}})).unwrap();
    peer.answer(&id, &json!({})).unwrap();
    assert_eq!(peer.events(), [Event::Changed, Event::RowsChanged(1)]);
    let (_, params, id) = peer.sent().remove(0);
    assert_eq!(params[2], json!({"T": [{"where": [true]}]}));
    peer.answer(&id, &json!({})).unwrap();
    assert_eq!(peer.events(), [Event::RowsChanged(3)]);

    let mut peer = Peer::new();
    peer.session.change_rows("T", Rows::Nothing, 1, peer.now).unwrap();
    peer.set_up(&alone(), &[]).unwrap();
    assert_eq!(peer.events(), [Event::Synced, Event::RowsChanged(1)], "with the monitor");
}

#[test]
fn plugin_ovn_db_hostile_servers_end_the_session_and_nothing_else() {
    let end = |message: Value| Peer::synced().send(&message).unwrap_err();
    let no_request = SessionError::Protocol("answer to no request");
    assert_eq!(end(json!({"result": 1, "error": null, "id": 999})), no_request);
    assert_eq!(end(json!({"result": 1, "error": null, "id": "a"})), no_request);
    assert_eq!(end(json!({"result": 1, "error": null, "id": -1})), no_request);
    let update = |method: &str, monitor: Value, updates: Value| json!({"method": method, "params": [monitor, updates], "id": null});
    let unknown = SessionError::Protocol("update for an unknown monitor");
    assert_eq!(end(update("update2", json!("x"), json!({}))), unknown);
    assert_eq!(end(update("update2", json!(1), json!({}))), unknown);
    assert_eq!(end(update("update", json!(DATA_MONITOR), json!({}))), unknown, "another format");
    let unknown = SessionError::Update(UpdateError::UnknownTable);
    assert_eq!(end(update("update2", json!(DATA_MONITOR), json!({"U": {}}))), unknown);
    assert!(matches!(end(json!({"method": "update2", "params": [], "id": null})), SessionError::Protocol(_)));
    let early = Peer::new().send(&update("update2", json!(DATA_MONITOR), json!({}))).unwrap_err();
    assert_eq!(early, SessionError::Protocol("update for an unknown monitor"));

    let mut peer = Peer::synced();
    let deep = "{\"a\":".repeat(MAX_DEPTH + 1);
    let error = peer.session.handle_data(deep.as_bytes(), peer.now).unwrap_err();
    assert_eq!(error, SessionError::Wire(WireError::TooDeep));
}

#[test]
fn plugin_ovn_db_what_nobody_knows_is_answered_or_passed_over() {
    let mut peer = Peer::synced();
    peer.send(&json!({"method": "locked", "params": ["l"], "id": null})).unwrap();
    peer.session.handle_data(br#"{"method":"steal","params":[],"id":7}"#, peer.now).unwrap();
    let bytes = peer.session.poll_transmit().unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&bytes).unwrap(),
        json!({"result": null, "error": "unknown method", "id": 7})
    );
}

#[test]
fn plugin_ovn_db_a_server_that_asks_and_does_not_read_is_given_up() {
    let mut peer = Peer::synced();
    peer.session.outbox = Outbox::new(1 << 20);
    let echo = json!({"method": "echo", "params": ["x".repeat(1 << 16)], "id": 1});
    let error = (0..100).find_map(|_| peer.send(&echo).err());
    assert_eq!(error, Some(SessionError::NotReading));
    assert!(peer.session.poll_transmit().unwrap().len() <= 1 << 20);
}

proptest! {
    #[test]
    fn plugin_ovn_db_any_answers_are_followed_or_refused(answers in prop::collection::vec((0..12_u64, any_json(), any::<bool>()), 0..12)) {
        for mut peer in [Peer::new(), Peer::synced()] {
            let _ = peer.session.transact(comment(), peer.now);
            for (id, value, is_error) in &answers {
                let message = if *is_error {
                    json!({"method": "update2", "params": [DATA_MONITOR, value], "id": null})
                } else {
                    json!({"result": value, "error": null, "id": id})
                };
                if peer.send(&message).is_err() {
                    break;
                }
                peer.events();
            }
        }
    }
}
