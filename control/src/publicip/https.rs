//! One HTTPS GET: bounded in time and size, through a proxy where the environment names one.
//!
//! Made of what Kubernetes' client brings along anyway (hyper, rustls with ring, the system's certificates), which
//! leaves us redirects and bounds to write; a client of its own would bring a second pool and a cookie jar.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

use super::error::LookupError;

/// Ours: how much of an answer is read, in bytes. A page that has the address further down is of no use.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Ours: most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// An HTTPS client for small questions.
#[derive(Debug)]
pub struct HttpsClient {
    proxies: Matcher,
    roots: Option<Arc<RootCertStore>>,
}

impl HttpsClient {
    /// Creates a client with proxies as `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say at this moment, and certificates
    /// of the system or of `SSL_CERT_FILE`, read anew for each question, so that a renewed bundle counts.
    pub fn from_environment() -> Self {
        Self { proxies: Matcher::from_env(), roots: None }
    }

    /// Creates a client that believes `roots` only.
    pub fn new(proxies: Matcher, roots: RootCertStore) -> Self {
        Self { proxies, roots: Some(Arc::new(roots)) }
    }

    /// Fetches the first [`MAX_BODY_BYTES`] of an `https` address, after redirects. Sets no bound of time.
    ///
    /// # Errors
    /// [`LookupError::Http`].
    pub async fn fetch(&self, url: &str) -> Result<Vec<u8>, LookupError> {
        let mut url: Uri = url.parse().map_err(|error| failed(format!("`{url}` is no URL: {error}")))?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.ask(&url).await?;
            let status = response.status();
            if status.is_redirection() {
                url = redirected(&url, &response)?;
                continue;
            }
            if !status.is_success() {
                return Err(failed(format!("{} answers {status}", url.host().unwrap_or_default())));
            }
            return start_of(response.into_body()).await;
        }
        Err(failed(format!("more than {MAX_REDIRECTS} redirects")))
    }

    async fn ask(&self, url: &Uri) -> Result<Response<Incoming>, LookupError> {
        let tls = self.tls().await?;
        let secure = || HttpsConnectorBuilder::new().with_tls_config(tls.clone());
        let Some(proxy) = self.proxies.intercept(url) else {
            return send(secure().https_only().enable_http1().build(), url).await;
        };
        if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) {
            return Err(failed(format!("{} is no HTTP proxy, and no other kind is supported", proxy.uri())));
        }
        // The way to the proxy may be TLS or not; the tunnel through it always carries TLS of its own.
        let to_proxy = secure().https_or_http().enable_http1().build();
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let through = secure().https_only().enable_http1().wrap_connector(tunnel);
        send(through, url).await.map_err(|error| failed(format!("through proxy {}: {error}", proxy.uri())))
    }

    async fn tls(&self) -> Result<ClientConfig, LookupError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?;
        if let Some(roots) = &self.roots {
            return Ok(builder.with_root_certificates(Arc::clone(roots)).with_no_client_auth());
        }
        let load = tokio::task::spawn_blocking(move || builder.with_native_roots());
        let loaded = load.await.map_err(|error| failed(error.to_string()))?;
        let why = "no CA certificates (install ca-certificates, or set SSL_CERT_FILE)";
        Ok(loaded.map_err(|error| failed(format!("{why}: {error}")))?.with_no_client_auth())
    }
}

async fn send<C>(connector: C, url: &Uri) -> Result<Response<Incoming>, LookupError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let host = url.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
    let request = Request::get(url.clone())
        .header(HOST, host)
        // Some services answer browsers with a page and everybody else with the address.
        .header(USER_AGENT, concat!("trieste/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "text/plain, */*")
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(error.to_string()))?;
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    client.request(request).await.map_err(|error| failed(chain(&error)))
}

/// Returns the target of a redirect: `https` only, or a stranger may read it on the way.
fn redirected(from: &Uri, response: &Response<Incoming>) -> Result<Uri, LookupError> {
    let host = from.host().unwrap_or_default();
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let to = match location.starts_with('/') && !location.starts_with("//") {
        true => {
            format!("https://{}{location}", from.authority().map_or(host, |authority| authority.as_str()))
        }
        false => location.to_owned(),
    };
    let uri = to.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
    uri.ok_or_else(|| {
        failed(format!("{host} redirects to `{}`, which is no https address", location.escape_debug()))
    })
}

async fn start_of(mut body: Incoming) -> Result<Vec<u8>, LookupError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed(chain(&error)))?;
        let Some(data) = frame.data_ref() else { continue };
        let space = MAX_BODY_BYTES - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(space)]);
        if bytes.len() == MAX_BODY_BYTES {
            break;
        }
    }
    Ok(bytes)
}

fn failed(reason: String) -> LookupError {
    LookupError::Http(reason)
}

/// Formats an error with its causes; hyper's own text is "client error (Connect)".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
