//! The rights of a program: which capabilities it misses, what that costs and how to grant them; and giving up all that
//! it does not need.
//!
//! ```text
//!   let needs = Needs::default().vital(…).wanted(…);
//!   needs.check()?      a vital one is missing: the program ends with this error; others are warned of
//!   needs.limit()       before the first thread starts: threads have capabilities of their own
//!   needs.note(…)       what is missing as conditions, for the status
//! ```

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::admin::Severity;
use crate::conditions::Conditions;
use crate::store::Location;

pub use rustix::thread::CapabilitySet as Capability;

/// The variable that says where kernel parameters are: `/proc/sys` is read-only in a container.
pub const PROC_SYS: &str = "TRIESTE_PROC_SYS";
/// Where they are otherwise.
pub const DEFAULT_PROC_SYS: &str = "/proc/sys";

/// A capability, and what does not work without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// One capability.
    pub capability: Capability,
    /// Its purpose: the end of the sentence "without it it cannot …".
    pub for_what: String,
    is_vital: bool,
}

/// The needs of a program.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    needs: Vec<Need>,
    useful: Vec<Capability>,
    files: Vec<PathBuf>,
}

/// Nothing works without these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Missing(String);

impl Needs {
    /// Adds a capability without which the program is of no use.
    #[must_use]
    pub fn vital(self, capability: Capability, for_what: impl Into<String>) -> Self {
        self.with(capability, for_what.into(), true)
    }

    /// Adds a capability without which something does not work.
    #[must_use]
    pub fn wanted(self, capability: Capability, for_what: impl Into<String>) -> Self {
        self.with(capability, for_what.into(), false)
    }

    /// Adds a capability that is kept when it is there, and not missed.
    #[must_use]
    pub fn useful(mut self, capability: Capability) -> Self {
        self.useful.push(capability);
        self
    }

    /// Files and directories that it reads or writes. Where one belongs to somebody else, root's right to it is kept.
    #[must_use]
    pub fn files(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.files.extend(paths);
        self
    }

    /// Adds a store whose files the program reads or writes.
    #[must_use]
    pub fn store(self, location: &Location) -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match location {
            Location::Dir(path) | Location::Kube { path: Some(path), .. } => self.files([path.clone()]),
            Location::Kube { path: None, .. } => {
                let named = variable("KUBECONFIG").unwrap_or_default();
                let usual = variable("HOME").map(|home| Path::new(&home).join(".kube/config"));
                self.files(std::env::split_paths(&named).chain(usual).filter(|path| path.is_absolute()))
            }
        }
    }

    /// Returns the needs that are not met.
    #[must_use]
    pub fn missing(&self) -> Vec<&Need> {
        // A kernel that does not say has no capabilities either: then nothing is missed before it fails.
        let effective = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
        self.needs.iter().filter(|need| !effective.contains(need.capability)).collect()
    }

    /// Says once, in one message, what is missing.
    ///
    /// # Errors
    /// The same message, if a vital one is missing.
    pub fn check(&self) -> Result<(), Missing> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let message = explain(&missing);
        if missing.iter().any(|need| need.is_vital) {
            return Err(Missing(message));
        }
        tracing::warn!(reason = %message, "capabilities are missing");
        Ok(())
    }

    /// Says in the status what is missing.
    pub fn note(&self, conditions: &Conditions) {
        for need in self.missing() {
            let message = format!("without it this process cannot {}", need.for_what);
            conditions.set("CapabilityMissing", Severity::Warning, &need.to_string(), message);
        }
    }

    /// Gives up every capability that is not needed, for this thread and all that it starts from here on, other
    /// programs among them. That it cannot be done is a warning: nothing depends on it.
    pub fn limit(&self) {
        let needed = self.needs.iter().map(|need| need.capability);
        let mut keep: CapabilitySet = needed.chain(self.useful.iter().copied()).collect();
        if let Some(path) = self.files.iter().find_map(|path| of_somebody_else(path)) {
            tracing::debug!(path = %path.display(), "it belongs to somebody else: the right to files is kept");
            keep |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        }
        match limit(keep) {
            Ok(kept) => tracing::debug!(kept = %Names(kept), "gave up every other capability"),
            Err(error) => tracing::warn!(%error, "cannot give up capabilities that are not needed"),
        }
    }

    fn with(mut self, capability: Capability, for_what: String, is_vital: bool) -> Self {
        self.needs.push(Need { capability, for_what, is_vital });
        self
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Names(self.capability).fmt(f)
    }
}

/// Names of capabilities as Kubernetes writes them, separated by commas.
struct Names(CapabilitySet);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter_names().map(|(name, _)| name).collect();
        f.write_str(&if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    }
}

fn explain(missing: &[&Need]) -> String {
    let all: CapabilitySet = missing.iter().map(|need| need.capability).collect();
    let costs: Vec<_> =
        missing.iter().map(|need| format!("without {need} it cannot {}", need.for_what)).collect();
    let list: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let (flags, systemd) = (
        list.iter().map(|name| format!("--cap-add {name}")).collect::<Vec<_>>().join(" "),
        list.iter().map(|name| format!("CAP_{name}")).collect::<Vec<_>>().join(" "),
    );
    format!(
        "this process misses the capabilities {}: {}. Grant them: in a pod securityContext.capabilities.add: [{}]; to \
         podman or docker {flags}; under systemd AmbientCapabilities={systemd}; or run it as root",
        Names(all),
        costs.join("; "),
        list.join(", ")
    )
}

/// Keeps these and no others, of what there is. Returns what is left.
fn limit(keep: CapabilitySet) -> io::Result<CapabilitySet> {
    let sets = capabilities(None)?;
    // What the bounding set lacks, no program that we start can get. Changing it is a privilege itself; where we do not
    // have it, whoever started us has seen to that.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(keep).iter() {
            // The kernel refuses the numbers that it does not know.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    set_no_new_privs(true)?;
    // What is inheritable stays so: a program of an ordinary user hands its rights on that way, ambient.
    let kept = CapabilitySets {
        effective: sets.effective & keep,
        permitted: sets.permitted & keep,
        inheritable: sets.inheritable & keep,
    };
    set_capabilities(None, kept)?;
    Ok(kept.permitted)
}

/// Returns the part of a path that belongs neither to root nor to our own user: the path itself as far as it exists, or
/// a directory on the way to it.
fn of_somebody_else(path: &Path) -> Option<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let real = path.ancestors().find_map(|part| part.canonicalize().ok())?;
    let is_foreign = |part: &&Path| part.metadata().is_ok_and(|file| file.uid() != own && file.uid() != 0);
    real.ancestors().find(is_foreign).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs::default()
            .vital(Capability::NET_ADMIN, "make its device")
            .wanted(Capability::NET_RAW, "ping its peers")
    }

    /// Runs `body` on a thread of its own, which has capabilities of its own.
    fn on_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(body).join().unwrap()
    }

    #[test]
    fn the_message_says_what_is_missing_what_that_costs_and_how_to_grant_it() {
        let error = on_a_thread(|| {
            limit(CapabilitySet::empty()).unwrap();
            needs().check().unwrap_err().to_string()
        });
        for part in [
            "misses the capabilities NET_ADMIN, NET_RAW",
            "without NET_ADMIN it cannot make its device; without NET_RAW it cannot ping its peers",
            "capabilities.add: [NET_ADMIN, NET_RAW]",
            "--cap-add NET_ADMIN --cap-add NET_RAW",
            "AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_missing_and_not_vital_is_a_condition_and_no_error() {
        let needs = Needs::default().wanted(Capability::NET_RAW, "ping its peers");
        let list = on_a_thread(move || {
            limit(CapabilitySet::empty()).unwrap();
            needs.check().unwrap();
            let conditions = Conditions::new();
            needs.note(&conditions);
            conditions.list()
        });
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].name.as_str(), list[0].subject.as_str()), ("CapabilityMissing", "NET_RAW"));
        assert_eq!(list[0].message, "without it this process cannot ping its peers");
    }

    #[test]
    fn nothing_but_what_is_needed_is_left_and_nothing_comes_back_with_another_program() {
        let before = capabilities(None).unwrap();
        let (after, child) = on_a_thread(|| {
            needs().limit();
            let child = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
            (capabilities(None).unwrap(), String::from_utf8(child.stdout).unwrap())
        });
        let needed = Capability::NET_ADMIN | Capability::NET_RAW;
        assert_eq!(after.effective, before.effective & needed);
        assert_eq!(after.permitted, before.permitted & needed);
        let permitted = child.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
        let permitted = u64::from_str_radix(permitted.trim(), 16).unwrap();
        assert_eq!(permitted & !needed.bits(), 0, "{child}");
        assert!(child.contains("NoNewPrivs:\t1"), "{child}");
    }

    #[test]
    fn a_file_of_somebody_else_keeps_the_right_to_files() {
        assert_eq!(of_somebody_else(Path::new("/proc/self/status")), None);
        assert_eq!(of_somebody_else(Path::new("/no/such/file")), None);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(4711), None).unwrap();
        assert_eq!(of_somebody_else(&home.join("store/endpoints")), Some(home.canonicalize().unwrap()));
        let kept = on_a_thread(move || {
            needs().files([home]).limit();
            capabilities(None).unwrap().permitted
        });
        assert!(kept.contains(Capability::DAC_OVERRIDE | Capability::NET_ADMIN));
        assert!(!kept.contains(Capability::SYS_ADMIN));
    }
}
