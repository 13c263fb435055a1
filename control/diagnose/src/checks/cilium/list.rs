//! The list of networks that Cilium's agent excepts from masquerading: a YAML map, or JSON, in an entry of a ConfigMap. Pure.

use ipnet::IpNet;
use serde_json::{Map, Value};

/// What the agent spares where nobody has written a list (Cilium's manual): private and special networks.
pub(super) const DEFAULT_LIST: [&str; 11] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
];
/// Ours: so many letters of an entry are shown.
const MAX_SHOWN: usize = 80;
/// The key of the networks. Cilium takes it in any case of letters.
const KEY: &str = "nonMasqueradeCIDRs";

/// A list that somebody has written.
#[derive(Debug, PartialEq)]
pub(super) struct List {
    /// Its networks.
    pub(super) networks: Vec<IpNet>,
    /// All of its keys.
    fields: Map<String, Value>,
    key: String,
    is_json: bool,
}

impl List {
    /// Reads a list.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let json = serde_json::from_str::<Value>(text).ok();
        let is_json = json.is_some();
        let value = match json {
            Some(value) => value,
            None => serde_saphyr::from_str::<Value>(text).map_err(|error| error.to_string())?,
        };
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err("it is no map of keys and values".to_owned());
            }
        };
        let found = fields.keys().find(|key| key.eq_ignore_ascii_case(KEY));
        let key = found.map_or_else(|| KEY.to_owned(), Clone::clone);
        let networks = match fields.get(&key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) => entries.iter().map(network).collect::<Result<_, _>>()?,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                return Err(format!("{key} is no list"));
            }
        };
        Ok(Self { networks, fields, key, is_json })
    }

    /// Returns the list of these networks alone.
    pub(super) fn new(networks: &[IpNet]) -> Self {
        let empty = Self { networks: Vec::new(), fields: Map::new(), key: KEY.to_owned(), is_json: false };
        empty.with(networks)
    }

    /// Returns it with networks behind those that are there.
    pub(super) fn with(mut self, added: &[IpNet]) -> Self {
        let texts = added.iter().map(|network| Value::String(network.to_string()));
        match self.fields.get_mut(&self.key) {
            Some(Value::Array(entries)) => entries.extend(texts),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_))
            | None => {
                self.fields.insert(self.key.clone(), Value::Array(texts.collect()));
            }
        }
        self.networks.extend(added);
        self
    }

    /// Returns its text, in the form in which it was read.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn to_text(&self) -> Result<String, String> {
        match self.is_json {
            true => serde_json::to_string(&self.fields).map_err(|error| error.to_string()),
            false => serde_saphyr::to_string(&self.fields).map_err(|error| error.to_string()),
        }
    }
}

/// Reads a network. Cilium takes nothing of a list with anything else in it.
fn network(entry: &Value) -> Result<IpNet, String> {
    let parsed = entry.as_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| {
        let shown: String = entry.to_string().chars().take(MAX_SHOWN).collect();
        format!("{shown} is no CIDR, so that Cilium takes nothing of the list")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_cilium_fix_keeps_other_keys_and_the_form_of_a_list() {
        let cases = [
            (
                "nonMasqueradeCIDRs: [10.0.0.0/8, 'fd00::/8']\nmasqLinkLocal: yes\nother: {a: '1', b: 0.5}\n",
                false,
            ),
            (
                "resyncInterval: 60s\nNonMasqueradeCIDRs:\n- 10.0.0.0/8\n# why\n- fd00::/8\nother: \"no\"\n",
                false,
            ),
            ("{\"nonMasqueradeCIDRs\": [\"10.0.0.0/8\", \"fd00::/8\"], \"masqLinkLocalIPv6\": true}", true),
        ];
        for (text, is_json) in cases {
            let before = List::parse(text).unwrap();
            let added = ["100.66.0.0/16".parse().unwrap(), "fd12:3::/48".parse().unwrap()];
            let written = List::parse(text).unwrap().with(&added).to_text().unwrap();
            let after = List::parse(&written).unwrap();
            assert_eq!(
                before.networks,
                ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse::<IpNet>().unwrap())
            );
            assert_eq!(after.networks, [before.networks, added.to_vec()].concat(), "{written}");
            let rest = |list: &List| {
                let others = list.fields.clone().into_iter();
                others.filter(|(key, _)| !key.eq_ignore_ascii_case(KEY)).collect::<Vec<_>>()
            };
            let old = List::parse(text).unwrap();
            assert_eq!((rest(&old), old.key), (rest(&after), after.key), "{written}");
            assert_eq!(serde_json::from_str::<Value>(&written).is_ok(), is_json, "{written}");
        }
        let switched = List::parse("masqLinkLocal: yes\n").unwrap().to_text().unwrap();
        assert_eq!(switched, "masqLinkLocal: true\n");
    }

    #[test]
    fn plugin_cilium_fix_leaves_lists_that_cilium_cannot_read() {
        for wrong in [
            "nonMasqueradeCIDRs: 7",
            "- 10.0.0.0/8",
            "nonMasqueradeCIDRs: [10.0.0.1]",
            "a: [",
            "{",
            "a: 1\na: 2",
        ] {
            assert!(List::parse(wrong).is_err(), "{wrong}");
        }
        for empty in ["nonMasqueradeCIDRs:\n", "masqLinkLocal: true\n", "# nothing\n", "{}"] {
            let list = List::parse(empty).unwrap();
            assert!(list.networks.is_empty(), "{empty}");
            assert_eq!(list.with(&["10.2.0.0/16".parse().unwrap()]).networks.len(), 1, "{empty}");
        }
    }
}
