//! Where keys come from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use http::{Request, Response};
use jiff::Timestamp;

use super::super::{Credentials, Keys};
use crate::CloudError;
use crate::exchange::Exchange;

/// Files of AWS's tools.
const CREDENTIALS: &str = "[default]\naws_access_key_id = ID-default\naws_secret_access_key=secret\n\n[ci]\n# a comment\n\
     aws_access_key_id=ID-ci\naws_secret_access_key=secret\naws_session_token=token\n[empty]\nregion=eu-west-9\n";
const CONFIG: &str = "[default]\nregion = eu-central-1\n[profile ci]\nregion=us-east-2\naws_access_key_id=ID-other\n\
     [profile sso]\nsso_session=s\n[profile keys]\naws_access_key_id=ID-config\naws_secret_access_key=s\n";

/// File, profile, variables, and what is found.
type Case<'c> = (Option<&'c Path>, Option<&'c str>, Vec<(&'c str, &'c str)>, &'c str);

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
        Self(home)
    }

    /// Returns where keys are found, in words, and the region.
    fn find(
        &self,
        file: Option<&Path>,
        profile: Option<&str>,
        more: &[(&str, &str)],
    ) -> Result<String, CloudError> {
        let mut variables: BTreeMap<&str, String> =
            more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        variables.entry("HOME").or_insert_with(|| self.0.path().display().to_string());
        let found = Credentials::find(file, profile, |name| variables.get(name).cloned())?;
        let keys = match found.credentials {
            Credentials::Keys(keys) => {
                format!("{}{}", keys.access_key_id, keys.session_token.map_or("", |_| " session"))
            }
            Credentials::WebIdentity { role, .. } => format!("role {role}"),
            Credentials::Instance => "instance".to_owned(),
        };
        Ok(format!("{keys} in {}", found.region.unwrap_or_default()))
    }
}

#[test]
fn keys_are_found_where_awss_tools_find_them() {
    let home = Home::new();
    let keys = [("AWS_ACCESS_KEY_ID", "ID-env"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let with = |more: &[(&'static str, &'static str)]| [&keys[..], more].concat();
    let identity =
        [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:r"), ("AWS_REGION", "eu-west-1")];
    let other = home.0.path().join(".aws/credentials");
    let cases: [Case<'_>; 10] = [
        (None, None, vec![], "ID-default in eu-central-1"),
        (None, Some("ci"), vec![], "ID-ci session in us-east-2"),
        (None, Some("keys"), vec![], "ID-config in "),
        (None, None, vec![("AWS_PROFILE", "ci")], "ID-ci session in us-east-2"),
        (None, None, with(&[("AWS_REGION", "eu-west-1")]), "ID-env in eu-west-1"),
        (
            None,
            None,
            with(&[("AWS_SESSION_TOKEN", "t"), ("AWS_DEFAULT_REGION", "eu-west-2")]),
            "ID-env session in eu-west-2",
        ),
        // A profile that is named counts before the environment's keys.
        (None, Some("ci"), with(&[]), "ID-ci session in us-east-2"),
        (Some(&other), None, with(&[]), "ID-default in eu-central-1"),
        (None, None, identity.to_vec(), "role arn:r in eu-west-1"),
        (None, None, vec![("HOME", "/nowhere")], "instance in "),
    ];
    for (file, profile, variables, expected) in cases {
        assert_eq!(
            home.find(file, profile, &variables).unwrap(),
            expected,
            "{file:?} {profile:?} {variables:?}"
        );
    }
}

#[test]
fn what_is_named_and_is_not_there_is_an_error_that_helps() {
    let home = Home::new();
    for (file, profile, part) in [
        (Some(Path::new("/nowhere/file")), None, "cannot read AWS credentials from /nowhere/file"),
        (None, Some("none"), "the profile none of "),
        (None, Some("sso"), "the profile sso of "),
        (None, Some("empty"), "has no aws_access_key_id"),
    ] {
        let error = home.find(file, profile, &[]).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.next().contains("--credentials FILE"), "{}", error.next());
    }
    let error = home.find(None, None, &[("AWS_PROFILE", "sso")]).unwrap_err();
    assert!(
        error.to_string().contains("the profile sso of "),
        "another account is not taken in its place: {error}"
    );
}

#[test]
fn no_secret_is_shown() {
    let secret = Credentials::of_secret(|name| Some(format!("very-{name}"))).unwrap();
    let shown = format!("{secret:?}");
    assert!(shown.contains("very-aws_access_key_id"), "{shown}");
    assert!(!shown.contains("very-aws_secret") && !shown.contains("very-aws_session"), "{shown}");
    assert!(Credentials::of_secret(|name| (name == "aws_access_key_id").then(|| "ID".to_owned())).is_none());
}

/// Answers in order, and records what it was asked for.
struct Answers {
    answers: Mutex<Vec<(u16, String)>>,
    asked: Mutex<Vec<String>>,
}

impl Answers {
    fn new(answers: &[(u16, &str)]) -> Self {
        let answers = answers.iter().rev().map(|(status, body)| (*status, (*body).to_owned())).collect();
        Self { answers: Mutex::new(answers), asked: Mutex::default() }
    }
}

impl Exchange for Answers {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        self.asked.lock().unwrap().push(format!("{} {} {body}", request.method(), request.uri()));
        let (status, body) = self.answers.lock().unwrap().pop().ok_or("no route to host")?;
        Ok(Response::builder().status(status).body(body.into_bytes()).unwrap())
    }
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

#[tokio::test]
async fn a_pods_token_is_exchanged_for_the_keys_of_a_role() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "pods.token\n").unwrap();
    let identity =
        Credentials::WebIdentity { token: file.path().to_owned(), role: "arn:aws:iam::1:role/r".to_owned() };
    let answer = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA</AccessKeyId>\
                  <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2026-11-30T13:00:00Z</Expiration>\
                  </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    let sts = Answers::new(&[(200, answer)]);
    let keys = identity.keys(&sts, "https://sts.eu-west-1.amazonaws.com/", now()).await.unwrap();
    let end = "2026-11-30T13:00:00Z".parse().ok();
    let expected = Keys {
        access_key_id: "ASIA".to_owned(),
        secret_access_key: "s".to_owned(),
        session_token: Some("t".to_owned()),
        expires: end,
    };
    assert_eq!(keys, expected);
    assert!(keys.are_valid(now()));
    assert!(
        !keys.are_valid("2026-11-30T12:56:00Z".parse().unwrap()),
        "new ones are asked for before these end"
    );
    let asked = sts.asked.lock().unwrap().join("\n");
    assert!(asked.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&"), "{asked}");
    assert!(asked.ends_with("&WebIdentityToken=pods.token"), "{asked}");

    let refused =
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>";
    let error = identity.keys(&Answers::new(&[(403, refused)]), "https://sts/", now()).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied: not you"), "{error}");
    assert!(!error.to_string().contains("pods.token"), "{error}");
}

#[tokio::test]
async fn a_machines_role_is_asked_for_with_a_token_of_the_metadata_service() {
    let keys = r#"{"Code":"Success","AccessKeyId":"ASIA","SecretAccessKey":"s","Token":"t","Expiration":"2026-11-30T18:00:00Z"}"#;
    let service = Answers::new(&[(200, "metadata-token"), (200, "node-role\n"), (200, keys)]);
    let found = Credentials::Instance.keys(&service, "", now()).await.unwrap();
    assert_eq!((found.access_key_id.as_str(), found.session_token.as_deref()), ("ASIA", Some("t")));
    let asked = service.asked.lock().unwrap().clone();
    assert!(asked[0].starts_with("PUT http://169.254.169.254/latest/api/token"), "{asked:?}");
    assert!(asked[2].contains("/iam/security-credentials/node-role"), "{asked:?}");
    for answers in [&[][..], &[(404, "")], &[(200, "t"), (200, "role"), (200, "{}")]] {
        let error = Credentials::Instance.keys(&Answers::new(answers), "", now()).await.unwrap_err();
        assert!(
            error.to_string().starts_with("there are no AWS credentials, and this machine has no role"),
            "{error}"
        );
    }
}
