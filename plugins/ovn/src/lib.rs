//! Routes between clusters in the northbound database of OVN-Kubernetes.

#![forbid(unsafe_code)]

pub use trieste_ovsdb as ovsdb;
