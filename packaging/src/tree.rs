//! The files of one layer, sorted by path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Error;

/// Where the bytes of a file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// From here.
    Bytes(Vec<u8>),
    /// From a file of the build machine; links are followed.
    File(PathBuf),
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory with this mode.
    Directory(u32),
    /// A file.
    File {
        /// Its mode.
        mode: u32,
        /// Its bytes.
        content: Content,
    },
    /// A symbolic link to this.
    Link(String),
}

/// Paths, without the leading slash, and what is there. Parents come before children.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
}

/// A directory that anybody may look into.
const DIRECTORY_MODE: u32 = 0o755;

impl Tree {
    /// Puts a directory there; of two modes the one that is not everybody's stays.
    ///
    /// # Errors
    /// If something else is there.
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<(), Error> {
        self.parents(path)?;
        match self.entries.get_mut(path) {
            Some(Entry::Directory(known)) if *known == DIRECTORY_MODE => *known = mode,
            Some(Entry::Directory(known)) if *known == mode || mode == DIRECTORY_MODE => {}
            Some(_) => return Err(Error::Conflict(path.to_owned())),
            None => drop(self.entries.insert(path.to_owned(), Entry::Directory(mode))),
        }
        Ok(())
    }

    /// Puts a text there that everybody may read.
    ///
    /// # Errors
    /// If something else is there.
    pub fn text(&mut self, path: &str, text: impl Into<String>) -> Result<(), Error> {
        self.insert(path, Entry::File { mode: 0o644, content: Content::Bytes(text.into().into_bytes()) })
    }

    /// Puts a copy of a file there, executable or not.
    ///
    /// # Errors
    /// If something else is there.
    pub fn copy(&mut self, path: &str, source: impl Into<PathBuf>, is_executable: bool) -> Result<(), Error> {
        let mode = if is_executable { 0o755 } else { 0o644 };
        self.insert(path, Entry::File { mode, content: Content::File(source.into()) })
    }

    /// Puts a symbolic link there.
    ///
    /// # Errors
    /// If something else is there.
    pub fn link(&mut self, path: &str, target: impl Into<String>) -> Result<(), Error> {
        self.insert(path, Entry::Link(target.into()))
    }

    /// Whether something is there.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    /// Everything, parents before children.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The same thing twice is no conflict.
    fn insert(&mut self, path: &str, entry: Entry) -> Result<(), Error> {
        self.parents(path)?;
        if self.entries.get(path).is_some_and(|known| *known != entry) {
            return Err(Error::Conflict(path.to_owned()));
        }
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    fn parents(&mut self, path: &str) -> Result<(), Error> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.directory(parent, DIRECTORY_MODE),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_made_and_come_first() {
        let mut tree = Tree::default();
        tree.text("etc/group", "root:x:0:\n").unwrap();
        tree.link("bin", "usr/bin").unwrap();
        tree.directory("etc", 0o700).unwrap();
        tree.directory("etc", 0o755).unwrap();
        let paths: Vec<_> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["bin", "etc", "etc/group"]);
        assert_eq!(tree.iter().nth(1).unwrap().1, &Entry::Directory(0o700));
    }

    #[test]
    fn two_different_things_in_one_place_are_refused() {
        let mut tree = Tree::default();
        tree.text("a/b", "one").unwrap();
        tree.text("a/b", "one").unwrap();
        assert!(tree.text("a/b", "two").unwrap_err().to_string().contains("/a/b"));
        assert!(tree.text("a/b/c", "below a file").is_err());
        assert!(tree.link("a", "elsewhere").is_err());
        tree.directory("tmp", 0o1777).unwrap();
        assert!(tree.directory("tmp", 0o700).is_err());
    }
}
