//! Which contexts are taken.

use super::*;
use std::fs;

const CONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: west
clusters:
- {name: cluster-w, cluster: {server: 'https://w.example:6443'}}
- {name: cluster-e, cluster: {server: 'http://127.0.0.1:1'}}
contexts:
- {name: west, context: {cluster: cluster-w, user: viewer}}
- {name: east, context: {cluster: cluster-e, user: admin}}
- {name: west-admin, context: {cluster: cluster-w, user: admin}}
users:
- {name: viewer, user: {token: v}}
- {name: admin, user: {token: a}}
";

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    kube: KubeArgs,
}

fn args(words: &[&str]) -> KubeArgs {
    let words = ["trieste"].iter().chain(words);
    <Command as clap::Parser>::try_parse_from(words).unwrap().kube
}

/// Arguments with a kubeconfig in a directory that lives as long as the first result.
fn with_config(words: &[&str]) -> (tempfile::TempDir, KubeArgs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, CONFIG).unwrap();
    let args = KubeArgs { kubeconfig: Some(path.into()), ..args(words) };
    (dir, args)
}

fn names(targets: &[Target]) -> Vec<(&str, &str)> {
    targets.iter().map(|one| (one.cluster.as_str(), one.context.as_deref().unwrap_or_default())).collect()
}

#[test]
fn every_cluster_is_taken_once_by_the_user_with_most_contexts() {
    let (_dir, args) = with_config(&[]);
    let targets = args.targets().unwrap();
    assert_eq!(names(&targets), [("cluster-w", "west-admin"), ("cluster-e", "east")]);
    assert_eq!(targets[0].server, "https://w.example:6443");
}

#[test]
fn contexts_that_are_asked_for_are_taken_in_that_order() {
    let (_dir, several) = with_config(&["--contexts", "east,west"]);
    assert_eq!(names(&several.targets().unwrap()), [("cluster-e", "east"), ("cluster-w", "west")]);
    assert!(several.target().is_err_and(|error| error.to_string().contains("--context")));
    let (_dir, one) = with_config(&["--context", "east"]);
    assert_eq!(names(&one.targets().unwrap()), [("cluster-e", "east")]);
    assert_eq!(one.target().unwrap().cluster, "cluster-e");
}

#[test]
fn one_cluster_is_that_of_the_current_context() {
    let (_dir, args) = with_config(&[]);
    assert_eq!(args.target().unwrap().context.as_deref(), Some("west"));
}

#[test]
fn a_context_that_is_not_there_is_answered_with_those_that_are() {
    let (_dir, args) = with_config(&["--context", "north"]);
    let error = args.targets().err().unwrap().to_string();
    assert!(error.contains("named north") && error.contains("west, east, west-admin"), "{error}");
}

#[test]
fn several_files_are_one_kubeconfig_and_one_of_them_may_be_missing() {
    let (dir, _) = with_config(&[]);
    let more = CONFIG.replace("west", "north").replace("cluster-w", "cluster-n");
    fs::write(dir.path().join("more"), more).unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let list = format!("{}:{}:{}", at("config"), at("missing"), at("more"));
    let args = args(&["--kubeconfig", &list, "--contexts", "west,north"]);
    assert_eq!(names(&args.targets().unwrap()), [("cluster-w", "west"), ("cluster-n", "north")]);
    assert_eq!(args.target_of("west").unwrap().cluster, "cluster-w");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let args = args(&["--kubeconfig", "/nowhere/config"]);
    let error = format!("{:#}", args.targets().err().unwrap());
    assert!(error.contains("/nowhere/config") && error.contains("--kubeconfig PATH"), "{error}");
}

#[test]
fn a_cluster_that_does_not_answer_costs_one_line() {
    let (_dir, args) = with_config(&["--context", "east"]);
    let target = args.target().unwrap();
    let error = crate::in_runtime(target.client()).err().unwrap().to_string();
    assert!(
        error.starts_with("context east: the API server http://127.0.0.1:1 cannot be reached: "),
        "{error}"
    );
    assert!(error.contains("refused") && !error.contains('\n'), "{error}");
}
