//! Measures stages, cables and whole gateways.
