//! The text form of where a store is: `dir:PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A directory.
    Dir(PathBuf),
}

/// A text that is no store's location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a store: expected dir:PATH, such as dir:/var/lib/trieste/store")]
pub struct LocationError(String);

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Dir(PathBuf::from(path))),
            _ => Err(LocationError(text.escape_debug().collect())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

impl serde::Serialize for Location {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Location {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_and_written() {
        let location: Location = "dir:/a/b:c".parse().unwrap();
        assert_eq!(location, Location::Dir("/a/b:c".into()));
        assert_eq!(location.to_string(), "dir:/a/b:c");
    }

    #[test]
    fn what_is_no_location_is_answered_with_an_example() {
        for text in ["", "dir", "dir:", "/path", "k8s:x", "Dir:/x"] {
            let error = text.parse::<Location>().unwrap_err().to_string();
            assert!(error.contains("dir:PATH"), "{error}");
        }
    }
}
