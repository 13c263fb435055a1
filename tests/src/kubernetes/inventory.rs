//! Everything that an API server holds, whatever kinds it has.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Client;

impl Client {
    /// Returns the number of the last write to anything that the server stores: etcd's revision, which every list bears.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn revision(&self) -> anyhow::Result<String> {
        let list = self.get("/api/v1/namespaces?limit=1")?;
        let revision = list["metadata"]["resourceVersion"].as_str();
        revision.map(str::to_owned).context("a list without resourceVersion")
    }

    /// Hands over every object that can be listed, with its version (`apps/v1`) and resource (`daemonsets`); resources that
    /// are skipped are not asked for.
    ///
    /// # Errors
    /// If the server does not say which groups it has.
    pub fn every_object(
        &self,
        skipped: &[&str],
        mut take: impl FnMut(&str, &str, Value),
    ) -> anyhow::Result<()> {
        let mut roots = vec![("v1".to_owned(), "/api/v1".to_owned())];
        for group in self.get("/apis")?["groups"].as_array().into_iter().flatten() {
            let version = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
            roots.push((version.to_owned(), format!("/apis/{version}")));
        }
        for (version, root) in roots {
            // A group whose last definition goes may be listed a moment longer.
            let Ok(resources) = self.get(&root) else { continue };
            for resource in resources["resources"].as_array().into_iter().flatten() {
                let name = resource["name"].as_str().unwrap_or_default();
                let can_list =
                    resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list")));
                if !can_list || name.contains('/') || skipped.contains(&name) {
                    continue;
                }
                let Ok(objects) = self.list(&format!("{root}/{name}")) else { continue };
                for object in objects {
                    take(&version, name, object);
                }
            }
        }
        Ok(())
    }
}
