//! Every form of a name, and every type of record.

use domain::base::Rtype;
use domain::base::iana::Rcode;
use trieste_dns::{Change, Import, Protocol, ServiceKind, ServiceName, Slice};

use crate::fixture::{Server, ips, label, name, port};

const ZONE: &str = "clusterset.local";

/// `web` with virtual IPs in west (ours) and east, headless `db` in east and south, `vip` with clusterset IPs.
fn server() -> Server {
    let mut server = Server::new();
    server.import("web");
    server.export("web", "west", &["10.1.0.1", "fd01::1"], true);
    server.export("web", "east", &["10.2.0.1"], true);
    server.import_headless("db");
    server.export_hosts("db", "east", &[("db-0", "10.2.1.1"), ("db-0", "fd02::1"), ("db-1", "10.2.1.2")]);
    server.export_hosts("db", "south", &[("db-0", "10.3.1.1"), ("", "10.3.1.9")]);
    let vip = Import {
        ips: ips(&["243.0.1.2", "fd00:243::7"]),
        ports: vec![port("http", Protocol::Tcp, 80)],
        ..Import::default()
    };
    server.apply(Change::Import(name("vip"), vip));
    server.export("vip", "east", &["10.2.0.9"], true);
    server
}

#[test]
fn each_name_has_its_addresses() {
    let server = server();
    let table: &[(&str, Rtype, &[&str])] = &[
        ("web.shop.svc", Rtype::A, &["10.1.0.1"]),
        ("web.shop.svc", Rtype::AAAA, &["fd01::1"]),
        ("west.web.shop.svc", Rtype::A, &["10.1.0.1"]),
        ("east.web.shop.svc", Rtype::A, &["10.2.0.1"]),
        ("east.web.shop.svc", Rtype::AAAA, &[]),
        ("db.shop.svc", Rtype::A, &["10.2.1.1", "10.2.1.2", "10.3.1.1", "10.3.1.9"]),
        ("db.shop.svc", Rtype::AAAA, &["fd02::1"]),
        ("east.db.shop.svc", Rtype::A, &["10.2.1.1", "10.2.1.2"]),
        ("db-0.east.db.shop.svc", Rtype::A, &["10.2.1.1"]),
        ("db-0.east.db.shop.svc", Rtype::AAAA, &["fd02::1"]),
        ("db-0.south.db.shop.svc", Rtype::A, &["10.3.1.1"]),
        ("vip.shop.svc", Rtype::A, &["243.0.1.2"]),
        ("vip.shop.svc", Rtype::AAAA, &["fd00:243::7"]),
        ("east.vip.shop.svc", Rtype::A, &["10.2.0.9"]),
        ("ns.dns", Rtype::A, &["10.96.0.53"]),
        ("ns.dns", Rtype::AAAA, &[]),
        ("dns-version", Rtype::TXT, &["\"1.0.0\""]),
        ("web.shop.svc", Rtype::TXT, &[]),
        ("web.shop.svc", Rtype::MX, &[]),
    ];
    for (question, rtype, expected) in table {
        for zone in [ZONE, "example.org"] {
            let question = format!("{question}.{zone}");
            assert_eq!(server.data(&question, *rtype), *expected, "{question} {rtype}");
        }
    }
}

#[test]
fn each_name_exists_or_not() {
    let server = server();
    let table = [
        ("", true),
        ("svc", true),
        ("shop.svc", true),
        ("empty.svc", false),
        ("pod", false),
        ("dns", true),
        ("x.dns", false),
        ("nothing.shop.svc", false),
        ("north.web.shop.svc", false),
        ("_tcp.web.shop.svc", true),
        ("tcp.web.shop.svc", true),
        ("_http.web.shop.svc", false),
        ("_http._tcp.web.shop.svc", true),
        ("_http._quic.web.shop.svc", false),
        ("_tcp.east.web.shop.svc", true),
        ("_http._tcp.east.web.shop.svc", true),
        ("_http._tcp.north.web.shop.svc", false),
        ("db-9.east.db.shop.svc", false),
        ("a.b.c.d.web.shop.svc", false),
        ("a.db-0.east.db.shop.svc", false),
    ];
    for (question, exists) in table {
        let question = format!("{question}.{ZONE}").trim_start_matches('.').to_owned();
        // Of a type that none of them has.
        let reply = server.ask(&question, Rtype::MX);
        let expected = if exists { Rcode::NOERROR } else { Rcode::NXDOMAIN };
        assert_eq!(reply.rcode, expected, "{question}");
        assert!(reply.answers.is_empty() && reply.is_authoritative, "{reply:?}");
        let serial = server.records.serial();
        let soa = format!("{ZONE} 5 SOA ns.dns.{ZONE}. hostmaster.{ZONE}. {serial} 7200 1800 86400 5");
        assert_eq!(reply.authorities, [soa], "{question}");
    }
}

#[test]
fn ports_of_a_service_have_srv_records() {
    let server = server();
    let web = format!("web.shop.svc.{ZONE}");
    let table: &[(&str, &[&str])] = &[
        ("_http._tcp.web.shop.svc", &["0 50 80 web.shop.svc.clusterset.local"]),
        ("http.tcp.web.shop.svc", &["0 50 80 web.shop.svc.clusterset.local"]),
        ("_HTTP._Tcp.web.shop.svc", &["0 50 80 web.shop.svc.clusterset.local"]),
        ("_http._udp.web.shop.svc", &[]),
        ("_dns._udp.web.shop.svc", &["0 50 53 web.shop.svc.clusterset.local"]),
        ("_http._tcp.east.web.shop.svc", &["0 50 80 east.web.shop.svc.clusterset.local"]),
        ("_http._tcp.vip.shop.svc", &["0 50 80 vip.shop.svc.clusterset.local"]),
        ("_dns._udp.vip.shop.svc", &[]),
        (
            "_http._tcp.db.shop.svc",
            &[
                "0 50 80 db-0.east.db.shop.svc.clusterset.local",
                "0 50 80 db-0.south.db.shop.svc.clusterset.local",
                "0 50 80 db-1.east.db.shop.svc.clusterset.local",
                "0 50 80 south.db.shop.svc.clusterset.local",
            ],
        ),
        (
            "_http._tcp.east.db.shop.svc",
            &[
                "0 50 80 db-0.east.db.shop.svc.clusterset.local",
                "0 50 80 db-1.east.db.shop.svc.clusterset.local",
            ],
        ),
        (
            "db-1.east.db.shop.svc",
            &[
                "0 50 53 db-1.east.db.shop.svc.clusterset.local",
                "0 50 80 db-1.east.db.shop.svc.clusterset.local",
            ],
        ),
    ];
    for (question, expected) in table {
        let found = server.data(&format!("{question}.{ZONE}"), Rtype::SRV);
        assert_eq!(found, *expected, "{question}");
    }
    let reply = server.ask(&web, Rtype::SRV);
    assert_eq!(reply.answers.len(), 2, "a record for each port: {reply:?}");
    assert_eq!(
        reply.additional,
        [format!("{web} 5 A 10.1.0.1"), format!("{web} 5 AAAA fd01::1")],
        "what the records refer to"
    );
}

#[test]
fn tcp_and_udp_on_one_number_give_one_record() {
    let mut server = Server::new();
    server.import("dns");
    server.export("dns", "east", &["10.2.0.1"], true);
    let slice = Slice {
        endpoints: vec![trieste_dns::Endpoint { addresses: ips(&["10.2.0.1"]), host: None, is_ready: true }],
        ports: vec![
            port("dns", Protocol::Udp, 53),
            port("dns-tcp", Protocol::Tcp, 53),
            port("", Protocol::Tcp, 9),
        ],
        publishes_not_ready: false,
    };
    server.slice("dns", "east", slice);
    let target = "dns.shop.svc.clusterset.local";
    let found = server.data(target, Rtype::SRV);
    assert_eq!(found, [format!("0 50 53 {target}"), format!("0 50 9 {target}")]);
    assert_eq!(server.data(&format!("_dns-tcp._tcp.{target}"), Rtype::SRV), [format!("0 50 53 {target}")]);
}

#[test]
fn each_ready_host_and_named_port_of_a_headless_service_has_a_record_and_both_families() {
    let mut server = Server::new();
    server.import_headless("db");
    let host = |name: &str, addresses: &[&str], is_ready| trieste_dns::Endpoint {
        addresses: ips(addresses),
        host: Some(label(name)),
        is_ready,
    };
    let ports =
        vec![port("sql", Protocol::Tcp, 5432), port("admin", Protocol::Tcp, 81), port("", Protocol::Tcp, 9)];
    let endpoints = vec![
        host("db-0", &["10.2.1.1", "10.2.1.2", "fd02::1"], true),
        host("db-1", &["fd02::2"], true),
        host("db-2", &["10.2.1.3"], false),
    ];
    server.slice("db", "east", Slice { endpoints, ports, publishes_not_ready: false });
    let ask = |question: &str, rtype| server.data(&format!("{question}db.shop.svc.{ZONE}"), rtype);
    for (name, number) in [("sql", 5432), ("admin", 81)] {
        let target = |host: &str| format!("0 50 {number} {host}.east.db.shop.svc.{ZONE}");
        assert_eq!(ask(&format!("_{name}._tcp."), Rtype::SRV), [target("db-0"), target("db-1")]);
    }
    assert_eq!(ask("_._tcp.", Rtype::SRV), Vec::<String>::new(), "a port without a name has none");
    assert_eq!(ask("db-0.east.", Rtype::A), ["10.2.1.1", "10.2.1.2"], "one for each address");
    assert_eq!(
        (ask("db-0.east.", Rtype::AAAA), ask("db-1.east.", Rtype::A)),
        (vec!["fd02::1".into()], vec![])
    );
    assert_eq!(ask("", Rtype::AAAA), ["fd02::1", "fd02::2"]);
    assert_eq!(server.ask(&format!("db-2.east.db.shop.svc.{ZONE}"), Rtype::A).rcode, Rcode::NXDOMAIN);
}

#[test]
fn the_apex_has_its_authority() {
    let server = server();
    assert_eq!(server.data(ZONE, Rtype::NS), ["ns.dns.clusterset.local."]);
    let soa = server.ask("ClusterSet.LOCAL", Rtype::SOA);
    let serial = server.records.serial();
    assert_eq!(
        soa.answers,
        [format!(
            "ClusterSet.LOCAL 5 SOA ns.dns.ClusterSet.LOCAL. hostmaster.ClusterSet.LOCAL. {serial} 7200 1800 86400 5"
        )],
        "in the question's case"
    );
    assert!(soa.authorities.is_empty());
    assert_eq!(server.ask(ZONE, Rtype::A).authorities.len(), 1);
}

#[test]
fn clusterset_ips_have_names() {
    let mut server = server();
    let (four, six) = ("2.1.0.243.in-addr.arpa", format!("7.{}3.4.2.0.0.0.d.f.ip6.arpa", "0.".repeat(23)));
    for question in [four, &six] {
        assert_eq!(server.data(question, Rtype::PTR), ["vip.shop.svc.clusterset.local."]);
        assert!(server.ask(question, Rtype::A).answers.is_empty());
    }
    let absent = server.ask("3.1.0.243.in-addr.arpa", Rtype::PTR);
    assert_eq!(absent.rcode, Rcode::NXDOMAIN);
    assert!(absent.authorities[0].starts_with("1.0.243.in-addr.arpa 5 SOA "), "{absent:?}");
    assert_eq!(server.data("1.0.243.in-addr.arpa", Rtype::NS), ["ns.dns.clusterset.local."]);
    assert_eq!(server.ask("1.0.10.in-addr.arpa", Rtype::PTR).rcode, Rcode::REFUSED);
    assert_eq!(server.ask("x.1.0.243.in-addr.arpa", Rtype::PTR).rcode, Rcode::NXDOMAIN);

    server.apply(Change::Import(name("vip"), Import { ips: ips(&["243.0.1.3"]), ..Import::default() }));
    assert_eq!(server.ask(four, Rtype::PTR).rcode, Rcode::NXDOMAIN);
    assert_eq!(server.data("3.1.0.243.in-addr.arpa", Rtype::PTR), ["vip.shop.svc.clusterset.local."]);
    assert_eq!(server.data(&format!("vip.shop.svc.{ZONE}"), Rtype::A), ["243.0.1.3"]);
    server.apply(Change::ImportRemoved(name("vip")));
    assert_eq!(server.ask("3.1.0.243.in-addr.arpa", Rtype::PTR).rcode, Rcode::NXDOMAIN);
}

#[test]
fn answers_keep_the_case_of_the_question() {
    let reply = server().ask("WeB.Shop.SVC.ClusterSet.local", Rtype::A);
    assert_eq!(reply.answers, ["WeB.Shop.SVC.ClusterSet.local 5 A 10.1.0.1"]);
}

#[test]
fn names_with_a_clusters_id_alone_can_be_off() {
    let mut server = server();
    server.settings.has_cluster_names = false;
    let ask = |question: &str| server.ask(&format!("{question}.{ZONE}"), Rtype::A).rcode;
    for question in ["east.web.shop.svc", "_http._tcp.east.web.shop.svc", "_http._tcp.east.db.shop.svc"] {
        assert_eq!(ask(question), Rcode::NXDOMAIN, "{question}");
    }
    assert_eq!(ask("_tcp.east.db.shop.svc"), Rcode::NXDOMAIN, "nothing is below");
    for rtype in [Rtype::A, Rtype::AAAA, Rtype::SRV] {
        let reply = server.ask(&format!("east.db.shop.svc.{ZONE}"), rtype);
        assert_eq!((reply.rcode, reply.answers.len()), (Rcode::NOERROR, 0), "hosts are below: {rtype}");
    }
    assert_eq!(server.data(&format!("db-0.east.db.shop.svc.{ZONE}"), Rtype::A), ["10.2.1.1"]);
    let found = server.data(&format!("_http._tcp.db.shop.svc.{ZONE}"), Rtype::SRV);
    assert!(found.contains(&"0 50 80 db-0.east.db.shop.svc.clusterset.local".to_owned()), "{found:?}");
}

#[test]
fn a_cluster_may_be_called_as_a_protocol_is() {
    let mut server = Server::new();
    server.import_headless("db");
    server.export_hosts("db", "tcp", &[("http", "10.9.0.1")]);
    assert_eq!(server.data("http.tcp.db.shop.svc.clusterset.local", Rtype::A), ["10.9.0.1"]);
    assert_eq!(server.data("tcp.db.shop.svc.clusterset.local", Rtype::A), ["10.9.0.1"]);
}

#[test]
fn the_same_name_in_two_namespaces_is_two_services() {
    let mut server = server();
    let other = ServiceName::parse("office", "web").unwrap();
    server.apply(Change::Import(other.clone(), Import { kind: ServiceKind::Headless, ..Import::default() }));
    assert_eq!(server.data(&format!("web.office.svc.{ZONE}"), Rtype::A), Vec::<String>::new());
    server.apply(Change::ImportRemoved(other));
    assert_eq!(server.ask(&format!("web.office.svc.{ZONE}"), Rtype::A).rcode, Rcode::NXDOMAIN);
    assert_eq!(server.ask(&format!("office.svc.{ZONE}"), Rtype::A).rcode, Rcode::NXDOMAIN, "nothing below");
    assert_eq!(server.data(&format!("web.shop.svc.{ZONE}"), Rtype::A), ["10.1.0.1"]);
}
