//! Exports that are on their way to the broker, which need no condition that says so if they are there soon.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::name::ServiceName;

/// Ours: how long an export is not called pending. Most are on the broker before, and have two writes less: the condition, and the
/// Event that tells of it.
const GRACE: Duration = Duration::from_secs(3);

/// Since when each export has been on its way.
#[derive(Debug, Default)]
pub(crate) struct PublishGrace(BTreeMap<ServiceName, Instant>);

impl PublishGrace {
    /// Takes in whether an export is on its way. Returns for how long it is not yet called pending.
    pub(crate) fn left(&mut self, name: &ServiceName, is_on_its_way: bool, now: Instant) -> Option<Duration> {
        if !is_on_its_way {
            self.0.remove(name);
            return None;
        }
        let since = *self.0.entry(name.clone()).or_insert(now);
        let left = (since + GRACE).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_three_seconds_from_when_it_is_first_on_its_way() {
        let (mut grace, start) = (PublishGrace::default(), Instant::now());
        let web = ServiceName::new("shop", "web");
        let at = |seconds| start + Duration::from_secs(seconds);

        assert_eq!(grace.left(&web, true, at(0)), Some(GRACE));
        assert_eq!(grace.left(&web, true, at(2)), Some(Duration::from_secs(1)));
        assert_eq!(grace.left(&web, true, at(3)), None);
        assert_eq!(grace.left(&web, false, at(4)), None);
        assert!(grace.0.is_empty());
        assert_eq!(grace.left(&web, true, at(5)), Some(GRACE));
    }
}
