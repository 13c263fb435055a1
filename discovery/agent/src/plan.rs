//! What is to be written to each store because of the objects of one service.
//!
//! ```text
//!   ServiceExport, Service, EndpointSlices, GlobalIngressIPs ─▶ Facts ─▶ here:   own import, own slices, conditions
//!                                                                └─────▶ broker: own slices, own part of the import
//!   the broker's import and others' slices ───────────────────────────▶ here:   copies in the service's namespace
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};
use trieste_control::api::{
    ImportPort, Kind, Object, ObjectMeta, ServiceImportType, annotation, displace, label,
};
use trieste_control::runner::Write;
use trieste_control::sync::Networks;

use crate::accepted::without_dropped;
use crate::aggregate::{self, Address, Merged, Part, is_same};
use crate::clusterset::Lacking;
use crate::conditions::{self, Lack, Progress};
use crate::config::AgentConfig;
use crate::facts::Facts;
use crate::family::{Family, PerFamily};
use crate::metadata;
use crate::name::{BROKER, LOCAL, ServiceName};
use crate::owned;
use crate::row::Row;
use crate::service::{self, Exported};
use crate::slices;

/// A service, and what else its plan depends on.
pub(crate) struct View<'a> {
    pub(crate) name: &'a ServiceName,
    pub(crate) config: &'a AgentConfig,
    pub(crate) row: &'a Row,
    /// Which addresses are whose.
    pub(crate) networks: &'a Networks,
    /// Whether this cluster has the namespace.
    pub(crate) has_namespace: bool,
    /// Whether it is known what the broker has.
    pub(crate) has_read_broker: bool,
    /// Whether copies stay that the broker does not have any more.
    pub(crate) keeps_copies: bool,
    /// Another service whose import has the name on the broker that this one's would have.
    pub(crate) other_aggregate: Option<&'a ServiceName>,
    /// Another service whose own import has the name that this one's would have here.
    pub(crate) other_import: Option<&'a ServiceName>,
    /// Names that somebody else's slices have on the broker.
    pub(crate) taken: &'a BTreeSet<String>,
    /// What is wrong with the address of each family for all clusters of the broker's import.
    pub(crate) ip_problems: PerFamily<Option<String>>,
    /// The address for all clusters that this cluster is to give it.
    pub(crate) promises: PerFamily<Option<IpAddr>>,
    /// Why it has none to give.
    pub(crate) lacking: PerFamily<Option<&'a Lacking>>,
    /// Why the broker did not take the last write.
    pub(crate) failure: Option<&'a str>,
    /// Fields of imports that the definitions here and on the broker do not know.
    pub(crate) dropped: [&'a BTreeSet<String>; 2],
    /// Whether imports here may have two addresses for all clusters.
    pub(crate) takes_two_ips: bool,
}

impl View<'_> {
    /// Returns what follows from the objects of the service.
    fn facts(&self) -> Facts {
        Facts::of(self.name, self.config, self.row, (self.networks, self.taken))
    }

    /// Returns the address of a family for all clusters that the broker's import has, if nothing is wrong with it.
    fn ip(&self, family: Family) -> Option<IpAddr> {
        let import = self.row.aggregate.as_ref().filter(|_| self.ip_problems[family].is_none())?;
        owned::clusterset_ip(import, family)
    }
}

/// Returns of which families this cluster is to give the service an address for all clusters.
pub(crate) fn needs_addresses(view: &View<'_>) -> PerFamily<bool> {
    let asks = |export: &Object| service::asks_for_clusterset_ip(export, view.config);
    let of_set = view.config.clusterset_families();
    let has_all = Family::ALL.into_iter().all(|family| !of_set[family] || view.ip(family).is_some());
    if view.other_aggregate.is_some() || has_all || !view.row.export.as_ref().is_some_and(asks) {
        return PerFamily::default();
    }
    let facts = view.facts();
    PerFamily::new(|family| facts.gives(family) && view.ip(family).is_none())
}

/// Returns why a service that is exported has not every address for all clusters that it should, if this cluster asks for them and
/// no other disagrees.
fn lacking(view: &View<'_>, facts: &Facts) -> Option<Lack> {
    let exported = facts.exported().filter(|exported| exported.asks_for_clusterset_ip)?;
    let has = Family::ALL.into_iter().find(|family| view.ip(*family).is_some());
    let lack = |why: String| Some(Lack { why, has });
    if exported.kind == ServiceImportType::Headless {
        return lack("it is headless, and its own addresses are used".to_owned());
    }
    if facts.decides
        && let Some(untaken) = &exported.untaken
        && exported.set_families[Family::V6]
        && exported.ips.iter().any(IpAddr::is_ipv6)
    {
        return lack(format!(
            "other clusters do not take its IPv6 address, which Globalnet does not translate: {untaken}"
        ));
    }
    if facts.decides && !facts.uses_clusterset_ip {
        return lack(
            "it has no IPv4 address, and the set has no clusterset IPs of IPv6, as far as this cluster was told when it joined; \
             deploy-broker --clusterset-ip-cidr-range gives it a range of them"
                .to_owned(),
        );
    }
    if !facts.uses_clusterset_ip {
        return None;
    }
    let given = |family: Family| view.lacking[family].filter(|_| facts.gives(family));
    if let Some(lacking) = Family::ALL.into_iter().find_map(given) {
        return lack(lacking.to_string());
    }
    if let Some(problem) = view.ip_problems.iter().find_map(|(_, problem)| problem.as_ref()) {
        return lack(format!("the import {problem}"));
    }
    let oldest = facts.by_age.first().filter(|_| !facts.decides && has.is_none())?;
    lack(format!("cluster {oldest}, whose export is the oldest, has given none"))
}

/// Returns which annotations of the export cannot be used, and why.
fn ignored(facts: &Facts) -> Option<&str> {
    facts.exported()?.preferences.ignored.as_deref()
}

/// What is planned of a service here.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) writes: Vec<Write>,
    /// Whether a copy is kept for the time being.
    pub(crate) is_keeping: bool,
    /// Whether the export is on its way to the broker, and nothing was said of it yet.
    pub(crate) is_on_its_way: bool,
}

/// Returns what is to be written here.
pub(crate) fn local(view: &View<'_>, wall: Timestamp) -> Local {
    let (row, facts) = (view.row, view.facts());
    let mut writes = Vec::new();
    let (mut is_keeping, mut is_on_its_way) = (false, false);
    if view.has_read_broker || view.config.withdraws {
        is_keeping = copies(view, &mut writes);
    }
    let own: BTreeMap<&str, &Object> =
        facts.slices.iter().map(|slice| (slice.metadata.name.as_str(), slice)).collect();
    replace(&mut writes, &row.own, &own);
    local_import(view, &facts, &mut writes);
    if let Some(export) = row.export.as_ref().filter(|_| facts.verdict.is_some()) {
        let taken = view
            .other_aggregate
            .or(view.other_import)
            .map(|holder| format!("the import of service {holder} has its name"));
        let lacking = lacking(view, &facts);
        let progress = match taken.as_deref().or(view.failure) {
            Some(reason) => Progress::Failed(reason),
            None if is_published(view, &facts) => match (&lacking, ignored(&facts)) {
                (Some(lack), ignored) => Progress::WithoutAddress(lack, ignored),
                (None, Some(why)) => Progress::Ignoring(why),
                (None, None) => Progress::Published,
            },
            None => Progress::Awaiting,
        };
        is_on_its_way = conditions::is_on_its_way(export, &facts, progress);
        writes.extend(conditions::with_conditions(export, &facts, progress, wall).map(Write::UpdateStatus));
    }
    Local { writes, is_keeping, is_on_its_way }
}

/// Brings slices to what is wanted, by name: first those that are missing or differ, then those that are too many.
fn replace(writes: &mut Vec<Write>, existing: &BTreeMap<String, Object>, wanted: &BTreeMap<&str, &Object>) {
    for (name, wanted) in wanted {
        match existing.get(*name) {
            None => writes.push(Write::Create((*wanted).clone())),
            Some(found) if slices::agree(found, wanted) => {}
            Some(found) => writes.push(Write::Update(slices::amend(found, wanted))),
        }
    }
    let extra = existing.iter().filter(|(name, _)| !wanted.contains_key(name.as_str()));
    writes.extend(extra.map(|(_, slice)| Write::Delete(slice.stub())));
}

/// Copies of what the broker has of a service.
#[derive(Debug, Default, Clone)]
struct Copies {
    import: Option<Object>,
    slices: Vec<Object>,
}

/// Plans the copies of what the broker has: in the service's namespace, or where that is missing and missing ones are imported,
/// displaced. Returns `true` if one is kept that would have to go.
fn copies(view: &View<'_>, writes: &mut Vec<Write>) -> bool {
    let (row, config) = (view.row, view.config);
    let is_displaced = !view.has_namespace && config.imports_missing_namespaces;
    let is_wanted = !config.withdraws && (view.has_namespace || is_displaced);
    let here = if is_wanted { wanted_copies(view) } else { Copies::default() };
    let mut displaced = Copies::default();
    if is_wanted && (is_displaced || row.displaced_import.is_some() || !row.displaced_copies.is_empty()) {
        displaced = here.clone();
        let copies = displaced.import.iter_mut().chain(&mut displaced.slices);
        copies.for_each(|copy| displace(copy, &config.namespace));
    }
    let (own, other) = ((&row.import, &row.copies), (&row.displaced_import, &row.displaced_copies));
    let mut planned = Vec::new();
    if is_displaced {
        bring(&mut planned, other, &displaced);
        bring(&mut planned, own, &left_standing(here, own, other));
    } else {
        bring(&mut planned, own, &here);
        bring(&mut planned, other, &left_standing(displaced, other, own));
    }
    let before = planned.len();
    let is_others = |object: &Object| {
        let imports = [&row.import, &row.displaced_import];
        object.kind != Kind::ServiceImport
            || imports.into_iter().flatten().any(|import| aggregate::is_shared(import, &config.cluster_id))
    };
    planned.retain(|write| !matches!(write, Write::Delete(object) if view.keeps_copies && is_others(object)));
    let is_keeping = planned.len() < before;
    writes.append(&mut planned);
    is_keeping
}

/// Returns the copies of what the broker has, as they are in the service's namespace.
fn wanted_copies(view: &View<'_>) -> Copies {
    let row = view.row;
    let is_free = |name: &String| !row.sources.contains_key(name) && !row.own.contains_key(name);
    let foreign = row.foreign.iter().filter(|(name, _)| is_free(name)).map(|(_, slice)| {
        let mut copy = slices::for_here(slice, &view.name.namespace);
        owned::restrict(&mut copy, slice.metadata.origin().unwrap_or_default(), view.networks);
        copy
    });
    let slices = foreign.collect();
    Copies { import: row.aggregate.as_ref().map(|aggregate| copy_of(aggregate, view)), slices }
}

/// The copies that one namespace has: the import, and slices by name.
type Standing<'a> = (&'a Option<Object>, &'a BTreeMap<String, Object>);

/// Brings copies in one namespace to what is wanted there.
fn bring(writes: &mut Vec<Write>, (import, slices): Standing<'_>, wanted: &Copies) {
    let named = wanted.slices.iter().map(|slice| (slice.metadata.name.as_str(), slice)).collect();
    replace(writes, slices, &named);
    match (import, &wanted.import) {
        (None, Some(wanted)) => writes.push(Write::Create(wanted.clone())),
        (Some(found), Some(wanted)) => writes.extend(update(found, &amended(found, wanted))),
        (Some(found), None) => writes.push(Write::Delete(found.stub())),
        (None, None) => {}
    }
}

/// Returns those of the copies that stand in the place that is left, as they are to be by now, and that the other place does not
/// have yet.
fn left_standing(wanted: Copies, from: Standing<'_>, to: Standing<'_>) -> Copies {
    let is_left = |name: &str| from.1.contains_key(name) && !to.1.contains_key(name);
    Copies {
        import: wanted.import.filter(|_| from.0.is_some() && to.0.is_none()),
        slices: wanted.slices.into_iter().filter(|slice| is_left(&slice.metadata.name)).collect(),
    }
}

/// Returns the broker's import as it is in the service's namespace.
fn copy_of(aggregate: &Object, view: &View<'_>) -> Object {
    let name = view.name;
    let mut meta = ObjectMeta::new(&name.namespace, &name.name);
    meta.labels.clone_from(&aggregate.metadata.labels);
    meta.annotations.clone_from(&aggregate.metadata.annotations);
    for key in [label::SERVICE_NAME, label::SOURCE_NAMESPACE, metadata::EXPORTED] {
        meta.annotations.remove(key);
    }
    let mut copy = Object { body: aggregate.body.clone(), ..Object::new(Kind::ServiceImport, meta) };
    let is_used = aggregate.metadata.annotations.get(annotation::USE_CLUSTERSET_IP);
    // Upstream's agents leave the address in our annotation when they take the other one away.
    let counts = |family| family == Family::V4 || is_used.is_some_and(|is_used| is_used == "true");
    let ips = PerFamily::new(|family| view.ip(family).filter(|_| counts(family)));
    owned::copy_clusterset_ips(&mut copy, ips, view.takes_two_ips);
    without_dropped(&mut copy, view.dropped[LOCAL]);
    copy
}

fn amended(existing: &Object, wanted: &Object) -> Object {
    let mut amended = existing.clone();
    amended.metadata.labels.clone_from(&wanted.metadata.labels);
    amended.metadata.annotations.clone_from(&wanted.metadata.annotations);
    amended.body.clone_from(&wanted.body);
    amended
}

/// Returns the write that makes one import of another: of its status alone if nothing else differs.
fn update(existing: &Object, wanted: &Object) -> Option<Write> {
    let field = |object: &Object, field: &str| object.body.get(field).cloned().unwrap_or(Value::Null);
    let same_meta = existing.metadata.labels == wanted.metadata.labels
        && existing.metadata.annotations == wanted.metadata.annotations;
    if same_meta && existing.body.is_shared_with(&wanted.body) {
        return None;
    }
    if !same_meta || field(existing, "spec") != field(wanted, "spec") {
        return Some(Write::Update(wanted.clone()));
    }
    let same_status = aggregate::clusters(existing) == aggregate::clusters(wanted)
        && field(&nothing_else(existing), "status") == field(&nothing_else(wanted), "status");
    (!same_status).then(|| Write::UpdateStatus(wanted.clone()))
}

/// Returns an import whose status, if there is nothing in it, is none: stores differ in what they make of an empty one.
fn nothing_else(import: &Object) -> Object {
    let mut import = import.clone();
    let is_empty = |status: &Value| status.as_object().is_none_or(|status| status.values().all(is_nothing));
    if import.body.get("status").is_some_and(is_empty) {
        import.body.remove("status");
    }
    import
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Plans this cluster's own import.
fn local_import(view: &View<'_>, facts: &Facts, writes: &mut Vec<Write>) {
    let exported = facts.exported().filter(|_| view.other_import.is_none());
    let write = match (&view.row.local_import, exported) {
        (None, None) => None,
        (Some(found), None) => Some(Write::Delete(found.stub())),
        (None, Some(exported)) => Some(Write::Create(own_import(None, view, exported))),
        (Some(found), Some(exported)) => update(found, &own_import(Some(found), view, exported)),
    };
    writes.extend(write);
}

fn own_import(existing: Option<&Object>, view: &View<'_>, exported: &Exported) -> Object {
    let (name, config) = (view.name, view.config);
    let metadata = ObjectMeta::new(&config.namespace, name.local_import(&config.cluster_id));
    let new = || Object::new(Kind::ServiceImport, metadata);
    let mut import = existing.cloned().unwrap_or_else(new);
    let labels = [
        (label::SERVICE_NAME, name.name.clone()),
        (label::SOURCE_NAMESPACE, name.namespace.clone()),
        (label::SOURCE_CLUSTER, config.cluster_id.clone()),
    ];
    import.metadata.labels.extend(labels.map(|(key, value)| (key.to_owned(), value)));
    let annotations = [
        (annotation::PUBLISH_NOT_READY, exported.publishes_not_ready.to_string()),
        (annotation::USE_CLUSTERSET_IP, exported.can_have_clusterset_ip().to_string()),
    ];
    import.metadata.annotations.extend(annotations.map(|(key, value)| (key.to_owned(), value)));
    let is_headless = exported.kind == ServiceImportType::Headless;
    let ports: &[ImportPort] = if is_headless { &[] } else { &exported.ports };
    let mut spec = import.body.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    spec.insert("type".to_owned(), Value::from(exported.kind.as_str()));
    spec.insert("ports".to_owned(), serde_json::to_value(ports).expect("ports are JSON"));
    spec.insert("sessionAffinity".to_owned(), Value::from(exported.session_affinity.as_str()));
    // Definitions of the kind allow one.
    match exported.ips.first() {
        Some(ip) => drop(spec.insert("ips".to_owned(), json!([ip.to_string()]))),
        None => drop(spec.remove("ips")),
    }
    match &exported.session_affinity_config {
        Some(config) => drop(spec.insert("sessionAffinityConfig".to_owned(), config.clone())),
        None => service::remove_content(&mut spec, "sessionAffinityConfig"),
    }
    import.body.insert("spec".to_owned(), Value::Object(spec));
    import.body.insert("status".to_owned(), json!({"clusters": [{"cluster": config.cluster_id}]}));
    import
}

/// Returns whether the broker has all of an export.
fn is_published(view: &View<'_>, facts: &Facts) -> bool {
    let (own, published) = (&view.config.cluster_id, &view.row.published);
    let has_part = facts.aggregate.clusters.contains(own) && facts.aggregate.since.contains_key(own);
    let is_there = |slice: &Object| {
        let found = published.get(&slice.metadata.name);
        found.is_some_and(|found| slices::agree(found, &slices::for_broker(slice, view.config)))
    };
    has_part && facts.slices.len() == published.len() && facts.slices.iter().all(is_there)
}

/// Returns what is to be written to the broker.
pub(crate) fn broker(view: &View<'_>) -> Vec<Write> {
    let (row, facts) = (view.row, view.facts());
    let published: Vec<Object> = match view.other_aggregate {
        None => facts.slices.iter().map(|slice| slices::for_broker(slice, view.config)).collect(),
        Some(_) => Vec::new(),
    };
    let wanted = published.iter().map(|slice| (slice.metadata.name.as_str(), slice)).collect();
    let mut changes = Vec::new();
    replace(&mut changes, &row.published, &wanted);
    if view.other_aggregate.is_some() {
        return changes;
    }
    let import = aggregate(view, &facts, &published, !changes.is_empty());
    // Who makes the import finds out whether another one was faster, before anything of it is seen.
    let is_first = matches!(import, Some(Write::Create(_)));
    if is_first {
        changes.splice(0..0, import);
    } else {
        changes.extend(import);
    }
    changes
}

/// Returns the write of this cluster's part of the import.
fn aggregate(view: &View<'_>, facts: &Facts, published: &[Object], has_changed: bool) -> Option<Write> {
    let (row, own) = (view.row, view.config.cluster_id.as_str());
    let existing = row.aggregate.as_ref();
    let by_age: Vec<&str> = facts.by_age.iter().map(String::as_str).collect();
    let slices = row.foreign.values().chain(published);
    let union = || aggregate::union(&by_age, &slices);
    let families = || aggregate::union_of_families(&by_age, (own, &facts.families), &slices);
    let known = &facts.aggregate;
    let Some(exported) = facts.exported() else {
        let existing = existing.filter(|_| known.has_part(own))?;
        let is_listed = known.kind == Some(ServiceImportType::ClusterSetIp);
        let merged = Merged { ports: is_listed.then(union), families: Some(families()) };
        return match aggregate::without_part(existing, own, &merged) {
            Some(mut wanted) => {
                without_dropped(&mut wanted, view.dropped[BROKER]);
                update(existing, &wanted)
            }
            None => Some(Write::Delete(existing.stub())),
        };
    };
    let is_listed = exported.kind == ServiceImportType::ClusterSetIp && !facts.is_excluded;
    // One of the clusters keeps the lists exact, so that a change costs the same however many there are.
    let is_missing = |port: &ImportPort| !aggregate::is_taken(&known.ports, port);
    let ports = is_listed.then(union).filter(|union| {
        has_changed || facts.decides && !is_same(&known.ports, union) || exported.ports.iter().any(is_missing)
    });
    let is_unsaid = |family: &String| !known.families.contains(family);
    let families = (!facts.is_excluded).then(families).filter(|union| {
        has_changed || facts.decides && known.families != *union || facts.families.iter().any(is_unsaid)
    });
    let words: Vec<&str> = facts.differences.iter().map(|difference| difference.word()).collect();
    let part = Part {
        exported,
        decides: facts.decides,
        conflicts: words.join(","),
        is_excluded: facts.is_excluded,
        addresses: PerFamily::new(|family| match (facts.gives(family), view.promises[family]) {
            (false, _) => Address::Off,
            (true, _) if view.ip(family).is_some() => Address::Keep,
            (true, Some(ip)) => Address::Give(ip),
            (true, None) => Address::Lack,
        }),
        merged: Merged { ports, families },
    };
    let mut wanted = aggregate::with_part(existing, view.name, view.config, &part);
    without_dropped(&mut wanted, view.dropped[BROKER]);
    match existing {
        None => Some(Write::Create(wanted)),
        Some(existing) => update(existing, &wanted),
    }
}
