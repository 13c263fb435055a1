//! A simulated API server: objects with versions, and nothing that can go wrong. The network is elsewhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use trieste_control::api::{Object, ObjectKey};
use trieste_control::election::Lease;
use trieste_control::store::StoreError;

/// One write or read of an object.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Create(Object),
    Update(Object),
    /// This version only.
    Delete(Object),
    Get(ObjectKey),
}

/// What a write did, for those who watch.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Applied(Object),
    Deleted(Object),
}

/// An API server's memory.
#[derive(Debug, Default)]
pub(crate) struct SimStore {
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) lease: Option<Lease>,
    version: u64,
    /// Seconds by which its clock is off.
    clock_offset: i64,
}

impl SimStore {
    pub(crate) fn new(clock_offset: i64) -> Self {
        Self { clock_offset, ..Self::default() }
    }

    /// Does what is asked at `millis` after the start.
    pub(crate) fn apply(
        &mut self,
        op: Op,
        millis: u64,
    ) -> (Result<Option<Object>, StoreError>, Option<Change>) {
        match op {
            Op::Get(key) => (Ok(self.objects.get(&key).cloned()), None),
            Op::Create(object) => {
                let key = object.key();
                if self.objects.contains_key(&key) {
                    return (Err(StoreError::AlreadyExists(key)), None);
                }
                self.put(object, None, millis)
            }
            Op::Update(object) => match self.check(&object) {
                Err(error) => (Err(error), None),
                Ok(current) if current.same_content(&object) => (Ok(Some(current)), None),
                Ok(current) => self.put(object, Some(&current), millis),
            },
            Op::Delete(object) => match self.check(&object) {
                Err(error) => (Err(error), None),
                Ok(_) => self.remove(&object.key()),
            },
        }
    }

    /// Replaces the Lease if it has this version; `None` creates it.
    pub(crate) fn write_lease(&mut self, mut lease: Lease, is_create: bool) -> Result<Lease, ()> {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        match &self.lease {
            None if is_create => lease.metadata.uid = Some(self.next_version()),
            Some(current) if !is_create && version(current) == version(&lease) => {}
            _ => return Err(()),
        }
        lease.metadata.resource_version = Some(self.next_version());
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    /// Somebody's hand on the Lease.
    pub(crate) fn edit_lease(&mut self, edit: impl FnOnce(&mut Lease)) {
        let version = self.next_version();
        if let Some(lease) = &mut self.lease {
            edit(lease);
            lease.metadata.resource_version = Some(version);
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn check(&self, object: &Object) -> Result<Object, StoreError> {
        let key = object.key();
        let Some(current) = self.objects.get(&key) else { return Err(StoreError::NotFound(key)) };
        if current.metadata.resource_version == object.metadata.resource_version {
            return Ok(current.clone());
        }
        Err(StoreError::Conflict { key, expected: String::new(), found: String::new() })
    }

    fn put(
        &mut self,
        mut object: Object,
        current: Option<&Object>,
        millis: u64,
    ) -> (Result<Option<Object>, StoreError>, Option<Change>) {
        let version = self.next_version();
        let metadata = &mut object.metadata;
        let seconds = i64::try_from(millis / 1000).expect("a short time") + self.clock_offset;
        metadata.uid = current.map_or_else(|| Some(version.clone()), |current| current.metadata.uid.clone());
        metadata.creation_timestamp = current.map_or_else(
            || Timestamp::from_second(1_800_000_000 + seconds).ok(),
            |current| current.metadata.creation_timestamp,
        );
        metadata.resource_version = Some(version);
        self.objects.insert(object.key(), object.clone());
        (Ok(Some(object.clone())), Some(Change::Applied(object)))
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> (Result<Option<Object>, StoreError>, Option<Change>) {
        match self.objects.remove(key) {
            Some(object) => (Ok(None), Some(Change::Deleted(object))),
            None => (Err(StoreError::NotFound(key.clone())), None),
        }
    }
}
