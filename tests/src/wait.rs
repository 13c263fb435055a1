//! Bounded waiting: the one way in which the lab waits for something to become true.

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

#[cfg(test)]
mod tests {
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
}
