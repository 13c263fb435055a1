//! `trieste trace`: what becomes of a packet in a gateway, and why.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use trieste_control::admin::{
    TRACE_PATH, TraceAnswer, TraceDirection, TracePacket, TraceProtocol, TraceRequest,
};

use super::discovery::{self, Family, Resolved};
use super::gateway::GatewayArgs;
use super::output::Format;
use super::output::{Output, printable};
use trieste_control::store::Location;

/// A gateway's directory, with the store of those that have no API server.
const STATE_DIR: &str = "/var/lib/trieste";

#[derive(Debug, clap::Args)]
pub(super) struct TraceArgs {
    /// The packet's source address, as it is when it reaches the gateway
    from: IpAddr,
    /// The packet's destination address, as it is when it reaches the gateway; or a service's name in the set, such as
    /// web.shop.svc.clusterset.local, which is resolved as this cluster's DNS server answers it
    to: Destination,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// tcp, udp, icmp, sctp, or a protocol's number
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp")]
    proto: TraceProtocol,
    /// The source port, or the identifier of an ICMP query
    #[arg(long, value_name = "PORT", default_value_t = 40_000)]
    sport: u16,
    /// The destination port
    #[arg(long, value_name = "PORT", default_value_t = 80)]
    dport: u16,
    /// The packet goes from this cluster to another one: from a pod's address to a global one [default]
    #[arg(long, conflicts_with = "inbound")]
    outbound: bool,
    /// The packet comes from another cluster: from a global address to one of this cluster's
    #[arg(long)]
    inbound: bool,
    /// The cluster's own store, of which a name is resolved [default: the API server of the context that is named below, or
    /// in a pod its own; else dir:/var/lib/trieste/store]
    #[arg(long, value_name = "LOCATION")]
    store: Option<Location>,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Where a packet goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Destination {
    Address(IpAddr),
    Name(String),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) if discovery::is_name(text) => Ok(Self::Name(text.to_owned())),
            Err(_) => Err("neither an address nor a name such as web.shop.svc.clusterset.local".to_owned()),
        }
    }
}

impl TraceArgs {
    /// Returns the destination of a name, if it is one.
    async fn resolve(&self) -> anyhow::Result<Option<Resolved>> {
        let Destination::Name(name) = &self.to else { return Ok(None) };
        let (gateway, families) = (&self.gateway, [Family::of(self.from)]);
        let in_pod = std::env::var("KUBERNETES_SERVICE_HOST").ok();
        let here = || Location::default_of(in_pod.as_deref(), Path::new(STATE_DIR));
        let store = match (&self.store, gateway.is_of_cluster()) {
            (None, true) => None,
            (Some(store), _) => Some(store.clone()),
            (None, false) => Some(here()),
        };
        discovery::resolve(name, &families, gateway.kube(), store.as_ref()).await.map(Some)
    }

    fn request(&self, to: IpAddr) -> TraceRequest {
        let direction = if self.inbound { TraceDirection::Inbound } else { TraceDirection::Outbound };
        let Self { from, proto, sport, dport, .. } = *self;
        TraceRequest { from, to, proto, sport, dport, direction }
    }

    /// The same question, asked in the gateway's pod.
    fn words(&self, to: IpAddr) -> Vec<String> {
        let request = self.request(to);
        let mut words: Vec<String> =
            ["trieste", "trace", "--output", "json"].into_iter().map(str::to_owned).collect();
        words.extend([request.from.to_string(), request.to.to_string(), format!("--{}", request.direction)]);
        for (flag, value) in [
            ("--proto", request.proto.to_string()),
            ("--sport", request.sport.to_string()),
            ("--dport", request.dport.to_string()),
        ] {
            words.extend([flag.to_owned(), value]);
        }
        words
    }
}

pub(super) async fn run(args: &TraceArgs, output: &mut Output) -> anyhow::Result<()> {
    let resolved = args.resolve().await?;
    let to = match (&args.to, &resolved) {
        (Destination::Address(address), _) => *address,
        (Destination::Name(_), Some(resolved)) => resolved.address,
        (Destination::Name(name), None) => bail!("{name} has no address"),
    };
    if args.from.is_ipv4() != to.is_ipv4() {
        bail!("{} and {to} are not of one family: such a packet cannot be", args.from);
    }
    let words = args.words(to);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let path = format!("{TRACE_PATH}?{}", args.request(to).to_query());
    let body = args.gateway.document(&path, &words).await?;
    let mut value: serde_json::Value =
        serde_json::from_slice(&body).context("the gateway's answer is not JSON")?;
    if args.output != Format::Table {
        if let (Some(resolved), Some(fields)) = (&resolved, value.as_object_mut()) {
            fields.insert("resolved".to_owned(), serde_json::to_value(resolved)?);
        }
        // As it came: a newer gateway may say more than we know.
        return output.write_value(&value, args.output);
    }
    let answer: TraceAnswer = serde_path_to_error::deserialize(value)
        .context("the gateway's answer makes no sense; is it of another version than this command?")?;
    let name = resolved.map(|resolved| printable(&resolved.to_string()) + "\n").unwrap_or_default();
    output.write(format!("{name}{}", describe(&answer)).as_bytes())
}

fn describe(answer: &TraceAnswer) -> String {
    let TraceRequest { from, to, proto, sport, dport, direction } = answer.request;
    let packet = TracePacket { from, to, sport, dport };
    let mut lines = vec![format!("{direction} {proto} {}", ends(&packet, proto))];
    let wide = answer.steps.iter().map(|step| step.stage.len()).max().unwrap_or_default();
    for step in &answer.steps {
        let mut line = format!("  {:<wide$}  {}", step.stage, step.decision);
        if !step.why.is_empty() {
            let _ = write!(line, "  ({})", step.why);
        }
        lines.push(line);
    }
    let kind =
        if answer.is_live { "as a session has it" } else { "as the first packet of a flow would fare" };
    lines.push(match (&answer.result, &answer.dropped) {
        (Some(packet), _) => format!("  => {}, {kind}; worker {}", ends(packet, proto), answer.worker),
        (None, Some(reason)) => format!("  => dropped: {reason}, {kind}; worker {}", answer.worker),
        (None, None) => format!("  => nothing is known of its end; worker {}", answer.worker),
    });
    lines.iter().map(|line| printable(line) + "\n").collect()
}

/// Both ends, with their ports where the protocol has some.
fn ends(packet: &TracePacket, proto: TraceProtocol) -> String {
    let TracePacket { from, to, sport, dport } = packet;
    let with_port = |address: &IpAddr, port: &u16| match address {
        IpAddr::V4(v4) => format!("{v4}:{port}"),
        IpAddr::V6(v6) => format!("[{v6}]:{port}"),
    };
    match proto {
        TraceProtocol::Tcp | TraceProtocol::Udp => {
            format!("{} -> {}", with_port(from, sport), with_port(to, dport))
        }
        TraceProtocol::Icmp => format!("{from} -> {to} id {sport}"),
        TraceProtocol::Sctp | TraceProtocol::Other(_) => format!("{from} -> {to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use trieste_control::admin::TraceStep;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        trace: TraceArgs,
    }

    fn args(words: &[&str]) -> Result<TraceArgs, clap::Error> {
        Line::try_parse_from([&["trieste"], words].concat()).map(|line| line.trace)
    }

    #[test]
    fn the_question_is_the_same_in_a_pod() {
        let asked = args(&["10.1.0.5", "242.2.0.9", "--proto", "udp", "--dport", "53", "--inbound"]).unwrap();
        let Destination::Address(to) = asked.to else { panic!("{asked:?}") };
        let in_pod = asked.words(to);
        let words: Vec<&str> = in_pod[2..].iter().map(String::as_str).collect();
        let again = args(&words).unwrap();
        assert_eq!(again.request(to), asked.request(to));
        assert_eq!(asked.request(to).direction, TraceDirection::Inbound);
        assert!(args(&["10.1.0.5", "242.2.0.9", "--inbound", "--outbound"]).is_err());
        assert!(args(&["10.1.0.5"]).is_err());
        let name = args(&["10.1.0.5", "web.shop.svc.clusterset.local"]).unwrap().to;
        assert_eq!(name, Destination::Name("web.shop.svc.clusterset.local".to_owned()));
        assert!(
            args(&["10.1.0.5", "web"]).unwrap_err().to_string().contains("neither an address nor a name")
        );
        assert!(args(&["10.1.0.5", "242.2.0.9", "--proto", "tpc"]).unwrap_err().to_string().contains("sctp"));
    }

    #[test]
    fn stages_stand_under_one_another_and_the_end_says_what_decided() {
        let step = |stage: &str, decision: &str, why: &str| TraceStep {
            stage: stage.to_owned(),
            decision: decision.to_owned(),
            why: why.to_owned(),
        };
        let request = args(&["10.1.0.5", "242.2.0.9", "--sport", "4711"]).unwrap();
        let request = request.request("242.2.0.9".parse().unwrap());
        let mut answer = TraceAnswer {
            request,
            worker: 1,
            is_live: true,
            steps: vec![
                step("classify", "to cluster west", "it has the destination"),
                step("nat", "10.1.0.5:4711 becomes 242.1.0.3:5000", ""),
            ],
            result: Some(TracePacket {
                from: "242.1.0.3".parse().unwrap(),
                to: "242.2.0.9".parse().unwrap(),
                sport: 5000,
                dport: 80,
            }),
            dropped: None,
        };
        assert_eq!(
            describe(&answer),
            "outbound tcp 10.1.0.5:4711 -> 242.2.0.9:80\n\
             \x20 classify  to cluster west  (it has the destination)\n\
             \x20 nat       10.1.0.5:4711 becomes 242.1.0.3:5000\n\
             \x20 => 242.1.0.3:5000 -> 242.2.0.9:80, as a session has it; worker 1\n"
        );
        (answer.result, answer.is_live, answer.dropped) = (None, false, Some("no_global_ip".to_owned()));
        assert!(
            describe(&answer).contains("=> dropped: no_global_ip, as the first packet of a flow would fare")
        );
    }
}
