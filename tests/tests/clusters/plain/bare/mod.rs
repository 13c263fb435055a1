//! Clusters with nothing of ours running, at the beginning and at the end of each test.

mod clean;
mod nodes;
