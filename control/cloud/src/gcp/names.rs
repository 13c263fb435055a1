//! Names: upstream's, so that what its tool has prepared is recognised, and the form that Compute Engine wants of them.

/// The network tag of gateways, which is upstream's.
pub(super) const GATEWAY_TAG: &str = "submariner-io-gateway-node";

/// Returns the name of the rule for cables from IPv4 networks, or between nodes.
pub(super) fn cables_rule(infra_id: &str) -> String {
    format!("{infra_id}-submariner-public-ports-ingress")
}

/// Returns the name of the rule for cables from IPv6 networks. Ours: a rule has networks of one family, and upstream has none of
/// IPv6.
pub(super) fn cables_v6_rule(infra_id: &str) -> String {
    format!("{infra_id}-submariner-public-ports-ingress-v6")
}

/// Returns the name of the rule for what passes between nodes.
pub(super) fn inside_rule(infra_id: &str) -> String {
    format!("{infra_id}-submariner-internal-ports-ingress")
}

/// Returns all names of rules that a preparation, ours or upstream's, may have made. Old versions of upstream's had one for egress.
pub(super) fn all_rules(infra_id: &str) -> [String; 4] {
    [
        cables_rule(infra_id),
        cables_v6_rule(infra_id),
        inside_rule(infra_id),
        format!("{infra_id}-submariner-public-ports-egress"),
    ]
}

/// Returns what the names of machines begin with that sets for gateways have made.
pub(super) fn made_for_gateways(infra_id: &str) -> String {
    format!("{infra_id}-submariner-gw-")
}

/// The most characters of a name of Compute Engine's (RFC 1035).
const MOST_NAME: usize = 63;

/// Returns `true` for a name as Compute Engine wants it: `[a-z]([-a-z0-9]*[a-z0-9])?`, at most 63 characters.
pub(super) fn is_name(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= MOST_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(is_inside)
}

/// Returns `true` for what may stand as one part of a path: projects, zones, instances and operations have no other characters.
pub(super) fn is_part(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && text.chars().all(is_inside)
}

/// Returns the last part of a URL, as in `us-east1-b` of `https://…/zones/us-east1-b`.
pub(super) fn last_part(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}
