//! What an export asks of the choice among clusters, in annotations of ours. What cannot be used is left out of the import, and the
//! export says so: in other clusters nobody could mend it.

use trieste_control::api::annotation::{ROUTING, WEIGHT};
use trieste_control::api::{MAX_PREFERENCE_LEN, Object, check_routing};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Preferences {
    /// How clusters are chosen.
    pub(crate) routing: Option<String>,
    /// This cluster's share of those who are sent to some cluster in turn.
    pub(crate) weight: Option<String>,
    /// The annotations that are left out, and why.
    pub(crate) ignored: Option<String>,
}

impl Preferences {
    /// Reads those of an export.
    pub(crate) fn of_export(export: &Object) -> Self {
        let mut ignored = Vec::new();
        let mut read = |key: &str, check: fn(&str) -> Result<(), String>| {
            let text = export.metadata.annotations.get(key)?;
            let checked = match text.len() > MAX_PREFERENCE_LEN {
                true => Err(format!("it is longer than {MAX_PREFERENCE_LEN} bytes")),
                false => check(text),
            };
            match checked {
                Ok(()) => Some(text.clone()),
                Err(reason) => {
                    ignored.push(format!("annotation {key} is ignored: {reason}"));
                    None
                }
            }
        };
        let (routing, weight) = (read(ROUTING, check_routing), read(WEIGHT, check_weight));
        let ignored = (!ignored.is_empty()).then(|| ignored.join("; "));
        Self { routing, weight, ignored }
    }
}

fn check_weight(text: &str) -> Result<(), String> {
    let number = text.parse::<u32>();
    number.map(drop).map_err(|_| format!("it is no number from 0 to {}", u32::MAX))
}

#[cfg(test)]
mod tests {
    use trieste_control::api::{Kind, ObjectMeta};

    use super::*;

    #[test]
    fn what_cannot_be_used_is_left_out_and_named() {
        let long = format!("failover={}", vec!["a".repeat(60); 64].join(","));
        let endless = "x".repeat(5_000);
        let many = format!("failover={}", ["a"; 65].join(","));
        for (key, text, reason) in [
            (ROUTING, "nearest", None),
            (ROUTING, " local-only ", None),
            (ROUTING, "failover=West, east", None),
            (ROUTING, long.as_str(), None),
            (ROUTING, "far", Some("none of nearest")),
            (ROUTING, "", Some("none of nearest")),
            (ROUTING, "failover=", Some("of its clusters one")),
            (ROUTING, many.as_str(), Some("65 clusters")),
            (ROUTING, endless.as_str(), Some("longer than 4200 bytes")),
            (WEIGHT, "0", None),
            (WEIGHT, "4294967295", None),
            (WEIGHT, "-1", Some("no number from 0")),
            (WEIGHT, "much", Some("no number from 0")),
        ] {
            let mut export = Object::new(Kind::ServiceExport, ObjectMeta::new("shop", "web"));
            export.metadata.annotations.insert(key.to_owned(), text.to_owned());
            let read = Preferences::of_export(&export);
            let taken = [&read.routing, &read.weight].into_iter().flatten().next();
            assert_eq!(taken.map(String::as_str), reason.is_none().then_some(text), "{key}: {text}");
            match (read.ignored, reason) {
                (None, None) => {}
                (Some(ignored), Some(reason)) => {
                    assert!(ignored.contains(key) && ignored.contains(reason), "{ignored}");
                }
                (ignored, _) => panic!("{key}: {text}: {ignored:?}"),
            }
        }
    }
}
