//! Answers of services that are not trusted: any JSON of the fields that are read, and what is none.

use proptest::prelude::*;
use serde_json::{Map, Value};

/// JSON with the fields that are read, and anything in them.
pub(crate) fn json_of(
    fields: &'static [&'static str],
    texts: &'static [&'static str],
) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(texts).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(fields), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter().map(|(field, value)| (field.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// Status and body: mostly of success, and a proxy's page among them.
pub(crate) fn answer(
    fields: &'static [&'static str],
    texts: &'static [&'static str],
) -> impl Strategy<Value = (u16, String)> {
    let status = prop_oneof![8 => Just(200_u16), 1 => prop::sample::select(&[204_u16, 400, 401, 404, 409, 412, 500][..])];
    let body = prop_oneof![
        6 => json_of(fields, texts).prop_map(|body| body.to_string()),
        1 => Just("<html>captive portal</html>".to_owned()),
        1 => "\\PC{0,40}",
    ];
    (status, body)
}
