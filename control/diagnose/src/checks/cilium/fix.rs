//! What `diagnose cni --fix` writes for Cilium: entries of its agent's list, which Cilium reads again by itself.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::json;
use trieste_control::api::{Cluster, Gateway, HaStatus};
use trieste_control::network_map::outermost;
use trieste_control::steps::{Outcome, Steps};

use super::list::{DEFAULT_LIST, List};
use super::settings::{Data, ENTRY, LIST, NAMESPACE, SETTINGS, has_agent, list_of, masqueraded};
use crate::checks::Checked;
use crate::checks::fix::{Write, write};
use crate::facts::{FactError, Found, within};

/// What is written, or why nothing is.
#[derive(Debug, PartialEq)]
enum Plan {
    Write(Box<Write>),
    Nothing(Outcome, String),
}

/// Writes the networks that are missing in the list, where the list counts.
pub(super) async fn fix(checked: &Checked, settings: &Data, remote: &[IpNet], steps: &mut dyn Steps) {
    steps.begin("Looking for networks that --fix excepts from Cilium's masquerading");
    let plan = match planned(checked, settings, remote).await {
        Ok(plan) => plan,
        Err(error) => Plan::Nothing(Outcome::Failure, error.to_string()),
    };
    match plan {
        Plan::Nothing(outcome, text) => {
            steps.remark(outcome, &text);
            steps.end(Outcome::Success);
        }
        Plan::Write(planned) => {
            steps.end(Outcome::Success);
            if write(&checked.source.client, std::slice::from_ref(&planned), steps).await > 0 {
                let text = "Cilium reads the list again by itself; it may take a minute until the kubelets have brought it to their nodes";
                steps.remark(Outcome::Success, text);
            }
        }
    }
}

async fn planned(checked: &Checked, settings: &Data, remote: &[IpNet]) -> Result<Plan, FactError> {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let maps = Api::<DynamicObject>::namespaced_with(checked.source.client.clone(), NAMESPACE, &resource);
    let found = match within("Cilium's list", maps.get(LIST)).await? {
        Found::There(map) => Some(map),
        Found::Missing => None,
    };
    let clusters = checked.source.list::<Cluster>("Cluster", "clusters").await?.unwrap_or_default();
    let own = own_networks(&checked.source.gateways().await?, &clusters);
    Ok(plan(settings, found, remote, &own))
}

/// Returns the networks of this cluster: those of its Cluster object, and without Globalnet those that its gateways announce.
fn own_networks(gateways: &[Gateway], clusters: &[Cluster]) -> Vec<IpNet> {
    let active = gateways.iter().filter(|gateway| gateway.status.ha_status == HaStatus::Active);
    let locals: Vec<_> = active.map(|gateway| &gateway.status.local_endpoint).collect();
    let is_own = |cluster: &&Cluster| locals.iter().any(|local| local.cluster_id == cluster.spec.cluster_id);
    let own: Vec<&Cluster> = clusters.iter().filter(is_own).collect();
    let has_globalnet = own.iter().any(|cluster| !cluster.spec.global_cidr.is_empty());
    let announced = locals.iter().filter(|_| !has_globalnet).flat_map(|local| &local.subnets);
    let of_clusters =
        own.iter().flat_map(|cluster| cluster.spec.cluster_cidr.iter().chain(&cluster.spec.service_cidr));
    let all = of_clusters.chain(announced).filter_map(|text| text.parse::<IpNet>().ok());
    outermost(all.map(|network| network.trunc()))
}

/// Plans the ConfigMap: the networks that are missing behind those of its list, or a list that also has what the default one has, whose
/// place it takes, and the cluster's own networks.
fn plan(settings: &Data, found: Option<DynamicObject>, remote: &[IpNet], own: &[IpNet]) -> Plan {
    let data: Option<Data> =
        found.as_ref().map(|map| serde_json::from_value(map.data["data"].clone()).unwrap_or_default());
    let (masqueraded, unread) = masqueraded(settings, data.as_ref(), remote);
    let missing = outermost(masqueraded.iter().map(IpNet::trunc));
    if let Some(why) = unread {
        let outcome = if missing.is_empty() { Outcome::Warning } else { Outcome::Failure };
        return Plan::Nothing(outcome, format!("{why}. --fix leaves it as it is"));
    }
    if missing.is_empty() {
        return Plan::Nothing(Outcome::Success, "no network is missing: --fix writes nothing".to_owned());
    }
    if !has_agent(settings) {
        let text = format!(
            "enable-ip-masq-agent in {NAMESPACE}/{SETTINGS} is not true, so that Cilium reads no list: --fix writes nothing, since this \
             setting counts after a restart of Cilium only. What to set follows"
        );
        return Plan::Nothing(Outcome::Warning, text);
    }
    match list_of(data.as_ref()) {
        Some(text) => {
            let list = List::parse(text).and_then(|list| list.with(&missing).to_text());
            let note = if text.contains('#') { "; comments in it are not kept" } else { "" };
            written(found, list, &format!("nonMasqueradeCIDRs gets {}{note}", joined(&missing)))
        }
        None => {
            let all = whole(&missing, own);
            let shown =
                format!("a list in the place of Cilium's default one, nonMasqueradeCIDRs: {}", joined(&all));
            written(found, List::new(&all).to_text(), &shown)
        }
    }
}

/// Returns what a new list has: what the default one has, then those of the cluster's own networks and of the missing ones that are
/// in none before them.
fn whole(missing: &[IpNet], own: &[IpNet]) -> Vec<IpNet> {
    let mut all: Vec<IpNet> = DEFAULT_LIST.iter().filter_map(|text| text.parse().ok()).collect();
    for network in own.iter().chain(missing) {
        if !all.iter().any(|there| there.contains(network)) {
            all.push(*network);
        }
    }
    all
}

fn joined(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the ConfigMap with this list; others of its entries stay.
fn written(found: Option<DynamicObject>, list: Result<String, String>, shown: &str) -> Plan {
    let list = match list {
        Ok(list) => list,
        Err(why) => return Plan::Nothing(Outcome::Failure, format!("no list was made: {why}")),
    };
    let resource = ApiResource::erase::<ConfigMap>(&());
    let verb = if found.is_some() { "changes" } else { "creates" };
    let mut map = found.unwrap_or_else(|| DynamicObject::new(LIST, &resource).within(NAMESPACE));
    let of_helm = "app.kubernetes.io/managed-by";
    let is_of_helm =
        map.metadata.labels.as_ref().and_then(|labels| labels.get(of_helm)).is_some_and(|by| by == "Helm");
    let note = match is_of_helm {
        true => {
            ". Helm made this ConfigMap: give its value ipMasqAgent.config the same entries, or the next upgrade takes them out"
        }
        false => "",
    };
    match map.data.as_object_mut() {
        Some(fields) => {
            let data = fields.entry("data").or_insert_with(|| json!({}));
            data[ENTRY] = json!(list);
        }
        None => map.data = json!({"data": {ENTRY: list}}),
    }
    let announcement = format!("--fix {verb} ConfigMap {NAMESPACE}/{LIST}, entry `{ENTRY}`: {shown}{note}");
    Plan::Write(Box::new(Write { resource, object: map, announcement }))
}

#[cfg(test)]
mod tests;
