//! The stage: packets for services leave the batch, those that this node serves or the kernel has to look after stay.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use trieste_cables::Jobs;
use trieste_packet::wire::Inner;
use trieste_packet::{Batch, FlowKey};

use super::frame;
use super::pieces::Pieces;
use super::pins::Pins;
use super::table::{NodeId, Services};
use super::target::{self, Target};
use crate::pipeline::Pipeline;

/// What a worker keeps to deliver.
pub(crate) struct Delivery {
    services: Cache<Arc<ArcSwap<Services>>, Arc<Services>>,
    pins: Pins,
    pieces: Pieces,
}

/// Where a packet for a service goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// This node has a back end.
    Here,
    /// To the node at this address.
    Node(IpAddr),
    /// This node's kernel has to know.
    Kernel,
}

impl Delivery {
    /// Forgets which flows are where.
    pub(crate) fn clear(&mut self) {
        self.pins.clear();
    }

    /// The snapshot that counts now.
    pub(crate) fn services(&mut self) -> Arc<Services> {
        Arc::clone(self.services.load())
    }

    /// Where a flow's packets go, and nothing is remembered of it; `None` where no service can be.
    pub(crate) fn explain(&self, flow: &FlowKey, services: &Services) -> Option<Delivered> {
        if services.is_empty() || !services.covers(flow.destination()) {
            return None;
        }
        Some(match self.pins.peek(flow, services) {
            Some(node) if services.is_own(node) => Delivered::Here,
            Some(node) => Delivered::Node(services.node(node).address),
            None => Delivered::Kernel,
        })
    }

    /// The node for a packet; `None` leaves it to the kernel.
    fn node(&mut self, bytes: &[u8], inner: &Inner, services: &Services) -> Option<NodeId> {
        if !services.covers(target::destination(bytes)?) {
            return None;
        }
        match target::read(bytes, inner) {
            Target::Flow(flow) => self.pins.node(&flow, services),
            Target::Opening(flow) => self.pins.open(&flow, services),
            Target::About(flow) => self.pins.peek(&flow, services),
            Target::First(flow, key) => {
                let node = self.pins.node(&flow, services);
                self.pieces.settle(key, node.map(|node| services.node(node).address));
                node
            }
            Target::Later(key) => self.pieces.follow(&key).and_then(|address| services.find(address)),
            Target::Kernel => None,
        }
    }
}

impl Pipeline {
    /// Has packets for services delivered by these snapshots.
    pub fn follow_services(&mut self, services: Arc<ArcSwap<Services>>) {
        let seed = self.config.seed;
        self.delivery = Some(Box::new(Delivery {
            services: Cache::new(services),
            pins: Pins::new(seed.rotate_left(7)),
            pieces: Pieces::new(seed.rotate_left(29)),
        }));
    }

    /// Sends packets for services to a node that has a back end. What stays is for the TUN device.
    pub(crate) fn deliver_services(&mut self, batch: &mut Batch) {
        let Some(delivery) = self.delivery.as_deref_mut() else { return };
        let services = delivery.services();
        if services.is_empty() {
            return;
        }
        let (mut nothing, mut headers, mut sent) = (Vec::new(), self.headers.iter(), 0);
        let mut jobs = Jobs {
            input: &mut nothing,
            output: &mut self.to_wire,
            pool: &mut self.pool,
            drops: &mut self.drops,
            consumed: &mut self.counters.control_in,
        };
        batch.retain_or(
            |packet| {
                let node = headers.next().and_then(|inner| delivery.node(packet.bytes(), inner, &services));
                node.filter(|node| !services.is_own(*node)).map_or(Ok(()), Err)
            },
            |packet, node| sent += frame::send(packet, node, &services, &mut jobs),
        );
        self.counters.services_out += sent;
    }
}
