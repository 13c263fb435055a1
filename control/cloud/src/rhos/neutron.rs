//! What a preparation reads of Neutron and writes there.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Client, ToNetwork, has_code, one_of};
use super::group::{Group, GroupRef, GroupRule, MADE_BY};
use super::port::{Port, groups};
use crate::CloudError;
use crate::exchange::Exchange;
use crate::rest::absent;

/// Ours: how many IDs one question names; servers bound the length of a URL, often to 8 KiB.
const MOST_IDS: usize = 50;
/// Ours: how often the groups of a port are written that somebody else writes too.
const WRITES: u32 = 5;
/// Ours: how long it is waited for the ports of machines that go, and how long between two attempts.
const GROUP_TIMEOUT: Duration = Duration::from_secs(300);
const GROUP_PAUSE: Duration = Duration::from_secs(5);
/// Neutron's types of errors.
const RULE_EXISTS: &str = "SecurityGroupRuleExists";
const GROUP_IN_USE: &str = "SecurityGroupInUse";
/// What is read of a port.
const PORT_FIELDS: [&str; 7] = [
    "id",
    "device_id",
    "device_owner",
    "security_groups",
    "fixed_ips",
    "port_security_enabled",
    "revision_number",
];

impl<E: Exchange> Client<E> {
    /// Reads the project's groups with these names, by ID.
    pub(crate) async fn groups(&self, names: &[&str]) -> Result<Vec<Group>, CloudError> {
        let project = self.project().await?;
        let query =
            format!("{}&{}", one_of("project_id", [project.as_str()]), one_of("name", names.iter().copied()));
        let found = self.list("security-groups", &query, "reading security groups").await?;
        let mut groups: Vec<Group> = found.iter().filter_map(Group::parse).collect();
        // A filter that a service ignores must not make groups of others ours.
        groups.retain(|group| names.contains(&group.name.as_str()));
        groups.sort_by(|one, other| one.id.cmp(&other.id));
        groups.dedup_by(|one, other| one.id == other.id);
        Ok(groups)
    }

    /// Reads the ports of servers, and those that have one of these groups, by ID.
    pub(crate) async fn ports(&self, servers: &[&str], group_ids: &[&str]) -> Result<Vec<Port>, CloudError> {
        let mut found = BTreeMap::new();
        let fields = one_of("fields", PORT_FIELDS);
        for (field, ids) in [("device_id", servers), ("security_groups", group_ids)] {
            for ids in ids.chunks(MOST_IDS) {
                let query = format!("{}&{fields}", one_of(field, ids.iter().copied()));
                for port in self.list("ports", &query, "reading ports").await? {
                    // Older services ignore the filter by groups and answer with all ports.
                    let is_of_server = port["device_id"].as_str().is_some_and(|id| servers.contains(&id));
                    let has_group = groups(&port).iter().any(|id| group_ids.contains(&id.as_str()));
                    if let Some(id) = port["id"].as_str().map(str::to_owned)
                        && (is_of_server || has_group)
                    {
                        found.insert(id, port);
                    }
                }
            }
        }
        let of_servers =
            found.values().filter(|port| port["device_id"].as_str().is_some_and(|id| servers.contains(&id)));
        let ids: Vec<&str> = of_servers.filter_map(|port| port["id"].as_str()).collect();
        let floating = self.floating(&ids).await?;
        Ok(found.values().filter_map(|port| Port::parse(port, &floating)).collect())
    }

    /// Reads which of these ports have a floating IP.
    async fn floating(&self, ports: &[&str]) -> Result<HashSet<String>, CloudError> {
        let mut with = HashSet::new();
        for ids in ports.chunks(MOST_IDS) {
            let query = one_of("port_id", ids.iter().copied());
            // A cloud without routers has no such thing.
            let found = absent(self.list("floatingips", &query, "reading floating IPs").await)?;
            let ids = found.into_iter().flatten().filter_map(|ip| ip["port_id"].as_str().map(str::to_owned));
            with.extend(ids);
        }
        Ok(with)
    }

    /// Makes a group, unless somebody else has made it meanwhile: Neutron takes two of one name.
    pub(crate) async fn create_group(&self, name: &str) -> Result<(), CloudError> {
        if !self.groups(&[name]).await?.is_empty() {
            return Ok(());
        }
        let body = json!({"security_group": {"name": name, "description": MADE_BY}});
        self.write(Method::POST, "security-groups", Some(&body), &format!("creating security group {name}"))
            .await
    }

    /// Makes a rule; one that lets the same pass already is as good.
    pub(crate) async fn create_rule(&self, group: &GroupRef, rule: &GroupRule) -> Result<(), CloudError> {
        let Some(id) = group.id.as_deref().filter(|_| !rule.waits()) else { return Ok(()) };
        let purpose = format!("letting {rule} pass in security group {}", group.name);
        match self.write(Method::POST, "security-group-rules", Some(&rule.body(id)), &purpose).await {
            Err(error) if has_code(&error, RULE_EXISTS) => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes a rule.
    pub(crate) async fn delete_rule(&self, group: &str, id: &str) -> Result<(), CloudError> {
        let purpose = format!("removing a rule of security group {group}");
        let outcome = self.write(Method::DELETE, &format!("security-group-rules/{id}"), None, &purpose).await;
        absent(outcome).map(drop)
    }

    /// Gives a port a group, or takes it; a port that has gone is as it should be. All other groups of the port stay as they are,
    /// also if somebody else changes them at the same time.
    pub(crate) async fn set_group(
        &self,
        port: &str,
        group: &GroupRef,
        is_wanted: bool,
    ) -> Result<(), CloudError> {
        let Some(id) = &group.id else { return Ok(()) };
        let path = format!("ports/{port}");
        let purpose = format!("changing the security groups of port {port}");
        for write in 1..=WRITES {
            let asked =
                ToNetwork { method: Method::GET, path: &path, body: None, revision: None, purpose: &purpose };
            let Some(found) = absent(self.ask(asked).await)? else { return Ok(()) };
            let found = &found.body["port"];
            // Of a port without this list all groups would be replaced by one.
            if !found["security_groups"].is_array() {
                return Err(self.incomplete(&purpose, "security_groups"));
            }
            let mut ids = groups(found);
            if ids.contains(id) == is_wanted {
                return Ok(());
            }
            ids.retain(|other| other != id);
            if is_wanted {
                ids.push(id.clone());
            }
            let body = json!({"port": {"security_groups": ids}});
            let revision = found["revision_number"].as_u64();
            let asked = ToNetwork {
                method: Method::PUT,
                path: &path,
                body: Some(&body),
                revision,
                purpose: &purpose,
            };
            match absent(self.ask(asked).await) {
                Err(error) if error.has_status(412) && write < WRITES => {}
                outcome => return outcome.map(drop),
            }
        }
        Ok(())
    }

    /// Removes a group. Machines that go may still have it: it is taken from their ports, and waited for.
    pub(crate) async fn delete_group(&self, name: &str, id: &str) -> Result<(), CloudError> {
        let (path, purpose) = (format!("security-groups/{id}"), format!("deleting security group {name}"));
        let until = Instant::now() + GROUP_TIMEOUT;
        let group = GroupRef { name: name.to_owned(), id: Some(id.to_owned()) };
        loop {
            match absent(self.write(Method::DELETE, &path, None, &purpose).await) {
                Err(error) if has_code(&error, GROUP_IN_USE) && Instant::now() < until => {}
                outcome => return outcome.map(drop),
            }
            for port in self.ports(&[], &[id]).await? {
                self.set_group(&port.id, &group, false).await?;
            }
            tokio::time::sleep(GROUP_PAUSE).await;
        }
    }

    async fn write(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        purpose: &str,
    ) -> Result<(), CloudError> {
        self.ask(ToNetwork { method, path, body, revision: None, purpose }).await.map(drop)
    }
}
