//! Azure, in memory: it takes what the real one takes and refuses what that refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use http::{HeaderMap, Method, Request, Response};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::exchange::Exchange;

pub(super) const MANAGEMENT: &str = "https://management.azure.test";
pub(super) const LOGIN: &str = "https://login.azure.test";
pub(super) const SUBSCRIPTION: &str = "11111111-2222-3333-4444-555555555555";
/// How many items a page has.
const PAGE: usize = 2;

/// The cloud.
#[derive(Debug, Default)]
pub(super) struct Cloud(pub(super) Mutex<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Resources by their IDs in lower case.
    pub(super) resources: BTreeMap<String, Value>,
    /// How often each operation is still asked for until it ends, and on what it works.
    pub(super) operations: BTreeMap<String, (u32, String)>,
    /// Whether they answer 202 without a body until then.
    pub(super) accepts: bool,
    /// How many removals are refused since something uses what is to go.
    pub(super) uses: u32,
    /// Resources that go, or settle, after they have been read so often.
    settling: BTreeMap<String, (u32, bool)>,
    pub(super) permissions: Option<Value>,
    /// Those on one resource, by where they are asked for.
    pub(super) permissions_on: Option<(String, Value)>,
    pub(super) sizes: Option<Vec<Value>>,
    /// Each such request is one too many; 0 is never.
    pub(super) busy_every: u32,
    /// A change of somebody else's before the next one of an interface.
    pub(super) intrusion: bool,
    /// The end of the next operation.
    pub(super) next_ends: Option<Value>,
    /// An address that the next operation is found at.
    pub(super) foreign: Option<String>,
    /// After how many requests the connection breaks, once; 0 is never.
    pub(super) breaks_after: u32,
    requests: u32,
    tokens: u32,
    pub(super) is_token_withdrawn: bool,
    pub(super) log: Vec<String>,
}

type Answer = Result<(u16, Value, Option<(&'static str, String)>), (u16, &'static str, String)>;

impl Exchange for Cloud {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let mut inner = self.0.lock().unwrap();
        let (head, body) = request.into_parts();
        let url = head.uri.to_string();
        if inner.breaks_after > 0 {
            inner.breaks_after -= 1;
            if inner.breaks_after == 0 {
                return Err("connection reset".to_owned());
            }
        }
        inner.log.push(format!("{} {url}", head.method));
        let outcome = if url.starts_with(LOGIN) {
            inner.login(&head.method, head.uri.path(), &String::from_utf8(body).unwrap())
        } else if url.starts_with("http://169.254.169.254/metadata/identity/oauth2/token?") {
            let resource = "&resource=https%3A%2F%2Fmanagement.azure.test";
            assert!(head.headers["metadata"] == "true" && url.contains(resource), "{url}");
            inner.tokens += 1;
            Ok((200, json!({"access_token": format!("token-{}", inner.tokens), "expires_in": "86399"}), None))
        } else if url.starts_with(MANAGEMENT) {
            inner.manage(&head.method, &url, &head.headers, &body)
        } else {
            return Err(format!("nobody is at {url}"));
        };
        let (status, body, header) = outcome.unwrap_or_else(|(status, code, message)| {
            (status, json!({"error": {"code": code, "message": message}}), None)
        });
        let mut answer = Response::builder().status(status);
        if let Some((name, value)) = header {
            answer = answer.header(name, value).header("retry-after", "1");
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Ok(answer.body(body).unwrap())
    }
}

fn refused(status: u16, code: &'static str, message: impl Into<String>) -> Answer {
    Err((status, code, message.into()))
}

pub(super) fn id(type_: &str, name: &str) -> String {
    format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/east-rg/providers/{type_}/{name}")
}

impl Cloud {
    /// Puts a resource there.
    pub(super) fn put(&self, type_: &str, name: &str, mut resource: Value) -> String {
        let id = id(type_, name);
        resource["id"] = json!(id);
        resource["name"] = json!(name.rsplit('/').next().unwrap());
        self.0.lock().unwrap().resources.insert(id.to_ascii_lowercase(), resource);
        id
    }

    pub(super) fn get(&self, id: &str) -> Value {
        self.0.lock().unwrap().resources.get(&id.to_ascii_lowercase()).cloned().unwrap_or_default()
    }

    /// All there is, but for versions and states.
    pub(super) fn snapshot(&self) -> BTreeMap<String, Value> {
        let mut all = self.0.lock().unwrap().resources.clone();
        for resource in all.values_mut() {
            resource.as_object_mut().unwrap().remove("etag");
            resource["properties"].as_object_mut().unwrap().remove("provisioningState");
            if let Some(rules) = resource["properties"]["securityRules"].as_array_mut() {
                rules.sort_by_key(|rule| rule["name"].as_str().unwrap().to_owned());
            }
        }
        all
    }
}

impl Inner {
    fn login(&mut self, method: &Method, path: &str, form: &str) -> Answer {
        let has = |field: &str| form.split('&').any(|pair| pair == field);
        let scope = "scope=https%3A%2F%2Fmanagement.azure.test%2F.default";
        let is_secret = has("client_secret=s%26cret%2B");
        let is_federated = has("client_assertion=signed.by.cluster")
            && has("client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer");
        if method != Method::POST || path != "/tenant-1/oauth2/v2.0/token" || !has("client_id=client-1") {
            return refused(404, "invalid_request", "no such tenant or client");
        }
        if !has("grant_type=client_credentials") || !has(scope) || !(is_secret || is_federated) {
            return refused(401, "invalid_client", "no such secret");
        }
        self.tokens += 1;
        self.is_token_withdrawn = false;
        Ok((200, json!({"access_token": format!("token-{}", self.tokens), "expires_in": 3599}), None))
    }

    fn manage(&mut self, method: &Method, url: &str, headers: &HeaderMap, body: &[u8]) -> Answer {
        self.requests += 1;
        if self.busy_every > 0 && self.requests.is_multiple_of(self.busy_every) {
            return refused(429, "TooManyRequests", "later");
        }
        let token = format!("Bearer token-{}", self.tokens);
        if self.is_token_withdrawn || headers.get("authorization").is_none_or(|value| value != &token) {
            return refused(401, "ExpiredAuthenticationToken", "another token");
        }
        let (path, query) = url[MANAGEMENT.len()..].split_once('?').unwrap();
        let version = query.split('&').find_map(|pair| pair.strip_prefix("api-version=")).unwrap();
        let key = path.to_ascii_lowercase();
        if let Some((left, target)) = self.operations.get_mut(&key) {
            *left = left.saturating_sub(1);
            if *left > 0 {
                return Ok(match self.accepts {
                    true => (202, Value::Null, None),
                    false => (200, json!({"status": "InProgress"}), None),
                });
            }
            let end = self.next_ends.take().unwrap_or_else(|| json!({"status": "Succeeded"}));
            let target = target.clone();
            self.operations.remove(&key);
            self.settle(&target);
            return Ok((200, end, None));
        }
        let etag = headers.get("if-match").map(|value| value.to_str().unwrap());
        match *method {
            Method::GET => self.read(&key, query, version),
            Method::PUT => self.write(path, &serde_json::from_slice(body).unwrap(), etag),
            Method::DELETE => self.delete(&key),
            _ => refused(405, "MethodNotAllowed", "no such method"),
        }
    }

    fn settle(&mut self, key: &str) {
        if let Some(resource) = self.resources.get_mut(key) {
            resource["properties"]["provisioningState"] = json!("Succeeded");
        }
    }

    fn read(&mut self, key: &str, query: &str, version: &str) -> Answer {
        let list = |items: Vec<Value>| {
            let page: usize = query.rsplit("page=").next().and_then(|page| page.parse().ok()).unwrap_or(0);
            let next = format!("{MANAGEMENT}{key}?api-version={version}&page={}", page + 1);
            let has_more = items.len() > (page + 1) * PAGE;
            let page: Vec<&Value> = items.iter().skip(page * PAGE).take(PAGE).collect();
            let mut body = json!({"value": page});
            if has_more {
                body["nextLink"] = json!(next);
            }
            Ok((200, body, None))
        };
        if let Some((_, own)) = self.permissions_on.as_ref().filter(|(on, _)| on == key) {
            return list(vec![own.clone()]);
        }
        if key.ends_with("/permissions") {
            return self
                .permissions
                .clone()
                .map_or_else(|| refused(403, "AuthorizationFailed", "no"), |all| list(vec![all]));
        }
        if key.ends_with("/microsoft.compute/skus") {
            let is_later = query.contains("page=");
            assert!(is_later || query.contains("$filter=location%20eq%20%27westeurope%27"), "{query}");
            return self.sizes.clone().map_or_else(|| refused(403, "AuthorizationFailed", "no"), list);
        }
        if let Some((left, is_going)) = self.settling.get_mut(key) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let is_going = *is_going;
                self.settling.remove(key);
                if is_going { drop(self.resources.remove(key)) } else { self.settle(key) }
            }
        }
        let last = key.rsplit('/').next().unwrap();
        if ["networkinterfaces", "publicipaddresses"].contains(&last) {
            assert_eq!(version, if key.contains("scalesets") { "2018-10-01" } else { "2023-09-01" });
            let of_set = key.strip_suffix("networkinterfaces").filter(|key| key.contains("scalesets"));
            let begin = of_set.map_or_else(|| format!("{key}/"), |set| format!("{set}virtualmachines/"));
            let keys: Vec<String> =
                self.resources.keys().filter(|key| key.starts_with(&begin)).cloned().collect();
            return list(keys.iter().map(|key| self.shown(key)).collect());
        }
        if self.resources.contains_key(key) {
            return Ok((200, self.shown(key), None));
        }
        refused(404, "ResourceNotFound", format!("{key} was not found"))
    }

    /// A resource with what refers to it.
    fn shown(&self, key: &str) -> Value {
        let mut resource = self.resources[key].clone();
        let refers = |pointer: &str, by: &Value| {
            by.pointer(pointer).is_some_and(|id| id.as_str().unwrap().eq_ignore_ascii_case(key))
        };
        if key.contains("/networksecuritygroups/") {
            let of = |type_: &str| -> Vec<Value> {
                let all = self.resources.iter().filter(|(key, _)| key.contains(type_));
                let users = all.filter(|(_, user)| refers("/properties/networkSecurityGroup/id", user));
                users.map(|(_, user)| json!({"id": user["id"]})).collect()
            };
            resource["properties"]["networkInterfaces"] = json!(of("/networkinterfaces/"));
            resource["properties"]["subnets"] = json!(of("/subnets/"));
        }
        if key.contains("/publicipaddresses/")
            && let Some(user) = self.user_of(key)
        {
            resource["properties"]["ipConfiguration"] =
                json!({"id": format!("{user}/ipConfigurations/pipConfig")});
        }
        resource
    }

    fn user_of(&self, address: &str) -> Option<String> {
        let uses = |nic: &&Value| {
            let id = nic.pointer("/properties/ipConfigurations/0/properties/publicIPAddress/id");
            id.is_some_and(|id| id.as_str().unwrap().eq_ignore_ascii_case(address))
        };
        self.resources.values().find(uses).map(|nic| nic["id"].as_str().unwrap().to_owned())
    }

    fn write(&mut self, path: &str, sent: &Value, etag: Option<&str>) -> Answer {
        let key = path.to_ascii_lowercase();
        if let Some((group, name)) = key.split_once("/securityrules/") {
            return self.write_rule(group, name, sent);
        }
        let mut resource = sent.clone();
        resource["id"] = json!(path);
        resource["name"] = json!(path.rsplit('/').next().unwrap());
        if sent["location"] != "westeurope" {
            return refused(400, "LocationRequired", "where?");
        }
        if key.contains("/networkinterfaces/") {
            return self.write_interface(&key, resource, etag);
        }
        resource["properties"]["provisioningState"] = json!("Updating");
        if key.contains("/networksecuritygroups/") {
            let rules = std::mem::take(&mut resource["properties"]["securityRules"]);
            resource["properties"]["securityRules"] = json!([]);
            for rule in rules.as_array().unwrap() {
                add_rule(&mut resource, rule)?;
            }
            self.resources.insert(key.clone(), resource.clone());
            return self.begin(&key, 201, resource);
        }
        assert_eq!(
            (&sent["sku"]["name"], &sent["properties"]["publicIPAllocationMethod"]),
            (&json!("Standard"), &json!("Static"))
        );
        self.settling.insert(key.clone(), (2, false));
        self.resources.insert(key, resource.clone());
        Ok((201, resource, None))
    }

    /// Answers with an operation that ends after a while.
    fn begin(&mut self, key: &str, status: u16, body: Value) -> Answer {
        let operation =
            format!("/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Network/operations/{}", self.requests);
        self.operations.insert(operation.to_ascii_lowercase(), (3, key.to_owned()));
        let base = self.foreign.take().unwrap_or_else(|| MANAGEMENT.to_owned());
        Ok((
            status,
            body,
            Some(("azure-asyncoperation", format!("{base}{operation}?api-version=2023-09-01"))),
        ))
    }

    fn write_rule(&mut self, group: &str, name: &str, sent: &Value) -> Answer {
        assert!(sent["name"].as_str().unwrap().eq_ignore_ascii_case(name));
        let Some(found) = self.resources.get_mut(group) else {
            return refused(404, "NotFound", "no such group");
        };
        if found["properties"]["provisioningState"] == "Updating" {
            self.settle(group);
            return refused(409, "AnotherOperationInProgress", "another one");
        }
        add_rule(found, sent)?;
        found["properties"]["provisioningState"] = json!("Updating");
        self.begin(group, 201, sent.clone())
    }

    fn write_interface(&mut self, key: &str, mut sent: Value, etag: Option<&str>) -> Answer {
        if std::mem::take(&mut self.intrusion) {
            let found = self.resources.get_mut(key).unwrap();
            found["etag"] = json!("W/\"intruder\"");
            found["tags"]["by"] = json!("somebody");
        }
        let Some(found) = self.resources.get(key) else {
            return refused(404, "NotFound", "no such interface");
        };
        if found["etag"].as_str() != etag {
            return refused(412, "PreconditionFailed", "it has changed");
        }
        let pointers = [
            "/properties/networkSecurityGroup/id",
            "/properties/ipConfigurations/0/properties/publicIPAddress/id",
        ];
        for id in pointers.iter().filter_map(|pointer| sent.pointer(pointer)) {
            let id = id.as_str().unwrap().to_ascii_lowercase();
            let user = self.user_of(&id).map(|user| user.to_ascii_lowercase());
            if !self.resources.contains_key(&id) || user.is_some_and(|user| user != key) {
                return refused(400, "InvalidResourceReference", format!("{id} is not there, or in use"));
            }
        }
        sent["etag"] = json!(format!("W/\"{}\"", self.requests));
        sent["properties"]["provisioningState"] = json!("Updating");
        self.resources.insert(key.to_owned(), sent.clone());
        self.begin(key, 200, sent)
    }

    fn delete(&mut self, key: &str) -> Answer {
        if let Some((group, name)) = key.split_once("/securityrules/") {
            let Some(found) = self.resources.get_mut(group) else { return Ok((204, Value::Null, None)) };
            if found["properties"]["provisioningState"] == "Updating" {
                self.settle(group);
                return refused(409, "AnotherOperationInProgress", "another one");
            }
            let rules = found["properties"]["securityRules"].as_array_mut().unwrap();
            rules.retain(|rule| !rule["name"].as_str().unwrap().eq_ignore_ascii_case(name));
            found["properties"]["provisioningState"] = json!("Updating");
            return self.begin(group, 202, Value::Null);
        }
        if !self.resources.contains_key(key) {
            return Ok((204, Value::Null, None));
        }
        if self.uses > 0 {
            self.uses -= 1;
            let is_address = key.contains("/publicipaddresses/");
            let of_group = "InUseNetworkSecurityGroupCannotBeDeleted";
            let code = if is_address { "PublicIPAddressCannotBeDeleted" } else { of_group };
            return refused(400, code, "still in use");
        }
        let shown = self.shown(key);
        let uses = ["networkInterfaces", "subnets"]
            .iter()
            .any(|field| shown["properties"][*field].as_array().is_some_and(|users| !users.is_empty()));
        if uses || !shown["properties"]["ipConfiguration"].is_null() {
            return refused(400, "InUse", format!("{key} is in use"));
        }
        if key.contains("/publicipaddresses/") {
            self.settling.insert(key.to_owned(), (3, true));
            return Ok((202, Value::Null, Some(("location", format!("{MANAGEMENT}/somewhere")))));
        }
        self.resources.remove(key);
        self.begin(key, 202, Value::Null)
    }
}

/// Puts a rule into a group as Azure would.
pub(super) fn add_rule(group: &mut Value, rule: &Value) -> Result<(), (u16, &'static str, String)> {
    let wrong = |message: &str| Err((400, "SecurityRuleInvalid", format!("{message}: {rule}")));
    let properties = &rule["properties"];
    let (priority, direction) =
        (properties["priority"].as_u64().unwrap(), properties["direction"].as_str().unwrap());
    if !(100..=4096).contains(&priority) || !["Inbound", "Outbound"].contains(&direction) {
        return wrong("priority or direction");
    }
    match properties["protocol"].as_str().unwrap().to_ascii_lowercase().as_str() {
        "udp" | "tcp" | "*" => {}
        "esp" | "ah" if ["*", "0-0"].contains(&properties["destinationPortRange"].as_str().unwrap()) => {}
        _ => return wrong("protocol or port"),
    }
    let mut families = BTreeSet::new();
    for end in ["source", "destination"] {
        let (one, several) =
            (&properties[format!("{end}AddressPrefix")], &properties[format!("{end}AddressPrefixes")]);
        let texts: Vec<&str> =
            several.as_array().into_iter().flatten().chain([one]).filter_map(Value::as_str).collect();
        let networks: Vec<IpNet> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        if texts.is_empty() || one.is_string() && several.is_array() || overlap(&networks) {
            return wrong("prefixes");
        }
        families.extend(networks.iter().map(|network| network.addr().is_ipv4()));
    }
    if families.len() > 1 {
        return wrong("both families");
    }
    let name = rule["name"].as_str().unwrap();
    let rules = group["properties"]["securityRules"].as_array_mut().unwrap();
    rules.retain(|other| !other["name"].as_str().unwrap().eq_ignore_ascii_case(name));
    let is_taken = |other: &Value| {
        other["properties"]["priority"] == priority && other["properties"]["direction"] == direction
    };
    if rules.iter().any(is_taken) {
        return wrong("priority is taken");
    }
    rules.push(json!({"name": name, "properties": properties}));
    Ok(())
}

fn overlap(networks: &[IpNet]) -> bool {
    networks
        .iter()
        .enumerate()
        .any(|(at, one)| networks.iter().skip(at + 1).any(|other| one.contains(other) || other.contains(one)))
}
