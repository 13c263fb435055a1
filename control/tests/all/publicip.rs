//! The public address over real sockets: HTTPS with a certificate authority of our own, a proxy, a Service in a store.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use tokio::time::timeout;
use trieste_control::api::{Kind, Object, ObjectMeta};
use trieste_control::https::HttpsClient;
use trieste_control::publicip::{
    Lookup as _, LookupError, MAX_BODY_BYTES, NetworkLookup, PublicIpWatcher, Resolvers, resolve,
};
use trieste_control::store::{DirStore, Store as _};

const NAMESPACE: &str = "submariner-operator";

#[tokio::test]
async fn an_https_service_gives_the_address_also_after_redirects() {
    let server = serve();
    for path in ["ok", "moved", "moved-far"] {
        let list = Resolvers::read(&format!("api:{server}/{path}"));
        let found = resolve(&list, &lookup(direct()).0).await.unwrap();
        assert_eq!(found.address.to_string(), "192.0.2.7", "{path}");
    }
}

#[tokio::test]
async fn the_first_resolver_that_fails_is_passed_over() {
    let server = serve();
    let list = Resolvers::read(&format!("api:{server}/missing,api:{server}/ok"));
    let found = resolve(&list, &lookup(direct()).0).await.unwrap();
    assert_eq!(found.resolver.to_string(), format!("api:{server}/ok"));
}

#[tokio::test]
async fn what_goes_wrong_is_said() {
    let server = serve();
    for (path, reason) in [
        ("missing", "127.0.0.1 answers 404 Not Found"),
        ("loop", "more than 5 redirects"),
        ("plain", "redirects to `http://127.0.0.1/ok`, which is no https address"),
        ("broken", "client error"),
        ("huge", "the answer holds no address of a host"),
        ("bytes", "the answer holds no address of a host"),
    ] {
        let list = Resolvers::read(&format!("api:{server}/{path}"));
        let error = resolve(&list, &lookup(direct()).0).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound() {
    let body = direct().fetch(&format!("https://{}/huge", serve()), MAX_BODY_BYTES).await.unwrap();
    assert_eq!(body.len(), MAX_BODY_BYTES);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_believed() {
    let client = HttpsClient::new(Matcher::builder().build(), RootCertStore::empty());
    let error =
        client.fetch(&format!("https://{}/ok", serve()), MAX_BODY_BYTES).await.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_after_thirty_seconds() {
    let started = tokio::time::Instant::now();
    let answer = lookup(direct()).0.fetch(&format!("https://{}/never", serve())).await;
    assert!(matches!(answer, Err(LookupError::TimedOut)), "{answer:?}");
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_but_for_its_exceptions() {
    let (proxy, asked) = serve_proxy(serve());
    let url = "https://ip.example/ok";
    let proxied = |exceptions: &str| {
        let address = format!("http://user:word@{proxy}");
        HttpsClient::new(Matcher::builder().https(address).no(exceptions.to_owned()).build(), roots())
    };

    let body = proxied("other.example").fetch(url, MAX_BODY_BYTES).await.unwrap();
    assert_eq!(body, b"192.0.2.7\n");
    let request = asked.lock().unwrap().join("");
    assert!(request.starts_with("CONNECT ip.example:443 HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("proxy-authorization: basic dxnlcjp3b3jk"), "{request}");

    let server = serve();
    proxied("127.0.0.0/8").fetch(&format!("https://{server}/ok"), MAX_BODY_BYTES).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 1, "the exception went through the proxy");
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_none_is_named() {
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = refusing.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = refusing.accept().unwrap();
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").unwrap();
    });
    for (proxy, reason) in [
        (format!("http://{address}"), format!("through proxy http://{address}/")),
        ("socks5://127.0.0.1:1".to_owned(), "no HTTP proxy".to_owned()),
    ] {
        let client = HttpsClient::new(Matcher::builder().https(proxy).build(), roots());
        let error = client.fetch("https://ip.example/ok", MAX_BODY_BYTES).await.unwrap_err().to_string();
        assert!(error.contains(&reason), "{error}");
        assert!(!error.contains("word"), "{error}");
    }
}

#[tokio::test]
async fn names_go_to_the_systems_resolver_and_what_it_says_is_said() {
    let (lookup, _directory) = lookup(direct());
    assert_eq!(lookup.addresses("localhost").await.unwrap(), ["127.0.0.1".parse::<Ipv4Addr>().unwrap()]);
    let error = resolve(&Resolvers::read("dns:localhost"), &lookup).await.unwrap_err().to_string();
    assert_eq!(error, "dns:localhost: no A record for localhost", "loopback is nobody's public address");
    // A name that is refused before anybody is asked.
    let error = lookup.addresses("no\0name").await.unwrap_err().to_string();
    assert!(error.starts_with("cannot resolve no\0name: "), "{error}");
}

#[tokio::test]
async fn the_watcher_follows_a_load_balancers_ingress() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(DirStore::open(directory.path()).unwrap());
    let watcher =
        PublicIpWatcher::spawn(direct(), Arc::clone(&store), NAMESPACE, Resolvers::read("lb:gw"), None);
    let mut public_ip = watcher.public_ip.clone();
    let soon = Duration::from_secs(20);

    let failed = timeout(soon, public_ip.wait_for(|ip| ip.error.is_some())).await.unwrap().unwrap().clone();
    assert!(failed.error.unwrap().contains("lb:gw: there is no such Service"));
    assert!(failed.is_load_balancer && failed.next_try.is_some());

    // Both well before a regular round: five seconds, then a minute.
    let mut service = store.create(service("192.0.2.7")).await.unwrap();
    let is =
        |text: &'static str| move |ip: &trieste_control::publicip::PublicIp| ip.address == text.parse().ok();
    timeout(soon, public_ip.wait_for(is("192.0.2.7"))).await.unwrap().unwrap();

    service.body.insert("status".to_owned(), json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}}));
    store.update(service).await.unwrap();
    timeout(soon, public_ip.wait_for(is("192.0.2.8"))).await.unwrap().unwrap();
}

/// Questions to the world, about Services in an empty store.
fn lookup(client: HttpsClient) -> (NetworkLookup<DirStore>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = DirStore::open(directory.path()).unwrap();
    (NetworkLookup::new(client, store, NAMESPACE), directory)
}

fn service(ip: &str) -> Object {
    let mut object = Object::new(Kind::Service, ObjectMeta::new(NAMESPACE, "gw"));
    object.body.insert("status".to_owned(), json!({"loadBalancer": {"ingress": [{"ip": ip}]}}));
    object
}

/// A client that knows no proxy and believes our authority.
fn direct() -> HttpsClient {
    HttpsClient::new(Matcher::builder().build(), roots())
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(include_bytes!("../publicip/ca.pem")).unwrap()).unwrap();
    roots
}

/// An HTTPS server on loopback, until the process ends.
fn serve() -> SocketAddr {
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("../publicip/server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../publicip/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.unwrap(), Arc::clone(&config));
            thread::spawn(move || answer(stream, config, address));
        }
    });
    address
}

/// Answers one request. Clients that leave early are not this server's problem.
fn answer(stream: TcpStream, config: Arc<ServerConfig>, address: SocketAddr) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let head = read_head(&mut stream);
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let answer: Vec<u8> = match path.as_str() {
        "/ok" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n192.0.2.7\n".to_vec(),
        "/moved" => b"HTTP/1.1 302 Found\r\nlocation: /ok\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/moved-far" => {
            format!("HTTP/1.1 301 Moved\r\nlocation: https://{address}/ok\r\ncontent-length: 0\r\n\r\n")
                .into()
        }
        "/loop" => b"HTTP/1.1 302 Found\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/plain" => {
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/ok\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        "/broken" => b"\x00\xff\x16 what\r\n\r\n".to_vec(),
        "/huge" => {
            let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n".to_vec();
            answer.resize(answer.len() + 9_999_990, b'x');
            answer.extend(b" 192.0.2.7");
            answer
        }
        "/bytes" => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\xff\x00.\xfe".to_vec(),
        "/never" => return thread::park(),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    };
    let _ = stream.write_all(&answer);
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// A proxy that tunnels everything to `target`; gives what it was asked, too.
fn serve_proxy(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut near = stream.unwrap();
            note.lock().unwrap().push(read_head(&mut near));
            near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let far = TcpStream::connect(target).unwrap();
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (address, asked)
}

/// A request up to its empty line.
fn read_head(stream: &mut impl std::io::Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    // One byte at a time: what follows is somebody else's.
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}
