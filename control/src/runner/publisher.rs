//! Publishing a status when it has changed.

/// Publishes a status when it is another one than before.
pub(super) struct Publisher<T, F> {
    publish: F,
    last: Option<T>,
}

impl<T: PartialEq, F: FnMut(&T)> Publisher<T, F> {
    /// Returns a publisher that has published nothing.
    pub(super) const fn new(publish: F) -> Self {
        Self { publish, last: None }
    }

    /// Publishes `status`, unless it was the last one.
    pub(super) fn publish(&mut self, status: T) {
        if self.last.as_ref() != Some(&status) {
            (self.publish)(&status);
            self.last = Some(status);
        }
    }
}
