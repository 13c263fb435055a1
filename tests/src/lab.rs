//! A lab: the owner of everything that a run makes. What it made is gone when it is dropped.

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use ipnet::IpNet;

use crate::command::Run;
use crate::flow::losses;
use crate::interrupt;
use crate::netns::{self, Namespace};
use crate::process::ProcessId;
use crate::registry::{Claim, Record, Removed};
use crate::topology::{Plan, Topology};

/// How much of each log a failed test shows, in lines.
const LOG_TAIL_LINES: usize = 40;

/// Seconds between two sweeps of what kernels know of IPv6 destinations. Each sweep forgets the MTU of every path whose next
/// hop's neighbour entry has no router flag, as in pods that were spoken to first (`rt6_age_examine_exception`), and the
/// next large packet is lost for it, which by default may happen every 30 s.
const PATH_MTUS: (&str, &str) = ("ipv6/route/gc_interval", "3600");

/// Owns namespaces, processes and files. Cheap to clone; the last clone dropped removes them all.
#[derive(Debug, Clone)]
pub struct Lab {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    id: String,
    directory: PathBuf,
    claim: Mutex<Option<Claim>>,
    is_kept: AtomicBool,
}

impl Lab {
    /// An empty lab with a fresh name and directory. Watches for Ctrl-C from here on.
    ///
    /// # Errors
    /// If this is not root, or the record cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "the lab makes network namespaces: run it as root"
        );
        interrupt::watch();
        let id = random_id()?;
        let directory = std::env::temp_dir().join(&id);
        let claim = Claim::new(&id, &directory)?;
        std::fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        std::fs::create_dir(directory.join("logs"))?;
        let shared =
            Shared { id, directory, claim: Mutex::new(Some(claim)), is_kept: AtomicBool::new(false) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The prefix of every name that this lab makes: `tl` and six hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Its files; removed with it.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Makes a namespace `ID-SUFFIX` with loopback up and without duplicate address detection.
    ///
    /// # Errors
    /// If the kernel refuses, or after an interruption.
    pub fn namespace(&self, suffix: &str) -> anyhow::Result<Namespace> {
        let name = format!("{}-{suffix}", self.id());
        self.record(|record| {
            // A node that is switched on again has its old name.
            record.namespaces.retain(|other| *other != name);
            record.namespaces.push(name.clone());
        })?;
        Run::new("ip").args(["netns", "add", &name]).stdout()?;
        let namespace = Namespace::named(name);
        namespace.sysctl(&[
            ("ipv6/conf/all/accept_dad", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/default/router_solicitations", "0"),
            PATH_MTUS,
        ])?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Gives the network namespace of a process the name `ID-SUFFIX`, which keeps it until the lab goes. A name that is
    /// taken is left as it is.
    pub(crate) fn attach_namespace(&self, suffix: &str, pid: i32) -> anyhow::Result<Namespace> {
        let name = format!("{}-{suffix}", self.id());
        if !Path::new("/run/netns").join(&name).exists() {
            self.record(|record| record.namespaces.push(name.clone()))?;
            Run::new("ip").args(["netns", "attach", &name, &pid.to_string()]).stdout()?;
            Namespace::named(name.clone()).sysctl(&[PATH_MTUS])?;
        }
        Ok(Namespace::named(name))
    }

    /// Makes the namespaces, links and addresses of a topology.
    ///
    /// # Errors
    /// If the topology is impossible, the kernel refuses, or after an interruption.
    pub fn build(&self, topology: &Topology) -> anyhow::Result<Plan> {
        let plan = Plan::new(self.id(), topology)?;
        for suffix in plan.namespace_suffixes() {
            self.namespace(&suffix)?;
        }
        for (namespace, parameters) in plan.sysctls() {
            namespace.sysctl(&parameters)?;
        }
        netns::ip(&plan.links())?;
        for (namespace, lines) in plan.addresses() {
            namespace.ip(&lines)?;
        }
        Ok(plan)
    }

    /// Makes a namespace on the underlay of a lab that is built, with addresses of this number, which no cluster's nodes have
    /// (see the table in [`crate::topology`]); returns the first address too.
    ///
    /// # Errors
    /// If the number or the name is taken, or the kernel refuses.
    pub fn plug_in(&self, plan: &Plan, name: &str, number: u8) -> anyhow::Result<(Namespace, IpAddr)> {
        let namespace = self.namespace(name)?;
        let texts = [format!("172.31.{number}.100/16"), format!("fd00:31::{number}:100/64")];
        let addresses: Vec<IpNet> =
            texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().context("an underlay address")?;
        let addresses = plan.on_underlay(&addresses);
        let address = addresses.first().context("an underlay speaks something")?.addr();
        let (port, wan, mtu) = (format!("plug{number}"), plan.wan.name(), plan.underlay_mtu());
        netns::ip(&format!(
            "link add eth0 netns {} type veth peer name {port} netns {wan}",
            namespace.name()
        ))?;
        plan.wan.ip(&format!("link set {port} mtu {mtu} master br0 up"))?;
        let lines: String =
            addresses.iter().map(|address| format!("addr add {address} dev eth0\n")).collect();
        namespace.ip(&format!("link set eth0 mtu {mtu} up\n{lines}"))?;
        Ok((namespace, address))
    }

    /// Notes a process, to be ended with the lab.
    pub(crate) fn adopt_process(&self, process: ProcessId) -> anyhow::Result<()> {
        self.record(|record| {
            record.processes.retain(|other| other.is_running());
            record.processes.push(process);
        })
    }

    /// Notes a file outside of the lab's directory, to be removed with the lab.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn adopt_file(&self, path: &Path) -> anyhow::Result<()> {
        self.record(|record| record.files.push(path.to_owned()))
    }

    /// Notes a control group, to be removed with the lab.
    pub(crate) fn adopt_group(&self, path: &Path) -> anyhow::Result<()> {
        self.record(|record| {
            if !record.groups.iter().any(|group| group == path) {
                record.groups.push(path.to_owned());
            }
        })
    }

    /// From here on, nothing is removed when the lab is dropped; `trieste-lab clean` does it.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn keep(&self) -> anyhow::Result<()> {
        self.record(|record| record.kept = true)?;
        self.shared.is_kept.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether what was made stays.
    pub(crate) fn is_kept(&self) -> bool {
        self.shared.is_kept.load(Ordering::Relaxed)
    }

    /// Removes everything now, and says how much there was.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn remove(self) -> anyhow::Result<Removed> {
        self.shared.remove()
    }

    /// Where the daemon of this name writes its log.
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.directory().join("logs").join(format!("{name}.log"))
    }

    /// Prints the end of every log to standard error.
    pub fn show_logs(&self) {
        self.shared.show_logs();
    }

    fn record(&self, change: impl FnOnce(&mut Record)) -> anyhow::Result<()> {
        let mut claim = self.shared.claim.lock().unwrap_or_else(PoisonError::into_inner);
        claim.as_mut().context("the lab has been removed")?.change(change)
    }
}

impl Shared {
    fn remove(&self) -> anyhow::Result<Removed> {
        let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
        claim.map_or(Ok(Removed::default()), Claim::remove)
    }

    /// The logs go away with the lab: a failed test shows their ends first, and what the kernel lost.
    fn show_logs(&self) {
        self.show_losses();
        let Ok(entries) = std::fs::read_dir(self.directory.join("logs")) else { return };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<_> = text.lines().collect();
            eprintln!("--- the end of {}", path.display());
            for line in lines.iter().skip(lines.len().saturating_sub(LOG_TAIL_LINES)) {
                eprintln!("{line}");
            }
        }
    }

    fn show_losses(&self) {
        let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        let namespaces = claim.as_ref().map(|claim| claim.record().namespaces.clone()).unwrap_or_default();
        drop(claim);
        for name in namespaces {
            let lost = losses::of(&Namespace::named(name.clone())).unwrap_or_default();
            if !lost.is_empty() {
                eprintln!("--- lost by the kernel in {name}: {}", lost.join(", "));
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() && !interrupt::is_interrupted() {
            self.show_logs();
        }
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.remove() {
            eprintln!("removing lab {}: {error:#}", self.id);
        }
    }
}

fn random_id() -> anyhow::Result<String> {
    let mut bytes = [0; 3];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("tl{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2]))
}
