//! Two active gateways of each cluster, by the addresses of pods, nodes and services.

use trieste_tests::pages;
use trieste_tests::table::Table;

use crate::several::{diagnosis, flows, losses, matrix};
use crate::shared::{PLAIN, SOON, Two, lease};

/// The page.
const PAGE: &str = "docs/operations/high-availability.md";

#[test]
fn every_way_there_goes_with_every_way_back_and_kube_proxy_does_not_mind() {
    let name = "plain::several::every_way_there_goes_with_every_way_back_and_kube_proxy_does_not_mind";
    let Some(mut two) = lease(&PLAIN, name) else { return };
    two.joined();
    two.gateways(&[2, 3]);
    let sides = two.sides();
    two.settle().unwrap();
    two.say("two gateways each");

    let table = Table::default();
    matrix::between_pods(&two, &sides, &two.carriers(), &table);
    two.say("matrix");
    flows::run(&sides, &table);
    two.say("flows");
    diagnosis::finds_nothing(&two, &sides, &table);
    two.say("diagnosis");
    losses::of_services(&two, &sides, &table);
    table.row("docs", "high-availability.md, word by word", || followed(&two));

    two.say(&format!("all checked:\n{table}"));
    table.assert_no_failure();
}

/// Types what the page of several gateways says, and looks whether it comes as it promises.
fn followed(two: &Two) -> anyhow::Result<String> {
    let (cluster, page) = (two.east(), pages::read(PAGE)?);
    let listed = pages::command(PAGE, "kubectl -n submariner-operator-paths get")?;
    let words: Vec<&str> = listed.iter().skip(1).map(String::as_str).collect();
    let output = cluster.kubectl(&words)?.stdout;
    let missing = pages::missing(&page, &listed.join(" "), &output);
    anyhow::ensure!(missing.is_empty(), "{missing:?} of the page, but:\n{output}");

    let drain = |begins: &str| -> anyhow::Result<String> {
        let words = pages::command(PAGE, begins)?;
        // The page's node is gw2.
        let words = words.iter().skip(1).map(|word| if word == "gw2" { "east-3" } else { word });
        two.set.trieste(cluster).args(words).stdout()
    };
    let state = |wanted: &str| -> anyhow::Result<()> {
        cluster.wait(&format!("east-3 to be {wanted}"), SOON, || {
            let shown = drain("trieste show gateways")?;
            let line = shown.lines().find(|line| line.starts_with("east-3 ")).unwrap_or_default();
            anyhow::ensure!(line.split_whitespace().nth(1) == Some(wanted), "{shown}");
            Ok(())
        })
    };
    state("active")?;
    drain("trieste drain gw2")?;
    state("drained")?;
    drain("trieste drain gw2 --undo")?;
    state("active")?;
    Ok("what it promises".to_owned())
}
