//! How to reach an API server: which settings there are, and which of them make no sense.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use http::Uri;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Where Kubernetes mounts a pod's own credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// An API server and the credentials for it. Files are named here and read when the connection is made, and again when
/// they change; a missing one is an outage and no error of construction.
#[derive(Clone, Debug)]
pub struct Access {
    pub(super) source: Source,
    /// The mark of the sockets (`SO_MARK`).
    pub(super) mark: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Kubeconfig { path: Option<PathBuf>, context: Option<String> },
    Server { base: Uri, settings: ServerSettings },
}

/// An API server that is named by single settings, as a broker is. A file wins over the value beside it while the file
/// is there and is not empty.
#[derive(Clone, Default)]
pub struct ServerSettings {
    /// `HOST:PORT` or `https://HOST:PORT`.
    pub server: String,
    /// Bearer token.
    pub token: Option<String>,
    /// File with the bearer token; read again when it changes.
    pub token_file: Option<PathBuf>,
    /// Certificate authorities: PEM, or PEM in base64 (as `BROKER_K8S_CA` has it).
    pub ca: Option<String>,
    /// File with certificate authorities in PEM; read again when it changes.
    pub ca_file: Option<PathBuf>,
    /// Does not check the server's certificate.
    pub insecure: bool,
    /// Trusts the system's certificate authorities beside the given ones. A broker may have either: upstream tries the
    /// system's first, then the given. Without any given ones the system's are always trusted.
    pub system_roots: bool,
}

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server's {setting} {reason}")]
pub struct AccessError {
    /// Which setting: `server`, `token` or `CA`; the caller knows what it calls it.
    pub setting: &'static str,
    /// The reason why it is invalid, without secrets.
    pub reason: String,
}

impl Access {
    /// Returns the API server of the cluster that this process runs in as a pod: the address of the environment, the
    /// service account's token and certificate authority.
    ///
    /// # Errors
    /// [`AccessError`] outside a pod.
    pub fn in_cluster() -> Result<Self, AccessError> {
        let host = std::env::var("KUBERNETES_SERVICE_HOST").unwrap_or_default();
        if host.is_empty() {
            let reason = "is not known: KUBERNETES_SERVICE_HOST is not set; is this a pod?".to_owned();
            return Err(AccessError { setting: "server", reason });
        }
        let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let server = format!("{host}:{port}");
        Self::server(ServerSettings { server, ..ServerSettings::default() }.with_secret_dir(SERVICE_ACCOUNT))
    }

    /// Returns the API server of a kubeconfig file, in its current context or another.
    pub fn kubeconfig(path: impl Into<PathBuf>, context: Option<String>) -> Self {
        Self::of(Source::Kubeconfig { path: Some(path.into()), context })
    }

    /// Infers the API server: in a pod, the cluster's own; elsewhere that of `KUBECONFIG` or `~/.kube/config`.
    pub fn inferred() -> Self {
        Self::in_cluster().unwrap_or(Self::of(Source::Kubeconfig { path: None, context: None }))
    }

    /// Returns the API server that a [`Location::Kube`](crate::store::Location::Kube) of these parts names.
    pub fn located(path: Option<PathBuf>, context: Option<String>) -> Self {
        match path {
            Some(path) => Self::kubeconfig(path, context),
            None => Self::inferred(),
        }
    }

    /// Returns the API server of these settings.
    ///
    /// # Errors
    /// [`AccessError`] naming the setting that makes no sense. The content of files is not checked here.
    pub fn server(settings: ServerSettings) -> Result<Self, AccessError> {
        let base = base_uri(&settings.server).map_err(|reason| AccessError { setting: "server", reason })?;
        if let Some(token) = &settings.token {
            check_token(token).map_err(|reason| AccessError { setting: "token", reason })?;
        }
        if let Some(ca) = &settings.ca {
            pem_of(ca)
                .and_then(|pem| certificates(&pem))
                .map_err(|reason| AccessError { setting: "CA", reason })?;
        }
        Ok(Self::of(Source::Server { base, settings }))
    }

    /// Returns the same server with marked connections: no route to a remote cluster applies to them, whatever members
    /// claim. A process that may not mark sockets (`CAP_NET_ADMIN`, since Linux 5.17 also `CAP_NET_RAW`) goes without.
    #[must_use]
    pub const fn marked(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    pub(super) const fn of(source: Source) -> Self {
        Self { source, mark: None }
    }
}

impl ServerSettings {
    /// Takes token and certificate authority from the files `token` and `ca.crt` of this directory, where
    /// `BROKER_K8S_SECRET` or a service account is mounted. The plain values are used while a file is missing.
    #[must_use]
    pub fn with_secret_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.token_file = Some(dir.as_ref().join("token"));
        self.ca_file = Some(dir.as_ref().join("ca.crt"));
        self
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Server { base, .. } => f.write_str(base.to_string().trim_end_matches('/')),
            Source::Kubeconfig { path: None, .. } => f.write_str("the API server of the kubeconfig"),
            Source::Kubeconfig { path: Some(path), context: None } => {
                write!(f, "the API server of {}", path.display())
            }
            Source::Kubeconfig { path: Some(path), context: Some(context) } => {
                write!(f, "the API server of {}, context {context}", path.display())
            }
        }
    }
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings")
            .field("server", &self.server)
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("token_file", &self.token_file)
            .field("ca", &self.ca.is_some())
            .field("ca_file", &self.ca_file)
            .field("insecure", &self.insecure)
            .field("system_roots", &self.system_roots)
            .finish()
    }
}

fn base_uri(server: &str) -> Result<Uri, String> {
    let example = "expected HOST:PORT, such as broker.example.com:6443";
    if server.is_empty() {
        return Err(format!("is empty; {example}"));
    }
    if server.starts_with("http://") {
        return Err(format!("`{server}` has no encryption; {example}"));
    }
    let text = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
    let wrong = |why: &str| format!("`{}` {why}; {example}", server.escape_debug());
    let uri: Uri = text.parse().map_err(|error| wrong(&format!("is no address ({error})")))?;
    match uri.authority() {
        _ if uri.scheme_str() != Some("https") => Err(wrong("has a scheme other than https")),
        Some(authority) if authority.as_str().contains('@') => Err(wrong("has a user name")),
        Some(authority) if !authority.host().is_empty() => Ok(uri),
        _ => Err(wrong("has no host")),
    }
}

/// Checks that a token is one word: it becomes part of a header.
pub(super) fn check_token(token: &str) -> Result<(), String> {
    match token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true if !token.is_empty() => Ok(()),
        true => Err("is empty".to_owned()),
        false => Err("has characters that no token has (spaces, line breaks?)".to_owned()),
    }
}

/// Returns PEM as it is, or decoded from base64.
pub(super) fn pem_of(ca: &str) -> Result<Vec<u8>, String> {
    if ca.contains("-----BEGIN") {
        return Ok(ca.as_bytes().to_vec());
    }
    let dense: String = ca.chars().filter(|c| !c.is_whitespace()).collect();
    base64::engine::general_purpose::STANDARD
        .decode(dense)
        .map_err(|error| format!("is neither PEM nor base64 ({error})"))
}

/// Parses the certificates of a PEM text; at least one.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("is not PEM ({error})"))?;
    if certificates.is_empty() {
        return Err("has no certificate in it".to_owned());
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(server: &str) -> Result<Access, AccessError> {
        Access::server(ServerSettings { server: server.to_owned(), ..ServerSettings::default() })
    }

    #[test]
    fn a_server_is_named_with_or_without_its_scheme() {
        for (text, expected) in [
            ("broker:6443", "https://broker:6443"),
            ("https://broker:6443", "https://broker:6443"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443"),
            ("https://rancher.example.com/k8s/clusters/c-1", "https://rancher.example.com/k8s/clusters/c-1"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_named() {
        for text in ["", "http://broker:80", "ftp://x", "a b", "https://", "user@host:1"] {
            let error = server(text).unwrap_err();
            assert!(error.to_string().contains("API server's server"), "{error}");
        }
        let settings = ServerSettings { server: "b:1".to_owned(), ..ServerSettings::default() };
        let with_token = ServerSettings { token: Some("a\nb".to_owned()), ..settings.clone() };
        assert_eq!(Access::server(with_token).unwrap_err().setting, "token");
        for ca in ["%%%", "", "aGVsbG8=", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
            let with_ca = ServerSettings { ca: Some(ca.to_owned()), ..settings.clone() };
            assert_eq!(Access::server(with_ca).unwrap_err().setting, "CA", "{ca:?}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let settings = ServerSettings {
            server: "b:1".to_owned(),
            token: Some("hush".to_owned()),
            ..ServerSettings::default()
        };
        assert!(!format!("{:?}", Access::server(settings).unwrap()).contains("hush"));
    }
}
