//! Translation and controller, over everything that the definition has.

mod controller;
mod faults;
mod fields;
mod tkestack;
mod upstream;
mod upstream_fields;
