//! Which cluster of several a service's clients are sent to, as the exporter wishes.

use std::str::FromStr;

use crate::label::{Label, LabelError};

/// Most clusters of a failover list that count.
pub const MAX_FAILOVER: usize = 64;

/// A choice among clusters, in the words of the annotation `trieste.io/routing`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Routing {
    /// `round-robin`, the default: the own cluster if it serves, else smooth weighted round robin over the others.
    #[default]
    RoundRobin,
    /// `nearest`: the own cluster if it serves, else the one with the shortest round-trip time.
    Nearest,
    /// `local-only`: the own cluster and no other.
    LocalOnly,
    /// `failover=a,b`: the first of these that serves, else as by default. The own cluster is one like any other.
    Failover(Box<[Label]>),
}

/// Why a text is no choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    /// It is none of the words.
    #[error(
        "cannot use {0:?} as routing: it is none of nearest, round-robin, local-only, failover=CLUSTER,…"
    )]
    Word(String),
    /// A cluster's id is none.
    #[error("cannot use a cluster of failover: {0}")]
    Cluster(#[from] LabelError),
    /// There are too many clusters.
    #[error("cannot use {0} clusters of failover: at most {MAX_FAILOVER} are allowed")]
    TooMany(usize),
}

impl FromStr for Routing {
    type Err = RoutingError;

    fn from_str(text: &str) -> Result<Self, RoutingError> {
        match text.trim() {
            "round-robin" => Ok(Self::RoundRobin),
            "nearest" => Ok(Self::Nearest),
            "local-only" => Ok(Self::LocalOnly),
            other => {
                let list =
                    other.strip_prefix("failover=").ok_or_else(|| RoutingError::Word(text.to_owned()))?;
                let count = list.split(',').count();
                if count > MAX_FAILOVER {
                    return Err(RoutingError::TooMany(count));
                }
                let clusters: Result<Vec<_>, _> = list.split(',').map(|id| Label::new(id.trim())).collect();
                Ok(Self::Failover(clusters?.into_boxed_slice()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_annotation_are_parsed() {
        let labels = |ids: &[&str]| ids.iter().map(|id| Label::new(id).unwrap()).collect();
        assert_eq!("nearest".parse(), Ok(Routing::Nearest));
        assert_eq!("round-robin".parse(), Ok(Routing::RoundRobin));
        assert_eq!("local-only".parse(), Ok(Routing::LocalOnly));
        assert_eq!("failover=West, east".parse(), Ok(Routing::Failover(labels(&["west", "east"]))));
        assert!(matches!("failover=".parse::<Routing>(), Err(RoutingError::Cluster(_))));
        assert!(matches!("far".parse::<Routing>(), Err(RoutingError::Word(_))));
        let many = format!("failover={}", ["a"; 65].join(","));
        assert_eq!(many.parse::<Routing>(), Err(RoutingError::TooMany(65)));
    }
}
