//! What a change costs in sets of several sizes, without the kernel: `--nocapture` shows the times.

use super::follow::members;
use super::*;
use crate::grace::Turnover;

#[tokio::test]
async fn a_change_concerns_its_own_networks_however_many_there_are() {
    for count in [10, 100, 300] {
        let mut reconciler = reconciler(Fake::new()).with_grace(Duration::ZERO);
        let (view, more) = (members(count), members(count + 1));
        reconciler.pass(&view).await.unwrap();
        reconciler.pass(&view).await.unwrap();
        let steps = [
            ("one more", more.clone(), (4, 0), 4),
            ("nothing new", more.clone(), (0, 0), 0),
            ("one changed", changed(&more), (1, 1), 2),
            ("one less", view, (0, 4), 4),
        ];
        for (name, view, (came, gone), destinations) in steps {
            let state = reconciler.surroundings(&view, &reconciler.host.observed.borrow());
            let memory = reconciler.memory.as_mut().unwrap();
            let began = Instant::now();
            let turnover = memory.follow(&state, &view).unwrap();
            let concerned = memory.close(&BTreeSet::new()).unwrap();
            println!("{count} members, {name}: desired after {:?}", began.elapsed());
            let Turnover { came: these, gone: those } = turnover;
            assert_eq!((these.len(), those.len(), concerned.len()), (came, gone, destinations), "{name}");
        }
    }
}

/// The set with one network of the last member moved.
fn changed(view: &ClusterView) -> ClusterView {
    let mut view = view.clone();
    let last = view.endpoints.last_mut().unwrap();
    last.subnets[3] = "100.127.255.0/24".parse().unwrap();
    view
}
