//! The desired state of one name, given all that is known.

use super::Refused;
use super::copy::{agrees, amend, copy};
use super::name::Name;
use super::side::Side;
use super::state::{Entry, Standing, SyncState};
use crate::api::{Kind, Object, cut};
use crate::runner::Write;

impl SyncState {
    /// Returns the write that brings `name` on `side` to its desired state; `None` if it is there. Only our own copies
    /// are ours to change: our label on the broker, others' labels here.
    pub(super) fn decide(&self, side: Side, name: &Name) -> Option<Write> {
        match side {
            Side::Broker => self.decide_export(name),
            Side::Local => self.decide_import(name),
        }
    }

    fn decide_export(&self, name: &Name) -> Option<Write> {
        if !self.scope.exports {
            return None;
        }
        let id = self.scope.cluster_id.as_str();
        let found = self.object(Side::Broker, name);
        let Some(own) = self.local.get(name).filter(|object| self.is_own(object)) else {
            let stale = found.filter(|object| object.metadata.origin() == Some(id))?;
            return Some(Write::Delete(stale.clone()));
        };
        self.write(Side::Broker, name, found, own, id)
    }

    fn decide_import(&self, name: &Name) -> Option<Write> {
        if self.is_taken(name) {
            return None;
        }
        let found = self.local.get(name);
        let Ok(Some(source)) = self.import(name) else {
            return found.map(|stale| Write::Delete(stale.clone()));
        };
        self.write(Side::Local, name, found, source, source.metadata.origin()?)
    }

    /// Makes `found` a copy of `source`.
    fn write(
        &self,
        side: Side,
        name: &Name,
        found: Option<&Object>,
        source: &Object,
        origin: &str,
    ) -> Option<Write> {
        let Some(found) = found else {
            let namespace = match side {
                Side::Local => &self.scope.local_namespace,
                Side::Broker => &self.scope.broker_namespace,
            };
            return Some(Write::Create(copy(source, namespace, origin)));
        };
        let versions =
            (source.metadata.resource_version.as_deref(), found.metadata.resource_version.as_deref());
        if agrees(found, source, origin) || self.written.is_written(side, name, versions.0, versions.1) {
            return None;
        }
        Some(Write::Update(amend(found, source, origin)))
    }

    /// Returns the object that a write of `name` on `side` copies.
    pub(super) fn source(&self, side: Side, name: &Name) -> Option<&Object> {
        match side {
            Side::Broker => self.local.get(name).filter(|object| self.is_own(object)),
            Side::Local => self.import(name).ok().flatten(),
        }
    }

    /// Returns `true` for one of our originals. An unlabelled object of another cluster was put here by hand, as a
    /// fixed peer; it is not ours to publish.
    pub(super) fn is_own(&self, object: &Object) -> bool {
        let cluster_id = object.body.get("spec").and_then(|spec| spec.get("cluster_id"));
        object.metadata.origin().is_none()
            && cluster_id.and_then(serde_json::Value::as_str) == Some(self.scope.cluster_id.as_str())
    }

    /// Returns the broker's object that we should have a copy of, if there is one.
    ///
    /// # Errors
    /// Why another cluster's object is not imported.
    fn import(&self, name: &Name) -> Result<Option<&Object>, String> {
        let Some(Entry { object, standing }) = self.broker.get(name) else { return Ok(None) };
        if *standing == Standing::NotForeign {
            return Ok(None);
        }
        if self.local.get(name).is_some_and(|local| self.scope.exports && self.is_own(local)) {
            // What sits under one of our own names is overwritten by our export, whoever put it there.
            return Ok(None);
        }
        if self.is_taken(name) {
            return Err(format!("field `metadata.name`: an object of ours has the name `{}`", name.name));
        }
        match standing {
            Standing::NotForeign => Ok(None),
            Standing::Refused(reason) => Err(reason.clone()),
            Standing::Foreign { overlap: Some((theirs, ours)), .. } if name.kind == Kind::Endpoint => {
                Err(self.overlap_reason(name, &format!("subnet {theirs} overlaps our own {ours}")))
            }
            Standing::Foreign { .. } => match self.claims.conflict(name) {
                None => Ok(Some(object)),
                Some(conflict) => Err(format!(
                    "subnet {} overlaps {} of cluster {}, which was there first",
                    conflict.claimed, conflict.held, conflict.holder
                )),
            },
        }
    }

    /// Explains why an endpoint that overlaps our own subnets is refused here, and how the others decide about it.
    fn overlap_reason(&self, name: &Name, overlap: &str) -> String {
        let lost_to = self.own_conflict().map(|conflict| &*conflict.holder);
        match lost_to.filter(|_| self.claims.conflict(name).is_none()) {
            Some(holder) => {
                format!("{overlap}; cluster {holder} was there first, so the other members refuse ours")
            }
            None => overlap.to_owned(),
        }
    }

    /// Brings the entry of `name` in the list of refused objects up to date. Gives `true` if it is another one now.
    pub(super) fn refresh_refused(&mut self, name: &Name) -> bool {
        let refused = self.import(name).err().map(|reason| {
            let origin = self.broker.get(name).and_then(|entry| entry.object.metadata.origin());
            let object = cut(&name.name, 253);
            Refused {
                cluster: cut(origin.unwrap_or_default(), 63),
                endpoint: (name.kind == Kind::Endpoint).then_some(object),
                reason,
            }
        });
        if self.refused.get(name) == refused.as_ref() {
            return false;
        }
        match refused {
            Some(refused) => drop(self.refused.insert(name.clone(), refused)),
            None => drop(self.refused.remove(name)),
        }
        true
    }
}
