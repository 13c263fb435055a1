//! `trieste export` and `trieste unexport`: whether other clusters may reach a service.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use trieste_control::api::{
    Kind, MAX_PREFERENCE_LEN, Object, ObjectKey, ObjectMeta, annotation, check_routing,
};
use trieste_control::store::{AnyStore, Location, Store, StoreError, modify};
use trieste_dns::Routing;

use super::contexts::KubeArgs;
use super::drain::location;
use super::output::remark;

/// The namespace of stores and contexts that name none.
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ExportArgs {
    #[command(subcommand)]
    what: Export,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Export {
    /// Let other clusters reach a service, which may be made later
    Service {
        #[command(flatten)]
        service: ServiceArgs,
        /// Whether the service gets an address of its own in the whole set, where the set gives these out [default: as the
        /// set does]
        #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
        use_clusterset_ip: Option<bool>,
        #[command(flatten)]
        choice: ChoiceArgs,
    },
}

/// Which cluster clients are sent to.
#[derive(Debug, Clone, Default, clap::Args)]
struct ChoiceArgs {
    /// How a cluster is chosen for clients, if this export is the oldest: round-robin, nearest, local-only, or
    /// failover=CLUSTER,… [default: as an earlier command has said, else round-robin]
    #[arg(long, value_name = "HOW", value_parser = routing)]
    routing: Option<String>,
    /// This cluster's share of the turns; 0 is for no clients while another cluster serves [default: as an earlier command has
    /// said, else 1]
    #[arg(long, value_name = "NUMBER")]
    weight: Option<u32>,
}

/// Checks a choice among clusters as the discovery agent does, which ignores others, and takes it as it is.
fn routing(text: &str) -> Result<String, String> {
    text.parse::<Routing>().map_err(|error| error.to_string())?;
    if text.len() > MAX_PREFERENCE_LEN {
        return Err(format!("it is longer than {MAX_PREFERENCE_LEN} bytes"));
    }
    check_routing(text)?;
    Ok(text.to_owned())
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct UnexportArgs {
    #[command(subcommand)]
    what: Unexport,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Unexport {
    /// Let other clusters not reach a service any more
    Service(ServiceArgs),
}

/// Which service.
#[derive(Debug, Clone, clap::Args)]
struct ServiceArgs {
    /// The service's name
    name: String,
    /// The service's namespace [default: the context's, else "default"]
    #[arg(long, short)]
    namespace: Option<String>,
    /// The cluster's own store, where there is no API server: dir:PATH
    #[arg(long, value_name = "LOCATION", conflicts_with_all = ["kubeconfig", "context"])]
    store: Option<Location>,
    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the cluster that this runs in]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<std::ffi::OsString>,
    /// The context to use
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ServiceArgs {
    /// Returns the store, and the key of the export there.
    fn place(&self) -> anyhow::Result<(AnyStore, ObjectKey)> {
        let kube = KubeArgs {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            contexts: Vec::new(),
            in_cluster: false,
            namespace: String::new(),
        };
        let of_context = || if self.store.is_none() { kube.context_namespace() } else { None };
        let namespace = self.namespace.clone().or_else(of_context);
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let location = location(self.store.as_ref(), &kube)?;
        Ok((AnyStore::attach(&location), ObjectKey::new(Kind::ServiceExport, namespace, self.name.clone())))
    }
}

/// Runs `export`.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let Export::Service { service, use_clusterset_ip, choice } = &args.what;
    let (store, key) = service.place()?;
    remark(&export_service(&store, &key, &annotations(*use_clusterset_ip, choice)).await?);
    Ok(())
}

/// Returns the annotations of an export that say what was asked for.
fn annotations(use_clusterset_ip: Option<bool>, choice: &ChoiceArgs) -> BTreeMap<String, String> {
    let asked = [
        (annotation::USE_CLUSTERSET_IP, use_clusterset_ip.map(|wanted| wanted.to_string())),
        (annotation::ROUTING, choice.routing.clone()),
        (annotation::WEIGHT, choice.weight.map(|weight| weight.to_string())),
    ];
    asked.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Runs `unexport`.
///
/// # Errors
/// Says what went wrong and what to do next.
pub(super) async fn unexport(args: &UnexportArgs) -> anyhow::Result<()> {
    let Unexport::Service(service) = &args.what;
    let (store, key) = service.place()?;
    remark(&unexport_service(&store, &key).await?);
    Ok(())
}

/// Returns what has been done.
async fn export_service(
    store: &impl Store,
    key: &ObjectKey,
    asked: &BTreeMap<String, String>,
) -> anyhow::Result<String> {
    let (namespace, name) = (&key.namespace, &key.name);
    let service = ObjectKey::new(Kind::Service, namespace.clone(), name.clone());
    let has_service = store.get(&service).await.context("looking for the service")?.is_some();
    let mut export = Object::new(Kind::ServiceExport, ObjectMeta::new(namespace, name));
    export.metadata.annotations.clone_from(asked);
    let done = match store.create(export).await {
        Ok(_) => format!("service {namespace}/{name} is exported"),
        Err(StoreError::AlreadyExists(_)) => again(store, key, asked).await?,
        Err(StoreError::NotFound(_)) => bail!(
            "service {namespace}/{name} cannot be exported: the cluster has no namespace {namespace}, or does not know \
             ServiceExports; trieste join installs them"
        ),
        Err(error) => return Err(error).with_context(|| format!("exporting service {namespace}/{name}")),
    };
    Ok(match has_service {
        true => done,
        false => format!("{done}; there is no such service yet, and nothing answers until there is"),
    })
}

/// Brings an export that there is to what is asked for.
async fn again(
    store: &impl Store,
    key: &ObjectKey,
    asked: &BTreeMap<String, String>,
) -> anyhow::Result<String> {
    let mut has_changed = false;
    if !asked.is_empty() {
        let change = |export: &mut Object| {
            let annotations = &mut export.metadata.annotations;
            has_changed = asked.iter().any(|(key, value)| annotations.get(key) != Some(value));
            annotations.extend(asked.clone());
        };
        modify(store, key, change).await.with_context(|| format!("changing {key}"))?;
    }
    let ObjectKey { namespace, name, .. } = key;
    Ok(match has_changed {
        true => format!("service {namespace}/{name} was exported already; its export was changed"),
        false => format!("service {namespace}/{name} was exported already"),
    })
}

/// Returns what has been done.
async fn unexport_service(store: &impl Store, key: &ObjectKey) -> anyhow::Result<String> {
    let ObjectKey { namespace, name, .. } = key;
    match store.delete(key).await {
        Ok(()) => Ok(format!("service {namespace}/{name} is exported no longer")),
        Err(StoreError::NotFound(_)) => {
            bail!(
                "service {namespace}/{name} is not exported: kubectl get serviceexports -A lists those that are"
            )
        }
        Err(error) => Err(error).with_context(|| format!("unexporting service {namespace}/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use trieste_control::store::DirStore;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: ExportArgs,
    }

    fn parsed(words: &[&str]) -> (ServiceArgs, BTreeMap<String, String>) {
        let words = ["export", "service", "web"].iter().chain(words);
        let Export::Service { service, use_clusterset_ip, choice } = Words::parse_from(words).args.what;
        (service, annotations(use_clusterset_ip, &choice))
    }

    fn asked(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_asked_for_is_said_by_annotations() {
        for (words, said) in [
            (&[][..], &[][..]),
            (&["--use-clusterset-ip"], &[(annotation::USE_CLUSTERSET_IP, "true")]),
            (&["--use-clusterset-ip=false"], &[(annotation::USE_CLUSTERSET_IP, "false")]),
            (
                &["--routing", "failover=west,east", "--weight", "0"],
                &[(annotation::ROUTING, "failover=west,east"), (annotation::WEIGHT, "0")],
            ),
        ] {
            assert_eq!(parsed(words).1, asked(said), "{words:?}");
        }
        for wrong in [["--routing", "far"], ["--routing", "failover="], ["--weight", "-1"]] {
            let words = ["export", "service", "web"].iter().chain(&wrong);
            assert!(Words::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_namespace_is_the_services_or_the_contexts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let context = |name: &str, namespace: &str| {
            format!("- {{name: {name}, context: {{cluster: c, user: u, namespace: {namespace}}}}}")
        };
        let contexts = [context("east", "shop"), context("west", "''")].join("\n");
        std::fs::write(
            &file,
            format!("apiVersion: v1\nkind: Config\ncurrent-context: west\ncontexts:\n{contexts}\n"),
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let namespace = |words: &[&str]| parsed(words).0.place().unwrap().1.namespace;
        assert_eq!(namespace(&["--kubeconfig", file, "--context", "east"]), "shop");
        assert_eq!(namespace(&["--kubeconfig", file, "--context", "east", "-n", "bar"]), "bar");
        assert_eq!(namespace(&["--kubeconfig", file]), "default");
        assert_eq!(namespace(&["--store", &format!("dir:{}", folder.path().display())]), "default");
    }

    #[tokio::test]
    async fn a_service_is_exported_once_changed_and_unexported() {
        let folder = tempfile::tempdir().unwrap();
        let store = DirStore::open(folder.path()).unwrap();
        let key = ObjectKey::new(Kind::ServiceExport, "shop", "web");
        let first = export_service(&store, &key, &asked(&[])).await.unwrap();
        assert!(first.contains("is exported; there is no such service yet"), "{first}");
        store.create(Object::new(Kind::Service, ObjectMeta::new("shop", "web"))).await.unwrap();
        let again = export_service(&store, &key, &asked(&[])).await.unwrap();
        assert_eq!(again, "service shop/web was exported already");
        let wanted = asked(&[(annotation::USE_CLUSTERSET_IP, "true")]);
        for (wanted, said) in [
            (&wanted, "its export was changed"),
            (&wanted, "exported already"),
            (&asked(&[(annotation::ROUTING, "nearest")]), "its export was changed"),
            (&asked(&[]), "exported already"),
        ] {
            let done = export_service(&store, &key, wanted).await.unwrap();
            assert!(done.ends_with(said), "{done}");
        }
        let export = store.get(&key).await.unwrap().unwrap();
        let all = asked(&[(annotation::USE_CLUSTERSET_IP, "true"), (annotation::ROUTING, "nearest")]);
        assert_eq!(export.metadata.annotations, all);
        assert_eq!(unexport_service(&store, &key).await.unwrap(), "service shop/web is exported no longer");
        let missing = unexport_service(&store, &key).await.unwrap_err().to_string();
        assert!(missing.contains("is not exported"), "{missing}");
    }
}
