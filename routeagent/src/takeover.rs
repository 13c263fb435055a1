//! Of which of Submariner's programs ours have taken the place on a node, and for how long what they left is removed.

/// The programs whose leftovers are removed (`submariner.rs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takeover {
    /// None.
    #[default]
    Nothing,
    /// The route agent: ours runs.
    Agent,
    /// The gateway as far as it is not active: another node's is. What leads to its cables goes, as with Submariner's own agent.
    Elsewhere,
    /// The gateway and globalnet as well: the node's active gateway is ours.
    Gateway,
}

/// Passes that try to remove something, before the rest is left to an administrator.
const MOST_ATTEMPTS: u8 = 3;

/// What is left to remove.
///
/// Each kind is looked for until a pass finds nothing of it, and not again: what appears later was made by somebody who runs, such
/// as Submariner's gateway on a node that moves back, and nobody pays for reading it in every pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    done: Takeover,
    attempts: u8,
}

impl Sweep {
    /// Returns what a pass is to remove.
    #[must_use]
    pub fn due(self, wanted: Takeover) -> Takeover {
        if wanted > self.done { wanted } else { Takeover::Nothing }
    }

    /// Returns what is left after a pass that planned so many removals, `None` if it could not see what there is, and in which
    /// one of them may have failed.
    #[must_use]
    pub fn after(self, wanted: Takeover, planned: Option<usize>, has_failed: bool) -> Self {
        if wanted <= self.done {
            // A gateway of Submariner's is active here again.
            return Self { done: wanted, attempts: 0 };
        }
        let attempts = self.attempts + u8::from(has_failed);
        if planned == Some(0) || attempts >= MOST_ATTEMPTS {
            return Self { done: wanted, attempts: 0 };
        }
        Self { attempts, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_not_looked_for_again_until_submariners_gateway_was_back() {
        let first = Sweep::default();
        assert_eq!(first.due(Takeover::Agent), Takeover::Agent);
        let clean = first.after(Takeover::Agent, Some(4), false).after(Takeover::Agent, Some(0), false);
        assert_eq!(clean.due(Takeover::Agent), Takeover::Nothing);
        assert_eq!(clean.due(Takeover::Gateway), Takeover::Gateway);
        let moved = clean.after(Takeover::Gateway, Some(0), false);
        assert_eq!(moved.due(Takeover::Gateway), Takeover::Nothing);
        assert_eq!(moved.after(Takeover::Agent, Some(0), false).due(Takeover::Gateway), Takeover::Gateway);
    }

    #[test]
    fn what_cannot_be_removed_is_tried_three_times_and_what_waits_is_not_counted() {
        let mut sweep = Sweep::default();
        for (planned, has_failed) in
            [(Some(1), true), (None, false), (Some(1), false), (Some(1), true), (Some(1), true)]
        {
            assert_eq!(sweep.due(Takeover::Agent), Takeover::Agent);
            sweep = sweep.after(Takeover::Agent, planned, has_failed);
        }
        assert_eq!(sweep.due(Takeover::Agent), Takeover::Nothing);
    }
}
