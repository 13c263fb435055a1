//! `trieste-lab demo --kubernetes` from outside: it works, it leaves nothing behind, and what it leaves up on request can be
//! tried by the lines that it prints.

use std::path::Path;
use std::time::Duration;

use trieste_tests::command::Run;
use trieste_tests::guard::root_test;
use trieste_tests::programs;

const LONG: Duration = Duration::from_secs(300);

#[test]
fn the_demo_of_real_clusters_shows_what_it_claims_and_leaves_nothing() {
    let name = "the_demo_of_real_clusters_shows_what_it_claims_and_leaves_nothing";
    let Some(_turn) = root_test(name) else { return };

    let told = demo(&[]);

    for claim in [
        "trieste deploy-broker",
        "Cluster \"west\" has joined",
        "5 of 5 answered",
        "arrived unchanged",
        "TCP client → Service web",
        "All connections (1) are established",
        "has been uninstalled",
        "none differs",
        "nothing left behind",
    ] {
        assert!(told.contains(claim), "\"{claim}\" is missing in:\n{told}");
    }
    assert_eq!(traces(lab_of(&told)), Vec::<String>::new());
}

#[test]
fn clusters_that_the_demo_leaves_up_answer_to_the_lines_that_it_prints() {
    let name = "clusters_that_the_demo_leaves_up_answer_to_the_lines_that_it_prints";
    let Some(_turn) = root_test(name) else { return };
    let told = demo(&["--keep"]);
    let kept = Kept { id: lab_of(&told).to_owned() };
    let (_, lines) = told.split_once("Things to try:\n").unwrap();
    let mut lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let shell = lines.next().unwrap();
    // The way in, the names of the programs, and every line up to the one that uninstalls.
    let script = lines.take_while(|line| !line.starts_with("trieste uninstall"));
    // A connection is in progress in its first ten seconds, which is a finding.
    let script: Vec<_> = script.filter(|line| !line.starts_with("trieste diagnose all")).collect();
    assert!(script.len() > 4, "{script:?}");

    let script = format!("shopt -s expand_aliases\n{}\n", script.join("\n"));
    let words: Vec<_> = shell.split(' ').collect();
    let run = Run::new(words[0]).args(&words[1..]).args(["-e", "-s"]).input(script).timeout(LONG);
    let answered = run.stdout().unwrap();

    for part in ["submariner-gateway", "seen as ", "established"] {
        assert!(answered.contains(part), "\"{part}\" is missing in:\n{answered}");
    }
    drop(kept);
    assert_eq!(traces(lab_of(&told)), Vec::<String>::new());
}

fn demo(flags: &[&str]) -> String {
    let program = programs::path("trieste-lab").unwrap();
    Run::new(program).args(["demo", "--kubernetes"]).args(flags).timeout(LONG).stdout().unwrap()
}

/// A lab that was left up; it goes, however the test ends.
struct Kept {
    id: String,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let claims = trieste_tests::registry::abandoned().unwrap();
        for claim in claims.into_iter().filter(|claim| claim.record().id == self.id) {
            claim.remove().unwrap();
        }
    }
}

fn lab_of(told: &str) -> &str {
    told.split_once("(lab ").unwrap().1.split_once(')').unwrap().0
}

/// What carries a lab's name: namespaces, records, files, mounts.
fn traces(id: &str) -> Vec<String> {
    let mut traces = Vec::new();
    for folder in ["/run/netns", "/run/trieste-lab", "/tmp"] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        traces.extend(names.filter(|name| name.starts_with(id)).map(|name| format!("{folder}/{name}")));
    }
    let mounts = std::fs::read_to_string(Path::new("/proc/self/mounts")).unwrap();
    traces.extend(mounts.lines().filter(|line| line.contains(id)).map(str::to_owned));
    traces
}
