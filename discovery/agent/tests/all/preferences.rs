//! What an export asks of the choice among clusters, where that cannot be used.

use crate::api_store::ApiStore;
use crate::lab::{Cluster, aggregate, settle};
use trieste_control::api::Kind;

#[tokio::test(start_paused = true)]
async fn a_routing_that_cannot_be_takes_no_service_away_and_is_told_on_the_export_until_it_is_mended() {
    let broker = ApiStore::default();
    let [east, west] = ["east", "west"].map(|id| Cluster::start(id, &broker));
    east.service("web", "10.96.0.7");
    east.export("web", 1_000);
    let annotate = |key: &str, value: &str| {
        east.edit(Kind::ServiceExport, "shop", "web", |export| {
            export.metadata.annotations.insert(key.to_owned(), value.to_owned());
        });
    };
    let said = |key: &str| aggregate(&broker, "web").unwrap().metadata.annotations.get(key).cloned();
    annotate("trieste.io/routing", "nearset");
    annotate("trieste.io/weight", "much");
    settle().await;
    assert_eq!((said("trieste.io/routing"), said("weight.trieste.io/east")), (None, None));
    assert!(west.import("web").is_some() && west.slices_of("east").len() == 1);
    let (status, reason, message) = east.condition("web", "Ready").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "AnnotationIgnored"));
    for key in ["trieste.io/routing", "trieste.io/weight"] {
        assert!(message.contains(&format!("annotation {key} is ignored")), "{message}");
    }
    annotate("trieste.io/routing", "nearest");
    annotate("trieste.io/weight", "3");
    settle().await;
    assert_eq!(said("trieste.io/routing").as_deref(), Some("nearest"));
    assert_eq!(
        (said("weight.trieste.io/east").as_deref(), east.said("web", "Ready").as_str()),
        (Some("3"), "True/Exported")
    );
}
