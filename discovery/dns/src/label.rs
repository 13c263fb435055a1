//! One label of a name, and the two labels of a service.

use std::borrow::Cow;
use std::fmt;

/// Longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 63;

/// A label in lower case: a cluster's id, a namespace, a service, a port or a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Box<[u8]>);

/// Why a text is no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// It is empty.
    #[error("cannot use an empty text as a label")]
    Empty,
    /// It has over 63 bytes.
    #[error("cannot use {0} bytes as a label: at most {MAX_LABEL_BYTES} are allowed")]
    TooLong(usize),
    /// It has bytes other than letters, digits, `-` and `_`.
    #[error("cannot use {0:?} as a label: it has other characters than letters, digits, - and _")]
    Character(String),
}

impl Label {
    /// Parses a label; upper case becomes lower case.
    ///
    /// # Errors
    /// When it is empty, too long, or has other characters than letters, digits, `-` and `_`.
    pub fn new(text: &str) -> Result<Self, LabelError> {
        if text.is_empty() {
            return Err(LabelError::Empty);
        }
        if text.len() > MAX_LABEL_BYTES {
            return Err(LabelError::TooLong(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Err(LabelError::Character(text.to_owned()));
        }
        Ok(Self(text.to_ascii_lowercase().into_bytes().into_boxed_slice()))
    }

    /// Returns its bytes, without the byte of their number: 1 to 63.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends its wire form: the number of bytes, and the bytes.
    pub(crate) fn write(&self, wire: &mut Vec<u8>) {
        wire.push(u8::try_from(self.0.len()).unwrap_or_default());
        wire.extend_from_slice(&self.0);
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A service: its name and its namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Wire form of both labels, `web` before `shop`, without a root: a part of every name of the service.
    wire: Box<[u8]>,
    namespace_at: usize,
}

impl ServiceName {
    /// Names a service of a namespace.
    pub fn new(namespace: &Label, service: &Label) -> Self {
        let mut wire = Vec::with_capacity(2 + service.0.len() + namespace.0.len());
        service.write(&mut wire);
        let namespace_at = wire.len();
        namespace.write(&mut wire);
        Self { wire: wire.into_boxed_slice(), namespace_at }
    }

    /// Parses a namespace and a service.
    ///
    /// # Errors
    /// When one of them is no label.
    pub fn parse(namespace: &str, service: &str) -> Result<Self, LabelError> {
        Ok(Self::new(&Label::new(namespace)?, &Label::new(service)?))
    }

    /// Returns the service's name.
    pub fn service(&self) -> Cow<'_, str> {
        text(&self.wire[..self.namespace_at])
    }

    /// Returns the namespace's name.
    pub fn namespace(&self) -> Cow<'_, str> {
        text(&self.wire[self.namespace_at..])
    }

    /// Returns both labels in wire form, the service's first.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Returns the namespace's label in wire form.
    pub(crate) fn namespace_wire(&self) -> &[u8] {
        &self.wire[self.namespace_at..]
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.service())
    }
}

/// Returns a label of the wire as text.
fn text(label: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(label.get(1..).unwrap_or_default())
}

impl fmt::Debug for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_lower_case_and_at_most_63_bytes() {
        assert_eq!(Label::new("Web-1").unwrap().as_bytes(), b"web-1");
        assert!(Label::new(&"a".repeat(63)).is_ok());
        assert_eq!(Label::new(&"a".repeat(64)), Err(LabelError::TooLong(64)));
        assert_eq!(Label::new(""), Err(LabelError::Empty));
        assert_eq!(Label::new("a.b"), Err(LabelError::Character("a.b".to_owned())));
    }

    #[test]
    fn a_service_is_its_two_labels_of_the_wire() {
        let name = ServiceName::parse("shop", "web").unwrap();
        assert_eq!(name.wire(), b"\x03web\x04shop");
        assert_eq!(name.namespace_wire(), b"\x04shop");
        assert_eq!(name.to_string(), "shop/web");
    }
}
