//! One write, as plans name it, and how it is done.

use std::time::Duration;

use tokio::time::timeout;

use crate::api::Object;
use crate::store::{Store, StoreError, StoreEvent};

/// Ours: how long to wait for an answer to one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Create this object.
    Create(Object),
    /// Replace an object by this; its version is the one that the plan was based on.
    Update(Object),
    /// Delete this object if it still has this version.
    Delete(Object),
}

impl Write {
    /// The object that is written.
    pub fn object(&self) -> &Object {
        match self {
            Self::Create(object) | Self::Update(object) | Self::Delete(object) => object,
        }
    }

    /// Does it. Gives what a watch would say of it, so that the next plan knows before one does.
    pub(crate) async fn carry_out<S: Store>(self, store: &S) -> Result<StoreEvent, StoreError> {
        let key = self.object().key();
        let written = async {
            match self {
                Self::Create(object) => store.create(object).await.map(StoreEvent::Applied),
                Self::Update(object) => store.update(object).await.map(StoreEvent::Applied),
                Self::Delete(object) => match store.delete_version(&object).await {
                    Ok(()) | Err(StoreError::NotFound(_)) => Ok(StoreEvent::Deleted(object)),
                    Err(error) => Err(error),
                },
            }
        };
        timeout(WRITE_TIMEOUT, written).await.unwrap_or_else(|_| {
            let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer");
            Err(StoreError::Unavailable { doing: format!("write {key}"), source })
        })
    }
}
