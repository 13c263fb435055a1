//! The store's behaviour with an API server's answers, and with none.

mod fake;
mod hostile;
mod hostile_changes;
mod requests;
mod versions;
mod watches;
