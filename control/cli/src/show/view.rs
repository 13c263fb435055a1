//! What is shown of one cluster: rows for programs, steps and tables for people.

use serde::Serialize;

use super::What;
use crate::output::Format;
use crate::output::Output;
use crate::progress::Printer;
use crate::rows::{
    BrokerRow, ConnectionRow, EndpointRow, GatewayRow, Networks, RouteAgentRow, Row, ServiceRow, VersionRow,
    table,
};
use trieste_control::steps::{Outcome, Steps as _};

/// What is shown instead of gateways where none are installed, in upstream's words.
const NOT_INSTALLED: &str = "Submariner connectivity feature is not installed";

/// A part of what can be shown.
#[derive(Debug, Default, Serialize)]
#[serde(untagged)]
pub(super) enum Part<T> {
    /// Nobody asked for it.
    #[default]
    NotAsked,
    /// It was read.
    Read(T),
    /// It could not be read.
    Failed { error: String },
}

/// One cluster.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    /// Empty if nobody knows the name.
    pub(super) cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    /// Why nothing could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Whether there are gateways, or should be.
    #[serde(skip)]
    pub(super) is_installed: bool,
    #[serde(skip)]
    pub(super) has_gateways: bool,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) brokers: Part<Vec<BrokerRow>>,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) connections: Part<Vec<ConnectionRow>>,
    /// What there is besides the connections, and why it is not among them.
    #[serde(skip)]
    pub(super) besides: Vec<String>,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) endpoints: Part<Vec<EndpointRow>>,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) gateways: Part<Vec<GatewayRow>>,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) route_agents: Part<Vec<RouteAgentRow>>,
    /// Nothing, if nobody knows them.
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) networks: Part<Option<Networks>>,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) versions: Part<Vec<VersionRow>>,
    #[serde(skip_serializing_if = "Part::is_not_asked")]
    pub(super) services: Part<Vec<ServiceRow>>,
}

impl<T> Part<T> {
    /// What was read, if it was asked for.
    pub(super) fn of(is_asked: bool, read: Result<T, String>) -> Self {
        match read {
            _ if !is_asked => Self::NotAsked,
            Ok(value) => Self::Read(value),
            Err(error) => Self::Failed { error },
        }
    }

    const fn is_not_asked(&self) -> bool {
        matches!(self, Self::NotAsked)
    }

    const fn has_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

impl<T> Part<Vec<T>> {
    /// Returns whether it was read and has no rows.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Read(rows) if rows.is_empty())
    }
}

impl View {
    /// For programs: one part is a list of rows, all of it is an object. No connections are an empty list, and no
    /// failure.
    pub(super) fn write(&self, what: What, format: Format, output: &mut Output) -> anyhow::Result<()> {
        match what {
            What::Brokers => output.write_value(&self.brokers, format),
            What::Connections => output.write_value(&self.connections, format),
            What::Endpoints => output.write_value(&self.endpoints, format),
            What::Gateways => output.write_value(&self.gateways, format),
            What::RouteAgents => output.write_value(&self.route_agents, format),
            What::Networks => output.write_value(&self.networks, format),
            What::Versions => output.write_value(&self.versions, format),
            What::Services => output.write_value(&self.services, format),
            // What is translated is a document of its own; it does not come by here.
            What::All | What::Globalnet => output.write_value(self, format),
        }
    }

    /// Whether a part could not be read.
    pub(super) const fn has_failed(&self) -> bool {
        self.error.is_some()
            || self.brokers.has_failed()
            || self.connections.has_failed()
            || self.endpoints.has_failed()
            || self.gateways.has_failed()
            || self.route_agents.has_failed()
            || self.networks.has_failed()
            || self.versions.has_failed()
            || self.services.has_failed()
    }

    /// For people, in upstream's form: each part is a step with its table; of all parts each ends with an empty line.
    /// Gives the first thing that is missing.
    pub(super) fn print(&self, what: What, printer: &mut Printer) -> Option<String> {
        let mut page = Page { printer, is_all: what == What::All, missing: None };
        page.rows("Detecting broker(s)", &self.brokers, Empty::Fine("No brokers found"));
        if self.is_installed {
            let no_rows = Empty::Missing(if self.has_gateways {
                "no connections found"
            } else {
                "no gateways detected"
            });
            page.rows("Showing Connections", &self.connections, no_rows);
            page.remarks(&self.besides);
            page.rows("Showing Endpoints", &self.endpoints, no_rows);
            page.rows("Showing Gateways", &self.gateways, no_rows);
            page.rows("Showing Route agents", &self.route_agents, Empty::Missing("no route agents detected"));
        }
        // Of a cluster without gateways these are shown only to those who ask for them.
        if self.is_installed || what == What::Networks {
            page.networks(&self.networks);
        }
        page.rows("Showing versions", &self.versions, Empty::Fine("No components found"));
        // Where there are none, all is what upstream's tool shows.
        if what == What::Services || !self.services.is_empty() {
            page.rows(
                "Showing Services",
                &self.services,
                Empty::Fine("No services are exported or imported"),
            );
        }
        if !self.is_installed
            && !matches!(what, What::Brokers | What::Networks | What::Versions | What::Services)
        {
            page.printer.remark(Outcome::Warning, NOT_INSTALLED);
        }
        page.missing
    }
}

/// What it means that there are no rows.
#[derive(Debug, Clone, Copy)]
enum Empty {
    /// To be said, but as it may be.
    Fine(&'static str),
    /// A failure.
    Missing(&'static str),
}

/// A cluster's steps, as they are printed.
struct Page<'a> {
    printer: &'a mut Printer,
    is_all: bool,
    missing: Option<String>,
}

impl Page<'_> {
    fn rows<R: Row>(&mut self, title: &str, part: &Part<Vec<R>>, empty: Empty) {
        match part {
            Part::NotAsked => return,
            Part::Failed { error } => self.fail(title, error),
            Part::Read(rows) if !rows.is_empty() => {
                self.succeed(title, &table(rows));
                for remark in rows.iter().filter_map(Row::remark) {
                    self.printer.remark(Outcome::Warning, &remark);
                }
            }
            Part::Read(_) => match empty {
                Empty::Missing(what) => self.fail(title, what),
                Empty::Fine(what) => {
                    self.succeed(title, "");
                    self.printer.remark(Outcome::Success, what);
                }
            },
        }
        self.gap();
    }

    fn remarks(&mut self, remarks: &[String]) {
        for remark in remarks {
            self.printer.remark(Outcome::Warning, remark);
        }
        if !remarks.is_empty() {
            self.gap();
        }
    }

    fn networks(&mut self, part: &Part<Option<Networks>>) {
        let title = "Showing Network details";
        match part {
            Part::NotAsked => return,
            Part::Failed { error } => self.fail(title, error),
            Part::Read(Some(networks)) => self.succeed(title, &networks.text()),
            Part::Read(None) => {
                self.printer.begin(title);
                self.printer.remark(Outcome::Warning, "The network details could not be determined");
                self.printer.end(Outcome::Warning);
            }
        }
        self.gap();
    }

    fn succeed(&mut self, title: &str, text: &str) {
        self.printer.begin(title);
        self.printer.end(Outcome::Success);
        self.printer.text(text);
    }

    fn fail(&mut self, title: &str, why: &str) {
        self.printer.begin(title);
        self.printer.remark(Outcome::Failure, &capitalised(why));
        self.printer.end(Outcome::Failure);
        self.missing.get_or_insert_with(|| why.to_owned());
    }

    fn gap(&mut self) {
        if self.is_all {
            self.printer.text("\n");
        }
    }
}

/// As upstream prints errors.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
