use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::change::Change;
use crate::driver::kubeproxy::KubeProxy;
use crate::observed::Observed;
use crate::port::{PortError, Query};
use crate::state::{Endpoint, Node};

/// A host that has what it is given, and notes when it was changed.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<(Instant, String)>>>);

impl Host for Recorder {
    async fn observe(&self, _: &Query) -> Result<Observed, PortError> {
        Ok(Observed::default())
    }

    async fn apply(&self, change: &Change) -> Result<(), PortError> {
        self.0.borrow_mut().push((Instant::now(), change.to_string()));
        Ok(())
    }
}

fn view(clusters: usize) -> ClusterView {
    let endpoints = (0..clusters).map(|number| {
        let mut endpoint = Endpoint::new("cable", &format!("cluster-{number}"), "gw");
        endpoint.subnets = vec![format!("10.{number}.0.0/16").parse().unwrap()];
        endpoint
    });
    ClusterView { endpoints: endpoints.collect(), ..ClusterView::default() }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_store_after_a_quiet_time_is_applied_at_once() {
    let host = Recorder::default();
    let node = Node { cluster: "own".into(), hostname: "worker".into(), ..Node::default() };
    let mut reconciler = Reconciler::new(host.clone(), &KubeProxy, node);
    let (views, seen) = watch::channel(Some(view(1)));
    let (reports, _) = watch::channel(Report::default());
    let script = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let changed = Instant::now();
        views.send_replace(Some(view(2)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        changed
    };
    let (changed, ()) = {
        let (done, stop) = tokio::sync::oneshot::channel();
        let script = async {
            let changed = script.await;
            done.send(()).unwrap();
            changed
        };
        tokio::join!(script, run(&mut reconciler, seen, &reports, async { stop.await.unwrap() }))
    };
    let applied = host.0.borrow();
    let routed = applied.iter().find(|(_, change)| change.contains("10.1.0.0/16")).unwrap();
    assert!(routed.0 - changed <= Duration::from_millis(5), "{:?}", routed.0 - changed);
}
