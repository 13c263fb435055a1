//! OpenShift's description of a gateway's machine.

use serde_json::{Map, Value, json};

use super::names::{GATEWAY_TAG, made_for_gateways};
use super::settings::Settings;
use super::state::{State, worker_spec};
use crate::CloudError;
use crate::cluster::machine_set;

/// Upstream's default.
const MACHINE_TYPE: &str = "n1-standard-4";
/// Upstream's, for a disk whose type goes with every type of machine.
const DISK_TYPE: &str = "pd-ssd";
const DISK_GB: u32 = 128;

/// What a gateway's machine takes from a worker's as it is.
const IN_COMMON: [&str; 8] = [
    "apiVersion",
    "kind",
    "credentialsSecret",
    "labels",
    "resourceManagerTags",
    "serviceAccounts",
    "shieldedInstanceConfig",
    "userDataSecret",
];

/// Returns the provider's part of a set of machines for a gateway in a zone: a worker's with upstream's differences — its own type,
/// an external address, forwarding, and the tag of gateways.
///
/// # Errors
/// [`CloudError::Refused`] if no set of workers shows an image.
pub(super) fn provider_spec(
    state: &State,
    settings: &Settings,
    instance: Option<&str>,
    zone: &str,
) -> Result<Value, CloudError> {
    let infra_id = &state.infra_id;
    let refused = || {
        CloudError::refused(
            "no MachineSet of workers shows the image of the cluster's machines",
            "label a node as a gateway yourself (kubectl label node NODE submariner.io/gateway=true), and prepare with --gateways 0",
        )
    };
    let worker = worker_spec(state).ok_or_else(refused)?;
    let disk = boot_disk(worker, instance.is_some()).ok_or_else(refused)?;
    let mut spec: Map<String, Value> = [
        ("apiVersion", json!("gcpprovider.openshift.io/v1beta1")),
        ("kind", json!("GCPMachineProviderSpec")),
        ("credentialsSecret", json!({"name": "gcp-cloud-credentials"})),
        ("userDataSecret", json!({"name": "worker-user-data"})),
        (
            "serviceAccounts",
            json!([{
                "email": format!("{infra_id}-w@{}.iam.gserviceaccount.com", state.project),
                "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            }]),
        ),
    ]
    .into_iter()
    .map(|(field, value)| (field.to_owned(), value))
    .collect();
    for field in IN_COMMON {
        if let Some(value) = worker.get(field).filter(|value| !value.is_null()) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    let own = json!({
        "canIPForward": true,
        "deletionProtection": false,
        "disks": [disk],
        "machineType": instance.unwrap_or(MACHINE_TYPE),
        "networkInterfaces": [interface(worker, state, settings)],
        "projectID": state.project,
        "region": state.region,
        "tags": tags(worker, infra_id),
        "zone": zone,
    });
    spec.extend(own.as_object().cloned().into_iter().flatten());
    Ok(Value::Object(spec))
}

/// Returns a set for gateways with another type of machine, and all else of its specification as it is, its replicas too; `None` if
/// its machines are of this type, or if it describes none.
pub(super) fn retyped(found: &Value, infra_id: &str, instance: &str) -> Option<Value> {
    let zone = found["metadata"]["name"].as_str()?.strip_prefix(&made_for_gateways(infra_id))?;
    let mut spec = found.get("spec")?.clone();
    let provider = spec.pointer_mut("/template/spec/providerSpec/value")?.as_object_mut()?;
    let before = provider.insert("machineType".to_owned(), json!(instance));
    if before.is_some_and(|before| before == instance) {
        return None;
    }
    // What is applied leaves alone what it does not name: of the metadata, names and label are enough.
    let mut set = machine_set(infra_id, zone, &Value::Null);
    set.as_object_mut()?.insert("spec".to_owned(), spec);
    Some(set)
}

/// Returns the worker's first disk, in upstream's size; its type stays where somebody has chosen a type of machine for it.
fn boot_disk(worker: &Value, keeps_type: bool) -> Option<Value> {
    let disk = worker["disks"].as_array()?.first()?;
    disk["image"].as_str().filter(|image| !image.is_empty())?;
    let mut own = disk.as_object()?.clone();
    own.insert("autoDelete".to_owned(), json!(true));
    own.insert("boot".to_owned(), json!(true));
    own.insert("sizeGb".to_owned(), json!(DISK_GB));
    if !keeps_type || !own.contains_key("type") {
        own.insert("type".to_owned(), json!(DISK_TYPE));
    }
    Some(Value::Object(own))
}

fn interface(worker: &Value, state: &State, settings: &Settings) -> Value {
    let of_worker = worker["networkInterfaces"][0].as_object();
    let mut own = of_worker.cloned().unwrap_or_default();
    if let Some(network) = &state.network {
        own.insert("network".to_owned(), json!(network.name));
        if network.project != state.project {
            own.insert("projectID".to_owned(), json!(network.project));
        }
    }
    let subnet = settings.subnet.clone().map(Value::String);
    let subnet = subnet.or_else(|| own.get("subnetwork").cloned());
    let default = || json!(format!("{}-worker-subnet", state.infra_id));
    own.insert("subnetwork".to_owned(), subnet.unwrap_or_else(default));
    own.insert("publicIP".to_owned(), json!(true));
    Value::Object(own)
}

fn tags(worker: &Value, infra_id: &str) -> Vec<String> {
    let of_worker = worker["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut tags: Vec<String> = of_worker.map(str::to_owned).collect();
    for more in [format!("{infra_id}-worker"), GATEWAY_TAG.to_owned()] {
        if !tags.contains(&more) {
            tags.push(more);
        }
    }
    tags
}
