//! Keystone and Neutron, played in memory: they refuse what the real ones refuse.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request, Response};
use serde_json::{Value, json};

use crate::exchange::Exchange;

pub(super) const PROJECT: &str = "p-1";
/// The group that somebody else gives a port just before we write it.
pub(super) const RACING: &str = "g-racing";
pub(super) const REGION: &str = "RegionOne";
/// Neutron's default group, which every port has here.
pub(super) const DEFAULT: &str = "g-default";

/// All that there is: the cloud and the cluster on it.
#[derive(Debug, Default, Clone)]
pub(super) struct World {
    pub(super) groups: BTreeMap<String, Value>,
    pub(super) rules: BTreeMap<String, Value>,
    pub(super) ports: BTreeMap<String, Value>,
    pub(super) floating: Vec<Value>,
    pub(super) nodes: BTreeMap<String, Value>,
    pub(super) sets: Option<BTreeMap<String, Value>>,
    /// How many items a page has.
    pub(super) page: usize,
    /// Every so many requests are refused as too many.
    pub(super) busy_every: u32,
    /// Every so many requests a token ends.
    pub(super) token_uses: u32,
    /// How often somebody else writes a port just before we do.
    pub(super) races: u32,
    /// How often a group cannot go as a machine that goes has it.
    pub(super) lingering: u32,
    /// Whether the list of ports ignores the filter by groups, as older services do.
    pub(super) is_old: bool,
    /// Whether the next page's marker is the last one's, for ever.
    pub(super) is_circular: bool,
    /// The catalogue, if it is no usual one.
    pub(super) catalogue: Option<Value>,
    pub(super) requests: u32,
    pub(super) writes: u32,
    pub(super) token: u32,
    pub(super) uses: u32,
    pub(super) next: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Played(Arc<Mutex<World>>);

type Refusal = (u16, &'static str, String);

impl Played {
    pub(super) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// What a preparation may change, in a form that can be compared.
    pub(super) fn snapshot(&self) -> Value {
        let world = self.world();
        let ports = world.ports.iter().map(|(id, port)| {
            let mut groups: Vec<String> = super::ids(&port["security_groups"]);
            groups.retain(|id| id != RACING);
            groups.sort();
            (id.clone(), json!([groups, port["port_security_enabled"], port["allowed_address_pairs"]]))
        });
        json!({
            "groups": world.groups, "rules": world.rules, "nodes": world.nodes, "sets": world.sets,
            "ports": ports.collect::<BTreeMap<_, _>>(),
        })
    }
}

impl Exchange for Played {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let mut world = self.world();
        world.requests += 1;
        if world.busy_every > 0 && world.requests.is_multiple_of(world.busy_every) {
            return Ok(answer(429, &json!({"error": {"code": 429, "message": "slow down"}}), None));
        }
        let host = request.uri().host().unwrap_or_default().to_owned();
        Ok(match host.as_str() {
            "keystone.example" => world.sign_in(&request),
            "neutron.example" => match world.neutron(&request) {
                Ok((code, body)) => answer(code, &body, None),
                Err((code, kind, reason)) => answer(
                    code,
                    &json!({"NeutronError": {"type": kind, "message": reason, "detail": ""}}),
                    None,
                ),
            },
            other => return Err(format!("{other} is not played")),
        })
    }
}

impl World {
    fn id(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}-{:04}", self.next)
    }

    fn sign_in(&mut self, request: &Request<Vec<u8>>) -> Response<Vec<u8>> {
        let sent: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/v3/auth/tokens"));
        let auth = &sent["auth"];
        let password = json!({"methods": ["password"], "password": {"user":
            {"name": "admin", "domain": {"name": "Default"}, "password": "s3cret-word"}}});
        let application = json!({"methods": ["application_credential"],
            "application_credential": {"id": "ac-1", "secret": "s3cret-word"}});
        let is_password = auth["identity"] == password && auth["scope"]["project"]["id"] == PROJECT;
        let is_application = auth["identity"] == application && auth["scope"].is_null();
        if !is_password && !is_application {
            let reason = "The request you have made requires authentication.";
            return answer(
                401,
                &json!({"error": {"code": 401, "title": "Unauthorized", "message": reason}}),
                None,
            );
        }
        self.token += 1;
        self.uses = 0;
        let catalogue = self.catalogue.clone().unwrap_or_else(|| json!([
            {"type": "compute", "endpoints": [{"interface": "public", "region": REGION, "region_id": REGION, "url": "https://nova.example/v2.1"}]},
            {"type": "network", "endpoints": [
                {"interface": "admin", "region": REGION, "region_id": REGION, "url": "https://admin.example"},
                {"interface": "public", "region": REGION, "region_id": REGION, "url": "https://neutron.example/"},
            ]},
        ]));
        let token = format!("gAAA-{}", self.token);
        answer(201, &json!({"token": {"project": {"id": PROJECT}, "catalog": catalogue}}), Some(&token))
    }

    fn neutron(&mut self, request: &Request<Vec<u8>>) -> Result<(u16, Value), Refusal> {
        let given = request.headers().get("x-auth-token").and_then(|token| token.to_str().ok());
        self.uses += 1;
        let has_ended = self.token_uses > 0 && self.uses > self.token_uses;
        if given != Some(&format!("gAAA-{}", self.token)) || has_ended {
            return Err((401, "HTTPUnauthorized", "Authentication required".to_owned()));
        }
        let sent: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let path = request.uri().path().strip_prefix("/v2.0/").expect("version 2.0 is asked");
        let query = request.uri().query().unwrap_or_default();
        let (collection, id) = path.split_once('/').unwrap_or((path, ""));
        if request.method() != Method::GET {
            self.writes += 1;
        }
        match (request.method(), collection, id) {
            (&Method::GET, "security-groups", "") => Ok((200, self.list_groups(query))),
            (&Method::GET, "ports", "") => Ok((200, self.list_ports(query))),
            (&Method::GET, "floatingips", "") => {
                let found = self.floating.iter().filter(|ip| has(query, "port_id", &ip["port_id"]));
                Ok((200, self.paged("floatingips", query, found.cloned().collect())))
            }
            (&Method::GET, "ports", id) => self.port(id).map(|port| (200, json!({"port": port}))),
            (&Method::PUT, "ports", id) => self.put_port(id, &sent, request),
            (&Method::POST, "security-groups", "") => self.post_group(&sent),
            (&Method::POST, "security-group-rules", "") => self.post_rule(&sent),
            (&Method::DELETE, "security-group-rules", id) => {
                self.rules.remove(id).map(|_| (204, Value::Null)).ok_or_else(|| missing(id))
            }
            (&Method::DELETE, "security-groups", id) => self.delete_group(id),
            other => panic!("{other:?} is not asked of Neutron"),
        }
    }

    fn list_groups(&self, query: &str) -> Value {
        let is_asked = |group: &&Value| {
            has(query, "name", &group["name"]) && has(query, "project_id", &group["project_id"])
        };
        let with_rules = |group: &Value| {
            let mut group = group.clone();
            let rules = self.rules.values().filter(|rule| rule["security_group_id"] == group["id"]);
            group["security_group_rules"] = json!(rules.collect::<Vec<_>>());
            group
        };
        self.paged("security_groups", query, self.groups.values().filter(is_asked).map(with_rules).collect())
    }

    fn list_ports(&self, query: &str) -> Value {
        let is_asked = |port: &&Value| {
            let groups = super::ids(&port["security_groups"]);
            let has_group = self.is_old
                || !query.contains("security_groups=")
                || groups.iter().any(|id| has(query, "security_groups", &json!(id)));
            has(query, "device_id", &port["device_id"]) && has_group
        };
        self.paged("ports", query, self.ports.values().filter(is_asked).cloned().collect())
    }

    fn paged(&self, key: &str, query: &str, mut found: Vec<Value>) -> Value {
        if self.page == 0 {
            return json!({key: found});
        }
        let marker = query.split('&').find_map(|pair| pair.strip_prefix("marker="));
        if let Some(marker) = marker {
            found.retain(|item| item["id"].as_str().unwrap() > marker || self.is_circular);
        }
        let is_last = found.len() <= self.page && !self.is_circular;
        found.truncate(self.page);
        let mut body = json!({ key: found });
        if let (false, Some(last)) = (is_last, body[key].as_array().and_then(|page| page.last())) {
            let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("marker=")).collect();
            // A proxy's well-known mistake: the address is one of the inner network.
            let next = format!(
                "http://10.0.0.1:9696/v2.0/x?{}&marker={}",
                rest.join("&"),
                last["id"].as_str().unwrap()
            );
            let previous = json!({"rel": "previous", "href": "http://10.0.0.1/"});
            body[format!("{key}_links")] = json!([previous, {"rel": "next", "href": next}]);
        }
        body
    }

    fn port(&self, id: &str) -> Result<Value, Refusal> {
        self.ports.get(id).cloned().ok_or_else(|| missing(id))
    }

    fn put_port(
        &mut self,
        id: &str,
        sent: &Value,
        request: &Request<Vec<u8>>,
    ) -> Result<(u16, Value), Refusal> {
        let mut port = self.port(id)?;
        let revision = |port: &Value| port["revision_number"].as_u64().unwrap();
        if self.races > 0 {
            self.races -= 1;
            let groups = port["security_groups"].as_array_mut().unwrap();
            if groups.iter().all(|id| id != RACING) {
                groups.push(json!(RACING));
            }
            port["revision_number"] = json!(revision(&port) + 1);
            self.ports.insert(id.to_owned(), port.clone());
        }
        let wanted = request.headers().get("if-match").map(|value| value.to_str().unwrap().to_owned());
        if wanted.is_some_and(|wanted| wanted != format!("revision_number={}", revision(&port))) {
            return Err((412, "RevisionNumberConstraintFailed", "another revision".to_owned()));
        }
        assert_eq!(super::keys(&sent["port"]), ["security_groups"], "nothing else of a port is changed");
        let groups = super::ids(&sent["port"]["security_groups"]);
        if let Some(unknown) = groups.iter().find(|id| *id != RACING && !self.groups.contains_key(*id)) {
            return Err(missing(unknown));
        }
        if port["port_security_enabled"] == false && !groups.is_empty() {
            return Err((409, "PortSecurityAndIPRequiredForSecurityGroups", "no port security".to_owned()));
        }
        port["security_groups"] = json!(groups);
        port["revision_number"] = json!(revision(&port) + 1);
        self.ports.insert(id.to_owned(), port.clone());
        Ok((200, json!({"port": port})))
    }

    fn post_group(&mut self, sent: &Value) -> Result<(u16, Value), Refusal> {
        assert_eq!(super::keys(&sent["security_group"]), ["description", "name"]);
        let id = self.add_group(
            sent["security_group"]["name"].as_str().unwrap(),
            sent["security_group"]["description"].as_str().unwrap(),
        );
        Ok((201, json!({"security_group": self.groups[&id]})))
    }

    /// Makes a group with the two rules that Neutron gives each.
    pub(super) fn add_group(&mut self, name: &str, description: &str) -> String {
        let id = self.id("g");
        let group = json!({"id": id, "name": name, "description": description, "project_id": PROJECT});
        self.groups.insert(id.clone(), group);
        for family in ["IPv4", "IPv6"] {
            self.add_rule(&json!({"security_group_id": id, "direction": "egress", "ethertype": family}));
        }
        id
    }

    /// Makes a rule, as somebody else would.
    pub(super) fn add_rule(&mut self, rule: &Value) -> String {
        let id = self.id("r");
        let fields = ["protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id"];
        let mut whole = rule.clone();
        for field in fields {
            whole[field] = rule[field].clone();
        }
        whole["id"] = json!(id);
        whole["description"] = json!(rule["description"].as_str().unwrap_or_default());
        self.rules.insert(id.clone(), whole);
        id
    }

    fn post_rule(&mut self, sent: &Value) -> Result<(u16, Value), Refusal> {
        let rule = &sent["security_group_rule"];
        let allowed = [
            "security_group_id",
            "direction",
            "ethertype",
            "protocol",
            "port_range_min",
            "port_range_max",
            "remote_ip_prefix",
            "remote_group_id",
            "description",
        ];
        if let Some(other) = super::keys(rule).iter().find(|key| !allowed.contains(&key.as_str())) {
            return Err((400, "HTTPBadRequest", format!("Unrecognized attribute(s) '{other}'")));
        }
        if !rule["remote_ip_prefix"].is_null() && !rule["remote_group_id"].is_null() {
            return Err((400, "SecurityGroupRemoteGroupAndRemoteIpPrefix", "only one".to_owned()));
        }
        if rule["remote_ip_prefix"]
            .as_str()
            .is_some_and(|net| net.contains(':') != (rule["ethertype"] == "IPv6"))
        {
            return Err((400, "SecurityGroupRuleParameterConflict", "families differ".to_owned()));
        }
        if rule["protocol"] == "esp" && !rule["port_range_min"].is_null() {
            return Err((400, "SecurityGroupInvalidProtocolForPort", "no ports".to_owned()));
        }
        for field in ["security_group_id", "remote_group_id"] {
            if let Some(id) = rule[field].as_str()
                && !self.groups.contains_key(id)
            {
                return Err(missing(id));
            }
        }
        // Of two rules that are the same the description may differ.
        let fields: Vec<&str> = allowed.into_iter().filter(|field| *field != "description").collect();
        if self.rules.values().any(|other| fields.iter().all(|field| other[field] == rule[field])) {
            return Err((409, "SecurityGroupRuleExists", "Security group rule already exists.".to_owned()));
        }
        let id = self.add_rule(rule);
        Ok((201, json!({"security_group_rule": self.rules[&id]})))
    }

    fn delete_group(&mut self, id: &str) -> Result<(u16, Value), Refusal> {
        let has_group = |port: &Value| super::ids(&port["security_groups"]).iter().any(|group| group == id);
        if !self.groups.contains_key(id) {
            return Err(missing(id));
        }
        if self.lingering > 0 || self.ports.values().any(has_group) {
            self.lingering = self.lingering.saturating_sub(1);
            return Err((409, "SecurityGroupInUse", format!("Security Group {id} in use.")));
        }
        self.groups.remove(id);
        self.rules.retain(|_, rule| rule["security_group_id"] != id && rule["remote_group_id"] != id);
        Ok((204, Value::Null))
    }
}

/// Whether a query has a field with this value, or does not ask for it.
fn has(query: &str, field: &str, value: &Value) -> bool {
    let asked: Vec<&str> =
        query.split('&').filter_map(|pair| pair.strip_prefix(&format!("{field}="))).collect();
    asked.is_empty() || asked.iter().any(|asked| value == asked)
}

fn missing(id: &str) -> Refusal {
    (404, "NotFound", format!("{id} could not be found."))
}

fn answer(code: u16, body: &Value, token: Option<&str>) -> Response<Vec<u8>> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let mut answer = Response::builder().status(code);
    if let Some(token) = token {
        answer = answer.header("X-Subject-Token", token);
    }
    answer.body(bytes).unwrap()
}
