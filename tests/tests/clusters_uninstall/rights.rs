//! Whether every right that our accounts have was used, and nothing was asked for that they have no right to.

use std::collections::BTreeSet;

use trieste_deploy::objects::names::{BROKER_ADMIN, BROKER_NAMESPACE, cluster_account};
use trieste_deploy::objects::rbac::{
    ACCOUNTS, Account, BROKER_ADMINISTRATOR, MEMBER as BROKER_MEMBER, Right,
};
use trieste_tests::clusters::{Cluster, MEMBER, Request};

/// Account, group, resource and verb.
type Used = (String, String, String, String);

/// Compares with what the audit logs of all API servers have.
pub(crate) fn assert_least(clusters: &[&Cluster]) {
    let requests: Vec<Request> = clusters.iter().flat_map(|cluster| cluster.requests().unwrap()).collect();
    assert!(!requests.is_empty(), "there is no audit log");
    let forbidden: BTreeSet<&Request> = requests.iter().filter(|request| request.is_forbidden).collect();
    let used: BTreeSet<Used> = requests.iter().map(used).collect();
    let unused: Vec<Used> = granted().into_iter().filter(|right| !used.contains(right)).collect();
    assert!(forbidden.is_empty() && unused.is_empty(), "forbidden: {forbidden:#?}\nnot used: {unused:#?}");
}

fn used(request: &Request) -> Used {
    let Request { account, group, resource, verb, .. } = request;
    (account.clone(), group.clone(), resource.clone(), verb.clone())
}

/// What the Roles give, but for upstream's Role on the broker, which none of our accounts has.
fn granted() -> Vec<Used> {
    let of_accounts = ACCOUNTS.iter().flat_map(|Account { name, here, everywhere }| {
        let account = format!("{MEMBER}:{name}");
        here.iter().chain(*everywhere).flat_map(move |right| each(&account, right))
    });
    let member = format!("{BROKER_NAMESPACE}:{}", cluster_account("west"));
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
