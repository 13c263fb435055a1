//! All handlers, in the order of their registration.

use thiserror::Error;

use super::event::Event;
use super::handler::Handler;
use super::turn::{Refusal, Turn};
use super::wanted::Wanted;
use crate::state::ClusterState;

/// A handler could not begin.
#[derive(Debug, Error)]
#[error("{handler} cannot start: {error}")]
pub struct StartError {
    /// The handler's name.
    pub handler: &'static str,
    /// Its error.
    pub error: String,
}

/// The result of following a state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Events that are refused at present: the first one of each handler, which comes again, and those that do not.
    pub refused: Vec<Refusal>,
    /// Events that were given up by this call, to be logged once; removals are not among the refused ones afterwards.
    pub dropped: Vec<Refusal>,
}

/// The handlers for a network plugin. Makes no call that they do not make, and has no clock: who follows states decides when.
pub struct Dispatcher {
    plugin: String,
    turns: Vec<Turn>,
    dropped: u64,
}

impl Dispatcher {
    /// Returns one without handlers.
    #[must_use]
    pub fn new(plugin: &str) -> Self {
        Self { plugin: plugin.to_owned(), turns: Vec::new(), dropped: 0 }
    }

    /// Adds a handler if it is for the network plugin; returns `true` if it is.
    pub fn register(&mut self, handler: Box<dyn Handler>) -> bool {
        let is_used = handler.plugins().include(&self.plugin);
        if is_used {
            self.turns.push(Turn::new(handler));
        }
        is_used
    }

    /// Returns `true` if there are no handlers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Begins: sends `Init` to each handler, up to the first one that fails.
    ///
    /// # Errors
    ///
    /// That handler's.
    pub fn start(&mut self) -> Result<(), StartError> {
        self.turns.iter_mut().try_for_each(|turn| {
            let started = turn.notify(Event::Init);
            started.map_err(|Refusal { handler, error, .. }| StartError { handler, error })
        })
    }

    /// Sends each handler the events that lead from what it has taken in to a state. What one fails to do stops nobody else.
    pub fn follow(&mut self, state: &ClusterState) -> Outcome {
        let wanted = Wanted::of(state);
        let dropped: Vec<Refusal> = self.turns.iter_mut().flat_map(|turn| turn.follow(&wanted)).collect();
        self.dropped = self.dropped.saturating_add(dropped.len() as u64);
        Outcome { refused: self.turns.iter().flat_map(Turn::refused).collect(), dropped }
    }

    /// Ends: sends `Stop` to all handlers; returns what failed.
    pub fn stop(&mut self) -> Vec<Refusal> {
        self.notify_all(Event::Stop)
    }

    /// Sends `Stop`, then `Uninstall`, to all handlers; returns what failed.
    pub fn uninstall(&mut self) -> Vec<Refusal> {
        let mut refused = self.stop();
        refused.extend(self.notify_all(Event::Uninstall));
        refused
    }

    /// Returns how many events were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn notify_all(&mut self, event: Event<'_>) -> Vec<Refusal> {
        self.turns.iter_mut().filter_map(|turn| turn.notify(event).err()).collect()
    }
}
