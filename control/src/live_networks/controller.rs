//! The controller of the ConfigMap. Pure; [`spawn`] starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::source::Source;
use super::tracked::TrackedLists;
use crate::api::limits::MAX_CIDRS;
use crate::api::{ClusterNetworks, Kind, Object, ObjectKey};
use crate::election::Candidate;
use crate::parse::words;
use crate::runner::{
    self, Context, Controller, Fence, Handle, Limits, QueueView, Reconciled, Watch, Write, port,
};
use crate::store::{Cache, Store, StoreError, StoreEvent};

/// The controller's name in metrics and logs.
pub const NAME: &str = "live-networks";
/// How long a new leader observes before it writes: what its predecessor wrote last may still be on its way here.
const TAKE_OVER: Duration = Duration::from_millis(500);
/// Ours: changes of several objects at once are one write.
const LIMITS: Limits = Limits { settle: Duration::from_millis(100), ..Limits::DEFAULT };

/// Starts to keep the lists of the ConfigMap that follow the cluster's objects, for as long as `candidate` leads. What stands in
/// the way is given to `publish`.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn<S: Store>(
    store: S,
    namespace: &str,
    candidate: Candidate,
    publish: impl FnMut(&Option<String>) + Send + 'static,
) -> Handle {
    let key = ObjectKey::new(Kind::ConfigMap, namespace, ClusterNetworks::OBJECT);
    let events = store.watch_one(&key).boxed();
    let fence = Fence::Term { candidate, settle: TAKE_OVER };
    runner::spawn(NetworksController::default(), vec![port(store)], fence, events, LIMITS, publish)
}

/// Keeps the lists that follow the cluster's objects.
#[derive(Debug, Default)]
pub struct NetworksController {
    /// The ConfigMap, if there is one that may be read.
    object: Option<Object>,
    /// Which of its lists are kept.
    followed: TrackedLists,
    caches: BTreeMap<Watch, Cache>,
    /// Why objects cannot be read.
    unread: BTreeMap<Watch, String>,
    problem: Option<String>,
    /// What cannot be announced, and why.
    left_out: Vec<String>,
}

impl NetworksController {
    fn take(&mut self, object: Option<Object>) {
        self.object = object;
        let read = self.object.as_ref().map_or_else(|| Ok(TrackedLists::default()), TrackedLists::of);
        self.problem = read.as_ref().err().map(|error| {
            format!(
                "the annotation {} of ConfigMap {} cannot be read: {error}; join again, which writes it anew",
                TrackedLists::ANNOTATION,
                ClusterNetworks::OBJECT
            )
        });
        self.followed = read.unwrap_or_default();
    }

    /// Returns the networks in a source's objects; `None` if they cannot be read.
    ///
    /// # Errors
    /// Why what they say makes no sense.
    fn read(&self, source: Source, recorded: &BTreeSet<IpNet>) -> Result<Option<BTreeSet<IpNet>>, String> {
        let watch = watch_of(source);
        // What was read before an outage may be older than what `join` has found.
        let is_current = |cache: &&Cache| cache.is_complete() && !self.unread.contains_key(&watch);
        let Some(cache) = self.caches.get(&watch).filter(is_current) else { return Ok(None) };
        let found = source.found(cache.objects(), recorded)?;
        match source.object() {
            Some(key) if found.is_empty() => Err(format!("{key} names no networks any more")),
            Some(_) if source.is_of_installer() => Ok(Some(&found | recorded)),
            // Every cluster has some: where there are none, they are somewhere else by now.
            _ => Ok(Some(found).filter(|found| !found.is_empty())),
        }
    }

    /// Returns the ConfigMap as it should be, and what cannot be in it.
    fn corrected(&self, object: &Object) -> (Object, Vec<String>) {
        let (mut new, mut followed, mut problems) = (object.clone(), self.followed.clone(), Vec::new());
        let lists: BTreeSet<&str> = followed.0.keys().map(|source| source.key()).collect();
        for key in lists {
            let of_list = self.followed.0.iter().filter(|(source, _)| source.key() == key);
            let mut sources: BTreeMap<Source, Reading<'_>> = of_list
                .map(|(source, recorded)| {
                    let found = self.read(*source, recorded).unwrap_or_else(|reason| {
                        problems.push(format!("{reason}: what it has named before is announced on"));
                        None
                    });
                    (*source, Reading { recorded, found })
                })
                .collect();
            let others = ClusterNetworks::KEYS.into_iter().filter(|other| *other != key);
            let others: BTreeSet<IpNet> = others.filter_map(|key| entries(&new, key)).flatten().collect();
            let Some(there) = entries(&new, key) else { continue };
            let networks = whole_list(&mut sources, &there, &others, &mut problems);
            for (source, reading) in &sources {
                let ours = reading.found.as_ref().map(|found| found & &networks.ours);
                followed.0.extend(ours.map(|ours| (*source, ours)));
            }
            let networks = &networks.theirs | &networks.ours;
            if networks != there {
                let text = networks.iter().map(IpNet::to_string).collect::<Vec<_>>().join(",");
                let data = new.body.entry("data").or_insert_with(|| json!({}));
                data.as_object_mut().map(|data| data.insert(key.to_owned(), json!(text)));
            }
        }
        if followed != self.followed {
            new.metadata.annotations.insert(TrackedLists::ANNOTATION.to_owned(), followed.value());
        }
        (new, problems)
    }
}

/// Returns what is watched for a source.
fn watch_of(source: Source) -> Watch {
    source.object().map_or_else(|| Watch::new(0, source.kind(), ""), |key| Watch::one(0, &key))
}

/// Returns what is watched, for people.
fn shown(watch: &Watch) -> String {
    match watch.name.is_empty() {
        true => watch.kind.to_string(),
        false => ObjectKey::new(watch.kind, &*watch.namespace, &*watch.name).to_string(),
    }
}

/// What a source's objects named when its list was written, and what they name now, if that can be read.
struct Reading<'a> {
    recorded: &'a BTreeSet<IpNet>,
    found: Option<BTreeSet<IpNet>>,
}

/// The entries of a list: somebody's, and those of its sources.
struct Entries {
    theirs: BTreeSet<IpNet>,
    ours: BTreeSet<IpNet>,
}

/// Returns what a list should have. A ConfigMap counts as a whole: if one of its networks cannot be in the list it keeps what it
/// has named before, as if it could not be read.
fn whole_list(
    sources: &mut BTreeMap<Source, Reading<'_>>,
    there: &BTreeSet<IpNet>,
    others: &BTreeSet<IpNet>,
    problems: &mut Vec<String>,
) -> Entries {
    // Each round gives up one source at least.
    loop {
        let mut refused = Vec::new();
        let entries = corrected_list(sources, there, others, &mut refused);
        let of_maps: BTreeSet<Source> =
            refused.iter().map(|(source, _)| *source).filter(|source| source.object().is_some()).collect();
        let is_last = of_maps.is_empty();
        for (source, problem) in refused {
            let is_map = of_maps.contains(&source);
            let stays = if is_map { ": what it has named before is announced on" } else { "" };
            if is_map || is_last {
                problems.push(format!("{problem}{stays}"));
            }
        }
        if is_last {
            return entries;
        }
        for (_, reading) in sources.iter_mut().filter(|(source, _)| of_maps.contains(source)) {
            reading.found = None;
        }
    }
}

/// Returns what a list should have of the entries that are `there` and of its sources' networks. An entry stays as long as one
/// of them has it, or had it and cannot be read. What cannot be added is `refused`.
fn corrected_list(
    sources: &BTreeMap<Source, Reading<'_>>,
    there: &BTreeSet<IpNet>,
    others: &BTreeSet<IpNet>,
    refused: &mut Vec<(Source, String)>,
) -> Entries {
    let recorded: BTreeSet<IpNet> = sources.values().flat_map(|reading| reading.recorded).copied().collect();
    let is_wanted = |network: &&IpNet| {
        sources.values().any(|reading| reading.found.as_ref().unwrap_or(reading.recorded).contains(*network))
    };
    let theirs: BTreeSet<IpNet> = there.difference(&recorded).copied().collect();
    // Whatever somebody adds beside it: gateways say what cannot be together, and what is in force stays.
    let mut ours: BTreeSet<IpNet> = there.intersection(&recorded).filter(is_wanted).copied().collect();
    let found = sources
        .iter()
        .flat_map(|(source, reading)| reading.found.iter().flatten().map(|net| (*net, *source)));
    let mut missing: Vec<(IpNet, Source)> = found.filter(|(network, _)| !ours.contains(network)).collect();
    missing.sort_by_key(|(network, _)| network.prefix_len());
    for (network, source) in missing {
        match room(network, &[others, &theirs, &ours]) {
            Room::Free => drop(ours.insert(network)),
            Room::Covered => {}
            Room::None(why) => {
                let problem = format!("{network} of {} is not announced: {why}", shown(&watch_of(source)));
                refused.push((source, problem));
            }
        }
    }
    Entries { theirs, ours }
}

/// Whether a network can be added to others. Gateways take all or none.
enum Room {
    Free,
    /// One of them has it already.
    Covered,
    /// It cannot, and why.
    None(String),
}

fn room(network: IpNet, taken: &[&BTreeSet<IpNet>]) -> Room {
    let mut all = taken.iter().copied().flatten();
    if all.clone().any(|taken| taken.contains(&network)) {
        return Room::Covered;
    }
    if let Some(inside) = all.find(|taken| network.contains(*taken)) {
        return Room::None(format!("it overlaps {inside}"));
    }
    match taken.iter().map(|taken| taken.len()).sum::<usize>() < MAX_CIDRS {
        true => Room::Free,
        false => Room::None(format!("there are {MAX_CIDRS} networks")),
    }
}

/// Returns the entries of a list; `None` if one is no network, which the gateways say.
fn entries(object: &Object, key: &str) -> Option<BTreeSet<IpNet>> {
    let text = match object.body.get("data") {
        Some(data) => data.as_object()?.get(key).and_then(Value::as_str).unwrap_or_default(),
        None => "",
    };
    words(text).map(|word| word.parse().ok().map(|network: IpNet| network.trunc())).collect()
}

impl Controller for NetworksController {
    type Key = ();
    type Status = Option<String>;
    type Input = StoreEvent;

    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> BTreeSet<Watch> {
        self.followed.0.keys().map(|source| watch_of(*source)).collect()
    }

    fn does_without(&self, _: &Watch, error: &StoreError) -> bool {
        // Sources have rights of their own: one that is missing keeps what that source has named, and the others go on.
        matches!(error, StoreError::Forbidden { .. })
    }

    fn observe(&mut self, watch: &Watch, event: StoreEvent, _: Instant) -> Vec<()> {
        let unread = match &event {
            StoreEvent::Unavailable(error) => Some(format!("{}: {error}", shown(watch))),
            StoreEvent::Listed(_) | StoreEvent::Applied(_) | StoreEvent::Deleted(_) => None,
        };
        // What was not done during an outage is done after it.
        let was_unread = self.unread.remove(watch).is_some();
        self.unread.extend(unread.map(|reason| (watch.clone(), reason)));
        let is_changed = self.caches.entry(watch.clone()).or_default().apply(&event);
        if is_changed || was_unread { vec![()] } else { Vec::new() }
    }

    fn handle_input(&mut self, event: StoreEvent, _: Instant) -> Vec<()> {
        match event {
            StoreEvent::Applied(object) => self.take(Some(object)),
            StoreEvent::Listed(objects) => self.take(objects.into_iter().next()),
            StoreEvent::Deleted(_) => self.take(None),
            StoreEvent::Unavailable(_) => return Vec::new(),
        }
        vec![()]
    }

    fn reconcile(&mut self, (): &(), _: &Context) -> Reconciled {
        // The watches of lists that are not followed any more are closed after this.
        let watches = self.watches();
        self.caches.retain(|watch, _| watches.contains(watch));
        self.unread.retain(|watch, _| watches.contains(watch));
        let Some(object) = self.object.as_ref().filter(|object| object.withheld.is_none()) else {
            return Reconciled::await_change();
        };
        let (new, problems) = self.corrected(object);
        let write = (new != *object).then_some(Write::Update(new));
        self.left_out = problems;
        Reconciled::write(write.into_iter().collect())
    }

    fn written(&mut self, (): &(), _: &Write, outcome: Result<&StoreEvent, &StoreError>, _: Instant) {
        if let Ok(StoreEvent::Applied(object)) = outcome {
            self.take(Some(object.clone()));
        }
    }

    fn status(&self, view: &QueueView<'_>) -> Option<String> {
        let unread = self.unread.values().next().cloned();
        let unwritten =
            || view.problem().map(|problem| format!("ConfigMap {}: {problem}", ClusterNetworks::OBJECT));
        self.problem.clone().or(unread).or_else(|| self.left_out.first().cloned()).or_else(unwritten)
    }
}

#[cfg(test)]
mod tests;
