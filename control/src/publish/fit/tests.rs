use super::super::samples::status;
use super::*;
use crate::api::{Gateway, Kind, Object, ObjectMeta, Resource};
use crate::store::{DirStore, Store as _};

#[test]
fn what_fits_is_written_as_it_is() {
    let whole = status(1_000, 0);
    let fitted = fit(&whole);
    assert_eq!((fitted.cut, fitted.bytes), (Cut::default(), length(&whole)));
    assert_eq!(fitted.status, serde_json::to_value(&whole).unwrap());
}

#[test]
fn those_that_are_connected_are_shortened_before_any_is_left_out() {
    let mut whole = status(2_000, 0);
    fail(&mut whole, 7);
    let fitted = fit(&whole);
    let read = read(&fitted);
    assert_eq!(fitted.cut, Cut { shortened: 1_999, left_out: LeftOut::default() });
    assert_eq!(read.connections.len(), 2_000);
    assert_eq!(read.connections[7], whole.connections[7], "what is wrong is there whole");
    let (short, long) = (&read.connections[8], &whole.connections[8]);
    assert_eq!(short.latency_rtt, None);
    assert!(short.endpoint.backend_config.is_empty());
    let kept = |connection: &Connection| {
        let endpoint = &connection.endpoint;
        let names = [&endpoint.cluster_id, &endpoint.cable_name, &endpoint.hostname, &endpoint.public_ip];
        (connection.status, connection.using_ip.clone(), names.map(Clone::clone), endpoint.subnets.clone())
    };
    assert_eq!(kept(short), kept(long), "what upstream's readers act on");
}

#[test]
fn of_5000_connections_those_that_are_wrong_are_kept_and_the_rest_is_counted() {
    let mut whole = status(5_000, 0);
    let wrong = [0, 17, 2_500, 4_999];
    for index in wrong {
        fail(&mut whole, index);
    }
    let fitted = fit(&whole);
    let read = read(&fitted);
    let wrong_then = || read.connections.iter().filter(|connection| !is_connected(connection));
    assert_eq!(wrong_then().count(), wrong.len());
    let names: Vec<&str> = wrong_then().map(|connection| connection.endpoint.cluster_id.as_str()).collect();
    assert_eq!(names, ["cluster-1", "cluster-18", "cluster-2501", "cluster-5000"], "in their order");
    assert!(wrong_then().all(|connection| connection.status_message == "no answer"));
    let Cut { shortened, left_out } = fitted.cut;
    assert_eq!((shortened + left_out.total(), left_out.others), (5_000, 0));
    assert_eq!(shortened, read.connections.len());
    assert!((2_800..3_000).contains(&shortened), "{shortened} have space");
}

#[test]
fn many_that_are_wrong_are_bounded_too_and_come_before_those_that_are_connected() {
    let mut whole = status(5_000, 0);
    (0..4_900).for_each(|index| fail(&mut whole, index));
    let fitted = fit(&whole);
    let read = read(&fitted);
    assert!(read.connections.iter().all(|connection| connection.status == ConnectionStatus::Error));
    assert_eq!(fitted.cut.left_out.connected, 100);
    assert_eq!(fitted.cut.left_out.others, 4_900 - read.connections.len());
}

#[test]
fn connections_of_many_small_texts_fit_into_the_memory_of_readers() {
    let mut whole = status(1_000, 0);
    for connection in &mut whole.connections {
        let texts = (0..60).map(|number| (format!("k{number}"), "v".to_owned()));
        connection.endpoint.backend_config.extend(texts);
        connection.status = ConnectionStatus::Error;
    }
    assert!(length(&whole) < 2 * MAX_STATUS_BYTES);
    let read = read(&fit(&whole));
    assert!(!read.connections.is_empty());
}

#[tokio::test]
async fn a_directory_takes_the_longest_status() {
    let fitted = fit(&status(5_000, 0));
    assert!(fitted.bytes > MAX_STATUS_BYTES - 1_000, "{} bytes", fitted.bytes);
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw1"));
    object.body.insert("status".to_owned(), fitted.status.clone());
    store.create(object.clone()).await.unwrap();
    let found = DirStore::attach(root.path()).get(&object.key()).await.unwrap().unwrap();
    assert_eq!(found.body, object.body);
}

#[test]
fn a_status_without_the_shape_of_one_is_told_from_others() {
    let mut broken = status(3, 0);
    assert!(fit(&broken).is_valid);
    broken.connections[1].endpoint.cluster_id = "x".repeat(64);
    let fitted = fit(&broken);
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw1"));
    object.body.insert("status".to_owned(), fitted.status);
    assert!(!fitted.is_valid && object.check_shape().is_err());
}

fn fail(status: &mut PublishedStatus, index: usize) {
    let connection = &mut status.connections[index];
    connection.status = ConnectionStatus::Error;
    connection.status_message = "no answer".to_owned();
}

/// Checks that an API server would take it and readers keep it, and reads it.
fn read(fitted: &Fitted) -> PublishedStatus {
    assert!(fitted.bytes <= MAX_STATUS_BYTES, "{} bytes", fitted.bytes);
    assert_eq!((fitted.bytes, fitted.is_valid), (length(&fitted.status), true));
    let mut object = Object::new(Kind::Gateway, ObjectMeta::new("ns", "gw1"));
    object.body.insert("status".to_owned(), fitted.status.clone());
    let memory = size::of_object(&object, usize::MAX);
    assert!(memory <= OBJECT_BYTES, "{memory} bytes of memory");
    object.check_shape().unwrap();
    Gateway::from_object(&object).unwrap().status
}
