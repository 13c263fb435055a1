use rand_core::OsRng;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> (WorkQueue<&'static str>, Instant) {
    (WorkQueue::new(Duration::from_millis(200), 30 * SECOND), Instant::now())
}

/// Takes what is ready, in order.
fn take(queue: &mut WorkQueue<&'static str>, now: Instant) -> Vec<&'static str> {
    std::iter::from_fn(|| queue.next(now)).map(|(key, _)| key).collect()
}

#[test]
fn a_key_is_taken_once_however_often_it_was_added() {
    let (mut queue, now) = queue();
    (0..5).for_each(|_| queue.add(&"a", 0, now));
    assert_eq!((queue.depth(), queue.oldest()), (1, Some(now)));
    assert_eq!(take(&mut queue, now), ["a"]);
    queue.succeed(&"a", now);
    assert!(take(&mut queue, now).is_empty() && queue.is_idle() && queue.oldest().is_none());
}

#[test]
fn a_key_that_changes_while_it_is_written_is_taken_again_afterwards() {
    let (mut queue, now) = queue();
    queue.add(&"a", 0, now);
    assert_eq!(take(&mut queue, now), ["a"]);
    queue.add(&"a", 0, now);
    assert!(take(&mut queue, now).is_empty(), "one write of a key at a time");
    queue.succeed(&"a", now);
    assert_eq!(take(&mut queue, now), ["a"]);
}

#[test]
fn lower_ranks_are_written_before_higher_ones_begin_and_eight_at_once() {
    let (mut queue, now) = queue();
    queue.add(&"late", 2, now);
    let early = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    early.iter().for_each(|key| queue.add(key, 1, now));
    assert_eq!(take(&mut queue, now), early[..8]);
    queue.succeed(&"a", now);
    assert_eq!(take(&mut queue, now), ["i"]);
    early[1..].iter().for_each(|key| queue.succeed(key, now));
    assert_eq!(take(&mut queue, now), ["late"]);
}

#[test]
fn a_lost_race_is_run_again_soon_and_at_once_when_something_changed() {
    let (mut queue, now) = queue();
    queue.add(&"a", 0, now);
    take(&mut queue, now);
    queue.conflict(&"a", now);
    assert!(take(&mut queue, now).is_empty());
    assert_eq!(queue.deadline(), Some(now + RACE_WAIT));
    queue.add(&"a", 0, now);
    assert_eq!(take(&mut queue, now), ["a"]);
    queue.conflict(&"a", now);
    assert_eq!(queue.deadline(), Some(now + 2 * RACE_WAIT), "and later each time");
    assert_eq!(take(&mut queue, now + 2 * RACE_WAIT), ["a"]);
}

#[test]
fn a_key_that_fails_waits_longer_each_time_holds_up_no_other_and_is_not_hurried_by_changes() {
    let (mut queue, mut now) = queue();
    queue.add(&"bad", 0, now);
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert_eq!(take(&mut queue, now), ["bad"]);
        let until = queue.fail(&"bad", now, &mut OsRng);
        queue.add(&"bad", 0, now);
        queue.add(&"good", 5, now);
        assert_eq!(take(&mut queue, now), ["good"]);
        queue.succeed(&"good", now);
        waits.push(until - now);
        now = until;
    }
    assert!(waits[0] <= SECOND && waits[11] >= 15 * SECOND && waits[11] <= 30 * SECOND, "{waits:?}");
}

#[test]
fn a_refused_key_waits_for_a_change_or_its_time_and_one_that_is_held_for_its_time_alone() {
    let (mut queue, now) = queue();
    ["held", "refused"].iter().for_each(|key| queue.add(key, 0, now));
    assert_eq!(take(&mut queue, now), ["held", "refused"]);
    queue.refuse(&"refused", 60 * SECOND, now);
    queue.hold(&"held", now + 30 * SECOND);
    assert!(!queue.is_idle() && queue.outage().is_none());
    assert_eq!(queue.deadline(), Some(now + 30 * SECOND));
    ["held", "refused", "other"].iter().for_each(|key| queue.add(key, 0, now));
    assert_eq!(take(&mut queue, now), ["other", "refused"], "one that failed goes last");
    ["other", "refused"].iter().for_each(|key| queue.succeed(key, now));
    queue.resume(Duration::ZERO, now);
    assert!(take(&mut queue, now).is_empty());
    assert_eq!(take(&mut queue, now + 30 * SECOND), ["held"]);
    queue.refuse(&"held", 60 * SECOND, now + 30 * SECOND);
    assert_eq!(take(&mut queue, now + 90 * SECOND), ["held"]);
}

#[test]
fn an_unavailable_store_is_asked_by_one_write_at_a_time_with_growing_waits() {
    let (mut queue, mut now) = queue();
    ["a", "b", "c"].iter().for_each(|key| queue.add(key, 0, now));
    assert_eq!(take(&mut queue, now), ["a", "b", "c"]);
    for key in ["a", "b", "c"] {
        queue.fail_store(&key, "away".to_owned(), now, &mut OsRng);
    }
    assert_eq!(queue.outage(), Some("away"));
    let mut tries = 0;
    let end = now + 60 * SECOND;
    while let Some(next) = queue.deadline().filter(|next| *next < end) {
        now = now.max(next);
        let taken = take(&mut queue, now);
        assert!(taken.len() <= 1, "{taken:?}");
        for key in taken {
            tries += 1;
            queue.fail_store(&key, "away".to_owned(), now, &mut OsRng);
        }
    }
    assert!((3..25).contains(&tries), "{tries} tries in a minute");
}

#[test]
fn a_store_that_is_back_is_asked_soon_by_all_that_waited_for_it() {
    let (mut queue, now) = queue();
    queue.add(&"a", 0, now);
    for _ in 0..8 {
        let at = queue.deadline().unwrap_or(now);
        take(&mut queue, at);
        queue.fail_store(&"a", "away".to_owned(), at, &mut OsRng);
    }
    let now = queue.deadline().unwrap() - 2 * SECOND;
    queue.resume(Duration::from_millis(50), now);
    assert_eq!(take(&mut queue, now + Duration::from_millis(50)), ["a"]);
    queue.succeed(&"a", now);
    queue.settle();
    assert!(queue.is_idle() && queue.outage().is_none() && queue.deadline().is_none());
}

#[test]
fn changes_that_come_together_are_one_and_what_is_urgent_does_not_wait() {
    let (mut queue, now) = queue();
    queue.set_rest(SECOND, now);
    queue.add(&"a", 0, now);
    queue.add(&"a", 0, now + SECOND / 2);
    assert!(take(&mut queue, now + SECOND / 2).is_empty());
    assert_eq!(take(&mut queue, now + SECOND), ["a"], "the first change sets the time");
    queue.succeed(&"a", now + SECOND);
    queue.add(&"a", 0, now + SECOND);
    queue.add_now(&"a", 0, now + SECOND);
    assert_eq!(take(&mut queue, now + SECOND), ["a"]);
}

#[test]
fn after_a_plan_that_took_long_changes_wait_and_after_that_they_do_not() {
    let (mut queue, now) = queue();
    queue.set_rest(SECOND, now + 9 * SECOND);
    queue.add(&"a", 0, now);
    assert!(take(&mut queue, now + 8 * SECOND).is_empty());
    assert_eq!(take(&mut queue, now + 9 * SECOND), ["a"]);
    queue.succeed(&"a", now + 9 * SECOND);
    queue.add(&"a", 0, now + 60 * SECOND);
    assert_eq!(queue.deadline(), Some(now + 61 * SECOND));
}

#[test]
fn a_removed_key_is_forgotten_wherever_it_is() {
    let (mut queue, now) = queue();
    queue.add(&"ready", 0, now);
    queue.add_at(&"later", 0, now + SECOND, now);
    for key in ["ready", "later"] {
        queue.remove(&key);
    }
    assert!(queue.next(now + 2 * SECOND).is_none() && queue.is_idle());
    queue.add(&"failed", 0, now);
    take(&mut queue, now);
    queue.fail(&"failed", now, &mut OsRng);
    assert!(!queue.is_idle());
    queue.remove(&"failed");
    assert!(queue.is_idle() && queue.deadline().is_none());
}

/// Random operations on a few keys: none is lost, none is taken twice at once, and in the end all are done.
#[test]
fn whatever_happens_every_change_is_reconciled_in_the_end() {
    let keys = ["a", "b", "c", "d"];
    let mut random = 1_u64;
    let mut draw = |most: u8| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from((random >> 33) % u64::from(most)).unwrap()
    };
    for _ in 0..200 {
        let (mut queue, mut now) = queue();
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        let mut flying: BTreeMap<&str, u64> = BTreeMap::new();
        for step in 0..300 {
            now += Duration::from_millis(u64::from(draw(200)));
            if step < 200 && draw(2) == 0 {
                let key = keys[usize::from(draw(4))];
                *wanted.entry(key).or_default() += 1;
                queue.add(&key, draw(3), now);
            }
            while let Some((key, _)) = queue.next(now) {
                let seen = wanted.get(key).copied().unwrap_or_default();
                assert!(flying.insert(key, seen).is_none(), "{key} is taken twice at once");
            }
            let Some((&key, &seen)) = flying.iter().next() else { continue };
            flying.remove(key);
            match draw(if step < 200 { 4 } else { 1 }) {
                0 => {
                    queue.succeed(&key, now);
                    if wanted.get(key) == Some(&seen) {
                        wanted.remove(key);
                    }
                }
                1 => queue.conflict(&key, now),
                2 => drop(queue.fail(&key, now, &mut OsRng)),
                _ => drop(queue.fail_store(&key, "away".to_owned(), now, &mut OsRng)),
            }
        }
        for _ in 0..100 {
            now += 60 * SECOND;
            while let Some((key, _)) = queue.next(now) {
                queue.succeed(&key, now);
                wanted.remove(key);
            }
            for (key, seen) in std::mem::take(&mut flying) {
                queue.succeed(&key, now);
                if wanted.get(key) == Some(&seen) {
                    wanted.remove(key);
                }
            }
        }
        assert!(wanted.is_empty() && queue.is_idle(), "{wanted:?}");
    }
}
