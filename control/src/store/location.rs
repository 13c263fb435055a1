//! The text form of where a store is: `dir:PATH`, `kube:`, or `kube:PATH#CONTEXT`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A directory.
    Dir(PathBuf),
    /// An API server.
    Kube {
        /// Kubeconfig file. Without one: in a pod, the cluster's own API server; elsewhere that of `KUBECONFIG` or
        /// `~/.kube/config`.
        path: Option<PathBuf>,
        /// Which context of that file; without one its current one.
        context: Option<String>,
    },
}

impl Location {
    /// Returns where a cluster's own store is by default: in a pod, where Kubernetes names its `api_server`, that, and else below
    /// the state directory.
    #[must_use]
    pub fn default_of(api_server: Option<&str>, state_dir: &Path) -> Self {
        match api_server {
            Some(host) if !host.is_empty() => Self::Kube { path: None, context: None },
            Some(_) | None => Self::Dir(state_dir.join("store")),
        }
    }
}

/// A text that is no store's location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a store: expected dir:PATH, such as dir:/var/lib/trieste/store, or kube: (in a pod), or \
     kube:PATH#CONTEXT, such as kube:/etc/kubernetes/admin.conf"
)]
pub struct LocationError(String);

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Dir(PathBuf::from(path))),
            Some(("kube", "")) => Ok(Self::Kube { path: None, context: None }),
            Some(("kube", rest)) => {
                // A file's name may have a `#` in it, a context's hardly: the last one counts.
                let (path, context) = rest.rsplit_once('#').unwrap_or((rest, ""));
                if path.is_empty() {
                    return Err(LocationError(text.escape_debug().collect()));
                }
                let context = (!context.is_empty()).then(|| context.to_owned());
                Ok(Self::Kube { path: Some(PathBuf::from(path)), context })
            }
            _ => Err(LocationError(text.escape_debug().collect())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
            Self::Kube { path: None, .. } => write!(f, "kube:"),
            Self::Kube { path: Some(path), context } => {
                let path = path.display().to_string();
                match context {
                    Some(context) => write!(f, "kube:{path}#{context}"),
                    None if path.contains('#') => write!(f, "kube:{path}#"),
                    None => write!(f, "kube:{path}"),
                }
            }
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
    fn an_api_servers_location_is_read_and_written() {
        for (text, path, context) in [
            ("kube:", None, None),
            ("kube:/etc/kubernetes/admin.conf", Some("/etc/kubernetes/admin.conf"), None),
            ("kube:admin.conf#user@cluster:1", Some("admin.conf"), Some("user@cluster:1")),
            ("kube:/a#b#c", Some("/a#b"), Some("c")),
            ("kube:/a#b#", Some("/a#b"), None),
        ] {
            let location: Location = text.parse().unwrap();
            let expected =
                Location::Kube { path: path.map(PathBuf::from), context: context.map(str::to_owned) };
            assert_eq!(location, expected);
            assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_location_is_answered_with_an_example() {
        for text in ["", "dir", "dir:", "/path", "k8s:x", "Dir:/x", "kube", "kube:#context"] {
            let error = text.parse::<Location>().unwrap_err().to_string();
            assert!(error.contains("dir:PATH") && error.contains("kube:PATH"), "{error}");
        }
    }
}
