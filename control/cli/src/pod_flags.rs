//! Flags about the pods of a member: what they may have, where they run, and the settings of the programs in them.

use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use trieste_control::settings;
use trieste_deploy::objects::{CpuRequest, MemberOptions};

/// Settings of the programs, in the ConfigMap that these follow.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct SettingArgs {
    /// Set a setting of gateways and route agents, which takes effect at once where it can; without a value what was set is
    /// taken back. Can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

/// Pods.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Pods")]
pub(super) struct PodArgs {
    #[command(flatten)]
    settings: SettingArgs,
    /// Number of workers of a gateway, as --set workers=N [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// CPUs that are set aside for a gateway, such as 2 or 500m [default: 100m]
    #[arg(long, value_name = "CPUS")]
    gateway_cpu: Option<CpuRequest>,
    /// CPUs that are set aside for a route agent [default: 20m]
    #[arg(long, value_name = "CPUS")]
    routeagent_cpu: Option<CpuRequest>,
    /// The priority class of the pods on nodes [default: system-node-critical]
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// Taints that pods bear, separated by commas: KEY, KEY=VALUE, each with :EFFECT or without; an empty text for all of them
    /// [default: all]
    #[arg(long, value_name = "TAINTS")]
    tolerations: Option<Tolerations>,
}

/// Taints that pods bear, as in their specification.
#[derive(Debug, Clone, PartialEq)]
struct Tolerations(Vec<Value>);

impl std::str::FromStr for Tolerations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(toleration).collect::<Result<_, _>>().map(Self)
    }
}

/// Reads a taint as `kubectl taint` has it.
fn toleration(text: &str) -> Result<Value, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let (taint, effect) = match text.rsplit_once(':') {
        Some((taint, effect)) if EFFECTS.contains(&effect) => (taint, Some(effect)),
        Some((_, effect)) => return Err(format!("`{effect}` is none of {}", EFFECTS.join(", "))),
        None => (text, None),
    };
    let mut toleration = match taint.split_once('=') {
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": taint, "operator": "Exists"}),
    };
    let is_key = |key: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        !key.is_empty() && key.len() <= 316 && key.chars().all(is_part)
    };
    if !toleration["key"].as_str().is_some_and(is_key) {
        return Err(format!("`{text}` is not KEY, KEY=VALUE or either with :EFFECT"));
    }
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    Ok(toleration)
}

/// Reads and checks a setting.
fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| "expected KEY=VALUE".to_owned())?;
    let (key, value) = (key.trim(), value.trim());
    if settings::find(key).is_none() || !value.is_empty() {
        settings::check(key, value)?;
    }
    Ok((key.to_owned(), value.to_owned()))
}

impl SettingArgs {
    /// Chooses what was given.
    ///
    /// # Errors
    /// A setting that makes no sense.
    pub(super) fn fill(&self, member: &mut MemberOptions) -> anyhow::Result<()> {
        let mut set = self.settings.iter();
        set.try_for_each(|(key, value)| member.set(key, value)).map_err(|problem| anyhow!("--set {problem}"))
    }
}

impl PodArgs {
    /// Chooses what was given.
    ///
    /// # Errors
    /// What makes no sense.
    pub(super) fn fill(&self, member: &mut MemberOptions) -> anyhow::Result<()> {
        self.settings.fill(member)?;
        if let Some(workers) = self.workers {
            let is_set_otherwise =
                |(key, value): &&(String, String)| key == "workers" && *value != workers.to_string();
            if self.settings.settings.iter().find(is_set_otherwise).is_some() {
                bail!("--workers and --set workers say different numbers");
            }
            member.set("workers", &workers.to_string()).map_err(|problem| anyhow!("--{problem}"))?;
        }
        member.gateway_cpu = self.gateway_cpu.unwrap_or(member.gateway_cpu);
        member.route_agent_cpu = self.routeagent_cpu.unwrap_or(member.route_agent_cpu);
        if let Some(class) = &self.priority_class {
            member.priority_class = Some(class.clone()).filter(|class| !class.is_empty());
        }
        if let Some(tolerations) = &self.tolerations {
            member.tolerations.clone_from(&tolerations.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use trieste_deploy::objects::example;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: PodArgs,
    }

    fn filled(words: &[&str]) -> Result<MemberOptions, String> {
        let mut member = example();
        let command = Command::try_parse_from([&["x"], words].concat()).map_err(|error| error.to_string())?;
        command.args.fill(&mut member).map_err(|error| error.to_string())?;
        Ok(member)
    }

    #[test]
    fn settings_are_checked_before_anything_is_asked() {
        let member =
            filled(&["--set", "path-probe-interval=50", "--set=health-check-interval=7", "--workers=4"])
                .unwrap();
        assert_eq!(member.settings["path-probe-interval"], "50");
        assert_eq!((member.settings["workers"].as_str(), member.health_check.interval_seconds), ("4", 7));
        for (words, expected) in [
            (&["--set", "path-probe-interval=4"][..], "from 5 to 1000"),
            (&["--set", "wrokers=4"], "is no setting"),
            (&["--set", "wrokers="], "is no setting"),
            (&["--set", "workers"], "KEY=VALUE"),
            (&["--set", "udp-port=1"], "trieste join"),
            (&["--workers", "300"], "from 1 to 256"),
            (&["--workers", "3", "--set", "workers=2"], "different numbers"),
            (&["--gateway-cpu", "0.5"], "thousandths"),
        ] {
            let error = filled(words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn tolerations_are_as_kubectl_has_taints() {
        let member =
            filled(&["--tolerations", "a, b=c:NoExecute,d/e:NoSchedule", "--priority-class", "own"]).unwrap();
        assert_eq!(
            member.tolerations,
            [
                json!({"key": "a", "operator": "Exists"}),
                json!({"key": "b", "operator": "Equal", "value": "c", "effect": "NoExecute"}),
                json!({"key": "d/e", "operator": "Exists", "effect": "NoSchedule"}),
            ]
        );
        assert_eq!(member.priority_class.as_deref(), Some("own"));
        assert!(filled(&["--tolerations", ""]).unwrap().tolerations.is_empty());
        for bad in ["a:Never", "=b", "a b"] {
            assert!(filled(&["--tolerations", bad]).is_err(), "{bad}");
        }
    }
}
