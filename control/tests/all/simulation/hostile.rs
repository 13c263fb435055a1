//! A member that is hostile, and may write everything on the broker: upstream's Role lets each member do so. A guest of
//! every schedule. It claims what is not its own, writes in others' names, takes their names, floods, and changes and
//! deletes what they have written, until nothing goes wrong any more. What it has written by then stays.

use ipnet::IpNet;
use serde_json::json;
use trieste_control::api::{Kind, Object, ObjectMeta, label};
use trieste_control::claims::Allowed;
use trieste_control::leader::TERM_ANNOTATION;
use trieste_simulator::Random;

use super::node::{BROKER, Member};
use super::store::Op;

/// The hostile member's ID: in order after the others'.
pub(crate) const ID: &str = "evil";
/// Networks that no member may have, by default.
const FORBIDDEN: [&str; 7] =
    ["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.0/9", "172.16.0.0/12", "8.8.8.0/24", "fc00::/7"];
/// More than one member may have on a broker.
const FLOOD: usize = 80;
/// Bytes of an object that is too large.
const HUGE: usize = 40_000;

/// What the hostile member has done.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Deeds {
    pub(crate) claims: u32,
    pub(crate) forgeries: u32,
    pub(crate) squats: u32,
    pub(crate) floods: u32,
    pub(crate) changes: u32,
    pub(crate) deletions: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Hostile {
    /// Of its own: what it does changes nothing that is drawn for the others.
    pub(crate) random: Random,
    pub(crate) deeds: Deeds,
    made: u32,
}

impl Hostile {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(!seed), deeds: Deeds::default(), made: 0 }
    }

    /// Writes what it wants next, of what it sees on the broker.
    pub(crate) fn act(&mut self, members: &[Member], broker: &[Object]) -> Vec<Op> {
        let is_honest = |object: &&Object| object.metadata.origin().is_some_and(|id| id != ID);
        let honest: Vec<Object> = broker.iter().filter(is_honest).cloned().collect();
        let mut ops = Vec::new();
        if !broker.iter().any(|object| object.kind == Kind::Cluster && object.metadata.name == ID) {
            ops.push(Op::Create(cluster(ID)));
        }
        match self.random.below(10) {
            0..=2 => ops.push(self.claim(members)),
            3 => {
                let id = self.random.choose(members).id.clone();
                self.deeds.forgeries += 1;
                let name = self.name("forged");
                ops.push(Op::Create(endpoint(&id, &id, &name, "10.66.0.0/16")));
            }
            4 if !honest.is_empty() => {
                // Its own object under another's name.
                let theirs = self.random.choose(&honest).clone();
                self.deeds.squats += 1;
                let mut own = match theirs.kind {
                    Kind::Cluster => cluster(ID),
                    _ => endpoint(ID, ID, "squat", "10.66.0.0/16"),
                };
                own.metadata.name = theirs.metadata.name.clone();
                ops.extend([Op::Delete(theirs), Op::Create(own)]);
            }
            5 => {
                self.deeds.floods += 1;
                let third = self.random.below(256_u32);
                ops.extend((0..FLOOD).map(|_| {
                    let net = format!("10.67.{third}.0/24");
                    Op::Create(endpoint(ID, ID, &self.name("flood"), &net))
                }));
                let mut huge = endpoint(ID, ID, &self.name("huge"), "10.68.0.0/16");
                huge.metadata.annotations.insert("note".to_owned(), "x".repeat(HUGE));
                ops.push(Op::Create(huge));
            }
            6..=7 if !honest.is_empty() => {
                self.deeds.changes += 1;
                let mut theirs = self.random.choose(&honest).clone();
                match self.random.below(4) {
                    0 => theirs.body["spec"]["hostname"] = json!("evil-gw1"),
                    1 => theirs.body["spec"]["subnets"] = json!(["10.66.0.0/16"]),
                    2 => drop(theirs.metadata.labels.insert(label::CLUSTER_ID.to_owned(), ID.to_owned())),
                    _ => {
                        let term = (1_u32 << 29).to_string();
                        theirs.metadata.annotations.insert(TERM_ANNOTATION.to_owned(), term);
                    }
                }
                ops.push(Op::Update(theirs));
            }
            _ if !honest.is_empty() => {
                self.deeds.deletions += 1;
                ops.push(Op::Delete(self.random.choose(&honest).clone()));
            }
            _ => {}
        }
        ops
    }

    fn claim(&mut self, members: &[Member]) -> Op {
        self.deeds.claims += 1;
        let net = match self.random.below(4) {
            0 => "10.66.0.0/16".to_owned(),
            1 => self.random.choose(members).subnets[0].to_string(),
            _ => (*self.random.choose(&FORBIDDEN)).to_owned(),
        };
        Op::Create(endpoint(ID, ID, &self.name("claim"), &net))
    }

    fn name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("evil-{what}-{}", self.made)
    }
}

/// Tells what an Endpoint of the hostile member claims that a member may claim; `None` where all of it is refused.
pub(crate) fn claimed(object: &Object) -> Option<Vec<IpNet>> {
    let subnets = object.body["spec"]["subnets"].as_array()?;
    let nets: Vec<IpNet> = subnets.iter().filter_map(|net| net.as_str()?.parse().ok()).collect();
    let is_small = object.metadata.annotations.values().all(|text| text.len() < HUGE);
    (is_small && nets.iter().all(|net| Allowed::default().check(net).is_ok())).then_some(nets)
}

fn cluster(id: &str) -> Object {
    let spec = json!({"cluster_id": id, "service_cidr": [], "cluster_cidr": [], "global_cidr": []});
    object(Kind::Cluster, id, id, spec)
}

fn endpoint(origin: &str, id: &str, name: &str, subnet: &str) -> Object {
    let spec = json!({"cluster_id": id, "cable_name": name, "hostname": "evil-gw1", "subnets": [subnet],
        "private_ip": "192.0.2.66", "public_ip": "", "nat_enabled": false, "backend": "wireguard"});
    object(Kind::Endpoint, origin, name, spec)
}

fn object(kind: Kind, origin: &str, name: &str, spec: serde_json::Value) -> Object {
    let mut object = Object::new(kind, ObjectMeta::new(BROKER, name));
    object.metadata.labels.insert(label::CLUSTER_ID.to_owned(), origin.to_owned());
    object.body.insert("spec".to_owned(), spec);
    object
}
