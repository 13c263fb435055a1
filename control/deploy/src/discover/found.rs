//! A network plugin that was found.

use super::Plugin;
use super::candidates::Candidate;
use super::flags::cidrs;

/// A plugin, with what its own configuration has.
pub(super) struct Found {
    pub(super) plugin: Plugin,
    pub(super) pods: Vec<Candidate>,
    pub(super) services: Vec<Candidate>,
    pub(super) warning: Option<String>,
}

impl Found {
    pub(super) fn new(name: &str, source: impl Into<String>) -> Self {
        let plugin = Plugin { name: name.to_owned(), source: source.into(), called: None };
        Self { plugin, pods: Vec::new(), services: Vec::new(), warning: None }
    }

    pub(super) fn pods(mut self, source: &str, list: Option<&str>) -> Self {
        self.pods.extend(Candidate::of(source, cidrs(list.unwrap_or_default())));
        self
    }

    pub(super) fn services(mut self, source: &str, list: Option<&str>) -> Self {
        self.services.extend(Candidate::of(source, cidrs(list.unwrap_or_default())));
        self
    }
}
