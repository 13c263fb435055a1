//! One write, as controllers plan it, and how it is done.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::time::timeout;

use crate::api::{Object, ObjectKey};
use crate::store::{Store, StoreError, StoreEvent, set_annotation};

/// The time that one write may take. A server that answers later is not waited for.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// One write to a store. Each but a creation is based on a version, which the object carries, or sets one annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Creates this object.
    Create(Object),
    /// Replaces the object of this name and version by this one; its status stays.
    Update(Object),
    /// Replaces the status of the object of this name and version by this one's.
    UpdateStatus(Object),
    /// Deletes this object if it still has this version.
    Delete(Object),
    /// Sets one annotation of an object that others write all the time, or removes it.
    Annotate {
        /// The object.
        key: ObjectKey,
        /// The annotation.
        annotation: &'static str,
        /// The annotation's value; `None` to remove it.
        value: Option<String>,
    },
}

impl Write {
    /// Returns the key of the object that is written.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Annotate { key, .. } => key.clone(),
            Self::Create(object)
            | Self::Update(object)
            | Self::UpdateStatus(object)
            | Self::Delete(object) => object.key(),
        }
    }

    /// Returns the object that is written, as it was planned; `None` for an annotation.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Create(object)
            | Self::Update(object)
            | Self::UpdateStatus(object)
            | Self::Delete(object) => Some(object),
            Self::Annotate { .. } => None,
        }
    }

    /// Returns the version that is replaced or deleted; `None` if it is not based on one.
    pub(super) fn base(&self) -> Option<&str> {
        match self {
            Self::Update(object) | Self::UpdateStatus(object) | Self::Delete(object) => {
                object.metadata.resource_version.as_deref()
            }
            Self::Create(_) | Self::Annotate { .. } => None,
        }
    }

    /// Returns `true` if it fails when the object is not as it was when it was planned.
    pub(super) const fn is_exact(&self) -> bool {
        !matches!(self, Self::Annotate { .. })
    }

    /// Writes to `store`, within [`WRITE_TIMEOUT`]. Returns what a watch would report of it, so that the next plan is
    /// based on it before one does. To delete what is gone already succeeds.
    ///
    /// # Errors
    /// As the store's; [`StoreError::Unavailable`] after the time-out.
    pub(crate) async fn execute<S: Store>(self, store: &S) -> Result<StoreEvent, StoreError> {
        self.execute_fenced(store, WRITE_TIMEOUT, &|| true).await
    }

    /// Executes as [`Write::execute`] does, within another time; a write that takes two requests asks the fence before
    /// the second one too.
    ///
    /// # Errors
    /// As [`Write::execute`]; [`StoreError::Conflict`] when `may_write` returns `false` in between.
    pub(crate) async fn execute_fenced<S: Store>(
        self,
        store: &S,
        limit: Duration,
        may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<StoreEvent, StoreError> {
        let key = self.key();
        let written = async {
            match self {
                Self::Create(object) => store.create(object).await.map(StoreEvent::Applied),
                Self::Update(object) => store.update(object).await.map(StoreEvent::Applied),
                Self::UpdateStatus(object) => store.update_status(object).await.map(StoreEvent::Applied),
                Self::Delete(object) => match store.delete_version(&object).await {
                    Ok(()) | Err(StoreError::NotFound(_)) => Ok(StoreEvent::Deleted(object)),
                    Err(error) => Err(error),
                },
                Self::Annotate { key, annotation, value } => {
                    annotate(store, &key, annotation, value, may_write).await
                }
            }
        };
        within(limit, &key, written).await
    }
}

async fn annotate<S: Store>(
    store: &S,
    key: &ObjectKey,
    annotation: &str,
    value: Option<String>,
    may_write: &(dyn Fn() -> bool + Sync),
) -> Result<StoreEvent, StoreError> {
    let mut object = store.get(key).await?.ok_or_else(|| StoreError::NotFound(key.clone()))?;
    set_annotation(&mut object, annotation, value.as_deref())?;
    if !may_write() {
        let (expected, found) = ("the term of the plan".to_owned(), "another one".to_owned());
        return Err(StoreError::Conflict { key: key.clone(), expected, found });
    }
    store.update(object).await.map(StoreEvent::Applied)
}

async fn within<T>(
    limit: Duration,
    key: &ObjectKey,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, request).await.unwrap_or_else(|_| {
        let reason = io::Error::new(io::ErrorKind::TimedOut, format!("not answered within {limit:?}"));
        Err(unavailable(format!("write {key}"), reason))
    })
}

/// Returns the error of an operation that a store did not carry out.
pub(super) const fn unavailable(operation: String, source: io::Error) -> StoreError {
    StoreError::Unavailable { operation, source }
}
