//! What a gateway publishes of itself beside the others: its further Endpoint. Pure.

use super::{FURTHER_PREFIX, further_name};
use crate::api::{ApiError, EndpointSpec, Kind, Object, ObjectMeta, label};
use crate::leader::{ENDPOINT_FIELDS, make, object};
use crate::runner::Write;

/// Returns the writes after which `namespace` has this gateway's further Endpoint, and no other one of its host. Without
/// `is_wanted` it has none. `known` are the Endpoints of the namespace.
///
/// Level-driven: the plan of the result is empty.
///
/// # Errors
/// [`ApiError`] when no object name can be made of the cable's.
pub fn plan_own(
    namespace: &str,
    own: &EndpointSpec,
    is_wanted: bool,
    known: &[&Object],
) -> Result<Vec<Write>, ApiError> {
    let name = further_name(&own.cable_name)
        .map_err(|error| ApiError::field("spec.cable_name", error.to_string()))?;
    let is_other = |object: &&&Object| {
        is_of_host(object, &own.cluster_id, &own.hostname) && !(is_wanted && object.metadata.name == name)
    };
    let mut writes: Vec<Write> =
        known.iter().filter(is_other).map(|object| Write::Delete((*object).clone())).collect();
    if is_wanted {
        let mut metadata = ObjectMeta::new(namespace, &name);
        metadata.labels.insert(label::PATHS_CLUSTER_ID.to_owned(), own.cluster_id.clone());
        let wanted = object(Kind::Endpoint, metadata, own);
        let existing = known.iter().copied().find(|object| object.metadata.name == name);
        writes.extend(make(existing, wanted, ENDPOINT_FIELDS));
    }
    Ok(writes)
}

/// Returns what a gateway publishes in its further Endpoints everywhere: the sole form of its Endpoint, and that it can be one
/// of several.
pub(super) fn further_spec(sole: &EndpointSpec, is_draining: bool) -> EndpointSpec {
    let mut spec = sole.clone();
    spec.set_supports_paths(true);
    spec.set_draining(is_draining);
    spec
}

/// Returns `true` if this is a further Endpoint of that host of that cluster. Its other fields may be of any shape.
pub(super) fn is_of_host(object: &Object, cluster_id: &str, hostname: &str) -> bool {
    let spec = object.body.get("spec");
    let text = |key: &str| spec.and_then(|spec| spec.get(key)).and_then(|value| value.as_str());
    object.metadata.name.starts_with(FURTHER_PREFIX)
        && object.metadata.labels.get(label::PATHS_CLUSTER_ID).is_some_and(|id| id == cluster_id)
        && text("hostname") == Some(hostname)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Member;

    fn spec(address: &str) -> EndpointSpec {
        let mut spec = EndpointSpec {
            cluster_id: "a".to_owned(),
            cable_name: format!("submariner-cable-a-{}", address.replace('.', "-")),
            hostname: "gw1".to_owned(),
            private_ip: address.to_owned(),
            backend: "wireguard".to_owned(),
            ..EndpointSpec::default()
        };
        spec.set_supports_paths(true);
        spec
    }

    fn created(writes: &[Write]) -> Object {
        let [Write::Create(object)] = writes else { panic!("{writes:?}") };
        object.clone()
    }

    #[test]
    fn a_further_endpoint_carries_our_label_and_not_upstreams_and_is_read_back() {
        let object = created(&plan_own("ns-paths", &spec("192.0.2.1"), true, &[]).unwrap());
        assert_eq!(object.metadata.name, "trieste-submariner-cable-a-192-0-2-1");
        assert_eq!(object.metadata.origin(), None);
        assert_eq!(Member::read(&object).unwrap().endpoint.spec, spec("192.0.2.1"));
        assert_eq!(plan_own("ns-paths", &spec("192.0.2.1"), true, &[&object]), Ok(Vec::new()));
    }

    #[test]
    fn what_the_host_said_under_another_address_goes_and_other_hosts_stay() {
        let old = created(&plan_own("ns", &spec("192.0.2.1"), true, &[]).unwrap());
        let other = EndpointSpec { hostname: "gw2".to_owned(), ..spec("192.0.2.3") };
        let other = created(&plan_own("ns", &other, true, &[]).unwrap());
        let writes = plan_own("ns", &spec("192.0.2.2"), true, &[&old, &other]).unwrap();
        assert!(matches!(&writes[..], [Write::Delete(gone), Write::Create(_)] if *gone == old), "{writes:?}");
        let writes = plan_own("ns", &spec("192.0.2.1"), false, &[&old, &other]).unwrap();
        assert_eq!(writes, [Write::Delete(old)]);
    }

    #[test]
    fn a_change_keeps_what_others_have_added() {
        let mut known = created(&plan_own("ns", &spec("192.0.2.1"), true, &[]).unwrap());
        known.metadata.resource_version = Some("7".to_owned());
        known.metadata.annotations.insert("note".to_owned(), "mine".to_owned());
        let mut draining = spec("192.0.2.1");
        draining.set_draining(true);
        let writes = plan_own("ns", &draining, true, &[&known]).unwrap();
        let [Write::Update(object)] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!(object.metadata.annotations, known.metadata.annotations);
        assert!(Member::read(object).unwrap().endpoint.spec.is_draining());
    }

    #[test]
    fn what_contradicts_itself_is_no_member() {
        let object = created(&plan_own("ns", &spec("192.0.2.1"), true, &[]).unwrap());
        let mut other = object.clone();
        other.metadata.labels.insert(label::PATHS_CLUSTER_ID.to_owned(), "b".to_owned());
        assert_eq!(Member::read(&other), None, "another cluster's label");
        let mut other = object.clone();
        other.metadata.name.push('0');
        assert_eq!(Member::read(&other), None, "another gateway's name");
        let mut other = object;
        other.metadata.labels.insert(label::CLUSTER_ID.to_owned(), "a".to_owned());
        assert_eq!(Member::read(&other), None, "upstream's label");
    }
}
