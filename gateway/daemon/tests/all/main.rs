//! Tests of the gateway from outside: workers, sessions that outlive a process, devices and notices.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod inherited;
mod notices;
mod sessions;
mod workers;
