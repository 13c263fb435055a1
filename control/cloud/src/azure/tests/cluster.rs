//! Nodes and sets of machines, as they are in Azure.

use serde_json::{Value, json};

/// A node.
pub(super) fn node(name: &str, provider_id: &str, is_gateway: bool) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {
            "node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "westeurope-1",
            "topology.kubernetes.io/region": "westeurope",
        }},
        "spec": {"providerID": provider_id},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    if is_gateway {
        node["metadata"]["labels"]["submariner.io/gateway"] = json!("true");
    }
    node
}

/// A set of worker machines of OpenShift's.
pub(super) fn workers() -> Value {
    json!({
        "metadata": {"name": "east-worker-westeurope1", "namespace": "openshift-machine-api",
            "labels": {"machine.openshift.io/cluster-api-cluster": "east"}},
        "spec": {"replicas": 2, "template": {
            "metadata": {"labels": {"machine.openshift.io/cluster-api-machine-role": "worker"}},
            "spec": {"providerSpec": {"value": {
                "apiVersion": "machine.openshift.io/v1beta1", "kind": "AzureMachineProviderSpec",
                "image": {"resourceID": "/resourceGroups/east-rg/providers/Microsoft.Compute/galleries/g/images/i"},
                "location": "westeurope", "managedIdentity": "east-identity", "networkResourceGroup": "east-rg",
                "resourceGroup": "east-rg", "subnet": "east-worker-subnet", "vnet": "east-vnet", "zone": "1",
                "vmSize": "Standard_D4s_v3", "publicIP": false, "publicLoadBalancer": "east",
                "osDisk": {"diskSizeGB": 128}, "userDataSecret": {"name": "worker-user-data"},
                "credentialsSecret": {"name": "azure-cloud-credentials", "namespace": "openshift-machine-api"},
            }}},
        }},
    })
}

/// A set that upstream's tool has made for gateways in zone 2.
pub(super) fn upstreams_set() -> Value {
    let mut set = workers();
    set["metadata"]["name"] = json!("subgw-westeur-0a1b2c");
    set["spec"]["replicas"] = json!(1);
    set["spec"]["template"]["spec"]["metadata"] = json!({"labels": {"submariner.io/gateway": "true"}});
    set["spec"]["template"]["spec"]["providerSpec"]["value"]["zone"] = json!("2");
    set["spec"]["template"]["spec"]["providerSpec"]["value"]["securityGroup"] =
        json!("east-submariner-external-sg");
    set
}
