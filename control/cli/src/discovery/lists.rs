//! Lists of objects, from an API server or a store.

use futures::StreamExt as _;
use serde_json::Value;
use trieste_control::api::{Kind, Object, label, placed};
use trieste_control::store::{AnyStore, Location, Store as _, StoreError, StoreEvent};

use super::Objects;
use crate::api::{Api, MAX_OBJECTS, text};
use crate::output::{printable, remark};
use crate::store_errors::explain;

/// Where lists come from.
pub(crate) enum Lists<'a> {
    /// An API server.
    Kube(&'a Api),
    /// A store, at its location.
    Store(&'a AnyStore, &'a Location),
}

impl Lists<'_> {
    /// Lists what service discovery is about, in all namespaces, with these gateways: one list for each kind. What stands in the
    /// operator's namespace, because its own is missing, is as it would be in its own.
    ///
    /// # Errors
    /// When one cannot be listed.
    pub(crate) async fn objects(&self, gateways: Vec<Object>, operator: &str) -> anyhow::Result<Objects> {
        let exported = Some((label::MANAGED_BY, label::LIGHTHOUSE_AGENT));
        let placed = |objects: Vec<Object>| {
            let placed = |object: Object| placed(&object, operator).unwrap_or(object);
            objects.into_iter().map(placed).collect()
        };
        Ok(Objects {
            exports: self.list(Kind::ServiceExport, "", None).await?,
            imports: placed(self.list(Kind::ServiceImport, "", None).await?),
            slices: placed(self.list(Kind::EndpointSlice, "", exported).await?),
            gateways,
        })
    }

    /// Lists the objects of a kind in a namespace, or in all; those with a label, if one is named. Without such a kind there are
    /// none.
    ///
    /// # Errors
    /// When it does not answer, or does not allow it.
    pub(crate) async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        label: Option<(&str, &str)>,
    ) -> anyhow::Result<Vec<Object>> {
        match self {
            Self::Kube(api) => of_server(api, kind, namespace, label).await,
            Self::Store(store, location) => {
                let mut events = match label {
                    Some(label) => store.list_watch_labelled(kind, namespace, label).boxed(),
                    None => store.list_watch(kind, namespace).boxed(),
                };
                match events.next().await {
                    Some(StoreEvent::Listed(objects)) => Ok(objects),
                    Some(StoreEvent::Unavailable(StoreError::NotFound(_))) => Ok(Vec::new()),
                    Some(StoreEvent::Unavailable(error)) => Err(explain(&error, kind, location, namespace)),
                    Some(_) | None => anyhow::bail!("{location}: {} cannot be listed", kind.plural()),
                }
            }
        }
    }
}

async fn of_server(
    api: &Api,
    kind: Kind,
    namespace: &str,
    label: Option<(&str, &str)>,
) -> anyhow::Result<Vec<Object>> {
    let root = if kind.api_version().contains('/') { "apis" } else { "api" };
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let path = format!("/{root}/{}{within}/{}", kind.api_version(), kind.plural());
    let list = match label {
        Some(label) => api.list_labelled(&path, label).await?,
        None => api.list(&path).await?,
    };
    let list = list.unwrap_or_default();
    if list.is_cut {
        remark(&format!("warning: there are more than {MAX_OBJECTS} {}; the rest is ignored", kind.plural()));
    }
    Ok(list.items.into_iter().filter_map(|value| read(kind, value)).collect())
}

fn read(kind: Kind, value: Value) -> Option<Object> {
    let name = printable(text(&value, "/metadata/name"));
    let read = Object::from_value(value);
    read.map_err(|error| remark(&format!("warning: {kind} {name}: {error}; ignored"))).ok()
}
