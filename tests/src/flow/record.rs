//! What one flow has heard, and what that means. Pure.

use super::{FlowOutage, SILENCE, Silence};

/// Most silences that are listed.
const MAX_SILENCES: usize = 100;
/// What comes after that is late, in microseconds.
const LATE_US: u32 = 1_000_000;

/// When each of a flow's datagrams was answered. Datagrams are numbered by the prober's ticks, from 0.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Microseconds since the prober's start, plus one; 0 where there is no answer.
    answered: Vec<u32>,
    newest: Option<u32>,
    /// Numbers that came twice, and those that came after a later one.
    twice: Vec<u32>,
    late: Vec<u32>,
}

impl Record {
    /// Notes an answer. A number that was never sent is nobody's.
    pub(super) fn answer(&mut self, number: u32, at_us: u32, sent: usize) {
        let index = number as usize;
        if index >= sent {
            return;
        }
        if self.answered.len() < sent {
            self.answered.resize(sent, 0);
        }
        if self.answered[index] != 0 {
            self.twice.push(number);
            return;
        }
        self.answered[index] = at_us.saturating_add(1);
        match self.newest {
            Some(newest) if newest > number => self.late.push(number),
            _ => self.newest = Some(number),
        }
    }

    /// Whether a datagram of this number or of a later one is answered.
    pub(super) fn has_answer_since(&self, number: usize) -> bool {
        self.newest.is_some_and(|newest| newest as usize >= number)
    }

    /// What became of the datagrams from number `mark` on, each sent at its entry of `sent_us`.
    pub(super) fn judge(&self, name: &str, port: u16, sent_us: &[u32], mark: usize) -> FlowOutage {
        let answer = |index: usize| self.answered.get(index).copied().and_then(|at| at.checked_sub(1));
        let numbers = mark..sent_us.len();
        let mut heard: Vec<u32> = numbers.clone().filter_map(answer).collect();
        heard.sort_unstable();
        let start = sent_us.get(mark).copied().unwrap_or_default();
        let (mut before, mut longest, mut silences) = (start, 0, Vec::new());
        // The end counts as an answer: a flow that is silent from somewhere on has a silence that lasts until then.
        let end = sent_us.last().copied().unwrap_or(start);
        for at in heard.iter().copied().chain([end]) {
            let length_us = at.saturating_sub(before);
            longest = longest.max(length_us);
            if u128::from(length_us) > SILENCE.as_micros() && silences.len() < MAX_SILENCES {
                silences.push(Silence { start_us: before.saturating_sub(start), length_us });
            }
            before = before.max(at);
        }
        let since = |numbers: &[u32]| numbers.iter().filter(|number| **number as usize >= mark).count();
        let is_late =
            |index: &usize| answer(*index).is_some_and(|at| at.saturating_sub(sent_us[*index]) >= LATE_US);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        FlowOutage {
            name: name.to_owned(),
            port,
            sent: count(numbers.len()),
            lost: count(numbers.len() - heard.len()),
            late: count(numbers.filter(is_late).count()),
            duplicates: count(since(&self.twice)),
            reordered: count(since(&self.late)),
            longest_us: longest,
            silences,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u32 = 1000;

    /// A datagram each millisecond, answered after half of one unless `is_lost` says otherwise.
    fn flow(ticks: u32, is_lost: impl Fn(u32) -> bool) -> (Record, Vec<u32>) {
        let sent: Vec<u32> = (0..ticks).map(|tick| tick * MS).collect();
        let mut record = Record::default();
        for tick in (0..ticks).filter(|tick| !is_lost(*tick)) {
            record.answer(tick, tick * MS + MS / 2, sent.len());
        }
        (record, sent)
    }

    #[test]
    fn an_outage_is_a_silence_with_its_start_its_length_and_its_losses() {
        let (record, sent) = flow(1000, |tick| (300..350).contains(&tick));

        let outage = record.judge("a", 7, &sent, 100);

        assert_eq!((outage.sent, outage.lost, outage.longest_us), (900, 50, 51 * MS));
        assert_eq!(outage.silences, [Silence { start_us: 199 * MS + MS / 2, length_us: 51 * MS }]);
    }

    #[test]
    fn what_happened_before_the_mark_does_not_count() {
        let (record, sent) = flow(1000, |tick| tick < 400);

        let outage = record.judge("a", 7, &sent, 500);

        assert_eq!((outage.lost, outage.silences.len()), (0, 0));
    }

    #[test]
    fn a_flow_that_never_comes_back_is_silent_until_the_end() {
        let (record, sent) = flow(1000, |tick| tick >= 600);

        let outage = record.judge("a", 7, &sent, 0);

        assert_eq!((outage.lost, outage.longest_us), (400, 399 * MS + MS / 2));
        assert_eq!(Record::default().judge("a", 7, &sent, 0).longest_us, 999 * MS);
    }

    #[test]
    fn duplicates_and_changed_order_are_counted_and_strangers_are_not() {
        let sent = [0, MS, 2 * MS, 3 * MS];
        let mut record = Record::default();
        for number in [0, 2, 1, 2, 3, 99] {
            record.answer(number, 4 * MS, sent.len());
        }

        let outage = record.judge("a", 7, &sent, 0);

        assert_eq!((outage.lost, outage.duplicates, outage.reordered), (0, 1, 1));
    }

    #[test]
    fn packets_that_were_late_and_not_lost_are_a_silence_all_the_same() {
        let sent: Vec<u32> = (0..100).map(|tick| tick * MS).collect();
        let mut record = Record::default();
        for tick in 0..100 {
            record.answer(tick, (tick * MS).max(60 * MS), sent.len());
        }

        let outage = record.judge("a", 7, &sent, 10);

        assert_eq!((outage.lost, outage.late, outage.longest_us), (0, 0, 50 * MS));
        record = Record::default();
        record.answer(0, 0, sent.len());
        record.answer(1, MS + LATE_US, sent.len());
        assert_eq!(record.judge("a", 7, &sent, 0).late, 1);
    }
}
