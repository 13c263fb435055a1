//! What objects of upstream's kinds say, carried out: only where upstream's operator does not run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use trieste_control::api::{BrokerSpec, OPERATOR_API_VERSION, ServiceDiscoverySpec, SubmarinerSpec};
use trieste_control::steps::Record;
use trieste_deploy::deploy_broker::maintain_broker;
use trieste_deploy::join;
use trieste_deploy::objects::names::{
    BROKER_SECRET, GATEWAY, NAMESPACE, PSK_SECRET, SUBMARINER, UPSTREAM_OPERATOR,
};
use trieste_deploy::objects::{MemberOptions, Secret, submariner_status};
use trieste_deploy::{BrokerLogin, ObjectRef, Server};

use super::deployment_info::deployment_info;
use super::failure::Failure;
use super::member::facts;
use super::remark::remark;
use super::tools::{STEP_LIMIT, Tools};
use crate::order::{Facts, Order, Outcome, Reason, Upstream};
use crate::translate::broker_options;
use crate::translate::upstream::{
    Credentials, Membership, RegisteredContext, TranslatedMember, broker_config, member, registered_options,
    service_discovery, service_discovery_options,
};

/// Returns why an order is left to upstream's operator, if it runs anywhere in the cluster and is responsible for such objects.
pub(super) async fn standing_back(tools: &Tools, order: &Order) -> Result<Option<Reason>, Failure> {
    if !order.is_of_upstream() {
        return Ok(None);
    }
    let found = join::upstream_operator(&tools.server).await?;
    Ok(found.map(|namespace| Reason {
        reason: Reason::UPSTREAM_OPERATOR,
        message: format!(
            "Submariner's operator runs in the namespace {namespace} and is responsible for this object: trieste-operator \
             leaves it alone until kubectl -n {namespace} scale deployment {UPSTREAM_OPERATOR} --replicas=0"
        ),
    }))
}

/// Makes the cluster what an object says, or brings it up to date.
pub(super) async fn install(
    tools: &Tools,
    content: &Upstream,
    steps: &mut Record,
) -> Result<Outcome, Failure> {
    let facts = match content {
        Upstream::Broker(spec) => install_broker(tools, spec, steps).await?,
        Upstream::Member(spec, discovery) => install_member(tools, spec, discovery.as_deref(), steps).await?,
        Upstream::ServiceDiscovery(spec) => install_service_discovery(tools, spec, steps).await?,
    };
    Ok(Outcome::Installed(Box::new(facts)))
}

async fn install_broker(tools: &Tools, spec: &BrokerSpec, steps: &mut Record) -> Result<Facts, Failure> {
    let (config, warnings) = broker_config(spec)?;
    let options = broker_options(&config)?;
    maintain_broker(&tools.server, &options, steps).await?;
    remark(&warnings, steps);
    Ok(Facts::default())
}

async fn install_member(
    tools: &Tools,
    spec: &SubmarinerSpec,
    discovery: Option<&ServiceDiscoverySpec>,
    steps: &mut Record,
) -> Result<Facts, Failure> {
    let server = &tools.server;
    let translated = member(spec, discovery)?;
    let (credentials, mut left) = credentials(server, &translated.membership, true).await?;
    left.push(ObjectRef::namespaced(OPERATOR_API_VERSION, "Submariner", NAMESPACE, SUBMARINER));
    let earlier = join::earlier_registered(server, NAMESPACE).await?;
    let earlier = earlier.as_ref();
    let context =
        RegisteredContext { credentials: &credentials, earlier, image: &tools.image, limit: STEP_LIMIT };
    let options = registered_options(&translated, &context)?;
    let broker = (tools.connect)(&login(&translated, &credentials))?;
    let driver = earlier.and_then(|earlier| earlier.cable_driver());
    let plan = join::prepare_registered(server, &broker, (&options, left), driver, steps).await?;
    let installed = join::install(server, &broker, &plan, steps).await?;
    join::replace_gateways(server, &installed, STEP_LIMIT, steps).await?;
    remark(&translated.warnings, steps);
    Ok(Facts { status: status(server, &installed.member).await?, ..facts(&installed.member) })
}

async fn install_service_discovery(
    tools: &Tools,
    spec: &ServiceDiscoverySpec,
    steps: &mut Record,
) -> Result<Facts, Failure> {
    let server = &tools.server;
    let translated = service_discovery(spec)?;
    let (credentials, left) = credentials(server, &translated.membership, false).await?;
    let context = RegisteredContext {
        credentials: &credentials,
        earlier: None,
        image: &tools.image,
        limit: STEP_LIMIT,
    };
    let member = service_discovery_options(&translated, &context)?;
    join::install_service_discovery(server, &member, &left, steps).await?;
    remark(&translated.warnings, steps);
    Ok(Facts { status: info(server).await?, ..Facts::default() })
}

/// Removes service discovery that was installed by itself.
pub(super) async fn remove_service_discovery(tools: &Tools, steps: &mut Record) -> Result<Outcome, Failure> {
    join::remove_service_discovery(&tools.server, NAMESPACE, STEP_LIMIT, steps).await?;
    Ok(Outcome::Removed)
}

fn login(translated: &TranslatedMember, credentials: &Credentials) -> BrokerLogin {
    BrokerLogin {
        url: translated.membership.api_server.clone(),
        ca: credentials.ca.clone().unwrap_or_default(),
        token: credentials.token.clone(),
        insecure: translated.membership.insecure,
    }
}

/// Reads what is secret, and returns with it the Secrets that stay as others have made them: those that have our names already.
async fn credentials(
    server: &Server,
    membership: &Membership,
    needs_key: bool,
) -> Result<(Credentials, Vec<ObjectRef>), Failure> {
    let mut left = Vec::new();
    let mut all = Credentials { ca: membership.ca.clone(), ..Credentials::default() };
    if let Some(name) = &membership.secret {
        let found = Named::read(server, name, BROKER_SECRET, &mut left).await?;
        all.token = found.value("token")?;
        all.ca = found.value("ca.crt").ok().map(|ca| ca.expose().to_vec()).or(all.ca);
    } else {
        all.token = given("spec.brokerK8sSecret", membership.token.as_ref())?;
    }
    if !needs_key {
        return Ok((all, left));
    }
    all.psk = match &membership.psk_secret {
        Some(name) => Named::read(server, name, PSK_SECRET, &mut left).await?.value("psk")?,
        None => given("spec.ceIPSecPSKSecret", membership.psk.as_ref())?,
    };
    Ok((all, left))
}

/// A Secret that an object names.
struct Named {
    place: ObjectRef,
    object: Value,
}

impl Named {
    /// Reads it. One that has the name of ours is others' to keep, and is `left` to them.
    async fn read(
        server: &Server,
        name: &str,
        ours: &str,
        left: &mut Vec<ObjectRef>,
    ) -> Result<Self, Failure> {
        let place = ObjectRef::namespaced("v1", "Secret", NAMESPACE, name);
        let Some(object) = server.find(&place).await? else {
            return Err(missing(format!("{place} is not there")));
        };
        if name == ours {
            left.push(place.clone());
        }
        Ok(Self { place, object })
    }

    fn value(&self, key: &str) -> Result<Secret, Failure> {
        let text = self.object["data"][key].as_str().and_then(|text| STANDARD.decode(text).ok());
        let bytes = text.filter(|bytes| !bytes.is_empty());
        bytes.map(Secret::new).ok_or_else(|| missing(format!("{} has no key {key}", self.place)))
    }
}

fn given(field: &str, secret: Option<&Secret>) -> Result<Secret, Failure> {
    secret
        .cloned()
        .ok_or_else(|| missing(format!("{field} names no Secret, and the object has none in clear")))
}

fn missing(message: String) -> Failure {
    Failure::Missing { reason: "SecretMissing", message }
}

/// Returns what is known of a member, as upstream's status has it.
async fn status(server: &Server, member: &MemberOptions) -> Result<Map<String, Value>, Failure> {
    let mut status = info(server).await?;
    status.extend(submariner_status(member).as_object().cloned().unwrap_or_default());
    let service = ObjectRef::namespaced("v1", "Service", NAMESPACE, GATEWAY);
    let found = match member.load_balancer {
        true => server.find(&service).await?.unwrap_or_default(),
        false => Value::Null,
    };
    let found = &found["status"]["loadBalancer"];
    let balancer = if found.is_null() { json!({}) } else { json!({"status": found}) };
    status.insert("loadBalancerStatus".to_owned(), balancer);
    Ok(status)
}

async fn info(server: &Server) -> Result<Map<String, Value>, Failure> {
    let (_, _, version) = server.version().await?;
    let nodes = server.list("v1", "Node", None, "").await?;
    Ok(Map::from_iter([("deploymentInfo".to_owned(), deployment_info(&version, &nodes))]))
}
