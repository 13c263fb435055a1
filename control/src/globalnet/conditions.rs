//! Upstream's conditions, in its words: other people's tools look for them.

use jiff::Timestamp;
use serde_json::Map;

use crate::api::{ClusterGlobalEgressIp, Condition, ConditionStatus};

use super::pool::PoolError;

/// Whether the addresses that are asked for are there.
pub(super) const ALLOCATED: &str = "Allocated";
/// Whether a change was taken.
pub(super) const UPDATED: &str = "Updated";

/// The content of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConditionUpdate {
    kind: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

impl ConditionUpdate {
    fn new(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> Self {
        let status = if is_true { ConditionStatus::True } else { ConditionStatus::False };
        Self { kind, status, reason, message: message.into() }
    }

    /// Creates the condition that so many addresses were given.
    pub(super) fn allocated(number: u32) -> Self {
        Self::new(ALLOCATED, true, "Success", format!("Allocated {number} global IP(s)"))
    }

    /// Creates the condition that an address was given.
    pub(super) fn allocated_one() -> Self {
        Self::new(ALLOCATED, true, "Success", "Allocated global IP")
    }

    /// Creates the condition that no addresses were asked for.
    pub(super) fn zero() -> Self {
        Self::new(ALLOCATED, false, "ZeroInput", "The specified NumberOfIPs is 0")
    }

    /// Creates the condition that fewer than no addresses were asked for.
    pub(super) fn negative() -> Self {
        Self::new(ALLOCATED, false, "InvalidInput", "The NumberOfIPs cannot be negative")
    }

    /// Creates the condition that the object is invalid; ours, where upstream has no words.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ALLOCATED, false, "InvalidInput", message)
    }

    /// Creates the condition of a ClusterGlobalEgressIP that is not the one that counts.
    pub(super) fn wrong_instance() -> Self {
        let name = ClusterGlobalEgressIp::NAME;
        let message = format!(
            "Only the ClusterGlobalEgressIP instance with the well-known name \"{name}\" is supported"
        );
        Self::new(ALLOCATED, false, "InvalidInstance", message)
    }

    /// Creates the condition that the pool has not got so many addresses.
    pub(super) fn no_addresses(number: u32, error: &PoolError) -> Self {
        let message = format!("Error allocating {number} global IP(s) from the pool: {error}");
        Self::new(ALLOCATED, false, "IPPoolAllocationFailed", message)
    }

    /// Creates the condition that the pool has no address left.
    pub(super) fn no_address(error: &PoolError) -> Self {
        let message = format!("Error allocating a global IP from the pool: {error}");
        Self::new(ALLOCATED, false, "IPPoolAllocationFailed", message)
    }

    /// Creates the condition that an address that was given is somebody else's, or is no address of ours.
    pub(super) fn not_reserved(error: &PoolError) -> Self {
        let message = format!("Error reserving the allocated global IP(s) from the pool: {error}");
        Self::new(ALLOCATED, false, "ReserveAllocatedIPsFailed", message)
    }

    /// Creates the condition that the selector was changed.
    pub(super) fn selector_changed() -> Self {
        let message = "The PodSelector cannot be updated after creation";
        Self::new(UPDATED, false, "PodSelectorUpdateNotSupported", message)
    }

    /// Says it among other conditions. Of its type one is left; the time changes with the status alone.
    pub(super) fn report(self, conditions: &mut Vec<Condition>, now: Timestamp) {
        let known = conditions.iter().rposition(|condition| condition.kind == self.kind);
        let Some(known) = known else {
            conditions.push(Condition {
                kind: self.kind.to_owned(),
                status: self.status,
                observed_generation: None,
                last_transition_time: whole_seconds(now),
                reason: self.reason.to_owned(),
                message: self.message,
                extra: Map::new(),
            });
            return;
        };
        let condition = &mut conditions[known];
        if condition.status != self.status {
            condition.status = self.status;
            condition.last_transition_time = whole_seconds(now);
        }
        condition.reason = self.reason.to_owned();
        condition.message = self.message;
        keep_last(conditions, self.kind);
    }
}

/// Leaves the newest of the conditions that earlier versions of upstream left one of per change.
pub(super) fn trim(conditions: &mut Vec<Condition>) {
    keep_last(conditions, ALLOCATED);
}

fn keep_last(conditions: &mut Vec<Condition>, kind: &str) {
    let last = conditions.iter().rposition(|condition| condition.kind == kind);
    let mut index = 0;
    conditions.retain(|condition| {
        index += 1;
        condition.kind != kind || Some(index - 1) == last
    });
}

/// Rounds a time down to seconds, as an API server keeps times.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_said_again_changes_nothing_and_its_time_is_that_of_its_status() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut conditions = Vec::new();
        ConditionUpdate::no_address(&PoolError::Exhausted).report(&mut conditions, at(1));
        let first = conditions.clone();
        ConditionUpdate::no_address(&PoolError::Exhausted).report(&mut conditions, at(2));
        assert_eq!(conditions, first);
        ConditionUpdate::zero().report(&mut conditions, at(3));
        assert_eq!((conditions[0].last_transition_time, conditions[0].reason.as_str()), (at(1), "ZeroInput"));
        ConditionUpdate::allocated(8).report(&mut conditions, at(4));
        assert_eq!((conditions[0].last_transition_time, conditions.len()), (at(4), 1));
        assert_eq!(conditions[0].message, "Allocated 8 global IP(s)");
    }

    #[test]
    fn of_the_allocated_conditions_that_earlier_versions_left_the_newest_is_kept() {
        let at = Timestamp::from_second(1).unwrap();
        let mut conditions = Vec::new();
        ConditionUpdate::zero().report(&mut conditions, at);
        let mut older = conditions[0].clone();
        older.reason = "Older".to_owned();
        conditions.insert(0, older);
        ConditionUpdate::selector_changed().report(&mut conditions, at);
        ConditionUpdate::zero().report(&mut conditions, at);
        let reasons: Vec<_> = conditions.iter().map(|condition| condition.reason.as_str()).collect();
        assert_eq!(reasons, ["ZeroInput", "PodSelectorUpdateNotSupported"]);
    }
}
