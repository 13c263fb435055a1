//! A pass: observe, plan, apply one change after the other.

/// A host, or one part of its state, that is kept as wanted.
pub trait Host {
    /// Everything that is wanted. The default is nothing.
    type Wanted: Default;
    /// Everything that was observed, ours or not.
    type Observed;
    /// One change, made as a whole or not at all.
    type Change;
    /// The reason why something cannot be observed or changed.
    type Error;

    /// Reads what is there.
    ///
    /// # Errors
    /// The reason why it cannot be read; nothing is planned then.
    fn observe(&self) -> Result<Self::Observed, Self::Error>;

    /// Compares and returns the changes, in an order in which nothing is open in between. Pure.
    fn plan(wanted: &Self::Wanted, observed: &Self::Observed) -> Vec<Self::Change>;

    /// Makes one change.
    ///
    /// # Errors
    /// The reason why it was not made. The others of the plan are tried all the same, unless they wait for it.
    fn apply(&mut self, change: &Self::Change) -> Result<(), Self::Error>;

    /// Returns `true` if a change must not be made after these have failed.
    fn waits(_change: &Self::Change, _failed: &[Self::Change]) -> bool {
        false
    }
}

/// A pass over the changes of a plan, and its result. [`pass`] is one for a [`Host`]; who waits for changes in another way, such
/// as asynchronously or several at once, writes the same loop around [`Pass::next_change`] or [`Pass::next_changes`], and
/// [`Pass::record`].
#[derive(Debug, Clone)]
pub struct Pass<C, E> {
    left: std::vec::IntoIter<C>,
    /// The changes that were made.
    pub made: Vec<C>,
    /// The changes that were not made because others have failed.
    pub waiting: Vec<C>,
    /// The changes that have failed.
    pub failed: Vec<C>,
    /// Why each of them has failed.
    pub errors: Vec<E>,
}

impl<C, E> Pass<C, E> {
    /// Begins a pass.
    pub fn new(plan: impl IntoIterator<Item = C>) -> Self {
        let left = plan.into_iter().collect::<Vec<_>>().into_iter();
        Self { left, made: Vec::new(), waiting: Vec::new(), failed: Vec::new(), errors: Vec::new() }
    }

    /// Returns the next change to make. `waits` returns `true` for one that must not be made after others have failed.
    pub fn next_change(&mut self, mut waits: impl FnMut(&C, &[C]) -> bool) -> Option<C> {
        loop {
            let change = self.left.next()?;
            if !waits(&change, &self.failed) {
                return Some(change);
            }
            self.waiting.push(change);
        }
    }

    /// Returns the next change to make, and with it those directly after it that are to be made together with it: `goes_with`
    /// returns `true` for two that follow one another and do not wait for each other. Nothing once there are no more.
    pub fn next_changes(
        &mut self,
        mut waits: impl FnMut(&C, &[C]) -> bool,
        goes_with: impl Fn(&C, &C) -> bool,
    ) -> Vec<C> {
        let mut changes: Vec<C> = self.next_change(&mut waits).into_iter().collect();
        while let (Some(last), Some(next)) = (changes.last(), self.left.as_slice().first())
            && goes_with(last, next)
        {
            let Some(next) = self.left.next() else { break };
            if waits(&next, &self.failed) { self.waiting.push(next) } else { changes.push(next) }
        }
        changes
    }

    /// Records what became of a change. A failure does not end the pass.
    pub fn record(&mut self, change: C, outcome: Result<(), E>) {
        match outcome {
            Ok(()) => self.made.push(change),
            Err(error) => {
                self.failed.push(change);
                self.errors.push(error);
            }
        }
    }

    /// Returns `true` if nothing was planned. Otherwise another pass is due: it finds out whether the changes have brought what
    /// was wanted, and tries again what was not made.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.made.is_empty() && self.waiting.is_empty() && self.failed.is_empty() && self.left.len() == 0
    }
}

/// Makes one pass.
///
/// # Errors
/// The host could not be observed. That a change failed is part of the result.
pub fn pass<H: Host>(host: &mut H, wanted: &H::Wanted) -> Result<Pass<H::Change, H::Error>, H::Error> {
    let mut pass = Pass::new(H::plan(wanted, &host.observe()?));
    while let Some(change) = pass.next_change(H::waits) {
        let outcome = host.apply(&change);
        pass.record(change, outcome);
    }
    Ok(pass)
}

/// Removes everything that is ours: a pass with nothing wanted.
///
/// # Errors
/// As [`pass`].
pub fn uninstall<H: Host>(host: &mut H) -> Result<Pass<H::Change, H::Error>, H::Error> {
    pass(host, &H::Wanted::default())
}
