//! Queries, and objects of a small set.

use serde_json::{Value, json};
use trieste_control::api::{Kind, Object, ObjectMeta, annotation, label};
use trieste_dns::{Outcome, Records, Settings, Transport, Zone, answer};

pub(crate) const WEB: &str = "web.shop.svc.clusterset.local";

/// A query of type A with number 7 for a name.
pub(crate) fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    query
}

pub(crate) fn settings() -> Settings {
    Settings::new(vec![Zone::new("clusterset.local").unwrap()], 5).unwrap()
}

/// The code of an answer, and its addresses in order.
pub(crate) fn ask(records: &Records, name: &str) -> (u8, Vec<String>) {
    let (query, mut reply) = (query(name), Vec::new());
    let outcome = answer(&query, Transport::Tcp, records, &settings(), &mut reply);
    assert!(matches!(outcome, Outcome::Reply(_)));
    addresses(&reply, query.len())
}

/// The code of an answer, and its addresses in order; behind its question, each record has a pointer to it.
pub(crate) fn addresses(reply: &[u8], question: usize) -> (u8, Vec<String>) {
    let count = usize::from(u16::from_be_bytes([reply[6], reply[7]]));
    let records = reply[question..].chunks(16).take(count);
    let mut found: Vec<String> = records
        .map(|record| format!("{}.{}.{}.{}", record[12], record[13], record[14], record[15]))
        .collect();
    found.sort();
    (reply[3] & 0xf, found)
}

pub(crate) fn import(kind: &str) -> Object {
    let mut object = Object::new(Kind::ServiceImport, ObjectMeta::new("shop", "web"));
    object.body.insert("spec".to_owned(), json!({"type": kind, "ports": []}));
    object
}

/// A slice of `web` from a cluster.
pub(crate) fn slice(name: &str, cluster: &str, addresses: &[&str]) -> Object {
    let mut object = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", name));
    label_as(
        &mut object,
        &[
            (label::MANAGED_BY, label::LIGHTHOUSE_AGENT),
            (label::SERVICE_NAME, "web"),
            (label::SOURCE_NAMESPACE, "shop"),
            (label::SOURCE_CLUSTER, cluster),
        ],
    );
    with_endpoints(&mut object, addresses);
    object
}

/// A slice of global addresses of this cluster's pods.
pub(crate) fn global_slice(name: &str, cluster: &str, addresses: &[&str]) -> Object {
    let mut object = slice(name, cluster, addresses);
    label_as(&mut object, &[(label::IS_HEADLESS, "true")]);
    object.metadata.annotations.insert(annotation::GLOBALNET_ENABLED.to_owned(), "true".to_owned());
    object
}

/// A slice as Kubernetes itself has it.
pub(crate) fn own_slice(name: &str, service: &str, addresses: &[&str]) -> Object {
    let mut object = Object::new(Kind::EndpointSlice, ObjectMeta::new("shop", name));
    label_as(&mut object, &[("kubernetes.io/service-name", service)]);
    with_endpoints(&mut object, addresses);
    object
}

fn label_as(object: &mut Object, labels: &[(&str, &str)]) {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    object.metadata.labels.extend(labels);
}

fn with_endpoints(object: &mut Object, addresses: &[&str]) {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    object.body.insert("addressType".to_owned(), json!("IPv4"));
    object.body.insert("endpoints".to_owned(), Value::Array(endpoints));
    object.body.insert("ports".to_owned(), json!([{"name": "http", "protocol": "TCP", "port": 80}]));
}
