//! One handler with what it has taken in, and its turn: the events that it lacks, until one fails.

use std::ops::ControlFlow;

use super::entry::{Entry, Failure, Standing};
use super::event::Event;
use super::handler::{Handler, call};
use super::kind::{Kind, LocalEndpoints, Nodes, RemoteEndpoints, Succession};
use super::taken::Taken;
use super::wanted::Wanted;

/// An event that a handler has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The handler's name.
    pub handler: &'static str,
    /// The event, with the name of its object.
    pub event: String,
    /// The handler's error.
    pub error: String,
    /// Whether it does not come again unless what it is about changes.
    pub is_dropped: bool,
}

/// Whether the turn goes on.
type Turning = ControlFlow<()>;

/// A handler and what it has taken in.
pub(super) struct Turn {
    handler: Box<dyn Handler>,
    taken: Taken,
    /// Events that were dropped in this turn.
    dropped: Vec<Refusal>,
}

impl Turn {
    /// Begins with a handler that has taken in nothing.
    pub(super) fn new(handler: Box<dyn Handler>) -> Self {
        Self { handler, taken: Taken::nothing(), dropped: Vec::new() }
    }

    /// Calls the handler for what is about no state.
    pub(super) fn notify(&mut self, event: Event<'_>) -> Result<(), Refusal> {
        let handled = call(self.handler.as_mut(), event, &self.taken);
        handled.map_err(|error| Refusal {
            handler: self.handler.name(),
            event: event.to_string(),
            error: error.to_string(),
            is_dropped: true,
        })
    }

    /// Calls the handler for all that it lacks, until it fails; returns the events that were dropped.
    pub(super) fn follow(&mut self, wanted: &Wanted<'_>) -> Vec<Refusal> {
        wanted.hostname.clone_into(&mut self.taken.hostname);
        match self.advance(wanted) {
            ControlFlow::Continue(()) | ControlFlow::Break(()) => std::mem::take(&mut self.dropped),
        }
    }

    /// Returns what is refused at present.
    pub(super) fn refused(&self) -> impl Iterator<Item = Refusal> {
        self.taken.failures().map(|failure| self.refusal(failure))
    }

    fn advance(&mut self, wanted: &Wanted<'_>) -> Turning {
        if self.handler.wants_nodes() {
            self.follow_kind::<Nodes>(wanted)?;
        }
        self.set(|taken| &mut taken.pods, &wanted.pods, Event::PodNetworksUpdated(&wanted.pods))?;
        self.set(
            |taken| &mut taken.services,
            &wanted.services,
            Event::ServiceNetworksUpdated(&wanted.services),
        )?;
        self.settle_role(wanted, false)?;
        self.follow_kind::<LocalEndpoints>(wanted)?;
        // Whatever became of its Endpoint, no other role comes in this turn.
        self.settle_role(wanted, true)?;
        self.follow_kind::<RemoteEndpoints>(wanted)
    }

    /// Removes the objects of a kind that are gone, then creates and updates others.
    fn follow_kind<K: Kind>(&mut self, wanted: &Wanted<'_>) -> Turning {
        let all = K::wanted(wanted);
        let is_gone = |key: &str, old: &K::Object| {
            all.get(key).is_none_or(|new| K::succession(wanted, old, new) == Succession::After)
        };
        let entries = K::taken(&mut self.taken).iter();
        let gone = entries.filter(|(key, entry)| is_gone(key, &entry.value)).map(|(key, _)| key.clone());
        for key in gone.collect::<Vec<String>>() {
            self.remove::<K>(&key)?;
            if K::IS_LOCAL {
                self.settle_role(wanted, false)?;
            }
        }
        for (key, object) in all {
            self.put::<K>(wanted, key, object)?;
            if K::IS_LOCAL {
                self.settle_role(wanted, false)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Brings a transition, if this node has another role than the handler was told of.
    fn settle_role(&mut self, wanted: &Wanted<'_>, is_final: bool) -> Turning {
        let is_on_gateway = self.taken.is_on_gateway();
        let role = &mut self.taken.role;
        role.dropped = role.dropped.filter(|dropped| *dropped == is_on_gateway);
        // One that has failed does not come again where its contrary is next.
        if !is_final && role.standing != Standing::Whole && is_on_gateway != wanted.is_on_gateway() {
            return ControlFlow::Continue(());
        }
        let event = if is_on_gateway { Event::TransitionToGateway } else { Event::TransitionToNonGateway };
        self.set(|taken| &mut taken.role, &is_on_gateway, event)
    }

    /// Removes an object; one whose removal is dropped counts as removed.
    fn remove<K: Kind>(&mut self, key: &str) -> Turning {
        let Some(entry) = K::taken(&mut self.taken).remove(key) else { return ControlFlow::Continue(()) };
        match self.attempt(K::removed(&entry.value), entry.failure.as_ref()) {
            Err(failure) if !failure.is_last() => {
                K::taken(&mut self.taken).insert(key.to_owned(), entry.after_refused_removal(failure));
                ControlFlow::Break(())
            }
            Ok(()) | Err(_) => ControlFlow::Continue(()),
        }
    }

    /// Creates or updates an object, unless it is as wanted.
    fn put<K: Kind>(&mut self, wanted: &Wanted<'_>, key: &str, object: &K::Object) -> Turning {
        let entries = K::taken(&mut self.taken);
        let is_creation = match entries.get(key) {
            Some(entry) if !entry.is_due(object) => return ControlFlow::Continue(()),
            Some(entry) => {
                !entry.is_staying() || K::succession(wanted, &entry.value, object) != Succession::Same
            }
            None => true,
        };
        let event = if is_creation { K::created(object) } else { K::updated(object) };
        let old = entries.insert(key.to_owned(), Entry::whole(object.clone()));
        let earlier = old.as_ref().and_then(|old| old.failure.as_ref());
        let Err(failure) = self.attempt(event, earlier) else { return ControlFlow::Continue(()) };
        let turning = after(&failure);
        K::taken(&mut self.taken)
            .insert(key.to_owned(), Entry::after_refusal(old, object, failure, is_creation));
        turning
    }

    /// Sets a value, unless it is as wanted.
    fn set<V: Clone + PartialEq>(
        &mut self,
        entry_of: fn(&mut Taken) -> &mut Entry<V>,
        wanted: &V,
        event: Event<'_>,
    ) -> Turning {
        let entry = entry_of(&mut self.taken);
        if !entry.is_due(wanted) {
            return ControlFlow::Continue(());
        }
        let old = std::mem::replace(entry, Entry::whole(wanted.clone()));
        let Err(failure) = self.attempt(event, old.failure.as_ref()) else {
            return ControlFlow::Continue(());
        };
        let turning = after(&failure);
        *entry_of(&mut self.taken) = Entry::after_refusal(Some(old), wanted, failure, false);
        turning
    }

    /// Calls the handler with the event as if it were taken in; counts a failure after earlier ones.
    fn attempt(&mut self, event: Event<'_>, earlier: Option<&Failure>) -> Result<(), Failure> {
        let Err(error) = call(self.handler.as_mut(), event, &self.taken) else { return Ok(()) };
        let failure = Failure::after(earlier, event.to_string(), error.to_string());
        if failure.is_last() {
            self.dropped.push(self.refusal(&failure));
        }
        Err(failure)
    }

    fn refusal(&self, failure: &Failure) -> Refusal {
        Refusal {
            handler: self.handler.name(),
            event: failure.event.clone(),
            error: failure.error.clone(),
            is_dropped: failure.is_last(),
        }
    }
}

/// Returns whether the turn goes on after a failure: what is to come again holds up what follows it.
fn after(failure: &Failure) -> Turning {
    if failure.is_last() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
