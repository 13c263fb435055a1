//! Queries and replies as bytes.

use std::net::IpAddr;

use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::AllRecordData;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    name: Name<Vec<u8>>,
    rtype: Rtype,
}

/// Why there can be no such question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// The name is none.
    #[error("cannot ask for {0:?}: it is no domain name")]
    Name(String),
    /// The type is none.
    #[error("cannot ask for type {0:?}: it is none of A, AAAA, SRV, PTR, TXT, SOA, NS, …")]
    Type(String),
}

/// What a reply says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The code: `NOERROR`, `NXDOMAIN`, …
    pub code: String,
    /// The records of the answer: type, and data as in a zone file.
    pub answers: Vec<(String, String)>,
    /// Whether there are more, which did not fit.
    pub is_truncated: bool,
}

/// That bytes are no reply to a question: an answer to another one, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no reply to the question")]
pub struct NoReply;

impl Question {
    /// Creates a question for a name, with a dot at the end or without, and a type.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn new(name: &str, rtype: &str) -> Result<Self, QuestionError> {
        let parsed = Name::vec_from_str(name).ok().filter(|name| !name.is_root());
        let parsed = parsed.ok_or_else(|| QuestionError::Name(name.to_owned()))?;
        let rtype = rtype.to_ascii_uppercase().parse().map_err(|_| QuestionError::Type(rtype.to_owned()))?;
        Ok(Self { name: parsed, rtype })
    }

    /// Returns the name, without a dot at the end.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    /// Returns the type.
    #[must_use]
    pub fn rtype(&self) -> String {
        self.rtype.to_string()
    }

    /// Returns the query with a number. It wishes for recursion, as clients do, and reads datagrams of 1,232 bytes.
    #[must_use]
    pub fn query(&self, id: u16) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(id);
        builder.header_mut().set_rd(true);
        let mut questions = builder.question();
        // Memory has room for both; a query without would not be answered.
        let _ = questions.push((&self.name, self.rtype));
        let mut additional = questions.additional();
        let _ = additional.opt(|opt| {
            opt.set_udp_payload_size(1_232);
            Ok(())
        });
        additional.finish()
    }

    /// Reads the reply to the query with this number.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(&self, id: u16, bytes: &[u8]) -> Result<Reply, NoReply> {
        let message = Message::from_octets(bytes).map_err(|_| NoReply)?;
        let header = message.header();
        if header.id() != id || !header.qr() {
            return Err(NoReply);
        }
        // A server that refuses may leave the question out.
        if let Some(question) = message.question().next() {
            let question = question.map_err(|_| NoReply)?;
            if question.qtype() != self.rtype || *question.qname() != self.name {
                return Err(NoReply);
            }
        }
        let records = message.answer().map_err(|_| NoReply)?.limit_to::<AllRecordData<_, _>>();
        let answers = records.map(|record| {
            let record = record.map_err(|_| NoReply)?;
            Ok((record.rtype().to_string(), record.data().to_string()))
        });
        Ok(Reply {
            code: header.rcode().to_string(),
            answers: answers.collect::<Result<_, NoReply>>()?,
            is_truncated: header.tc(),
        })
    }
}

impl Reply {
    /// Returns the addresses of the answer.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let of_addresses = self.answers.iter().filter(|(rtype, _)| matches!(rtype.as_str(), "A" | "AAAA"));
        of_addresses.filter_map(|(_, data)| data.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_name_and_a_type() {
        let question = Question::new("Web.shop.svc.clusterset.local.", "aaaa").unwrap();
        assert_eq!(
            (question.name().as_str(), question.rtype().as_str()),
            ("Web.shop.svc.clusterset.local", "AAAA")
        );
        for (name, rtype) in [("", "A"), (".", "A"), ("a..b", "A"), ("a", "B2"), (&"a".repeat(64), "A")] {
            assert!(Question::new(name, rtype).is_err(), "{name} {rtype}");
        }
    }

    #[test]
    fn only_a_reply_to_the_question_is_read() {
        let question = Question::new("a.b", "A").unwrap();
        let mut bytes = question.query(7);
        assert_eq!(question.read(7, &bytes), Err(NoReply), "a query");
        bytes[2] |= 0x80;
        bytes[3] |= 3;
        let reply = question.read(7, &bytes).unwrap();
        assert_eq!((reply.code.as_str(), reply.answers.len(), reply.is_truncated), ("NXDOMAIN", 0, false));
        assert_eq!(question.read(8, &bytes), Err(NoReply), "another number");
        assert_eq!(Question::new("a.c", "A").unwrap().read(7, &bytes), Err(NoReply), "another name");
        for length in 0..bytes.len() {
            let _ = question.read(7, &bytes[..length]);
        }
        assert_eq!(question.read(7, &[]), Err(NoReply));
    }
}
