//! What the store makes of an API server's answers, and of none.

mod fake;
mod hostile;
mod hostile_changes;
mod requests;
mod watches;
