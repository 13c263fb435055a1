//! Bounded waiting: the one way in which the lab waits for something to become true.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::interrupt;

/// Calls `attempt` until it succeeds, with pauses of 10 ms growing to 200 ms, and returns what it returned.
///
/// # Errors
/// The last error of `attempt`, once `timeout` is over; "interrupted" after a signal.
pub fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut attempt: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let error = match attempt() {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        interrupt::check()?;
        if start.elapsed() >= timeout {
            return Err(error).with_context(|| format!("gave up after {timeout:?} waiting for {what}"));
        }
        interrupt::pause(pause)?;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// Calls `read` until it finds the same after a pause as before it, and returns that.
///
/// # Errors
/// As [`eventually`]; the error shows what was found last, before and after a pause.
pub fn steady<T: PartialEq + Debug>(
    what: &str,
    timeout: Duration,
    pause: Duration,
    read: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    eventually(what, timeout, || {
        let before = read()?;
        interrupt::pause(pause)?;
        let after = read()?;
        anyhow::ensure!(before == after, "{before:?} became {after:?}");
        Ok(after)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn success_is_returned_at_once() {
        let value = eventually("nothing", Duration::ZERO, || Ok(7)).unwrap();

        assert_eq!(value, 7);
    }

    #[test]
    fn the_last_error_and_the_thing_waited_for_are_named() {
        let mut tries = 0;
        let result: anyhow::Result<()> = eventually("the moon", Duration::from_millis(30), || {
            tries += 1;
            anyhow::bail!("try {tries}")
        });

        let text = format!("{:#}", result.unwrap_err());
        assert!(text.contains("the moon") && text.contains(&format!("try {tries}")), "{text}");
        assert!(tries > 1);
    }

    #[test]
    fn what_changes_is_read_until_it_does_not() {
        let reads = Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            Ok(reads.get().min(4))
        };

        let pause = Duration::from_millis(1);
        assert_eq!(steady("a count", Duration::from_secs(5), pause, read).unwrap(), 4);
        let rises = || {
            reads.set(reads.get() + 1);
            Ok(reads.get())
        };
        let error = steady("a count", Duration::ZERO, pause, rises).unwrap_err();
        assert!(format!("{error:#}").contains("became"), "{error:#}");
    }
}
