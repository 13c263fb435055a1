//! What every cloud has: something to read, a plan, and changes that are carried out.

use std::fmt;
use std::future::Future;

use crate::CloudError;
use crate::rules::Wanted;

/// What a run is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// The cloud is to have this, and nothing of an earlier preparation that differs.
    Prepare(Wanted),
    /// The cloud is to have nothing that a preparation has put there.
    CleanUp,
}

/// What is to be done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<C> {
    /// The changes; none if everything is as it should be.
    pub changes: Vec<C>,
    /// What somebody should see to, beside the changes: a public address that is missing, a network that has no room.
    pub remarks: Vec<String>,
}

// Derived, it would want changes to have a default.
impl<C> Default for Plan<C> {
    fn default() -> Self {
        Self { changes: Vec::new(), remarks: Vec::new() }
    }
}

/// One change. Its text names what is made, changed or removed, as in "create security group east-submariner-gw-sg in vpc-1".
pub trait Change: fmt::Display + Clone + Send + Sync {
    /// Returns `true` if it needs something that an earlier change of the same plan makes: it is planned again once that is there.
    fn waits(&self) -> bool;

    /// Names the right that it needs, where that is asked for: of changes with the same right one is asked for.
    fn right(&self) -> Option<String> {
        None
    }
}

/// A cloud.
pub trait Provider: Sync {
    /// What there is of what is prepared: rules, groups, machines, nodes.
    type State: Send + Sync;
    /// One change.
    type Change: Change;

    /// Names the service and where in it, for people, as in "EC2 in eu-west-1".
    fn name(&self) -> String;

    /// Reads what there is.
    fn observe(&self) -> impl Future<Output = Result<Self::State, CloudError>> + Send;

    /// Plans what is missing for a goal. Depends on its arguments alone, so that a plan can be shown, and tested, without a cloud.
    ///
    /// # Errors
    /// [`CloudError::Refused`] if the goal cannot be had here.
    fn plan(&self, goal: &Goal, state: &Self::State) -> Result<Plan<Self::Change>, CloudError>;

    /// Asks the cloud whether a change would be allowed, without making it; names what is not. `None` where it is allowed, or where
    /// the cloud does not answer such questions.
    fn denies(
        &self,
        _change: &Self::Change,
    ) -> impl Future<Output = Result<Option<String>, CloudError>> + Send {
        async { Ok(None) }
    }

    /// Makes one change. One that somebody else has made meanwhile is no error.
    fn apply(&self, change: &Self::Change) -> impl Future<Output = Result<(), CloudError>> + Send;
}
