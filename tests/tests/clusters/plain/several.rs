//! Two active gateways of each cluster, by the addresses of pods, nodes and services.

use trieste_tests::table::Table;

use crate::several::{diagnosis, flows, losses, matrix};
use crate::shared::{PLAIN, lease};

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

    two.say(&format!("all checked:\n{table}"));
    table.assert_no_failure();
}
