//! Whole Kubernetes clusters, installed the way users install them. Need root.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod bed;
mod dataplane;
mod demo;
mod diagnose;
mod faults;
mod globalnet;
mod several;
mod uninstall;
