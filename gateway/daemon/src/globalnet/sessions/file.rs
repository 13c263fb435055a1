//! The format of the two kinds of file: snapshots, and the changes after them.
//!
//! ```text
//!   header    magic 16 │ fingerprint of the owner key 16 │ generation u64 │ checksum u64
//!   frame     entries u32 │ Unix ms u64 │ entries × 26 bytes │ checksum u64
//!   frame     …
//!   end       a frame without entries: it completes a snapshot; among changes it is a heartbeat
//! ```
//!
//! Numbers are little-endian. A checksum is over everything since the one before it, so that a frame of another place
//! or file does not fit. Reading ends at the first frame that does not fit; those before it count.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use super::super::key::KEY_BYTES;
use super::record::{ENTRY_BYTES, Entry};

/// First bytes of every file; the digit is the version of the format.
const MAGIC: [u8; 16] = *b"trieste-nat-v1\n\0";
/// Bytes of a checksum: enough against accidents. A program that may write the file needs no collision.
const CHECKSUM_BYTES: usize = 8;
const HEADER_BYTES: usize = MAGIC.len() + KEY_BYTES + 8;
const FRAME_HEAD_BYTES: usize = 4 + 8;
/// Most entries of a frame; a reader holds one frame.
pub(super) const FRAME_ENTRIES: usize = 4096;

/// Writes a file.
pub(super) struct FileWriter<W> {
    to: W,
    hash: Sha256,
    buffer: Vec<u8>,
    bytes: u64,
}

impl<W: Write> FileWriter<W> {
    /// Writes the header.
    pub(super) fn new(to: W, fingerprint: &[u8; KEY_BYTES], generation: u64) -> io::Result<Self> {
        let mut writer = Self { to, hash: Sha256::new(), buffer: Vec::new(), bytes: 0 };
        writer.buffer.extend_from_slice(&MAGIC);
        writer.buffer.extend_from_slice(fingerprint);
        writer.buffer.extend_from_slice(&generation.to_le_bytes());
        writer.seal()?;
        Ok(writer)
    }

    /// Writes entries as they were at a time, in frames.
    pub(super) fn entries(&mut self, entries: &[Entry], unix_ms: u64) -> io::Result<()> {
        for frame in entries.chunks(FRAME_ENTRIES) {
            self.frame(frame, unix_ms)?;
        }
        Ok(())
    }

    /// Writes a frame without entries: nothing has changed up to this time.
    pub(super) fn heartbeat(&mut self, unix_ms: u64) -> io::Result<()> {
        self.frame(&[], unix_ms)
    }

    /// Ends a snapshot.
    pub(super) fn finish(mut self, unix_ms: u64) -> io::Result<(W, u64)> {
        self.frame(&[], unix_ms)?;
        self.to.flush()?;
        Ok((self.to, self.bytes))
    }

    /// Returns the bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn frame(&mut self, entries: &[Entry], unix_ms: u64) -> io::Result<()> {
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        self.buffer.extend_from_slice(&count.to_le_bytes());
        self.buffer.extend_from_slice(&unix_ms.to_le_bytes());
        for entry in entries {
            self.buffer.extend_from_slice(&entry.to_bytes());
        }
        self.seal()
    }

    /// Appends the checksum and writes the buffer with one call, so that a killed process leaves complete frames.
    fn seal(&mut self) -> io::Result<()> {
        self.hash.update(&self.buffer);
        self.buffer.extend_from_slice(&checksum(&self.hash));
        let written = self.to.write_all(&self.buffer);
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        written
    }
}

/// Reads a file.
pub(super) struct FileReader<R> {
    from: R,
    hash: Sha256,
    /// Its generation.
    pub(super) generation: u64,
    /// When the newest frame was written, in Unix ms; 0 before the first.
    pub(super) newest_ms: u64,
}

/// A frame or the end of a snapshot.
pub(super) enum Frame {
    /// Entries.
    Entries(Vec<Entry>),
    /// The end of a snapshot; among changes a heartbeat.
    End,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum FileError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is none of ours, of another version, or damaged.
    #[error("it is no file of this version, or damaged")]
    Header,
    /// It was written with another key.
    #[error("it was written with another pre-shared key or cluster ID")]
    Key,
}

impl<R: Read> FileReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`FileError`].
    pub(super) fn new(mut from: R, fingerprint: &[u8; KEY_BYTES]) -> Result<Self, FileError> {
        let mut head = [0; HEADER_BYTES + CHECKSUM_BYTES];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(FileError::Header),
            other => other?,
        }
        let (body, sum) = head.split_at(HEADER_BYTES);
        let hash = Sha256::new().chain_update(body);
        if body[..MAGIC.len()] != MAGIC || sum != checksum(&hash) {
            return Err(FileError::Header);
        }
        let (theirs, generation) = body[MAGIC.len()..].split_at(KEY_BYTES);
        if theirs != fingerprint {
            return Err(FileError::Key);
        }
        let generation = number(generation);
        Ok(Self { from, hash, generation, newest_ms: 0 })
    }

    /// Returns the next frame; `None` at the end of the file, or if the rest is damaged.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.from.read_exact(&mut head).ok()?;
        let (count, time) = head.split_at(4);
        let count = usize::try_from(number(count)).ok().filter(|count| *count <= FRAME_ENTRIES)?;
        let mut body = vec![0; count * ENTRY_BYTES + CHECKSUM_BYTES];
        self.from.read_exact(&mut body).ok()?;
        let (entries, sum) = body.split_at(count * ENTRY_BYTES);
        self.hash.update(head);
        self.hash.update(entries);
        if sum != checksum(&self.hash) {
            return None;
        }
        self.newest_ms = number(time);
        if count == 0 {
            return Some(Frame::End);
        }
        // One that makes no sense behind a right checksum is of a later version: what it says is not missed.
        let entries = entries.chunks_exact(ENTRY_BYTES).filter_map(Entry::from_bytes).collect();
        Some(Frame::Entries(entries))
    }
}

/// Returns the checksum of everything so far; the next one continues from it.
fn checksum(hash: &Sha256) -> [u8; CHECKSUM_BYTES] {
    let digest = hash.clone().finalize();
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&digest[..CHECKSUM_BYTES]);
    sum
}

/// Parses up to eight bytes, little-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}
