//! The cluster's own DNS: that it forwards the set's names to our servers, and does so no more.
//!
//! | what a cluster has | where it is said |
//! |---|---|
//! | a ConfigMap for further servers, named by the user or imported by the Corefile (k3s, AKS) | its key `lighthouse.server` |
//! | CoreDNS with a Corefile in `kube-system` (`coredns`, or `…-coredns` as RKE2) | a section of the Corefile |
//! | OpenShift's DNS operator | servers called `lighthouse` in the object `DNS default` |
//! | MicroShift | a section of the Corefile in `openshift-dns/dns-default` |
//! | kube-dns (GKE) | `stubDomains` in the ConfigMap `kube-dns` |
//!
//! All of it is somebody else's: each object is read, changed in our part alone, and written if it is still as it was read.

mod corefile;

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{MANAGED_BY_LABEL, TRIESTE};
use crate::server::Server;
use corefile::{Forward, imports_servers, with_section};
pub use corefile::{ServerBlock, server_blocks};

const SYSTEM: &str = "kube-system";
/// The key of our servers in a ConfigMap of further ones, and the name of our entries in OpenShift's, as upstream's.
const CUSTOM_KEY: &str = "lighthouse.server";
const OPENSHIFT_NAME: &str = "lighthouse";
/// Where those that import them find further servers.
const CUSTOM_NAME: &str = "coredns-custom";

/// How often an object that somebody else changes at the same time is read anew.
const ATTEMPTS: u32 = 5;

/// A place that says where names are forwarded to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// The key [`CUSTOM_KEY`] of a ConfigMap.
    Custom(ObjectRef),
    /// A section of a Corefile.
    Corefile(ObjectRef),
    /// OpenShift's object.
    OpenShift(ObjectRef),
    /// kube-dns's ConfigMap.
    StubDomains(ObjectRef),
}

/// What became of the cluster's DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forwarded {
    /// The object that says it.
    pub(crate) place: ObjectRef,
    /// Whether it has changed.
    pub(crate) is_changed: bool,
    /// Whether a DNS server takes the change in by itself, as far as can be seen.
    pub(crate) is_reloaded: bool,
}

/// Lets the cluster's DNS forward the names of these zones to a server. `custom` is the ConfigMap for further servers that was
/// named, by namespace and name.
///
/// # Errors
/// [`DeployError::Refused`] if there is no place where it can be said, or what is there does not allow it, with what to write
/// by hand; [`DeployError`] if the server refuses.
pub(crate) async fn forward(
    server: &Server,
    zones: &[String],
    address: IpAddr,
    custom: Option<(&str, &str)>,
) -> Result<Forwarded, DeployError> {
    let forward = Forward { zones: zones.to_vec(), server: Some(address) };
    let Some(target) = find(server, custom).await? else {
        return Err(by_hand(&forward, "this cluster's DNS was not found".to_owned()));
    };
    if let Target::Custom(_) = target {
        // Twice would be once too often: CoreDNS would not start.
        let no_more = Forward { server: None, ..forward.clone() };
        for corefile in corefiles(server).await? {
            change(server, &Target::Corefile(corefile), &no_more).await?;
        }
    }
    change(server, &target, &forward).await
}

/// Takes out of every place what says where the set's names are forwarded to; returns the places that have changed.
///
/// # Errors
/// [`DeployError`].
pub(crate) async fn withdraw(
    server: &Server,
    zones: &[String],
    custom: Option<(&str, &str)>,
) -> Result<Vec<ObjectRef>, DeployError> {
    let mut targets = vec![Target::Custom(config_map(SYSTEM, CUSTOM_NAME))];
    targets.extend(custom.map(|(namespace, name)| Target::Custom(config_map(namespace, name))));
    targets.extend(corefiles(server).await?.into_iter().map(Target::Corefile));
    targets.extend([Target::OpenShift(openshift()), Target::StubDomains(config_map(SYSTEM, "kube-dns"))]);
    // Of stub domains the names alone tell which are ours.
    let no_more = Forward { zones: zones.to_vec(), server: None };
    let mut changed = Vec::new();
    for target in targets {
        let outcome = change(server, &target, &no_more).await?;
        if outcome.is_changed {
            changed.push(outcome.place);
        }
    }
    Ok(changed)
}

/// Finds the place that counts.
async fn find(server: &Server, custom: Option<(&str, &str)>) -> Result<Option<Target>, DeployError> {
    if let Some((namespace, name)) = custom {
        return Ok(Some(Target::Custom(config_map(namespace, name))));
    }
    if let Some(place) = corefiles(server).await?.into_iter().next() {
        let found = server.find(&place).await?.unwrap_or_default();
        let corefile = found["data"]["Corefile"].as_str().unwrap_or_default();
        let is_import = place.namespace.as_deref() == Some(SYSTEM) && imports_servers(corefile);
        let further = Target::Custom(config_map(SYSTEM, CUSTOM_NAME));
        return Ok(Some(if is_import { further } else { Target::Corefile(place) }));
    }
    if server.find(&openshift()).await?.is_some() {
        return Ok(Some(Target::OpenShift(openshift())));
    }
    let kube_dns = config_map(SYSTEM, "kube-dns");
    Ok(server.find(&kube_dns).await?.map(|_| Target::StubDomains(kube_dns)))
}

/// Returns the ConfigMaps that are Corefiles of the cluster's DNS, the one that counts first. Where OpenShift's operator makes
/// them they are its own.
async fn corefiles(server: &Server) -> Result<Vec<ObjectRef>, DeployError> {
    let mut found: Vec<ObjectRef> = Vec::new();
    let is_corefile = |object: &Value| object["data"]["Corefile"].is_string();
    let coredns = config_map(SYSTEM, "coredns");
    if server.find(&coredns).await?.is_some_and(|object| is_corefile(&object)) {
        found.push(coredns);
    } else {
        let all = server.list("v1", "ConfigMap", Some(SYSTEM), "").await?;
        let is_named = |place: &ObjectRef| place.name.ends_with("-coredns");
        found.extend(
            all.iter().filter(|object| is_corefile(object)).filter_map(ObjectRef::of).filter(is_named),
        );
    }
    let microshift = config_map("openshift-dns", "dns-default");
    if found.is_empty()
        && server.find(&openshift()).await?.is_none()
        && server.find(&microshift).await?.is_some_and(|object| is_corefile(&object))
    {
        found.push(microshift);
    }
    Ok(found)
}

/// Writes our part of an object, or removes it where nothing is forwarded.
async fn change(server: &Server, target: &Target, forward: &Forward) -> Result<Forwarded, DeployError> {
    let (Target::Custom(place)
    | Target::Corefile(place)
    | Target::OpenShift(place)
    | Target::StubDomains(place)) = target;
    let mut is_reloaded = true;
    for _ in 0..ATTEMPTS {
        let Some(found) = server.find(place).await? else {
            let made = forward.blocks(53).filter(|_| matches!(target, Target::Custom(_)));
            let is_made = made.is_some();
            if let Some(blocks) = made {
                server.create(&custom_map(place, &blocks)).await?;
            }
            return Ok(Forwarded { place: place.clone(), is_changed: is_made, is_reloaded });
        };
        let wanted = match target {
            Target::Custom(_) => custom(&found, forward),
            Target::Corefile(_) => {
                let corefile = found["data"]["Corefile"].as_str().unwrap_or_default();
                is_reloaded = corefile.lines().any(|line| line.split_whitespace().next() == Some("reload"));
                let wanted = with_section(corefile, forward)
                    .map_err(|error| by_hand(forward, format!("{place} was left as it is: {error}")))?;
                let mut object = found.clone();
                object["data"]["Corefile"] = json!(wanted);
                object
            }
            Target::OpenShift(_) => servers(&found, forward),
            Target::StubDomains(_) => stub_domains(&found, forward),
        };
        if wanted == found {
            return Ok(Forwarded { place: place.clone(), is_changed: false, is_reloaded });
        }
        let is_empty = wanted["data"].as_object().is_none_or(serde_json::Map::is_empty);
        if forward.server.is_none() && is_empty && found["metadata"]["labels"][MANAGED_BY_LABEL] == TRIESTE {
            server.delete(place).await?;
            return Ok(Forwarded { place: place.clone(), is_changed: true, is_reloaded });
        }
        if server.replace(&wanted).await? {
            return Ok(Forwarded { place: place.clone(), is_changed: true, is_reloaded });
        }
    }
    Err(DeployError::refused(
        format!("{place} was changed by somebody else each time that it was to be written"),
        "repeat the command",
    ))
}

fn by_hand(forward: &Forward, what: String) -> DeployError {
    let next = match forward.blocks(53) {
        Some(blocks) => format!("let the cluster's DNS have:\n{blocks}"),
        None => format!("take out of it what forwards {}", forward.zones.join(", ")),
    };
    DeployError::refused(what, next)
}

/// Returns a ConfigMap for further servers where there is none: it goes with ours.
fn custom_map(place: &ObjectRef, blocks: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": place.name, "namespace": place.namespace, "labels": {MANAGED_BY_LABEL: TRIESTE}},
        "data": {CUSTOM_KEY: blocks},
    })
}

fn custom(found: &Value, forward: &Forward) -> Value {
    let mut object = found.clone();
    match forward.blocks(53) {
        Some(blocks) => object["data"][CUSTOM_KEY] = json!(blocks),
        None => {
            if let Some(data) = object["data"].as_object_mut() {
                data.remove(CUSTOM_KEY);
            }
        }
    }
    object
}

/// Returns OpenShift's object with a server of ours for each zone, after those of others, or without any.
fn servers(found: &Value, forward: &Forward) -> Value {
    let mut object = found.clone();
    let is_ours = |server: &Value| server["name"] == OPENSHIFT_NAME;
    let all = found["spec"]["servers"].as_array().cloned().unwrap_or_default();
    let (ours, mut kept): (Vec<Value>, Vec<Value>) = all.into_iter().partition(is_ours);
    let is_same = |(server, zone): (&Value, &String), upstreams: &Value| {
        server["zones"] == json!([zone]) && server["forwardPlugin"]["upstreams"] == *upstreams
    };
    match forward.server.map(|server| json!([server.to_string()])) {
        Some(upstreams) => {
            let is_whole = ours.len() == forward.zones.len();
            if is_whole && ours.iter().zip(&forward.zones).all(|pair| is_same(pair, &upstreams)) {
                return object;
            }
            kept.extend(forward.zones.iter().map(|zone| {
                json!({"name": OPENSHIFT_NAME, "zones": [zone], "forwardPlugin": {"upstreams": upstreams}})
            }));
        }
        None if ours.is_empty() => return object,
        None => {}
    }
    object["spec"]["servers"] = json!(kept);
    object
}

/// Returns kube-dns's object with these stub domains or without them, which are a JSON text. One that is none is left alone.
fn stub_domains(found: &Value, forward: &Forward) -> Value {
    let mut object = found.clone();
    let text = found["data"]["stubDomains"].as_str().unwrap_or("{}");
    let Ok(Value::Object(before)) = serde_json::from_str::<Value>(text) else { return object };
    let mut domains = before.clone();
    for zone in &forward.zones {
        match forward.server {
            Some(server) => drop(domains.insert(zone.clone(), json!([server.to_string()]))),
            None => drop(domains.remove(zone)),
        }
    }
    if domains == before {
        return object;
    }
    if domains.is_empty() {
        if let Some(data) = object["data"].as_object_mut() {
            data.remove("stubDomains");
        }
    } else {
        object["data"]["stubDomains"] = json!(Value::Object(domains).to_string());
    }
    object
}

fn config_map(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::namespaced("v1", "ConfigMap", namespace, name)
}

fn openshift() -> ObjectRef {
    ObjectRef::cluster_wide("operator.openshift.io/v1", "DNS", "default")
}

#[cfg(test)]
mod tests;
