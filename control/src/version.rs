//! How a program says its version where upstream's tool asks.
//!
//! `subctl show versions` runs `submariner-gateway --version` and `submariner-route-agent --version` in the pods, and takes
//! what stands on **standard error** after `<component> version: `, where the component is the DaemonSet's name. In an
//! image under upstream's names our programs answer so; under their own they say theirs, on standard output alone.

use std::ffi::OsStr;
use std::path::Path;

/// Returns the component that upstream's tool expects of a program of this name (`argv[0]`); `None` if it is not one of
/// upstream's names.
#[must_use]
pub fn upstream_component(program: &OsStr) -> Option<&'static str> {
    match Path::new(program).file_name()?.to_str()? {
        "submariner-gateway" | "submariner.sh" => Some("submariner-gateway"),
        "submariner-route-agent" | "submariner-route-agent.sh" => Some("submariner-routeagent"),
        "submariner-globalnet" | "submariner-globalnet.sh" => Some("submariner-globalnet"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_names_are_answered_with_the_daemon_sets() {
        let component = |name: &str| upstream_component(OsStr::new(name));
        assert_eq!(component("/usr/local/bin/submariner-route-agent"), Some("submariner-routeagent"));
        assert_eq!(component("submariner.sh"), Some("submariner-gateway"));
        assert_eq!((component("trieste-gateway"), component("")), (None, None));
    }
}
