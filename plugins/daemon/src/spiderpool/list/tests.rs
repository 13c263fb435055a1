//! The laws of every reconciler, for the entries of one list.

use proptest::prelude::*;
use trieste_control::api::ObjectMeta;
use trieste_reconcile::Host;
use trieste_reconcile::laws::{Model, check};

use super::*;

/// An object with a list.
#[derive(Debug, Clone)]
struct List(Object);

impl Host for List {
    type Wanted = Vec<IpNet>;
    type Observed = Object;
    type Change = Object;
    type Error = String;

    fn observe(&self) -> Result<Object, String> {
        Ok(self.0.clone())
    }

    fn plan(wanted: &Vec<IpNet>, observed: &Object) -> Vec<Object> {
        corrected(observed, wanted, Timestamp::UNIX_EPOCH).unwrap().object.into_iter().collect()
    }

    fn apply(&mut self, change: &Object) -> Result<(), String> {
        self.0 = change.clone();
        Ok(())
    }
}

impl Model for List {
    type Foreign = Vec<String>;

    fn foreign(&self) -> Vec<String> {
        let Recorded::Ours(record) = recorded(&self.0) else { panic!("{:?}", self.0) };
        let is_ours = |text: &String| entry(text).is_some_and(|network| record.0.contains_key(&network));
        entries(&self.0).into_iter().filter(|text| !is_ours(text)).collect()
    }

    fn ours(&self) -> Vec<String> {
        has_ours(&self.0).then(|| format!("{:?}", self.0)).into_iter().collect()
    }
}

const NETWORKS: [&str; 5] = ["10.2.0.0/16", "10.2.4.0/24", "10.3.0.0/16", "192.168.0.0/16", "fd00:2::/48"];

fn some() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(NETWORKS.to_vec(), 0..4).prop_shuffle()
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

proptest! {
    #[test]
    fn plugin_spiderpool_lists_keep_the_laws_of_every_reconciler(
        there in some(), ours in some(), wanted in some(), is_config in any::<bool>(), number in any::<usize>(),
    ) {
        let (kind, namespace) = match is_config {
            true => (Kind::SpiderMultusConfig, "kube-system"),
            false => (Kind::SpiderCoordinator, ""),
        };
        let mut object = Object::new(kind, ObjectMeta::new(namespace, "one"));
        let list = json!({"mode": "auto", "hijackCIDR": there});
        let spec = if is_config { json!({"coordinator": list}) } else { list };
        object.body.insert("spec".to_owned(), spec);
        let record = Record(networks(&ours).into_iter().map(|net| (net, Timestamp::UNIX_EPOCH)).collect());
        object.metadata.annotations.extend(record.value().map(|value| (ANNOTATION.to_owned(), value)));
        prop_assert_eq!(check(&List(object), &networks(&wanted), number), Ok(()));
    }
}
