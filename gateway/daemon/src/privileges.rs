//! Which capabilities the gateway needs, and what for.

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use trieste_control::conditions::Conditions;
use trieste_control::privileges::{Capability, Missing, Needs};

use crate::config::{Broker, CommandLine, Config, IPSEC_DRIVER, OuterIo};

/// The first port that everybody may open, where the kernel does not say.
const FIRST_FREE_PORT: u16 = 1024;

/// Ends the start where nothing could work, and gives up what is not needed. Call it before the first thread starts.
///
/// # Errors
/// A missing right, its effect, and how to grant it.
pub(crate) fn settle(command_line: &CommandLine, config: &Config) -> Result<(), Missing> {
    let needs = needs(config);
    // Whatever can be removed without them is removed.
    if !command_line.uninstall {
        needs.check()?;
    }
    with_files(needs, command_line, config).limit();
    Ok(())
}

/// Keeps the process's memory, in which there are keys, from everybody else: no core is written, and nobody without the right
/// to trace any process reads it (prctl(2), `PR_SET_DUMPABLE`).
pub(crate) fn keep_memory_private() {
    let without_core = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let without_dump = prctl::set_dumpable(false);
    for error in [without_core.err(), without_dump.err()].into_iter().flatten() {
        tracing::warn!(%error, "the kernel may write the process's memory, with its keys, to a core file");
    }
}

/// Returns conditions for missing rights.
pub(crate) fn conditions(config: &Config) -> Conditions {
    let conditions = Conditions::new();
    needs(config).note(&conditions);
    conditions
}

/// Returns the rights that this configuration needs.
fn needs(config: &Config) -> Needs {
    let device = "make its TUN device and mark what its cables send: no packet is carried";
    // A device that was passed to us exists already.
    let is_inherited = std::env::var_os("LISTEN_FDS").is_some();
    let mut needs = if is_inherited {
        Needs::default().wanted(Capability::NET_ADMIN, device)
    } else {
        Needs::default().vital(Capability::NET_ADMIN, device)
    };
    let pings = config
        .health_check
        .is_some()
        .then_some("ping remote gateways: only the cable's own word says whether a connection works");
    let esp = config.has_driver(IPSEC_DRIVER).then_some("send ESP without UDP: peers have to take it in UDP");
    let raw: Vec<&str> = pings.into_iter().chain(esp).collect();
    if !raw.is_empty() {
        needs = needs.wanted(Capability::NET_RAW, raw.join("; or "));
    }
    if config.io != OuterIo::Sockets && cfg!(feature = "af-xdp") {
        let program = "lead outer packets past the kernel's stack: they go through the sockets";
        needs = needs.wanted(Capability::BPF, program).wanted(Capability::NET_RAW, program);
        needs = needs.useful(Capability::IPC_LOCK);
    }
    let ports = [Some(config.udp_port), Some(config.nat_discovery_port), config.metrics_port];
    let low = |port: &u16| *port != 0 && *port < first_free_port(config);
    match ports.into_iter().flatten().find(low) {
        Some(port) => needs.wanted(Capability::NET_BIND_SERVICE, format!("open port {port}")),
        // The Node may name another port, any time.
        None if config.node_name.is_some() => needs.useful(Capability::NET_BIND_SERVICE),
        None => needs,
    }
}

fn first_free_port(config: &Config) -> u16 {
    let path = config.proc_sys.join("net/ipv4/ip_unprivileged_port_start");
    let port = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    port.unwrap_or(FIRST_FREE_PORT)
}

/// Adds the files that are read and written while the gateway runs.
fn with_files(needs: Needs, command_line: &CommandLine, config: &Config) -> Needs {
    let own = [config.state_dir.clone(), config.admin_socket.clone()];
    let needs = needs.files(own).files(command_line.config.clone()).store(&config.store);
    match &config.broker {
        Some(Broker::At(location)) => needs.store(location),
        Some(Broker::Kubernetes(server)) => needs.files(server.secret_dir.clone()),
        None => needs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;
    use trieste_control::command_line::Arguments;

    fn config(lines: &str) -> Config {
        let text = format!("cluster-id: a\ncluster-cidrs: [10.1.0.0/16]\n{lines}");
        Options::parse_file(&text).unwrap().resolve().unwrap()
    }

    fn shown(needs: &Needs) -> String {
        format!("{needs:?}")
    }

    #[test]
    fn pings_and_low_ports_need_a_capability_only_where_there_are_any() {
        let usual = shown(&needs(&config("")));
        assert!(usual.contains("NET_ADMIN") && usual.contains("NET_RAW"), "{usual}");
        assert!(!usual.contains("NET_BIND_SERVICE"), "{usual}");
        assert!(!shown(&needs(&config("health-check: false"))).contains("NET_RAW"));
        let ipsec =
            shown(&needs(&config("health-check: false\ncable-driver: ipsec\npsk: sixteen letters or more")));
        assert!(ipsec.contains("NET_RAW") && ipsec.contains("ESP"), "{ipsec}");
        // The real kernel's own bound may be lower than usual.
        let low = shown(&needs(&config("udp-port: 443\nproc-sys: /no/such")));
        assert!(low.contains("NET_BIND_SERVICE") && low.contains("port 443"), "{low}");
        assert!(shown(&needs(&config("node-name: n"))).contains("NET_BIND_SERVICE"));
    }

    #[test]
    fn stores_state_and_secrets_are_the_files_that_count() {
        let config = config("state-dir: /s\nstore: dir:/a\nbroker: kube:/k#c\nadmin-socket: /r/g.sock");
        let command_line = CommandLine {
            config: Some("/c.yaml".into()),
            uninstall: false,
            options: Options::default(),
            arguments: Arguments::default(),
        };
        let needs = shown(&with_files(Needs::default(), &command_line, &config));
        for path in ["\"/s\"", "\"/a\"", "\"/k\"", "\"/r/g.sock\"", "\"/c.yaml\""] {
            assert!(needs.contains(path), "{path}: {needs}");
        }
    }
}
