//! The one image, and when it is pulled.

use std::fmt;
use std::str::FromStr;

/// Where the image is unless somebody says otherwise: loaded into the nodes by hand.
const DEFAULT_REPOSITORY: &str = "localhost";
/// The image's name within a repository.
const NAME: &str = "trieste";

/// Which image the pods run, and when nodes pull it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The full reference, such as `localhost/trieste:0.1.0`.
    pub reference: String,
    /// When nodes pull it.
    pub pull_policy: PullPolicy,
}

/// When nodes pull an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// At every start of a container.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Not at all.
    Never,
}

/// A word that is no pull policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no pull policy: known are Always, IfNotPresent and Never")]
pub struct UnknownPullPolicy(String);

impl Image {
    /// The image of this reference, pulled where it is missing.
    pub fn new(reference: impl Into<String>) -> Self {
        Self { reference: reference.into(), pull_policy: PullPolicy::default() }
    }

    /// `<repository>/trieste:<version>`; what is not said is the default.
    pub fn of(repository: Option<&str>, version: Option<&str>) -> Self {
        let repository = repository.unwrap_or(DEFAULT_REPOSITORY).trim_end_matches('/');
        let version = version.unwrap_or(env!("CARGO_PKG_VERSION"));
        Self::new(format!("{repository}/{NAME}:{version}"))
    }

    /// The same image, pulled at other times.
    #[must_use]
    pub fn pulled(mut self, pull_policy: PullPolicy) -> Self {
        self.pull_policy = pull_policy;
        self
    }

    /// Returns the same image of another version.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        let name = self.reference.rfind('/').map_or(0, |slash| slash + 1);
        let end = self.reference[name..].find([':', '@']).map_or(self.reference.len(), |end| name + end);
        self.reference = format!("{}:{version}", &self.reference[..end]);
        self
    }

    /// What stands before the image's name; empty without a slash.
    pub fn repository(&self) -> &str {
        self.reference.rsplit_once('/').map_or("", |(repository, _)| repository)
    }

    /// What stands behind the image's name: a tag, or a digest. `latest` when nothing is said, as nodes understand it.
    pub fn version(&self) -> &str {
        let name = self.reference.rsplit_once('/').map_or(self.reference.as_str(), |(_, name)| name);
        let of_digest = name.split_once('@').map(|(_, digest)| digest);
        of_digest.or_else(|| name.split_once(':').map(|(_, tag)| tag)).unwrap_or("latest")
    }
}

impl Default for Image {
    fn default() -> Self {
        Self::of(None, None)
    }
}

impl PullPolicy {
    /// The word in a manifest.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl fmt::Display for PullPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PullPolicy {
    type Err = UnknownPullPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Always, Self::IfNotPresent, Self::Never]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| UnknownPullPolicy(text.escape_debug().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_made_of_repository_and_version_and_taken_apart_again() {
        assert_eq!(Image::default().reference, concat!("localhost/trieste:", env!("CARGO_PKG_VERSION")));
        let image = Image::of(Some("registry.example.com:5000/net/"), Some("1.2"));
        assert_eq!(image.reference, "registry.example.com:5000/net/trieste:1.2");
        assert_eq!((image.repository(), image.version()), ("registry.example.com:5000/net", "1.2"));
        for reference in ["r:5000/n/own:1", "r:5000/n/own@sha256:abc", "r:5000/n/own"] {
            assert_eq!(Image::new(reference).with_version("2").reference, "r:5000/n/own:2");
        }
        assert_eq!(Image::new("trieste").with_version("2").reference, "trieste:2");
        let digest = Image::new("r/trieste@sha256:abc");
        assert_eq!((digest.repository(), digest.version()), ("r", "sha256:abc"));
        assert_eq!((Image::new("trieste").repository(), Image::new("trieste").version()), ("", "latest"));
    }

    #[test]
    fn a_pull_policy_is_one_of_three_words() {
        assert_eq!("Never".parse(), Ok(PullPolicy::Never));
        assert!("never".parse::<PullPolicy>().unwrap_err().to_string().contains("IfNotPresent"));
    }
}
