//! Which gateway this is, and where it publishes itself.

use super::SlotTimes;
use crate::api::NoticeKey;

/// Which gateway this is, and where it publishes itself.
#[derive(Debug, Clone)]
pub struct MembersConfig {
    /// The namespace of this cluster's objects; that of further Endpoints is made of it.
    pub namespace: String,
    /// The namespace that all clusters share on the broker.
    pub broker_namespace: String,
    /// This cluster.
    pub cluster_id: String,
    /// This gateway.
    pub hostname: String,
    /// Whether all gateways of this cluster are to be active. If not, what this one once published is removed.
    pub is_wanted: bool,
    /// Whether shares of outside ports are claimed: with Globalnet.
    pub has_slots: bool,
    /// The key of this gateway's notices.
    pub notice_key: Option<NoticeKey>,
    /// What takes how long with shares.
    pub times: SlotTimes,
}
