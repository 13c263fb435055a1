//! What a handler has taken in of one thing, and how far it came with what it has not.

/// Number of failures, of one thing's events in a row, after which the event is dropped: upstream's.
pub const MAX_ATTEMPTS: u32 = 20;

/// An object, or another value, as a handler has taken it in.
#[derive(Debug, Clone)]
pub(super) struct Entry<V> {
    /// What was taken in last; while [`Standing::Creating`], what was refused.
    pub(super) value: V,
    pub(super) standing: Standing,
    /// The last failure since anything was taken in.
    pub(super) failure: Option<Failure>,
    /// What is not tried any more, after too many failures.
    pub(super) dropped: Option<V>,
}

/// How far a handler is with a thing. What failed may have been carried out in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is taken in.
    Whole,
    /// Its creation has failed.
    Creating,
    /// It is taken in, but a change has failed.
    Updating,
    /// It is taken in, but its removal has failed.
    Removing,
}

/// A refused event.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    attempts: u32,
    pub(super) event: String,
    pub(super) error: String,
}

impl Failure {
    /// Counts a failure after earlier ones of the same event; after the last one, a new count begins.
    pub(super) fn after(earlier: Option<&Self>, event: String, error: String) -> Self {
        let same = earlier.filter(|earlier| !earlier.is_last() && earlier.event == event);
        let attempts = same.map_or(0, |earlier| earlier.attempts);
        Self { attempts: attempts + 1, event, error }
    }

    /// Returns `true` if the event is not tried again.
    pub(super) fn is_last(&self) -> bool {
        self.attempts >= MAX_ATTEMPTS
    }
}

impl<V: Clone + PartialEq> Entry<V> {
    /// Returns what is taken in.
    pub(super) fn whole(value: V) -> Self {
        Self { value, standing: Standing::Whole, failure: None, dropped: None }
    }

    /// Returns what is left after a creation, or a change, was refused.
    pub(super) fn after_refusal(old: Option<Self>, wanted: &V, failure: Failure, is_creation: bool) -> Self {
        let dropped = failure.is_last().then(|| wanted.clone());
        let (value, standing) = match old {
            None => (wanted.clone(), Standing::Creating),
            Some(Self { value, standing, .. }) => match standing {
                Standing::Creating => (wanted.clone(), Standing::Creating),
                // Half of another one is in its place: it has to be created again, or removed.
                Standing::Whole | Standing::Updating if is_creation => (value, Standing::Removing),
                Standing::Whole | Standing::Updating => (value, Standing::Updating),
                Standing::Removing => (value, Standing::Removing),
            },
        };
        Self { value, standing, failure: Some(failure), dropped }
    }

    /// Returns what is left after a removal was refused.
    pub(super) fn after_refused_removal(self, failure: Failure) -> Self {
        let standing = if self.is_there() { Standing::Removing } else { Standing::Creating };
        Self { standing, failure: Some(failure), dropped: None, ..self }
    }

    /// Returns `true` if the handler is to be called for the thing to be as wanted.
    pub(super) fn is_due(&self, wanted: &V) -> bool {
        self.dropped.as_ref() != Some(wanted) && (self.standing != Standing::Whole || self.value != *wanted)
    }

    /// Returns `true` if it is taken in.
    pub(super) fn is_there(&self) -> bool {
        match self.standing {
            Standing::Whole | Standing::Updating | Standing::Removing => true,
            Standing::Creating => false,
        }
    }

    /// Returns `true` if it is taken in, and nothing tried to remove it.
    pub(super) fn is_staying(&self) -> bool {
        match self.standing {
            Standing::Whole | Standing::Updating => true,
            Standing::Creating | Standing::Removing => false,
        }
    }
}
