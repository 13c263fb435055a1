use super::*;

fn zone_endpoints(name: &str, address: &str) -> ZoneEndpoints {
    let ports = vec!["south".to_owned(), "north".to_owned()];
    ZoneEndpoints { name: name.to_owned(), addresses: vec![address.parse().unwrap()], ports }
}

fn both(observed: &Observed) -> [String; 2] {
    [Database::Northbound, Database::Southbound].map(|database| match discover(observed, database) {
        Ok(address) => address.to_string(),
        Err(error) => format!("error: {error}"),
    })
}

#[test]
fn openshift_has_a_service_or_a_zone_per_node() {
    let mut observed = Observed { is_openshift: true, has_database_service: true, ..Observed::default() };
    let host = "ovnkube-db.openshift-ovn-kubernetes.svc.cluster.local";
    assert_eq!(both(&observed), [format!("ssl:{host}:9641"), format!("ssl:{host}:9642")]);
    observed.has_database_service = false;
    observed.sockets = ["nb", "sb"].map(|database| format!("/var/run/ovn-ic/ovn{database}_db.sock")).to_vec();
    assert_eq!(both(&observed), ["unix:/var/run/ovn-ic/ovnnb_db.sock", "unix:/var/run/ovn-ic/ovnsb_db.sock"]);
}

#[test]
fn kinds_pod_says_whether_it_wants_tls() {
    for (ssl_enable, kind) in [(None, "tcp"), (Some("no"), "tcp"), (Some("NO"), "tcp"), (Some("yes"), "ssl")]
    {
        let pod =
            DatabasePod { namespace: "ovn-kubernetes".to_owned(), ssl_enable: ssl_enable.map(str::to_owned) };
        let mut observed =
            Observed { database_pod: Some(pod), has_database_service: true, ..Observed::default() };
        let host = "ovnkube-db.ovn-kubernetes";
        assert_eq!(both(&observed), [format!("{kind}:{host}:6641"), format!("{kind}:{host}:6642")]);
        observed.has_database_service = false;
        assert!(both(&observed)[0].starts_with("error: "));
    }
}

#[test]
fn endpoints_are_those_of_the_nodes_zone() {
    let endpoints = vec![
        zone_endpoints("ovnkube-ab", "10.0.0.2"),
        zone_endpoints("ovnkube-a", "10.0.0.1"),
        zone_endpoints("ovnkube-c", "fd00::3"),
    ];
    let mut observed = Observed { endpoints, zone: Some("a".to_owned()), ..Observed::default() };
    // "ovnkube-a" and "ovnkube-ab" both contain the zone's name.
    assert_eq!(both(&observed)[0], "tcp:10.0.0.1:6641");
    observed.zone = Some("c".to_owned());
    assert_eq!(both(&observed)[0], "tcp:[fd00::3]:6641");
    for zone in [Some("d".to_owned()), Some(String::new()), None] {
        observed.zone = zone;
        assert!(both(&observed)[0].starts_with("error: no endpoint"), "{:?}", both(&observed));
    }
}

#[test]
fn a_zones_own_socket_is_taken_where_there_is_nothing_else() {
    let mut observed = Observed::default();
    assert!(both(&observed)[0].contains("/var/run/openvswitch/ovnnb_db.sock, /var/run/ovn-ic/ovnnb_db.sock"));
    observed.sockets = vec!["/var/run/ovn-ic/ovnnb_db.sock".to_owned()];
    assert_eq!(both(&observed)[0], "unix:/var/run/ovn-ic/ovnnb_db.sock");
    observed.sockets.push("/var/run/openvswitch/ovnnb_db.sock".to_owned());
    assert_eq!(both(&observed)[0], "unix:/var/run/openvswitch/ovnnb_db.sock");
    // Endpoints of something else serve no database.
    observed.endpoints =
        vec![ZoneEndpoints { ports: vec!["https".to_owned()], ..zone_endpoints("x", "10.0.0.1") }];
    assert_eq!(both(&observed)[0], "unix:/var/run/openvswitch/ovnnb_db.sock");
}
