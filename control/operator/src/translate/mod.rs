//! From resources to the options of the library: one pure function per part, and one per resource of others.

mod broker;
mod cloud;
mod field;
mod join;
pub mod tkestack;
pub mod upstream;

pub use broker::broker_options;
pub use cloud::{Cloud, cloud, cloud_wanted};
pub use field::FieldError;
pub use join::{JoinContext, join_options, join_source, published};
