//! Writes that read first: how to change an object that others change too.

use super::{Store, StoreError};
use crate::api::{ApiError, Object, ObjectKey, ObjectMeta};

/// How often a race is run again. Each lost race means that another writer won, so this many in a row is a bug there.
const MAX_RACES: usize = 32;

/// Changes an existing object: reads it, lets `change` edit it, writes it; again when another writer was faster.
///
/// # Errors
/// As [`Store::update`]; [`StoreError::Conflict`] only after 32 lost races in a row; [`StoreError::Invalid`] for an object that
/// the store cannot read whole.
pub async fn modify<S: Store>(
    store: &S,
    key: &ObjectKey,
    mut change: impl FnMut(&mut Object) + Send,
) -> Result<Object, StoreError> {
    let mut races = 0;
    loop {
        let mut object = store.get(key).await?.ok_or_else(|| StoreError::NotFound(key.clone()))?;
        check_whole(&object)?;
        change(&mut object);
        match store.update(object).await {
            Err(StoreError::Conflict { .. }) if races < MAX_RACES => races += 1,
            outcome => return outcome,
        }
    }
}

/// Sets one annotation, as [`Store::annotate`], by reading and replacing the whole object, in a store that has no smaller write.
///
/// # Errors
/// As [`Store::annotate`]; [`StoreError::Conflict`] also after 32 lost races in a row.
pub(super) async fn annotate<S: Store>(
    store: &S,
    object: &Object,
    annotation: &str,
    value: Option<&str>,
) -> Result<ObjectMeta, StoreError> {
    let key = object.key();
    let mut races = 0;
    loop {
        let mut found = store.get(&key).await?.ok_or_else(|| StoreError::NotFound(key.clone()))?;
        check_incarnation(object, &found)?;
        set_annotation(&mut found, annotation, value)?;
        match store.update(found).await {
            Err(StoreError::Conflict { .. }) if races < MAX_RACES => races += 1,
            outcome => return outcome.map(|object| object.metadata),
        }
    }
}

/// Sets one annotation of an object that was read, or removes it.
///
/// # Errors
/// [`StoreError::Invalid`] for an object that the store cannot read whole.
pub(crate) fn set_annotation(
    object: &mut Object,
    annotation: &str,
    value: Option<&str>,
) -> Result<(), StoreError> {
    check_whole(object)?;
    let annotations = &mut object.metadata.annotations;
    match value {
        Some(value) => drop(annotations.insert(annotation.to_owned(), value.to_owned())),
        None => drop(annotations.remove(annotation)),
    }
    Ok(())
}

/// Fails for an object that the store cannot read whole: written back, it would lose its body.
fn check_whole(object: &Object) -> Result<(), StoreError> {
    match &object.withheld {
        None => Ok(()),
        Some(reason) => {
            Err(StoreError::Invalid { key: object.key(), source: ApiError::Withheld(reason.clone()) })
        }
    }
}

/// Fails if `wanted` has a uid and the object that was found has another one.
fn check_incarnation(wanted: &Object, found: &Object) -> Result<(), StoreError> {
    let (wanted, found, key) = (&wanted.metadata.uid, &found.metadata.uid, wanted.key());
    let uid = |uid: &Option<String>| format!("of uid {}", uid.as_deref().unwrap_or("none"));
    if wanted.is_none() || wanted == found {
        return Ok(());
    }
    Err(StoreError::Conflict { key, expected: uid(wanted), found: uid(found) })
}

/// Creates `wanted`, or, when there is such an object already, lets `merge` edit the existing one into what is wanted.
///
/// # Errors
/// As [`Store::create`] and [`Store::update`], except for races: these are run again, up to 32 times.
pub async fn upsert<S: Store>(
    store: &S,
    wanted: Object,
    mut merge: impl FnMut(&mut Object, &Object) + Send,
) -> Result<Object, StoreError> {
    let key = wanted.key();
    let mut races = 0;
    loop {
        let outcome = match store.get(&key).await? {
            None => store.create(wanted.clone()).await,
            Some(mut object) => {
                merge(&mut object, &wanted);
                store.update(object).await
            }
        };
        match outcome {
            Err(error) if error.is_race() && races < MAX_RACES => races += 1,
            outcome => return outcome,
        }
    }
}

/// Deletes an object; gives `false` if there was none.
///
/// # Errors
/// As [`Store::delete`], but for [`StoreError::NotFound`].
pub async fn delete_if_exists<S: Store>(store: &S, key: &ObjectKey) -> Result<bool, StoreError> {
    match store.delete(key).await {
        Ok(()) => Ok(true),
        Err(StoreError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Kind, ObjectMeta};

    #[test]
    fn an_object_that_was_not_read_whole_is_not_annotated() {
        let mut object = Object::new(Kind::Service, ObjectMeta::new("ns", "a"));
        set_annotation(&mut object, "a", Some("1")).unwrap();
        set_annotation(&mut object, "a", None).unwrap();
        assert!(object.metadata.annotations.is_empty());
        let mut object = object.withhold("it is too large".to_owned());
        let refused = set_annotation(&mut object, "a", Some("1"));
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
}
