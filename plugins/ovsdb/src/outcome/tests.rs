use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::value::tests::any_json;

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

fn operations() -> Vec<Operation> {
    vec![
        Operation::Insert { table: "T".to_owned(), row: Row::new(), uuid_name: None },
        Operation::Select { table: "T".to_owned(), conditions: Vec::new(), columns: Vec::new() },
        Operation::Delete { table: "T".to_owned(), conditions: Vec::new() },
        Operation::Comment("a".to_owned()),
    ]
}

#[test]
fn results_are_those_of_their_operations() {
    let result = json!([{"uuid": ["uuid", UUID]}, {"rows": [{"name": "a"}]}, {"count": 2}, {}]);
    let results = read_results(&operations(), &result).unwrap();
    let row = Row::from([("name".to_owned(), "a".into())]);
    assert_eq!(
        results,
        [
            OperationResult::Inserted(UUID.parse().unwrap()),
            OperationResult::Rows(vec![row]),
            OperationResult::Count(2),
            OperationResult::Done
        ]
    );
}

#[test]
fn a_failed_operation_is_named() {
    let result = json!([{"uuid": ["uuid", UUID]}, {"error": "timed out", "details": "wait"}, null, null]);
    let error = read_results(&operations(), &result).unwrap_err();
    assert_eq!(error.failure(), Some(&Failure::TimedOut));
    assert_eq!(error.to_string(), "operation 1 (select) failed: timed out (wait)");
    assert!(error.is_without_effect());
}

#[test]
fn a_failed_commit_is_no_failed_operation() {
    let result = json!([
        {"uuid": ["uuid", UUID]}, {"rows": []}, {"count": 0}, {},
        {"error": "referential integrity violation", "details": "row", "syntax": "x"}
    ]);
    let error = read_results(&operations(), &result).unwrap_err();
    let details = "row".to_owned();
    assert_eq!(error, TransactError::Commit { failure: Failure::ReferentialIntegrity, details });
}

#[test]
fn answers_that_do_not_fit_are_refused() {
    let one = &operations()[..1];
    for answer in [
        json!({}),
        json!([]),
        json!([null]),
        json!([{}]),
        json!([{"uuid": UUID}]),
        json!([{"error": 1}]),
        json!([{"uuid": ["uuid", UUID]}, {}]),
        json!([{"uuid": ["uuid", UUID]}, null]),
        json!([{"uuid": ["uuid", UUID]}, {"error": "x"}, {}]),
    ] {
        let error = read_results(one, &answer).unwrap_err();
        assert!(matches!(error, TransactError::InvalidAnswer(_)), "{answer}: {error}");
        assert!(!error.is_without_effect());
    }
}

#[test]
fn what_a_server_says_is_cut() {
    let failure = Failure::of(&"é".repeat(10_000));
    assert!(failure.to_string().len() < 2_000);
}

proptest! {
    #[test]
    fn any_answer_is_read_or_refused(answer in any_json()) {
        let _ = read_results(&operations(), &answer);
        let _ = read_error(&answer);
    }
}
