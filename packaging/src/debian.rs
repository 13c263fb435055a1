//! Whose a file is, as the package manager's own files say: licence and record of its package.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::libraries::merged;
use crate::tree::Tree;

const LISTS: &str = "/var/lib/dpkg/info";
const STATUS: &str = "/var/lib/dpkg/status";
const COMMON: &str = "/usr/share/common-licenses/";

/// The packages of this machine.
#[derive(Debug)]
pub struct Packages {
    /// Package, and the text of its list of files.
    lists: BTreeMap<String, String>,
}

impl Packages {
    /// Reads which package has which file.
    ///
    /// # Errors
    /// If this is no machine with Debian's package manager.
    pub fn read() -> Result<Self, Error> {
        let directory = Path::new(LISTS);
        let mut lists = BTreeMap::new();
        for entry in std::fs::read_dir(directory).map_err(Error::at("list", directory))? {
            let path = entry.map_err(Error::at("list", directory))?.path();
            if path.extension().is_some_and(|extension| extension == "list") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let name = name.split(':').next().unwrap_or_default().to_owned();
                let text = std::fs::read_to_string(&path).map_err(Error::at("read", &path))?;
                // A package that is there for two machines has the same documents for both.
                let known: &mut String = lists.entry(name).or_default();
                known.push_str(&text);
            }
        }
        Ok(Self { lists })
    }

    /// The files of a package, sorted.
    #[must_use]
    pub fn files_of(&self, package: &str) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            self.lists.get(package).into_iter().flat_map(|list| list.lines().map(PathBuf::from)).collect();
        files.sort();
        files.dedup();
        files
    }

    /// The packages that these files belong to.
    ///
    /// # Errors
    /// The file that belongs to none.
    pub fn owners(&self, files: &BTreeSet<PathBuf>) -> Result<BTreeSet<String>, Error> {
        let mut wanted: BTreeMap<String, &PathBuf> = files.iter().map(|file| (merged(file), file)).collect();
        let mut owners = BTreeSet::new();
        for (package, list) in &self.lists {
            for line in list.lines() {
                if wanted.remove(&merged(Path::new(line))).is_some() {
                    owners.insert(package.clone());
                }
            }
        }
        match wanted.into_values().next() {
            Some(file) => Err(Error::NoOwner(file.clone())),
            None => Ok(owners),
        }
    }
}

/// Puts in what belongs with files of these packages: licences, and the records by which scanners know versions.
///
/// # Errors
/// The licence or record that cannot be found.
pub fn add_documents(tree: &mut Tree, packages: &BTreeSet<String>) -> Result<(), Error> {
    let path = Path::new(STATUS);
    let status = std::fs::read_to_string(path).map_err(Error::at("read", path))?;
    let mut common = BTreeSet::new();
    for package in packages {
        let copyright = PathBuf::from(format!("/usr/share/doc/{package}/copyright"));
        let bytes = std::fs::read(&copyright).map_err(Error::at("read", &copyright))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        common.extend(common_licences(&text));
        tree.text(&format!("usr/share/doc/{package}/copyright"), text)?;
        let record = record(&status, package).ok_or_else(|| Error::Unusable {
            path: path.to_owned(),
            problem: format!("it has no record of the package {package}"),
        })?;
        tree.text(&format!("var/lib/dpkg/status.d/{package}"), record)?;
    }
    for licence in common {
        let path = PathBuf::from(format!("{COMMON}{licence}"));
        // Texts name some that exist elsewhere only.
        if path.is_file() {
            tree.copy(&merged(&path), path, false)?;
        }
    }
    Ok(())
}

/// One package's paragraph.
fn record(status: &str, package: &str) -> Option<String> {
    let first = format!("Package: {package}");
    let is_it = |paragraph: &&str| {
        let mut lines = paragraph.lines();
        lines.next() == Some(first.as_str()) && lines.any(|line| line == "Status: install ok installed")
    };
    Some(format!("{}\n", status.split("\n\n").find(is_it)?.trim_end()))
}

/// The names below `/usr/share/common-licenses/` that a text refers to.
fn common_licences(text: &str) -> impl Iterator<Item = String> {
    text.split(COMMON).skip(1).filter_map(|rest| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '+');
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        // A sentence may end with it.
        let name = rest[..end].trim_end_matches('.');
        (!name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Packages {
        let lists = [
            ("iproute2", "/.\n/bin\n/bin/ip\n/sbin/bridge\n"),
            ("nftables", "/usr/sbin/nft\n/usr/share/doc/nftables\n"),
        ];
        Packages { lists: lists.map(|(name, list)| (name.to_owned(), list.to_owned())).into() }
    }

    #[test]
    fn a_file_is_found_under_the_path_of_old_systems_and_of_merged_ones() {
        let files = ["/usr/bin/ip", "/sbin/bridge", "/usr/sbin/nft"].map(PathBuf::from).into();
        let owners: Vec<_> = packages().owners(&files).unwrap().into_iter().collect();
        assert_eq!(owners, ["iproute2", "nftables"]);
    }

    #[test]
    fn a_file_of_nobody_is_named() {
        let error = packages().owners(&["/opt/own/tool".into()].into()).unwrap_err().to_string();
        assert!(error.contains("/opt/own/tool"), "{error}");
    }

    #[test]
    fn the_record_of_an_installed_package_is_found_and_no_other() {
        let status = "Package: a\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: a\nStatus: install ok \
                      installed\nVersion: 2\n\nPackage: ab\nStatus: install ok installed\n\n";
        let record = record(status, "a").unwrap();
        assert!(record.contains("Version: 2") && record.ends_with("2\n"), "{record}");
        assert!(super::record(status, "b").is_none());
    }

    #[test]
    fn common_licences_are_found_in_sentences() {
        let text = "in `/usr/share/common-licenses/GPL-2'. Or /usr/share/common-licenses/LGPL-2.1.\n\
                    not /usr/share/common-licenses/";
        assert_eq!(common_licences(text).collect::<Vec<_>>(), ["GPL-2", "LGPL-2.1"]);
    }
}
