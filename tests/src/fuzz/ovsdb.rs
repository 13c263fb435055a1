//! A client of Open vSwitch databases: a server that sends anything.
//!
//! Input: how long the pieces are that arrive (0: lines), then the stream. Whatever comes, the client holds no more than a
//! message, a replica has every column of every row and is none once the session has ended, and a value that was read is written
//! as it was.

use std::time::{Duration, Instant};

use trieste_ovsdb::operation::Operation;
use trieste_ovsdb::replica::{Generation, Replica};
use trieste_ovsdb::server::Wanted;
use trieste_ovsdb::session::{Event, Session, SessionOptions};
use trieste_ovsdb::spec::{DatabaseSpec, Rows, TableSpec};
use trieste_ovsdb::value::Datum;

use super::Reader;

const COLUMNS: [&str; 4] = ["name", "port", "tags", "ids"];

pub(super) fn target(data: &[u8]) {
    let mut reader = Reader::new(data);
    let piece_bytes = usize::from(reader.byte());
    check_value(reader.bytes);
    let mut now = Instant::now();
    let mut session = session(now);
    let mut transactions = 0_usize;
    let mut answers = 0_usize;
    while !reader.is_empty() {
        now += Duration::from_millis(10);
        let line = reader.bytes.iter().position(|&byte| byte == b'\n').map_or(usize::MAX, |end| end + 1);
        let piece = reader.take(if piece_bytes == 0 { line } else { piece_bytes });
        let result = session.handle_data(piece, now);
        while let Some(event) = session.poll_event() {
            match event {
                Event::Synced => {
                    let operations = vec![Operation::Comment("a".to_owned()), Operation::Abort];
                    transactions += usize::from(session.transact(operations, now).is_ok());
                    let _ = session.change_rows("T", Rows::Nothing, 1, now);
                }
                Event::Transacted(..) => answers += 1,
                Event::Changed | Event::RowsChanged(_) => {}
            }
        }
        if result.is_err() || session.handle_timeout(now).is_err() {
            break;
        }
        session.poll_transmit();
        if let Some(replica) = session.replica() {
            check_replica(&replica);
        }
    }
    assert!(answers + session.pending().len() == transactions, "every transaction has one end");
}

fn session(now: Instant) -> Session {
    let spec = DatabaseSpec {
        name: "D".to_owned(),
        min_version: None,
        tables: vec![TableSpec::new("T", &COLUMNS), TableSpec::new("U", &["x"]).optional()],
    };
    let options = SessionOptions {
        wanted: Wanted { leader_only: true, cluster: None, seen: None },
        probe_interval: Duration::from_secs(5),
        transact_timeout: Duration::from_secs(5),
    };
    Session::new(spec, options, Generation::default(), 0, now)
}

fn check_replica(replica: &Replica) {
    assert!(replica.is_synced());
    for (uuid, row) in replica.rows("T") {
        let has_all = row.len() == COLUMNS.len() && COLUMNS.iter().all(|column| row.contains_key(*column));
        assert!(has_all, "row {uuid} has {:?}", row.keys());
    }
    assert_eq!(replica.differences(replica), []);
}

fn check_value(text: &[u8]) {
    let Ok(json) = serde_json::from_slice(text) else { return };
    if let Ok(datum) = Datum::from_json(&json) {
        assert_eq!(Datum::from_json(&datum.to_json()).as_ref(), Ok(&datum), "{json}");
    }
}
