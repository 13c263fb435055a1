//! Devices that were opened by somebody else, in a network namespace of the test's own. Needs root.
#![expect(clippy::print_stdout, reason = "a skip is said aloud")]

use std::os::fd::{AsFd as _, OwnedFd};

use clap::Parser as _;
use nix::sched::{CloneFlags, unshare};
use trieste_gateway::config::{CommandLine, Config};
use trieste_gateway::devices::Devices;

fn config() -> Config {
    let line = ["trieste-gateway", "--cluster-id", "a", "--cluster-cidrs", "10.1.0.0/16"];
    CommandLine::try_parse_from(line).unwrap().options.resolve().unwrap()
}

/// Runs `body` on a thread in a fresh network namespace.
fn in_namespace(body: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root for a network namespace");
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        body();
    });
    thread.join().unwrap();
}

#[test]
fn a_gateway_starts_from_descriptors_of_the_process_before_it() {
    in_namespace(|| {
        let config = config();
        let before = Devices::open(&config, 1500).unwrap();
        let features = before.capabilities();
        let mut passed: Vec<(String, OwnedFd)> = Vec::new();
        let pairs: Vec<_> = before.into_pairs().collect();
        for (tun, wire) in &pairs {
            passed.push(("tun".to_owned(), tun.as_fd().try_clone_to_owned().unwrap()));
            for socket in wire.fds() {
                passed.push(("udp".to_owned(), socket.try_clone_to_owned().unwrap()));
            }
        }
        drop(pairs);
        let after = Devices::adopt(&config, passed).unwrap();
        let names = |list: &[trieste_control::admin::IoCapability]| {
            let mut names: Vec<_> = list
                .iter()
                .map(|entry| (entry.feature.clone(), entry.state == trieste_control::admin::FeatureState::On))
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&after.capabilities()), names(&features));
        // The port was never free in between.
        let error = Devices::open(&config, 1500).unwrap_err().to_string();
        assert!(error.contains("4500"), "{error}");
    });
}

#[test]
fn descriptors_that_do_not_fit_are_named() {
    in_namespace(|| {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let unknown = Devices::adopt(&config(), vec![("http".to_owned(), null())]).unwrap_err().to_string();
        assert!(unknown.contains("\"http\""), "{unknown}");
        let beyond = Devices::adopt(&config(), vec![("tun-7".to_owned(), null())]).unwrap_err().to_string();
        assert!(beyond.contains("tun-7"), "{beyond}");
        assert!(Devices::adopt(&config(), vec![("tun".to_owned(), null())]).is_err());
    });
}
