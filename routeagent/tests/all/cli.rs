//! The command line, as a person or a pod meets it. Needs no root.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

#[test]
fn a_missing_cluster_id_is_named_with_flag_and_variable() {
    let output = agent(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output);
    assert!(error.contains("--cluster-id") && error.contains("SUBMARINER_CLUSTERID"), "{error}");
}

#[test]
fn an_uninstall_variable_that_says_no_does_not_uninstall() {
    for no in ["false", "0", ""] {
        let output = agent(&["--once"]).env("SUBMARINER_UNINSTALL", no).output().unwrap();
        assert!(text(&output).contains("--cluster-id"), "{no:?}: {}", text(&output));
    }
}

#[test]
fn a_store_that_does_not_exist_is_an_error_that_names_it() {
    let node = ["--once", "--cluster-id=a", "--cluster-cidrs=10.1.0.0/16", "--store=dir:/nonexistent/store"];
    let output = agent(&node).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("/nonexistent/store"), "{}", text(&output));
}

#[test]
fn help_names_every_variable_and_version_is_told() {
    let help = text(&agent(&["--help"]).output().unwrap());
    for variable in [
        "SUBMARINER_CLUSTERID",
        "SUBMARINER_CLUSTERCIDR",
        "SUBMARINER_SERVICECIDR",
        "SUBMARINER_NAMESPACE",
        "SUBMARINER_UNINSTALL",
        "SUBMARINER_GLOBALCIDR",
        "SUBMARINER_NETWORKPLUGIN",
        "SUBMARINER_HEALTHCHECKENABLED",
        "SUBMARINER_HEALTHCHECKINTERVAL",
        "SUBMARINER_HEALTHCHECKMAXPACKETLOSSCOUNT",
        "SUBMARINER_WAITFORNODE",
        "SUBMARINER_DEBUG",
        "SUBMARINER_VERBOSITY",
        "NODE_NAME",
        "TRIESTE_PASS_FILE",
        "TRIESTE_HOSTNAME",
        "TRIESTE_STORE",
        "TRIESTE_STATE_DIR",
        "TRIESTE_CLOSE_GRACE",
        "TRIESTE_BROKER_NAMES",
        "TRIESTE_ROUTEAGENT_METRICS",
    ] {
        assert!(help.contains(variable), "{variable} is missing in {help}");
    }
}

#[test]
fn the_version_is_told_as_upstreams_tool_reads_it_from_a_program_of_that_name() {
    let output = agent(&["--version"]).output().unwrap();
    let told = |name: &str| format!("{name} version: v{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), told("trieste-routeagent"));
    assert!(output.stderr.is_empty());
    let output = agent(&["--version"]).arg0("/usr/local/bin/submariner-route-agent").output().unwrap();
    for stream in [output.stdout, output.stderr] {
        assert_eq!(String::from_utf8(stream).unwrap(), told("submariner-routeagent"));
    }
}

#[test]
fn a_check_without_a_route_agent_fails_and_says_what_to_look_for() {
    let output = agent(&["--check", "--pass-file=/nonexistent/routeagent.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("/nonexistent/routeagent.json"), "{}", text(&output));
}

#[test]
fn a_node_that_cannot_be_waited_for_is_an_error() {
    let output = agent(&[]).env("SUBMARINER_WAITFORNODE", "true").output().unwrap();
    assert!(text(&output).contains("NODE_NAME"), "{}", text(&output));
    let output = agent(&["--wait-for-node", "--node-name=n", "--store=dir:/x"]).output().unwrap();
    assert!(text(&output).contains("no Node objects in dir:/x"), "{}", text(&output));
}

#[test]
fn a_variable_that_cannot_be_read_ends_the_start() {
    let output = agent(&["--cluster-id=a"]).env("SUBMARINER_HEALTHCHECKENABLED", "perhaps").output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    assert!(text(&output).contains("--health-check"), "{}", text(&output));
}

fn agent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trieste-routeagent"));
    command.env_clear().args(arguments);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8([output.stdout.clone(), output.stderr.clone()].concat()).unwrap()
}
