//! One HTTPS request: bounded in size, through a proxy where the environment names one.
//!
//! Made of what Kubernetes' client brings along anyway (hyper, rustls with ring, the system's certificates), which
//! leaves us redirects and bounds to write; a client of its own would bring a second pool and a cookie jar.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Ours: most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// Why there is no answer; the text has where.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct HttpError(String);

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

    /// Believes the certificates of a PEM file instead of the system's.
    ///
    /// # Errors
    /// [`HttpError`] if the file cannot be read, or has none.
    pub fn believing(self, file: &Path) -> Result<Self, HttpError> {
        let named = |error: &dyn std::fmt::Display| {
            failed(format!("cannot read CA certificates from {}: {error}", file.display()))
        };
        let pem = std::fs::read(file).map_err(|error| named(&error))?;
        let roots = authorities(&pem).map_err(|error| named(&error))?;
        Ok(Self { roots: Some(Arc::new(roots)), ..self })
    }

    /// Believes the certificates of a PEM text instead of the system's.
    ///
    /// # Errors
    /// [`HttpError`] if one is damaged, or it has none.
    pub fn believing_pem(self, pem: &[u8]) -> Result<Self, HttpError> {
        let roots =
            authorities(pem).map_err(|error| failed(format!("cannot read CA certificates: {error}")))?;
        Ok(Self { roots: Some(Arc::new(roots)), ..self })
    }

    /// Fetches the first `most` bytes of an `https` address, after redirects. Sets no bound of time.
    ///
    /// # Errors
    /// [`HttpError`] if there is no answer, or one without success.
    pub async fn fetch(&self, url: &str, most: usize) -> Result<Vec<u8>, HttpError> {
        let mut url: Uri = url.parse().map_err(|error| failed(format!("`{url}` is no URL: {error}")))?;
        for _ in 0..=MAX_REDIRECTS {
            let question = Request::get(url.clone())
                .header(ACCEPT, "text/plain, */*")
                .body(Bytes::new())
                .map_err(|error| failed(error.to_string()))?;
            let response = self.ask(question, false).await?;
            let status = response.status();
            if status.is_redirection() {
                url = redirected(&url, &response)?;
                continue;
            }
            if !status.is_success() {
                return Err(failed(format!("{} answers {status}", url.host().unwrap_or_default())));
            }
            return start_of(response.into_body(), most).await;
        }
        Err(failed(format!("more than {MAX_REDIRECTS} redirects")))
    }

    /// Sends one request and returns the answer, whatever its status, with the first `most` bytes of its body. Follows no redirect
    /// and sets no bound of time. An address with `http` is asked in clear: give such a one only where somebody has named it so.
    ///
    /// # Errors
    /// [`HttpError`] if there is no answer.
    pub async fn exchange(
        &self,
        request: Request<Bytes>,
        most: usize,
    ) -> Result<Response<Vec<u8>>, HttpError> {
        let (parts, body) = self.ask(request, true).await?.into_parts();
        Ok(Response::from_parts(parts, start_of(body, most).await?))
    }

    async fn ask(&self, request: Request<Bytes>, in_clear: bool) -> Result<Response<Incoming>, HttpError> {
        let tls = self.tls().await?;
        let secure = || HttpsConnectorBuilder::new().with_tls_config(tls.clone());
        if in_clear && request.uri().scheme_str() == Some("http") {
            return send(secure().https_or_http().enable_http1().build(), request).await;
        }
        let Some(proxy) = self.proxies.intercept(request.uri()) else {
            return send(secure().https_only().enable_http1().build(), request).await;
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
        send(through, request)
            .await
            .map_err(|error| failed(format!("through proxy {}: {error}", proxy.uri())))
    }

    async fn tls(&self) -> Result<ClientConfig, HttpError> {
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

/// Reads all certificates of a PEM text. The error is what is wrong with it, and has nothing of it.
fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is none".to_owned()) } else { Ok(roots) }
}

/// Returns a text as a part of a query: everything but letters, digits and `-._~` as `%XX`.
pub fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a String takes everything");
        }
        escaped
    })
}

async fn send<C>(connector: C, mut request: Request<Bytes>) -> Result<Response<Incoming>, HttpError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let host = request.uri().authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(host).map_err(|error| failed(error.to_string()))?;
    let headers = request.headers_mut();
    headers.entry(HOST).or_insert(host);
    // Some services answer browsers with a page and everybody else with the address.
    let own = HeaderValue::from_static(concat!("trieste/", env!("CARGO_PKG_VERSION")));
    headers.entry(USER_AGENT).or_insert(own);
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    client.request(request.map(Full::new)).await.map_err(|error| failed(chain(&error)))
}

/// Returns the target of a redirect: `https` only, or a stranger may read it on the way.
fn redirected(from: &Uri, response: &Response<Incoming>) -> Result<Uri, HttpError> {
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

async fn start_of(mut body: Incoming, most: usize) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed(chain(&error)))?;
        let Some(data) = frame.data_ref() else { continue };
        let space = most - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(space)]);
        if bytes.len() == most {
            break;
        }
    }
    Ok(bytes)
}

fn failed(reason: String) -> HttpError {
    HttpError(reason)
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
