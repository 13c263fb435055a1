//! The write of a beat: the time alone, or the whole object; and its cost.

use super::*;
use crate::api::{ConnectionStatus, LeftOut};
use crate::publish::MAX_STATUS_BYTES;
use crate::publish::samples::status as many;

/// Connections that do not fit into every beat.
const LARGE: usize = 150;

#[test]
fn a_large_set_at_rest_writes_the_time_alone_to_its_own_incarnation() {
    let mut server = Server::new();
    assert_eq!(server.beat(LARGE), "create");
    let uid = server.stored().metadata.uid.clone();
    let write = server.tracker.beat(&many(LARGE, 99), Timestamp::from_second(5_000).unwrap());
    let GatewayWrite::Annotate { object, stamp } = write else { panic!("{write:?}") };
    assert_eq!((object.metadata.uid.clone(), stamp.as_str()), (uid, "5000"));
    assert_eq!((object.key(), object.body.len()), (server.stored().key(), 0));
    assert_eq!(server.beat(LARGE), "annotate");
}

#[test]
fn a_change_goes_with_the_next_beat_and_is_its_only_write() {
    let mut server = Server::new();
    server.beats(LARGE, 10);
    let mut changed = many(LARGE, 10);
    changed.connections[3].status = ConnectionStatus::Error;
    assert_eq!(server.beat_with(&changed), "update");
    let written = Gateway::from_object(server.stored()).unwrap();
    assert_eq!(written.status, changed);
    assert_eq!(written.updated(), Some(server.wall));
    assert_eq!(server.beat_with(&changed), "annotate");
}

#[test]
fn whole_writes_keep_what_others_annotated_between_times_that_were_written_alone() {
    let mut server = Server::new();
    server.beats(LARGE, 3);
    server.edit(|object| drop(object.metadata.annotations.insert("x".to_owned(), "y".to_owned())));
    assert_eq!(server.beat(LARGE), "annotate");
    let writes = server.beats(LARGE, 30);
    assert!(writes.contains(&"update") && !writes.contains(&"conflict"), "{writes:?}");
    assert_eq!(server.stored().metadata.annotations["x"], "y");
}

#[test]
fn a_status_that_somebody_else_wrote_is_put_right_at_the_next_beat() {
    let mut server = Server::new();
    server.beats(LARGE, 3);
    server.edit(|object| object.body["status"]["haStatus"] = "passive".into());
    let object = server.stored().clone();
    server.tracker.handle_event(&StoreEvent::Applied(object), server.now);
    assert_eq!(server.beat(LARGE), "update");
    assert_eq!(server.stored().body["status"]["haStatus"], "active");
}

#[test]
fn what_somebody_else_wrote_beside_metadata_is_not_written_over_unseen() {
    let mut server = Server::new();
    server.beats(LARGE, 3);
    server.edit(|object| drop(object.body.insert("theirs".to_owned(), "kept".into())));
    // The watch is late: the answer has a newer version, but not what is in it.
    let writes = server.beats(LARGE, 30);
    assert!(writes.contains(&"conflict"), "{writes:?}");
    assert_eq!(server.stored().body["theirs"], "kept");
    assert!(!server.beats(LARGE, 30).contains(&"conflict"), "it has read what is there");
}

#[test]
fn an_object_that_is_gone_or_another_one_is_written_whole_in_the_same_beat() {
    let mut server = Server::new();
    server.beats(LARGE, 3);
    server.object = None;
    assert_eq!(server.beat(LARGE), "create", "after the annotation had met nothing");
    let mut theirs = server.stored().clone();
    theirs.metadata.uid = Some("theirs".to_owned());
    theirs.body.insert("status".to_owned(), serde_json::to_value(status()).unwrap());
    server.edit(|object| *object = theirs);
    assert_eq!(server.beat(LARGE), "update", "after the annotation had met another incarnation");
    assert_eq!(Gateway::from_object(server.stored()).unwrap().status.connections.len(), LARGE);
}

#[test]
fn where_patches_are_forbidden_every_beat_is_whole_and_they_are_tried_once_in_ten_minutes() {
    let mut server = Server::new();
    server.beats(LARGE, 3);
    server.forbids_patches = true;
    assert_eq!(server.beats(LARGE, 120), ["update"; 120]);
    assert_eq!(server.refused, 1);
    assert_eq!(server.beat(LARGE), "annotate, update");
    assert_eq!(server.beats(LARGE, 119), ["update"; 119]);
    server.forbids_patches = false;
    assert_eq!(server.beats(LARGE, 3), ["annotate"; 3]);
}

#[test]
fn who_may_write_nothing_at_all_does_not_take_that_for_a_matter_of_patches() {
    let mut server = Server::new();
    server.beats(LARGE, 3);
    let forbidden = || StoreError::Forbidden {
        operation: "write".to_owned(),
        source: std::io::ErrorKind::PermissionDenied.into(),
    };
    assert!(!server.tracker.handle_annotated(&Err(forbidden()), server.now));
    server.tracker.handle_written(&Err(forbidden()), server.now);
    assert_eq!(server.beat(LARGE), "annotate");
}

#[test]
fn an_annotation_counts_as_a_write_that_got_through_and_its_failure_as_one_that_did_not() {
    let mut server = Server::new();
    server.tracker.handle_event(&StoreEvent::Applied(gateway("gw2", "1", None)), server.now);
    let stale = |server: &Server| server.tracker.stale(server.now).len();
    assert!(server.beats(LARGE, 4).contains(&"annotate"));
    assert_eq!(stale(&server), 1);
    server.tracker.handle_annotated(&Err(unavailable()), server.now);
    assert_eq!(stale(&server), 0);
}

#[test]
fn what_is_left_out_is_counted_in_an_annotation_for_as_long_as_it_is() {
    let mut server = Server::new();
    assert_eq!(server.beat(5_000), "create");
    let gateway = Gateway::from_object(server.stored()).unwrap();
    assert_eq!(gateway.left_out(), server.tracker.cut().left_out);
    assert_eq!(gateway.left_out().total() + gateway.status.connections.len(), 5_000);
    let length = serde_json::to_vec(server.stored()).unwrap().len();
    assert!(length < MAX_STATUS_BYTES + 1_000, "{length} bytes of an object");
    server.beats(5_000, 3);
    server.beats(10, 5);
    let gateway = Gateway::from_object(server.stored()).unwrap();
    assert_eq!((gateway.left_out(), gateway.status.connections.len()), (LeftOut::default(), 10));
    assert!(!gateway.metadata.annotations.contains_key(annotation::CONNECTIONS_LEFT_OUT));
}

/// Prints what `docs/performance.md` says of a gateway at rest: run with `--nocapture`.
#[test]
fn at_rest_a_gateway_writes_twelve_times_a_minute_and_its_bytes_do_not_follow_the_set() {
    const MINUTES: usize = 20;
    for connections in [2, 10, 100, 1_000] {
        let mut server = Server::new();
        server.beat(connections);
        let whole = serde_json::to_vec(server.stored()).unwrap().len();
        server.sent = 0;
        let writes = server.beats(connections, MINUTES * 12);
        let rewrites = writes.iter().filter(|write| **write == "update").count();
        let sent = server.sent / MINUTES;
        eprintln!(
            "{connections} connections: {whole} bytes whole, {} writes a minute, of which {:.2} whole; {sent} bytes a \
             minute instead of {}",
            writes.len() / MINUTES,
            rewrites as f64 / MINUTES as f64,
            whole * 12
        );
        assert_eq!(writes.len(), MINUTES * 12);
        // Eight KiB a second, the times, and a metadata's length for each whole write.
        assert!(sent <= (8 << 10) * 60 + 12 * 200 + 12 * 400, "{sent}");
        assert!(sent <= (whole + 40) * 12, "no more than whole writes, whose metadata has a version");
    }
}

/// A store as an API server, for one object, and the gateway that beats there.
struct Server {
    tracker: GatewayTracker,
    now: Instant,
    wall: Timestamp,
    moment: u64,
    object: Option<Object>,
    version: u64,
    forbids_patches: bool,
    refused: usize,
    /// Bytes of requests, without their heads.
    sent: usize,
}

impl Server {
    fn new() -> Self {
        Self {
            tracker: GatewayTracker::new("ns", "own").unwrap(),
            now: Instant::now(),
            wall: Timestamp::from_second(1_795_242_756).unwrap(),
            moment: 0,
            object: None,
            version: 0,
            forbids_patches: false,
            refused: 0,
            sent: 0,
        }
    }

    fn stored(&self) -> &Object {
        self.object.as_ref().unwrap()
    }

    /// Lets a beat pass with so many connections, whose counters and round trips differ from the last one's.
    fn beat(&mut self, connections: usize) -> &'static str {
        let status = many(connections, self.moment);
        self.beat_with(&status)
    }

    fn beats(&mut self, connections: usize, number: usize) -> Vec<&'static str> {
        (0..number).map(|_| self.beat(connections)).collect()
    }

    /// Does as the publisher does; names the write that got through, and what was in its way if it was not a race that an
    /// annotation lost.
    fn beat_with(&mut self, status: &PublishedStatus) -> &'static str {
        self.moment += 1;
        self.now += GATEWAY_INTERVAL;
        self.wall += GATEWAY_INTERVAL;
        let (mut was_refused, mut was_conflict) = (false, false);
        loop {
            let (name, answer) = match self.tracker.beat(status, self.wall) {
                GatewayWrite::Create(object) => ("create", self.put(object)),
                GatewayWrite::Update(object) => ("update", self.put(object)),
                GatewayWrite::Annotate { object, stamp } => {
                    let answer = self.annotate(&object, &stamp);
                    if !self.tracker.handle_annotated(&answer, self.now) {
                        was_refused = self.refused > 1;
                        continue;
                    }
                    if answer.is_ok() {
                        return "annotate";
                    }
                    self.tracker.handle_read(self.object.as_ref());
                    continue;
                }
            };
            self.tracker.handle_written(&answer, self.now);
            match answer {
                Ok(_) if was_conflict => return "conflict",
                Ok(_) if was_refused => return "annotate, update",
                Ok(_) => return name,
                Err(_) => was_conflict = true,
            }
            self.tracker.handle_read(self.object.as_ref());
        }
    }

    fn put(&mut self, mut object: Object) -> Result<Object, StoreError> {
        let current = self.object.as_ref().map(|object| &object.metadata);
        if object.metadata.resource_version.as_ref()
            != current.and_then(|current| current.resource_version.as_ref())
        {
            let key = object.key();
            return Err(StoreError::Conflict { key, expected: String::new(), found: String::new() });
        }
        self.sent += serde_json::to_vec(&object).unwrap().len();
        let generation = current.and_then(|current| current.generation).unwrap_or(0);
        let uid = current.and_then(|current| current.uid.clone());
        object.metadata.uid = uid.or_else(|| Some(format!("1f7a9cd6-5577-4ca7-9ef4-{:012}", self.version)));
        object.metadata.generation = Some(generation + 1);
        Ok(self.store(object))
    }

    fn annotate(&mut self, of: &Object, stamp: &str) -> Result<ObjectMeta, StoreError> {
        if self.forbids_patches {
            self.refused += 1;
            let source = std::io::ErrorKind::PermissionDenied.into();
            return Err(StoreError::Forbidden { operation: "patch".to_owned(), source });
        }
        let Some(object) = &mut self.object else { return Err(StoreError::NotFound(of.key())) };
        if object.metadata.uid != of.metadata.uid {
            let key = of.key();
            return Err(StoreError::Conflict { key, expected: String::new(), found: String::new() });
        }
        let annotations = serde_json::json!({annotation::UPDATE_TIMESTAMP: stamp});
        let patch = serde_json::json!({"metadata": {"annotations": annotations, "uid": of.metadata.uid}});
        self.sent += patch.to_string().len();
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        object.metadata.annotations.insert(annotation::UPDATE_TIMESTAMP.to_owned(), stamp.to_owned());
        Ok(object.metadata.clone())
    }

    /// Somebody else changes the object.
    fn edit(&mut self, edit: impl FnOnce(&mut Object)) {
        let mut object = self.stored().clone();
        edit(&mut object);
        if object.body != self.stored().body {
            object.metadata.generation = object.metadata.generation.map(|generation| generation + 1);
        }
        self.store(object);
    }

    fn store(&mut self, mut object: Object) -> Object {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        self.object = Some(object.clone());
        object
    }
}
