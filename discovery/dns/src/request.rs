//! A query as it is understood: one question, and what EDNS says.

use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::message::RecordSection;
use domain::base::opt::{Opt, OptRecord};
use domain::base::{Header, Message, ParsedName, Question, Rtype};

use crate::name::QueryName;
use crate::outcome::{Answer, DropReason, QueryType};

/// A well-formed query.
pub(crate) struct Request<'q> {
    pub(crate) header: Header,
    pub(crate) question: Question<ParsedName<&'q [u8]>>,
    /// The name in lower case.
    pub(crate) name: QueryName,
    pub(crate) edns: Option<Edns>,
}

/// What a query says of itself by EDNS (RFC 6891). Options are parsed and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edns {
    /// Largest response over UDP that the client reads, in bytes.
    pub(crate) udp_bytes: u16,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no response.
    Drop(DropReason),
    /// The response has a code and no records.
    Reply { header: Header, code: Code, query: QueryType, has_edns: bool },
}

/// The code of a response without records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Malformed,
    Unimplemented,
    BadVersion,
    Refused,
}

impl Code {
    /// Returns the lower four bits, and those that EDNS adds.
    pub(crate) fn rcode(self) -> (Rcode, u8) {
        match self {
            Self::Malformed => (Rcode::FORMERR, 0),
            Self::Unimplemented => (Rcode::NOTIMP, 0),
            Self::BadVersion => (Rcode::NOERROR, 1),
            Self::Refused => (Rcode::REFUSED, 0),
        }
    }

    /// Returns its word for counters.
    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::Malformed => Answer::Malformed,
            Self::Unimplemented => Answer::Unimplemented,
            Self::BadVersion => Answer::BadVersion,
            Self::Refused => Answer::Refused,
        }
    }
}

impl<'q> Request<'q> {
    /// Parses a query.
    ///
    /// # Errors
    /// When there is nothing to answer, or nothing but a code.
    pub(crate) fn parse(query: &'q [u8]) -> Result<Self, Refusal> {
        let message = Message::from_octets(query).map_err(|_| Refusal::Drop(DropReason::TooShort))?;
        let header = message.header();
        if header.qr() {
            return Err(Refusal::Drop(DropReason::Response));
        }
        let code = |code, query, has_edns| Refusal::Reply { header, code, query, has_edns };
        if header.opcode() != Opcode::QUERY {
            return Err(code(Code::Unimplemented, QueryType::Other, false));
        }
        let malformed = |query| code(Code::Malformed, query, false);
        let counts = message.header_counts();
        if counts.qdcount() != 1 {
            return Err(malformed(QueryType::Other));
        }
        let mut questions = message.question();
        let Some(Ok(question)) = questions.next() else { return Err(malformed(QueryType::Other)) };
        let query = QueryType::from(question.qtype());
        let name = QueryName::new(question.qname()).ok_or_else(|| malformed(query))?;
        let edns = match counts.ancount() | counts.nscount() | counts.arcount() {
            0 => None,
            _ => {
                let answers = questions.answer().map_err(|_| malformed(query))?;
                options(answers).map_err(|_| malformed(query))?
            }
        };
        if edns.is_some_and(|(_, version)| version > 0) {
            return Err(code(Code::BadVersion, query, true));
        }
        let edns = edns.map(|(edns, _)| edns);
        let is_transfer = matches!(question.qtype(), Rtype::AXFR | Rtype::IXFR);
        if !matches!(question.qclass(), Class::IN | Class::ANY) || is_transfer {
            return Err(code(Code::Refused, query, edns.is_some()));
        }
        Ok(Self { header, question, name, edns })
    }

    /// Returns what was asked for, for counters.
    pub(crate) fn query_type(&self) -> QueryType {
        QueryType::from(self.question.qtype())
    }
}

/// A message, a section or a record that does not parse, or a second OPT record.
struct Broken;

/// Parses all records, and returns what the OPT record among the additional ones says, with its version.
fn options(answers: RecordSection<'_, &[u8]>) -> Result<Option<(Edns, u8)>, Broken> {
    // Questions with answers and authorities are odd, and allowed: IXFR has one.
    let authorities = answers.next_section().map_err(|_| Broken)?.ok_or(Broken)?;
    let additional = authorities.next_section().map_err(|_| Broken)?.ok_or(Broken)?;
    let mut found = None;
    for record in additional {
        let record = record.map_err(|_| Broken)?;
        if record.rtype() != Rtype::OPT {
            continue;
        }
        let is_root = record.owner().is_root();
        let record = record.to_record::<Opt<_>>().map_err(|_| Broken)?.ok_or(Broken)?;
        if found.is_some() || !is_root {
            return Err(Broken);
        }
        let record = OptRecord::from_record(record);
        found = Some((Edns { udp_bytes: record.udp_payload_size() }, record.version()));
    }
    Ok(found)
}
