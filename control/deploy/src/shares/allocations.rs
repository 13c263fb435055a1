//! The broker's ConfigMap, read and changed. What is not understood in it stays as it is.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::Kind;
use crate::objects::{RangeError, share_of_range};

/// Most members of a book.
const MOST: usize = 4096;

/// Who has which share of which range.
#[derive(Debug, Clone)]
pub struct Allocations {
    kind: &'static Kind,
    object: Value,
    range: IpNet,
    size: u32,
    /// The entries as they are; those of other tools may have more fields.
    entries: Vec<Value>,
    shares: Vec<(String, Vec<IpNet>)>,
}

impl Allocations {
    /// Reads the ConfigMap.
    ///
    /// # Errors
    /// What of it makes no sense.
    pub fn read(object: &Value, kind: &'static Kind) -> Result<Self, String> {
        let text = |field: &str| object["data"][field].as_str().unwrap_or_default();
        let range = kind.range_of(object);
        let (is_such, family) = (|net: &IpNet| kind.is_of(net), if kind.is_ipv6 { "IPv6" } else { "IPv4" });
        let range = range
            .parse::<IpNet>()
            .ok()
            .filter(is_such)
            .ok_or_else(|| format!("{} `{}` is no CIDR of {family}", kind.range, shown(&range)))?;
        let size = text(kind.size);
        let size =
            size.parse().map_err(|_| format!("{} `{}` is no number of addresses", kind.size, shown(size)))?;
        let entries = match text("clusterinfo") {
            "" => Vec::new(),
            list => serde_json::from_str::<Option<Vec<Value>>>(list)
                .map_err(|error| format!("clusterinfo is no list: {error}"))?
                .unwrap_or_default(),
        };
        if entries.len() > MOST {
            return Err(format!("clusterinfo has {} entries; {MOST} are the most", entries.len()));
        }
        let shares = entries.iter().map(|entry| share(entry, kind)).collect::<Result<_, _>>()?;
        Ok(Self { kind, object: object.clone(), range: range.trunc(), size, entries, shares })
    }

    /// Returns of which addresses they are.
    pub(crate) fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Returns whether the broker says that such addresses are on.
    pub(crate) fn is_enabled(&self) -> bool {
        self.kind.is_enabled(&self.object)
    }

    /// Where shares are taken from.
    pub fn range(&self) -> IpNet {
        self.range
    }

    /// How many addresses a share has: a power of two, of which two fit the range.
    ///
    /// # Errors
    /// That they do not.
    pub fn rounded(&self, wanted: Option<u32>) -> Result<u32, RangeError> {
        share_of_range(self.kind.what, self.range, wanted.unwrap_or(self.size))
    }

    /// What a member has: the first network of its entry, as upstream reads it.
    pub fn share_of(&self, id: &str) -> Option<IpNet> {
        self.shares.iter().find(|(member, _)| member == id)?.1.first().copied()
    }

    /// What the other members have.
    pub fn taken<'a>(&'a self, id: &'a str) -> impl Iterator<Item = (IpNet, &'a str)> {
        let others = self.shares.iter().filter(move |(member, _)| member != id);
        others.flat_map(|(member, nets)| nets.iter().map(|net| (*net, member.as_str())))
    }

    /// The ConfigMap with this share as a member's only one.
    pub fn with(&self, id: &str, cidr: IpNet) -> Value {
        let mut entries = self.entries.clone();
        let nets = json!([cidr.to_string()]);
        match entries.iter_mut().find(|entry| entry["cluster_id"] == id) {
            Some(entry) => entry["global_cidr"] = nets,
            None => entries.push(json!({"cluster_id": id, "global_cidr": nets})),
        }
        let mut object = self.object.clone();
        object["data"]["clusterinfo"] = Value::from(Value::from(entries).to_string());
        object
    }
}

/// What another tool has written, short and on one line.
fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

/// Returns an entry's member and networks, which have one name in both ConfigMaps. An entry that cannot be read is an error: its addresses would be given out again.
fn share(entry: &Value, kind: &Kind) -> Result<(String, Vec<IpNet>), String> {
    let wrong = || format!("its entry `{}` is no member with networks", shown(&entry.to_string()));
    let id = entry["cluster_id"].as_str().ok_or_else(wrong)?;
    let list = &entry["global_cidr"];
    let list = if list.is_null() { &[] } else { list.as_array().map(Vec::as_slice).ok_or_else(wrong)? };
    let read = |net: &Value| net.as_str()?.parse::<IpNet>().ok().filter(|net| kind.is_of(net));
    let nets = list.iter().map(|net| read(net).map(|net| net.trunc()));
    Ok((id.to_owned(), nets.collect::<Option<_>>().ok_or_else(wrong)?))
}
