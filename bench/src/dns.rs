//! The DNS server of service discovery against CoreDNS and Knot's on the same records, asked by dnsperf: queries per second of
//! processor time, and the slowest answers at a steady rate.
//!
//! ```text
//!   client: dnsperf ── veth ── server: trieste-discovery dns, coredns, or knotd
//! ```
//!
//! Asked for are services' addresses, names that do not exist, headless services of four pods, and ports. CoreDNS answers from
//! a zone file (its plugin `file`), and for Services of an API server (`kubernetes`). Knot's answers from a zone that does not
//! change and chooses nothing: it is the ceiling.

mod records;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;
use trieste_control::store::{AnyStore, Location, Store as _};
use trieste_tests::command::Run;
use trieste_tests::daemon::Daemon;
use trieste_tests::kubernetes::{ApiServer, Options as ServerOptions, built};
use trieste_tests::lab::Lab;
use trieste_tests::netns::Namespace;
use trieste_tests::programs;
use trieste_tests::wait::eventually;

use crate::machine::Circumstances;
use crate::report::{self, Table};
use records::{IN_NAMESPACE, SERVICES, address, endpoints, objects, pods, zone_head};

/// Where the server answers.
const ADDRESS: &str = "10.9.0.1";
/// How long a server may take to know all records.
const START: Duration = Duration::from_secs(60);
/// What the DNS server has to do of what CoreDNS does with either plugin, by processor time.
const BAR: f64 = 3.0;

/// The settings of a measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Services, each with an address.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    services: u32,
    /// Rounds, in each of which all servers have their turn.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each turn.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Threads of each server.
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Queries per second at which the slowest answers are looked for.
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// What is asked for.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Question::ALL)]
    questions: Vec<Question>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A server that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Candidate {
    Trieste,
    /// CoreDNS with the plugin `file`.
    CorednsFile,
    /// CoreDNS with the plugin `kubernetes`.
    CorednsKubernetes,
    Knot,
}

impl Candidate {
    const ALL: [Self; 4] = [Self::Trieste, Self::CorednsFile, Self::CorednsKubernetes, Self::Knot];

    fn name(self) -> &'static str {
        match self {
            Self::Trieste => "trieste",
            Self::CorednsFile => "coredns file",
            Self::CorednsKubernetes => "coredns kubernetes",
            Self::Knot => "knot",
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Question {
    /// Names that have an address.
    Address,
    /// Names that do not exist.
    Absent,
    /// Names of headless services, which have several addresses.
    Headless,
    /// Ports of services: SRV.
    Port,
}

impl Question {
    const ALL: [Self; 4] = [Self::Address, Self::Absent, Self::Headless, Self::Port];

    /// Returns the name of the file of its queries.
    fn file(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Absent => "absent",
            Self::Headless => "headless",
            Self::Port => "port",
        }
    }
}

/// What a server did in a turn.
#[derive(Debug, Clone, Serialize)]
struct Turn {
    server: Candidate,
    question: Question,
    /// Answers a second, with as many queries at a time as dnsperf has.
    per_second: f64,
    /// Answers for a second of the server's processor time.
    per_cpu_second: f64,
    lost: f64,
    /// Of a hundred answers at the steady rate, the slowest took as long, in microseconds.
    p99_micros: f64,
    /// Resident memory afterwards, in bytes.
    resident: u64,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Results {
    circumstances: Circumstances,
    services: u32,
    threads: u32,
    rate: u32,
    turns: Vec<Turn>,
}

/// Measures.
///
/// # Errors
/// If a program is missing or a server fails.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let bed = Bed::new(options)?;
    let mut turns = Vec::new();
    for _ in 0..options.rounds {
        for server in Candidate::ALL {
            for &question in &options.questions {
                turns.push(bed.turn(options, server, question)?);
            }
        }
    }
    let &Options { services, threads, rate, .. } = options;
    let results = Results { circumstances: Circumstances::read(), services, threads, rate, turns };
    if options.json {
        return report::print(&(serde_json::to_string_pretty(&results)? + "\n"));
    }
    report::print(&results.text())
}

/// Two namespaces, and what the servers answer from.
struct Bed {
    /// It stands still but for when CoreDNS reads it.
    api: ApiServer,
    client: Namespace,
    server: Namespace,
    directory: PathBuf,
    lab: Lab,
}

impl Bed {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let (client, server) = (lab.namespace("client")?, lab.namespace("server")?);
        client.ip(&format!("link add eth0 type veth peer name eth0 netns {}", server.name()))?;
        client.ip("link set eth0 up\naddr add 10.9.0.2/24 dev eth0")?;
        server.ip(&format!("link set eth0 up\naddr add {ADDRESS}/24 dev eth0"))?;
        let directory = lab.directory().to_owned();
        let options_of_api = ServerOptions { services: SERVICES.parse()?, ..ServerOptions::default() };
        let address: IpAddr = ADDRESS.parse()?;
        let api = ApiServer::start_with(&lab, "api", &server, address, options_of_api)?;
        let bed = Self { api, client, server, directory, lab };
        bed.write(options)?;
        bed.write_services(options)?;
        bed.api.pause()?;
        Ok(bed)
    }

    /// Writes Services to the API server.
    fn write_services(&self, options: &Options) -> anyhow::Result<()> {
        let api = self.api.client();
        let namespaces = options.services.div_ceil(IN_NAMESPACE);
        (0..namespaces).try_for_each(|number| api.create_namespace(&format!("n{number}")))?;
        (0..options.services).try_for_each(|number| {
            let port = json!({"name": "http", "protocol": "TCP", "port": 80});
            let service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": format!("n{}", number / IN_NAMESPACE), "name": format!("s{number}")},
                "spec": {"clusterIP": address(number), "ports": [port]},
            });
            api.apply(&service)?;
            let Some(pods) = pods(number) else { return Ok(()) };
            let name = format!("h{number}");
            let metadata = json!({"namespace": format!("n{}", number / IN_NAMESPACE), "name": name,
                "labels": {"kubernetes.io/service-name": name}});
            api.apply(&json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"clusterIP": "None", "ports": [port]},
            }))?;
            api.apply(&json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": "IPv4", "endpoints": endpoints(&pods), "ports": [port],
            }))
            .map(drop)
        })
    }

    /// Writes questions, a zone, and objects.
    fn write(&self, options: &Options) -> anyhow::Result<()> {
        let name = |number: u32| format!("s{number}.n{}", number / IN_NAMESPACE);
        // An odd step takes every name once, in no order.
        let numbers = (0..options.services).map(|number| number.wrapping_mul(7_919) % options.services);
        let (mut asked, mut absent, mut zone) = (String::new(), String::new(), zone_head());
        let (mut headless, mut ports) = (String::new(), String::new());
        for number in numbers {
            let name = name(number);
            writeln!(asked, "{name}.svc.clusterset.local A")?;
            writeln!(absent, "x{name}.svc.clusterset.local A")?;
            writeln!(ports, "_http._tcp.{name}.svc.clusterset.local SRV")?;
            writeln!(zone, "{name}.svc 5 A {}", address(number))?;
            writeln!(zone, "_http._tcp.{name}.svc 5 SRV 0 50 80 {name}.svc")?;
            for (index, pod) in pods(number).into_iter().flatten().enumerate() {
                let name = format!("h{number}.n{}", number / IN_NAMESPACE);
                if index == 0 {
                    writeln!(headless, "{name}.svc.clusterset.local A")?;
                }
                writeln!(zone, "{name}.svc 5 A {pod}")?;
            }
        }
        for (question, queries) in [
            (Question::Address, asked),
            (Question::Absent, absent),
            (Question::Headless, headless),
            (Question::Port, ports),
        ] {
            std::fs::write(self.directory.join(question.file()), queries)?;
        }
        std::fs::write(self.directory.join("clusterset.local.zone"), zone)?;
        let directory = self.directory.display();
        let threads = options.threads;
        let config = format!(
            "server:\n  rundir: {directory}\n  listen: {ADDRESS}@53\n  udp-workers: {threads}\n  background-workers: 1\n\
             database:\n  storage: {directory}/knot\n\
             zone:\n  - domain: clusterset.local\n    storage: {directory}\n    file: clusterset.local.zone\n"
        );
        std::fs::write(self.directory.join("knot.conf"), config)?;
        let kubeconfig = self.api.kubeconfig().display();
        for (name, plugin) in [
            ("file", format!("file {directory}/clusterset.local.zone")),
            ("kubernetes", format!("kubernetes clusterset.local {{\n    kubeconfig {kubeconfig}\n  }}")),
        ] {
            let corefile = format!("clusterset.local {{\n  {plugin}\n}}\n");
            std::fs::write(self.directory.join(format!("Corefile.{name}")), corefile)?;
        }
        let store = AnyStore::open(&Location::Dir(self.directory.join("store")))?;
        let runtime = tokio_runtime()?;
        runtime.block_on(async {
            for number in 0..options.services {
                for object in objects(number) {
                    store.create(object).await?;
                }
            }
            anyhow::Ok(())
        })
    }

    /// Starts a server and waits until it answers for the last service.
    fn start(&self, options: &Options, server: Candidate) -> anyhow::Result<Daemon> {
        let is_read = server == Candidate::CorednsKubernetes;
        if is_read {
            self.api.resume()?;
        }
        let run = self.command(options, server)?;
        let daemon = Daemon::start(&self.lab, "server", &run)?;
        let last = options.services - 1;
        let name = format!("s{last}.n{}.svc.clusterset.local", last / IN_NAMESPACE);
        let expected = address(last);
        eventually("an answer", START, || {
            daemon.check()?;
            let at = format!("@{ADDRESS}");
            let answer = self.client.run("dig").args(["+short", "+timeout=1", &at, &name]).stdout()?;
            anyhow::ensure!(answer.trim() == expected, "{answer}");
            Ok(())
        })?;
        if is_read {
            self.api.pause()?;
        }
        Ok(daemon)
    }

    fn command(&self, options: &Options, server: Candidate) -> anyhow::Result<Run> {
        let coredns = |plugin: &str| -> anyhow::Result<Run> {
            let run = self.server.run("env").arg(format!("GOMAXPROCS={}", options.threads));
            let run = run.arg(built("coredns")?).arg("-quiet").arg("-conf");
            Ok(run.arg(self.directory.join(format!("Corefile.{plugin}"))))
        };
        Ok(match server {
            Candidate::Trieste => self
                .server
                .run("env")
                .arg("SUBMARINER_CLUSTERID=west")
                .arg(programs::path("trieste-discovery")?)
                .args(["dns", "--drain=0", "--health=off", "--ready=off", "--metrics=off"])
                .arg(format!("--threads={}", options.threads))
                .arg(format!("--listen={ADDRESS}"))
                .arg(format!("--store=dir:{}", self.directory.join("store").display())),
            Candidate::CorednsFile => coredns("file")?,
            Candidate::CorednsKubernetes => coredns("kubernetes")?,
            Candidate::Knot => self.server.run("knotd").arg("-c").arg(self.directory.join("knot.conf")),
        })
    }

    fn turn(&self, options: &Options, server: Candidate, question: Question) -> anyhow::Result<Turn> {
        let daemon = self.start(options, server)?;
        let file = question.file();
        let dnsperf = |arguments: &[&str]| {
            let seconds = Duration::from_secs(u64::from(options.seconds) + 30);
            let run = self.client.run("dnsperf").args(["-s", ADDRESS, "-d"]).arg(self.directory.join(file));
            run.args(["-l", &options.seconds.to_string()]).args(arguments).timeout(seconds).stdout()
        };
        dnsperf(&["-n", "2"]).context("warming up")?;
        let before = daemon.id().cpu_seconds()?;
        let full = dnsperf(&["-c", "8", "-q", "200"])?;
        let cpu = daemon.id().cpu_seconds()? - before;
        let number =
            |line: &str| field(&full, line).with_context(|| format!("dnsperf says no {line}\n{full}"));
        let completed = number("Queries completed:")?;
        let steady = dnsperf(&["-c", "8", "-v", "-Q", &options.rate.to_string()])?;
        Ok(Turn {
            server,
            question,
            per_second: number("Queries per second:")?,
            per_cpu_second: completed / cpu,
            lost: number("Queries sent:")? - completed,
            p99_micros: percentile(&steady).context("dnsperf names no answers")?,
            resident: daemon.id().resident_bytes()?,
        })
    }
}

fn tokio_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")
}

/// Returns the first number of a line of dnsperf's.
fn field(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Returns the time, in microseconds, that one of a hundred answers exceeds; a line of dnsperf's for each ends with it.
fn percentile(text: &str) -> Option<f64> {
    let answers = text.lines().filter(|line| line.starts_with('>'));
    let mut times: Vec<f64> =
        answers.filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 99 / 100).map(|seconds| seconds * 1e6)
}

impl Results {
    /// Returns what was asked for.
    fn questions(&self) -> Vec<Question> {
        let is_asked = |question: &Question| self.turns.iter().any(|turn| turn.question == *question);
        Question::ALL.into_iter().filter(is_asked).collect()
    }

    /// Returns a table of the medians of all rounds.
    fn text(&self) -> String {
        let mut table = Table::new(&[
            "server",
            "asked for",
            "answers/s",
            "per CPU second",
            "of Knot's",
            "Trieste to it",
            "p99 µs",
            "lost",
            "MiB",
        ]);
        for question in self.questions() {
            let of = |server, get: &dyn Fn(&Turn) -> f64| {
                let turns =
                    self.turns.iter().filter(|turn| turn.server == server && turn.question == question);
                median(turns.map(get).collect())
            };
            let ceiling = of(Candidate::Knot, &|turn| turn.per_cpu_second);
            let own = of(Candidate::Trieste, &|turn| turn.per_cpu_second);
            for server in Candidate::ALL {
                let per_cpu_second = of(server, &|turn| turn.per_cpu_second);
                table.row(vec![
                    server.name().to_owned(),
                    format!("{question:?}").to_lowercase(),
                    format!("{:.0}", of(server, &|turn| turn.per_second)),
                    format!("{per_cpu_second:.0}"),
                    format!("{:.2}", per_cpu_second / ceiling),
                    format!("{:.2}", own / per_cpu_second),
                    format!("{:.0}", of(server, &|turn| turn.p99_micros)),
                    format!("{:.0}", of(server, &|turn| turn.lost)),
                    format!("{:.1}", of(server, &|turn| turn.resident as f64 / 1_048_576.0)),
                ]);
            }
        }
        let Self { circumstances, services, threads, rate, .. } = self;
        format!(
            "{}\n{services} services, {threads} threads, p99 at {rate} queries a second; wanted: {BAR} times CoreDNS\n\n{}",
            circumstances.line(),
            table.text()
        )
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dnsperf_says_is_read() {
        let text = "[Status] x\nStatistics:\n\n  Queries sent:         120\n  Queries completed:    119 (99.17%)\n\n  \
                    Queries per second:   23.5\n";
        assert_eq!(field(text, "Queries completed:"), Some(119.0));
        assert_eq!(field(text, "Queries per second:"), Some(23.5));
        assert_eq!(field(text, "Latency:"), None);
        let lines: String = (1..=100).map(|n| format!("> NOERROR s.n.svc A 0.{n:06}\n")).collect();
        assert_eq!(percentile(&lines).map(f64::round), Some(100.0));
        assert_eq!(percentile("x"), None);
    }
}
