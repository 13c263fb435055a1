//! The rows of the fault table, for controllers of any crate: in the end the store says what it should, nothing was written
//! without a right, and the requests are counted.

use std::any::Any;
use std::time::Duration;

use tokio::time::sleep;
use trieste_control::election::Candidate;

use crate::memory_store::{Fault, MemoryStore};

/// The name of this process in an election.
const HOST: &str = "a-gw1";

/// A controller as the table needs it. One with two stores is in it twice, with the faults in either.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    /// The type of its controller, and the circumstances where it is there several times: `tests/check/controllers.sh` finds
    /// controllers without a subject by it.
    pub(crate) name: &'static str,
    /// Puts the objects there that it works on.
    pub(crate) seed: fn(&Stores),
    /// Returns its candidate, where it has a fence.
    pub(crate) candidate: Option<fn(&MemoryStore, &str) -> Candidate>,
    /// Starts it; what is returned ends it when dropped.
    pub(crate) start: fn(&Stores, Option<&Candidate>) -> Box<dyn Any + Send>,
    /// Changes something, so that there is something to write; each number changes something else.
    pub(crate) disturb: fn(&Stores, usize),
    /// Returns `true` if the store says what it should after that many changes.
    pub(crate) is_settled: fn(&Stores, usize) -> bool,
    /// The most requests that write in a minute of a store that flaps ten times a second.
    pub(crate) most_writes: usize,
}

/// The store that has the faults, and another one that is well.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    /// The one that has the faults.
    pub(crate) faulty: MemoryStore,
    /// The one that is well.
    pub(crate) well: MemoryStore,
}

/// Runs every row of the table as a test of its own.
macro_rules! fault_rows {
    ($subjects:expr) => {
        #[tokio::test(start_paused = true)]
        async fn a_store_that_fails_forbids_hangs_is_slow_or_drops_replies() {
            bed::a_store_that_fails_forbids_hangs_is_slow_or_drops_replies(&$subjects).await;
        }
        #[tokio::test(start_paused = true)]
        async fn somebody_else_is_faster() {
            bed::somebody_else_is_faster(&$subjects).await;
        }
        #[tokio::test(start_paused = true)]
        async fn the_echo_of_a_write_does_not_come() {
            bed::the_echo_of_a_write_does_not_come(&$subjects).await;
        }
        #[tokio::test(start_paused = true)]
        async fn a_watch_reports_old_states_after_newer_ones() {
            bed::a_watch_reports_old_states_after_newer_ones(&$subjects).await;
        }
        #[tokio::test(start_paused = true)]
        async fn the_fence_is_lost_between_plan_and_write() {
            bed::the_fence_is_lost_between_plan_and_write(&$subjects).await;
        }
        #[tokio::test(start_paused = true)]
        async fn the_process_is_killed_between_two_writes() {
            bed::the_process_is_killed_between_two_writes(&$subjects).await;
        }
        #[tokio::test(start_paused = true)]
        async fn a_store_that_flaps_ten_times_a_second_is_not_stormed() {
            bed::a_store_that_flaps_ten_times_a_second_is_not_stormed(&$subjects).await;
        }
    };
}
pub(crate) use fault_rows;

/// A subject that runs on a store.
struct Bed {
    subject: Subject,
    stores: Stores,
    /// The store that has the faults.
    store: MemoryStore,
    candidate: Option<Candidate>,
    running: Box<dyn Any + Send>,
    disturbed: usize,
}

impl Bed {
    async fn new(subject: Subject) -> Self {
        let stores = Stores::default();
        let store = stores.faulty.clone();
        (subject.seed)(&stores);
        let candidate = subject.candidate.map(|candidate| candidate(&store, HOST));
        let running = (subject.start)(&stores, candidate.as_ref());
        let bed = Self { subject, stores, store, candidate, running, disturbed: 0 };
        bed.settles("at the start").await;
        bed
    }

    fn disturb(&mut self) {
        (self.subject.disturb)(&self.stores, self.disturbed);
        self.disturbed += 1;
    }

    async fn settles(&self, when: &str) {
        for _ in 0..1_200 {
            if (self.subject.is_settled)(&self.stores, self.disturbed) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{} does not settle {when}", self.subject.name);
    }

    /// Waits until it settles, and sees that nothing is written after that.
    async fn settles_and_rests(&self, when: &str) {
        self.settles(when).await;
        sleep(Duration::from_secs(70)).await;
        assert!((self.subject.is_settled)(&self.stores, self.disturbed), "{} {when}", self.subject.name);
        self.writes();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(self.writes(), Vec::<String>::new(), "{} at rest {when}", self.subject.name);
    }

    /// Returns the requests that write, but for Leases, since the last time.
    fn writes(&self) -> Vec<String> {
        let mut log = self.stores.faulty.take_log();
        log.extend(self.stores.well.take_log());
        let is_write = |line: &String| {
            ["create", "update", "delete"].iter().any(|verb| line.starts_with(verb))
                && !line.contains("Lease")
        };
        log.retain(is_write);
        log
    }
}

/// Runs a row of the table for every subject.
async fn each(subjects: &[Subject], when: &str, row: impl AsyncFn(&mut Bed)) {
    for &subject in subjects {
        let mut bed = Bed::new(subject).await;
        row(&mut bed).await;
        bed.settles_and_rests(when).await;
    }
}

pub(crate) async fn a_store_that_fails_forbids_hangs_is_slow_or_drops_replies(subjects: &[Subject]) {
    let faults = [
        Fault::Fails,
        Fault::Forbids,
        Fault::Hangs,
        Fault::Slow(Duration::from_secs(2)),
        Fault::LosesReplies,
    ];
    for fault in faults {
        each(subjects, &format!("after {fault:?}"), async |bed: &mut Bed| {
            bed.store.set_fault(fault);
            for _ in 0..5 {
                bed.disturb();
                sleep(Duration::from_secs(2)).await;
            }
            bed.store.set_fault(Fault::None);
            bed.store.break_watches();
        })
        .await;
    }
}

pub(crate) async fn somebody_else_is_faster(subjects: &[Subject]) {
    each(subjects, "after lost races", async |bed: &mut Bed| {
        for _ in 0..5 {
            // Slow enough for a change between the plan and its write.
            bed.store.set_fault(Fault::Slow(Duration::from_millis(100)));
            bed.disturb();
            sleep(Duration::from_millis(50)).await;
            bed.disturb();
            sleep(Duration::from_secs(2)).await;
        }
        bed.store.set_fault(Fault::None);
    })
    .await;
}

pub(crate) async fn the_echo_of_a_write_does_not_come(subjects: &[Subject]) {
    each(subjects, "after silent watches", async |bed: &mut Bed| {
        bed.disturb();
        sleep(Duration::from_millis(10)).await;
        bed.store.set_silent(true);
        sleep(Duration::from_secs(10)).await;
        bed.disturb();
        sleep(Duration::from_secs(10)).await;
        bed.store.set_silent(false);
        bed.store.break_watches();
    })
    .await;
}

pub(crate) async fn a_watch_reports_old_states_after_newer_ones(subjects: &[Subject]) {
    each(subjects, "after stale events", async |bed: &mut Bed| {
        for _ in 0..3 {
            let before = bed.store.snapshot();
            bed.disturb();
            bed.settles("after a change").await;
            let after = bed.store.snapshot();
            bed.writes();
            bed.store.report(before);
            bed.store.report(after);
            sleep(Duration::from_secs(5)).await;
            let writes = bed.writes();
            assert!(writes.len() <= 1, "{}: {writes:?}", bed.subject.name);
        }
    })
    .await;
}

pub(crate) async fn the_fence_is_lost_between_plan_and_write(subjects: &[Subject]) {
    each(subjects, "after it is back", async |bed: &mut Bed| {
        let Some(candidate) = bed.candidate.clone() else { return };
        bed.store.set_fault(Fault::Slow(Duration::from_millis(200)));
        bed.disturb();
        sleep(Duration::from_millis(100)).await;
        candidate.set_eligible(false);
        sleep(Duration::from_secs(2)).await;
        assert!(!candidate.is_leader(std::time::Instant::now()));
        bed.writes();
        bed.disturb();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(bed.writes(), Vec::<String>::new(), "{} without the right", bed.subject.name);
        bed.store.set_fault(Fault::None);
        candidate.set_eligible(true);
    })
    .await;
}

pub(crate) async fn the_process_is_killed_between_two_writes(subjects: &[Subject]) {
    for after in [1, 30, 60, 90, 120, 200, 400] {
        each(subjects, "after a kill", async |bed: &mut Bed| {
            bed.store.set_fault(Fault::Slow(Duration::from_millis(50)));
            (0..3).for_each(|_| bed.disturb());
            sleep(Duration::from_millis(after)).await;
            bed.running = Box::new(());
            sleep(Duration::from_millis(500)).await;
            bed.store.set_fault(Fault::None);
            bed.running = (bed.subject.start)(&bed.stores, bed.candidate.as_ref());
        })
        .await;
    }
}

pub(crate) async fn a_store_that_flaps_ten_times_a_second_is_not_stormed(subjects: &[Subject]) {
    each(subjects, "after flapping", async |bed: &mut Bed| {
        bed.writes();
        bed.disturb();
        for flap in 0..600 {
            bed.store.set_fault(if flap % 2 == 0 { Fault::Fails } else { Fault::None });
            bed.store.break_watches();
            if flap % 100 == 0 {
                bed.disturb();
            }
            sleep(Duration::from_millis(100)).await;
        }
        let writes = bed.writes().len();
        assert!(writes <= bed.subject.most_writes, "{}: {writes} writes", bed.subject.name);
        bed.store.set_fault(Fault::None);
    })
    .await;
}
