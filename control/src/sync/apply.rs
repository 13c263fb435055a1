//! Carrying out a plan. No decisions: those are the plan's.

use std::time::Duration;

use tokio::time::Instant;

use super::Refused;
use super::link::{Link, RACE_WAIT};
use super::plan::{Action, Side};
use super::rivals::Rivals;
use crate::api::{Object, ObjectMeta};
use crate::store::{Store, StoreError, StoreEvent};

/// What came of a plan.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// When to plan again although nothing may have changed.
    pub(super) again_in: Option<Duration>,
    /// What a store would not take.
    pub(super) rejected: Vec<Refused>,
    /// A rival for our own objects.
    pub(super) rival: Option<String>,
}

impl Outcome {
    /// Asks for another plan after `wait`, if not sooner.
    pub(super) fn again(&mut self, wait: Duration) {
        self.again_in = Some(self.again_in.map_or(wait, |sooner| sooner.min(wait)));
    }
}

/// Applies `actions` in order. Stops when a store turns out to be away; its link knows then.
pub(super) async fn apply<L: Store, B: Store>(
    actions: Vec<Action>,
    local: &mut Link<L>,
    broker: &mut Link<B>,
    rivals: &mut Rivals,
) -> Outcome {
    let mut outcome = Outcome::default();
    for action in actions {
        if let Action::Update(Side::Broker, object) = &action
            && let Err(wait) = rivals.ask(&object.key(), Instant::now())
        {
            outcome.again(wait);
            outcome.rival = Some(format!(
                "{} on the broker keeps being changed by somebody else; does another cluster use our ID?",
                object.key()
            ));
            continue;
        }
        let goes_on = match side_of(&action) {
            Side::Local => write(action, local, &mut outcome).await,
            Side::Broker => write(action, broker, &mut outcome).await,
        };
        if !goes_on {
            break;
        }
    }
    outcome
}

fn side_of(action: &Action) -> Side {
    match action {
        Action::Create(side, _) | Action::Update(side, _) | Action::Delete(side, _) => *side,
    }
}

/// Does one write; gives `false` when the store is away.
async fn write<S: Store>(action: Action, link: &mut Link<S>, outcome: &mut Outcome) -> bool {
    let side = side_of(&action);
    let (done, concerned) = match action {
        Action::Create(_, object) => {
            (link.store.create(object.clone()).await.map(StoreEvent::Applied), object)
        }
        Action::Update(_, object) => {
            (link.store.update(object.clone()).await.map(StoreEvent::Applied), object)
        }
        Action::Delete(_, key) => {
            let gone = Object::new(key.kind, ObjectMeta::new(&key.namespace, &key.name));
            (link.store.delete(&key).await.map(|()| StoreEvent::Deleted(gone.clone())), gone)
        }
    };
    match done {
        Ok(event) => {
            tracing::debug!(?side, object = %concerned.key(), "synced");
            link.note(&event);
        }
        Err(error) if error.is_race() => outcome.again(RACE_WAIT),
        Err(StoreError::Invalid { source, .. }) => outcome.rejected.push(Refused {
            cluster: concerned.metadata.origin().unwrap_or_default().to_owned(),
            endpoint: Some(concerned.metadata.name.clone()),
            reason: format!("the {} store does not take it: {source}", name_of(side)),
        }),
        Err(error) => {
            link.fail(&error);
            return false;
        }
    }
    true
}

fn name_of(side: Side) -> &'static str {
    match side {
        Side::Local => "local",
        Side::Broker => "broker's",
    }
}
