//! A program as a container of a host-network pod: the node's network, a host name, files and an environment of its
//! own, a service account where the kubelet puts it, and no arguments.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Context;
use trieste_control::admin::{self, GatewayStatus, GlobalnetStatus};

use crate::command::Run;
use crate::daemon::Daemon;
use crate::installation::get;
use crate::lab::Lab;
use crate::programs;
use crate::topology::NodePlan;

/// Where a container finds its service account.
pub(super) const SERVICE_ACCOUNT: &str = "run/secrets/kubernetes.io/serviceaccount";

/// Runs inside the network and UTS namespaces; `ip netns exec` has given it mounts of its own already. A container
/// has a /run and a /var/lib that nobody else sees; the host's programs and libraries are what its image would hold.
const ENTRY: &str = r#"set -e
mount --bind "$1/run" /run
mount --bind "$1/var-lib" /var/lib
echo "$2" >/proc/sys/kernel/hostname
shift 2
exec "$@""#;

/// The files of one container, on the lab's side. They outlive its process, as a node's outlive a pod's.
#[derive(Debug, Clone)]
pub struct PodFiles {
    directory: PathBuf,
}

impl PodFiles {
    /// Makes the folders of the container called `name`.
    pub(super) fn new(lab: &Lab, name: &str) -> anyhow::Result<Self> {
        let directory = lab.directory().join("pods").join(name);
        for folder in ["run", "var-lib"] {
            std::fs::create_dir_all(directory.join(folder))?;
        }
        Ok(Self { directory })
    }

    /// Where a path of the container, such as `run/trieste/gateway.sock`, is on the lab's side; `run` and `var/lib`
    /// are the container's own, everything else is the machine's.
    pub fn outside(&self, inside: &str) -> PathBuf {
        match inside.strip_prefix("var/lib") {
            Some(rest) => self.directory.join("var-lib").join(rest.trim_start_matches('/')),
            None => self.directory.join(inside),
        }
    }

    /// The service account's directory: `token`, `ca.crt`, `namespace`.
    pub fn service_account(&self) -> PathBuf {
        self.outside(SERVICE_ACCOUNT)
    }

    /// The directory of a mounted Secret, as `BROKER_K8S_SECRET` names it.
    pub fn secret(&self, name: &str) -> PathBuf {
        self.outside("run/secrets/submariner.io").join(name)
    }

    /// The command that runs a program in this container on a node, with this environment (and `PATH`) and no other.
    pub fn command(
        &self,
        node: &NodePlan,
        program: impl AsRef<OsStr>,
        environment: &BTreeMap<String, String>,
    ) -> Run {
        let path = std::env::var("PATH").unwrap_or_default();
        let variables = environment.iter().map(|(name, value)| format!("{name}={value}"));
        let run = node.namespace.run("unshare").args(["--uts", "--", "env", "-i"]);
        let run = run.arg(format!("PATH={path}")).args(variables);
        run.args(["sh", "-c", ENTRY, "container"]).arg(&self.directory).arg(&node.name).arg(program)
    }
}

/// A gateway's running container; it ends when dropped. The Pod object stays.
#[derive(Debug)]
pub struct GatewayPod {
    pub(super) daemon: Daemon,
    pub(super) files: PodFiles,
}

impl GatewayPod {
    /// The gateway's admin socket, on the lab's side.
    pub fn socket(&self) -> PathBuf {
        self.files.outside(admin::DEFAULT_SOCKET.trim_start_matches('/'))
    }

    /// Asks the gateway for its status.
    ///
    /// # Errors
    /// If it does not answer, or in a way that is not understood.
    pub fn status(&self) -> anyhow::Result<GatewayStatus> {
        self.daemon.check()?;
        serde_json::from_str(&get(&self.socket(), admin::STATUS_PATH)?).context("the status document")
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        self.daemon.log_text()
    }

    /// Asks the gateway for what it says of Globalnet.
    ///
    /// # Errors
    /// If it does not answer, or in a way that is not understood.
    pub fn globalnet(&self) -> anyhow::Result<GlobalnetStatus> {
        self.daemon.check()?;
        serde_json::from_str(&get(&self.socket(), admin::GLOBALNET_PATH)?).context("Globalnet's document")
    }

    /// A run of the command `trieste` against this gateway.
    ///
    /// # Errors
    /// If it is not built.
    pub fn trieste(&self, words: &[&str]) -> anyhow::Result<Run> {
        Ok(Run::new(programs::path("trieste")?).args(words).arg("--socket").arg(self.socket()))
    }

    /// Asks it to end (SIGTERM), as the kubelet would; says whether it did so by itself with exit status 0.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop(self) -> anyhow::Result<bool> {
        self.daemon.stop()
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(self) -> anyhow::Result<()> {
        self.daemon.kill()
    }
}

/// The container of a node's route agent, with none of its processes yet.
#[derive(Debug)]
pub struct RouteAgentPod<'a> {
    pub(super) lab: &'a Lab,
    pub(super) node: NodePlan,
    pub(super) files: PodFiles,
    pub(super) environment: BTreeMap<String, String>,
}

impl RouteAgentPod<'_> {
    /// Starts its program with these variables besides.
    ///
    /// # Errors
    /// If it is not built or cannot start.
    pub fn start(&self, more: &[(&str, &str)]) -> anyhow::Result<Daemon> {
        let mut environment = self.environment.clone();
        environment.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let run = self.files.command(&self.node, programs::path("trieste-routeagent")?, &environment);
        Daemon::start(self.lab, &format!("{}-routeagent", self.node.name), &run)
    }

    /// Runs the pod's probe.
    ///
    /// # Errors
    /// What it complains of.
    pub fn check(&self) -> anyhow::Result<()> {
        let program = programs::path("trieste-routeagent")?;
        self.files.command(&self.node, program, &self.environment).arg("--check").finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_of_a_container_lie_in_its_two_folders() {
        let files = PodFiles { directory: PathBuf::from("/lab/pods/gw1") };

        assert_eq!(
            files.outside("run/trieste/gateway.sock"),
            Path::new("/lab/pods/gw1/run/trieste/gateway.sock")
        );
        assert_eq!(files.outside("var/lib/trieste"), Path::new("/lab/pods/gw1/var-lib/trieste"));
        assert!(files.secret("broker").ends_with("run/secrets/submariner.io/broker"));
    }
}
