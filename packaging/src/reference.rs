//! The name of an image: registry, repository, tag.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A full name, such as `localhost/trieste:0.1.0`: Kubernetes reads one without a registry as Docker Hub's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    repository: String,
    tag: String,
}

impl Reference {
    /// `localhost/trieste` with this version: what the manifests name unless they are told otherwise.
    #[must_use]
    pub fn local(version: &str) -> Self {
        Self { repository: "localhost/trieste".to_owned(), tag: version.to_owned() }
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |problem| Error::Reference { reference: text.to_owned(), problem };
        if text.contains('@') {
            return Err(refuse("it has a digest, which only the finished image has"));
        }
        let slash = text.find('/').ok_or_else(|| refuse("it names no registry"))?;
        let (registry, rest) = text.split_at(slash);
        if registry != "localhost" && !registry.contains(['.', ':']) {
            return Err(refuse("what is before the first slash is no registry"));
        }
        let (path, tag) = rest[1..].rsplit_once(':').ok_or_else(|| refuse("it has no tag"))?;
        let is_of_path = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
        };
        if path.split('/').any(|part| part.is_empty() || !part.bytes().all(is_of_path)) {
            return Err(refuse("a repository has lower-case letters, digits and . _ - between slashes"));
        }
        let is_of_tag = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if tag.is_empty() || tag.len() > 128 || tag.starts_with(['.', '-']) || !tag.bytes().all(is_of_tag) {
            return Err(refuse("a tag has up to 128 letters, digits and . _ -"));
        }
        Ok(Self { repository: format!("{registry}/{path}"), tag: tag.to_owned() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_taken_and_come_out_as_they_went_in() {
        for text in ["localhost/trieste:0.1.0", "quay.io/a/b/trieste:v1", "localhost:5000/trieste:devel"] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        assert_eq!(Reference::local("0.1.0").to_string(), "localhost/trieste:0.1.0");
    }

    #[test]
    fn other_names_are_refused_with_the_reason_and_a_good_one() {
        let cases = [
            ("trieste:0.1.0", "no registry"),
            ("submariner/trieste:1", "no registry"),
            ("localhost/trieste", "no tag"),
            ("localhost:5000/trieste", "no tag"),
            ("localhost/Trieste:1", "lower-case"),
            ("localhost//trieste:1", "lower-case"),
            ("localhost/trieste:", "a tag has"),
            ("localhost/trieste:-1", "a tag has"),
            ("localhost/trieste@sha256:00", "digest"),
        ];
        for (text, reason) in cases {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("localhost/trieste:0.1.0"), "{text}: {error}");
        }
    }
}
