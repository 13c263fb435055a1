use serde_json::json;

use super::*;

fn row(values: &[(&str, &str)]) -> Row {
    values.iter().map(|&(column, value)| (column.to_owned(), value.into())).collect()
}

#[test]
fn operations_on_rows_are_written_in_the_form_of_the_rfc() {
    let table = || "T".to_owned();
    let conditions = || vec![Condition::equal("name", "a")];
    let written = [
        (
            Operation::Insert {
                table: table(),
                row: row(&[("name", "a")]),
                uuid_name: Some("new".to_owned()),
            },
            json!({"op": "insert", "table": "T", "row": {"name": "a"}, "uuid-name": "new"}),
        ),
        (
            Operation::Select { table: table(), conditions: conditions(), columns: vec!["name".to_owned()] },
            json!({"op": "select", "table": "T", "where": [["name", "==", "a"]], "columns": ["name"]}),
        ),
        (
            Operation::Select { table: table(), conditions: Vec::new(), columns: Vec::new() },
            json!({"op": "select", "table": "T", "where": []}),
        ),
        (
            Operation::Update { table: table(), conditions: conditions(), row: row(&[("name", "b")]) },
            json!({"op": "update", "table": "T", "where": [["name", "==", "a"]], "row": {"name": "b"}}),
        ),
        (
            Operation::Mutate {
                table: table(),
                conditions: conditions(),
                mutations: vec![Mutation::new("rows", Mutator::Insert, named("new"))],
            },
            json!({"op": "mutate", "table": "T", "where": [["name", "==", "a"]],
                "mutations": [["rows", "insert", ["named-uuid", "new"]]]}),
        ),
        (
            Operation::Delete { table: table(), conditions: conditions() },
            json!({"op": "delete", "table": "T", "where": [["name", "==", "a"]]}),
        ),
    ];
    for (operation, json) in written {
        assert_eq!(operation.to_json(), json);
    }
}

#[test]
fn other_operations_are_written_in_the_form_of_the_rfc() {
    let conditions = || vec![Condition::equal("name", "a")];
    let written = [
        (
            Operation::expect("T", conditions(), &["name"], vec![row(&[("name", "a")])]),
            json!({"op": "wait", "table": "T", "timeout": 0, "where": [["name", "==", "a"]], "columns": ["name"],
                "until": "==", "rows": [{"name": "a"}]}),
        ),
        (
            Operation::Wait {
                table: "T".to_owned(),
                timeout: None,
                conditions: Vec::new(),
                columns: Vec::new(),
                until: Until::NotEqual,
                rows: Vec::new(),
            },
            json!({"op": "wait", "table": "T", "where": [], "until": "!=", "rows": []}),
        ),
        (Operation::Commit { durable: true }, json!({"op": "commit", "durable": true})),
        (Operation::Abort, json!({"op": "abort"})),
        (Operation::Comment("a".to_owned()), json!({"op": "comment", "comment": "a"})),
        (Operation::Assert { lock: "l".to_owned() }, json!({"op": "assert", "lock": "l"})),
    ];
    for (operation, json) in written {
        assert_eq!(operation.to_json(), json);
    }
}

#[test]
fn a_time_is_written_in_milliseconds() {
    assert_eq!(milliseconds(Duration::from_micros(1_500)), 1);
    assert_eq!(milliseconds(Duration::MAX), i64::MAX);
}
