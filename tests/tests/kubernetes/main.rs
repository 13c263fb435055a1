//! Our programs and real API servers. Need root.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod bad_input;
mod bed;
mod cloud;
mod discovery;
mod faults;
mod gateway;
mod globalnet;
mod globalnet_process;
mod gone;
mod join;
mod members;
mod policy;
mod routeagent;
mod scale;
mod shared;
mod show;
mod spiderpool;
mod store;
