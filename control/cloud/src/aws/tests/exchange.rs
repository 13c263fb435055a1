//! Requests to EC2, and its answers: signed, in pages, refused, too busy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use serde_json::json;

use super::super::change::{AwsChange, GroupRef, Step, is_done, requests};
use super::super::credentials::{Credentials, Keys};
use super::super::query::{Ec2, filter};
use super::super::settings::Settings;
use super::super::state::{Asked, Permission, Source, Subnet, is_in, read, region_of};
use crate::CloudError;
use crate::cluster::Cluster;
use crate::exchange::Exchange;
use crate::form::encode;
use crate::provider::Change as _;

type Answer = (u16, String);
/// A request: its form and its headers.
type Form = (BTreeMap<String, String>, http::HeaderMap);

/// Answers by the form of a request.
#[derive(Clone)]
struct Played<F> {
    answer: F,
    asked: Arc<Mutex<Vec<Form>>>,
}

impl<F: Fn(&BTreeMap<String, String>, usize) -> Answer> Played<F> {
    fn new(answer: F) -> Self {
        Self { answer, asked: Arc::default() }
    }
}

impl<F: Fn(&BTreeMap<String, String>, usize) -> Answer + Send + Sync> Exchange for Played<F> {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let text = String::from_utf8(request.body().clone()).unwrap();
        let form: BTreeMap<String, String> = text
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let number = self.asked.lock().unwrap().len();
        let (status, body) = (self.answer)(&form, number);
        self.asked.lock().unwrap().push((form, request.headers().clone()));
        Ok(Response::builder().status(StatusCode::from_u16(status).unwrap()).body(body.into_bytes()).unwrap())
    }
}

fn ec2<E: Exchange>(http: E) -> Ec2<E> {
    let keys = Keys {
        access_key_id: "AKIDEXAMPLE".to_owned(),
        secret_access_key: "very-secret".to_owned(),
        session_token: None,
        expires: None,
    };
    let clock = Arc::new(|| "2015-08-30T12:36:00Z".parse().unwrap());
    Ec2::new(http, Credentials::Keys(keys), "eu-west-1", [None; 2], clock)
}

fn refused(code: &str, message: &str) -> Answer {
    let body = format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>1</RequestID></Response>"
    );
    (if code == "RequestLimitExceeded" { 503 } else { 400 }, body)
}

#[tokio::test]
async fn lists_are_read_page_by_page_and_every_request_is_signed() {
    let played = Played::new(|form: &BTreeMap<String, String>, _| {
        let page = form.get("NextToken").map_or(0, |token| token.parse().unwrap());
        let next = if page < 2 { format!("<nextToken>{}</nextToken>", page + 1) } else { String::new() };
        (200, format!("<R><vpcSet><item><vpcId>vpc-{page}</vpcId></item></vpcSet>{next}</R>"))
    });
    let found = ec2(played.clone())
        .list("DescribeVpcs", &filter(1, "tag:Name", &["a b", "c"]), "vpcSet", "x")
        .await
        .unwrap();
    let ids: Vec<&str> = found.iter().map(|vpc| vpc.text("vpcId")).collect();
    assert_eq!(ids, ["vpc-0", "vpc-1", "vpc-2"]);
    for (form, headers) in played.asked.lock().unwrap().iter() {
        assert_eq!(form["Action"], "DescribeVpcs");
        assert_eq!(form["Version"], "2016-11-15");
        assert_eq!(form["Filter.1.Value.1"], "a%20b");
        let signed = headers["authorization"].to_str().unwrap();
        assert!(signed.contains("Credential=AKIDEXAMPLE/20150830/eu-west-1/ec2/aws4_request"), "{signed}");
        assert!(headers["authorization"].is_sensitive());
    }
}

#[tokio::test]
async fn a_page_that_names_itself_as_the_next_ends_the_list() {
    let page = "<R><vpcSet><item><vpcId>v</vpcId></item></vpcSet><nextToken>same</nextToken></R>";
    let played = Played::new(|_: &BTreeMap<String, String>, _| (200, page.to_owned()));
    let found = ec2(played).list("DescribeVpcs", &Vec::new(), "vpcSet", "x").await.unwrap();
    assert_eq!(found.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_too_busy_is_asked_again_and_then_given_up() {
    let busy_for = |times: usize| {
        Played::new(move |_: &BTreeMap<String, String>, number: usize| match number < times {
            true => refused("RequestLimitExceeded", "slow down"),
            false => (200, "<R/>".to_owned()),
        })
    };
    assert!(ec2(busy_for(4)).ask("X", &Vec::new(), "x").await.is_ok());
    let error = ec2(busy_for(5)).ask("X", &Vec::new(), "operation x").await.unwrap_err();
    assert_eq!(error.to_string(), "EC2 in eu-west-1: operation x: RequestLimitExceeded: slow down");
}

#[tokio::test]
async fn refusals_have_the_services_code_and_whatever_else_is_answered_is_an_error() {
    let of = |status: u16, body: &str| {
        let body = body.to_owned();
        Played::new(move |_: &BTreeMap<String, String>, _| (status, body.clone()))
    };
    let (_, body) = refused("UnauthorizedOperation", "You are not authorized");
    for (status, body, code) in [
        (403, body.as_str(), "UnauthorizedOperation"),
        (400, "<html><p>proxy</p></html>", "400"),
        (200, "no XML at all", "200"),
        (502, "", "502"),
    ] {
        let error = ec2(of(status, body)).ask("X", &Vec::new(), "x").await.unwrap_err();
        let CloudError::Api { code: found, .. } = &error else { panic!("{error}") };
        assert_eq!(found, code, "{error}");
        assert!(!error.to_string().contains("very-secret"), "{error}");
    }
}

#[test]
fn every_change_has_its_request_and_the_same_rights_are_asked_for_once() {
    let permission = |source: Source| Permission {
        protocol: "udp".to_owned(),
        ports: Some((4500, 4500)),
        source,
        description: "d e".to_owned(),
    };
    let authorize = |source: Source| Step::Authorize {
        group: GroupRef::Id("sg-1".to_owned()),
        name: "g".to_owned(),
        permission: permission(source),
    };
    let cases = [
        (authorize(Source::Group("sg-2".to_owned())), "IpPermissions.1.Groups.1.GroupId=sg-2"),
        (
            authorize(Source::Network("10.0.0.0/8".parse().unwrap())),
            "IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0%2F8",
        ),
        (
            authorize(Source::Network("::/0".parse().unwrap())),
            "IpPermissions.1.Ipv6Ranges.1.CidrIpv6=%3A%3A%2F0",
        ),
    ];
    for (step, part) in cases {
        let made = requests(&step, None);
        let [(action, parameters)] = &made[..] else { panic!("{step:?}") };
        assert_eq!(*action, "AuthorizeSecurityGroupIngress");
        let form = encode(parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        assert!(form.contains(part) && form.contains("Description=d%20e"), "{form}");
        assert_eq!(AwsChange(step).right().as_deref(), Some("ec2:AuthorizeSecurityGroupIngress"));
    }
    assert!(is_done("AuthorizeSecurityGroupIngress", "InvalidPermission.Duplicate"));
    assert!(!is_done("RevokeSecurityGroupIngress", "InvalidPermission.Duplicate"));
}

#[test]
fn regions_are_those_of_zones_local_ones_too() {
    for (id, region) in [
        ("aws:///eu-west-1a/i-1", Some("eu-west-1")),
        ("aws:///us-west-2-lax-1a/i-1", Some("us-west-2")),
        ("aws:///us-gov-east-1b/i-1", Some("us-gov-east-1")),
        ("gce://p/z/n", None),
        ("aws:///", None),
        ("", None),
    ] {
        assert_eq!(region_of(id).as_deref(), region, "{id}");
    }
}

#[tokio::test]
async fn cleanup_with_the_credentials_of_another_account_is_no_success() {
    let nothing = || Played::new(|_: &BTreeMap<String, String>, _| (200, "<R/>".to_owned()));
    let settings = Settings { infra_id: Some("east".to_owned()), ..Settings::default() };
    let asked = Asked { settings: &settings, instance: "c5d.large", is_cleanup: true };
    let node = |id: &str| json!({"metadata": {"name": "n"}, "spec": {"providerID": id}});
    let cluster = Cluster::of(vec![node("aws:///eu-west-1a/i-1")], None);
    let error = read(&ec2(nothing()), asked, cluster).await.unwrap_err();
    assert!(error.to_string().contains("shows none of the nodes' machines"), "{error}");
    // Where no node is a machine of EC2's any more, nothing is left.
    let state = read(&ec2(nothing()), asked, Cluster::of(vec![node("")], None)).await.unwrap();
    assert!(state.machines.is_empty() && state.gateway_group.is_none());
}

#[test]
fn a_set_is_in_the_subnet_that_it_names() {
    let set = |subnet: serde_json::Value| json!({"spec": {"template": {"spec": {"providerSpec": {"value": {"subnet": subnet}}}}}});
    let subnet = Subnet {
        id: "subnet-1".to_owned(),
        name: "east-public-a".to_owned(),
        zone: "a".to_owned(),
        is_chosen: false,
        has_gateways: true,
        note: None,
        is_shared: false,
        internal_elb: None,
        is_offered: true,
    };
    let named = |name: &str| set(json!({"filters": [{"name": "tag:Name", "values": [name]}]}));
    for (set, expected) in [
        (named("east-public-a"), true),
        (named("west-public-a"), false),
        (set(json!({"id": "subnet-1"})), true),
        (set(json!({"id": "subnet-2"})), false),
        (set(json!(null)), false),
    ] {
        assert_eq!(is_in(&set, &subnet), expected, "{set}");
    }
    let unnamed = Subnet { name: String::new(), ..subnet };
    assert!(!is_in(&named(""), &unnamed));
}
