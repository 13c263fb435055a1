//! Which versions may follow one another.

use super::Finding;

/// Returns what is wrong with installing `target` where `installed` is: by the policy that versions of one cluster, and those of a
/// set, differ by one minor version at most (docs/operations/upgrade.md). Nothing where both are the same.
pub fn skew(installed: &str, target: &str) -> Option<Finding> {
    if installed.is_empty() || installed == target {
        return None;
    }
    let (Some(from), Some(to)) = (numbers(installed), numbers(target)) else {
        let text = format!("the versions {installed} and {target} cannot be compared");
        return Some(Finding::suspect(text, "they may differ by one minor version"));
    };
    let what = if to < from { "downgrade" } else { "upgrade" };
    let text = format!("This is the {what} from version {installed} to {target}");
    if from.0 == to.0 && from.1.abs_diff(to.1) <= 1 {
        return Some(Finding::good(text));
    }
    let between = match (from.0 == to.0, to.1 > from.1) {
        (true, true) => format!("go to {}.{} first, with that version's trieste", from.0, from.1 + 1),
        (true, false) => format!("go back to {}.{} first, with that version's trieste", from.0, from.1 - 1),
        (false, _) => "its release notes have the way between major versions".to_owned(),
    };
    Some(Finding::bad(format!("{text}, and versions may differ by one minor version"), between))
}

/// Returns `true` if both are versions, of which another number than the last differs.
pub(crate) fn is_other_minor(one: &str, other: &str) -> bool {
    let minor = |version: &str| numbers(version).map(|(major, minor, _)| (major, minor));
    matches!((minor(one), minor(other)), (Some(one), Some(other)) if one != other)
}

/// Returns a version's major, minor and patch number; `None` if it is none, as a tag such as `latest`.
fn numbers(version: &str) -> Option<(u64, u64, u64)> {
    let release = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let numbers = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use trieste_control::steps::Outcome::{self, Failure, Success, Warning};

    use super::*;

    #[test]
    fn tags_that_are_no_versions_are_not_compared() {
        assert!(is_other_minor("0.1.0", "0.2.0") && is_other_minor("1.1.0", "0.1.0"));
        assert!(!is_other_minor("0.1.0", "0.1.4") && !is_other_minor("0.1.0", "latest"));
    }

    #[test]
    fn a_version_follows_its_neighbours_and_a_way_to_others_is_named() {
        let found = |installed: &str, target: &str| -> Option<(Outcome, String)> {
            skew(installed, target).map(|finding| (finding.outcome, finding.line()))
        };
        assert_eq!((found("0.1.0", "0.1.0"), found("", "0.1.0")), (None, None));
        for (installed, target, outcome, part) in [
            ("0.1.0", "0.1.7", Success, "upgrade from version 0.1.0 to 0.1.7"),
            ("0.1.9", "0.2.0-rc.1", Success, "upgrade"),
            ("v0.2.0", "0.1.9", Success, "downgrade"),
            ("0.1.0", "0.3.0", Failure, "go to 0.2 first"),
            ("0.4.1", "0.2.0", Failure, "go back to 0.3 first"),
            ("0.9.0", "1.0.0", Failure, "release notes"),
            ("latest", "0.1.0", Warning, "cannot be compared"),
            ("0.1.0", "1.2.3.4", Warning, "cannot be compared"),
        ] {
            let (is, line) = found(installed, target).unwrap();
            assert_eq!(is, outcome, "{line}");
            assert!(line.contains(part), "{line}");
        }
    }
}
