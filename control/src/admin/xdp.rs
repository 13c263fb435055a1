//! AF_XDP: where outer packets pass the kernel's stack, and how often they cannot.

use serde::{Deserialize, Serialize};

/// AF_XDP on a gateway that is to use it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XdpStatus {
    /// The interface; empty where none has the node's address.
    #[serde(default)]
    pub interface: String,
    /// Where frames leave the kernel: `zero-copy`, `native`, `generic`; `sockets` where they do not.
    pub mode: String,
    /// The better modes, best first, and why they could not be had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<XdpStep>,
    /// Whether IPsec policies of the host are about what arrives, so that all of it goes through the kernel.
    #[serde(default)]
    pub is_aside: bool,
    /// One entry per worker, by ID; none where everything goes through sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<XdpWorker>,
}

/// A mode that could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XdpStep {
    /// The mode.
    pub mode: String,
    /// Why, in one word: `not_supported`, `not_permitted`, `foreign_program`, `no_interface`, `memory`, `busy`, `not_wanted` or
    /// `failed`.
    pub cause: String,
    /// Why, for people.
    pub reason: String,
}

/// What a worker's rings have counted since its start, in datagrams: segments of trains, or single ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XdpWorker {
    /// The worker's number.
    pub id: u32,
    /// Received, and handed on in the frame that they came in.
    pub received_in_place: u64,
    /// Received, and copied into a train.
    pub received_copied: u64,
    /// Sent from the buffer that they were in.
    pub sent_in_place: u64,
    /// Sent, and copied into a frame before.
    pub sent_copied: u64,
    /// Received with a checksum that the sender's kernel had left to a device.
    pub partial_checksums: u64,
    /// Sent by the sockets, by reason; reasons that were none are left out.
    #[serde(default)]
    pub by_sockets: std::collections::BTreeMap<String, u64>,
    /// Dropped by the kernel: no frame was free, the receive ring was full, or the frame was unfit.
    pub kernel_drops: u64,
    /// Descriptors that the kernel refused, and such from it that name no frame; more than 0 is a bug.
    pub bad_descriptors: u64,
    /// System calls that made the kernel send or take frames.
    pub wakeups: u64,
    /// Times that the rings were opened anew, on an interface that had gone and come back.
    pub reopened: u64,
}
