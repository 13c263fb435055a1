//! Messages of a TCP connection, each behind its length (RFC 1035, 4.2.2; RFC 7766), as a machine without socket and clock.
//!
//! ```text
//!  socket ── wants_input ─▶ handle_input ─▶ answer ─▶ output ── handle_written ─▶ socket
//! ```
//!
//! After [`Stream::handle_input`], [`Stream::handle_written`] and [`Stream::handle_end`] comes [`Stream::answer`]. A client has
//! to send each message, and to take what it asked for, within a time as a whole, so that a byte now and then keeps no
//! connection. It holds a message and its answers, and nothing that is larger than a usual message while it waits.

use std::time::{Duration, Instant};

/// Bytes of a message's length.
const LENGTH_BYTES: usize = 2;
/// How much output there may be before no more is read or answered: the longest message.
const OUTPUT_FULL: usize = 1 << 16;
/// What buffers keep while they are empty.
const KEPT_BYTES: usize = 4_096;

/// How long a client may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTimes {
    /// Between an answer and the next message.
    pub idle: Duration,
    /// The same while connections are short.
    pub idle_busy: Duration,
    /// For one message, from its first byte to the last.
    pub message: Duration,
    /// To take the answers that wait.
    pub output: Duration,
}

impl Default for StreamTimes {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(10),
            idle_busy: Duration::from_secs(1),
            message: Duration::from_secs(3),
            output: Duration::from_secs(5),
        }
    }
}

/// What ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The client has ended it, or sent nothing for a while.
    Quiet,
    /// The client was too slow in the midst of a message, or with taking answers.
    TooSlow,
    /// The client sent what gets no answer.
    Unanswerable,
}

/// A connection's messages.
#[derive(Debug)]
pub struct Stream {
    times: StreamTimes,
    /// What is read and not answered: it begins with a message's length.
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of the output is written.
    written: usize,
    reply: Vec<u8>,
    /// Since when it is idle, a message arrives, or answers wait.
    since: Instant,
    waits_for: WaitsFor,
    has_ended: bool,
    end: Option<StreamEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    Message,
    RestOfMessage,
    Output,
}

impl Stream {
    /// Creates the machine of a connection that is new.
    pub fn new(times: StreamTimes, now: Instant) -> Self {
        Self {
            times,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            reply: Vec::new(),
            since: now,
            waits_for: WaitsFor::Message,
            has_ended: false,
            end: None,
        }
    }

    /// Returns whether to read: not while a whole message, or too much output, waits.
    pub fn wants_input(&self) -> bool {
        let has_space = self.output.len() - self.written < OUTPUT_FULL && self.message().is_none();
        has_space && !self.has_ended && self.end.is_none()
    }

    /// Returns whether nothing has been begun: neither a message nor the sending of an answer.
    pub fn is_idle(&self) -> bool {
        self.waits_for == WaitsFor::Message
    }

    /// Handles bytes that were read.
    pub fn handle_input(&mut self, bytes: &[u8], now: Instant) {
        self.input.extend_from_slice(bytes);
        self.wait(now);
    }

    /// Handles that the client sends no more. What it asked for is answered.
    pub fn handle_end(&mut self) {
        self.has_ended = true;
    }

    /// Answers the messages that are there, as long as their answers have space. `respond` appends nothing to a message: it
    /// replaces what is in the buffer by the response to it, and returns `false` if there is none, which ends the connection.
    pub fn answer(&mut self, now: Instant, mut respond: impl FnMut(&[u8], &mut Vec<u8>) -> bool) {
        let mut read = 0;
        while self.end.is_none() && self.output.len() - self.written < OUTPUT_FULL {
            let Some(message) = message(&self.input[read..]) else { break };
            read += LENGTH_BYTES + message.len();
            let length = respond(message, &mut self.reply).then(|| u16::try_from(self.reply.len()).ok());
            match length.flatten() {
                Some(length) => {
                    self.output.extend_from_slice(&length.to_be_bytes());
                    self.output.extend_from_slice(&self.reply);
                }
                None => self.end = Some(StreamEnd::Unanswerable),
            }
        }
        if read > 0 {
            // The next message begins to arrive now.
            self.since = now;
            self.waits_for = WaitsFor::Message;
        }
        self.input.drain(..read);
        let has_nothing = self.output.is_empty() && self.message().is_none();
        if self.has_ended && has_nothing {
            let rest = if self.input.is_empty() { StreamEnd::Quiet } else { StreamEnd::Unanswerable };
            self.end.get_or_insert(rest);
        }
        self.reply.clear();
        trim(&mut self.input);
        trim(&mut self.reply);
        self.wait(now);
    }

    /// Returns what is to be written.
    pub fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Handles that some of the output was written.
    pub fn handle_written(&mut self, bytes: usize, now: Instant) {
        self.written = (self.written + bytes).min(self.output.len());
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
            trim(&mut self.output);
        } else if self.written >= OUTPUT_FULL {
            self.output.drain(..self.written);
            self.written = 0;
        }
        self.wait(now);
    }

    /// Returns when [`Stream::handle_timeout`] wants to be called; earlier if connections are short.
    pub fn poll_timeout(&self, is_busy: bool) -> Instant {
        self.since
            + match self.waits_for {
                WaitsFor::Message if is_busy => self.times.idle_busy,
                WaitsFor::Message => self.times.idle,
                WaitsFor::RestOfMessage => self.times.message,
                WaitsFor::Output => self.times.output,
            }
    }

    /// Handles that time has passed.
    pub fn handle_timeout(&mut self, is_busy: bool, now: Instant) {
        if now >= self.poll_timeout(is_busy) {
            let end = if self.waits_for == WaitsFor::Message { StreamEnd::Quiet } else { StreamEnd::TooSlow };
            self.end.get_or_insert(end);
        }
    }

    /// Returns what has ended the connection; `None` while it goes on.
    pub fn end(&self) -> Option<StreamEnd> {
        self.end
    }

    /// Returns the number of bytes that it holds.
    pub fn held(&self) -> usize {
        self.input.capacity() + self.output.capacity() + self.reply.capacity()
    }

    fn message(&self) -> Option<&[u8]> {
        message(&self.input)
    }

    /// Notes what the connection waits for; the time runs on if that is the same.
    fn wait(&mut self, now: Instant) {
        let waits_for = if !self.output().is_empty() {
            WaitsFor::Output
        } else if !self.input.is_empty() {
            WaitsFor::RestOfMessage
        } else {
            WaitsFor::Message
        };
        if waits_for != self.waits_for {
            self.waits_for = waits_for;
            self.since = now;
        }
    }
}

/// Returns the first message, if all of it is there.
fn message(input: &[u8]) -> Option<&[u8]> {
    let (length, rest) = input.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

/// Frees the memory of an empty buffer that has more than it usually needs.
fn trim(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES && buffer.len() <= KEPT_BYTES {
        buffer.shrink_to(KEPT_BYTES);
    }
}

#[cfg(test)]
mod tests;
