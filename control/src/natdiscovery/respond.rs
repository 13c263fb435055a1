//! The verdict on a request: a function of the request, of who we are, and of where it came from.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::limit::Limiter;
use super::message::{EndpointDetails, IpPortPair, Request, Response, ResponseType};
use super::remote::Local;

/// Ours: longest name that is echoed, in bytes. Upstream's are below 120; without a bound an answer would be as large
/// as a stranger likes.
pub const MAX_NAME: usize = 255;

/// Ours: answers a second to sources that are no peer's address.
const STRANGERS_PER_SECOND: u32 = 200;
/// Ours: answers a second to addresses of peers. Strangers cannot use up what is theirs.
const PEERS_PER_SECOND: u32 = 2000;
/// Ours: a malformed request is a mistake or an attack; it costs as much as so many good ones.
const MALFORMED_COST: u32 = 5;

/// Judges a request that came from `from`. Whether the sender is known plays no part.
#[must_use]
pub fn respond(request: &Request, local: &Local, from: SocketAddr) -> Response {
    let mut response = Response {
        request_number: request.request_number,
        response: ResponseType::Malformed.into(),
        sender: Some(local.details()),
        receiver: request.sender.clone().filter(is_sane),
        received_src: Some(from.into()),
        ..Response::default()
    };
    let (Some(_), Some(receiver), Some(using_src), Some(using_dst)) =
        (&response.receiver, &request.receiver, &request.using_src, &request.using_dst)
    else {
        return response;
    };
    response.response = if receiver.cluster_id != local.cluster_id {
        ResponseType::UnknownDstCluster.into()
    } else if receiver.endpoint_id != local.cable_name {
        ResponseType::UnknownDstEndpoint.into()
    } else {
        response.src_ip_nat_detected = !using_src.ip.is_empty() && !using_src.has_ip(from.ip());
        response.src_port_nat_detected = using_src.port != i32::from(from.port());
        response.dst_ip_nat_detected = !is_own(using_dst, local);
        let is_changed =
            response.src_ip_nat_detected || response.src_port_nat_detected || response.dst_ip_nat_detected;
        if is_changed { ResponseType::NatDetected.into() } else { ResponseType::Ok.into() }
    };
    response
}

fn is_sane(details: &EndpointDetails) -> bool {
    details.cluster_id.len() <= MAX_NAME && details.endpoint_id.len() <= MAX_NAME
}

fn is_own(using_dst: &IpPortPair, local: &Local) -> bool {
    local.private_ips.iter().any(|own| using_dst.has_ip(*own))
}

/// Returns `true` if an answer to `from` goes to one host.
pub(super) fn is_answerable(from: SocketAddr) -> bool {
    let is_host = match from.ip().to_canonical() {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    };
    is_host && from.port() != 0
}

/// How many requests are answered.
#[derive(Debug)]
pub(super) struct Limits {
    peers: Limiter,
    strangers: Limiter,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self { peers: Limiter::new(PEERS_PER_SECOND), strangers: Limiter::new(STRANGERS_PER_SECOND) }
    }

    pub(super) fn admit(&mut self, response: &Response, from: IpAddr, is_peer: bool, now: Instant) -> bool {
        let cost = if response.response() == ResponseType::Malformed { MALFORMED_COST } else { 1 };
        let limiter = if is_peer { &mut self.peers } else { &mut self.strangers };
        limiter.admit(from, cost, now)
    }
}
