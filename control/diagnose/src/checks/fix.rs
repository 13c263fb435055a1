//! What `diagnose cni --fix` writes: every object is announced before it is written, and none is overwritten that somebody else has
//! changed since it was read.

#[cfg(test)]
pub(super) mod fake;

use std::fmt;

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use tokio::time::timeout;
use trieste_control::steps::{Outcome, Steps};

use crate::facts::ANSWER_TIMEOUT;

/// The manager of the fields that are written.
const FIELD_MANAGER: &str = "trieste-diagnose";
/// What is typed to try once more.
const REPEAT: &str = "run again: trieste diagnose cni --fix";

/// What is done about something that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// It is explained.
    Explained,
    /// It is written, where this is nobody else's task.
    Written,
}

/// An object to write: a new one, or one that was read, with its version.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    /// How it is served.
    pub(super) resource: ApiResource,
    /// The object.
    pub(super) object: DynamicObject,
    /// The line that tells what is written.
    pub(super) announcement: String,
}

/// How an object is written; named as rights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Update,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Update => "update",
        })
    }
}

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{object} was not written: the right to {verb} {resource} is missing ({why})")]
    Forbidden { object: String, verb: Verb, resource: String, why: String },
    #[error("{object} was not written: somebody else has written it meanwhile; {REPEAT}")]
    Conflict { object: String },
    #[error("{object} was not written: {why}")]
    Refused { object: String, why: String },
    #[error("it is not certain that {object} was written: {why}; {REPEAT}")]
    Unanswered { object: String, why: String },
}

impl WriteError {
    /// Returns `true` if other objects of this kind would fare alike.
    const fn is_general(&self) -> bool {
        match self {
            Self::Forbidden { .. } | Self::Unanswered { .. } => true,
            Self::Conflict { .. } | Self::Refused { .. } => false,
        }
    }
}

/// Announces and writes objects of one kind; returns how many were written.
pub(super) async fn write(client: &Client, writes: &[Write], steps: &mut dyn Steps) -> usize {
    let mut written = 0;
    for write in writes {
        // Outside of a step, where it is printed at once.
        steps.remark(Outcome::Success, &write.announcement);
        steps.begin(&format!("Writing {}", write.name()));
        let is_over = match write.send(client).await {
            Ok(()) => {
                written += 1;
                false
            }
            Err(error) => {
                steps.remark(Outcome::Failure, &error.to_string());
                error.is_general()
            }
        };
        steps.end(Outcome::Success);
        if is_over {
            break;
        }
    }
    written
}

impl Write {
    /// Returns its kind, namespace and name, for people.
    fn name(&self) -> String {
        let metadata = &self.object.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        match &metadata.namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.resource.kind),
            None => format!("{} {name}", self.resource.kind),
        }
    }

    /// Writes it, with an end.
    async fn send(&self, client: &Client) -> Result<(), WriteError> {
        let metadata = &self.object.metadata;
        let objects = match &metadata.namespace {
            Some(namespace) => {
                Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &self.resource)
            }
            None => Api::all_with(client.clone(), &self.resource),
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let verb = if metadata.resource_version.is_some() { Verb::Update } else { Verb::Create };
        let sent = async {
            match verb {
                Verb::Create => objects.create(&params, &self.object).await,
                Verb::Update => {
                    let name = metadata.name.as_deref().unwrap_or_default();
                    objects.replace(name, &params, &self.object).await
                }
            }
        };
        match timeout(ANSWER_TIMEOUT, sent).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.failure(verb, &error)),
            Err(_) => {
                let why = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
                Err(WriteError::Unanswered { object: self.name(), why })
            }
        }
    }

    fn failure(&self, verb: Verb, error: &kube::Error) -> WriteError {
        let object = self.name();
        let kube::Error::Api(status) = error else {
            return WriteError::Unanswered { object, why: error.to_string() };
        };
        let why = format!("{} ({})", status.message, status.code);
        match (status.code, verb) {
            (403, _) => WriteError::Forbidden { object, verb, resource: self.right(), why },
            (409, _) | (404, Verb::Update) => WriteError::Conflict { object },
            (_, Verb::Create | Verb::Update) => WriteError::Refused { object, why },
        }
    }

    /// Returns the resource as rights name it.
    fn right(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        let group = if group.is_empty() { "the core group" } else { group };
        match &self.object.metadata.namespace {
            Some(namespace) => format!("{plural} of {group} in namespace {namespace}"),
            None => format!("{plural} of {group}"),
        }
    }
}
