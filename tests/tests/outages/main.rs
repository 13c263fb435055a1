//! What losses of gateways cost. `./dev test` runs this program alone: what it measures suffers from company.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot go on has failed")]

mod hostile;
mod measured;
mod restart;
mod several;
