//! Finds the broken hop.
//!
//! Used by the command `trieste`, on an operator's machine and (as `trieste node`) inside the pods of the route agent.

#![forbid(unsafe_code)]
