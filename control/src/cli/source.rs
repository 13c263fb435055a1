//! Where the Gateway objects come from: a store, or the one gateway behind a socket.

use std::path::PathBuf;

use anyhow::{Context, bail};

use super::output::remark;
use super::socket;
use super::{SocketArgs, SourceArgs};
use crate::admin::{DEFAULT_SOCKET, GATEWAY_PATH};
use crate::api::{Gateway, Kind, Object, Resource};
use crate::store::{AnyStore, Location, Store};

/// Every Gateway object that there is, by name.
pub(super) async fn gateways(args: &SourceArgs) -> anyhow::Result<Vec<Gateway>> {
    if let Some(location) = &args.store {
        return of_store(location, &args.namespace).await;
    }
    let path = args.socket.path();
    if args.socket.is_default() && !path.exists() {
        bail!(
            "there is no gateway's admin socket at {}. Start trieste-gateway on this node, pass its socket with \
             --socket PATH, or read a store with --store dir:PATH",
            path.display()
        );
    }
    let body = socket::get(&path, GATEWAY_PATH).await?;
    let value = serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    let object = Object::from_value(value).context("the gateway's answer is not a Gateway object")?;
    Ok(vec![Gateway::from_object(&object)?])
}

async fn of_store(location: &Location, namespace: &str) -> anyhow::Result<Vec<Gateway>> {
    let store = AnyStore::attach(location);
    let objects = store.list(Kind::Gateway, namespace).await.with_context(|| {
        format!("cannot read the store {location}; does it exist, and may you read it?")
    })?;
    for problem in store.problems() {
        remark(&format!("warning: {problem}; ignored"));
    }
    if objects.is_empty() {
        remark(&format!(
            "no Gateway objects in namespace {namespace} of {location}: is trieste-gateway running with this store, \
             and is that its namespace (--namespace)?"
        ));
    }
    objects.iter().map(|object| Ok(Gateway::from_object(object)?)).collect()
}

impl SocketArgs {
    /// The socket to use.
    pub(super) fn path(&self) -> PathBuf {
        let from_environment = || std::env::var_os("TRIESTE_ADMIN_SOCKET").map(PathBuf::from);
        self.socket.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT_SOCKET.into())
    }

    /// Whether nobody said which socket to use.
    fn is_default(&self) -> bool {
        self.socket.is_none() && std::env::var_os("TRIESTE_ADMIN_SOCKET").is_none()
    }
}
