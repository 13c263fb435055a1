//! The mode of Calico's default pool on IBM's ROKS, and back.

use super::*;

const MANAGED: &str = "submariner-managed";
const PREVIOUS: &str = "submariner-prev-ipipmode";

/// Returns the gateways' Service, with an annotation or without.
pub(super) fn service(annotation: Option<(&str, &str)>) -> Object {
    let mut service = Object::new(Kind::Service, ObjectMeta::new(NAMESPACE, roks::GATEWAY_SERVICE));
    let annotations = annotation.map(|(key, value)| (key.to_owned(), value.to_owned()));
    service.metadata.annotations.extend(annotations);
    service
}

/// Returns the gateways' Service as it is on ROKS.
pub(super) fn ibm_service() -> Object {
    service(Some(("service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type", "public")))
}

/// Returns the default pool with modes, as far as they are given.
pub(super) fn default_pool(ipip: Option<&str>, vxlan: Option<&str>) -> Object {
    let mut pool = foreign(roks::DEFAULT_POOL, "10.1.0.0/16", true);
    let spec = pool.body["spec"].as_object_mut().unwrap();
    spec.remove("vxlanMode");
    for (field, value) in [("ipipMode", ipip), ("vxlanMode", vxlan)] {
        spec.extend(value.map(|value| (field.to_owned(), json!(value))));
    }
    pool
}

/// Returns the default pool as upstream leaves it.
fn managed(before: &str, now: &str) -> Object {
    let mut pool = default_pool(Some(now), None);
    pool.metadata.labels.insert(MANAGED.to_owned(), "true".to_owned());
    pool.metadata.annotations.insert(PREVIOUS.to_owned(), before.to_owned());
    pool
}

fn pool(model: &Model) -> &Object {
    &model.pools[roks::DEFAULT_POOL]
}

/// Returns what an uninstallation leaves of a pool.
fn uninstalled(pool: &Object) -> Object {
    let mut model = Model::new(Wish::Nothing, std::slice::from_ref(pool));
    model.list(vec![route("b", &["10.2.0.0/16"])]);
    assert_eq!(model.list(Vec::new()), 0, "the second pass");
    model.pools[roks::DEFAULT_POOL].clone()
}

#[test]
fn plugin_calico_a_cluster_is_one_of_roks_by_the_annotation_of_the_gateways_service() {
    let annotation = "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type";
    let mut other = ibm_service();
    other.metadata.name = "another".to_owned();
    for (services, is_roks) in [
        (Vec::new(), false),
        (vec![service(None)], false),
        (vec![service(Some((annotation, "")))], false),
        (vec![service(Some(("service.beta.kubernetes.io/aws-load-balancer-type", "nlb")))], false),
        (vec![other.clone()], false),
        (vec![other, service(None)], false),
        (vec![service(None), ibm_service()], true),
        (vec![service(Some((annotation, "private")))], true),
    ] {
        let before = default_pool(Some("CrossSubnet"), None);
        let mut model = Model::new(Wish::Everything, std::slice::from_ref(&before));
        let remote = vec![route("b", &["10.2.0.0/16"])];
        assert_eq!(model.list(remote), 1, "the remote pool alone, before Services are listed");
        let writes = model.see(Kind::Service, StoreEvent::Listed(services.clone()));
        assert_eq!(writes, usize::from(is_roks), "{services:?}");
        let expected = if is_roks { managed("CrossSubnet", "Always") } else { before };
        assert_eq!(pool(&model), &expected, "{services:?}");
    }
}

#[test]
fn plugin_calico_every_mode_becomes_always_on_roks_and_is_restored() {
    for (mode, vxlan, expected) in [
        (Some("CrossSubnet"), None, Some(managed("CrossSubnet", "Always"))),
        (Some("Never"), None, Some(managed("Never", "Always"))),
        (None, None, Some(managed("", "Always"))),
        // It is so by itself, and stays so.
        (Some("Always"), None, None),
        (Some("Always"), Some("Never"), None),
        // Calico would not take both.
        (Some("Never"), Some("CrossSubnet"), None),
        (None, Some("Always"), None),
    ] {
        let before = default_pool(mode, vxlan);
        let mut model = Model::new(Wish::Everything, std::slice::from_ref(&before));
        model.list(vec![route("b", &["10.2.0.0/16"])]);
        let writes = model.see(Kind::Service, StoreEvent::Listed(vec![ibm_service()]));
        assert_eq!(writes, usize::from(expected.is_some()), "{mode:?} {vxlan:?}");
        assert_eq!(model.see(Kind::Service, StoreEvent::Listed(vec![ibm_service()])), 0, "the second pass");
        assert_eq!(pool(&model), &expected.unwrap_or_else(|| before.clone()), "{mode:?} {vxlan:?}");
        let problem = model.controller.problems.get(roks::DEFAULT_POOL);
        let is_blocked = vxlan.is_some_and(|vxlan| vxlan != "Never");
        assert_eq!(problem.is_some_and(|problem| problem.contains("vxlanMode")), is_blocked, "{problem:?}");
        assert_eq!(uninstalled(pool(&model)), before, "{mode:?} {vxlan:?}");
    }
    // Calico's operator would take it back.
    let mut kept = default_pool(Some("Never"), None);
    kept.metadata.labels.insert("app.kubernetes.io/managed-by".to_owned(), "tigera-operator".to_owned());
    let mut model = Model::new(Wish::Everything, std::slice::from_ref(&kept));
    model.list(vec![route("b", &["10.2.0.0/16"])]);
    assert_eq!(model.see(Kind::Service, StoreEvent::Listed(vec![ibm_service()])), 0);
    assert!(model.controller.problems[roks::DEFAULT_POOL].contains("Installation"));
    // Without that pool nothing is made.
    let mut model = Model::new(Wish::Everything, &[]);
    model.list(Vec::new());
    assert_eq!(model.see(Kind::Service, StoreEvent::Listed(vec![ibm_service()])), 0);
}

#[test]
fn plugin_calico_the_mode_follows_the_service_when_it_comes_and_what_somebody_changes_and_stays_when_it_goes()
{
    let mut model = Model::new(Wish::Everything, &[default_pool(Some("Never"), None)]);
    model.list(Vec::new());
    assert_eq!(model.see(Kind::Service, StoreEvent::Listed(vec![ibm_service()])), 0, "no remote network");
    let routes = |networks| StoreEvent::Applied(route("b", networks));
    assert_eq!(model.see(Kind::GatewayRoute, routes(&["10.2.0.0/16"])), 2, "the remote pool and the mode");
    let mut model = Model::new(Wish::Everything, &[default_pool(Some("Never"), None)]);
    model.list(vec![route("b", &["10.2.0.0/16"])]);
    assert_eq!(model.see(Kind::Service, StoreEvent::Listed(Vec::new())), 0);
    assert_eq!(model.see(Kind::Service, StoreEvent::Applied(ibm_service())), 1);
    // The mode that is restored is the one that somebody has set last.
    let by_hand = managed("Never", "CrossSubnet");
    assert_eq!(model.see(Kind::IpPool, StoreEvent::Applied(by_hand.clone())), 1);
    assert_eq!(pool(&model), &managed("CrossSubnet", "Always"));
    assert_eq!(model.see(Kind::Service, StoreEvent::Deleted(ibm_service())), 0);
    assert_eq!(
        pool(&model),
        &managed("CrossSubnet", "Always"),
        "a Service that is made anew disturbs no pod"
    );
    assert_eq!(model.see(Kind::IpPool, StoreEvent::Applied(by_hand.clone())), 0, "no ROKS any more");
    assert_eq!(uninstalled(&by_hand), default_pool(Some("CrossSubnet"), None), "set while no worker ran");
    assert_eq!(uninstalled(&managed("x", "Always")), default_pool(Some("Always"), None), "no mode");
    let others = default_pool(Some("Always"), None);
    assert_eq!(uninstalled(&others), others);
}

#[test]
fn plugin_calico_where_services_may_not_be_read_pools_are_kept_all_the_same() {
    let mut model = Model::new(Wish::Everything, &[default_pool(Some("Never"), None)]);
    let error = || StoreError::Forbidden {
        operation: "list Services".to_owned(),
        source: std::io::ErrorKind::PermissionDenied.into(),
    };
    let watch = Watch::new(0, Kind::Service, NAMESPACE);
    assert!(model.controller.does_without(&watch, &error()) && model.controller.watches().contains(&watch));
    model.see(Kind::Service, StoreEvent::Unavailable(error()));
    assert_eq!(model.list(vec![route("b", &["10.2.0.0/16"])]), 1);
    assert!(model.controller.unread_services.as_ref().is_some_and(|reason| reason.contains("may not")));
    assert_eq!(model.see(Kind::Service, StoreEvent::Listed(vec![ibm_service()])), 1);
    assert_eq!(model.controller.unread_services, None);
    // An uninstallation needs none.
    let uninstalling = PoolsController::new(NAMESPACE, Wish::Nothing);
    assert!(!uninstalling.watches().contains(&watch));
}
