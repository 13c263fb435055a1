//! Who may run a test that needs root, and when.
//!
//! The machine has as many places as `TRIESTE_LAB_JOBS` says, each a lock on a file. A test takes as many as it weighs, all or
//! none: while it gathers them it holds the queue's lock, so that nobody overtakes it and no two wait for each other. Where
//! others have a turn and the processors have much more to do than they can, it waits for that too: another test would make all
//! of them later, and end none of them sooner.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::interrupt;

/// Where the locks are: memory, shared by all processes of the machine.
const FOLDER: &str = "/run";
/// How many places there are: one, unless this says more. `./dev test` says three for every core,
/// since such a test waits more than it works.
const JOBS: &str = "TRIESTE_LAB_JOBS";
/// The former name of [`JOBS`].
const FORMER_JOBS: &str = "TRIESTE_TURNS";
/// How often the first of the queue looks for a free place: the kernel can tell of one lock only. All others sleep.
const LOOK: Duration = Duration::from_millis(50);

/// Processes that wish to run, for each processor, above which no test joins others. A few of them keep a processor busy.
const CROWD: f64 = 4.0;
/// How much of the mean a new look is: with [`LOOK`], what was two seconds ago counts little.
const NEWEST: f64 = 0.05;
/// The longest that a test waits for the crowd to go.
const CROWDED: Duration = Duration::from_secs(60);

/// Places of a test in network namespaces.
const LAB: usize = 1;
/// Places of a test of real clusters.
const CLUSTERS: usize = 2;

/// The right to use the machine; the next test gets it when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _places: Vec<File>,
}

/// Waits for the turn of a test in network namespaces. `None` if it has to be skipped: there is no root, and
/// `TRIESTE_NO_ROOT=1` says that this is known. The skip is printed, and added to the file that `TRIESTE_SKIPPED` names,
/// which `./dev test` counts.
///
/// # Panics
/// If this is not root and nobody said so, the lock cannot be taken, or a signal asks this process to end.
pub fn root_test(name: &str) -> Option<Turn> {
    turn(name, LAB)
}

/// Waits for the turn of a test of real clusters, which weighs as much as two others.
///
/// # Panics
/// As [`root_test`].
pub fn clusters_test(name: &str) -> Option<Turn> {
    turn(name, CLUSTERS)
}

/// Waits until no other test has a turn, and keeps all from having one: for what is measured.
///
/// # Panics
/// As [`root_test`].
pub fn alone(name: &str) -> Option<Turn> {
    turn(name, usize::MAX)
}

/// Returns `true` if no other test has a turn beside one that has: then time can be judged.
pub fn is_alone() -> bool {
    capacity(|name| std::env::var(name).ok()).is_ok_and(|count| count == 1)
}

/// What is added to a bound on time that is no more than a sign of how something came about: little when nobody else has a
/// turn, and beside others what a test may have to wait for a processor.
pub fn slack() -> Duration {
    Duration::from_secs(if is_alone() { 3 } else { 30 })
}

/// Notes that a test did not run, and why.
pub fn skip(name: &str, why: &str) {
    let line = format!("{name}: {why}\n");
    eprint!("skipped: {line}");
    append("TRIESTE_SKIPPED", &line);
}

/// Adds a line to the file that a variable names, if it does: `./dev test` reads them at its end.
fn append(variable: &str, line: &str) {
    if let Some(path) = std::env::var_os(variable)
        && let Ok(mut file) = File::options().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}

fn turn(name: &str, weight: usize) -> Option<Turn> {
    if !rustix::process::geteuid().is_root() {
        let is_known = std::env::var_os("TRIESTE_NO_ROOT").is_some_and(|value| value == "1");
        assert!(
            is_known,
            "{name} makes network namespaces: run it as root, or set TRIESTE_NO_ROOT=1 to skip it"
        );
        skip(name, "it needs root");
        return None;
    }
    let capacity = capacity(|name| std::env::var(name).ok()).expect("the number of places can be read");
    let start = Instant::now();
    let turn = take(Path::new(FOLDER), capacity, weight, runnable).expect("a turn can be waited for");
    append("TRIESTE_TURN_LOG", &format!("{name} {:.1}\n", start.elapsed().as_secs_f64()));
    Some(turn)
}

fn capacity(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<usize> {
    for name in [JOBS, FORMER_JOBS] {
        if let Some(text) = variable(name) {
            let count: usize =
                text.parse().with_context(|| format!("{name}={text}: how many tests at once?"))?;
            return Ok(count.max(1));
        }
    }
    Ok(1)
}

/// Returns how many processes run or wait for a processor, for each processor (proc(5), `procs_running`).
fn runnable() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let running = text.lines().find_map(|line| line.strip_prefix("procs_running "));
    let running: u32 = running.context("/proc/stat has no procs_running")?.trim().parse()?;
    let processors = u32::try_from(std::thread::available_parallelism()?.get())?;
    Ok(f64::from(running) / f64::from(processors))
}

/// Takes `weight` places, or all if there are fewer.
fn take(
    folder: &Path,
    capacity: usize,
    weight: usize,
    runnable: impl Fn() -> anyhow::Result<f64>,
) -> anyhow::Result<Turn> {
    let open = |suffix: &str| {
        let path: PathBuf = folder.join(format!("trieste-lab.{suffix}"));
        let file = File::options().create(true).write(true).truncate(false).open(&path);
        file.with_context(|| format!("opening {}", path.display()))
    };
    let queue = open("queue")?;
    queue.lock().context("waiting in the queue for a turn")?;
    let mut free = Vec::new();
    for index in 0..capacity {
        free.push(open(&if index == 0 { "turn".to_owned() } else { format!("turn{index}") })?);
    }
    let weight = weight.min(capacity);
    let mut places = Vec::new();
    let mut crowd = runnable()?;
    let mut have_places = None;
    loop {
        let mut left = Vec::new();
        for file in free {
            match (places.len() < weight).then(|| file.try_lock()) {
                Some(Ok(())) => places.push(file),
                None | Some(Err(TryLockError::WouldBlock)) => left.push(file),
                Some(Err(TryLockError::Error(error))) => bail!("taking a place: {error}"),
            }
        }
        if places.len() == weight {
            let since = *have_places.get_or_insert_with(Instant::now);
            let is_first = is_free(&left)?;
            if is_first || crowd <= CROWD || since.elapsed() >= CROWDED {
                return Ok(Turn { _places: places });
            }
        }
        interrupt::check()?;
        free = left;
        sleep(LOOK);
        crowd += (runnable()? - crowd) * NEWEST;
    }
}

/// Returns `true` if nobody has any of these places.
fn is_free(places: &[File]) -> anyhow::Result<bool> {
    for place in places {
        match place.try_lock() {
            Ok(()) => place.unlock().context("giving a place back")?,
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => bail!("taking a place: {error}"),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    #[test]
    fn nobody_overtakes_who_waits_for_several_places() {
        let folder = tempfile::tempdir().unwrap();
        let take = |weight| take(folder.path(), 3, weight, || Ok(1.0)).unwrap();
        let lights = [take(1), take(1)];
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            let heavy = tell.clone();
            scope.spawn(move || heavy.send(("heavy", take(2))).unwrap());
            // The third place is taken by who waits for two.
            let is_taken =
                || File::open(folder.path().join("trieste-lab.turn2")).unwrap().try_lock().is_err();
            while !is_taken() {
                std::thread::yield_now();
            }
            scope.spawn(move || tell.send(("light", take(1))).unwrap());
            let early = told.recv_timeout(LOOK * 4);
            assert!(matches!(early, Err(RecvTimeoutError::Timeout)), "{early:?}");

            let [first, second] = lights;
            drop(first);
            let (name, turn) = told.recv().unwrap();
            assert_eq!(name, "heavy");
            drop(second);
            assert_eq!(told.recv().unwrap().0, "light");
            drop(turn);
        });
    }

    #[test]
    fn who_weighs_more_than_there_is_takes_all() {
        let folder = tempfile::tempdir().unwrap();
        let all = take(folder.path(), 2, usize::MAX, || Ok(1.0)).unwrap();

        for name in ["turn", "turn1"] {
            let file = File::open(folder.path().join(format!("trieste-lab.{name}"))).unwrap();
            assert!(file.try_lock().is_err(), "{name} is free");
        }
        drop(all);
        drop(take(folder.path(), 2, 2, || Ok(1.0)).unwrap());
    }

    #[test]
    fn nobody_joins_others_while_the_processors_are_crowded_but_the_first_does_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let looks = Cell::new(0);
        let crowd = || {
            looks.set(looks.get() + 1);
            Ok(if looks.get() < 10 { CROWD * 4.0 } else { 0.0 })
        };

        let first = take(folder.path(), 3, 1, || Ok(CROWD * 4.0)).unwrap();
        let second = take(folder.path(), 3, 1, crowd).unwrap();

        assert!(looks.get() > 10, "{} looks", looks.get());
        drop((first, second));
        assert!(runnable().unwrap() > 0.0);
    }

    #[test]
    fn the_number_of_places_has_a_former_name() {
        let of = |known: &[(&str, &str)]| {
            capacity(|name| known.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[]).unwrap(), 1);
        assert_eq!(of(&[(FORMER_JOBS, "3")]).unwrap(), 3);
        assert_eq!(of(&[(FORMER_JOBS, "3"), (JOBS, "0")]).unwrap(), 1);
        assert!(of(&[(JOBS, "many")]).unwrap_err().to_string().contains("TRIESTE_LAB_JOBS=many"));
    }
}
