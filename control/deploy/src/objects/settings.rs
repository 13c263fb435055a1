//! The programs' settings: gateways and route agents follow them while they run, so that most of them replace no pod.

use std::collections::BTreeMap;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use trieste_control::parse::{Cidrs, parse_bool};
use trieste_control::settings::{self, Effect, Program};

use super::names::SETTINGS_CHECKSUM;
use super::pod::checksum;
use super::{ActiveGateways, Manifest, MemberOptions, OuterIo};

/// Returns the object. What choices have fields for is in it always, so that everybody sees what counts; the rest where it was
/// set.
pub(super) fn config_map(options: &MemberOptions) -> Manifest {
    let check = options.health_check;
    let mut data: BTreeMap<&str, String> = BTreeMap::from([
        ("debug", options.debug.to_string()),
        ("ipsec-debug", options.ipsec_debug.to_string()),
        ("health-check-interval", check.interval_seconds.to_string()),
        ("health-check-max-loss", check.max_packet_loss.to_string()),
    ]);
    data.extend(options.settings.iter().map(|(key, value)| (key.as_str(), value.clone())));
    Manifest::make("v1", "ConfigMap", &options.namespace, settings::OBJECT).with("data", json!(data))
}

/// Returns the annotation by which a program's pods are replaced when a setting changes that takes effect at a start; `None` where
/// no such setting is chosen.
pub(super) fn restarts_for(options: &MemberOptions, program: Program) -> Option<(&'static str, String)> {
    let is_for_start = |key: &str| {
        settings::find(key)
            .is_some_and(|setting| setting.effect == Effect::Restart && setting.programs.contains(&program))
    };
    let mut chosen = options.settings.iter().filter(|(key, _)| is_for_start(key)).peekable();
    chosen.peek()?;
    let hash = chosen.fold(Sha256::new(), |hash, (key, value)| hash.chain_update(format!("{key}={value}\n")));
    Some((SETTINGS_CHECKSUM, checksum(hash)))
}

impl MemberOptions {
    /// Chooses a setting of the programs; an empty value takes the choice back. What has a field of its own is chosen by that.
    ///
    /// # Errors
    /// The key, the value, and which ones there are, in a sentence.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let value = value.trim();
        if value.is_empty() {
            return self.unset(key);
        }
        settings::check(key, value).map_err(|problem| format!("{key}: {problem}"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{key}: `{value}` is too large"));
        let switch = || parse_bool(value).map_err(|problem| format!("{key}: {problem}"));
        match key {
            "debug" => self.debug = switch()?,
            "ipsec-debug" => self.ipsec_debug = switch()?,
            "health-check" => self.health_check.enabled = switch()?,
            "health-check-interval" => self.health_check.interval_seconds = number()?,
            "health-check-max-loss" => self.health_check.max_packet_loss = number()?,
            "active-gateways" => self.active_gateways = ActiveGateways::parse(value),
            // It comes with rights.
            "io" => self.outer_io = OuterIo::parse(value),
            "allow-remote-cidrs" => {
                let cidrs: Cidrs = value.parse().map_err(|problem| format!("{key}: {problem}"))?;
                self.allow_remote_cidrs = cidrs.0;
            }
            _ => drop(self.settings.insert(key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn unset(&mut self, key: &str) -> Result<(), String> {
        let fresh = super::HealthCheck::default();
        match key {
            "debug" => self.debug = false,
            "ipsec-debug" => self.ipsec_debug = false,
            "health-check" => self.health_check.enabled = fresh.enabled,
            "health-check-interval" => self.health_check.interval_seconds = fresh.interval_seconds,
            "health-check-max-loss" => self.health_check.max_packet_loss = fresh.max_packet_loss,
            "active-gateways" => self.active_gateways = None,
            "io" => self.outer_io = None,
            "allow-remote-cidrs" => self.allow_remote_cidrs.clear(),
            _ if settings::find(key).is_some() => drop(self.settings.remove(key)),
            _ => return settings::check(key, "").map_err(|problem| format!("{key}: {problem}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{GATEWAY, ROUTE_AGENT};
    use super::super::{example, member};
    use super::*;

    #[test]
    fn what_is_set_is_in_the_object_or_in_a_field_and_other_values_start_no_other_pods() {
        let mut options = example();
        let plain = member(&options);
        for setting in settings::SETTINGS {
            let value = match setting.form {
                settings::Form::Bool => "true",
                settings::Form::Number { .. } if setting.form.check("1300").is_ok() => "1300",
                settings::Form::Number { .. } => "7",
                settings::Form::Word(all) | settings::Form::Words(all) => all[1],
                settings::Form::Cidrs => "25.0.0.0/8",
                settings::Form::LogFilter => "debug",
                settings::Form::Texts | settings::Form::Text(_) => "text",
            };
            let value = if setting.form.check(value).is_ok() { value } else { "1048577" };
            options.set(setting.key, value).unwrap();
        }
        let object = config_map(&options);
        let data = object.as_value()["data"].as_object().unwrap();
        let of_fields = ["health-check", "active-gateways", "io", "allow-remote-cidrs"];
        for setting in settings::SETTINGS {
            assert_eq!(data.contains_key(setting.key), !of_fields.contains(&setting.key), "{}", setting.key);
        }
        for setting in settings::SETTINGS {
            options.set(setting.key, "").unwrap();
        }
        assert_eq!(member(&options), plain);
        let differ = |key: &str, value: &str| {
            let mut options = options.clone();
            options.set(key, value).unwrap();
            let pairs = member(&options).into_iter().zip(&plain);
            let names: Vec<String> =
                pairs.filter(|(new, old)| new != *old).map(|(new, _)| new.name().to_owned()).collect();
            names
        };
        assert_eq!(differ("path-probe-interval", "50"), [settings::OBJECT]);
        assert_eq!(differ("workers", "3"), [settings::OBJECT, GATEWAY], "which are replaced one by one");
        assert_eq!(differ("close-grace", "3"), [settings::OBJECT, ROUTE_AGENT]);
        assert_eq!(differ("tun-name", "t"), [settings::OBJECT, GATEWAY, ROUTE_AGENT]);
    }

    #[test]
    fn mistakes_are_named_before_anything_is_applied() {
        let mut options = example();
        for (key, value, expected) in [
            ("workers", "0", "workers: `0` is not a number from 1 to 256"),
            ("wrokers", "1", "wrokers: is no setting"),
            ("wrokers", "", "wrokers: is no setting"),
            ("udp-port", "4501", "udp-port: cannot be set here: it is chosen by a flag of trieste join"),
        ] {
            let error = options.set(key, value).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
