//! What must not be taken for a death: a process that gets little of the processor, packets that are late for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::command::Run;
use crate::netns::Namespace;
use crate::process::ProcessId;

/// How large the queue of a delayed device may grow, in bytes.
const QUEUE_BYTES: u32 = 200_000_000;

/// A process that stands still again and again, as one whose control group has used up its share. It goes on when this is
/// dropped.
#[derive(Debug)]
pub struct Stalls {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Stalled>>,
}

/// What a process has gone through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalled {
    /// How often it stood still.
    pub times: u32,
    /// The longest of these times: whoever stops a process may be late to let it go on.
    pub longest: Duration,
}

impl Stalls {
    /// Stops the process for `still`, lets it run for `runs`, and so on.
    pub fn start(process: ProcessId, still: Duration, runs: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut stalled = Stalled::default();
            while !over.load(Ordering::Relaxed) {
                let start = Instant::now();
                if process.signal(Signal::SIGSTOP).is_err() {
                    break;
                }
                std::thread::sleep(still);
                let _ = process.signal(Signal::SIGCONT);
                stalled.times += 1;
                stalled.longest = stalled.longest.max(start.elapsed());
                std::thread::sleep(runs);
            }
            stalled
        });
        Self { is_over, thread: Some(thread) }
    }

    /// Ends it and says what was done.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn finish(mut self) -> Stalled {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is there until the end");
        thread.join().expect("the thread does not panic")
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A device that holds packets back for a while now and then: none is lost, all of them are late. The kernel may lack
/// netem; a token bucket that runs dry does it.
#[derive(Debug)]
pub struct Spikes {
    namespace: Namespace,
    device: String,
}

impl Spikes {
    /// Makes the device's queue one that can be held.
    ///
    /// # Errors
    /// If tc refuses.
    pub fn on(namespace: &Namespace, device: &str) -> anyhow::Result<Self> {
        let spikes = Self { namespace: namespace.clone(), device: device.to_owned() };
        spikes.rate("replace", "40gbit", "2mb")?;
        Ok(spikes)
    }

    /// Holds what the device has to send for this long, then lets all of it go. Returns the longest for which a packet can
    /// have been held: tc takes its time too.
    ///
    /// # Errors
    /// If tc refuses.
    pub fn hold(&self, duration: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        // A packet or two still pass: the bucket cannot be smaller than the largest of them.
        self.rate("change", "8kbit", "2000")?;
        std::thread::sleep(duration);
        self.rate("change", "40gbit", "2mb")?;
        Ok(start.elapsed())
    }

    fn rate(&self, verb: &str, rate: &str, burst: &str) -> anyhow::Result<()> {
        let words = ["qdisc", verb, "dev", &self.device, "root", "tbf", "rate", rate, "burst", burst];
        let limit = QUEUE_BYTES.to_string();
        self.namespace.run("tc").args(words).args(["limit", &limit]).stdout().map(drop)
    }
}

impl Drop for Spikes {
    fn drop(&mut self) {
        // The namespace may be gone already.
        let words = ["qdisc", "del", "dev", &self.device, "root"];
        let _ = Run::in_namespace(self.namespace.name(), "tc").args(words).finish();
    }
}
