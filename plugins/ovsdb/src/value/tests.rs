use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn atoms() -> impl Strategy<Value = BTreeSet<Atom>> {
    prop_oneof![
        prop::collection::btree_set(any::<i64>().prop_map(Atom::Integer), 0..5),
        prop::collection::btree_set(
            // Of few digits, which survive; without fraction it would be written as an integer.
            any::<i32>().prop_filter_map("a fraction", |eighths| {
                Real::new(f64::from(eighths) / 8.0).filter(|real| real.get().fract() != 0.0).map(Atom::Real)
            }),
            0..5
        ),
        prop::collection::btree_set(any::<bool>().prop_map(Atom::Boolean), 0..2),
        prop::collection::btree_set(any::<String>().prop_map(Atom::String), 0..5),
        prop::collection::btree_set(
            prop_oneof![
                any::<[u8; 16]>().prop_map(|bytes| Atom::Uuid(Uuid::from_bytes(bytes))),
                "[A-Za-z_][A-Za-z0-9_]{0,8}".prop_map(Atom::NamedUuid),
            ],
            0..5
        ),
    ]
}

pub(crate) fn data() -> impl Strategy<Value = Datum> {
    let maps = (atoms(), atoms())
        .prop_map(|(keys, values)| Datum::Map(keys.into_iter().zip(values).collect::<BTreeMap<_, _>>()));
    prop_oneof![atoms().prop_map(Datum::of_set), maps]
}

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,4}|set|map|uuid|named-uuid|550e8400-e29b-41d4-a716-446655440000".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            ("set|map|uuid|named-uuid", inner.clone()).prop_map(|(tag, value)| json!([tag, value])),
            prop::collection::btree_map("[a-z]{1,4}|error|op|row|where", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_is_read_as_it_was_written(datum in data()) {
        let text = datum.to_json().to_string();
        let json: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(Datum::from_json(&json), Ok(datum));
    }

    #[test]
    fn any_json_is_read_or_refused_and_what_is_read_is_written_alike(json in any_json()) {
        if let Ok(datum) = Datum::from_json(&json) {
            prop_assert_eq!(Datum::from_json(&datum.to_json()), Ok(datum));
        }
        let _ = row_from_json(&json);
    }
}

#[test]
fn a_set_of_one_element_is_its_atom() {
    let bare = Datum::from_json(&json!("a")).unwrap();
    let tagged = Datum::from_json(&json!(["set", ["a"]])).unwrap();
    assert_eq!(bare, tagged);
    assert_eq!(bare, Datum::Set(BTreeSet::from(["a".into()])));
    assert_eq!(tagged.to_json(), json!("a"));
    assert_eq!(Datum::Set(BTreeSet::from(["a".into()])).to_json(), json!("a"));
    assert_ne!(bare, Datum::set(["a", "b"]));
    assert_ne!(Datum::empty(), Datum::map([("a", "b")]));
    assert_ne!(Datum::empty(), Datum::Map(BTreeMap::new()), "an optional column is no map");
    assert_eq!(bare.as_str(), Some("a"));
    assert_eq!(Datum::set(["a", "b"]).as_str(), None);
}

#[test]
fn forms_of_the_rfc_are_read() {
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let read = |json: Value| Datum::from_json(&json).unwrap();
    assert_eq!(read(json!(5)).as_integer(), Some(5));
    assert_eq!(read(json!(true)).as_bool(), Some(true));
    assert_eq!(read(json!(["uuid", uuid])).as_uuid(), Some(uuid.parse().unwrap()));
    assert_eq!(read(json!(["set", []])), Datum::empty());
    assert_eq!(read(json!(["map", [["a", "b"], ["c", "d"]]])).value_of("c"), Some("d"));
    assert_eq!(read(json!(["named-uuid", "new"])), Datum::Atom(Atom::NamedUuid("new".to_owned())));
    assert_eq!(read(json!(["set", [["uuid", uuid], ["named-uuid", "new"]]])).len(), 2);
    assert_eq!(
        read(json!(["set", [1, 2.5]])),
        Datum::set([Real::new(1.0).unwrap(), Real::new(2.5).unwrap()])
    );
    assert_eq!(Real::new(-0.0), Real::new(0.0));
}

#[test]
fn other_forms_are_refused() {
    let refused = [
        (json!(null), InvalidValue::Form),
        (json!({}), InvalidValue::Form),
        (json!([]), InvalidValue::Form),
        (json!(["set", "a"]), InvalidValue::Form),
        (json!(["set", [["set", []]]]), InvalidValue::Form),
        (json!(["set", ["a"], "b"]), InvalidValue::Form),
        (json!(["map", [["a"]]]), InvalidValue::Form),
        (json!(["map", ["a"]]), InvalidValue::Form),
        (json!(["uuid", "550e8400"]), InvalidValue::Uuid),
        (json!(["named-uuid", "a-b"]), InvalidValue::Identifier),
        (json!(["named-uuid", ""]), InvalidValue::Identifier),
        (json!(["set", ["a", "a"]]), InvalidValue::Duplicate),
        (json!(["map", [["a", 1], ["a", 2]]]), InvalidValue::Duplicate),
        (json!(["set", ["a", 1]]), InvalidValue::MixedTypes),
        (json!(["map", [["a", 1], ["b", "c"]]]), InvalidValue::MixedTypes),
    ];
    for (json, error) in refused {
        assert_eq!(Datum::from_json(&json), Err(error), "{json}");
    }
    assert_eq!(row_from_json(&json!([])), Err(InvalidValue::Row));
}
