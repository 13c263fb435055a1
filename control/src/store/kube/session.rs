//! One set of credentials, loaded: the HTTP client that uses it, and the files that it came from.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

use super::access::{Access, ServerSettings, Source, certificates, check_token, pem_of};
use super::dial::{self, Dial};

/// Ours: over HTTP/2 a connection on which nothing was heard for this long is asked for a sign of life. A ping costs 17
/// bytes and no request.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Ours: how long a ping may stay without answer. As long as a request: a slow server is not a dead one.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: how long a connection without any request is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Loaded credentials and the client that uses them.
pub(super) struct Session {
    pub(super) http: BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>,
    pub(super) made: Instant,
    files: Vec<(PathBuf, Option<Stamp>)>,
    /// Whether reading again can give other credentials although no file has changed.
    pub(super) has_plugin: bool,
}

/// The mark by which one content of a file differs from another, without reading it: a replaced file, a link that leads
/// elsewhere (as Kubernetes swaps them), and a rewritten file each have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Session {
    /// Reads the files of `access` and prepares a client. `dial` replaces the network.
    ///
    /// # Errors
    /// When a file that is needed cannot be read, or makes no sense; the text names it.
    pub(super) async fn load(
        access: &Access,
        dial: Option<Dial>,
        connect_timeout: Duration,
    ) -> io::Result<Self> {
        let access = access.clone();
        // Reads files, and may run a kubeconfig's credential plugin.
        let work = move || load_blocking(&access, dial, connect_timeout);
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    }

    /// Returns `true` if a file is no longer the one that was read.
    pub(super) fn is_stale(&self) -> bool {
        self.files.iter().any(|(path, stamp)| *stamp != Stamp::of(path))
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The files read so far. Each is stamped before it is read: what changes in between counts as changed.
#[derive(Default)]
struct Files(Vec<(PathBuf, Option<Stamp>)>);

impl Files {
    fn note(&mut self, path: &Path) {
        self.0.push((path.to_owned(), Stamp::of(path)));
    }

    /// Reads a file; `None` if there is no file or nothing in it.
    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.note(path);
        match fs::read(path) {
            Ok(content) if content.is_empty() => Ok(None),
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(bad_file(path, &error)),
        }
    }
}

fn load_blocking(access: &Access, dial: Option<Dial>, connect_timeout: Duration) -> io::Result<Session> {
    let mut files = Files::default();
    let (config, proxies) = match &access.source {
        Source::Server { base, settings } => (server(base, settings, &mut files)?, Matcher::from_env()),
        Source::Kubeconfig { path, context } => {
            let config = kubeconfig(path.as_deref(), context.as_deref(), &mut files)?;
            let proxies = config.proxy_url.as_ref().map(|proxy| Matcher::builder().all(proxy.to_string()));
            (config, proxies.unwrap_or_default().build())
        }
    };
    let dial = match dial {
        Some(dial) => dial,
        None => dial::network(&config.cluster_url, &proxies, connect_timeout, access.mark)?,
    };
    let has_plugin = config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some();
    let http = client(&config, dial).map_err(io::Error::other)?;
    Ok(Session { http, made: Instant::now(), files: files.0, has_plugin })
}

/// Creates a client that uses HTTP/2 where the server speaks it (every API server does), which carries all watches in
/// one connection.
fn client(
    config: &Config,
    dial: Dial,
) -> Result<BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>, BoxError> {
    let mut https =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into()?));
    }
    let http = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(https.enable_all_versions().wrap_connector(dial));
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(BoxCloneSyncService::new(stack))
}

fn server(base: &Uri, settings: &ServerSettings, files: &mut Files) -> io::Result<Config> {
    let mut config = Config::new(base.clone());
    config.accept_invalid_certs = settings.insecure;
    config.auth_info.token = token(settings, files)?.map(Into::into);
    let given = authorities(settings, files)?;
    if !settings.insecure && !given.is_empty() {
        let system = if settings.system_roots { system_roots() } else { Vec::new() };
        config.root_cert = Some(given.into_iter().chain(system).collect());
    }
    Ok(config)
}

fn token(settings: &ServerSettings, files: &mut Files) -> io::Result<Option<String>> {
    let Some(path) = settings.token_file.as_deref() else { return Ok(settings.token.clone()) };
    let Some(bytes) = files.read(path)? else {
        let plain = settings.token.clone();
        return plain.map(Some).ok_or_else(|| bad_file(path, "there is no token"));
    };
    let text = String::from_utf8(bytes).map_err(|_| bad_file(path, "is not text"))?;
    let token = text.trim();
    check_token(token).map_err(|reason| bad_file(path, reason))?;
    Ok(Some(token.to_owned()))
}

fn authorities(settings: &ServerSettings, files: &mut Files) -> io::Result<Vec<Vec<u8>>> {
    if let Some(path) = settings.ca_file.as_deref()
        && let Some(pem) = files.read(path)?
    {
        return certificates(&pem).map_err(|reason| bad_file(path, reason));
    }
    let Some(ca) = &settings.ca else { return Ok(Vec::new()) };
    pem_of(ca)
        .and_then(|pem| certificates(&pem))
        .map_err(|reason| io::Error::other(format!("the CA {reason}")))
}

/// Returns the system's authorities, without those that cannot be used: one bad file there must not cost the
/// connection.
fn system_roots() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::debug!(%error, "a certificate authority of the system cannot be read");
    }
    let usable = |der: &rustls::pki_types::CertificateDer<'static>| {
        rustls::RootCertStore::empty().add(der.clone()).is_ok()
    };
    found.certs.into_iter().filter(usable).map(|der| der.to_vec()).collect()
}

fn kubeconfig(path: Option<&Path>, context: Option<&str>, files: &mut Files) -> io::Result<Config> {
    let whole = match path {
        Some(path) => {
            files.note(path);
            Kubeconfig::read_from(path)
        }
        None => {
            for path in kubeconfig_paths() {
                files.note(&path);
            }
            Kubeconfig::read()
        }
    };
    let named = || path.map_or_else(|| "kubeconfig".to_owned(), |path| path.display().to_string());
    let wrong = |error: kube::config::KubeconfigError| io::Error::other(format!("{}: {error}", named()));
    let whole = whole.map_err(wrong)?;
    for cluster in whole.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        cluster.certificate_authority.iter().for_each(|path| files.note(Path::new(path)));
    }
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config =
        futures::executor::block_on(Config::from_custom_kubeconfig(whole, &options)).map_err(wrong)?;
    let user = &config.auth_info;
    for path in [&user.token_file, &user.client_certificate, &user.client_key].into_iter().flatten() {
        files.note(Path::new(path));
    }
    Ok(config)
}

fn kubeconfig_paths() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG") {
        Some(paths) if !paths.is_empty() => std::env::split_paths(&paths).collect(),
        _ => std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect(),
    }
}

fn bad_file(path: &Path, reason: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {reason}", path.display()))
}

/// Our name in the API server's audit log.
pub(super) const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("trieste/", env!("CARGO_PKG_VERSION")));

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = include_str!("tests/authority.pem");

    fn settings(dir: &Path) -> ServerSettings {
        let settings = ServerSettings { server: "b:1".to_owned(), ..ServerSettings::default() };
        settings.with_secret_dir(dir)
    }

    fn loaded(settings: &ServerSettings) -> io::Result<Config> {
        server(&Uri::from_static("https://b:1"), settings, &mut Files::default())
    }

    #[test]
    fn files_of_the_secret_win_over_plain_values_and_stand_in_for_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let plain = ServerSettings {
            token: Some("plain".to_owned()),
            ca: Some(PEM.to_owned()),
            ..settings(dir.path())
        };
        let read = |settings: &ServerSettings| token(settings, &mut Files::default()).unwrap();
        assert_eq!(read(&plain).as_deref(), Some("plain"));
        assert_eq!(loaded(&plain).unwrap().root_cert.unwrap().len(), 1);
        fs::write(dir.path().join("token"), "from-file\n").unwrap();
        assert_eq!(read(&plain).as_deref(), Some("from-file"));
        fs::write(dir.path().join("ca.crt"), format!("{PEM}{PEM}")).unwrap();
        assert_eq!(loaded(&plain).unwrap().root_cert.unwrap().len(), 2);
    }

    #[test]
    fn a_file_that_is_needed_is_named_when_it_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let error = loaded(&settings(dir.path())).unwrap_err().to_string();
        assert!(error.contains("/token: there is no token"), "{error}");
        fs::write(dir.path().join("token"), "two words").unwrap();
        let error = loaded(&settings(dir.path())).unwrap_err().to_string();
        assert!(error.contains("/token: has characters"), "{error}");
        fs::write(dir.path().join("token"), "word").unwrap();
        fs::write(dir.path().join("ca.crt"), "half a fi").unwrap();
        let error = loaded(&settings(dir.path())).unwrap_err().to_string();
        assert!(error.contains("/ca.crt: has no certificate"), "{error}");
    }

    #[test]
    fn the_systems_authorities_are_trusted_beside_the_given_ones_where_asked() {
        let dir = tempfile::tempdir().unwrap();
        let given =
            ServerSettings { token: Some("t".to_owned()), ca: Some(PEM.to_owned()), ..settings(dir.path()) };
        let broker = ServerSettings { system_roots: true, ..given.clone() };
        let count = |settings| loaded(settings).unwrap().root_cert.unwrap().len();
        assert_eq!(count(&broker), count(&given) + system_roots().len());
        let insecure = ServerSettings { insecure: true, ..broker };
        assert!(loaded(&insecure).unwrap().accept_invalid_certs);
    }

    #[test]
    fn a_swapped_link_is_a_changed_file() {
        // The way in which the kubelet replaces a mounted secret: `token` -> `..data/token`, `..data` -> a directory.
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (version, token) in [("v1", "old"), ("v2", "new")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("token"), token).unwrap();
        }
        std::os::unix::fs::symlink("v1", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/token", at("token")).unwrap();
        let settings = ServerSettings { token_file: Some(at("token")), ..ServerSettings::default() };
        let mut files = Files::default();
        assert_eq!(token(&settings, &mut files).unwrap().as_deref(), Some("old"));
        assert!(files.0.iter().all(|(path, stamp)| *stamp == Stamp::of(path)));
        std::os::unix::fs::symlink("v2", at("..tmp")).unwrap();
        fs::rename(at("..tmp"), at("..data")).unwrap();
        assert!(files.0.iter().any(|(path, stamp)| *stamp != Stamp::of(path)));
        assert_eq!(token(&settings, &mut files).unwrap().as_deref(), Some("new"));
    }
}
