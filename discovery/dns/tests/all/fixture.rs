//! Records of a small set, and questions about them.

use std::net::IpAddr;
use std::time::Duration;

use domain::base::iana::{Opcode, Rcode};
use domain::base::message_builder::AdditionalBuilder;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::AllRecordData;
use trieste_dns::{
    Change, ClusterState, Endpoint, Import, Label, Outcome, Port, Protocol, Records, ServiceKind,
    ServiceName, Settings, Slice, Transport, Writer, Zone, answer,
};

/// A server of cluster `west`, with its records.
pub(crate) struct Server {
    pub(crate) writer: Writer,
    pub(crate) records: Records,
    pub(crate) settings: Settings,
}

/// An answer as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) rcode: Rcode,
    pub(crate) answers: Vec<String>,
    pub(crate) authorities: Vec<String>,
    pub(crate) additional: Vec<String>,
    pub(crate) is_truncated: bool,
    pub(crate) is_authoritative: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Server {
    /// A server with nothing, all of which has been read.
    pub(crate) fn new() -> Self {
        let zones = vec![Zone::new("clusterset.local").unwrap(), Zone::new("example.org").unwrap()];
        let mut settings = Settings::new(zones, 5).unwrap();
        settings.networks = vec!["243.0.0.0/20".parse().unwrap(), "fd00:243::/112".parse().unwrap()];
        settings.addresses = vec!["10.96.0.53".parse().unwrap()];
        let (writer, records) = Writer::new(label("west"));
        let mut server = Self { writer, records, settings };
        server.apply(Change::Synced);
        server
    }

    pub(crate) fn apply(&mut self, change: Change) {
        self.writer.apply(change).unwrap();
    }

    /// Imports a service of `shop` with virtual IPs in each cluster.
    pub(crate) fn import(&mut self, service: &str) {
        self.apply(Change::Import(name(service), Import::default()));
    }

    /// Imports a headless service of `shop`.
    pub(crate) fn import_headless(&mut self, service: &str) {
        let import = Import { kind: ServiceKind::Headless, ..Import::default() };
        self.apply(Change::Import(name(service), import));
    }

    /// Exports a virtual IP with ports http (TCP 80) and dns (UDP 53) from a cluster.
    pub(crate) fn export(&mut self, service: &str, cluster: &str, addresses: &[&str], is_ready: bool) {
        let endpoints = vec![Endpoint { addresses: ips(addresses), host: None, is_ready }];
        self.slice(service, cluster, Slice { endpoints, ports: ports(), publishes_not_ready: false });
    }

    /// Exports hosts of a headless service from a cluster: each with an address, or with none and thus not ready.
    pub(crate) fn export_hosts(&mut self, service: &str, cluster: &str, hosts: &[(&str, &str)]) {
        let endpoint = |(host, address): &(&str, &str)| Endpoint {
            addresses: ips(&[address]),
            host: (!host.is_empty()).then(|| label(host)),
            is_ready: true,
        };
        let endpoints = hosts.iter().map(endpoint).collect();
        self.slice(service, cluster, Slice { endpoints, ports: ports(), publishes_not_ready: false });
    }

    pub(crate) fn slice(&mut self, service: &str, cluster: &str, slice: Slice) {
        self.apply(Change::Slice(name(service), label(cluster), "slice".into(), slice));
    }

    /// Says whether a cluster can be reached, and how far it is.
    pub(crate) fn cluster(&mut self, id: &str, is_up: bool, millis: Option<u64>) {
        let state = ClusterState { is_up, rtt: millis.map(Duration::from_millis) };
        self.apply(Change::Cluster(label(id), Some(state)));
    }

    /// Asks over TCP, so that nothing is truncated.
    pub(crate) fn ask(&self, question: &str, rtype: Rtype) -> Reply {
        self.send(&query(question, rtype), Transport::Tcp).expect("an answer")
    }

    /// Asks for one type of a name, and returns the data of the answers, in order.
    pub(crate) fn data(&self, question: &str, rtype: Rtype) -> Vec<String> {
        let reply = self.ask(question, rtype);
        assert_eq!(reply.rcode, Rcode::NOERROR, "{question} {rtype}");
        let marker = format!(" {rtype} ");
        let data = |record: &String| record.split_once(&marker).map(|(_, data)| data.to_owned());
        let mut data: Vec<_> = reply.answers.iter().filter_map(data).collect();
        data.sort();
        data
    }

    /// Sends bytes. None if there is no response.
    pub(crate) fn send(&self, query: &[u8], transport: Transport) -> Option<Reply> {
        let mut reply = Vec::new();
        match answer(query, transport, &self.records, &self.settings, &mut reply) {
            Outcome::Reply(_) => Some(parse(&reply)),
            Outcome::Drop(_) => None,
        }
    }
}

/// Parses a response strictly.
pub(crate) fn parse(bytes: &[u8]) -> Reply {
    let message = Message::from_octets(bytes).unwrap();
    let header = message.header();
    assert!(header.qr() && !header.ra() && !header.ad() && !header.z());
    let (_, answers, authorities, additional) = message.sections().unwrap();
    let text = |section: domain::base::message::RecordSection<'_, &[u8]>| -> Vec<String> {
        let records = section.limit_to::<AllRecordData<_, _>>();
        records
            .map(|record| record.unwrap())
            .map(|record| {
                format!("{} {} {} {}", record.owner(), record.ttl().as_secs(), record.rtype(), record.data())
            })
            .collect()
    };
    Reply {
        rcode: header.rcode(),
        answers: text(answers),
        authorities: text(authorities),
        additional: text(additional),
        is_truncated: header.tc(),
        is_authoritative: header.aa(),
        bytes: bytes.to_vec(),
    }
}

/// A query for a name with number 7 and the wish for recursion.
pub(crate) fn query(question: &str, rtype: Rtype) -> Vec<u8> {
    query_with(question, rtype, |_| ())
}

/// A query with additional records.
pub(crate) fn query_with(
    question: &str,
    rtype: Rtype,
    add: impl FnOnce(&mut AdditionalBuilder<Vec<u8>>),
) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(7);
    builder.header_mut().set_opcode(Opcode::QUERY);
    builder.header_mut().set_rd(true);
    let mut questions = builder.question();
    questions.push((Name::vec_from_str(question).unwrap(), rtype)).unwrap();
    let mut additional = questions.additional();
    add(&mut additional);
    additional.finish()
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

/// A service of namespace `shop`.
pub(crate) fn name(service: &str) -> ServiceName {
    ServiceName::parse("shop", service).unwrap()
}

pub(crate) fn port(name: &str, protocol: Protocol, number: u16) -> Port {
    Port { name: (!name.is_empty()).then(|| label(name)), protocol, number }
}

pub(crate) fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn ports() -> Vec<Port> {
    vec![port("http", Protocol::Tcp, 80), port("dns", Protocol::Udp, 53)]
}
