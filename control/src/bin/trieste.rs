//! The trieste command.
fn main() {}
