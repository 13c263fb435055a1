//! The annotation that says which entries of a list are ours, and since when: pods that are older have no routes to them. Pure.

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::Timestamp;

/// The annotation, on objects with lists.
pub const ANNOTATION: &str = "trieste.io/hijack-cidrs";
/// Its value where an administrator keeps the list by hand.
pub const UNMANAGED: &str = "unmanaged";

/// The entries of a list that are ours, and when they were added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record(pub BTreeMap<IpNet, Timestamp>);

/// What an object's annotation says.
#[derive(Debug, PartialEq, Eq)]
pub enum Recorded {
    /// These entries are ours; there are none without an annotation.
    Ours(Record),
    /// None: an administrator keeps the list.
    Unmanaged,
    /// It cannot be read, and why.
    Unreadable(String),
}

impl Record {
    /// Reads an object's annotation; `None` if it has none.
    #[must_use]
    pub fn parse(annotation: Option<&str>) -> Recorded {
        let Some(text) = annotation else { return Recorded::Ours(Self::default()) };
        if text.trim() == UNMANAGED {
            return Recorded::Unmanaged;
        }
        match serde_json::from_str::<BTreeMap<Timestamp, Vec<IpNet>>>(text) {
            Ok(by_time) => {
                let ours = by_time.into_iter().flat_map(|(time, networks)| {
                    networks.into_iter().map(move |network| (network.trunc(), time))
                });
                Recorded::Ours(Self(ours.collect()))
            }
            Err(error) => Recorded::Unreadable(error.to_string()),
        }
    }

    /// Returns the annotation's value: networks by the time at which they were added, in whole seconds; `None` if there are none.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        let mut by_time: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (network, time) in &self.0 {
            by_time.entry(whole(*time).to_string()).or_default().push(network.to_string());
        }
        // Strings and lists of strings are always written.
        (!by_time.is_empty()).then(|| serde_json::to_string(&by_time).unwrap_or_default())
    }
}

/// The room for networks in the annotation. Kubernetes takes 256 KiB of annotations an object, and others have some too.
#[derive(Debug)]
pub struct Room(usize);

impl Room {
    /// Ours: bytes.
    pub const BYTES: usize = 200 << 10;
    /// The most that a network takes beside its text: quotes, a comma, and a time of its own.
    const BESIDE: usize = "\"2026-11-28T10:00:00Z\":[\"\"],".len();

    /// Takes the room for a network; returns `false` if there is not so much.
    pub fn take(&mut self, network: IpNet) -> bool {
        let left = self.0.checked_sub(network.to_string().len() + Self::BESIDE);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

impl Default for Room {
    fn default() -> Self {
        Self(Self::BYTES)
    }
}

/// Returns a time in whole seconds, as Kubernetes writes times.
#[must_use]
pub fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plugin_spiderpool_what_is_recorded_is_read_back_and_anything_else_is_not_taken_for_ours() {
        let nets = ["10.2.0.0/16", "10.3.0.0/16", "fd00:2::/48"].map(|text| text.parse().unwrap());
        let times = ["2026-11-28T10:00:00Z", "2026-11-28T11:00:00Z"].map(|text| text.parse().unwrap());
        let record = Record([(nets[0], times[0]), (nets[1], times[1]), (nets[2], times[0])].into());
        let text = record.value().unwrap();
        assert_eq!(
            text,
            r#"{"2026-11-28T10:00:00Z":["10.2.0.0/16","fd00:2::/48"],"2026-11-28T11:00:00Z":["10.3.0.0/16"]}"#
        );
        assert_eq!(Record::parse(Some(&text)), Recorded::Ours(record));
        assert_eq!(Record::parse(None), Recorded::Ours(Record::default()));
        assert_eq!(Record::default().value(), None);
        assert_eq!(Record::parse(Some(" unmanaged\n")), Recorded::Unmanaged);
        for text in ["", "[]", "{\"now\":[]}", "{\"2026-11-28T10:00:00Z\":[\"10.2.0.0\"]}", "off"] {
            assert!(matches!(Record::parse(Some(text)), Recorded::Unreadable(_)), "{text}");
        }
    }

    #[test]
    fn plugin_spiderpool_what_there_is_room_for_fits_with_a_time_for_each() {
        let mut room = Room::default();
        let all = (0..10_000_u32).map(|number| {
            let address =
                std::net::Ipv6Addr::from((0xfd00 << 112) | (u128::from(u64::MAX) << 32) | u128::from(number));
            (
                IpNet::from(std::net::IpAddr::from(address)),
                Timestamp::from_second(1_800_000_000 + i64::from(number)).unwrap(),
            )
        });
        let record = Record(all.filter(|(network, _)| room.take(*network)).collect());
        let bytes = record.value().unwrap().len();
        assert!(record.0.len() > 2_500 && (Room::BYTES * 9 / 10..=Room::BYTES).contains(&bytes), "{bytes}");
    }

    proptest! {
        #[test]
        fn plugin_spiderpool_no_annotation_is_a_panic(text in ".{0,200}") {
            drop(Record::parse(Some(&text)));
        }
    }
}
