//! `trieste drain`: a gateway hands its flows over to the others.

use anyhow::{Context as _, bail};

use super::contexts::KubeArgs;
use super::output::remark;
use trieste_control::api::{
    Gateway, HaStatus, Kind, ObjectKey, Resource as _, annotation, ensure_valid_name,
};
use trieste_control::store::{AnyStore, Location, Store, StoreError, modify};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct DrainArgs {
    /// The gateway's node, as `trieste show gateways` names it
    node: String,
    /// Let it take flows again
    #[arg(long)]
    undo: bool,
    /// The cluster's own store, where there is no API server: dir:PATH
    #[arg(long, value_name = "LOCATION", conflicts_with_all = ["kubeconfig", "context", "in_cluster"])]
    store: Option<Location>,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Runs the command.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn run(args: &DrainArgs) -> anyhow::Result<()> {
    drain(&AnyStore::attach(&location(args.store.as_ref(), &args.kube)?), &args.kube.namespace, args).await
}

/// Returns the store of the one cluster that is meant.
///
/// # Errors
/// If several are.
pub(super) fn location(store: Option<&Location>, kube: &KubeArgs) -> anyhow::Result<Location> {
    if let Some(location) = store {
        return Ok(location.clone());
    }
    let KubeArgs { kubeconfig, context, contexts, .. } = kube;
    let mut paths = kubeconfig.iter().flat_map(|paths| std::env::split_paths(paths));
    let path = paths.next();
    if paths.next().is_some() || !contexts.is_empty() {
        bail!("this command works on one cluster: name one kubeconfig and one --context");
    }
    Ok(Location::Kube { path, context: context.clone() })
}

async fn drain(store: &impl Store, namespace: &str, args: &DrainArgs) -> anyhow::Result<()> {
    let key = ObjectKey::new(Kind::Gateway, namespace, ensure_valid_name(&args.node));
    if !args.undo {
        others(store, &key).await?;
    }
    let written = modify(store, &key, |gateway| {
        let annotations = &mut gateway.metadata.annotations;
        // From now on it is whoever asks that decides.
        annotations.remove(annotation::DRAINED_FOR_UPDATE);
        if args.undo {
            annotations.remove(annotation::DRAIN);
        } else {
            annotations.insert(annotation::DRAIN.to_owned(), "true".to_owned());
        }
    });
    match written.await {
        Err(StoreError::NotFound(_)) => {
            bail!("there is no {key}: trieste show gateways lists those that run")
        }
        outcome => outcome.with_context(|| format!("asking {key}"))?,
    };
    remark(if args.undo {
        "it takes flows again"
    } else {
        "asked for; trieste show gateways says `drained` once nothing comes any more"
    });
    Ok(())
}

/// Makes sure that somebody is there to take the flows.
async fn others(store: &impl Store, key: &ObjectKey) -> anyhow::Result<()> {
    let gateways =
        store.list(Kind::Gateway, &key.namespace).await.context("looking for the other gateways")?;
    let is_other = |gateway: &Gateway| {
        gateway.metadata.name != key.name
            && gateway.status.ha_status == HaStatus::Active
            && !gateway.metadata.is_asked_to_drain()
    };
    let mut gateways = gateways.iter().filter_map(|object| Gateway::from_object(object).ok());
    if !gateways.any(|gateway| is_other(&gateway)) {
        bail!("no other gateway of this cluster is active: nobody would take the flows of {}", key.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use trieste_control::api::{EndpointSpec, Object, PublishedStatus};
    use trieste_control::store::DirStore;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: DrainArgs,
    }

    #[test]
    fn one_cluster_is_meant() {
        let said = |words: &[&str]| {
            let words = ["drain", "gw1"].iter().chain(words);
            let args = Words::parse_from(words).args;
            location(args.store.as_ref(), &args.kube).map(|location| location.to_string())
        };
        assert_eq!(said(&["--store", "dir:/x"]).unwrap(), "dir:/x");
        assert_eq!(said(&["--kubeconfig", "/k", "--context", "east"]).unwrap(), "kube:/k#east");
        assert_eq!(said(&[]).unwrap(), "kube:");
        assert!(said(&["--kubeconfig", "/k:/l"]).is_err() && said(&["--contexts", "a,b"]).is_err());
    }

    fn gateway(name: &str) -> Object {
        let status = PublishedStatus {
            version: String::new(),
            ha_status: HaStatus::Active,
            local_endpoint: EndpointSpec {
                cluster_id: "a".to_owned(),
                cable_name: name.to_owned(),
                hostname: name.to_owned(),
                ..EndpointSpec::default()
            },
            status_failure: String::new(),
            connections: Vec::new(),
            extra: Default::default(),
        };
        Gateway::new("ns", name, status).unwrap().to_object()
    }

    #[tokio::test]
    async fn a_gateway_is_asked_and_let_off_again_but_never_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = DirStore::open(dir.path()).unwrap();
        let mut args = Words::parse_from(["drain", "gw1", "--namespace", "ns"]).args;
        store.create(gateway("gw1")).await.unwrap();
        let alone = drain(&store, "ns", &args).await.unwrap_err().to_string();
        assert!(alone.contains("no other gateway"), "{alone}");
        store.create(gateway("gw2")).await.unwrap();
        drain(&store, "ns", &args).await.unwrap();
        let key = ObjectKey::new(Kind::Gateway, "ns", "gw1");
        let asked = store.get(&key).await.unwrap().unwrap();
        assert_eq!(asked.metadata.annotations[annotation::DRAIN], "true");
        args.node = "gw2".to_owned();
        assert!(drain(&store, "ns", &args).await.is_err(), "the last one stays");
        modify(&store, &key, |gateway| {
            gateway.metadata.annotations.insert(annotation::DRAIN.to_owned(), "false".to_owned());
        })
        .await
        .unwrap();
        drain(&store, "ns", &args).await.unwrap();
        args.undo = true;
        drain(&store, "ns", &args).await.unwrap();
        args.node = "gw1".to_owned();
        drain(&store, "ns", &args).await.unwrap();
        assert!(store.get(&key).await.unwrap().unwrap().metadata.annotations.is_empty());
        args.node = "gw9".to_owned();
        let missing = drain(&store, "ns", &args).await.unwrap_err().to_string();
        assert!(missing.contains("trieste show gateways"), "{missing}");
    }
}
