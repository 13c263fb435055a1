//! What keeps a member from writing what is another's.
//!
//! All members share one namespace of the broker, and Roles know names only, so that every member's Role lets it write
//! every other member's objects. An admission policy looks at the objects: a request of the account `cluster-<ID>` is
//! refused unless the object, before and after, speaks for `<ID>` alone. Nobody else's requests are looked at: not an
//! administrator's, and not those of accounts with other names.
//!
//! | kind | what a member may write |
//! |---|---|
//! | Cluster | the one of its name, with its ID in specification and label |
//! | Endpoint | those of its name and cable name, with its ID in specification and label; also further ones, `trieste-<cable>`, with our label alone |
//! | EndpointSlice | those whose source cluster it is |
//! | ServiceImport | all: exporters share them; but in each only its own time stamp, its own place among the clusters, and as an exporter what the service is like, its labels and annotations; never owners, finalizers and labels of clusters. It removes one that nobody else exports |
//!
//! IDs are compared as account names have them: what those cannot contain became a dash, and letters are small.
//! Names decide who is meant, so that no other member can take a name first: what follows the ID in a cable's name is the
//! Endpoint's own address. With IPv4 the name of a longer ID does not fit into it. With IPv6 it can, if the longer ID goes
//! on with a dash and up to four hexadecimal digits: 1:10::1 of `east` and 10::1 of `east-1` have one name.

use serde_json::{Value, json};
use trieste_control::members::FURTHER_PREFIX;

use super::Manifest;
use super::names::{cluster_account, policy_name};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Labels that name a cluster: upstream's for copies, ours for Endpoints that upstream is not to see, and those of
/// exported services, old and new.
const CLUSTER_LABELS: [&str; 4] = [
    "submariner-io/clusterID",
    "trieste.io/clusterID",
    "multicluster.kubernetes.io/source-cluster",
    "lighthouse.submariner.io/sourceCluster",
];

/// Of these labels a Cluster or Endpoint has one, or no other cluster sees whose it is.
const COPY_LABELS: [&str; 2] = ["submariner-io/clusterID", "trieste.io/clusterID"];

/// An address, whole: with fewer or more groups its dashes could be those of a longer or shorter ID.
const ADDRESS: &str =
    "^([0-9]{1,3}([.][0-9]{1,3}){3}|([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[0-9a-f:]*::[0-9a-f:.]*)$";

/// When a cluster has exported a service: one annotation for each.
const TIMESTAMP: &str = "timestamp.submariner.io/";
/// Which cluster has given a service its address.
const ALLOCATED_BY: &str = "lighthouse.submariner.io/clusterset-ip-allocated-by";

/// The policy by which members write only what is theirs, and what puts it into force.
pub fn admission_policy(broker_namespace: &str) -> [Manifest; 2] {
    let name = policy_name(broker_namespace);
    let policy = Manifest::make(API_VERSION, "ValidatingAdmissionPolicy", "", &name)
        .with("spec", specification(broker_namespace));
    let binding = Manifest::make(API_VERSION, "ValidatingAdmissionPolicyBinding", "", &name)
        .with("spec", json!({"policyName": name, "validationActions": ["Deny"]}));
    [policy, binding]
}

fn specification(namespace: &str) -> Value {
    let accounts = format!("system:serviceaccount:{namespace}:{}", cluster_account(""));
    let rule = |groups: &[&str], resources: &[&str]| {
        json!({
            "apiGroups": groups,
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": resources,
            "scope": "Namespaced",
        })
    };
    json!({
        // A policy that cannot be evaluated must not let through what it is there to refuse.
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "objectSelector": {},
            "resourceRules": [
                rule(&["submariner.io"], &["clusters", "endpoints"]),
                rule(&["discovery.k8s.io"], &["endpointslices"]),
                rule(&["multicluster.x-k8s.io"], &["serviceimports", "serviceimports/status"]),
            ],
        },
        "matchConditions": [{
            "name": "is-a-member",
            "expression": format!("request.userInfo.username.startsWith({})", quoted(&accounts)),
        }],
        "variables": variables(accounts.len()),
        "validations": [
            nobody_elses(), has_an_id(), has_a_label(), cluster_name(), endpoint_name(), has_a_source(),
            timestamps(), places(), exporters(), allocation(), last_exporter(), marks(), wording(),
        ],
    })
}

fn variables(prefix: usize) -> Value {
    let [labels, prefix] = [list(&CLUSTER_LABELS), prefix.to_string()];
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    json!([
        // Whom the account speaks for, and what is written.
        variable("cluster", format!("request.userInfo.username.substring({prefix})")),
        variable("kind", "request.resource.resource".to_owned()),
        variable("states", "[object, oldObject].filter(o, o != null)".to_owned()),
        // Every cluster that the object names, before or after.
        variable(
            "claims",
            format!(
                "variables.states.map(o, \
                 (has(o.spec) && has(o.spec.cluster_id) ? [string(o.spec.cluster_id)] : []) + \
                 (has(o.metadata.labels) ? {labels}.filter(k, k in o.metadata.labels)\
                 .map(k, string(o.metadata.labels[k])) : []))"
            ),
        ),
        variable(
            "strangers",
            format!(
                "variables.claims.map(ids, ids.filter(id, {} != variables.cluster)).filter(ids, size(ids) > 0)",
                as_account("id")
            ),
        ),
        // The annotations of a shared import, before and after; empty for one that is not there.
        variable("after", annotations("object")),
        variable("before", annotations("oldObject")),
        variable("own", format!("'{TIMESTAMP}' + variables.cluster")),
        variable("isImport", "variables.kind == 'serviceimports'".to_owned()),
        variable("isRemoval", "request.operation == 'DELETE'".to_owned()),
        variable("placesAfter", places_of("object")),
        variable("placesBefore", places_of("oldObject")),
        variable("labelsAfter", metadata("object", "labels", "{}")),
        variable("labelsBefore", metadata("oldObject", "labels", "{}")),
        // One that upstream's members neither import nor remove.
        variable(
            "isFurther",
            format!(
                "'{}' in variables.labelsAfter && !('{}' in variables.labelsAfter)",
                COPY_LABELS[1], COPY_LABELS[0]
            ),
        ),
        // An Endpoint's own addresses.
        variable(
            "addresses",
            "(has(object.spec.private_ip) ? [string(object.spec.private_ip)] : []) + \
             (has(object.spec.privateIPs) ? object.spec.privateIPs.map(a, string(a)) : [])"
                .to_owned(),
        ),
    ])
}

/// Nothing that another cluster is named in is written, nor written over, nor removed.
fn nobody_elses() -> Value {
    let message = "'this account speaks for cluster ' + variables.cluster + ' and may not write what names cluster ' \
                   + variables.strangers[0][0] + ' (specification or label), before or after'";
    validation("size(variables.strangers) == 0", message)
}

fn has_an_id() -> Value {
    let expression = "!(variables.kind in ['clusters', 'endpoints']) || \
                      variables.states.all(o, has(o.spec) && has(o.spec.cluster_id))";
    validation(expression, "'spec.cluster_id is missing: whose object is it?'")
}

fn has_a_label() -> Value {
    let labels = list(&COPY_LABELS);
    let expression = format!(
        "variables.isRemoval || !(variables.kind in ['clusters', 'endpoints']) || \
         (has(object.metadata.labels) && {labels}.exists(k, k in object.metadata.labels))"
    );
    let message =
        format!("'the label {} is missing; it must name cluster ' + variables.cluster", COPY_LABELS[0]);
    validation(&expression, &message)
}

fn cluster_name() -> Value {
    let expression =
        "variables.isRemoval || variables.kind != 'clusters' || object.metadata.name == variables.cluster";
    let message =
        "'cluster ' + variables.cluster + ' may only write the Cluster object called ' + variables.cluster";
    validation(expression, message)
}

fn endpoint_name() -> Value {
    let expression = format!(
        "variables.isRemoval || variables.kind != 'endpoints' || (\
         has(object.spec.cable_name) && \
         (object.metadata.name == variables.cluster + '-' + {cable} || \
         (object.metadata.name == '{FURTHER_PREFIX}' + {cable} && variables.isFurther)) && \
         variables.addresses.exists(a, a.matches('{ADDRESS}') && \
         {cable} == 'submariner-cable-' + variables.cluster + '-' + a.replace('.', '-').replace(':', '-')))",
        cable = as_account("object.spec.cable_name")
    );
    let message = "'an Endpoint of cluster ' + variables.cluster + ' is called ' + variables.cluster + \
                   '-submariner-cable-' + variables.cluster + '-<its private address, with dashes>, and its cable without the \
                   first ' + variables.cluster + ' and its dash; a further one is called trieste-<its cable>, and its one label of a \
                   cluster is trieste.io/clusterID'";
    validation(&expression, message)
}

fn has_a_source() -> Value {
    let label = CLUSTER_LABELS[2];
    let expression = format!(
        "variables.kind != 'endpointslices' || \
         variables.states.all(o, has(o.metadata.labels) && '{label}' in o.metadata.labels)"
    );
    validation(&expression, &format!("'the label {label} is missing: whose EndpointSlice is it?'"))
}

/// Others' time stamps stay as they are, unless the whole object goes.
fn timestamps() -> Value {
    let others = |of: &str, there: &str| {
        format!(
            "variables.{of}.all(k, !k.startsWith('{TIMESTAMP}') || k == variables.own || \
             (k in variables.{there} && variables.{there}[k] == variables.{of}[k]))"
        )
    };
    let expression = format!(
        "!variables.isImport || variables.isRemoval || ({} && {})",
        others("before", "after"),
        others("after", "before")
    );
    let message = format!(
        "'cluster ' + variables.cluster + ' may only write its own annotation {TIMESTAMP}' + variables.cluster"
    );
    validation(&expression, &message)
}

/// Others' places among the exporters stay.
fn places() -> Value {
    let expression = "!variables.isImport || variables.isRemoval || (\
                      variables.placesBefore.all(c, c == variables.cluster || c in variables.placesAfter) && \
                      variables.placesAfter.all(c, c == variables.cluster || c in variables.placesBefore))";
    let message = "'cluster ' + variables.cluster + ' may only add or remove itself among the clusters of a ServiceImport'";
    validation(expression, message)
}

/// What a service is like is said by those who export it.
fn exporters() -> Value {
    let expression = "!variables.isImport || request.operation != 'UPDATE' || \
                      variables.own in variables.after || variables.own in variables.before || \
                      (has(object.spec) == has(oldObject.spec) && \
                      (!has(object.spec) || object.spec == oldObject.spec))";
    let message = format!(
        "'cluster ' + variables.cluster + ' does not export this service (there is no annotation {TIMESTAMP}' + \
         variables.cluster + ') and may not say what it is like'"
    );
    validation(expression, &message)
}

/// Lets nobody take the allocation of a service's address upon somebody else, or take it away from them while they export the service and
/// it has the address.
fn allocation() -> Value {
    let value =
        |of: &str| format!("('{ALLOCATED_BY}' in variables.{of} ? variables.{of}['{ALLOCATED_BY}'] : '')");
    let (after, before) = (value("after"), value("before"));
    let expression = format!(
        "!variables.isImport || variables.isRemoval || {after} == {before} || \
         ({after} in ['', variables.cluster] && ({before} in ['', variables.cluster] || \
         !(('{TIMESTAMP}' + {before}) in variables.before) || \
         !(oldObject != null && has(oldObject.spec) && has(oldObject.spec.ips) && size(oldObject.spec.ips) > 0)))"
    );
    let message = format!(
        "'cluster ' + variables.cluster + ' may only write itself into the annotation {ALLOCATED_BY}, and in the place \
         of another cluster only if that does not export the service or the address is gone'"
    );
    validation(&expression, &message)
}

fn last_exporter() -> Value {
    let expression = format!(
        "!variables.isImport || !variables.isRemoval || (\
         variables.before.all(k, !k.startsWith('{TIMESTAMP}') || k == variables.own) && \
         variables.placesBefore.all(c, c == variables.cluster))"
    );
    let message =
        "'cluster ' + variables.cluster + ' may not remove a ServiceImport that other clusters export'";
    validation(&expression, message)
}

/// Marks by which an import would be one cluster's alone, or go with something else, or never.
fn marks() -> Value {
    let labels = list(&CLUSTER_LABELS);
    let same = |field: &str| {
        format!("{} == {}", metadata("object", field, "[]"), metadata("oldObject", field, "[]"))
    };
    let expression = format!(
        "!variables.isImport || variables.isRemoval || ({labels}.all(k, \
         (k in variables.labelsAfter) == (k in variables.labelsBefore) && \
         (!(k in variables.labelsAfter) || variables.labelsAfter[k] == variables.labelsBefore[k])) && \
         ({}) && ({}))",
        same("ownerReferences"),
        same("finalizers"),
    );
    let message = "'cluster ' + variables.cluster + ' may not change owners, finalizers or the labels of clusters of a \
                   ServiceImport: it is shared'";
    validation(&expression, message)
}

/// Labels and annotations are written by those who export the service.
fn wording() -> Value {
    let expression = "!variables.isImport || request.operation != 'UPDATE' || \
                      variables.own in variables.after || variables.own in variables.before || \
                      (variables.labelsAfter == variables.labelsBefore && variables.after == variables.before)";
    let message = "'cluster ' + variables.cluster + ' does not export this service and may not change its labels and \
                   annotations'";
    validation(expression, message)
}

fn validation(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "messageExpression": message, "reason": "Forbidden"})
}

fn annotations(object: &str) -> String {
    metadata(object, "annotations", "{}")
}

/// A field of an object's metadata; empty for an object that is not there.
fn metadata(object: &str, field: &str, empty: &str) -> String {
    format!("({object} != null && has({object}.metadata.{field}) ? {object}.metadata.{field} : {empty})")
}

fn places_of(object: &str) -> String {
    format!(
        "{object} != null && has({object}.status) && has({object}.status.clusters) ? \
         {object}.status.clusters.map(c, c.cluster) : []"
    )
}

/// A text as it is in the name of an account.
fn as_account(text: &str) -> String {
    format!("{text}.lowerAscii().split('').map(c, c.matches('^[a-z0-9.-]$') ? c : '-').join('')")
}

fn list(texts: &[&str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}

fn quoted(text: &str) -> String {
    format!("'{text}'")
}
