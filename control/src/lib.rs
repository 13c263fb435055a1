//! API types, object store, broker sync, and the trieste command.
