//! Secrets that are planted in every place.

use super::*;
use serde_json::json;

const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjbHVzdGVyLWEifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----\n";

fn redacted(mut object: Value) -> Value {
    Redactor::default().object(&mut object);
    object
}

#[test]
fn a_secret_keeps_its_keys_alone() {
    let secret = json!({"kind": "Secret", "metadata": {"name": "submariner-ipsec-psk", "managedFields": [1]},
        "data": {"psk": "c2VjcmV0LWtleS1ieXRlcw=="}, "stringData": {"x": "short"}});
    let expected = json!({"kind": "Secret", "metadata": {"name": "submariner-ipsec-psk"},
        "data": {"psk": REDACTED}, "stringData": {"x": REDACTED}});
    assert_eq!(redacted(secret), expected);
}

#[test]
fn fields_and_variables_that_hold_secrets_are_emptied_and_names_of_secrets_stay() {
    let object = json!({"kind": "Submariner",
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"token\":1}", "a": "b"}},
        "spec": {"brokerK8sApiServerToken": "t0ken", "brokerK8sCA": "ca", "ceIPSecPSK": "psk",
            "brokerK8sSecret": "submariner-broker-secret", "ceIPSecPSKSecret": "submariner-ipsec-psk",
            "automountServiceAccountToken": true,
            "env": [{"name": "BROKER_K8S_APISERVERTOKEN", "value": "t0ken"}, {"name": "CE_IPSEC_PSK", "value": "p"},
                {"name": "BROKER_K8S_SECRET", "value": "submariner-broker-secret"},
                {"name": "HTTPS_PROXY", "value": "http://user:pass@proxy:3128"}],
            "volumes": [{"secret": {"secretName": "x"}}, {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]}});
    let clean = redacted(object);
    assert_eq!(clean["metadata"]["annotations"], json!({"a": "b"}));
    let spec = &clean["spec"];
    for field in ["brokerK8sApiServerToken", "brokerK8sCA", "ceIPSecPSK"] {
        assert_eq!(spec[field], REDACTED, "{field}");
    }
    assert_eq!(spec["brokerK8sSecret"], "submariner-broker-secret");
    assert_eq!(spec["ceIPSecPSKSecret"], "submariner-ipsec-psk");
    assert_eq!(spec["env"][0]["value"], REDACTED);
    assert_eq!(spec["env"][1]["value"], REDACTED);
    assert_eq!(spec["env"][2]["value"], "submariner-broker-secret");
    assert_eq!(spec["env"][3]["value"], format!("http://{REDACTED}@proxy:3128"));
    assert_eq!(spec["volumes"][0]["secret"]["secretName"], "x");
    assert_eq!(spec["volumes"][1]["serviceAccountToken"]["path"], "token");
}

#[test]
fn what_looks_like_a_secret_is_taken_out_of_texts() {
    let redactor = Redactor::default();
    for (text, clean) in [
        (format!("sent {TOKEN}, refused"), format!("sent {REDACTED}, refused")),
        (format!("{{\"key\":\"{}\"}}", KEY.replace('\n', "\\n")), format!("{{\"key\":\"{REDACTED}\\n\"}}")),
        (format!("a\n{KEY}b"), format!("a\n{REDACTED}\nb")),
        ("-----BEGIN CERTIFICATE----- cut".to_owned(), REDACTED.to_owned()),
        ("ca=LS0tLS1CRUdJTiBDRVJU x".to_owned(), format!("ca={REDACTED} x")),
        ("Authorization: Bearer abcdefghijklmnop".to_owned(), format!("Authorization: Bearer {REDACTED}")),
        (
            "token=abcdefghijkl psk: \"0123456789abcdef\"".to_owned(),
            format!("token={REDACTED} psk: \"{REDACTED}\""),
        ),
        ("enc cbc(aes) 0x00112233445566778899aabbccddeeff".to_owned(), format!("enc cbc(aes) {REDACTED}")),
        ("https://u:p4ss@host:1/x".to_owned(), format!("https://{REDACTED}@host:1/x")),
    ] {
        assert_eq!(redactor.text(&text), clean, "{text}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    let redactor = Redactor::default();
    for text in [
        "default via 172.18.0.1 dev eth0 proto static\n10.0.0.0/16 dev vx-submariner",
        "secret submariner-broker-secret is mounted; the token has expired",
        "https://10.0.0.1:6443/api?a=b user@cluster:1",
        "fe80::1%eth0 0x1f key: 1 password: no",
        "µ ✓ größer",
    ] {
        assert_eq!(redactor.text(text), text);
    }
}

#[test]
fn the_values_of_secrets_are_found_wherever_they_appear() {
    let mut redactor = Redactor::default();
    redactor.learn(&[
        json!({"kind": "Secret", "data": {"psk": "a2V5LWJ5dGVzLW9mLXRoZS1zZXQ=", "namespace": "c3VibWFyaW5lci1vcGVyYXRvcg=="}}),
        json!({"kind": "Submariner", "spec": {"ceIPSecPSK": "b3RoZXIta2V5LWJ5dGVz"}}),
    ]);
    for text in
        ["key-bytes-of-the-set", "a2V5LWJ5dGVzLW9mLXRoZS1zZXQ=", "other-key-bytes", "b3RoZXIta2V5LWJ5dGVz"]
    {
        assert_eq!(redactor.text(&format!("charon said <{text}>")), format!("charon said <{REDACTED}>"));
    }
    assert_eq!(redactor.text("submariner-operator"), "submariner-operator");
    let mut pod = json!({"kind": "Pod", "spec": {"args": ["--x", "key-bytes-of-the-set"]}});
    redactor.object(&mut pod);
    assert_eq!(pod["spec"]["args"][1], REDACTED);
}
