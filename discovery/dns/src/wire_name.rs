//! A name of an answer, put together from parts in wire form.

use domain::base::Name;

use crate::name::MAX_NAME_BYTES;

/// A name in the making, on the stack.
pub(crate) struct WireName {
    bytes: [u8; MAX_NAME_BYTES],
    length: usize,
}

impl WireName {
    /// Creates an empty name.
    pub(crate) fn new() -> Self {
        Self { bytes: [0; MAX_NAME_BYTES], length: 0 }
    }

    /// Joins parts, the last of which ends with the root. None if that is longer than a name may be.
    pub(crate) fn join(parts: &[&[u8]]) -> Option<Self> {
        let mut name = Self::new();
        parts.iter().try_for_each(|part| name.append(part))?;
        Some(name)
    }

    /// Appends whole labels. None if that is longer than a name may be.
    pub(crate) fn append(&mut self, labels: &[u8]) -> Option<()> {
        let end = self.length + labels.len();
        self.bytes.get_mut(self.length..end)?.copy_from_slice(labels);
        self.length = end;
        Some(())
    }

    /// Returns the name; none if its parts are no labels with a root behind them.
    pub(crate) fn name(&self) -> Option<Name<&[u8]>> {
        Name::from_octets(&self.bytes[..self.length]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_up_to_255_bytes() {
        let name = WireName::join(&[b"\x02ns", b"\x03dns", b"\x05local\x00"]).unwrap();
        assert_eq!(name.name().unwrap().to_string(), "ns.dns.local");
        let label = [[63].as_slice(), &[b'a'; 63]].concat();
        assert!(WireName::join(&[&label, &label, &label, &label]).is_none());
        assert!(WireName::join(&[b"\x02ns"]).unwrap().name().is_none(), "no root");
    }
}
