//! Objects from the broker: any document is an object or an error; what is an object survives being written again.

use trieste_control::api::{Endpoint, EndpointSpec, Object};

pub(super) fn target(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    let Ok(object) = Object::from_value(value) else { return };
    let again = Object::from_value(object.to_value()).expect("what was read can be read again");
    assert!(again.same_content(&object));
    let spec = object.to_value()["spec"].clone();
    if let Ok(spec) = serde_json::from_value::<EndpointSpec>(spec) {
        // Either is fine; neither may panic.
        let _ = spec.parse().is_ok();
        let _ = Endpoint::new("ns", spec).is_ok();
    }
}
