//! From the bytes of a query to the bytes of its answer: a function of the records, the settings and the query.

use domain::base::Rtype;

use crate::node::{self, Node};
use crate::outcome::{Outcome, Summary};
use crate::records::{Records, with_octets};
use crate::request::{Code, Refusal, Request};
use crate::response::{self, Content, Response};
use crate::reverse::{self, Reverse};
use crate::service::Need;
use crate::settings::Settings;
use crate::source::Source;
use crate::target::Targets;
use crate::transport::Transport;
use crate::zone::{self, Zone};

/// Answers a query. `reply` has the response afterwards, if the outcome is one; what it had before is gone. With room for
/// 65,535 bytes it does not grow, and nothing is allocated but when the clusters of a weighted round robin change.
pub fn answer(
    query: &[u8],
    transport: Transport,
    records: &Records,
    settings: &Settings,
    reply: &mut Vec<u8>,
) -> Outcome {
    let request = match Request::parse(query) {
        Ok(request) => request,
        Err(Refusal::Drop(reason)) => return Outcome::Drop(reason),
        Err(Refusal::Reply { header, code, query, has_edns }) => {
            response::refuse(header, code, has_edns, reply);
            return Outcome::Reply(Summary { query, result: code.answer(), is_truncated: false });
        }
    };
    let response = Response { request: &request, transport, settings, serial: records.serial() };
    let name = &request.name;
    if let Some((zone, labels)) = zone::find(settings.zones(), name) {
        return in_zone(&response, records, zone, labels, reply);
    }
    if let Some(found) = reverse::find(&settings.networks, name) {
        return in_reverse_zone(&response, records, found, reply);
    }
    response::refuse_question(&request, Code::Refused, reply);
    Outcome::Reply(Summary {
        query: request.query_type(),
        result: Code::Refused.answer(),
        is_truncated: false,
    })
}

/// Answers for a name of a zone with `labels` labels below its apex.
fn in_zone(
    response: &Response<'_>,
    records: &Records,
    zone: &Zone,
    labels: usize,
    reply: &mut Vec<u8>,
) -> Outcome {
    let name = &response.request.name;
    let settings = response.settings;
    let write = |node, reply| {
        // Before all has been read, what is not there may still come.
        let is_unclear = matches!(node, Node::Absent) && !records.is_synced();
        let content = if is_unclear { Content::Failed } else { content(node, response) };
        response.write(content, name.wire_from(labels), zone, reply)
    };
    if labels == 0 || name.label(labels - 1) != b"svc" {
        return write(node::beside(name, labels), reply);
    }
    if labels == 1 {
        return write(Node::Empty, reply);
    }
    if labels == 2 {
        let namespace = records.namespace(name.wire(0, 1));
        return write(if namespace.services > 0 { Node::Empty } else { Node::Absent }, reply);
    }
    let key = name.wire(labels - 3, labels - 1);
    let shard = records.service(key);
    let node = shard
        .get(key)
        .map_or(Node::Absent, |service| node::below(service, name, labels - 3, settings.has_cluster_names));
    write(node, reply)
}

/// Answers for a reverse name.
fn in_reverse_zone(
    response: &Response<'_>,
    records: &Records,
    found: Reverse,
    reply: &mut Vec<u8>,
) -> Outcome {
    let request = response.request;
    // There is a zone: settings have one at least.
    let zone = &response.settings.zones()[0];
    let apex_name = request.name.wire_from(found.below);
    let is_apex = found.below == 0;
    let address = match (found.address, is_apex) {
        _ if found.is_vacant => return response.write(Content::NoName, apex_name, zone, reply),
        (None, true) => return response.write(apex(request.question.qtype()), apex_name, zone, reply),
        // Names of half an address lie above addresses that may have a name.
        (None, false) => return response.write(Content::NoData, apex_name, zone, reply),
        (Some(address), _) => address,
    };
    with_octets(address, |octets| {
        let shard = records.owner(octets);
        let content = match (shard.get(octets), request.question.qtype()) {
            (Some(owner), Rtype::PTR) => Content::Owner(owner),
            (Some(_), Rtype::ANY) => Content::Anything,
            (None, rtype) if is_apex => apex(rtype),
            (Some(_), _) => Content::NoData,
            (None, _) if !records.is_synced() => Content::Failed,
            (None, _) => Content::NoName,
        };
        response.write(content, apex_name, zone, reply)
    })
}

/// Returns what a name has of the type that was asked for.
fn content<'s>(node: Node<'s>, response: &Response<'s>) -> Content<'s> {
    let own = &response.settings.addresses;
    match (node, response.request.question.qtype()) {
        (Node::Absent, _) => Content::NoName,
        (Node::Empty, _) => Content::NoData,
        (Node::Apex, rtype) => apex(rtype),
        (Node::SchemaVersion, Rtype::TXT) => Content::SchemaVersion,
        (node, Rtype::A) => Content::V4(Source::of(node, Need::V4, own)),
        (node, Rtype::AAAA) => Content::V6(Source::of(node, Need::V6, own)),
        (node, Rtype::SRV) => Targets::of(node).map_or(Content::NoData, Content::Srv),
        (_, Rtype::ANY) => Content::Anything,
        _ => Content::NoData,
    }
}

/// Returns what an apex has.
fn apex(rtype: Rtype) -> Content<'static> {
    match rtype {
        Rtype::SOA => Content::Soa,
        Rtype::NS => Content::Ns,
        Rtype::ANY => Content::Anything,
        _ => Content::NoData,
    }
}
