//! A layer: a tree as a tar file, perhaps compressed, with the digests of both.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use flate2::{Compression as Level, GzBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::Error;
use crate::tree::{Content, Entry, Tree};

/// How layers are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not: quick to build and to load.
    None,
    /// What every registry and runtime takes.
    Gzip,
}

impl Compression {
    fn media_type(self) -> &'static str {
        match self {
            Self::None => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        }
    }
}

/// What is known of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// What is in it, one word.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// Digest as it is transferred, `sha256:…`.
    pub digest: String,
    /// Digest of the tar file inside, `sha256:…`.
    pub diff_id: String,
    /// Bytes as it is transferred.
    pub compressed: u64,
    /// Bytes of the tar file inside.
    pub uncompressed: u64,
    /// Files, links and directories.
    pub entries: usize,
}

/// A layer, in a file that goes away with it.
#[derive(Debug)]
pub struct Layer {
    /// What is known of it.
    pub summary: Summary,
    pub(crate) file: NamedTempFile,
}

/// Writes a tree as a layer, in a temporary file in `directory`.
///
/// # Errors
/// The file that could not be read, or not be written.
pub fn write(name: &str, tree: &Tree, compression: Compression, directory: &Path) -> Result<Layer, Error> {
    let file =
        NamedTempFile::with_prefix_in(".layer-", directory).map_err(Error::at("write in", directory))?;
    let outer = Counted::new(BufWriter::new(file.as_file()));
    let wrote = |error| Error::at("write", file.path())(error);
    let (outer, inner) = match compression {
        Compression::None => {
            let inner = tar(tree, outer)?;
            let (diff_id, bytes) = inner.sum();
            (inner, (diff_id, bytes))
        }
        Compression::Gzip => {
            // No name and no time in the header: the same bytes whenever it is built.
            let gzip = GzBuilder::new().write(outer, Level::best());
            let inner = tar(tree, Counted::new(gzip))?;
            let sum = inner.sum();
            (inner.into_inner().finish().map_err(wrote)?, sum)
        }
    };
    let (digest, compressed) = outer.sum();
    outer.into_inner().flush().map_err(wrote)?;
    let summary = Summary {
        name: name.to_owned(),
        media_type: compression.media_type().to_owned(),
        digest,
        diff_id: inner.0,
        compressed,
        uncompressed: inner.1,
        entries: tree.iter().count(),
    };
    Ok(Layer { summary, file })
}

/// Writes a tree as a tar file: everything root's, and of the beginning of time.
fn tar<W: Write>(tree: &Tree, out: W) -> Result<W, Error> {
    let mut builder = tar::Builder::new(out);
    builder.mode(tar::HeaderMode::Deterministic);
    for (path, entry) in tree.iter() {
        let into = |error| Error::at("put into the layer", Path::new(path))(error);
        match entry {
            Entry::Directory(mode) => {
                let mut header = header(tar::EntryType::Directory, *mode, 0);
                builder.append_data(&mut header, format!("{path}/"), io::empty()).map_err(into)?;
            }
            Entry::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                builder.append_link(&mut header, path, target).map_err(into)?;
            }
            Entry::File { mode, content: Content::Bytes(bytes) } => {
                let mut header = header(tar::EntryType::Regular, *mode, bytes.len() as u64);
                builder.append_data(&mut header, path, bytes.as_slice()).map_err(into)?;
            }
            Entry::File { mode, content: Content::File(source) } => {
                let file = File::open(source).map_err(Error::at("read", source))?;
                let length = file.metadata().map_err(Error::at("read", source))?.len();
                let mut header = header(tar::EntryType::Regular, *mode, length);
                // A file that grows meanwhile must not become part of the next one.
                builder.append_data(&mut header, path, Exactly::new(file, length)).map_err(into)?;
            }
        }
    }
    builder.into_inner().map_err(Error::at("finish", Path::new("the layer")))
}

pub(crate) fn header(kind: tar::EntryType, mode: u32, length: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(length);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// As many bytes as were promised: fewer are an error.
struct Exactly<R> {
    source: R,
    left: u64,
}

impl<R: Read> Exactly<R> {
    fn new(source: R, length: u64) -> Self {
        Self { source, left: length }
    }
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let got = self.source.read(&mut buffer[..most])?;
        if got == 0 && most > 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was read",
            ));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

/// Counts and digests what goes through.
struct Counted<W> {
    inner: W,
    digest: Sha256,
    bytes: u64,
}

impl<W> Counted<W> {
    fn new(inner: W) -> Self {
        Self { inner, digest: Sha256::new(), bytes: 0 }
    }

    fn sum(&self) -> (String, u64) {
        (named(self.digest.clone().finalize().as_slice()), self.bytes)
    }

    fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The digest of these bytes, `sha256:…`.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    named(Sha256::digest(bytes).as_slice())
}

fn named(digest: &[u8]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(directory: &Path) -> Tree {
        let source = directory.join("source");
        std::fs::write(&source, vec![b'x'; 70_000]).unwrap();
        let mut tree = Tree::default();
        tree.copy("usr/bin/tool", &source, true).unwrap();
        tree.link("bin", "usr/bin").unwrap();
        tree.directory("tmp", 0o1777).unwrap();
        let long = format!("usr/share/{}/{}", "a".repeat(120), "b".repeat(120));
        tree.text(&long, "a path that no old tar holds").unwrap();
        tree
    }

    #[test]
    fn a_layer_is_read_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        for compression in [Compression::None, Compression::Gzip] {
            let layer = write("test", &tree(directory.path()), compression, directory.path()).unwrap();
            let bytes = std::fs::read(layer.file.path()).unwrap();
            assert_eq!(digest(&bytes), layer.summary.digest);
            assert_eq!(bytes.len() as u64, layer.summary.compressed);
            let mut plain = Vec::new();
            match compression {
                Compression::None => plain.clone_from(&bytes),
                Compression::Gzip => {
                    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map(drop).unwrap();
                }
            }
            assert_eq!(
                (digest(&plain), plain.len() as u64),
                (layer.summary.diff_id, layer.summary.uncompressed)
            );
            let mut archive = tar::Archive::new(plain.as_slice());
            let entries: Vec<_> = archive.entries().unwrap().map(Result::unwrap).collect();
            assert_eq!(entries.len(), layer.summary.entries);
            assert!(entries.iter().all(|entry| entry.header().mtime().unwrap() == 0));
            assert!(entries.iter().all(|entry| entry.header().uid().unwrap() == 0));
        }
    }

    #[test]
    fn the_same_tree_gives_the_same_bytes_whatever_the_times_of_its_files() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = write("test", &tree(one.path()), Compression::Gzip, one.path()).unwrap();
        let second = tree(other.path());
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        File::options().append(true).open(other.path().join("source")).unwrap().set_modified(old).unwrap();
        let second = write("test", &second, Compression::Gzip, other.path()).unwrap();
        assert_eq!(first.summary, second.summary);
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        let mut bytes = Vec::new();
        let error = Exactly::new(&b"ab"[..], 3).read_to_end(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        bytes.clear();
        Exactly::new(&b"abc"[..], 2).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"ab");
    }
}
