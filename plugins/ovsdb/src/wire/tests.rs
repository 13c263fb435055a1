use proptest::prelude::*;

use super::*;
use crate::value::tests::any_json;

/// Everything that a decoder finds in a stream that arrives in pieces.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Message>, WireError> {
    let mut decoder = Decoder::default();
    let mut found = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(message) = decoder.poll()? {
            found.push(message);
        }
    }
    Ok(found)
}

fn messages() -> impl Strategy<Value = Message> {
    let id = prop_oneof![any::<u64>().prop_map(Value::from), "[a-z{}\"\\\\]{1,5}".prop_map(Value::from)];
    let params = || prop::collection::vec(any_json(), 0..3);
    prop_oneof![
        ("[a-z]{1,8}", params(), id.clone()).prop_map(|(method, params, id)| Message::Request {
            method,
            params,
            id
        }),
        ("[a-z]{1,8}", params()).prop_map(|(method, params)| Message::Notification { method, params }),
        (id.clone(), any_json()).prop_map(|(id, result)| Message::Response { id, outcome: Ok(result) }),
        (id, any_json().prop_filter("an error", |error| !error.is_null()))
            .prop_map(|(id, error)| Message::Response { id, outcome: Err(error) }),
    ]
}

proptest! {
    #[test]
    fn messages_are_found_however_the_stream_is_cut(
        messages in prop::collection::vec(messages(), 0..4), piece in 1_usize..40, space in "[ \n\t\r]{0,3}"
    ) {
        // Real numbers lose their last digit on the way through text.
        let texts: Vec<String> = messages.iter().map(|message| message.to_json().to_string() + &space).collect();
        let expected: Vec<Message> = texts
            .iter()
            .map(|text| Message::from_json(serde_json::from_str(text).unwrap()).unwrap())
            .collect();
        prop_assert_eq!(decode(texts.concat().as_bytes().chunks(piece)), Ok(expected));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), piece in 1_usize..8) {
        let _ = decode(bytes.chunks(piece));
    }

    #[test]
    fn any_text_of_an_object_is_read_or_refused(text in r#"\{[\[\]{}",:\\a-z0-9 ]{0,60}"#) {
        let _ = decode([text.as_bytes()]);
    }

    #[test]
    fn any_json_is_a_message_or_refused(json in any_json()) {
        if let Ok(message) = Message::from_json(json) {
            prop_assert_eq!(Message::from_json(message.to_json()), Ok(message));
        }
    }
}

#[test]
fn brackets_in_texts_end_nothing() {
    let text = br#"{"method":"a]}\\\"}","params":["{"],"id":null}"#;
    let message = Message::Notification { method: "a]}\\\"}".to_owned(), params: vec!["{".into()] };
    assert_eq!(decode([text.as_slice()]), Ok(vec![message]));
}

#[test]
fn what_is_no_message_is_refused() {
    for (text, error) in [
        ("null", WireError::NotAnObject),
        ("[]", WireError::NotAnObject),
        ("}", WireError::NotAnObject),
        ("{\n\"a\"]", WireError::Syntax(6)),
        ("{}", WireError::Form),
        (r#"{"method":1,"params":[],"id":1}"#, WireError::Form),
        (r#"{"method":"a","params":{},"id":1}"#, WireError::Form),
        (r#"{"result":1,"error":null,"id":null}"#, WireError::Form),
        (r#"{"result":1,"error":2,"id":1}"#, WireError::Form),
        (r#"{"id":1}"#, WireError::Form),
    ] {
        assert_eq!(decode([text.as_bytes()]), Err(error), "{text}");
    }
}

#[test]
fn a_value_without_end_is_given_up_at_its_bound() {
    let mut decoder = Decoder::default();
    decoder.push(br#"{"a":""#);
    let piece = vec![b'x'; 1 << 16];
    let mut pushed = 0;
    let error = loop {
        decoder.push(&piece);
        pushed += piece.len();
        match decoder.poll() {
            Ok(None) => assert!(pushed <= MAX_MESSAGE_BYTES, "{pushed} bytes"),
            Ok(Some(message)) => panic!("{message:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, WireError::TooLong);
    assert!(decoder.held() <= MAX_MESSAGE_BYTES + (2 << 16));
}

#[test]
fn deep_nesting_is_given_up() {
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert_eq!(decode([deep.as_bytes()]), Err(WireError::TooDeep));
    let allowed = format!(r#"{{"a":{}{},"#, "[".repeat(MAX_DEPTH - 1), "]".repeat(MAX_DEPTH - 1));
    assert_eq!(decode([allowed.as_bytes()]), Ok(Vec::new()));
}

#[test]
fn very_many_values_are_given_up() {
    let many = format!("{{\"a\":[{}", "0,".repeat(MAX_MESSAGE_VALUES));
    assert_eq!(decode([many.as_bytes()]), Err(WireError::TooManyValues));
}

#[test]
fn the_buffer_of_a_large_message_is_not_kept() {
    let mut decoder = Decoder::default();
    let large = format!(r#"{{"method":"a","params":["{}"],"id":null}}"#, "x".repeat(4 << 20));
    decoder.push(large.as_bytes());
    assert!(decoder.poll().unwrap().is_some());
    decoder.push(b"{");
    assert_eq!(decoder.held(), 1);
    assert!(decoder.buffer.capacity() < KEPT_BYTES);
}
