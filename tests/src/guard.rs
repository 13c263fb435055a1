//! Who may run a test that needs root, and when.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};

/// Many labs at once would share two cores: these tests wait for one another, also across processes.
const TURN: &str = "/run/trieste-lab.turn";
/// How many of them may run at once: one, unless this says more. `./dev test` says three, since such a test mostly waits, and
/// one for those that measure outages.
const TURNS: &str = "TRIESTE_TURNS";
/// How often a waiting test looks.
const LOOK: Duration = Duration::from_millis(50);

/// The right to use the machine; the next test gets it when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

/// Waits for this test's turn. `None` if it has to be skipped: there is no root, and `TRIESTE_NO_ROOT=1` says that
/// this is known. The skip is printed, and added to the file that `TRIESTE_SKIPPED` names, which `./dev test` counts.
///
/// # Panics
/// If this is not root and nobody said so, or the lock cannot be taken.
pub fn root_test(name: &str) -> Option<Turn> {
    if !rustix::process::geteuid().is_root() {
        let is_known = std::env::var_os("TRIESTE_NO_ROOT").is_some_and(|value| value == "1");
        assert!(
            is_known,
            "{name} makes network namespaces: run it as root, or set TRIESTE_NO_ROOT=1 to skip it"
        );
        skip(name, "it needs root");
        return None;
    }
    Some(turn().expect("/run is writable for root"))
}

/// Notes that a test did not run, and why.
pub fn skip(name: &str, why: &str) {
    let line = format!("{name}: {why}\n");
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("TRIESTE_SKIPPED")
        && let Ok(mut file) = File::options().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}

fn turn() -> anyhow::Result<Turn> {
    let turns: usize = match std::env::var(TURNS) {
        Ok(text) => text.parse().with_context(|| format!("{TURNS}={text}: how many tests at once?"))?,
        Err(_) => 1,
    };
    let open = |index: usize| {
        let path = if index == 0 { TURN.to_owned() } else { format!("{TURN}{index}") };
        File::options().create(true).write(true).truncate(false).open(&path).context(path)
    };
    let mut locks = (0..turns.max(1)).map(open).collect::<anyhow::Result<Vec<File>>>()?;
    loop {
        for index in 0..locks.len() {
            match locks[index].try_lock() {
                Ok(()) => return Ok(Turn { _lock: locks.swap_remove(index) }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => bail!("{TURN}: {error}"),
            }
        }
        sleep(LOOK);
    }
}
