//! Tests that are not run: counted, not silent. The crate's own tests have it too.

/// Says that a test is skipped, to people and to `./dev test`.
pub(crate) fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("TRIESTE_SKIPPED") {
        use std::io::Write as _;
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
            let _ = writeln!(file, "{name}: {reason}");
        }
    }
}
