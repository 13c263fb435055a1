//! The licences of the crates that our programs are made of, each text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Error;

/// Our crates that become programs.
const ROOTS: [&str; 6] = [
    "trieste-cli",
    "trieste-discovery",
    "trieste-gateway",
    "trieste-operator",
    "trieste-plugin-sync",
    "trieste-routeagent",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// The text of all licences of the crates that `workspace` links into its programs.
///
/// # Errors
/// If cargo cannot say which they are, or a file cannot be read.
pub(crate) fn of(workspace: &Path) -> Result<String, Error> {
    let failed = |problem: String| Error::Program { program: "cargo metadata", problem };
    let target = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86_64" };
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform"])
        .arg(format!("{target}-unknown-linux-gnu"))
        .current_dir(workspace)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let linked = linked(&metadata);
    let mut crates: Vec<_> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some() && linked.contains(package.id.as_str()))
        .collect();
    crates.sort_by_key(|package| (&package.name, &package.version));
    render(&crates)
}

/// What is reached from our programs by dependencies that are linked; those of builds and tests are not.
fn linked(metadata: &Metadata) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let is_root = |package: &&Package| package.source.is_none() && ROOTS.contains(&package.name.as_str());
    let mut open: Vec<&str> =
        metadata.packages.iter().filter(is_root).map(|package| package.id.as_str()).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = open.pop() {
        if linked.insert(id) {
            let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let normal = dependencies.filter(|one| one.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            open.extend(normal.map(|one| one.pkg.as_str()));
        }
    }
    linked
}

fn render(crates: &[&Package]) -> Result<String, Error> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut document =
        String::from("Trieste's programs contain these crates; the texts of their licences follow.\n\n");
    for package in crates {
        let licence = package.license.as_deref().unwrap_or("see the text");
        let _ = writeln!(document, "{} {}: {licence}", package.name, package.version);
        for text in licence_files(package)? {
            texts.entry(text).or_default().push(format!("{} {}", package.name, package.version));
        }
    }
    for (text, of) in texts {
        let _ = write!(document, "\n{}\n{}\n\n{text}\n", "-".repeat(100), of.join(", "));
    }
    Ok(document)
}

fn licence_files(package: &Package) -> Result<Vec<String>, Error> {
    let directory = package.manifest_path.parent().unwrap_or_else(|| Path::new("/"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Error::at("list", directory))? {
        let path = entry.map_err(Error::at("list", directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        if path.is_file() && starts.iter().any(|start| name.starts_with(start)) {
            let bytes = std::fs::read(&path).map_err(Error::at("read", &path))?;
            files.push(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim_end().to_owned());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_have_their_licences_and_those_of_tests_do_not() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = of(workspace).unwrap();
        assert!(text.contains("\ntokio 1."), "a crate that every program links");
        assert!(text.contains("\nring 0."), "the ciphers");
        assert!(!text.contains("\nproptest 1."), "tests only");
        assert!(!text.contains("\ntrieste-"), "our own licence is elsewhere");
        assert_eq!(text.matches("Permission is hereby granted, free of charge").count().min(10), 10);
    }
}
