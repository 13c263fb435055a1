//! Spiderpool's objects, as far as they say which routes pods get. Pure.

use ipnet::IpNet;
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;
use trieste_control::spiderpool::{self, ANNOTATION, Recorded, entry};

/// The annotation with another name for the NetworkAttachmentDefinition that a SpiderMultusConfig makes.
const ATTACHMENT: &str = "multus.spidernet.io/cr-name";
/// The mode in which no pod gets routes.
const DISABLED: &str = "disabled";
/// Ours: so much of a text of somebody else's is printed.
const MAX_TEXT: usize = 200;

/// A list of networks towards which pods get routes to their node.
#[derive(Debug)]
pub(super) struct List {
    /// The object that has it, for people.
    pub(super) object: String,
    /// Where the object has it.
    pub(super) field: &'static str,
    /// Its entries.
    pub(super) networks: Vec<IpNet>,
    /// Which of them are ours.
    pub(super) record: Record,
}

/// A network, and when it came into a list.
pub(super) type Addition = (Timestamp, IpNet);

/// What an object's annotation says.
#[derive(Debug)]
pub(super) enum Record {
    /// These entries are ours; there are none without an annotation.
    Added(Vec<Addition>),
    /// None: an administrator keeps the list.
    Unmanaged,
    /// It cannot be read, and why.
    Unreadable(String),
}

/// A SpiderCoordinator: what pods' routes are made from where nothing else is set.
#[derive(Debug)]
pub(in crate::checks) struct Coordinator {
    pub(super) name: String,
    pub(super) list: List,
    pub(super) is_off: bool,
    /// Why Spiderpool does not use it, if it does not.
    pub(super) not_synced: Option<String>,
}

/// A SpiderMultusConfig: a kind of second device for pods.
#[derive(Debug)]
pub(super) struct Config {
    /// The NetworkAttachmentDefinition that it makes, as `namespace/name`.
    pub(super) attachment: String,
    /// Whether its pods get routes; `None` if the SpiderCoordinator decides.
    pub(super) has_routes: Option<bool>,
    /// Its own list, if that is not empty.
    pub(super) list: Option<List>,
}

/// A SpiderIPPool: addresses that pods have.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) network: IpNet,
    pub(super) is_disabled: bool,
}

impl List {
    /// Returns the list of an object; `None` if it is empty.
    fn of(object: &DynamicObject, name: String, field: &'static str, path: &str) -> Option<Self> {
        let entries: Vec<&str> =
            object.data.pointer(path)?.as_array()?.iter().filter_map(Value::as_str).collect();
        let networks = entries.iter().filter_map(|text| entry(text)).collect();
        (!entries.is_empty()).then(|| Self { object: name, field, networks, record: Record::of(object) })
    }
}

impl Record {
    fn of(object: &DynamicObject) -> Self {
        match spiderpool::Record::parse(annotation(object, ANNOTATION)) {
            Recorded::Ours(record) => {
                let mut all: Vec<Addition> =
                    record.0.into_iter().map(|(network, time)| (time, network)).collect();
                all.sort_unstable();
                Self::Added(all)
            }
            Recorded::Unmanaged => Self::Unmanaged,
            Recorded::Unreadable(error) => Self::Unreadable(short(&error)),
        }
    }
}

impl Coordinator {
    /// Reads an object.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let name = object.metadata.name.clone()?;
        let whole = format!("SpiderCoordinator {name}");
        let field = "spec.hijackCIDR";
        let list = List::of(object, whole.clone(), field, "/spec/hijackCIDR").unwrap_or_else(|| List {
            object: whole,
            field,
            networks: Vec::new(),
            record: Record::of(object),
        });
        let phase = text(object, "/status/phase").unwrap_or_default();
        let not_synced = (phase != "Synced").then(|| {
            let reason = text(object, "/status/reason").unwrap_or("it has no reason");
            format!("phase \"{}\", {}", short(phase), short(reason))
        });
        let is_off = text(object, "/spec/mode") == Some(DISABLED);
        Some(Self { name, list, is_off, not_synced })
    }
}

impl Config {
    /// Reads an object.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let (namespace, name) = (object.metadata.namespace.as_deref()?, object.metadata.name.as_deref()?);
        let attachment = annotation(object, ATTACHMENT).filter(|name| !name.is_empty()).unwrap_or(name);
        let mode = text(object, "/spec/coordinator/mode").filter(|mode| !mode.is_empty());
        let is_disabled = object.data.pointer("/spec/enableCoordinator") == Some(&Value::Bool(false));
        let whole = format!("SpiderMultusConfig {namespace}/{name}");
        Some(Self {
            attachment: format!("{namespace}/{attachment}"),
            has_routes: if is_disabled { Some(false) } else { mode.map(|mode| mode != DISABLED) },
            list: List::of(object, whole, "spec.coordinator.hijackCIDR", "/spec/coordinator/hijackCIDR"),
        })
    }

    /// Returns its own list, if pods' routes are made from that.
    pub(super) fn used(&self) -> Option<&List> {
        self.list.as_ref().filter(|_| self.has_routes != Some(false))
    }
}

impl Pool {
    /// Reads an object.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        Some(Self {
            name: object.metadata.name.clone()?,
            network: entry(text(object, "/spec/subnet")?)?,
            is_disabled: object.data.pointer("/spec/disable") == Some(&Value::Bool(true)),
        })
    }
}

fn text<'a>(object: &'a DynamicObject, path: &str) -> Option<&'a str> {
    object.data.pointer(path)?.as_str()
}

fn annotation<'a>(object: &'a DynamicObject, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the beginning of a text that anybody may have written, without what a terminal would obey.
fn short(text: &str) -> String {
    let mut rest = text.chars();
    let mut kept: String = rest.by_ref().take(MAX_TEXT).flat_map(char::escape_debug).collect();
    if rest.next().is_some() {
        kept.push('…');
    }
    kept
}
