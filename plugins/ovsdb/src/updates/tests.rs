use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::replica::Replica;
use crate::value::row_to_json;
use crate::value::tests::any_json;

const ONE: &str = "00000000-0000-0000-0000-000000000001";
const TWO: &str = "00000000-0000-0000-0000-000000000002";

fn tables() -> Tables {
    let kind = |json: Value| ColumnType::from_json(&json).unwrap();
    let columns = BTreeMap::from([
        ("name".to_owned(), kind(json!("string"))),
        ("port".to_owned(), kind(json!({"key": "integer", "min": 0}))),
        ("tags".to_owned(), kind(json!({"key": "string", "min": 0, "max": "unlimited"}))),
        ("ids".to_owned(), kind(json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"}))),
    ]);
    Tables::new(Plan::from([("T".to_owned(), columns)]))
}

fn with(row: &Value) -> Tables {
    let mut tables = tables();
    tables.apply(&json!({"T": {ONE: {"initial": row}}}), Format::Update2).unwrap();
    tables
}

fn row(tables: &Tables) -> Row {
    Row::clone(&tables.tables()["T"].rows[&ONE.parse().unwrap()])
}

fn values(row: &Value) -> Row {
    crate::value::row_from_json(row).unwrap()
}

#[test]
fn a_new_row_has_all_columns() {
    let tables = with(&json!({"name": "a"}));
    let whole = json!({"name": "a", "port": ["set", []], "tags": ["set", []], "ids": ["map", []]});
    assert_eq!(row(&tables), values(&whole));
}

#[test]
fn differences_are_those_of_the_protocol() {
    let ids = json!(["map", [["a", "1"], ["b", "2"]]]);
    let mut tables = with(&json!({"name": "a", "port": 5, "tags": ["set", ["x", "y"]], "ids": ids}));
    let difference = json!({"name": "b", "port": ["set", []], "tags": ["set", ["y", "z"]],
        "ids": ["map", [["a", "1"], ["b", "3"], ["c", "4"]]]});
    assert!(tables.apply(&json!({"T": {ONE: {"modify": difference}}}), Format::Update2).unwrap());
    let whole = json!({"name": "b", "port": ["set", []], "tags": ["set", ["x", "z"]],
        "ids": ["map", [["b", "3"], ["c", "4"]]]});
    assert_eq!(row(&tables), values(&whole));
    // An optional column gets its new value, whatever it had: not the elements that only one of both has.
    tables.apply(&json!({"T": {ONE: {"modify": {"port": 7, "tags": "x"}}}}), Format::Update2).unwrap();
    tables.apply(&json!({"T": {ONE: {"modify": {"port": 7}}}}), Format::Update2).unwrap();
    assert_eq!(row(&tables)["port"], 7.into());
    assert_eq!(row(&tables)["tags"], "z".into());
    assert!(tables.apply(&json!({"T": {ONE: {"delete": null}}}), Format::Update2).unwrap());
    assert!(tables.tables()["T"].is_empty());
    assert_eq!(tables.tables()["T"].size, 0);
}

#[test]
fn updates_of_the_rfc_have_whole_rows() {
    let mut tables = tables();
    let whole = |name: &str| json!({"name": name, "port": 5, "tags": ["set", []], "ids": ["map", []]});
    let mut apply = |update: Value| tables.apply(&json!({"T": {ONE: update}}), Format::Update);
    apply(json!({"new": whole("a")})).unwrap();
    apply(json!({"old": {"name": "a"}, "new": whole("b")})).unwrap();
    assert!(apply(json!({})).is_err());
    assert!(apply(json!({"new": whole("b")})).is_err());
    assert_eq!(row(&tables)["name"], "b".into());
    tables.apply(&json!({"T": {ONE: {"old": whole("b")}}}), Format::Update).unwrap();
    assert!(tables.tables()["T"].is_empty());
}

#[test]
fn what_does_not_fit_is_refused() {
    let apply = |updates: Value| with(&json!({})).apply(&updates, Format::Update2).unwrap_err();
    let inconsistent = UpdateError::Inconsistent("T".to_owned());
    assert_eq!(apply(json!({"U": {}})), UpdateError::UnknownTable);
    assert_eq!(apply(json!({"T": {ONE: {"insert": {}}}})), inconsistent);
    assert_eq!(apply(json!({"T": {TWO: {"modify": {}}}})), inconsistent);
    assert_eq!(apply(json!({"T": {TWO: {"delete": null}}})), inconsistent);
    let unknown = UpdateError::UnknownColumn("T".to_owned());
    assert_eq!(apply(json!({"T": {ONE: {"modify": {"size": 1}}}})), unknown);
    assert_eq!(apply(json!({"T": {TWO: {"insert": {"size": 1}}}})), unknown);
    let invalid = UpdateError::InvalidValue("T".to_owned());
    assert_eq!(apply(json!({"T": {ONE: {"modify": {"name": 1}}}})), invalid);
    assert_eq!(apply(json!({"T": {ONE: {"modify": {"name": null}}}})), invalid);
    for form in [
        json!([]),
        json!({"T": []}),
        json!({"T": {"1": {}}}),
        json!({"T": {ONE: 1}}),
        json!({"T": {ONE: {}}}),
        json!({"T": {ONE: {"insert": {}, "delete": null}}}),
        json!({"T": {ONE: {"change": {}}}}),
        json!({"T": {TWO: {"insert": null}}}),
    ] {
        assert!(matches!(apply(form.clone()), UpdateError::Form(_)), "{form}");
    }
}

#[test]
fn a_replica_is_bounded_and_names_the_table() {
    let mut tables = tables();
    tables.max_rows = 2;
    let insert = |number: u8| json!({"T": {Uuid::from_bytes([number; 16]).to_string(): {"insert": {}}}});
    tables.apply(&insert(1), Format::Update2).unwrap();
    tables.apply(&insert(2), Format::Update2).unwrap();
    let error = tables.apply(&insert(3), Format::Update2).unwrap_err();
    assert_eq!(error, UpdateError::TooManyRows("T".to_owned()));

    let mut tables = with(&json!({}));
    tables.max_bytes = 10_000;
    let large = json!({"T": {ONE: {"modify": {"name": "x".repeat(10_000)}}}});
    assert_eq!(tables.apply(&large, Format::Update2).unwrap_err(), UpdateError::TooLarge("T".to_owned()));
}

#[test]
fn a_snapshot_does_not_change_and_shows_the_difference() {
    let mut tables = with(&json!({"name": "a"}));
    let snapshot = |tables: &Tables| Replica { tables: tables.tables().clone(), ..Replica::default() };
    let old = snapshot(&tables);
    let update = json!({"T": {ONE: {"modify": {"name": "b"}}, TWO: {"insert": {}}}});
    tables.apply(&update, Format::Update2).unwrap();
    let new = snapshot(&tables);
    assert_eq!(old.rows("T").count(), 1);
    let differences = new.differences(&old);
    assert_eq!(differences.len(), 2);
    assert_eq!(differences[0].old.unwrap()["name"], "a".into());
    assert_eq!(differences[0].new.unwrap()["name"], "b".into());
    assert_eq!(differences[1].old, None);
    assert_eq!(old.differences(&new).len(), 2);
    assert_eq!(new.differences(&new.clone()).len(), 0);
    assert_eq!(Replica::default().differences(&new).len(), 2);
    assert_eq!(new.differences(&Replica::default()).len(), 2);
}

fn rows() -> impl Strategy<Value = Row> {
    let text = "[a-c]{0,1}";
    let set = prop::collection::btree_set(text.prop_map(Atom::String), 0..4);
    let map = prop::collection::btree_map(text.prop_map(Atom::String), text.prop_map(Atom::String), 0..4);
    (text, prop::option::of(0..3_i64), set, map).prop_map(|(name, port, tags, ids)| {
        Row::from([
            ("name".to_owned(), name.into()),
            ("port".to_owned(), Datum::set(port)),
            ("tags".to_owned(), Datum::of_set(tags)),
            ("ids".to_owned(), Datum::Map(ids)),
        ])
    })
}

/// The difference as ovsdb-server writes it.
fn difference(old: &Row, new: &Row) -> Row {
    let changed = new.iter().filter(|(name, value)| old[*name] != **value);
    let difference = |(name, new): (&String, &Datum)| {
        let old = &old[name];
        let difference = match name.as_str() {
            "tags" => {
                let (old, new): (BTreeSet<_>, BTreeSet<_>) = (old.atoms().collect(), new.atoms().collect());
                Datum::of_set(old.symmetric_difference(&new).map(|&atom| atom.clone()).collect())
            }
            "ids" => {
                let (old, new) = (old.as_map().unwrap(), new.as_map().unwrap());
                let gone = old.iter().filter(|(key, _)| !new.contains_key(key));
                let come = new.iter().filter(|(key, value)| old.get(key) != Some(value));
                Datum::Map(gone.chain(come).map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            _ => new.clone(),
        };
        (name.clone(), difference)
    };
    changed.map(difference).collect()
}

proptest! {
    #[test]
    fn a_difference_leads_from_one_row_to_the_other(old in rows(), new in rows()) {
        let mut tables = with(&row_to_json(&old));
        let update = json!({"T": {ONE: {"modify": row_to_json(&difference(&old, &new))}}});
        tables.apply(&update, Format::Update2).unwrap();
        prop_assert_eq!(row(&tables), new);
        let table = &tables.tables()["T"];
        prop_assert_eq!(table.size, table.rows.values().map(|row| size_of_row(row)).sum::<usize>());
    }

    #[test]
    fn any_update_is_applied_or_refused(update in any_json(), format in prop_oneof![
        Just(Format::Update), Just(Format::Update2)
    ]) {
        for update in [update.clone(), json!({"T": update}), json!({"T": {ONE: update}})] {
            let _ = with(&json!({"tags": "a"})).apply(&update, format);
        }
    }
}
