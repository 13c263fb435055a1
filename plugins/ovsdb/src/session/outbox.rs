//! What is to be sent.

use serde_json::{Value, json};

use crate::wire::Message;

/// Most bytes that wait to be sent. A server that goes on asking and does not read the answers is given up there.
pub(crate) const MAX_UNSENT_BYTES: usize = 64 << 20;

/// There is no room: the server does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// What is to be sent, and the number of the next request.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    next_id: u64,
    max_bytes: usize,
}

impl Outbox {
    /// Makes an empty one for so many bytes.
    pub(crate) const fn new(max_bytes: usize) -> Self {
        Self { bytes: Vec::new(), next_id: 0, max_bytes }
    }

    /// Returns what is to be sent.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.bytes.is_empty()).then(|| std::mem::take(&mut self.bytes))
    }

    /// Sends a request and returns its number. `params` is an array.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Result<u64, Full> {
        let id = self.next_id;
        self.write(&json!({"method": method, "params": params, "id": id}))?;
        self.next_id += 1;
        Ok(id)
    }

    /// Sends the notification that a request is not waited for any more (RFC 7047, section 4.1.4).
    pub(crate) fn cancel(&mut self, id: u64) -> Result<(), Full> {
        self.write(&json!({"method": "cancel", "params": [id], "id": null}))
    }

    /// Answers a request.
    pub(crate) fn respond<E: From<Full>>(
        &mut self,
        id: Value,
        outcome: Result<Value, Value>,
    ) -> Result<(), E> {
        Ok(self.write(&Message::Response { id, outcome }.to_json())?)
    }

    fn write(&mut self, json: &Value) -> Result<(), Full> {
        let text = json.to_string();
        if self.bytes.len() + text.len() > self.max_bytes {
            return Err(Full);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
