//! Which shared libraries programs need, read from the files; nothing is executed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

use crate::Error;
use crate::oci::Architecture;

/// What one file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The machine that it is for.
    pub architecture: Architecture,
    /// The loader that starts it; none for a static program and for a library.
    pub interpreter: Option<PathBuf>,
    /// The libraries that it names.
    pub needed: Vec<String>,
    /// Directories of its own to look in first.
    pub search: Vec<PathBuf>,
}

impl Program {
    /// Reads a program or library.
    ///
    /// # Errors
    /// If it cannot be read, is none, or is for a machine that images are not built for.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let data = std::fs::read(path).map_err(Error::at("read", path))?;
        Self::parse(&data, path.parent().unwrap_or_else(|| Path::new("/")))
            .map_err(|problem| Error::Unusable { path: path.to_owned(), problem })
    }

    fn parse(data: &[u8], origin: &Path) -> Result<Self, String> {
        let shown = |error: object::Error| format!("it is no 64-bit ELF file: {error}");
        let file = ElfFile64::<Endianness>::parse(data).map_err(shown)?;
        let endian = file.endian();
        let architecture = match file.elf_header().e_machine(endian) {
            elf::EM_X86_64 => Architecture::Amd64,
            elf::EM_AARCH64 => Architecture::Arm64,
            other => return Err(format!("it is for machine {other}; images are for x86-64 and 64-bit ARM")),
        };
        let mut interpreter = None;
        let mut is_dynamic = false;
        for segment in file.elf_program_headers() {
            is_dynamic |= segment.p_type(endian) == elf::PT_DYNAMIC;
            if let Some(name) = segment.interpreter(endian, data).map_err(shown)? {
                interpreter = Some(PathBuf::from(text(name)?));
            }
        }
        let table = file.elf_dynamic_table().map_err(shown)?;
        if is_dynamic && table.is_empty() {
            // Without section headers its needs would look like none.
            return Err("its table of needs cannot be found: its section headers were removed".to_owned());
        }
        let (mut needed, mut search) = (Vec::new(), Vec::new());
        for entry in table.iter() {
            match entry.tag {
                elf::DT_NEEDED => needed.push(text(table.string(entry).map_err(shown)?)?),
                elf::DT_RUNPATH | elf::DT_RPATH => {
                    let paths = text(table.string(entry).map_err(shown)?)?;
                    search.extend(paths.split(':').filter(|path| !path.is_empty()).map(|path| {
                        let origin = origin.to_string_lossy();
                        PathBuf::from(path.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin))
                    }));
                }
                _ => {}
            }
        }
        Ok(Self { architecture, interpreter, needed, search })
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a name in it is no text".to_owned())
}

/// Everything that some programs need in order to start.
#[derive(Debug)]
pub struct Libraries {
    /// The machine that all of them are for.
    pub architecture: Architecture,
    /// Where each has to be in the image (without the leading slash), and the file that it is.
    pub files: BTreeMap<String, PathBuf>,
}

/// Finds what these programs, libraries and modules need, and what that needs in turn.
///
/// # Errors
/// The library that is missing and who needs it, or a file that cannot be read.
pub fn needed_by<'a>(programs: impl IntoIterator<Item = &'a Path>) -> Result<Libraries, Error> {
    let mut queue: VecDeque<PathBuf> = programs.into_iter().map(Path::to_owned).collect();
    let mut seen: BTreeSet<PathBuf> = queue.iter().cloned().collect();
    let (mut architecture, mut files) = (None, BTreeMap::new());
    let mut loaders: BTreeSet<String> = BTreeSet::new();
    while let Some(path) = queue.pop_front() {
        let program = Program::read(&path)?;
        let first = *architecture.get_or_insert(program.architecture);
        if program.architecture != first {
            let problem =
                format!("it is for {}, the others for {}", program.architecture.as_str(), first.as_str());
            return Err(Error::Unusable { path, problem });
        }
        if let Some(loader) = &program.interpreter {
            loaders.insert(name_of(loader));
            files.insert(merged(loader), canonical(loader)?);
        }
        for library in &program.needed {
            // Libraries name the loader that has loaded them; it is there already.
            if loaders.contains(library) {
                continue;
            }
            let found = find(library, &program, &path)?;
            let file = canonical(&found)?;
            let folder = canonical(found.parent().unwrap_or_else(|| Path::new("/")))?;
            files.insert(merged(&folder.join(library)), file.clone());
            if seen.insert(file.clone()) {
                queue.push_back(file);
            }
        }
    }
    let architecture = architecture.unwrap_or(Architecture::Amd64);
    Ok(Libraries { architecture, files })
}

/// Looks where the loader looks when it has no cache, since the image has none.
fn find(library: &str, program: &Program, by: &Path) -> Result<PathBuf, Error> {
    let triplet = match program.architecture {
        Architecture::Amd64 => "x86_64-linux-gnu",
        Architecture::Arm64 => "aarch64-linux-gnu",
    };
    let standard = ["/lib/TRIPLET", "/usr/lib/TRIPLET", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    let standard = standard.iter().map(|path| PathBuf::from(path.replace("TRIPLET", triplet)));
    let directories: Vec<PathBuf> = program.search.iter().cloned().chain(standard).collect();
    let is_right = |path: &PathBuf| {
        path.is_file() && Program::read(path).is_ok_and(|found| found.architecture == program.architecture)
    };
    directories.iter().map(|directory| directory.join(library)).find(is_right).ok_or_else(|| {
        let looked: Vec<_> = directories.iter().map(|path| path.display().to_string()).collect();
        Error::NoLibrary { library: library.to_owned(), by: by.to_owned(), looked: looked.join(", ") }
    })
}

/// Where a path of the machine is in the image, whose `/bin`, `/sbin` and `/lib*` are links into `/usr`.
#[must_use]
pub fn merged(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.trim_start_matches('/');
    let first = path.split('/').next().unwrap_or_default();
    if matches!(first, "bin" | "sbin" | "lib" | "lib64") { format!("usr/{path}") } else { path.to_owned() }
}

pub(crate) fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(Error::at("find", path))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_ours_needs_the_c_library_and_its_loader() {
        let own = std::env::current_exe().unwrap();
        let libraries = needed_by([own.as_path()]).unwrap();
        let has = |name: &str| libraries.files.keys().any(|path| path.ends_with(name));
        assert!(has("/libc.so.6"), "{libraries:?}");
        assert!(libraries.files.keys().any(|path| path.contains("/ld-linux-")), "{libraries:?}");
        assert!(libraries.files.keys().all(|path| path.starts_with("usr/")), "{libraries:?}");
        assert!(libraries.files.values().all(|file| file.is_file()));
    }

    #[test]
    fn what_is_no_program_is_refused_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let error = needed_by([path.as_path()]).unwrap_err().to_string();
        assert!(error.contains("script") && error.contains("ELF"), "{error}");
        assert!(needed_by([Path::new("/no/such/program")]).is_err());
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_who_needs_it() {
        let mut program = Program::read(&std::env::current_exe().unwrap()).unwrap();
        program.search = vec![PathBuf::from("/opt/private")];
        let error = find("libnowhere.so.7", &program, Path::new("/usr/bin/tool")).unwrap_err().to_string();
        for part in ["libnowhere.so.7", "/usr/bin/tool", "/opt/private", "/usr/lib"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn paths_of_old_systems_are_the_merged_ones() {
        assert_eq!(merged(Path::new("/lib64/ld-linux-x86-64.so.2")), "usr/lib64/ld-linux-x86-64.so.2");
        assert_eq!(merged(Path::new("/bin/ip")), "usr/bin/ip");
        assert_eq!(merged(Path::new("/usr/sbin/nft")), "usr/sbin/nft");
        assert_eq!(merged(Path::new("/library/x")), "library/x");
    }
}
