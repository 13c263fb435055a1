//! How busy the slow half is: read by the gates, which keep floods away from it, and by the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::Directory;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters that the engine writes and anybody reads.
        #[derive(Debug, Default)]
        pub struct EngineLoad {
            /// Half-open IKE SAs: answered IKE_SA_INITs whose IKE_AUTH has not come. A level, all others are counts.
            pub half_open: AtomicU64,
            /// Whose SPIs and addresses there are.
            pub directory: ArcSwap<Directory>,
            $($(#[$doc])* pub $name: AtomicU64,)+
        }

        impl EngineLoad {
            /// All counts with their names, in a fixed order.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+]
            }
        }
    };
}

counters! {
    /// IKE_SA_INIT requests that the gates answered with a cookie instead.
    cookies_sent,
    /// IKE messages that the gates turned away: malformed, for no SPI of ours, above their source's share or what is taken
    /// of all in a second, or more than wait for the engine.
    gate_refused,
    /// IKE_SA_INIT requests looked at, repetitions included.
    init_requests,
    /// IKE SAs that came about.
    established,
    /// Child SAs that came about.
    children,
    /// Requests repeated for want of an answer.
    retransmitted,
    /// Answers repeated because the request came again.
    repeated_responses,
    /// Messages that are no IKEv2: too short, wrong lengths, another major version.
    malformed,
    /// Messages for an IKE SA that does not exist, most of them seen by the gates.
    unknown_spi,
    /// Messages that did not verify.
    bad_integrity,
    /// Messages whose number is outside of the window.
    out_of_window,
    /// Requests for new keys turned away because the peer has asked for many just before.
    rekeys_refused,
    /// Messages that verified and were wrong inside.
    invalid_syntax,
    /// IKE_SA_INIT requests turned away because too many are half-open.
    half_open_refused,
    /// IKE_SA_INIT requests of strangers whose MODP group was refused because the engine is busy.
    modp_refused,
    /// Half-open IKE SAs pushed out by those whose sender proved its address.
    half_open_evicted,
    /// IKE_AUTH requests or answers whose PSK or identity was wrong.
    authentication_failed,
    /// Error notifies that nobody vouches for: remembered and shown, but not believed.
    unauthenticated_errors,
    /// Peers given up because they did not answer.
    dead_peers,
}

impl EngineLoad {
    /// Counts one.
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
