//! What one worker tells one sibling of its sessions: news in their order, numbered, said again until they are heard.
//!
//! Bounded: so many messages wait to be heard; what does not fit any more is forgotten, and the sibling is told
//! everything anew when there is room.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trieste_nat::{Cursor, Share};
use trieste_packet::GatewayKey;

use super::message::{ENTRIES, Entry, Head, MOST_BYTES, NEWS_HEADER};

/// Messages that wait to be heard. Ours: 70 KB, and with a round trip of a millisecond 2.5 million sessions a second.
const WINDOW: usize = 64;
/// When news are said again. Ours: many round trips between neighbours, and no more than a path is slow to be given up.
const AGAIN: Duration = Duration::from_millis(40);
const AGAIN_AT_MOST: Duration = Duration::from_secs(1);
/// Messages that are said again at once.
const AGAIN_AT_ONCE: usize = 16;

/// A message that waits to be heard.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    /// Number of changes that the sibling knows when it has heard this.
    told: u64,
    is_sent: bool,
}

/// Telling everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Export {
    pub(crate) buckets: u64,
    pub(crate) share: Share,
    pub(crate) cursor: Cursor,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) key: GatewayKey,
    head: Head,
    /// The first message that has not been heard.
    heard_number: u32,
    waiting: VecDeque<Waiting>,
    spare: Vec<Vec<u8>>,
    draft: Vec<u8>,
    drafted: usize,
    again: Option<Instant>,
    pause: Duration,
    /// The process and incarnation that is told; `None` while the sibling cannot be reached.
    pub(crate) life: Option<(u64, u32)>,
    /// Buckets and slots of which it has been told everything.
    pub(crate) clean: u64,
    pub(crate) clean_share: Share,
    pub(crate) is_told: bool,
    pub(crate) export: Option<Export>,
    /// Number of changes that the sibling knows.
    heard: u64,
    /// Until when what it knows is not sure: it has kept what we said was gone.
    doubt: Option<Instant>,
    /// Messages said again.
    pub(crate) repeated: u64,
    /// How often it fell behind and has to be told everything anew.
    pub(crate) lost: u64,
}

impl Stream {
    pub(crate) fn new(key: GatewayKey, worker: u16, boot: u64) -> Self {
        Self {
            key,
            head: Head { worker, boot, epoch: 0, number: 0 },
            heard_number: 0,
            waiting: VecDeque::with_capacity(WINDOW),
            spare: (0..=WINDOW).map(|_| Vec::with_capacity(MOST_BYTES)).collect(),
            draft: Vec::with_capacity(MOST_BYTES),
            drafted: 0,
            again: None,
            pause: AGAIN,
            life: None,
            clean: 0,
            clean_share: Share::NONE,
            is_told: false,
            export: None,
            heard: 0,
            doubt: None,
            repeated: 0,
            lost: 0,
        }
    }

    /// The sibling is there, or there anew: everything is said from the beginning, under an epoch that is newer than
    /// all of this process, `time` at least.
    pub(crate) fn restart(&mut self, life: Option<(u64, u32)>, time: u32) {
        while let Some(waiting) = self.waiting.pop_front() {
            self.spare.push(waiting.bytes);
        }
        self.draft.clear();
        self.drafted = 0;
        self.head.epoch = time.max(self.head.epoch + 1);
        (self.head.number, self.heard_number) = (0, 0);
        (self.again, self.pause) = (None, AGAIN);
        self.life = life;
        self.dirty();
    }

    /// Everything has to be said anew.
    pub(crate) fn dirty(&mut self) {
        self.clean = 0;
        self.clean_share = Share::NONE;
        self.is_told = false;
        self.export = None;
    }

    /// The sibling has fallen behind.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
        self.dirty();
    }

    /// Entries for which there is room.
    pub(crate) fn room(&self) -> usize {
        ((WINDOW - self.waiting.len()) * ENTRIES).saturating_sub(self.drafted)
    }

    /// Whether everything has been heard.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_told && self.export.is_none() && self.waiting.is_empty() && self.drafted == 0
    }

    /// Messages that wait to be heard.
    pub(crate) fn backlog(&self) -> usize {
        self.waiting.len() + usize::from(self.drafted > 0)
    }

    /// Says one thing. `false` when there is no room.
    pub(crate) fn push(&mut self, entry: &Entry) -> bool {
        if self.drafted == ENTRIES && !self.close() {
            return false;
        }
        if self.drafted == 0 {
            self.draft.clear();
            self.draft.resize(NEWS_HEADER, 0);
        }
        entry.emit(&mut self.draft);
        self.drafted += 1;
        true
    }

    /// Ends the message that is being made. `false` when there is no room.
    pub(crate) fn close(&mut self) -> bool {
        if self.drafted == 0 {
            return true;
        }
        if self.waiting.len() == WINDOW {
            return false;
        }
        let entries = u8::try_from(self.drafted).expect("no more than ENTRIES");
        self.head.emit_news(entries, &mut self.draft);
        self.head.number = self.head.number.wrapping_add(1);
        let empty = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(MOST_BYTES));
        let bytes = std::mem::replace(&mut self.draft, empty);
        self.waiting.push_back(Waiting { bytes, told: 0, is_sent: false });
        self.drafted = 0;
        true
    }

    /// Sends what has been made. `told` is the number of changes so far, all of which are in here or no concern of the
    /// sibling's. `send` says whether it could.
    pub(crate) fn flush(&mut self, told: u64, now: Instant, mut send: impl FnMut(&[u8]) -> bool) {
        let is_whole = self.close();
        if is_whole && self.is_told {
            match self.waiting.back_mut() {
                Some(newest) => newest.told = told,
                None => self.know(told, now),
            }
        }
        if self.again.is_some_and(|again| again <= now) {
            for waiting in self.waiting.iter_mut().take(AGAIN_AT_ONCE) {
                self.repeated += u64::from(waiting.is_sent);
                waiting.is_sent = false;
            }
            self.pause = (self.pause * 2).min(AGAIN_AT_MOST);
            self.again = None;
        }
        for waiting in self.waiting.iter_mut().filter(|waiting| !waiting.is_sent) {
            if !send(&waiting.bytes) {
                break;
            }
            waiting.is_sent = true;
        }
        if self.again.is_none() && !self.waiting.is_empty() {
            self.again = Some(now + self.pause);
        }
    }

    /// The sibling has taken everything before a number.
    pub(crate) fn hear(&mut self, head: &Head, is_all_done: bool, now: Instant, doubt: Duration) {
        let news = head.number.wrapping_sub(self.heard_number);
        if head.boot != self.head.boot
            || head.epoch != self.head.epoch
            || usize::try_from(news).is_ok_and(|news| news > self.waiting.len())
        {
            return;
        }
        if !is_all_done {
            self.doubt = Some(now + doubt);
        }
        for _ in 0..news {
            let Some(heard) = self.waiting.pop_front() else { break };
            if heard.told > 0 {
                self.know(heard.told, now);
            }
            self.spare.push(heard.bytes);
        }
        self.heard_number = head.number;
        if news > 0 {
            self.pause = AGAIN;
            self.again = if self.waiting.is_empty() { None } else { Some(now + AGAIN) };
        }
    }

    fn know(&mut self, told: u64, now: Instant) {
        if self.doubt.is_none_or(|doubt| doubt <= now) {
            self.doubt = None;
            self.heard = self.heard.max(told);
        }
    }

    /// Number of changes that the sibling is sure to know.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// When something is to be said again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.again
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a point to count from")]
    use super::*;

    const DOUBT: Duration = Duration::from_secs(240);

    fn stream() -> Stream {
        let mut stream = Stream::new(GatewayKey(1), 0, 7);
        stream.restart(Some((9, 1)), 1);
        stream.is_told = true;
        stream
    }

    fn head(stream: &Stream, number: u32) -> Head {
        Head { number, ..stream.head }
    }

    fn sent(stream: &mut Stream, told: u64, now: Instant) -> usize {
        let mut count = 0;
        stream.flush(told, now, |_| {
            count += 1;
            true
        });
        count
    }

    #[test]
    fn news_are_said_again_until_they_are_heard() {
        let (mut stream, now) = (stream(), Instant::now());
        for _ in 0..100 {
            assert!(stream.push(&Entry::End(1)));
        }
        assert_eq!(sent(&mut stream, 100, now), 3);
        assert_eq!((sent(&mut stream, 100, now), stream.heard()), (0, 0));
        assert_eq!(sent(&mut stream, 100, now + AGAIN), 3);
        stream.hear(&head(&stream, 2), true, now, DOUBT);
        assert_eq!((stream.backlog(), stream.heard()), (1, 0), "not the newest");
        stream.hear(&head(&stream, 3), true, now, DOUBT);
        assert_eq!((stream.is_settled(), stream.heard()), (true, 100));
        assert_eq!(stream.poll_timeout(), None);
        stream.hear(&head(&stream, 70), true, now, DOUBT);
        stream.hear(&head(&stream, 1), true, now, DOUBT);
        assert_eq!(stream.head.number, 3, "what was never said, or heard before, changes nothing");
        assert_eq!(sent(&mut stream, 150, now), 0);
        assert_eq!(stream.heard(), 150, "changes that are no concern of the sibling's are known");
    }

    #[test]
    fn there_is_room_for_so_much_and_no_memory_is_taken_for_more() {
        let (mut stream, now) = (stream(), Instant::now());
        let room = stream.room();
        let mut said = 0;
        while stream.push(&Entry::End(1)) {
            said += 1;
        }
        assert_eq!((room, said), (WINDOW * ENTRIES, (WINDOW + 1) * ENTRIES));
        assert_eq!((stream.room(), sent(&mut stream, 1, now)), (0, WINDOW));
        stream.lose();
        stream.hear(&head(&stream, 64), true, now, DOUBT);
        assert!(!stream.is_settled() && stream.heard() == 0, "it has to be told everything first");
    }

    #[test]
    fn what_was_kept_against_our_word_leaves_a_doubt() {
        let (mut stream, now) = (stream(), Instant::now());
        stream.push(&Entry::End(1));
        sent(&mut stream, 1, now);
        stream.hear(&head(&stream, 1), false, now, DOUBT);
        assert_eq!(stream.heard(), 0);
        sent(&mut stream, 5, now + DOUBT / 2);
        assert_eq!(stream.heard(), 0);
        sent(&mut stream, 6, now + DOUBT);
        assert_eq!(stream.heard(), 6);
    }
}
