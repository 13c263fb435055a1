//! Reading objects of an API server by their paths, as JSON.

use std::time::Duration;

use anyhow::{anyhow, bail};
use futures::AsyncReadExt as _;
use hyper::Request;
use kube::Client;
use serde_json::Value;
use tokio::time::timeout;

use super::output::printable;

/// Ours: how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ours: how many objects are asked for at once.
const PAGE: usize = 500;
/// Ours: how many objects of one list are read; what is beyond is left out.
pub(super) const MAX_OBJECTS: usize = 20_000;

/// Reads from one API server.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
}

/// The objects of a list.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Each with its API version and kind, which servers leave out in lists.
    pub(super) items: Vec<Value>,
    /// Whether there are more than [`MAX_OBJECTS`].
    pub(super) is_cut: bool,
}

impl Api {
    pub(super) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Reads an object; `None` if there is none, or no such kind.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let request = Request::get(path).body(Vec::new())?;
        match timeout(PATIENCE, self.client.request::<Value>(request)).await {
            Ok(Ok(value)) => Ok(Some(value)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(explain(path, &error)),
            Err(_) => {
                bail!("reading {path}: no answer within {} s; is the API server busy?", PATIENCE.as_secs())
            }
        }
    }

    /// Reads a list, page by page; `None` if there is no such kind. `path` has no query.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub(super) async fn list(&self, path: &str) -> anyhow::Result<Option<List>> {
        self.list_where(path, "").await
    }

    /// Reads as [`Api::list`] does those objects that have a label of this name with this value.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub(super) async fn list_labelled(
        &self,
        path: &str,
        (name, value): (&str, &str),
    ) -> anyhow::Result<Option<List>> {
        self.list_where(path, &format!("&labelSelector={name}%3D{value}")).await
    }

    async fn list_where(&self, path: &str, selector: &str) -> anyhow::Result<Option<List>> {
        let mut list = List::default();
        let mut rest = String::new();
        loop {
            let Some(page) = self.get(&format!("{path}?limit={PAGE}{selector}{rest}")).await? else {
                return Ok(None);
            };
            let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            list.extend(page);
            list.is_cut =
                list.items.len() > MAX_OBJECTS || (list.items.len() == MAX_OBJECTS && !token.is_empty());
            list.items.truncate(MAX_OBJECTS);
            if token.is_empty() || list.is_cut {
                return Ok(Some(list));
            }
            rest = format!("&continue={token}");
        }
    }

    /// Reads bytes, at most so many of them: a log.
    ///
    /// # Errors
    /// As [`Api::get`], and when there is nothing of this path.
    pub(super) async fn bytes(&self, path: &str, limit: usize) -> anyhow::Result<Vec<u8>> {
        let request = Request::get(path).body(Vec::new())?;
        let shown = path.split('?').next().unwrap_or(path);
        let read = async {
            let stream = self.client.request_stream(request).await.map_err(|error| explain(shown, &error))?;
            let mut bytes = Vec::new();
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            std::pin::pin!(stream.take(limit)).read_to_end(&mut bytes).await?;
            Ok(bytes)
        };
        match timeout(PATIENCE, read).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("reading {shown}: not done within {} s", PATIENCE.as_secs()),
        }
    }

    /// As [`Api::list`], without telling that the kind is unknown.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub(super) async fn items(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        Ok(self.list(path).await?.unwrap_or_default().items)
    }
}

impl List {
    fn extend(&mut self, mut page: Value) {
        let kind = page["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).map(Value::from);
        let version = page["apiVersion"].take();
        let Value::Array(items) = page["items"].take() else { return };
        self.items.extend(items.into_iter().map(|mut item| {
            if let Some(fields) = item.as_object_mut() {
                fields.entry("apiVersion").or_insert_with(|| version.clone());
                fields.entry("kind").or_insert_with(|| kind.clone().unwrap_or_default());
            }
            item
        }));
    }
}

fn explain(path: &str, error: &kube::Error) -> anyhow::Error {
    if let kube::Error::Api(status) = error
        && status.code == 403
    {
        let message = printable(&status.message);
        return anyhow!(
            "the API server does not allow this: {message}; ask for a role that does, or take another --context"
        );
    }
    anyhow!("reading {path}: {}", printable(&error.to_string()))
}

/// A text in an object, by its path of keys; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The texts of a list in an object.
pub(super) fn texts(object: &Value, path: &str) -> Vec<String> {
    let items = object.pointer(path).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_of_a_list_get_the_kind_that_servers_leave_out() {
        let mut list = List::default();
        list.extend(json!({"apiVersion": "apps/v1", "kind": "DaemonSetList",
            "items": [{"metadata": {"name": "a"}}, {"kind": "Other", "apiVersion": "x/v1"}]}));
        assert_eq!(
            list.items[0],
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}})
        );
        assert_eq!(list.items[1], json!({"kind": "Other", "apiVersion": "x/v1"}));
    }

    #[test]
    fn what_is_not_there_is_empty() {
        let object = json!({"a": {"b": "c", "d": ["e", 1]}});
        assert_eq!((text(&object, "/a/b"), text(&object, "/a/x"), text(&object, "/a/d")), ("c", "", ""));
        assert_eq!(texts(&object, "/a/d"), ["e"]);
        assert!(texts(&object, "/a/b").is_empty());
    }
}
