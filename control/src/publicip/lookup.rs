//! The questions of resolvers: the trait, and its implementation for the network.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;

use super::error::{LookupError, TIMEOUT};
use super::spec::is_host;
use crate::api::{Kind, Object, ObjectKey};
use crate::https::HttpsClient;
use crate::store::Store;

/// Ours: how much of an answer is read, in bytes. A page that has the address further down is of no use.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Ours: most addresses of one name that are looked at.
const MAX_RECORDS: usize = 256;

/// The questions of resolvers. Every question ends by itself within half a minute.
pub trait Lookup: Send + Sync + 'static {
    /// Fetches the start of the document at an HTTPS address.
    ///
    /// # Errors
    /// [`LookupError`].
    fn fetch(&self, url: &str) -> impl Future<Output = Result<Vec<u8>, LookupError>> + Send;

    /// Resolves a name to its IPv4 addresses.
    ///
    /// # Errors
    /// [`LookupError`].
    fn addresses(&self, name: &str) -> impl Future<Output = Result<Vec<Ipv4Addr>, LookupError>> + Send;

    /// Returns the address at which a Service of type LoadBalancer in our namespace is reached.
    ///
    /// # Errors
    /// [`LookupError`].
    fn ingress(&self, service: &str) -> impl Future<Output = Result<Ingress, LookupError>> + Send;
}

/// Where a load balancer is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ingress {
    /// At an address.
    Ip(IpAddr),
    /// At a name, as some clouds have it.
    Hostname(String),
}

/// The world: HTTPS through the proxy that the environment names, the system's name resolution, Services in a store.
#[derive(Debug)]
pub struct NetworkLookup<S> {
    client: HttpsClient,
    store: S,
    namespace: String,
}

impl<S: Store> NetworkLookup<S> {
    /// Creates a lookup for the Services of `namespace` in `store`.
    pub fn new(client: HttpsClient, store: S, namespace: impl Into<String>) -> Self {
        Self { client, store, namespace: namespace.into() }
    }

    /// Returns a Service's name in the store.
    pub fn service_key(&self, service: &str) -> ObjectKey {
        ObjectKey::new(Kind::Service, &self.namespace, service)
    }
}

impl<S: Store> Lookup for NetworkLookup<S> {
    async fn fetch(&self, url: &str) -> Result<Vec<u8>, LookupError> {
        in_time(async { Ok(self.client.fetch(url, MAX_BODY_BYTES).await?) }).await
    }

    async fn addresses(&self, name: &str) -> Result<Vec<Ipv4Addr>, LookupError> {
        let found = in_time(async {
            tokio::net::lookup_host((name, 0)).await.map_err(|error| LookupError::Dns(name.to_owned(), error))
        });
        let v4 = |address: SocketAddr| match address.ip() {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        };
        Ok(found.await?.filter_map(v4).take(MAX_RECORDS).collect())
    }

    async fn ingress(&self, service: &str) -> Result<Ingress, LookupError> {
        let key = self.service_key(service);
        let object = in_time(async { Ok(self.store.get(&key).await?) }).await?;
        read_ingress(&object.ok_or(LookupError::NoService)?)
    }
}

async fn in_time<T>(question: impl Future<Output = Result<T, LookupError>>) -> Result<T, LookupError> {
    tokio::time::timeout(TIMEOUT, question).await.unwrap_or(Err(LookupError::TimedOut))
}

/// Returns the first ingress of a Service: its address, else its name.
fn read_ingress(service: &Object) -> Result<Ingress, LookupError> {
    let status = service.body.get("status").unwrap_or(&Value::Null);
    let first = status.pointer("/loadBalancer/ingress/0").ok_or(LookupError::NoIngress)?;
    let text = |field: &str| first.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let invalid = |field: &'static str, value: &str| LookupError::Ingress {
        field,
        value: value.chars().take(100).flat_map(char::escape_debug).collect(),
    };
    if let Some(ip) = text("ip") {
        let address: Option<IpAddr> = ip.parse().ok().filter(|address| is_host(*address));
        return address.map(Ingress::Ip).ok_or_else(|| invalid("ip", ip));
    }
    let name = text("hostname").ok_or(LookupError::NoIngress)?;
    if name.len() > 253 {
        return Err(invalid("hostname", name));
    }
    Ok(Ingress::Hostname(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::ObjectMeta;

    fn ingress_of(status: Value) -> Result<String, String> {
        let mut service = Object::new(Kind::Service, ObjectMeta::new("operators", "gw"));
        service.body.insert("status".to_owned(), status);
        match read_ingress(&service) {
            Ok(Ingress::Ip(ip)) => Ok(ip.to_string()),
            Ok(Ingress::Hostname(name)) => Ok(name),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_first_ingress_counts_its_address_before_its_name() {
        let ingress = |list: Value| ingress_of(json!({"loadBalancer": {"ingress": list}}));
        assert_eq!(ingress(json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}])), Ok("192.0.2.1".to_owned()));
        assert_eq!(ingress(json!([{"ip": "", "hostname": "lb.example"}])), Ok("lb.example".to_owned()));
    }

    #[test]
    fn a_service_without_a_usable_ingress_says_why() {
        let none = Err("the Service has no load balancer's address yet".to_owned());
        for status in
            [json!(null), json!({}), json!({"loadBalancer": []}), json!({"loadBalancer": {"ingress": [{}]}})]
        {
            assert_eq!(ingress_of(status), none);
        }
        let bad = ingress_of(json!({"loadBalancer": {"ingress": [{"ip": "127.0.0.1\n"}]}})).unwrap_err();
        assert_eq!(bad, "status.loadBalancer.ingress[0].ip of the Service is `127.0.0.1\\n`");
        assert!(ingress_of(json!({"loadBalancer": {"ingress": [{"hostname": "a".repeat(300)}]}})).is_err());
    }
}
