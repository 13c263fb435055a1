//! What gateways of one cluster say to each other about translation: the bodies of messages of kind "sessions".
//!
//! ```text
//!   greeting  1 │ flags │ share │ 0 │ workers 2 │ incarnation 4 │ boot 8 │ age 8 │ heard boot 8 │ dead 4
//!   news      2 │ entries │ worker 2 │ boot 8 │ epoch 4 │ number 4 │ entries × 26 bytes
//!   heard     3 │ kept │ worker 2 │ boot 8 │ epoch 4 │ next number 4
//! ```
//!
//! Numbers are in network order. News of one worker are numbered and taken in their order; who has taken some says
//! which it wants next. Of whom a message is, is known by the lane that it came by.

use trieste_nat::{RECORD_BYTES, Record};

use super::fleet::Greeting;

/// Entries of one message. Ours: together they fit any path.
pub(crate) const ENTRIES: usize = 40;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = RECORD_BYTES + 1;
/// Bytes before the entries.
pub(crate) const NEWS_HEADER: usize = 20;
/// Bytes of the largest body.
pub(crate) const MOST_BYTES: usize = NEWS_HEADER + ENTRIES * ENTRY_BYTES;

const GREETING: u8 = 1;
const NEWS: u8 = 2;
const HEARD: u8 = 3;
const READY: u8 = 1;
const DRAINING: u8 = 2;
const IS: u8 = 1;
const GONE: u8 = 2;
const BEGIN: u8 = 3;
const END: u8 = 4;

/// A piece of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A session is.
    Is(Record),
    /// A session has ended.
    Gone(Record),
    /// All sessions of these buckets follow, one bit each.
    Begin(u64),
    /// They have been said, to this incarnation of the receiver.
    End(u32),
}

/// The head of news, and of what is said about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The worker that says the news.
    pub(crate) worker: u16,
    /// Its process.
    pub(crate) boot: u64,
    /// Begun anew with every epoch, at number 0.
    pub(crate) epoch: u32,
    pub(crate) number: u32,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Greeting(Greeting),
    /// News, entries as they stand.
    News(Head, &'a [u8]),
    /// News before that number have been taken. Whether all of them were done; a session that the receiver takes for its
    /// own is kept.
    Heard(Head, bool),
}

impl Greeting {
    pub(crate) fn emit(&self) -> [u8; 38] {
        let mut bytes = [0; 38];
        bytes[0] = GREETING;
        bytes[1] = (u8::from(self.is_ready) * READY) | (u8::from(self.is_draining) * DRAINING);
        bytes[2] = self.share;
        bytes[4..6].copy_from_slice(&self.workers.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[10..18].copy_from_slice(&self.boot.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.age.to_be_bytes());
        bytes[26..34].copy_from_slice(&self.heard_boot.to_be_bytes());
        bytes[34..38].copy_from_slice(&self.dead.to_be_bytes());
        bytes
    }
}

impl Head {
    /// Writes the head of news with so many entries.
    pub(crate) fn emit_news(&self, entries: u8, out: &mut [u8]) {
        out[..2].copy_from_slice(&[NEWS, entries]);
        self.emit(out);
    }

    /// What is said about news.
    pub(crate) fn emit_heard(&self, is_all_done: bool) -> [u8; NEWS_HEADER] {
        let mut bytes = [0; NEWS_HEADER];
        bytes[..2].copy_from_slice(&[HEARD, u8::from(!is_all_done)]);
        self.emit(&mut bytes);
        bytes
    }

    fn emit(&self, out: &mut [u8]) {
        out[2..4].copy_from_slice(&self.worker.to_be_bytes());
        out[4..12].copy_from_slice(&self.boot.to_be_bytes());
        out[12..16].copy_from_slice(&self.epoch.to_be_bytes());
        out[16..20].copy_from_slice(&self.number.to_be_bytes());
    }
}

impl Entry {
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Is(record) => {
                out.push(IS);
                out.extend_from_slice(&record.to_bytes());
            }
            Self::Gone(record) => {
                out.push(GONE);
                out.extend_from_slice(&record.to_bytes());
            }
            Self::Begin(buckets) => number(BEGIN, *buckets, out),
            Self::End(incarnation) => number(END, u64::from(*incarnation), out),
        }
    }

    /// Reads an entry; `None` if it makes no sense.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (&tag, rest) = bytes.split_first()?;
        Some(match tag {
            IS => Self::Is(Record::from_bytes(rest.try_into().ok()?)?),
            GONE => Self::Gone(Record::from_bytes(rest.try_into().ok()?)?),
            BEGIN => Self::Begin(be64(rest)?),
            END => Self::End(u32::try_from(be64(rest)?).ok()?),
            _ => return None,
        })
    }
}

fn number(tag: u8, number: u64, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&[0; RECORD_BYTES - 8]);
}

impl<'a> Message<'a> {
    /// Reads a body; `None` if it makes no sense.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let &flags = body.get(1)?;
        match body[0] {
            GREETING => {
                let bytes: &[u8; 38] = body.get(..38)?.try_into().ok()?;
                Some(Self::Greeting(Greeting {
                    boot: be64(&bytes[10..])?,
                    incarnation: be32(&bytes[6..])?,
                    age: be64(&bytes[18..])?,
                    is_ready: flags & READY != 0,
                    is_draining: flags & DRAINING != 0,
                    share: bytes[2],
                    workers: be16(&bytes[4..])?,
                    heard_boot: be64(&bytes[26..])?,
                    dead: be32(&bytes[34..])?,
                }))
                .filter(|message| matches!(message, Self::Greeting(greeting) if greeting.boot != 0))
            }
            NEWS => {
                let entries = body.get(NEWS_HEADER..)?;
                let is_whole =
                    usize::from(flags) <= ENTRIES && entries.len() == usize::from(flags) * ENTRY_BYTES;
                is_whole.then_some(Self::News(Head::read(body)?, entries))
            }
            HEARD => Some(Self::Heard(Head::read(body)?, flags == 0)),
            _ => None,
        }
    }
}

impl Head {
    fn read(body: &[u8]) -> Option<Self> {
        Some(Self {
            worker: be16(body.get(2..)?)?,
            boot: be64(body.get(4..)?)?,
            epoch: be32(body.get(12..)?)?,
            number: be32(body.get(16..)?)?,
        })
    }
}

fn be16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.first_chunk()?))
}

fn be32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?))
}

fn be64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieste_nat::Phase;

    fn record() -> Record {
        Record {
            protocol: 6,
            phase: Phase::Established,
            headless: false,
            inside: [10, 1, 0, 5].into(),
            inside_port: 5000,
            outside: [242, 1, 0, 1].into(),
            outside_port: 5001,
            remote: [242, 2, 0, 1].into(),
            remote_port: 80,
            seconds_left: 7440,
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_no_cut_or_change_is_a_panic() {
        let greeting = Greeting {
            boot: 7,
            incarnation: 3,
            age: 1 << 40,
            is_ready: true,
            is_draining: false,
            share: 0x81,
            workers: 4,
            heard_boot: 9,
            dead: 2,
        };
        assert_eq!(Message::read(&greeting.emit()), Some(Message::Greeting(greeting)));
        let head = Head { worker: 3, boot: 7, epoch: 2, number: 70_000 };
        let mut news = vec![0; NEWS_HEADER];
        let entries = [Entry::Is(record()), Entry::Gone(record()), Entry::Begin(u64::MAX), Entry::End(4)];
        entries.iter().for_each(|entry| entry.emit(&mut news));
        head.emit_news(4, &mut news);
        let Some(Message::News(read, bytes)) = Message::read(&news) else { panic!() };
        assert_eq!(read, head);
        let back: Vec<_> = bytes.chunks(ENTRY_BYTES).map(|bytes| Entry::read(bytes).unwrap()).collect();
        assert_eq!(back, entries);
        assert_eq!(Message::read(&head.emit_heard(false)), Some(Message::Heard(head, false)));
        for cut in 0..news.len() {
            assert_eq!(Message::read(&news[..cut]), None);
        }
        for at in 0..news.len() {
            let mut damaged = news.clone();
            damaged[at] ^= 0xff;
            if let Some(Message::News(_, bytes)) = Message::read(&damaged) {
                let read = bytes.chunks(ENTRY_BYTES).filter_map(Entry::read).count();
                assert!(read <= 4);
            }
        }
    }
}
