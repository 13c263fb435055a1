//! Listings of `nft -j`, object by object. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Parses a listing and hands over its objects one by one: of a large one only an object at a time is a tree of values.
///
/// # Errors
/// If this is not JSON, or not a listing. Objects before the error have been handed over.
pub(crate) fn for_each_object(listing: &[u8], take: impl FnMut(Value)) -> serde_json::Result<()> {
    let mut input = serde_json::Deserializer::from_slice(listing);
    input.deserialize_map(Listing(take))?;
    input.end()
}

/// Visits a listing.
struct Listing<F>(F);

impl<'de, F: FnMut(Value)> Visitor<'de> for Listing<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a listing of nftables")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "nftables" {
                map.next_value_seed(Objects(&mut self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Visits the objects of a listing.
struct Objects<'a, F>(&'a mut F);

impl<'de, F: FnMut(Value)> DeserializeSeed<'de> for Objects<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Value)> Visitor<'de> for Objects<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects of nftables")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
        while let Some(object) = objects.next_element::<Value>()? {
            if object.get("metainfo").is_none() {
                (self.0)(object);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_handed_over_in_order_and_what_is_no_listing_is_an_error() {
        let read = |text: &str| {
            let mut objects = Vec::new();
            for_each_object(text.as_bytes(), |object| objects.push(object)).map(|()| objects)
        };
        let listing =
            r#"{"other": [1], "nftables": [{"metainfo": {}}, {"table": {}}, {"set": {"elem": [1]}}]}"#;
        assert_eq!(read(listing).unwrap(), [json!({"table": {}}), json!({"set": {"elem": [1]}})]);
        assert!(read(r#"{"nftables": []}"#).unwrap().is_empty());
        for wrong in ["", "[]", r#"{"nftables": {}}"#, r#"{"nftables": [{}"#, r#"{"nftables": []} {}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
