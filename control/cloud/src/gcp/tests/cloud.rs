//! Google Cloud, played: tokens, firewall rules, instances, zones, operations and rights, with the refusals of the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, Request, Response, StatusCode};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::super::names::is_name;
use crate::exchange::Exchange;

pub(super) const PUBLIC: &[u8] = include_bytes!("rfc7515-a2.pub.der");
/// How long its tokens hold, in seconds.
pub(super) const TOKEN_SECONDS: i64 = 3600;
const BASE: &str = "https://compute.googleapis.com/compute/v1/";

/// One cloud.
#[derive(Debug, Default, Clone)]
pub(super) struct Cloud(pub(super) Arc<Mutex<Inner>>);

/// What it has.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Seconds since 1970.
    pub(super) now: i64,
    /// Firewall rules, by project and name.
    pub(super) firewalls: BTreeMap<(String, String), Value>,
    /// Instances, by project, zone and name.
    pub(super) instances: BTreeMap<(String, String, String), Value>,
    /// Networks, by path.
    pub(super) networks: BTreeSet<String>,
    /// Zones, with their region.
    pub(super) zones: BTreeMap<String, String>,
    /// How many items a page has.
    pub(super) page: usize,
    /// Every page has a next one.
    pub(super) is_endless: bool,
    /// Every so many requests it is busy; 0 never is.
    pub(super) busy_every: usize,
    /// How often an operation is not done yet.
    pub(super) polls: u32,
    /// The rights that it grants; `None` answers no such question.
    pub(super) rights: Option<BTreeSet<String>>,
    /// What the next operation fails with.
    pub(super) next_failure: Option<(u64, &'static str)>,
    /// A token for a machine is given out.
    pub(super) is_machine: bool,
    /// Requests that changed something, as method and path.
    pub(super) changes: Vec<String>,
    /// What it gave tokens for, and until when they hold.
    pub(super) tokens: Vec<i64>,
    requests: usize,
    operations: BTreeMap<String, Operation>,
}

#[derive(Debug)]
struct Operation {
    polls: u32,
    effect: Option<Effect>,
    failure: Option<(u64, &'static str)>,
    zone: Option<String>,
}

#[derive(Debug)]
enum Effect {
    Firewall((String, String), Option<Value>),
    Tags((String, String, String), Value),
}

type Answer = (u16, Value);

impl Exchange for Cloud {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let mut inner = self.0.lock().unwrap();
        inner.requests += 1;
        let is_busy = inner.busy_every > 0 && inner.requests.is_multiple_of(inner.busy_every);
        let (status, body) = if is_busy { failure(429, "rateLimitExceeded") } else { inner.answer(&request) };
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Response::builder().status(status).body(body.to_string().into_bytes()).unwrap())
    }
}

impl Inner {
    fn answer(&mut self, request: &Request<Vec<u8>>) -> Answer {
        let url = request.uri().to_string();
        match url.as_str() {
            "https://oauth2.googleapis.com/token" => return self.token_for_assertion(request),
            "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token" => {
                let is_asked =
                    request.headers().get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
                return if is_asked && self.is_machine { self.token() } else { failure(403, "no flavor") };
            }
            _ => {}
        }
        if !self.is_authorized(request) {
            return failure(401, "authError");
        }
        let sent: Value = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        if request.method() != Method::GET && request.method() != Method::DELETE {
            assert_eq!(request.headers()["content-type"], "application/json");
        }
        if url == "https://cloudresourcemanager.googleapis.com/v1/projects/p-1:testIamPermissions" {
            return self.granted(&sent);
        }
        let Some(path) = url.strip_prefix(&format!("{BASE}projects/")) else {
            return failure(404, "notFound");
        };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if request.method() != Method::GET && !path.ends_with("testIamPermissions") {
            self.changes.push(format!("{} {path}", request.method()));
        }
        let parts: Vec<&str> = path.split('/').collect();
        match (request.method(), &parts[..]) {
            (&Method::GET, ["p-1", "zones"]) => self.list_zones(query),
            (&Method::GET, [project, "zones", zone, "instances"]) => {
                self.list_instances(project, zone, query)
            }
            (&Method::POST, [project, "zones", zone, "instances", name, "setTags"]) => {
                self.set_tags([project, zone, name], &sent)
            }
            (&Method::POST, [_, "zones", _, "instances", _, "testIamPermissions"]) => self.granted(&sent),
            (&Method::GET, [_, "global", "operations", name] | [_, "zones", _, "operations", name]) => {
                self.operation(name)
            }
            (&Method::POST, [project, "global", "firewalls"]) => self.insert(project, sent),
            (method, [project, "global", "firewalls", name]) => self.firewall(method, project, name, &sent),
            _ => failure(404, "notFound"),
        }
    }

    /// Verifies an assertion as RFC 7523 wants it, with the public key.
    fn token_for_assertion(&mut self, request: &Request<Vec<u8>>) -> Answer {
        let body = String::from_utf8(request.body().clone()).unwrap();
        assert_eq!(request.headers()["content-type"], "application/x-www-form-urlencoded");
        let assertion =
            body.strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=");
        let assertion = assertion.expect("the grant of RFC 7523");
        let (input, signature) = assertion.rsplit_once('.').unwrap();
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, PUBLIC);
        if public.verify(input.as_bytes(), &decoded(signature)).is_err() {
            let why = format!("Invalid JWT Signature of {assertion}");
            return (400, json!({"error": "invalid_grant", "error_description": why}));
        }
        let claims: Value = serde_json::from_slice(&decoded(input.split_once('.').unwrap().1)).unwrap();
        let (issued, ends) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
        assert_eq!(claims["aud"], "https://oauth2.googleapis.com/token");
        assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
        assert!(ends - issued <= 3600);
        if (issued - self.now).abs() > 300 {
            let why = format!("Invalid JWT: Token must be a short-lived token {assertion}");
            return (400, json!({"error": "invalid_grant", "error_description": why}));
        }
        self.token()
    }

    fn token(&mut self) -> Answer {
        self.tokens.push(self.now + TOKEN_SECONDS);
        let token = format!("ya29.{}", self.tokens.len());
        (200, json!({"access_token": token, "expires_in": TOKEN_SECONDS, "token_type": "Bearer"}))
    }

    fn is_authorized(&self, request: &Request<Vec<u8>>) -> bool {
        let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        let number = header.and_then(|header| header.strip_prefix("Bearer ya29."));
        let number = number.and_then(|number| number.parse::<usize>().ok()).unwrap_or_default();
        number > 0 && self.tokens.get(number - 1).is_some_and(|until| self.now < *until)
    }

    fn granted(&self, sent: &Value) -> Answer {
        let Some(rights) = &self.rights else { return failure(403, "SERVICE_DISABLED") };
        let asked = sent["permissions"].as_array().unwrap();
        let granted: Vec<&Value> =
            asked.iter().filter(|right| rights.contains(right.as_str().unwrap())).collect();
        // As the real one: no field where there are none.
        (200, if granted.is_empty() { json!({}) } else { json!({"permissions": granted}) })
    }

    fn paged(&self, items: &[Value], query: &str) -> Answer {
        let start = query.split("pageToken=").nth(1).map_or(0, |token| {
            let token = token.strip_prefix("next%2F").expect("the escaped token");
            token.parse::<usize>().unwrap()
        });
        let page: Vec<Value> = items.iter().skip(start).take(self.page).cloned().collect();
        let end = start + page.len();
        let mut answer = json!({"items": page});
        if page_is_empty(&answer) {
            answer = json!({});
        }
        if end < items.len() {
            answer["nextPageToken"] = json!(format!("next/{end}"));
        }
        if self.is_endless {
            answer["nextPageToken"] = json!(format!("next/{}", start + 1));
        }
        (200, answer)
    }

    fn list_zones(&self, query: &str) -> Answer {
        assert!(query.contains("fields=nextPageToken,items(name,region,status)"), "{query}");
        let zone = |(name, region): (&String, &String)| json!({"name": name, "region": format!("{BASE}projects/p-1/regions/{region}"), "status": "UP"});
        self.paged(&self.zones.iter().map(zone).collect::<Vec<_>>(), query)
    }

    fn list_instances(&self, project: &str, zone: &str, query: &str) -> Answer {
        assert!(query.contains("items(name,tags,canIpForward,networkInterfaces("), "{query}");
        let is_in = |key: &&(String, String, String)| key.0 == project && key.1 == zone;
        let items = self.instances.keys().filter(is_in).map(|key| self.instances[key].clone());
        self.paged(&items.collect::<Vec<_>>(), query)
    }

    fn set_tags(&mut self, [project, zone, name]: [&str; 3], sent: &Value) -> Answer {
        let key = (project.to_owned(), zone.to_owned(), name.to_owned());
        let Some(instance) = self.instances.get(&key) else { return failure(404, "notFound") };
        if instance["tags"]["fingerprint"] != sent["fingerprint"] {
            return failure(412, "conditionNotMet");
        }
        let tags: Vec<&str> = sent["items"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(tags.iter().all(|tag| is_name(tag)), "{tags:?}");
        let sorted: BTreeSet<&str> = tags.into_iter().collect();
        let zone = zone.to_owned();
        self.begin(Effect::Tags(key, json!(sorted)), Some(zone))
    }

    fn insert(&mut self, project: &str, mut rule: Value) -> Answer {
        let name = rule["name"].as_str().unwrap().to_owned();
        if let Some(why) = self.invalid(&rule) {
            return failure(400, why);
        }
        let key = (project.to_owned(), name);
        if self.firewalls.contains_key(&key) {
            return failure(409, "alreadyExists");
        }
        for field in ["sourceRanges", "sourceTags"] {
            assert!(rule[field] != json!([]), "an empty list");
        }
        let network = rule["network"].as_str().unwrap().to_owned();
        rule["network"] = json!(format!("https://www.googleapis.com/compute/v1/{network}"));
        if rule["sourceRanges"].is_null() && rule["sourceTags"].is_null() {
            rule["sourceRanges"] = json!(["0.0.0.0/0"]);
        }
        rule["priority"] = json!(1000);
        rule["disabled"] = json!(false);
        rule["kind"] = json!("compute#firewall");
        rule.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.begin(Effect::Firewall(key, Some(rule)), None)
    }

    fn invalid(&self, rule: &Value) -> Option<&'static str> {
        let name = rule["name"].as_str().unwrap_or_default();
        let network = rule["network"].as_str().unwrap_or_default();
        let network = &network[network.find("projects/").unwrap_or_default()..];
        let ranges: Vec<&str> =
            rule["sourceRanges"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let v6 = ranges.iter().filter(|range| range.contains(':')).count();
        let has_allowed = rule["allowed"].as_array().is_some_and(|allowed| !allowed.is_empty());
        let has_ports_for_esp = rule["allowed"].as_array().into_iter().flatten().any(|entry| {
            !matches!(entry["IPProtocol"].as_str(), Some("udp" | "tcp" | "sctp")) && !entry["ports"].is_null()
        });
        [
            (!is_name(name), "invalid name"),
            (!self.networks.contains(network), "the network is not found"),
            (v6 > 0 && v6 < ranges.len(), "IPv4 and IPv6 in one rule"),
            (!has_allowed, "nothing is allowed"),
            (has_ports_for_esp, "ports of a protocol without"),
        ]
        .into_iter()
        .find_map(|(is_wrong, why)| is_wrong.then_some(why))
    }

    fn firewall(&mut self, method: &Method, project: &str, name: &str, sent: &Value) -> Answer {
        let key = (project.to_owned(), name.to_owned());
        let Some(found) = self.firewalls.get(&key) else { return failure(404, "notFound") };
        match *method {
            Method::GET => (200, found.clone()),
            Method::DELETE => self.begin(Effect::Firewall(key, None), None),
            Method::PATCH => {
                let mut patched = found.clone();
                for (field, value) in sent.as_object().unwrap() {
                    if field == "network" || field == "direction" || field == "name" {
                        return failure(400, "this field cannot be changed");
                    }
                    if value.is_null() {
                        patched.as_object_mut().unwrap().remove(field);
                    } else {
                        patched[field] = value.clone();
                    }
                }
                match self.invalid(&patched) {
                    Some(why) => failure(400, why),
                    None => self.begin(Effect::Firewall(key, Some(patched)), None),
                }
            }
            _ => failure(405, "method"),
        }
    }

    fn begin(&mut self, effect: Effect, zone: Option<String>) -> Answer {
        let name = format!("operation-{}", self.requests);
        let failure = self.next_failure.take();
        let operation = Operation { polls: self.polls, effect: Some(effect), failure, zone };
        self.operations.insert(name.clone(), operation);
        self.operation(&name)
    }

    fn operation(&mut self, name: &str) -> Answer {
        let Some(operation) = self.operations.get_mut(name) else { return failure(404, "notFound") };
        let mut answer = json!({"kind": "compute#operation", "name": name, "status": "RUNNING"});
        if let Some(zone) = &operation.zone {
            answer["zone"] = json!(format!("{BASE}projects/p-1/zones/{zone}"));
        }
        if operation.polls > 0 {
            operation.polls -= 1;
            return (200, answer);
        }
        answer["status"] = json!("DONE");
        if let Some((status, code)) = operation.failure {
            answer["httpErrorStatusCode"] = json!(status);
            answer["error"] = json!({"errors": [{"code": code, "message": "it was refused"}]});
        } else if let Some(effect) = operation.effect.take() {
            self.apply(effect);
        }
        (200, answer)
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Firewall(key, Some(rule)) => drop(self.firewalls.insert(key, rule)),
            Effect::Firewall(key, None) => drop(self.firewalls.remove(&key)),
            Effect::Tags(key, tags) => {
                let Some(instance) = self.instances.get_mut(&key) else { return };
                instance["tags"] = json!({"items": tags, "fingerprint": format!("after {}", self.requests)});
            }
        }
    }
}

fn page_is_empty(answer: &Value) -> bool {
    answer["items"].as_array().is_some_and(Vec::is_empty)
}

fn failure(code: u16, reason: &str) -> Answer {
    let error =
        json!({"code": code, "message": format!("refused: {reason}"), "errors": [{"reason": reason}]});
    (code, json!({"error": error}))
}
