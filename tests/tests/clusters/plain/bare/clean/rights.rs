//! Whether every right that our accounts have was used, and nothing was asked for that they have no right to.

use std::collections::BTreeSet;

use trieste_deploy::objects::names::{BROKER_ADMIN, BROKER_NAMESPACE, DISCOVERY_AGENT, GATEWAY, ROUTE_AGENT};
use trieste_deploy::objects::rbac::{
    ACCOUNTS, Account, BROKER_ADMINISTRATOR, DISCOVERY_ACCOUNTS, MEMBER as BROKER_MEMBER, Right,
};
use trieste_tests::clusters::{Cluster, MEMBER, Request};

/// Account, group, resource and verb.
type Used = (String, String, String, String);

/// Rights that this life of two clusters cannot use, or not each time: account, resource, verb, and why they are given
/// all the same.
const EXCEPTIONS: [(&str, &str, &str, &str); 23] = [
    (BROKER_ADMIN, "endpointslices", "delete", LEFT),
    (BROKER_ADMIN, "serviceimports", "update", LEFT),
    (BROKER_ADMIN, "serviceimports", "delete", LEFT),
    (BROKER_ADMIN, "serviceimports/status", "update", LEFT),
    (DISCOVERY_AGENT, "endpointslices/restricted", "create", RESTRICTED),
    (MEMBERS, "endpointslices/restricted", "create", RESTRICTED),
    (GATEWAY, "gateways", "get", "a gateway reads its object again if somebody has changed it meanwhile"),
    (
        GATEWAY,
        "gateways",
        "patch",
        "with more than some 55 connections the time is written alone, by a patch; with fewer all goes with each beat",
    ),
    (GATEWAY, "endpointslices", "list", SERVICES),
    (GATEWAY, "endpointslices", "watch", SERVICES),
    (ROUTE_AGENT, "services", "list", SERVICES),
    (ROUTE_AGENT, "services", "watch", SERVICES),
    (ROUTE_AGENT, "endpointslices", "list", SERVICES),
    (ROUTE_AGENT, "endpointslices", "watch", SERVICES),
    (MEMBERS, "clusters", "update", "a cluster that joins again with other CIDRs changes its object"),
    (MEMBERS, "endpoints", "update", "a gateway whose public address or port changes changes its object"),
    (
        BROKER_ADMIN,
        "serviceaccounts",
        "patch",
        "a cluster that subctl had joined before gets its mark by a join",
    ),
    (BROKER_ADMIN, "secrets", "patch", "a join puts a token's Secret right that somebody has changed"),
    (BROKER_ADMIN, "serviceaccounts", "update", "subctl join ties the account to its token's Secret"),
    (BROKER_ADMIN, "secrets", "update", "subctl join puts its account's token Secret right"),
    (BROKER_ADMIN, "secrets", "list", "subctl join looks for its account's token among all"),
    (BROKER_ADMIN, "configmaps", "update", "subctl join takes a share of global addresses"),
    (
        BROKER_ADMIN,
        "roles",
        "bind",
        "no request of its own: the server looks at it when a RoleBinding is made",
    ),
];

/// Why an administrator may remove services.
const LEFT: &str = "agents withdraw what they export: this is for a cluster that is gone";
/// Why rights on restricted slices are.
const RESTRICTED: &str = "no request of its own: OpenShift looks at it when a slice is written";
/// Why rights on services are given.
const SERVICES: &str = "services are read where a cluster has several active gateways";
/// Stands for the accounts of all members.
const MEMBERS: &str = "cluster-";

/// Compares with what the audit logs of all API servers have, each after so many requests.
pub(crate) fn faults<'a>(clusters: impl Iterator<Item = (&'a Cluster, usize)>) -> Vec<String> {
    let since = |(cluster, before): (&Cluster, usize)| cluster.requests().unwrap().into_iter().skip(before);
    let requests: Vec<Request> = clusters.flat_map(since).collect();
    assert!(!requests.is_empty(), "there is no audit log");
    let forbidden: BTreeSet<&Request> = requests.iter().filter(|request| request.is_forbidden).collect();
    let used: BTreeSet<Used> = requests.iter().map(used).collect();
    let given = granted();
    let unused: Vec<Used> = given.iter().filter(|right| !used.contains(*right)).cloned().collect();
    let forbidden = forbidden.into_iter().map(|request| format!("forbidden: {request:?}"));
    let is_excepted = |right: &Used| EXCEPTIONS.iter().any(|exception| is_about(exception, right));
    let unused = unused.into_iter().filter(|right| !is_excepted(right));
    let unused = unused.map(|right| format!("never used: {right:?}"));
    // An exception that nobody is given is none. Some lives do use one: which writes meet is chance.
    let idle = EXCEPTIONS.iter().filter(|exception| !given.iter().any(|right| is_about(exception, right)));
    let idle = idle.map(|exception| format!("not even given: {exception:?}"));
    forbidden.chain(unused).chain(idle).collect()
}

fn is_about((account, resource, verb, _): &(&str, &str, &str, &str), right: &Used) -> bool {
    right.0.ends_with(&format!(":{account}")) && right.2 == *resource && right.3 == *verb
}

fn used(request: &Request) -> Used {
    let Request { account, group, resource, verb, .. } = request;
    let members = format!("{BROKER_NAMESPACE}:{MEMBERS}");
    let account = if account.starts_with(&members) { &members } else { account };
    (account.clone(), group.clone(), resource.clone(), verb.clone())
}

/// What the Roles give, but for upstream's Role on the broker, which none of our accounts has.
fn granted() -> Vec<Used> {
    let accounts = ACCOUNTS.iter().chain(&DISCOVERY_ACCOUNTS);
    let of_accounts = accounts.flat_map(|Account { name, here, beside, everywhere }| {
        let account = format!("{MEMBER}:{name}");
        here.iter().chain(*beside).chain(*everywhere).flat_map(move |right| each(&account, right))
    });
    let member = format!("{BROKER_NAMESPACE}:{MEMBERS}");
    let administrator = format!("{BROKER_NAMESPACE}:{BROKER_ADMIN}");
    let on_broker = BROKER_MEMBER.iter().flat_map(|right| each(&member, right));
    let by_file = BROKER_ADMINISTRATOR.iter().flat_map(|right| each(&administrator, right));
    of_accounts.chain(on_broker).chain(by_file).collect()
}

fn each(account: &str, right: &Right) -> Vec<Used> {
    let verbs = |resource: &str| -> Vec<Used> {
        let used = |verb: &&str| {
            (account.to_owned(), right.group.to_owned(), resource.to_owned(), (*verb).to_owned())
        };
        right.verbs.iter().map(used).collect()
    };
    right.resources.iter().flat_map(|resource| verbs(resource)).collect()
}
