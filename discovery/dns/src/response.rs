//! The bytes of a response: header, question, records as far as they fit, EDNS.

use domain::base::iana::{Class, OptRcode, Rcode};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder, StaticCompressor};
use domain::base::rdata::ComposeRecordData;
use domain::base::{CharStr, Header, MessageBuilder, Name, Serial, Ttl};
use domain::rdata::{Hinfo, Ns, Ptr, Soa, Srv, Txt};

use crate::family::{Family, V4, V6};
use crate::label::ServiceName;
use crate::outcome::{Answer, Outcome, Summary};
use crate::request::{Code, Request};
use crate::settings::Settings;
use crate::source::Source;
use crate::target::Targets;
use crate::transport::Transport;
use crate::wire_name::WireName;
use crate::zone::Zone;

/// What we read over UDP, and the most that we send: no fragments on any usual link (DNS flag day 2020).
pub(crate) const UDP_BYTES: u16 = 1_232;
/// The most that a client without EDNS reads over UDP (RFC 1035), and the least that EDNS may say (RFC 6891).
const UDP_BYTES_WITHOUT_EDNS: u16 = 512;
/// An OPT record without options.
const OPT_BYTES: usize = 11;
/// Weight of SRV records, as upstream has it: each target as likely as the others.
const SRV_WEIGHT: u16 = 50;
/// Version of the names' schema (KEP-1645).
const SCHEMA_VERSION: &[u8] = b"\x051.0.0";
/// The labels in front of a zone of its name server, and of who answers for it.
const NAME_SERVER: &[u8] = b"\x02ns\x03dns";
const HOSTMASTER: &[u8] = b"\x0ahostmaster";
/// Secondaries are told nothing, since there is no transfer; these are usual values, in seconds.
const REFRESH: u32 = 7_200;
const RETRY: u32 = 1_800;
const EXPIRE: u32 = 86_400;

type Message<'b> = StaticCompressor<&'b mut Vec<u8>>;

/// What a response says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'s> {
    /// The name does not exist.
    NoName,
    /// The name has no records of this type.
    NoData,
    /// Whether the name exists is not clear yet.
    Failed,
    /// Addresses.
    V4(Source<'s>),
    /// Addresses.
    V6(Source<'s>),
    /// Ports.
    Srv(Targets<'s>),
    /// The name of a service.
    Owner(&'s ServiceName),
    /// The start of authority.
    Soa,
    /// The name servers.
    Ns,
    /// The version of the names' schema.
    SchemaVersion,
    /// As little as answers a question for anything (RFC 8482).
    Anything,
}

impl Content<'_> {
    /// Counts an answer for the clusters that it names.
    fn count(self) {
        match self {
            Self::V4(source) | Self::V6(source) => source.count(),
            Self::Srv(targets) => targets.count(),
            Self::NoName
            | Self::NoData
            | Self::Failed
            | Self::Owner(_)
            | Self::Soa
            | Self::Ns
            | Self::SchemaVersion
            | Self::Anything => {}
        }
    }
}

/// What all responses to a request have in common.
pub(crate) struct Response<'s> {
    pub(crate) request: &'s Request<'s>,
    pub(crate) transport: Transport,
    pub(crate) settings: &'s Settings,
    pub(crate) serial: u32,
}

impl Response<'_> {
    /// Writes a response. `apex` is the zone's name in wire form, `names` the zone of its name server and of services.
    pub(crate) fn write(
        &self,
        content: Content<'_>,
        apex: &[u8],
        names: &Zone,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let mut builder = begin(self.request.header, reply);
        builder.set_push_limit(self.limit() + 1);
        let mut questions = builder.question();
        // A name of 255 bytes and its header are 271 bytes: it fits.
        let _ = questions.push(self.request.question);
        let mut answers = questions.answer();
        answers.header_mut().set_aa(true);
        let is_whole = self.push_answers(&mut answers, content, names);
        let count = answers.counts().ancount();
        let result = if matches!(content, Content::NoName) {
            Answer::NoName
        } else if matches!(content, Content::Failed) {
            Answer::Failed
        } else if count == 0 && is_whole {
            Answer::NoData
        } else {
            Answer::Records
        };
        if count > 0 {
            content.count();
        }
        let header = answers.header_mut();
        header.set_tc(!is_whole && self.transport == Transport::Udp);
        if result == Answer::NoName {
            header.set_rcode(Rcode::NXDOMAIN);
        } else if result == Answer::Failed {
            header.set_rcode(Rcode::SERVFAIL);
            header.set_aa(false);
        }
        let mut authorities = answers.authority();
        if matches!(result, Answer::NoName | Answer::NoData)
            && let Ok(apex) = Name::from_octets(apex)
        {
            let ttl = self.settings.ttl();
            self.with_soa(names, |soa| authorities.push((apex, Class::IN, ttl, soa)).is_ok());
        }
        let mut additional = authorities.additional();
        if is_whole && let Content::Srv(targets) = content {
            self.push_addresses(&mut additional, targets, names);
        }
        if self.request.edns.is_some() {
            additional.clear_push_limit();
            let rcode = additional.header().rcode();
            push_opt(&mut additional, rcode, 0);
        }
        Outcome::Reply(Summary { query: self.request.query_type(), result, is_truncated: !is_whole })
    }

    /// Returns how long the response may be, without its OPT record.
    fn limit(&self) -> usize {
        let most = match (self.transport, self.request.edns) {
            (Transport::Tcp, _) => u16::MAX,
            (Transport::Udp, None) => UDP_BYTES_WITHOUT_EDNS,
            (Transport::Udp, Some(edns)) => edns.udp_bytes.clamp(UDP_BYTES_WITHOUT_EDNS, UDP_BYTES),
        };
        usize::from(most) - if self.request.edns.is_some() { OPT_BYTES } else { 0 }
    }

    /// Appends the records that were asked for. Returns whether all of them fit.
    fn push_answers(
        &self,
        answers: &mut AnswerBuilder<Message<'_>>,
        content: Content<'_>,
        names: &Zone,
    ) -> bool {
        match content {
            Content::NoName | Content::NoData | Content::Failed => true,
            Content::V4(source) => source.each::<V4>(|ip| self.push(answers, V4::data(ip))),
            Content::V6(source) => source.each::<V6>(|ip| self.push(answers, V6::data(ip))),
            Content::Srv(targets) => targets.each(|target| {
                // What has no name cannot be referred to.
                let name = target.name(names);
                let Some(name) = name.as_ref().and_then(WireName::name) else { return true };
                targets
                    .numbers(&target)
                    .all(|number| self.push(answers, Srv::new(0, SRV_WEIGHT, number, &name)))
            }),
            Content::Owner(owner) => {
                let name = WireName::join(&[owner.wire(), b"\x03svc", names.wire()]);
                name.as_ref().and_then(WireName::name).is_none_or(|name| self.push(answers, Ptr::new(name)))
            }
            Content::Soa => self.with_soa(names, |soa| self.push(answers, soa)),
            Content::Ns => {
                let name = WireName::join(&[NAME_SERVER, names.wire()]);
                name.as_ref().and_then(WireName::name).is_none_or(|name| self.push(answers, Ns::new(name)))
            }
            Content::SchemaVersion => {
                Txt::from_octets(SCHEMA_VERSION).is_ok_and(|text| self.push(answers, text))
            }
            Content::Anything => {
                let text = |bytes: &'static [u8]| CharStr::from_octets(bytes);
                let (Ok(cpu), Ok(os)) = (text(b"RFC8482"), text(b"")) else { return true };
                self.push(answers, Hinfo::new(cpu, os))
            }
        }
    }

    /// Appends a record with the name of the question. Returns whether it fits.
    fn push(&self, answers: &mut AnswerBuilder<Message<'_>>, data: impl ComposeRecordData) -> bool {
        let name = self.request.question.qname();
        answers.push((name, Class::IN, self.settings.ttl(), data)).is_ok()
    }

    /// Appends the addresses of targets, as far as they fit.
    fn push_addresses(
        &self,
        additional: &mut AdditionalBuilder<Message<'_>>,
        targets: Targets<'_>,
        names: &Zone,
    ) {
        let ttl = self.settings.ttl();
        targets.each(|target| {
            let name = target.name(names);
            let Some(name) = name.as_ref().and_then(WireName::name) else { return true };
            target.source.each::<V4>(|ip| push_address::<V4>(additional, &name, ttl, ip))
                && target.source.each::<V6>(|ip| push_address::<V6>(additional, &name, ttl, ip))
        });
    }

    /// Calls a function with the start of authority. Returns what it does.
    fn with_soa(&self, names: &Zone, call: impl FnOnce(Soa<Name<&[u8]>>) -> bool) -> bool {
        let server = WireName::join(&[NAME_SERVER, names.wire()]);
        let person = WireName::join(&[HOSTMASTER, names.wire()]);
        let server = server.as_ref().and_then(WireName::name);
        let person = person.as_ref().and_then(WireName::name);
        let (Some(server), Some(person)) = (server, person) else { return true };
        let seconds = Ttl::from_secs;
        let serial = Serial(self.serial);
        // Answers that say no are kept as long as others (RFC 2308).
        let negative = self.settings.ttl();
        call(Soa::new(server, person, serial, seconds(REFRESH), seconds(RETRY), seconds(EXPIRE), negative))
    }
}

/// Writes a response with a code to what could not be parsed, or only in part: without its question.
pub(crate) fn refuse(header: Header, code: Code, has_edns: bool, reply: &mut Vec<u8>) {
    let mut builder = begin(header, reply);
    let (rcode, extended) = code.rcode();
    builder.header_mut().set_rcode(rcode);
    if has_edns {
        push_opt(&mut builder.additional(), rcode, extended);
    }
}

/// Writes a response with a code and the question.
pub(crate) fn refuse_question(request: &Request<'_>, code: Code, reply: &mut Vec<u8>) {
    let mut questions = begin(request.header, reply).question();
    let _ = questions.push(request.question);
    let (rcode, extended) = code.rcode();
    questions.header_mut().set_rcode(rcode);
    if request.edns.is_some() {
        push_opt(&mut questions.additional(), rcode, extended);
    }
}

/// Begins a message with a header that answers another one.
fn begin(request: Header, reply: &mut Vec<u8>) -> MessageBuilder<Message<'_>> {
    reply.clear();
    // A vector takes as much as there is memory: the header is never too much.
    let mut builder = match MessageBuilder::from_target(StaticCompressor::new(reply)) {
        Ok(builder) => builder,
        Err(never) => match never {},
    };
    let header = builder.header_mut();
    header.set_id(request.id());
    header.set_qr(true);
    header.set_opcode(request.opcode());
    header.set_rd(request.rd());
    header.set_cd(request.cd());
    builder
}

/// Appends what we say by EDNS.
fn push_opt(additional: &mut AdditionalBuilder<Message<'_>>, rcode: Rcode, extended: u8) {
    let rcode = OptRcode::from_parts(rcode, extended);
    let _ = additional.opt(|opt| {
        opt.set_udp_payload_size(UDP_BYTES);
        opt.set_rcode(rcode);
        Ok(())
    });
}

/// Appends an address of another name. Returns whether it fits.
fn push_address<F: Family>(
    additional: &mut AdditionalBuilder<Message<'_>>,
    name: &Name<&[u8]>,
    ttl: Ttl,
    ip: F::Ip,
) -> bool {
    additional.push((name, Class::IN, ttl, F::data(ip))).is_ok()
}
