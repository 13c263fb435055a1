//! Tokens, operations, rights, refusals.

use std::sync::Arc;

use std::collections::BTreeSet;

use super::cloud::TOKEN_SECONDS;
use super::world::{Machine, START, World, settings};
use super::{CABLES, gateways, gke, openshift};
use crate::CloudError;
use crate::gcp::{Credentials, Settings};
use crate::provider::Goal;

/// Returns an error's text with what to do, and that no part of it is as long as an assertion.
fn shown(error: &CloudError) -> String {
    let text = format!("{error}; {}", error.next());
    let debug = format!("{error:?}");
    let is_long = |word: &str| word.len() > 100;
    assert!(!text.split(' ').chain(debug.split(' ')).any(is_long), "{text} {debug}");
    assert!(!debug.contains("eyJ") && !debug.contains("ya29"), "{debug}");
    text
}

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_when_they_are_used_up() {
    let world = gke();
    let server = world.cluster.server();
    let settings = settings(Some("east-x1"));
    let gcp = world.gcp(&server, &settings);
    let plan = || crate::run::plan(&gcp, &Goal::CleanUp);
    plan().await.unwrap();
    plan().await.unwrap();
    assert_eq!(world.cloud.0.lock().unwrap().tokens.len(), 1);
    world.cloud.0.lock().unwrap().now = START + TOKEN_SECONDS - 30;
    plan().await.unwrap();
    world.cloud.0.lock().unwrap().now = START + 3 * TOKEN_SECONDS;
    plan().await.unwrap();
    assert_eq!(world.cloud.0.lock().unwrap().tokens.len(), 3);
    let debug = format!("{gcp:?}");
    assert!(!debug.contains("ya29") && !debug.contains("PRIVATE"), "{debug}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_has_tokens_of_its_own() {
    let world = gke();
    let settings = Settings { credentials: Credentials::MetadataServer, ..settings(Some("east-x1")) };
    let error = world.reach(&Goal::CleanUp, &settings).await.unwrap_err();
    let text = shown(&error);
    assert!(
        text.starts_with("the metadata server at http://metadata.google.internal gives no token: 403"),
        "{text}"
    );
    world.cloud.0.lock().unwrap().is_machine = true;
    assert_eq!(world.reach(&Goal::CleanUp, &settings).await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn refused_tokens_do_not_show_the_assertion() {
    let world = gke();
    let server = world.cluster.server();
    let clock = Arc::new(|| jiff::Timestamp::from_second(START + 1000).unwrap());
    let gcp = crate::gcp::Gcp::new(world.cloud.clone(), &server, settings(Some("east-x1")), clock);
    let error = crate::run::plan(&gcp, &Goal::CleanUp).await.unwrap_err();
    let text = shown(&error);
    assert!(
        text.starts_with(
            "Google gives no token for gw@p-1.iam.gserviceaccount.com: invalid_grant 400 Bad Request: Invalid JWT: Token must be a short-lived token …"
        ),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn operations_are_awaited_and_their_errors_shown() {
    let world = gke();
    world.cloud.0.lock().unwrap().polls = 40;
    world.cloud.0.lock().unwrap().busy_every = 7;
    world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap();
    assert!(world.rule(CABLES).is_some());
    world.cloud.0.lock().unwrap().next_failure = Some((403, "QUOTA_EXCEEDED"));
    let error = world.reach(&Goal::CleanUp, &settings(Some("east-x1"))).await.unwrap_err();
    assert!(matches!(&error, CloudError::Api { code, .. } if code == "QUOTA_EXCEEDED"), "{error:?}");
    assert!(shown(&error).contains("403 it was refused"), "{error}");
    // The same command goes on from there.
    world.cloud.0.lock().unwrap().next_failure = Some((412, "CONDITION_NOT_MET"));
    world.reach(&Goal::CleanUp, &settings(Some("east-x1"))).await.unwrap();
    assert_eq!(world.cloud.0.lock().unwrap().firewalls.len(), 1);
    world.cloud.0.lock().unwrap().polls = 1000;
    let error = world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap_err();
    assert!(shown(&error).contains("did not end within 180 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_named_before_anything_is_changed() {
    let all = ["compute.firewalls.create", "compute.networks.updatePolicy", "compute.instances.setTags"];
    let cases: [(&[&str], Option<&str>); 5] = [
        (&all, None),
        (&all[1..], Some("compute.firewalls.create in project p-1")),
        (&all[2..], Some("compute.firewalls.create and compute.networks.updatePolicy in project p-1")),
        (&all[..2], Some("compute.instances.setTags of instance gke-a")),
        (
            &[],
            Some(
                "compute.firewalls.create and compute.networks.updatePolicy in project p-1; nor compute.instances.setTags of instance gke-a",
            ),
        ),
    ];
    for (rights, expected) in cases {
        let world = gke();
        let rights: BTreeSet<String> = rights.iter().map(|right| (*right).to_owned()).collect();
        world.cloud.0.lock().unwrap().rights = Some(rights);
        let outcome = world.reach(&gateways(1), &settings(Some("east-x1"))).await;
        match (outcome, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                let text = shown(&error);
                assert!(
                    text.starts_with(&format!("nothing was changed: the credentials may not {expected};")),
                    "{text}"
                );
                assert_eq!(world.changes(), Vec::<String>::new());
            }
            (outcome, _) => panic!("{expected:?}: {outcome:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_had_is_refused_with_what_to_give() {
    let lonely = || {
        let apart = Machine::worker("gke-d", "us-east1-d", &["other"]);
        let world = gke();
        world.put(&apart);
        world
    };
    let bare = || World::new(false, &[]);
    let with = |change: fn(&mut Settings)| {
        let mut settings = settings(Some("east-x1"));
        change(&mut settings);
        settings
    };
    let cases = [
        (gke(), settings(None), "does not show its infrastructure ID; give --infra-id: a short name"),
        (gke(), settings(Some("East/..")), "`East/..` is no infrastructure ID"),
        (gke(), settings(Some("a-name-that-is-far-too-long-for-a-rule")), "is no infrastructure ID"),
        (lonely(), settings(Some("east-x1")), "no network tag in common"),
        (bare(), settings(Some("east-x1")), "show no VPC network"),
        (
            gke(),
            with(|it| it.network = Some("projects/x/y".to_owned())),
            "`projects/x/y` is no name of a VPC",
        ),
        (gke(), with(|it| it.project = Some("../x".to_owned())), "give --project-id"),
    ];
    for (world, settings, expected) in cases {
        let text = shown(&world.reach(&gateways(1), &settings).await.unwrap_err());
        assert!(text.contains(expected), "{text}: {expected}");
        assert_eq!(world.changes(), Vec::<String>::new());
    }
    // Of a cluster that has no nodes any more, the rules go nevertheless.
    let world = bare();
    world.put_upstream(false);
    let settings = with(|it| it.project = Some("p-1".to_owned()));
    assert_eq!(world.reach(&Goal::CleanUp, &settings).await.unwrap().0, 2);
}

#[tokio::test(start_paused = true)]
async fn openshift_without_workers_shows_no_image() {
    let world = openshift();
    world.cluster.objects.lock().unwrap().retain(|path, _| !path.contains("machinesets"));
    let text = shown(&world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap_err());
    assert!(text.starts_with("no MachineSet of workers shows the image"), "{text}");
    assert_eq!(world.reach(&gateways(0), &settings(Some("east-x1"))).await.unwrap().0, 3);
}

#[tokio::test(start_paused = true)]
async fn addresses_in_the_settings_are_used() {
    let world = gke();
    let mut settings = settings(Some("east-x1"));
    settings.endpoint = Some("https://compute.example".to_owned());
    let error = world.reach(&gateways(1), &settings).await.unwrap_err();
    // The played cloud has nothing at another address.
    assert!(shown(&error).contains("404"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn lists_end() {
    // Pages without items and with the same token again.
    let world = gke();
    world.cloud.0.lock().unwrap().page = 0;
    let text = shown(&world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap_err());
    assert!(text.contains("show no VPC network"), "{text}");
    world.cloud.0.lock().unwrap().is_endless = true;
    let text = shown(&world.reach(&gateways(1), &settings(Some("east-x1"))).await.unwrap_err());
    assert!(text.contains("the list has more than 1000 pages"), "{text}");
}
