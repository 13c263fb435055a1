use proptest::prelude::*;
use serde_json::json;

use super::*;

type Small = Bounded<4096>;

fn decode(value: &Value) -> Small {
    serde_json::from_str(&value.to_string()).unwrap()
}

#[test]
fn what_fits_is_decoded_as_it_is_but_for_managed_fields() {
    let value = json!({"kind": "Endpoint", "metadata": {"name": "a", "generation": 3, "labels": {"x": "y"},
        "managedFields": [{"manager": "m"}]}, "spec": {"a": [1, -2, 0.5, true, null, "t", {"b": {}}]}});
    let Bounded { document, exceeded } = decode(&value);
    let mut wanted = value;
    wanted["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!((document, exceeded), (wanted, None));
}

#[test]
fn what_is_too_large_says_who_it_is_and_in_which_field_and_nothing_else() {
    let many: Vec<Value> = (0..500).map(|_| json!({"a": 0})).collect();
    let metadata = json!({"annotations": {"a": "b"}, "creationTimestamp": "2024-01-01T00:00:00Z",
        "labels": {"submariner-io/clusterID": "b", "x": "y"}, "name": "n", "namespace": "ns",
        "resourceVersion": "7", "uid": "u"});
    let value = json!({"kind": "Endpoint", "metadata": metadata, "spec": {"subnets": many}});
    let Bounded { document, exceeded } = decode(&value);
    let mut wanted = metadata;
    wanted.as_object_mut().unwrap().remove("annotations");
    wanted["labels"].as_object_mut().unwrap().remove("x");
    assert_eq!(document, json!({"kind": "Endpoint", "metadata": wanted}));
    assert_eq!(exceeded, Some(too_large("spec", 4096)));

    // The heavy part comes first.
    let heavy = json!({"annotations": {"a": "b".repeat(5_000)}, "name": "n",
        "labels": {"a": "x", "submariner-io/clusterID": "b"}});
    let Bounded { document, exceeded } = decode(&json!({"metadata": heavy, "spec": {}}));
    let wanted = json!({"metadata": {"name": "n", "labels": {"submariner-io/clusterID": "b"}}});
    assert_eq!(document, wanted);
    assert_eq!(exceeded, Some(too_large("metadata.annotations", 4096)));
}

#[test]
fn a_name_without_end_is_none() {
    let Bounded { document, exceeded } = decode(&json!({"metadata": {"name": "n".repeat(5_000)}}));
    assert_eq!(document, json!({"metadata": {}}));
    assert_eq!(exceeded, Some(too_large("metadata.name", 4096)));
}

#[test]
fn a_field_without_end_is_cut_where_it_is_named() {
    let long = "k".repeat(1 << 20);
    let Bounded { exceeded, .. } = decode(&json!({"metadata": {"name": "n"}, long: "x".repeat(5_000)}));
    assert!(exceeded.unwrap().len() < 1_000);
}

#[test]
fn what_nests_deep_is_skipped_and_hides_nothing_that_comes_after_it() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let items = |depth: usize| {
        let deep = nested(depth);
        let text = format!(
            r#"[{{"metadata": {{"name": "a"}}, "spec": {deep}}}, {{"spec": {{"b": {}}}}}]"#,
            nested(50)
        );
        serde_json::from_str::<Vec<Small>>(&text).unwrap()
    };
    for (depth, is_deep) in [(MAX_DEPTH, false), (MAX_DEPTH + 1, true), (10_000, true)] {
        let [first, second] = &items(depth)[..] else { panic!("two objects") };
        assert_eq!(first.exceeded.clone(), is_deep.then(|| too_deep("spec")), "{depth} levels");
        assert_eq!(first.document["metadata"], json!({"name": "a"}));
        assert_eq!(second.exceeded, None, "after {depth} levels");
    }
}

#[test]
fn a_description_of_an_error_holds_nothing_of_the_document() {
    for text in
        [r#"{"a": "secret"}"#, r#""secret, expected nothing""#, r#"{"type": "secret"}"#, "secret", "[1, "]
    {
        let error = serde_json::from_str::<Vec<u8>>(text).unwrap_err();
        let described = describe(&error);
        assert!(!described.contains("secret") && described.contains("line 1"), "{described}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 96, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,6}", inner, 0..12)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_larger_than_the_bound_is_kept_and_what_is_far_below_it_is_whole(body in json_value()) {
        let value = json!({"metadata": {"name": "n"}, "spec": body});
        let size = size::of_value(&value["spec"], usize::MAX);
        let Bounded { document, exceeded } = decode(&value);
        let kept = document.get("spec").map_or(0, |spec| size::of_value(spec, usize::MAX));
        prop_assert!(kept <= 4096, "{kept}");
        if exceeded.is_none() {
            prop_assert_eq!(document, value);
        } else {
            prop_assert!(size + 2 * size::NODE >= 4096, "{size}: {exceeded:?}");
        }
    }
}
