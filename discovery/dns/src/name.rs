//! A name of a question: its labels in lower case, on the stack.

use domain::base::name::{ParsedName, ToLabelIter};

/// Longest name in wire form, with its root (RFC 1035).
pub(crate) const MAX_NAME_BYTES: usize = 255;
const MAX_LABELS: usize = 128;

/// A name in lower case and wire form.
///
/// ```text
///  3 w e b 4 s h o p 3 s v c 10 c l u s t e r s e t 5 l o c a l 0
///  ^       ^         ^       ^                      ^           ^ root
///  starts of labels 0, 1, …
/// ```
#[derive(Clone)]
pub(crate) struct QueryName {
    bytes: [u8; MAX_NAME_BYTES],
    starts: [u8; MAX_LABELS],
    labels: usize,
    length: usize,
}

impl QueryName {
    /// Copies a name in lower case. None if it has over 255 bytes, which the parser refuses already.
    pub(crate) fn new<Octets: AsRef<[u8]>>(name: &ParsedName<Octets>) -> Option<Self> {
        let mut copy = Self { bytes: [0; MAX_NAME_BYTES], starts: [0; MAX_LABELS], labels: 0, length: 0 };
        for label in name.iter_labels() {
            let size = u8::try_from(label.len()).ok()?;
            let end = copy.length + 1 + label.len();
            let target = copy.bytes.get_mut(copy.length..end)?;
            let (first, rest) = target.split_first_mut()?;
            *first = size;
            rest.copy_from_slice(label.as_ref());
            rest.make_ascii_lowercase();
            if size > 0 {
                *copy.starts.get_mut(copy.labels)? = u8::try_from(copy.length).ok()?;
                copy.labels += 1;
            }
            copy.length = end;
        }
        Some(copy)
    }

    /// Returns the number of its labels, without the root.
    pub(crate) fn labels(&self) -> usize {
        self.labels
    }

    /// Returns the bytes of a label, without the byte of their number; nothing beyond the last one.
    pub(crate) fn label(&self, index: usize) -> &[u8] {
        if index >= self.labels {
            return &[];
        }
        let start = self.start(index);
        let size = usize::from(self.bytes[start]);
        &self.bytes[start + 1..start + 1 + size]
    }

    /// Returns the wire form of the labels from one to another, the latter excluded.
    pub(crate) fn wire(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.start(from)..self.start(to.max(from))]
    }

    /// Returns the wire form from a label to the root, which is included.
    pub(crate) fn wire_from(&self, from: usize) -> &[u8] {
        &self.bytes[self.start(from)..self.length]
    }

    /// Returns where a label starts; beyond the last one that is the root.
    fn start(&self, index: usize) -> usize {
        if index < self.labels { usize::from(self.starts[index]) } else { self.length.saturating_sub(1) }
    }
}

/// Removes the underscore in front of a port or protocol; upstream's names work without it.
pub(crate) fn without_underscore(label: &[u8]) -> &[u8] {
    label.strip_prefix(b"_").unwrap_or(label)
}

#[cfg(test)]
pub(crate) mod tests {
    use domain::base::Name;
    use domain::dep::octseq::Parser;

    use super::*;

    /// Parses a name of text.
    pub(crate) fn query_name(text: &str) -> QueryName {
        let name = Name::vec_from_str(text).unwrap();
        let mut parser = Parser::from_ref(name.as_slice());
        QueryName::new(&ParsedName::parse_ref(&mut parser).unwrap()).unwrap()
    }

    #[test]
    fn labels_and_ranges_are_in_lower_case() {
        let name = query_name("WEB.Shop.svc.clusterset.local");
        assert_eq!(name.labels(), 5);
        assert_eq!(name.label(0), b"web");
        assert_eq!(name.label(5), b"");
        assert_eq!(name.wire(0, 2), b"\x03web\x04shop");
        assert_eq!(name.wire_from(3), b"\x0aclusterset\x05local\x00");
        assert_eq!(name.wire_from(5), b"\x00");
    }

    #[test]
    fn the_longest_name_and_the_most_labels_fit() {
        let long = query_name(&format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61)));
        assert_eq!(long.wire_from(0).len(), 255);
        let many = query_name(&["a"; 127].join("."));
        assert_eq!((many.labels(), many.wire_from(0).len()), (127, 255));
        assert_eq!(many.label(126), b"a");
    }

    #[test]
    fn only_one_underscore_is_removed() {
        assert_eq!(without_underscore(b"_http"), b"http");
        assert_eq!(without_underscore(b"http"), b"http");
        assert_eq!(without_underscore(b"__a"), b"_a");
    }
}
