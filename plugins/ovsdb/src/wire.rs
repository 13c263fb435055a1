//! Messages on the wire: JSON-RPC 1.0 (RFC 7047, section 4), a stream of bare JSON objects.
//!
//! The end of an object is found by counting brackets, once per byte, and only a whole object is parsed: a parser that
//! is asked again with every piece that arrives would read a message of megabytes thousands of times. What a peer can
//! make us hold is bounded before anything is parsed.

use serde_json::{Value, json};

/// Most bytes of one message. A large northbound database has some tens of megabytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Most values of one message: each takes some 30 bytes of memory however short its text is.
pub const MAX_MESSAGE_VALUES: usize = 4 << 20;
/// Deepest nesting of one message. An update has nine levels; serde_json itself stops at 128.
pub const MAX_DEPTH: usize = 64;
/// A buffer that has grown beyond that by one message is not kept.
const KEPT_BYTES: usize = 1 << 20;

/// A stream that is no stream of messages. There is no going on after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Something else than an object begins.
    #[error("not a JSON object")]
    NotAnObject,
    /// An object is none of JSON's.
    #[error("invalid JSON at byte {0} of a message")]
    Syntax(usize),
    /// See [`MAX_MESSAGE_BYTES`].
    #[error("message of more than {MAX_MESSAGE_BYTES} bytes")]
    TooLong,
    /// See [`MAX_MESSAGE_VALUES`].
    #[error("message of more than {MAX_MESSAGE_VALUES} values")]
    TooManyValues,
    /// See [`MAX_DEPTH`].
    #[error("message nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// An object is neither a request, a notification nor a response.
    #[error("neither request, notification nor response")]
    Form,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// What is asked for.
        method: String,
        /// With these parameters.
        params: Vec<Value>,
        /// Returned with the answer; not null.
        id: Value,
    },
    /// Wants none.
    Notification {
        /// What happened.
        method: String,
        /// With these parameters.
        params: Vec<Value>,
    },
    /// An answer.
    Response {
        /// That of the request.
        id: Value,
        /// The result, or the error that is not null.
        outcome: Result<Value, Value>,
    },
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// If it is none of the three kinds.
    pub fn from_json(json: Value) -> Result<Self, WireError> {
        let Value::Object(mut members) = json else { return Err(WireError::NotAnObject) };
        let id = members.remove("id").unwrap_or(Value::Null);
        match members.remove("method") {
            Some(Value::String(method)) => {
                let Some(Value::Array(params)) = members.remove("params") else {
                    return Err(WireError::Form);
                };
                Ok(if id.is_null() {
                    Self::Notification { method, params }
                } else {
                    Self::Request { method, params, id }
                })
            }
            Some(_) => Err(WireError::Form),
            None => {
                let result = members.remove("result");
                let error = members.remove("error").unwrap_or(Value::Null);
                match (result, error) {
                    // A request that could not even be read has an error and no id.
                    _ if id.is_null() => Err(WireError::Form),
                    (Some(result), Value::Null) => Ok(Self::Response { id, outcome: Ok(result) }),
                    (Some(Value::Null) | None, error) if !error.is_null() => {
                        Ok(Self::Response { id, outcome: Err(error) })
                    }
                    _ => Err(WireError::Form),
                }
            }
        }
    }

    /// Writes the message.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Request { method, params, id } => json!({"method": method, "params": params, "id": id}),
            Self::Notification { method, params } => json!({"method": method, "params": params, "id": null}),
            Self::Response { id, outcome: Ok(result) } => json!({"result": result, "error": null, "id": id}),
            Self::Response { id, outcome: Err(error) } => json!({"result": null, "error": error, "id": id}),
        }
    }
}

/// Finds the messages in a stream of bytes: [`Decoder::push`] what arrived, then [`Decoder::poll`] until there is none.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Where the message begins that is being read.
    start: usize,
    /// How far its end has been looked for.
    scanned: usize,
    scan: Scan,
}

/// Where in a message its end is looked for.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    values: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Decoder {
    /// Appends what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns how many bytes are held.
    pub const fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the next message if it is there as a whole.
    ///
    /// # Errors
    ///
    /// If the stream is invalid; the decoder is of no use then.
    pub fn poll(&mut self) -> Result<Option<Message>, WireError> {
        while self.scanned < self.buffer.len() {
            let byte = self.buffer[self.scanned];
            if self.scan.depth == 0 {
                match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => {
                        self.scanned += 1;
                        self.start = self.scanned;
                        continue;
                    }
                    b'{' => {}
                    _ => return Err(WireError::NotAnObject),
                }
            }
            self.scanned += 1;
            if self.scanned - self.start > MAX_MESSAGE_BYTES {
                return Err(WireError::TooLong);
            }
            if self.scan.is_end(byte)? {
                return self.parse().map(Some);
            }
        }
        Ok(None)
    }

    fn parse(&mut self) -> Result<Message, WireError> {
        let message = &self.buffer[self.start..self.scanned];
        let json = serde_json::from_slice(message).map_err(|error| {
            let line = message.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
            WireError::Syntax(line.map(<[u8]>::len).sum::<usize>() + error.column())
        })?;
        self.start = self.scanned;
        self.scan = Scan::default();
        Message::from_json(json)
    }
}

impl Scan {
    /// Follows one byte. Returns `true` if it ends the message.
    fn is_end(&mut self, byte: u8) -> Result<bool, WireError> {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(false);
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth += 1;
                self.values += 1;
                if self.depth > MAX_DEPTH {
                    return Err(WireError::TooDeep);
                }
            }
            b',' => self.values += 1,
            // Which of the two brackets closes is for the parser.
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        if self.values > MAX_MESSAGE_VALUES {
            return Err(WireError::TooManyValues);
        }
        Ok(self.depth == 0)
    }
}

#[cfg(test)]
mod tests;
