//! A cluster's ID, from what a kubeconfig calls the cluster.

use trieste_control::api::{NameError, check_cluster_id};

/// Makes a cluster ID of a name, as upstream does: lower case, each run of other characters a dash, a dash at either
/// end a zero.
///
/// # Errors
/// [`NameError`] if what comes out is empty or longer than 63 characters.
pub fn derive(name: &str) -> Result<String, NameError> {
    let mut id = String::with_capacity(name.len());
    let mut in_run = false;
    for c in name.to_lowercase().chars() {
        let is_allowed = matches!(c, 'a'..='z' | '0'..='9' | '-');
        if is_allowed {
            id.push(c);
        } else if !in_run {
            id.push('-');
        }
        in_run = !is_allowed;
    }
    for end in [0, id.len().saturating_sub(1)] {
        if id.as_bytes().get(end) == Some(&b'-') {
            id.replace_range(end..=end, "0");
        }
    }
    check_cluster_id(&id)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_made_of_names_as_upstream_does() {
        for (name, expected) in [
            ("east", "east"),
            ("East_1", "east-1"),
            ("arn:aws:eks:eu-1:42:cluster/prod", "arn-aws-eks-eu-1-42-cluster-prod"),
            ("api.example.com:6443", "api-example-com-6443"),
            ("a  &&  b", "a-b"),
            ("a-_b", "a--b"),
            ("_x_", "0x0"),
            ("-", "0"),
        ] {
            assert_eq!(derive(name).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn a_name_of_which_no_id_can_be_made_is_refused() {
        assert!(derive("").is_err());
        assert!(derive(&"x".repeat(64)).is_err());
    }

    proptest! {
        #[test]
        fn what_comes_out_is_an_id_and_stays_one(name in ".{0,80}") {
            if let Ok(id) = derive(&name) {
                prop_assert_eq!(derive(&id).unwrap(), id);
            }
        }
    }
}
