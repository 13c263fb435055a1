//! Reading fields off a slice, and writing fields whose length is known only afterwards.

use super::WireError;

/// Takes fields off the front of a slice. Every error names what was being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated(self.what))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Truncated(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The rest of a structure whose whole length, with the `read` bytes that were taken of it, is `length`.
    pub(super) fn body(&mut self, length: u16, read: usize) -> Result<&'a [u8], WireError> {
        let count = usize::from(length).checked_sub(read).ok_or(WireError::Length(self.what))?;
        self.take(count)
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All must have been read.
    pub(super) fn end(self) -> Result<(), WireError> {
        if self.is_empty() { Ok(()) } else { Err(WireError::Length(self.what)) }
    }
}

/// Writes the length of what was appended since `from` into the 16 bits at `at`.
pub(super) fn patch_length(out: &mut [u8], from: usize, at: usize) {
    let length = clamp16(out.len().saturating_sub(from));
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// A length as 16 bits. What we send is far shorter; longer would be a message that no peer takes.
pub(super) fn clamp16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// A number of things as eight bits, likewise.
pub(super) fn clamp8(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}
