//! Making a cluster a broker: the place where members find one another.
//!
//! ```text
//!   check ──▶ objects ──▶ the account's token ──▶ what broker-info.subm says
//! ```

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use trieste_control::api::Fabric;
use trieste_control::steps::{Outcome, Steps};

use crate::apply::{apply_all, define, missing_rights};
use crate::broker_info::{BrokerInfo, ClientToken, checked_url};
use crate::error::DeployError;
use crate::object_ref::ObjectRef;
use crate::objects::names::{
    BROKER, CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO, GLOBALNET_INFO, NAMESPACE, PSK_SECRET, SUBMARINER,
    broker_admin_token,
};
use crate::objects::{self, BrokerOptions, Component, Manifest, Secret};
use crate::preflight::{self, Finding, conclude};
use crate::psk;
use crate::server::{POLL, Server};

/// How long the control plane may take to fill a token Secret.
const TOKEN: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct DeployBroker {
    /// The broker's own choices.
    pub broker: BrokerOptions,
    /// How members reach the API server: `https://HOST:PORT`.
    pub url: String,
    /// The key to use, if one was said.
    pub psk: Option<Secret>,
    /// Whether it may take the place of the key with which clusters have joined.
    pub replace_psk: bool,
    /// The join file that is there already: if it is this broker's, its key is kept.
    pub known: Option<BrokerInfo>,
}

/// What a broker consists of, for a server of this version. Older ones cannot tell members' objects apart.
///
/// # Errors
/// [`DeployError::Refused`] if a range of addresses makes no sense.
pub fn manifests(options: &BrokerOptions, version: (u32, u32)) -> Result<Vec<Manifest>, DeployError> {
    let all = objects::broker(options).map_err(|error| {
        DeployError::refused(
            error.to_string(),
            "choose with --globalnet-cidr-range and --globalnet-cluster-size (or --clusterset-ip-cidr-range)",
        )
    })?;
    let knows_policies = version == (0, 0) || version >= preflight::POLICIES_SINCE;
    let fits =
        |manifest: &Manifest| knows_policies || !manifest.kind().starts_with("ValidatingAdmissionPolicy");
    Ok(all.into_iter().filter(fits).collect())
}

/// Checks all that can be checked before anything is changed, and returns the broker's objects.
///
/// # Errors
/// [`DeployError::Unmet`] with every check that failed; [`DeployError`] if the server does not answer.
pub async fn check(
    server: &Server,
    options: &DeployBroker,
    steps: &mut dyn Steps,
) -> Result<Vec<Manifest>, DeployError> {
    let namespace = options.broker.namespace.as_str();
    checked_url(&options.url)?;
    steps.begin("Checking requirements");
    let (major, minor, version) = server.version().await?;
    let manifests = manifests(&options.broker, (major, minor))?;
    let supported = preflight::version(major, minor, &version);
    let mut findings = vec![match supported.outcome {
        Outcome::Failure => Finding { next: "upgrade it".to_owned(), ..supported },
        Outcome::Success | Outcome::Warning => supported,
    }];
    if (major, minor) != (0, 0) && (major, minor) < preflight::POLICIES_SINCE {
        findings.push(Finding::suspect(
            format!("Kubernetes \"{version}\" cannot keep members from writing one another's objects"),
            "it can since 1.30",
        ));
    }
    findings.extend(preflight::rights(&missing_rights(server, &manifests, &[]).await?));
    let key = key_at_hand(server, options).await?;
    findings.extend(carried_out(server, namespace).await?);
    findings.extend(keeps_key(server, namespace, key.as_ref()).await?);
    if let Some(said) = &options.psk {
        let present = key_here(server, options).await?;
        findings.extend(same_key(server, options, said, present.as_ref()).await?);
    }
    findings.extend(keeps_ranges(server, &manifests).await?);
    conclude(&findings, steps)?;
    Ok(manifests)
}

/// Makes the cluster a broker, or brings one up to date, and returns what members need to join. Run again it changes
/// nothing.
///
/// # Errors
/// [`DeployError`]; what was done stays, and the next run goes on from there.
pub async fn deploy_broker(
    server: &Server,
    options: &DeployBroker,
    steps: &mut dyn Steps,
) -> Result<BrokerInfo, DeployError> {
    let manifests = check(server, options, steps).await?;
    let key = key_at_hand(server, options).await?;

    install(server, &options.broker, &manifests, steps).await?;

    steps.begin("Waiting for the token of the account by which clusters join");
    let client_token = wait_token(server, &options.broker.namespace, &broker_admin_token()).await?;
    steps.end(Outcome::Success);
    let components = &options.broker.components;
    let domains = &options.broker.custom_domains;
    Ok(BrokerInfo {
        broker_url: checked_url(&options.url)?,
        psk: key_of(options, &client_token, key),
        client_token,
        service_discovery: components.contains(&Component::ServiceDiscovery),
        components: components.iter().map(ToString::to_string).collect(),
        custom_domains: (!domains.is_empty()).then(|| domains.clone()),
    })
}

/// Makes a cluster a broker, or brings one up to date, for a Broker object that is not ours: that is left to who wrote it, and so is
/// the set's key, which whoever lets clusters join has.
///
/// # Errors
/// As [`deploy_broker`].
pub async fn maintain_broker(
    server: &Server,
    broker: &BrokerOptions,
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    steps.begin("Checking requirements");
    let (major, minor, version) = server.version().await?;
    let mut manifests = manifests(broker, (major, minor))?;
    manifests.retain(|manifest| manifest.kind() != "Broker");
    let mut findings = vec![preflight::version(major, minor, &version)];
    findings.extend(preflight::rights(&missing_rights(server, &manifests, &[]).await?));
    findings.extend(keeps_ranges(server, &manifests).await?);
    conclude(&findings, steps)?;
    install(server, broker, &manifests, steps).await
}

/// Applies the broker's objects.
async fn install(
    server: &Server,
    broker: &BrokerOptions,
    manifests: &[Manifest],
    steps: &mut dyn Steps,
) -> Result<(), DeployError> {
    steps.begin("Deploying the broker");
    let mut tally = apply_all(server, &applicable(manifests)).await?;
    if broker.components.contains(&Component::ServiceDiscovery) {
        define(server, &objects::service_import()).await?;
    }
    for info in manifests.iter().filter(|manifest| is_allocation(manifest)) {
        tally.count(allocate(server, info).await?);
    }
    steps.remark(Outcome::Success, &tally.to_string());
    steps.end(Outcome::Success);
    Ok(())
}

/// The key that was said, else that of the join file if it is of this very broker, else that of this cluster as a
/// member of it.
async fn key_at_hand(server: &Server, options: &DeployBroker) -> Result<Option<Secret>, DeployError> {
    match &options.psk {
        Some(said) => Ok(Some(said.clone())),
        None => key_here(server, options).await,
    }
}

/// The key of this very broker's set, if it is here. Without the account's token nobody has joined yet.
async fn key_here(server: &Server, options: &DeployBroker) -> Result<Option<Secret>, DeployError> {
    let namespace = options.broker.namespace.as_str();
    let place = ObjectRef::namespaced("v1", "Secret", namespace, &broker_admin_token());
    let secret = server.find(&place).await?;
    let Some(token) = secret.and_then(|secret| token_of(&secret, namespace)) else { return Ok(None) };
    if let Some(known) = options.known.as_ref().filter(|known| is_same_broker(known, &token)) {
        return Ok(Some(known.psk.clone()));
    }
    let submariner = ObjectRef::namespaced("submariner.io/v1alpha1", "Submariner", NAMESPACE, SUBMARINER);
    let submariner = server.find(&submariner).await?;
    if submariner.is_none_or(|member| other_broker(&member, &token).is_some()) {
        return Ok(None);
    }
    let own = server.find(&ObjectRef::namespaced("v1", "Secret", NAMESPACE, PSK_SECRET)).await?;
    Ok(own.and_then(|secret| decoded(&secret, "psk")).and_then(psk::checked))
}

/// The broker that a member's object names, if it is not the one of this token: its key is another set's.
pub(crate) fn other_broker(submariner: &Value, token: &ClientToken) -> Option<String> {
    use base64::Engine as _;
    let text = |field: &str| submariner["spec"][field].as_str().unwrap_or_default();
    let ca = base64::engine::general_purpose::STANDARD.decode(text("brokerK8sCA")).ok();
    let is_same_ca = ca.is_none_or(|ca| ca.is_empty() || ca.trim_ascii() == token.ca.trim_ascii());
    let (server, namespace) = (text("brokerK8sApiServer"), text("brokerK8sRemoteNamespace"));
    (namespace != token.namespace || !is_same_ca).then(|| format!("{server} (namespace {namespace})"))
}

/// A key that was said is not to part the clusters that have joined from those that will.
async fn same_key(
    server: &Server,
    options: &DeployBroker,
    said: &Secret,
    present: Option<&Secret>,
) -> Result<Vec<Finding>, DeployError> {
    let namespace = Some(options.broker.namespace.as_str());
    let members = server.list("submariner.io/v1", "Cluster", namespace, "").await?;
    if members.is_empty() || present == Some(said) {
        return Ok(Vec::new());
    }
    Ok(vec![match present {
        Some(_) if options.replace_psk => Finding::suspect(
            "the key is replaced: clusters reach one another again once each has joined anew with the file and \
             --replace-psk",
            "",
        ),
        Some(_) => Finding::bad(
            "clusters have joined with another key than that of --ipsec-psk-from",
            "leave the flag out: the key stays; or replace it with --replace-psk, here and then in each cluster's join",
        ),
        None => Finding::suspect(
            "clusters have joined, and whether with the key of --ipsec-psk-from cannot be told from here",
            "with another one, clusters that join from here on do not reach them",
        ),
    }])
}

/// Returns that the operator carries out the Broker object, which says itself what is wanted.
async fn carried_out(server: &Server, namespace: &str) -> Result<Vec<Finding>, DeployError> {
    let place = ObjectRef::namespaced("submariner.io/v1alpha1", "Broker", namespace, BROKER);
    let found = server.find(&place).await?.unwrap_or_default();
    let mut finalizers = found["metadata"]["finalizers"].as_array().into_iter().flatten();
    let is_carried_out = finalizers.any(|finalizer| finalizer == Fabric::BROKER_FINALIZER);
    let finding = || {
        Finding::bad(
            "trieste-operator carries out the Broker object of this cluster",
            format!("change what that says: kubectl -n {namespace} edit broker {BROKER}"),
        )
    };
    Ok(is_carried_out.then(finding).into_iter().collect())
}

/// Where clusters have joined already, a new key would shut the next ones out.
async fn keeps_key(
    server: &Server,
    namespace: &str,
    key: Option<&Secret>,
) -> Result<Vec<Finding>, DeployError> {
    let members = server.list("submariner.io/v1", "Cluster", Some(namespace), "").await?;
    if key.is_some() || members.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> =
        members.iter().filter_map(|member| member["metadata"]["name"].as_str()).take(16).collect();
    Ok(vec![Finding::bad(
        format!("clusters have joined with a key that is not here: {}", names.join(", ")),
        "say where it is with --ipsec-psk-from broker-info.subm, or get it from a member with trieste recover-broker-info",
    )])
}

/// Who has which addresses stays; a range cannot change below those who have some of it.
async fn keeps_ranges(server: &Server, manifests: &[Manifest]) -> Result<Vec<Finding>, DeployError> {
    let mut findings = Vec::new();
    for wanted in manifests.iter().filter(|manifest| is_allocation(manifest)) {
        let Some(place) = ObjectRef::of(wanted.as_value()) else { continue };
        let Some(found) = server.find(&place).await? else { continue };
        let is_used = !matches!(found["data"]["clusterinfo"].as_str(), None | Some("" | "[]" | "null"));
        let changes = changed_keys(&found, wanted.as_value());
        if is_used && !changes.is_empty() {
            let next = "say the same as before, or let the clusters that have addresses of it leave first";
            findings.push(Finding::bad(
                format!("{place} gives out addresses already, and differs in {}", changes.join(", ")),
                next,
            ));
        }
    }
    Ok(findings)
}

fn changed_keys(found: &Value, wanted: &Value) -> Vec<String> {
    let entries = wanted["data"].as_object().into_iter().flatten();
    let changed =
        entries.filter(|(key, value)| *key != "clusterinfo" && found["data"][key.as_str()] != **value);
    changed.map(|(key, _)| key.clone()).collect()
}

fn is_allocation(manifest: &Manifest) -> bool {
    manifest.kind() == "ConfigMap"
        && [GLOBALNET_INFO, CLUSTERSET_IP_INFO, CLUSTERSET_IPV6_INFO].contains(&manifest.name())
}

fn applicable(manifests: &[Manifest]) -> Vec<Manifest> {
    manifests.iter().filter(|manifest| !is_allocation(manifest)).cloned().collect()
}

/// Creates the table of addresses, or changes all of it but who has which: members write that.
async fn allocate(server: &Server, info: &Manifest) -> Result<crate::server::Applied, DeployError> {
    use crate::server::Applied;
    let Some(place) = ObjectRef::of(info.as_value()) else { return Ok(Applied::Unchanged) };
    let Some(found) = server.find(&place).await? else {
        server.create(info.as_value()).await?;
        return Ok(Applied::Created);
    };
    let changes = changed_keys(&found, info.as_value());
    if changes.is_empty() {
        return Ok(Applied::Unchanged);
    }
    let data: Value =
        changes.into_iter().map(|key| (key.clone(), info.as_value()["data"][key].clone())).collect();
    server.merge(&place, &json!({"data": data})).await?;
    Ok(Applied::Changed)
}

fn key_of(options: &DeployBroker, token: &ClientToken, key: Option<Secret>) -> Secret {
    let known = options.known.as_ref().filter(|known| is_same_broker(known, token));
    key.or_else(|| known.map(|known| known.psk.clone())).unwrap_or_else(psk::generate)
}

fn is_same_broker(known: &BrokerInfo, token: &ClientToken) -> bool {
    known.client_token.ca == token.ca && known.client_token.namespace == token.namespace
}

/// Waits until the control plane has written an account's token into its Secret.
pub(crate) async fn wait_token(
    server: &Server,
    namespace: &str,
    name: &str,
) -> Result<ClientToken, DeployError> {
    let place = ObjectRef::namespaced("v1", "Secret", namespace, name);
    let until = Instant::now() + TOKEN;
    loop {
        let secret = server.find(&place).await?;
        if let Some(token) = secret.and_then(|secret| token_of(&secret, namespace)) {
            return Ok(token);
        }
        if Instant::now() >= until {
            return Err(DeployError::NotInTime {
                what: format!("{}: {place} did not get its token", server.name()),
                seconds: TOKEN.as_secs(),
                state: Vec::new(),
                next: "kube-controller-manager writes it: kubectl -n kube-system get pods says whether it runs; \
                       then repeat the command"
                    .to_owned(),
            });
        }
        sleep(POLL).await;
    }
}

/// The token in a Secret that the control plane has filled.
pub(crate) fn token_of(secret: &Value, namespace: &str) -> Option<ClientToken> {
    let token = decoded(secret, "token").filter(|token| !token.is_empty())?;
    Some(ClientToken {
        secret_name: secret["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        namespace: namespace.to_owned(),
        token: Secret::new(token),
        ca: decoded(secret, "ca.crt").unwrap_or_default(),
    })
}

/// A value of a Secret, out of its base64.
pub(crate) fn decoded(secret: &Value, key: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(secret["data"][key].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fake::Fake;

    fn token() -> ClientToken {
        ClientToken {
            secret_name: "s".to_owned(),
            namespace: "meet".to_owned(),
            token: Secret::new(*b"t"),
            ca: b"CA".to_vec(),
        }
    }

    fn member(namespace: &str, ca: &str) -> Value {
        json!({"apiVersion": "submariner.io/v1alpha1", "kind": "Submariner",
            "metadata": {"namespace": NAMESPACE, "name": SUBMARINER},
            "spec": {"brokerK8sApiServer": "b:1", "brokerK8sRemoteNamespace": namespace,
                "brokerK8sCA": Secret::new(ca.as_bytes()).to_base64()}})
    }

    #[test]
    fn a_member_of_another_broker_is_told_by_namespace_and_authority() {
        assert_eq!(other_broker(&member("meet", "CA\n"), &token()), None);
        assert_eq!(other_broker(&member("meet", "other"), &token()).unwrap(), "b:1 (namespace meet)");
        assert_eq!(other_broker(&member("x", "CA"), &token()).unwrap(), "b:1 (namespace x)");
    }

    #[tokio::test]
    async fn the_key_of_another_set_is_not_this_brokers() {
        let (fake, key) = (Fake::default(), psk::generate());
        let secret = |namespace: &str, name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}, "data": data});
        let data =
            json!({"token": Secret::new(*b"t").to_base64(), "ca.crt": Secret::new(*b"CA").to_base64()});
        fake.put(secret("meet", &broker_admin_token(), data));
        fake.put(secret(NAMESPACE, PSK_SECRET, json!({"psk": key.to_base64()})));
        let broker = BrokerOptions { namespace: "meet".to_owned(), ..BrokerOptions::default() };
        let options = DeployBroker { broker, url: String::new(), psk: None, replace_psk: false, known: None };
        for (object, expected) in [(member("meet", "CA"), Some(key)), (member("meet", "other"), None)] {
            fake.put(object);
            assert_eq!(key_here(&fake.server(), &options).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_key_that_live_members_do_not_have_is_refused() {
        let (fake, said, present) = (Fake::default(), psk::generate(), psk::generate());
        let broker = BrokerOptions { namespace: "meet".to_owned(), ..BrokerOptions::default() };
        let mut options = DeployBroker {
            broker,
            url: String::new(),
            psk: Some(said.clone()),
            replace_psk: false,
            known: None,
        };
        let server = fake.server();
        assert!(
            same_key(&server, &options, &said, Some(&present)).await.unwrap().is_empty(),
            "nobody has joined"
        );
        fake.put(json!({"apiVersion": "submariner.io/v1", "kind": "Cluster",
            "metadata": {"namespace": "meet", "name": "west"}}));
        let refusing = options.clone();
        let outcome = async |present: Option<&Secret>| {
            let found = same_key(&server, &refusing, &said, present).await.unwrap();
            found.first().map(|finding| finding.outcome)
        };
        assert_eq!(outcome(Some(&present)).await, Some(Outcome::Failure));
        assert_eq!(outcome(None).await, Some(Outcome::Warning));
        assert_eq!(outcome(Some(&said)).await, None);
        options.replace_psk = true;
        let forced = same_key(&server, &options, &said, Some(&present)).await.unwrap();
        assert_eq!(forced[0].outcome, Outcome::Warning);
        assert!(forced[0].text.contains("--replace-psk"));
    }
}
