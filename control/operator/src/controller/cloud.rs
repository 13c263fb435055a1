//! The cloud: what was prepared there, when that is replaced or taken back, and who waits for it.

use serde_json::Value;
use trieste_control::api::CloudPrepareConfig;

use super::FabricController;
use crate::holders::holder;
use crate::kinds::is_of_tkestack;
use crate::order::{Outcome, Part, Report};
use crate::source::{Content, Source};
use crate::translate::tkestack::{self, TranslatedCloud};

impl FabricController {
    /// Returns what was prepared, or begun to be, in the cloud, as the object's status has it. The definitions of others may drop that:
    /// then it is remembered, and after a restart what is to go is what the spec has.
    fn recorded(&self, source: &Source) -> Option<CloudPrepareConfig> {
        self.written(source).or_else(|| self.assumed(source).map(|own| own.config))
    }

    /// Returns what is remembered of the cloud, or what the object's status has of it.
    fn written(&self, source: &Source) -> Option<CloudPrepareConfig> {
        let found = || serde_json::from_value(self.written_status(source)?.get("cloud")?.clone()).ok();
        if !is_of_tkestack(source.key.kind) {
            return found();
        }
        let remembered = source.metadata.uid.as_ref().and_then(|uid| self.clouds.get(uid)).cloned();
        remembered.or_else(found)
    }

    /// Returns the cloud of a spec that is to go, where the definition drops what a status has.
    fn assumed(&self, source: &Source) -> Option<TranslatedCloud> {
        let drops = self.written_status(source).is_none_or(|status| status.get("conditions").is_none());
        match &source.content {
            Content::Tkestack(spec) if drops && !source.wants(Part::Cloud) => {
                tkestack::cloud(spec, &source.key.namespace).ok().flatten()
            }
            Content::Tkestack(_)
            | Content::Fabric(_)
            | Content::Broker(_)
            | Content::Submariner(_)
            | Content::ServiceDiscovery(_) => None,
        }
    }

    fn written_status(&self, source: &Source) -> Option<&Value> {
        self.sources.get(&source.key)?.body.get("status")
    }

    /// Returns `true` if nothing records that the cloud was AWS, and the object does not name it: it was AWS if the nodes are.
    pub(super) fn is_cloud_assumed(&self, source: &Source) -> bool {
        self.written(source).is_none() && self.assumed(source).is_some_and(|own| !own.is_named)
    }

    /// Returns what was prepared in the cloud, in the words of today's spec where that is about the same cloud.
    pub(super) fn cloud_of(&self, source: &Source) -> Option<CloudPrepareConfig> {
        let recorded = self.recorded(source)?;
        Some(source.cloud().filter(|own| own.is_same_cloud(&recorded)).unwrap_or(recorded))
    }

    /// Returns `true` if another cloud was prepared than the object has: that is taken back first.
    pub(super) fn is_replaced(&self, source: &Source) -> bool {
        let own = source.cloud();
        own.zip(self.recorded(source)).is_some_and(|(own, recorded)| !own.is_same_cloud(&recorded))
    }

    /// Returns `true` if a member is not begun yet, since its cloud was not prepared once.
    pub(super) fn waits_for_cloud(&self, source: &Source, all: &[Source]) -> bool {
        let is_prepared = self.report(source, Part::Cloud).is_some_and(
            |report| matches!(&report.outcome, Outcome::Installed(facts) if facts.awaits.is_none()),
        );
        source.prepares_cloud_first(holder(all, Part::Cloud)) && !is_prepared
    }

    /// Keeps what a report says of the cloud.
    pub(super) fn record_cloud(&mut self, report: &Report) {
        if report.part != Part::Cloud {
            return;
        }
        let config = match &report.outcome {
            Outcome::Chosen(config) => Some(config.as_ref().clone()),
            Outcome::Installed(facts) => facts.cloud.clone(),
            Outcome::Removed => None,
            Outcome::Free | Outcome::Waiting(_) | Outcome::Failed(_) => return,
        };
        match config {
            Some(config) => drop(self.clouds.insert(report.uid.clone(), config)),
            None => drop(self.clouds.remove(&report.uid)),
        }
    }

    /// Returns `true` if a member is leaving, which what was prepared in the cloud outlasts.
    pub(super) fn is_member_leaving(all: &[Source]) -> bool {
        all.iter().any(|source| source.has_begun(Part::Member) && !source.wants(Part::Member))
    }
}
