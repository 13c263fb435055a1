//! Programs routes and rules on every node.
