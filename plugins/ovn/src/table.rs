//! The tables of the northbound database that are read and written (ovn-nb(5)), with the columns that matter.

use trieste_ovsdb::value::Row;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Routers.
    LogicalRouter,
    /// Switches.
    LogicalSwitch,
    /// Ports of routers.
    LogicalRouterPort,
    /// Ports of switches.
    LogicalSwitchPort,
    /// Where a router port lives.
    GatewayChassis,
    /// Routes of routers.
    StaticRoute,
    /// Policies of routers.
    Policy,
}

/// The columns of routers and switches that refer to what they balance: load balancers, and groups of them, which older
/// schemas lack. Neither's table is followed: what is in a group is the group's.
pub(crate) const BALANCERS: [&str; 2] = ["load_balancer", "load_balancer_group"];
/// The column of every table that holds the marks.
pub(crate) const EXTERNAL_IDS: &str = "external_ids";

impl Table {
    /// All, parents before their children.
    pub const ALL: [Self; 7] = [
        Self::LogicalRouter,
        Self::LogicalSwitch,
        Self::LogicalRouterPort,
        Self::LogicalSwitchPort,
        Self::GatewayChassis,
        Self::StaticRoute,
        Self::Policy,
    ];

    /// Returns its name in the schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LogicalRouter => "Logical_Router",
            Self::LogicalSwitch => "Logical_Switch",
            Self::LogicalRouterPort => "Logical_Router_Port",
            Self::LogicalSwitchPort => "Logical_Switch_Port",
            Self::GatewayChassis => "Gateway_Chassis",
            Self::StaticRoute => "Logical_Router_Static_Route",
            Self::Policy => "Logical_Router_Policy",
        }
    }

    /// Returns the table of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the columns to monitor: all that are read or written, but for [`Table::optional_columns`].
    #[must_use]
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::LogicalRouter => {
                &["name", "ports", "static_routes", "policies", BALANCERS[0], EXTERNAL_IDS]
            }
            Self::LogicalSwitch => &["name", "ports", BALANCERS[0], EXTERNAL_IDS],
            Self::LogicalRouterPort => &["name", "mac", "networks", "gateway_chassis", EXTERNAL_IDS],
            Self::LogicalSwitchPort => &["name", "type", "addresses", "options", EXTERNAL_IDS],
            Self::GatewayChassis => &["name", "chassis_name", "priority", EXTERNAL_IDS],
            Self::StaticRoute => &["ip_prefix", "nexthop", "policy", "output_port", EXTERNAL_IDS],
            Self::Policy => &["priority", "match", "action", "nexthop", "nexthops", EXTERNAL_IDS],
        }
    }

    /// Returns the columns to monitor where the schema has them; only then are they read and written.
    #[must_use]
    pub const fn optional_columns(self) -> &'static [&'static str] {
        match self {
            Self::LogicalRouter | Self::LogicalSwitch => &[BALANCERS[1]],
            Self::LogicalRouterPort
            | Self::LogicalSwitchPort
            | Self::GatewayChassis
            | Self::StaticRoute
            | Self::Policy => &[],
        }
    }

    /// Returns the columns that refer to rows of other tables.
    pub(crate) const fn references(self) -> &'static [&'static str] {
        match self {
            Self::LogicalRouter => &["ports", "static_routes", "policies"],
            Self::LogicalSwitch => &["ports"],
            Self::LogicalRouterPort => &["gateway_chassis"],
            Self::LogicalSwitchPort | Self::GatewayChassis | Self::StaticRoute | Self::Policy => &[],
        }
    }

    /// Returns the table, and its column, that refer to rows of this one. A row that nothing refers to is gone; rows without
    /// such a column exist by themselves.
    pub(crate) const fn parent(self) -> Option<(Self, &'static str)> {
        match self {
            Self::LogicalRouter | Self::LogicalSwitch => None,
            Self::LogicalRouterPort => Some((Self::LogicalRouter, "ports")),
            Self::LogicalSwitchPort => Some((Self::LogicalSwitch, "ports")),
            Self::GatewayChassis => Some((Self::LogicalRouterPort, "gateway_chassis")),
            Self::StaticRoute => Some((Self::LogicalRouter, "static_routes")),
            Self::Policy => Some((Self::LogicalRouter, "policies")),
        }
    }

    /// Returns `true` if rows have a name, and there may be one of a name only: by an index of the schema, or since OVN
    /// would not know which is meant.
    pub(crate) const fn is_named(self) -> bool {
        !matches!(self, Self::StaticRoute | Self::Policy)
    }

    /// Returns what a row is known by: its name, a policy's priority and match, a route's prefix and what it looks at.
    pub(crate) fn key(self, row: &Row) -> String {
        let text = |column: &str| row.get(column).and_then(|value| value.as_str()).unwrap_or_default();
        match self {
            Self::Policy => {
                let priority = row.get("priority").and_then(|value| value.as_integer()).unwrap_or_default();
                format!("{priority} {}", text("match"))
            }
            Self::StaticRoute => match text("policy") {
                "" | "dst-ip" => text("ip_prefix").to_owned(),
                policy => format!("{} {policy}", text("ip_prefix")),
            },
            Self::LogicalRouter
            | Self::LogicalSwitch
            | Self::LogicalRouterPort
            | Self::LogicalSwitchPort
            | Self::GatewayChassis => text("name").to_owned(),
        }
    }
}
