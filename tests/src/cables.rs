//! Which cable the clusters of a test have: what `TRIESTE_CABLE` says, as `./dev test --matrix` does; else WireGuard.
//!
//! A test that is about one cable says so itself, and does not look here.

use crate::capture::Cable;

/// The variable.
pub const VARIABLE: &str = "TRIESTE_CABLE";

/// Returns the cable driver's name.
///
/// # Panics
/// If the variable has a name that is none.
#[must_use]
pub fn driver() -> String {
    let chosen = std::env::var(VARIABLE).unwrap_or_else(|_| "wireguard".to_owned());
    let known = ["wireguard", "libreswan", "vxlan"];
    assert!(known.contains(&chosen.as_str()), "{VARIABLE}={chosen}: the cables are {}", known.join(", "));
    chosen
}

/// Returns the one that a set with it changes to.
#[must_use]
pub fn next_driver() -> &'static str {
    match on_the_wire() {
        Cable::WireGuard => "libreswan",
        Cable::Ipsec => "vxlan",
        _ => "wireguard",
    }
}

/// Returns its form on the wire.
#[must_use]
pub fn on_the_wire() -> Cable {
    match driver().as_str() {
        "libreswan" => Cable::Ipsec,
        "vxlan" => Cable::Vxlan,
        _ => Cable::WireGuard,
    }
}

/// Says whether nobody between the clusters can read what is in it.
#[must_use]
pub fn is_encrypted() -> bool {
    on_the_wire() != Cable::Vxlan
}

/// Returns the line of a gateway's configuration, unless it is WireGuard, which needs none.
#[must_use]
pub fn line() -> Option<String> {
    let driver = driver();
    (driver != "wireguard").then(|| format!("cable-driver: {driver}"))
}
