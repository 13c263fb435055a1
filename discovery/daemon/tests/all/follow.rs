//! Objects of a directory become answers.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use trieste_control::api::Object;
use trieste_control::store::{DirStore, Store as _};
use trieste_discovery::dns::follow::{Progress, follow};
use trieste_dns::{Label, Records, Writer};

use crate::fixture::{WEB, ask, global_slice, import, own_slice, slice};

const NXDOMAIN: u8 = 3;
const SERVFAIL: u8 = 2;

/// A store that is followed for cluster `west`.
struct Bed {
    store: DirStore,
    records: Records,
    progress: watch::Receiver<Progress>,
    _directory: tempfile::TempDir,
}

impl Bed {
    /// Begins to follow a store with some objects.
    async fn new(objects: Vec<Object>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = DirStore::open(directory.path().join("store")).unwrap();
        for object in objects {
            store.create(object).await.unwrap();
        }
        let west = Label::new("west").unwrap();
        let (writer, records) = Writer::new(west.clone());
        let (sender, progress) = watch::channel(Progress::default());
        let followed = store.clone();
        tokio::spawn(async move { follow(&followed, "", west, writer, &sender).await });
        Self { store, records, progress, _directory: directory }
    }

    /// Waits until a name has an answer.
    async fn becomes(&self, name: &str, code: u8, addresses: &[&str]) {
        let wait = async {
            while ask(&self.records, name) != (code, addresses.iter().map(ToString::to_string).collect()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{name}: {:?} and not {addresses:?}", ask(&self.records, name));
    }
}

#[tokio::test]
async fn objects_become_answers_and_their_removal_takes_them_back() {
    let bed = Bed::new(vec![import("Headless"), slice("a", "east", &["10.2.0.1"])]).await;
    bed.becomes(WEB, 0, &["10.2.0.1"]).await;
    bed.becomes("other.shop.svc.clusterset.local", NXDOMAIN, &[]).await;
    bed.store.create(slice("b", "south", &["10.3.0.1", "10.3.0.2"])).await.unwrap();
    bed.becomes(WEB, 0, &["10.2.0.1", "10.3.0.1", "10.3.0.2"]).await;
    bed.store.delete(&slice("a", "east", &[]).key()).await.unwrap();
    bed.becomes(WEB, 0, &["10.3.0.1", "10.3.0.2"]).await;
    bed.store.delete(&import("").key()).await.unwrap();
    bed.becomes(WEB, NXDOMAIN, &[]).await;
}

#[tokio::test]
async fn nothing_is_denied_before_all_has_been_read() {
    let (_, records) = Writer::new(Label::new("west").unwrap());
    assert_eq!(ask(&records, WEB), (SERVFAIL, Vec::new()));
    let mut bed = Bed::new(Vec::new()).await;
    bed.becomes(WEB, NXDOMAIN, &[]).await;
    let done = bed.progress.wait_for(|progress| progress.missing.is_empty() && progress.applied > 0);
    assert!(timeout(Duration::from_secs(20), done).await.unwrap().unwrap().errors.is_empty());
    assert!(bed.records.is_synced());
}

#[tokio::test]
async fn the_own_pods_are_answered_by_their_own_addresses_where_others_have_global_ones() {
    let objects = vec![
        import("Headless"),
        global_slice("a", "west", &["242.0.0.1"]),
        global_slice("b", "east", &["242.1.0.1"]),
        own_slice("web-x", "web", &["10.1.0.1", "10.1.0.2"]),
        own_slice("other-x", "other", &["10.1.0.9"]),
    ];
    let bed = Bed::new(objects).await;
    bed.becomes(WEB, 0, &["10.1.0.1", "10.1.0.2", "242.1.0.1"]).await;
    let mut pods = bed.store.get(&own_slice("web-x", "", &[]).key()).await.unwrap().unwrap();
    pods.body.insert("endpoints".to_owned(), serde_json::json!([{"addresses": ["10.1.0.3"]}]));
    bed.store.update(pods).await.unwrap();
    bed.becomes(WEB, 0, &["10.1.0.3", "242.1.0.1"]).await;
    bed.store.delete(&global_slice("a", "", &[]).key()).await.unwrap();
    bed.becomes(WEB, 0, &["242.1.0.1"]).await;
}
