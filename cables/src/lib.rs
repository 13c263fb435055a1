//! Cables and lanes: the tunnels between gateways.
