//! Gateways, route agents and the kernel in network namespaces. Need root.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod claimed_broker;
mod config;
mod dns;
mod endpoint;
mod fail_closed;
mod globalnet;
mod globalnet_show;
mod globalnet_stun;
mod leaks;
mod least_privilege;
mod load_balancer;
mod metrics_port;
mod mtu;
mod nat;
mod nat_oracle;
mod networks;
mod past_stack;
mod path;
mod plugin_macvlan;
mod plugin_ovn;
mod plugin_ovn_globalnet;
mod plugin_ovn_nodes;
mod plugin_ovn_router;
mod probe;
mod secrets;
mod settings;
mod soak;
mod tunnel_probe;
