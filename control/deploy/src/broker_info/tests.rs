use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Made by hand (printf and base64), field by field as upstream's present release writes it.
const PRESENT: &[u8] = include_bytes!("../../tests/data/present.subm");

/// The same from an older release: lower camel case, and without the fields that came later.
const OLDER: &[u8] = include_bytes!("../../tests/data/older.subm");

fn info() -> BrokerInfo {
    BrokerInfo {
        broker_url: "https://broker.example.com:6443".to_owned(),
        client_token: ClientToken {
            secret_name: "submariner-k8s-broker-admin-token".to_owned(),
            namespace: "submariner-k8s-broker".to_owned(),
            token: Secret::new("head.claims.signature"),
            ca: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
        },
        psk: Secret::new("0123456789abcdef0123456789abcdef0123456789abcdef"),
        service_discovery: true,
        components: vec![SERVICE_DISCOVERY.to_owned(), CONNECTIVITY.to_owned()],
        custom_domains: None,
    }
}

#[test]
fn upstreams_file_is_read() {
    assert_eq!(BrokerInfo::parse(PRESENT).unwrap(), info());
}

#[test]
fn our_file_has_upstreams_names_and_shapes() {
    let decode = |text: &[u8]| -> Value {
        let dense: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        serde_json::from_slice(&general_purpose::URL_SAFE.decode(dense).unwrap()).unwrap()
    };
    assert_eq!(decode(info().emit().as_bytes()), decode(PRESENT));
}

#[test]
fn an_older_releases_file_is_read() {
    let older = BrokerInfo::parse(OLDER).unwrap();
    assert_eq!(older, BrokerInfo { components: vec![], ..info() });
}

#[test]
fn what_is_written_is_read_back() {
    let mut info = info();
    info.custom_domains = Some(vec!["a.example".to_owned()]);
    assert_eq!(BrokerInfo::parse(info.emit().as_bytes()).unwrap(), info);
}

#[test]
fn the_standard_alphabet_is_read_as_the_urls() {
    let mut info = info();
    // Bytes of which the two alphabets differ.
    info.broker_url = "https://broker.example.com:6443/~~~???".to_owned();
    let document = info.to_document().to_string();
    let texts = [general_purpose::STANDARD.encode(&document), general_purpose::URL_SAFE.encode(&document)];
    assert_ne!(texts[0], texts[1]);
    for text in texts {
        assert_eq!(BrokerInfo::parse(text.as_bytes()).unwrap(), info);
    }
}

#[test]
fn a_damaged_file_is_named_with_what_is_wrong_and_without_its_secrets() {
    let whole = info().emit();
    let without = |name: &str| {
        let mut document = info().to_document();
        document[name] = Value::Null;
        general_purpose::URL_SAFE.encode(document.to_string())
    };
    for (text, expected) in [
        (String::new(), "it is empty"),
        (whole[..whole.len() / 2 / 4 * 4].to_owned(), "was it cut off?"),
        ("{\"brokerURL\": 1}".to_owned(), "not base64"),
        (general_purpose::URL_SAFE.encode("[1]"), "no JSON object"),
        (without("brokerURL"), "no brokerURL"),
        (without("ClientToken"), "in its ClientToken"),
        (without("IPSecPSK"), "no psk in its IPSecPSK"),
        ("A".repeat(LONGEST + 1), "it has 1048577 bytes"),
    ] {
        let error = BrokerInfo::parse(text.as_bytes()).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(expected), "{shown}");
        assert!(!shown.contains("signature") && error.next().contains("recover-broker-info"), "{shown}");
    }
}

#[test]
fn a_broker_without_encryption_or_with_a_password_in_its_address_is_refused() {
    for url in ["http://b:6443", "https://u:p@b", "ftp://b", "https://"] {
        assert!(checked_url(url).is_err(), "{url}");
    }
    assert_eq!(checked_url("b:6443").unwrap(), "https://b:6443");
}

#[test]
fn secrets_are_not_printed() {
    let shown = format!("{:?} {:?}", info(), info().client_token);
    assert!(!shown.contains("signature") && !shown.contains("0123456789"), "{shown}");
}

#[test]
fn the_file_is_private_kept_when_it_says_the_same_and_set_aside_when_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    let other = BrokerInfo { broker_url: "https://other:6443".to_owned(), ..info() };
    let now = "2026-11-21T10:11:12Z";

    assert_eq!(save(&info(), &path, now).unwrap(), Written::New);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(save(&info(), &path, now).unwrap(), Written::Unchanged);
    let aside = directory.path().join("broker-info.subm.2026-11-21T10_11_12Z");
    assert_eq!(save(&other, &path, now).unwrap(), Written::Replaced(aside.clone()));
    assert_eq!((load(&path).unwrap(), load(&aside).unwrap()), (other, info()));
    let Written::Replaced(second) = save(&info(), &path, now).unwrap() else { panic!() };
    assert!(second.to_string_lossy().ends_with("12Z.1"), "{}", second.display());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = load(std::path::Path::new("/nowhere/broker-info.subm")).unwrap_err();
    assert!(error.to_string().starts_with("reading /nowhere/broker-info.subm: "), "{error}");
}
