//! Changing one annotation of an object without reading or sending the rest of it: a merge patch (RFC 7396), answered by
//! the object's metadata alone.
//!
//! A patch says nothing of the object's version. It may say which incarnation it means: an API server takes no other uid
//! than the object's own, as metadata.uid cannot be changed.

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::client::Body;
use serde_json::json;

use crate::api::Object;
use crate::store::StoreError;

/// Kubernetes' name for a merge patch.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Asks for an answer without the object's body; a server that does not know it sends the whole object.
const METADATA_ALONE: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0.9";
/// The field at fault where the object is another incarnation.
const UID: &str = "metadata.uid";

/// Returns the request that sets an annotation of the object at `path`, or removes it where there is no value.
///
/// # Errors
/// [`http::Error`] when the path is none.
pub(super) fn request(
    path: String,
    object: &Object,
    annotation: &str,
    value: Option<&str>,
) -> http::Result<Request<Body>> {
    Request::patch(path)
        .header(CONTENT_TYPE, MERGE_PATCH)
        .header(ACCEPT, METADATA_ALONE)
        .body(Body::from(body(object.metadata.uid.as_deref(), annotation, value)))
}

/// Makes the patch. Without a value the annotation goes, as null stands for that.
fn body(uid: Option<&str>, annotation: &str, value: Option<&str>) -> Vec<u8> {
    let mut patch = json!({"metadata": {"annotations": {annotation: value}}});
    if let Some(uid) = uid {
        patch["metadata"]["uid"] = json!(uid);
    }
    patch.to_string().into_bytes()
}

/// Turns the refusal of a uid into a conflict: the object was deleted, and made by somebody else.
pub(super) fn of_incarnation(error: StoreError, object: &Object) -> StoreError {
    if let StoreError::Invalid { key, source } = &error
        && source.field_path() == Some(UID)
    {
        let uid = object.metadata.uid.as_deref().unwrap_or("none");
        return StoreError::Conflict {
            key: key.clone(),
            expected: format!("of uid {uid}"),
            found: "another".to_owned(),
        };
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_the_annotation_and_the_incarnation_alone() {
        let text = |uid, value| String::from_utf8(body(uid, "a/b", value)).unwrap();
        assert_eq!(text(Some("u"), Some("5")), r#"{"metadata":{"annotations":{"a/b":"5"},"uid":"u"}}"#);
        assert_eq!(text(None, None), r#"{"metadata":{"annotations":{"a/b":null}}}"#);
    }
}
