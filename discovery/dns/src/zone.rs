//! A zone that is answered for, and what stands at its apex.

use domain::base::Name;

use crate::name::QueryName;

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Wire form in lower case, with its root.
    apex: Box<[u8]>,
    labels: usize,
}

/// Why a text is no zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot answer for {zone:?}: {reason}")]
pub struct ZoneError {
    zone: String,
    reason: String,
}

/// Longest zone, in bytes: the longest names of a service still fit below it.
const MAX_ZONE_BYTES: usize = 128;

impl Zone {
    /// Parses a zone's name (`clusterset.local`), with or without a dot at its end.
    ///
    /// # Errors
    /// When it is no name, the root, or over 128 bytes long.
    pub fn new(text: &str) -> Result<Self, ZoneError> {
        let refused = |reason: String| ZoneError { zone: text.to_owned(), reason };
        let mut name = Name::vec_from_str(text).map_err(|error| refused(error.to_string()))?;
        name.make_canonical();
        if name.is_root() {
            return Err(refused("it is the root".to_owned()));
        }
        if name.len() > MAX_ZONE_BYTES {
            return Err(refused(format!("it has over {MAX_ZONE_BYTES} bytes")));
        }
        let labels = name.label_count() - 1;
        Ok(Self { apex: name.as_slice().into(), labels })
    }

    /// Returns its name in wire form, with the root.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.apex
    }

    /// Returns the number of labels that a name has below this zone; none if it lies elsewhere.
    pub(crate) fn labels_below(&self, name: &QueryName) -> Option<usize> {
        let below = name.labels().checked_sub(self.labels)?;
        (name.wire_from(below) == &*self.apex).then_some(below)
    }
}

/// Finds the zone of a name, the longest of several, and the number of labels below it.
pub(crate) fn find<'z>(zones: &'z [Zone], name: &QueryName) -> Option<(&'z Zone, usize)> {
    let found = zones.iter().filter_map(|zone| Some((zone, zone.labels_below(name)?)));
    found.min_by_key(|(_, below)| *below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::tests::query_name;

    #[test]
    fn the_longest_zone_has_the_name() {
        let zones = [Zone::new("local").unwrap(), Zone::new("ClusterSet.local.").unwrap()];
        let found = |text| find(&zones, &query_name(text)).map(|(zone, below)| (zone.labels, below));
        assert_eq!(found("web.shop.svc.clusterset.local"), Some((2, 3)));
        assert_eq!(found("clusterset.local"), Some((2, 0)));
        assert_eq!(found("other.local"), Some((1, 1)));
        assert_eq!(found("xclusterset.example"), None);
        assert_eq!(found("."), None);
    }

    #[test]
    fn the_root_and_very_long_names_are_no_zones() {
        assert!(Zone::new(".").is_err());
        assert!(Zone::new("").is_err());
        assert!(Zone::new("a..b").is_err());
        assert!(Zone::new(&["a".repeat(63), "b".repeat(63), "c".repeat(9)].join(".")).is_err());
    }
}
