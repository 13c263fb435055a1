//! What a `clouds.yaml` is read as, and how Keystone and the catalogue are used.

use serde_json::{Value, json};

use super::played::{Played, REGION};
use super::*;
use crate::provider::Provider as _;

fn entry(fields: &str) -> Result<Credentials, CloudError> {
    Credentials::from_clouds(&format!("clouds: {{x: {fields}}}"), "x")
}

fn password(user: &Value, scope: &Value) -> Value {
    json!({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": scope}}})
}

#[test]
fn asks_for_what_an_entry_names() {
    let by_default = json!({"id": "default"});
    let table = [
        (
            "{auth: {auth_url: 'https://k:5000', username: u, password: 12345, project_name: p}}",
            password(
                &json!({"name": "u", "domain": by_default, "password": "12345"}),
                &json!({"name": "p", "domain": by_default}),
            ),
        ),
        (
            "{auth: {auth_url: 'https://k:5000/v2.0/', user_id: u, password: w, tenant_id: p}, auth_type: password}",
            password(&json!({"id": "u", "password": "w"}), &json!({"id": "p"})),
        ),
        (
            "{auth: {auth_url: 'https://k:5000/', username: u, password: w, project_name: p, domain_id: d, project_domain_name: e}}",
            password(
                &json!({"name": "u", "domain": {"id": "d"}, "password": "w"}),
                &json!({"name": "p", "domain": {"name": "e"}}),
            ),
        ),
        (
            "{auth: {auth_url: 'https://k:5000/v3', application_credential_id: a, application_credential_secret: w, project_id: p}}",
            json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"id": "a", "secret": "w"}}}}),
        ),
        (
            "{auth: {auth_url: 'https://k:5000/v3', application_credential_name: a, application_credential_secret: w, username: u, user_domain_id: d}}",
            json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential":
                {"name": "a", "secret": "w", "user": {"name": "u", "domain": {"id": "d"}}}}}}),
        ),
    ];
    for (fields, wanted) in table {
        let credentials = entry(fields).unwrap();
        assert_eq!(credentials.auth_url(), "https://k:5000/v3", "{fields}");
        assert_eq!(credentials.question(None).unwrap(), wanted, "{fields}");
    }
    let credentials =
        entry("{auth: {auth_url: 'https://k', user_id: u, password: w, project_id: p}}").unwrap();
    assert_eq!(credentials.question(Some("q")).unwrap()["auth"]["scope"]["project"]["id"], "q");
    let more = "{auth: {auth_url: 'https://k', user_id: u, password: w}, endpoint_type: internalURL, region_name: R, cacert: /ca.pem}";
    let credentials = entry(more).unwrap();
    assert_eq!(
        (credentials.interface(), credentials.region(), credentials.cacert()),
        ("internal", Some("R"), Some("/ca.pem"))
    );
    assert!(credentials.question(None).unwrap_err().next().contains("--project-id"));
}

#[test]
fn refuses_without_a_secret_in_the_error() {
    let table = [
        ("{auth: {}}", "no auth_url"),
        ("{}", "no auth_url"),
        ("7", "no entry x"),
        ("{auth: {auth_url: 'ftp://k', username: u, password: s3cret-word}}", "no URL"),
        ("{auth: {auth_url: 'https://u:s3cret-word@k', username: u, password: s3cret-word}}", "no URL"),
        ("{auth: {auth_url: 'https://k', username: u}}", "no password"),
        ("{auth: {auth_url: 'https://k', password: s3cret-word}}", "no username"),
        ("{auth: {auth_url: 'https://k', password: true, username: u}}", "no password"),
        (
            "{auth: {auth_url: 'https://k', application_credential_secret: s3cret-word}}",
            "no application_credential_name",
        ),
        (
            "{auth: {auth_url: 'https://k', password: s3cret-word}, auth_type: v3oidcpassword}",
            "auth_type v3oidcpassword",
        ),
        ("{auth: {password: s3cret-word]", "no valid YAML"),
    ];
    for (fields, wanted) in table {
        let error = entry(fields).unwrap_err();
        assert!(error.to_string().contains(wanted), "{fields}: {error}");
        assert!(!format!("{error} {error:?} {}", error.next()).contains("s3cret"), "{error:?}");
    }
    let error = Credentials::from_clouds(CLOUDS, "west").unwrap_err().to_string();
    assert!(error.contains("it has openstack, robot"), "{error}");
    for name in ["openstack", "robot"] {
        let text = format!("{:?}", settings(name, None));
        assert!(text.contains(name) && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_credentials_give_a_token() {
    for name in ["openstack", "robot"] {
        let played = Played::new(kubernetes());
        let server = played.server();
        let rhos = Rhos::new(played.clone(), &server, settings(name, Some("east")));
        let state = rhos.observe().await.unwrap();
        assert_eq!((state.groups.len(), state.ports.len()), (0, 3));
        assert!(!format!("{rhos:?}").contains("gAAA"), "{rhos:?}");
        assert!(rhos.name().starts_with("OpenStack at keystone.example"), "{}", rhos.name());
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_what_the_catalogue_does_not_have() {
    let at = |region: &str, interface: &str, url: &str| json!({"interface": interface, "region_id": region, "region": region, "url": url});
    let (good, public) = ("https://neutron.example/v2.0/", "public");
    let network = |endpoints: Value| json!([{"type": "network", "endpoints": endpoints}]);
    let table = [
        (network(json!([at(REGION, public, good)])), None, None, Ok(())),
        (
            network(json!([at("other", public, "https://x"), at(REGION, public, good)])),
            Some(REGION),
            None,
            Ok(()),
        ),
        (network(json!([at("a", public, good), at("b", public, good)])), None, None, Err("regions a, b")),
        (network(json!([at("a", public, good)])), Some("b"), None, Err("region b")),
        (network(json!([at("a", "internal", good)])), None, None, Err("no public address")),
        (network(json!([at("a", public, "http://neutron.example")])), None, None, Err("without TLS")),
        (json!("nonsense"), None, None, Err("no public address")),
        (network(json!([at(REGION, public, good)])), None, Some("p-2"), Err("--project-id names p-2")),
    ];
    for (catalogue, region, project, wanted) in table {
        let played = Played::new(World { catalogue: Some(catalogue.clone()), ..kubernetes() });
        let server = played.server();
        let mut settings = settings("robot", Some("east"));
        settings.region = region.map(str::to_owned);
        settings.project_id = project.map(str::to_owned);
        let outcome = Rhos::new(played.clone(), &server, settings).observe().await.map(drop);
        match (outcome, wanted) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            (outcome, wanted) => panic!("{catalogue}: {outcome:?} instead of {wanted:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn names_the_entry_that_keystone_refuses() {
    let played = Played::new(kubernetes());
    let server = played.server();
    let text = CLOUDS.replace("s3cret-word", "s3cret-mistake");
    let credentials = Credentials::from_clouds(&text, "openstack").unwrap();
    let rhos =
        Rhos::new(played.clone(), &server, Settings { credentials, ..settings("openstack", Some("east")) });
    let error = rhos.observe().await.unwrap_err();
    assert!(matches!(error, CloudError::Credentials { .. }), "{error:?}");
    assert!(
        error.to_string().contains("entry openstack") && !format!("{error:?}").contains("s3cret"),
        "{error:?}"
    );
}
