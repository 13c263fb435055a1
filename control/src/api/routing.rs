//! The choice among the clusters of a service, as an export's annotation has it.

use super::check_cluster_id;

/// Ours: most clusters of a failover list, as DNS servers read it.
const MAX_FAILOVER: usize = 64;
/// The longest value of an annotation about the choice, in bytes. Ours: a failover list of as many clusters as there may be fits.
pub const MAX_PREFERENCE_LEN: usize = 4_200;

/// Checks a choice among clusters, in the words that the DNS server reads.
///
/// # Errors
/// What it should be, in a sentence.
pub fn check_routing(text: &str) -> Result<(), String> {
    let text = text.trim();
    if matches!(text, "round-robin" | "nearest" | "local-only") {
        return Ok(());
    }
    let Some(list) = text.strip_prefix("failover=") else {
        return Err("it is none of nearest, round-robin, local-only, failover=CLUSTER,…".to_owned());
    };
    let count = list.split(',').count();
    if count > MAX_FAILOVER {
        return Err(format!("it names {count} clusters, and at most {MAX_FAILOVER} are allowed"));
    }
    list.split(',').try_for_each(|id| {
        check_cluster_id(&id.trim().to_ascii_lowercase())
            .map_err(|error| format!("of its clusters one {error}"))
    })
}
