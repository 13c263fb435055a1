//! Several gateways of a cluster that tell of themselves on real API servers, with the rights that a member's account has on
//! the broker.

use std::time::{Duration, Instant};

use trieste_control::members::conformance::{
    BROKER, Gateway, LOCAL, config, names, publish_to_one_another, share_the_ports,
};
use trieste_control::members::{Shutdown, paths_namespace};
use trieste_control::store::KubeStore;
use trieste_control::store::kube::{Access, ServerSettings};
use trieste_tests::guard::root_test;
use trieste_tests::kubernetes::{ApiServer, Faults, Mode, objects, rbac};
use trieste_tests::lab::Lab;

/// Cluster a with its own server; cluster b on that of the broker.
struct Bed {
    a: KubeStore,
    b: KubeStore,
    /// Before the members' connections to the broker, and not before cluster b's own.
    faults: Faults,
    own: ApiServer,
    broker: ApiServer,
    _direct: [Faults; 2],
    _lab: Lab,
}

impl Bed {
    fn new() -> Self {
        let lab = Lab::new().unwrap();
        let (own, broker) = (ApiServer::alone(&lab, "a").unwrap(), ApiServer::alone(&lab, "broker").unwrap());
        for server in [&own, &broker] {
            objects::install_definitions(server.client()).unwrap();
            for namespace in [LOCAL, &paths_namespace(LOCAL)] {
                server.client().create_namespace(namespace).unwrap();
            }
        }
        rbac::prepare_broker(broker.client()).unwrap();
        for member in ["a", "b"] {
            rbac::join_broker(broker.client(), member).unwrap();
        }
        let direct = [&own, &broker].map(|server| Faults::on_loopback(server).unwrap());
        let [a, b] =
            direct.each_ref().map(|way| KubeStore::new(Access::kubeconfig(way.admin().unwrap(), None)));
        let faults = Faults::on_loopback(&broker).unwrap();
        Self { a, b, faults, own, broker, _direct: direct, _lab: lab }
    }

    /// The broker as a member's account sees it.
    fn member(&self, id: &str) -> KubeStore {
        let token = self.broker.token(BROKER, &rbac::cluster_account(id), None).unwrap();
        let settings = ServerSettings {
            server: self.faults.server(),
            token: Some(token),
            ca_file: Some(self.broker.ca_file()),
            ..ServerSettings::default()
        };
        KubeStore::new(Access::server(settings).unwrap())
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn gateways_publish_to_one_another_and_share_ports_as_on_any_store() {
    let Some(_turn) = root_test("gateways_publish_to_one_another_and_share_ports_as_on_any_store") else {
        return;
    };
    let bed = Bed::new();
    let brokers = ["a", "b"].map(|id| bed.member(id));
    run(async {
        publish_to_one_another([bed.a.clone(), bed.b.clone()], brokers.clone()).await;
        // Of the gateways before, one has kept its shares: nobody may take them for a day.
        for lease in 0..8 {
            let lease = format!(
                "/apis/coordination.k8s.io/v1/namespaces/{}/leases/trieste-nat-slot-{lease}",
                paths_namespace(LOCAL)
            );
            bed.own.client().delete(&lease).unwrap();
        }
        share_the_ports(&bed.a, &brokers[0]).await;
    });
}

#[test]
fn a_broker_that_is_away_changes_nothing_and_is_caught_up_with() {
    let Some(_turn) = root_test("a_broker_that_is_away_changes_nothing_and_is_caught_up_with") else {
        return;
    };
    let mut bed = Bed::new();
    let brokers = ["a", "b"].map(|id| bed.member(id));
    for (round, mode) in [(1u8, Mode::Refuse), (2, Mode::Hang)] {
        let address = format!("203.0.113.{round}");
        let start = |number| Gateway::start(&bed.a, brokers[0].clone(), &config("a", number), number);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _inside = runtime.enter();
        let (first, second) = (start(1), start(2));
        let far = Gateway::start(&bed.b, brokers[1].clone(), &config("b", 4), 4);
        let whole =
            |gateway: &Gateway, siblings, remote| {
                runtime.block_on(gateway.until("it sees all", |seen| {
                    (seen.siblings.len(), seen.remote.len()) == (siblings, remote)
                }))
            };
        let before = whole(&first, 1, 1);
        whole(&far, 0, 2);

        bed.faults.set(mode).unwrap();
        bed.faults.cut();
        // One changes, one starts: at home that is told, the others go on with what they know.
        far.endpoint.send_modify(|spec| spec.public_ip.clone_from(&address));
        let third = Gateway::start(&bed.a, brokers[0].clone(), &config("a", 3), 3);
        let seen = whole(&third, 2, 0);
        assert_eq!(names(&seen.siblings), ["a-gw1", "a-gw2"]);
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(first.members().remote, before.remote);
        assert_eq!(far.members().remote.len(), 2);

        bed.faults.set(Mode::Pass).unwrap();
        let back = Instant::now();
        let has_address = |seen: &trieste_control::members::Members| {
            seen.remote.iter().any(|member| member.endpoint.spec.public_ip == address)
        };
        for gateway in [&first, &second, &third] {
            runtime.block_on(gateway.until("the change is known", has_address));
        }
        whole(&far, 0, 3);
        eprintln!("{mode:?}: all know all {:.1?} after the broker was back", back.elapsed());
        for gateway in [first, second, third, far] {
            runtime.block_on(gateway.handle.stop(Shutdown::Restart, Duration::from_secs(10)));
        }
    }
}
