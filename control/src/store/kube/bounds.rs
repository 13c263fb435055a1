//! How many bytes of an answer are read, by what was asked for.
//!
//! An answer that announces more than its bound is refused before it is read, any other where it exceeds it. Refusals are cut
//! instead: the server's reason stands at the beginning.

use std::fmt;
use std::io;

use bytes::Bytes;

/// Most bytes of an answer that is one object, or a page of one. Ours: etcd takes objects of 1.5 MiB unless it is set otherwise.
pub(super) const OBJECT_BYTES: usize = 16 << 20;
/// Most bytes of a page of a list. Ours: 500 nodes with fifty images each are 12 MiB.
pub(super) const PAGE_BYTES: usize = 16 << 20;
/// Most bytes of a page of a list of what members write. Ours: a tenth of that in a set that nobody attacks.
pub(super) const MEMBER_PAGE_BYTES: usize = 8 << 20;
/// Most bytes of an event of a watch. Ours: etcd takes objects of 1.5 MiB unless it is set otherwise.
pub(super) const EVENT_BYTES: usize = 4 << 20;
/// Most bytes of a refusal. Ours: a server's reason is a sentence or two.
const REFUSAL_BYTES: usize = 64 << 10;

/// Counts the bytes of an answer.
#[derive(Debug)]
pub(super) struct Bound {
    of: Of,
    most: usize,
    /// Bytes so far, of a watch those of the line that has begun.
    read: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Whole,
    Line,
    Refusal,
}

/// An answer that is longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch {
    of: Of,
    most: usize,
}

impl Bound {
    /// Returns the bound of an answer that may have `most` bytes.
    pub(super) fn whole(most: usize) -> Self {
        Self { of: Of::Whole, most, read: 0 }
    }

    /// Returns the bound of each event of a watch.
    pub(super) fn event() -> Self {
        Self { of: Of::Line, most: EVENT_BYTES, read: 0 }
    }

    /// Returns the bound of a refusal.
    pub(super) fn refusal() -> Self {
        Self { of: Of::Refusal, most: REFUSAL_BYTES, read: 0 }
    }

    /// Checks how many bytes the server says that are still to come.
    ///
    /// # Errors
    /// [`TooMuch`] if these are more than may be read.
    pub(super) fn check_announced(&self, bytes: u64) -> Result<(), TooMuch> {
        let announced = usize::try_from(bytes).unwrap_or(usize::MAX);
        match self.of {
            Of::Whole if announced > self.most.saturating_sub(self.read) => Err(self.exceeded()),
            Of::Whole | Of::Line | Of::Refusal => Ok(()),
        }
    }

    /// Counts a part of an answer and returns what may be used of it.
    ///
    /// # Errors
    /// [`TooMuch`] if the answer is too long by now.
    pub(super) fn count(&mut self, part: Bytes) -> Result<Bytes, TooMuch> {
        if self.of == Of::Refusal {
            let kept = part.len().min(self.most - self.read);
            self.read += kept;
            return Ok(part.slice(..kept));
        }
        let is_end = |byte: &u8| *byte == b'\n' && self.of == Of::Line;
        let first_line = part.iter().position(is_end);
        if self.read.saturating_add(first_line.unwrap_or(part.len())) > self.most {
            return Err(self.exceeded());
        }
        match first_line.and_then(|_| part.iter().rposition(is_end)) {
            Some(end) => self.read = part.len() - end - 1,
            None => self.read += part.len(),
        }
        if self.read > self.most { Err(self.exceeded()) } else { Ok(part) }
    }

    /// Returns `true` once no more is to be read.
    pub(super) fn is_over(&self) -> bool {
        self.of == Of::Refusal && self.read == self.most
    }

    fn exceeded(&self) -> TooMuch {
        TooMuch { of: self.of, most: self.most }
    }
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.of == Of::Line { "an event of the watch" } else { "the answer" };
        write!(f, "{what} is longer than {} bytes", self.most)
    }
}

impl From<TooMuch> for io::Error {
    fn from(error: TooMuch) -> Self {
        Self::new(io::ErrorKind::FileTooLarge, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    #[test]
    fn a_whole_answer_is_bounded_as_it_is_announced_and_as_it_comes() {
        let mut bound = Bound::whole(10);
        assert!(bound.check_announced(10).is_ok() && bound.check_announced(11).is_err());
        assert!(bound.check_announced(u64::MAX).is_err());
        assert_eq!(bound.count(part(6)), Ok(part(6)));
        assert!(bound.check_announced(4).is_ok() && bound.check_announced(5).is_err());
        let error = bound.count(part(5)).unwrap_err();
        assert_eq!(error.to_string(), "the answer is longer than 10 bytes");
    }

    #[test]
    fn of_a_watch_each_line_is_bounded() {
        let mut bound = Bound { most: 10, ..Bound::event() };
        assert!(bound.check_announced(1_000).is_ok());
        for text in ["123456789\n", "1234567890", "\n", "12345\n123\n1234567890"] {
            assert!(bound.count(Bytes::from(text)).is_ok(), "{text:?}");
        }
        let error = bound.count(part(1)).unwrap_err();
        assert_eq!(error.to_string(), "an event of the watch is longer than 10 bytes");
    }

    #[test]
    fn a_refusal_is_cut() {
        let mut bound = Bound { most: 10, ..Bound::refusal() };
        assert!(bound.check_announced(1_000).is_ok());
        assert_eq!(bound.count(part(6)), Ok(part(6)));
        assert!(!bound.is_over());
        assert_eq!(bound.count(part(6)), Ok(part(4)));
        assert!(bound.is_over());
    }
}
