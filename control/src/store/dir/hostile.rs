//! Files that nobody should put into a store: too large, without end, and without sense. Each is refused with a sentence, hides
//! no other, leaves nothing of itself in the log, and is over with the next good one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tracing::Level;

use super::cache::{DirCache, FileCache};
use super::layout::KindDir;
use super::scan::{objects, refresh};
use crate::api::Kind;
use crate::store::StoreError;
use crate::store::logged::Logged;

/// Stands in every hostile file where it may not be repeated.
const MARK: &str = "SECRET";

fn good(name: &str) -> String {
    format!(
        "apiVersion: submariner.io/v1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {{cluster_id: {name}, \
         service_cidr: [], cluster_cidr: [], global_cidr: []}}\n"
    )
}

/// A file that is none of an object.
struct BadFile {
    row: &'static str,
    make: fn(&Path),
    reason: &'static str,
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::write(path, text).unwrap();
}

/// A good object, and this beside it.
fn beside(text: &str) -> String {
    format!("{}{text}\n", good("bad"))
}

const BAD_FILES: [BadFile; 14] = [
    BadFile {
        row: "a file of 9 MiB",
        make: |path| write(path, beside(&format!("x: {}", MARK.repeat((9 << 20) / MARK.len())))),
        reason: "is larger than 131072 bytes",
    },
    BadFile {
        row: "a file of a tebibyte",
        make: |path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
        reason: "is larger than 131072 bytes",
    },
    BadFile {
        row: "a device without end",
        make: |path| symlink("/dev/zero", path).unwrap(),
        reason: "is a symbolic link",
    },
    BadFile {
        row: "a pipe",
        make: |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap(),
        reason: "is not a regular file",
    },
    BadFile {
        row: "a directory",
        make: |path| fs::create_dir(path).unwrap(),
        reason: "is not a regular file",
    },
    BadFile {
        row: "no text",
        make: |path| write(path, [MARK.as_bytes(), b"\xff"].concat()),
        reason: "is not UTF-8",
    },
    BadFile { row: "no YAML", make: |path| write(path, format!("{MARK}: [")), reason: "is not YAML" },
    BadFile { row: "a text", make: |path| write(path, MARK), reason: "is not a YAML mapping" },
    BadFile { row: "a list", make: |path| write(path, format!("[{MARK}]")), reason: "is not a YAML mapping" },
    BadFile {
        row: "two documents",
        make: |path| write(path, good("bad") + "---\nx: 1\n"),
        reason: "is not YAML",
    },
    BadFile {
        row: "lists in one another",
        make: |path| write(path, beside(&format!("x: {}{}", "[".repeat(60_000), "]".repeat(60_000)))),
        reason: "is not YAML: recursion limit exceeded",
    },
    BadFile {
        row: "aliases of aliases",
        make: |path| {
            let levels = (1..20).map(|level| {
                format!("x{level}: &x{level} [{}]\n", vec![format!("*x{}", level - 1); 10].join(","))
            });
            write(path, beside(&format!("x0: &x0 {MARK}\n{}", levels.collect::<String>())));
        },
        reason: "is not YAML",
    },
    BadFile {
        row: "metadata that are none",
        make: |path| write(path, good("bad").replace("{name: bad}", MARK)),
        reason: "expected",
    },
    BadFile {
        row: "a name without end",
        make: |path| {
            write(path, good("bad").replace("{name: bad}", &format!("{{name: {}}}", MARK.repeat(1_000))))
        },
        reason: "`metadata.name`",
    },
];

/// Reads the names of a directory's objects.
fn read(dir: &KindDir, cache: &mut FileCache) -> Result<Vec<String>, StoreError> {
    let files = cache.dir(&dir.path);
    refresh(dir, files, Duration::ZERO)?;
    Ok(objects(dir, files).map(|object| object.metadata.name.clone()).collect())
}

#[test]
fn a_file_that_makes_no_sense_is_refused_with_a_sentence_and_hides_no_other() {
    for BadFile { row, make, reason } in BAD_FILES {
        let root = tempfile::tempdir().unwrap();
        let dir = KindDir::new(root.path(), Kind::Cluster, "ns").unwrap();
        dir.make().unwrap();
        let bad = dir.path.join("bad.yaml");
        write(&dir.path.join("a.yaml"), good("a"));
        make(&bad);
        write(&dir.path.join("z.yaml"), good("z"));
        let mut cache = FileCache::default();
        let logged = Logged::begin(Level::TRACE);

        let found = read(&dir, &mut cache).unwrap();
        let text = logged.text();
        assert!(text.contains(reason), "{row}: {text}");
        logged.check(row, &MARK.repeat(100));
        assert_eq!(found, ["a", "z"], "{row}");
        assert!(cache.problems().iter().all(|problem| problem.to_string().len() < 1_000), "{row}");

        fs::remove_file(&bad).or_else(|_| fs::remove_dir(&bad)).unwrap();
        write(&bad, good("bad"));
        assert_eq!(read(&dir, &mut cache).unwrap(), ["a", "bad", "z"], "{row}");
        assert!(cache.problems().is_empty(), "{row}");
    }
}

#[test]
fn a_directory_with_more_files_than_are_taken_in_cannot_be_read_until_they_are_gone() {
    let root = tempfile::tempdir().unwrap();
    let dir = KindDir::new(root.path(), Kind::Cluster, "ns").unwrap();
    dir.make().unwrap();
    write(&dir.path.join("a.yaml"), good("a"));
    let mut cache = FileCache::default();
    assert_eq!(read(&dir, &mut cache).unwrap(), ["a"]);
    let junk = |number: u32| dir.path.join(format!("{number}.junk"));
    write(&junk(0), "");
    // Names of one file, which cost less than files. A file may have no more than 65,000 names everywhere.
    for number in 1..100_000 {
        if number % 50_000 == 0 {
            write(&junk(number), "")
        } else {
            fs::hard_link(junk(number / 50_000 * 50_000), junk(number)).unwrap()
        }
    }
    let error = read(&dir, &mut cache).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "cannot read directory {}: there are more than 100000 files",
            dir.path.display()
        )),
        "{error}"
    );
    (1..100_000).for_each(|number| fs::remove_file(junk(number)).unwrap());
    assert_eq!(read(&dir, &mut cache).unwrap(), ["a"]);
}

#[test]
fn no_more_leftovers_are_found_at_a_time_than_are_cleared_away_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let dir = KindDir::new(root.path(), Kind::Cluster, "ns").unwrap();
    dir.make().unwrap();
    (0..1_500).for_each(|number| write(&dir.path.join(format!(".trieste-tmp-{number}")), ""));
    assert_eq!(refresh(&dir, &mut DirCache::default(), Duration::ZERO).unwrap().len(), 1_000);
}
