use std::collections::BTreeSet;

use clap::CommandFactory as _;
use serde::de::DeserializeOwned;
use trieste_control::devices::TUN;
use trieste_control::settings::{ELSEWHERE, Form, SETTINGS, Setting};

use super::*;
use crate::config::{GlobalnetOptions, IpsecOptions};

const MINIMAL: [&str; 5] = ["trieste-gateway", "--cluster-id", "a", "--cluster-cidrs", "10.1.0.0/16"];

fn command_line(more: &[&str]) -> CommandLine {
    let words = MINIMAL.iter().chain(more).map(Into::into);
    CommandLine::from_flags_and_environment(words, |_| None).unwrap()
}

fn data(entries: &[(&str, &str)]) -> Data {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns the names of a section's entries, as its own error lists them.
fn entries<T: DeserializeOwned + std::fmt::Debug>(section: &str) -> BTreeSet<String> {
    let error = serde_json::from_str::<T>(r#"{"no-such-entry": 1}"#).unwrap_err().to_string();
    let names = error.split('`').skip(1).step_by(2).filter(|name| *name != "no-such-entry");
    names.map(|name| format!("{section}.{name}")).collect()
}

fn of_gateway() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| setting.programs.contains(&Program::Gateway))
}

#[test]
fn every_setting_of_the_gateway_can_be_set_in_the_configmap_or_stands_where_else() {
    let command = CommandLine::command();
    let flags = command.get_arguments().filter_map(|argument| argument.get_long());
    let flags: BTreeSet<String> =
        flags.filter(|flag| !["help", "version"].contains(flag)).map(str::to_owned).collect();
    let sections = [entries::<IpsecOptions>("ipsec"), entries::<GlobalnetOptions>("globalnet")];
    let there: BTreeSet<String> = sections.into_iter().flatten().chain(flags).collect();
    let listed: BTreeSet<String> = of_gateway().map(|setting| setting.key.to_owned()).collect();
    assert_eq!(listed.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "no such setting");
    let elsewhere: BTreeSet<String> = ELSEWHERE.iter().map(|(key, _)| (*key).to_owned()).collect();
    let missing: Vec<&String> = there.difference(&listed).filter(|key| !elsewhere.contains(*key)).collect();
    assert!(
        missing.is_empty(),
        "neither in the list of settings nor among those that are elsewhere: {missing:?}"
    );
}

#[test]
fn what_the_list_takes_the_gateway_takes_and_what_is_beside_it_neither() {
    let command_line = command_line(&[]);
    // The list has to fit into a setting, on machines with many.
    let allowed = trieste_io::cpu::allowed().unwrap();
    let allowed = allowed.iter().take(2).map(ToString::to_string).collect::<Vec<_>>().join(",");
    for setting in of_gateway() {
        let values: Vec<String> = match setting.form {
            Form::Bool => vec!["true".to_owned(), "F".to_owned()],
            // The election's times depend on each other.
            Form::Number { .. }
                if ["lease-duration", "renew-deadline", "retry-period"].contains(&setting.key) =>
            {
                vec!["0".to_owned()]
            }
            Form::Number { least, most, .. } => vec![least.to_string(), most.to_string()],
            Form::Word(all) => all.iter().map(|word| (*word).to_owned()).collect(),
            Form::Words(all) => vec![all.join(",")],
            Form::Cidrs => vec!["25.0.0.0/8, fd00::/48".to_owned()],
            Form::Texts if setting.key == "ipsec.ike-proposals" => {
                vec!["aes256gcm16-prfsha256-x25519".to_owned()]
            }
            Form::Texts => vec!["aes256gcm16,aes128gcm16".to_owned()],
            Form::Text(_) if setting.key == "cpus" => vec!["off".to_owned(), allowed.clone()],
            Form::Text(_) => vec!["tun9".to_owned()],
            Form::LogFilter => vec!["debug".to_owned(), "info,trieste_gateway=trace".to_owned()],
        };
        for value in values {
            assert_eq!(setting.form.check(&value), Ok(()), "{}", setting.key);
            let refused = config(&command_line, &data(&[(setting.key, &value)]), None).err();
            assert_eq!(refused, None, "{}: {value}", setting.key);
        }
    }
}

#[test]
fn a_flag_goes_before_the_configmap_and_that_before_what_else_there_is() {
    let of =
        |more: &[&str], entries: &[(&str, &str)]| config(&command_line(more), &data(entries), None).unwrap();
    let settings =
        [("workers", "3"), ("debug", "true"), ("ipsec.pfs", "false"), ("globalnet.udp-timeout", "400")];
    let with = of(&[], &settings);
    assert_eq!((with.workers, with.log.is_debug), (3, true));
    assert_eq!(with.globalnet.udp.as_secs(), 400);
    assert_eq!(of(&["--workers", "2", "--debug=false"], &settings).workers, 2);
    assert!(!of(&["--debug=false"], &settings).log.is_debug);
    assert_eq!(of(&["--workers", "2"], &[]).workers, 2);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.yaml");
    std::fs::write(&file, "workers: 4\nglobalnet: {icmp-timeout: 61, udp-timeout: 500}\n").unwrap();
    let with_file = of(&["--config", file.to_str().unwrap()], &settings);
    assert_eq!(with_file.workers, 3);
    assert_eq!((with_file.globalnet.udp.as_secs(), with_file.globalnet.icmp.as_secs()), (400, 61));
}

#[test]
fn what_a_start_would_refuse_is_refused_by_its_name_and_the_rest_is_taken() {
    let command_line = command_line(&[]);
    let compose = |wanted: &Data| config(&command_line, wanted, None);
    let (mut standing, ..) = Standing::at_start(Program::Gateway, &Read::default(), compose).unwrap();
    for (key, value) in [
        ("lease-duration", "3"),
        ("cpus", "first"),
        ("ipsec.ike-proposals", "aes256gcm16-x25519"),
        ("ipsec.esp-proposals", "3des"),
        ("tun-name", "a/b"),
        // What this node alone cannot take.
        ("cpus", "100000"),
        ("tun-name", "lo"),
    ] {
        let (taken, _) = standing.take(&data(&[(key, value), ("weight", "7")]), compose);
        let keys: Vec<&str> = taken.problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, [key], "{taken:?}");
        assert_eq!(standing.in_force(), &data(&[("weight", "7")]), "{key}");
    }
}

#[test]
fn what_became_of_the_node_since_the_start_keeps_no_other_setting_back() {
    let command_line = command_line(&["--cpus", "100000"]);
    // The CPU was there when the process started.
    let started = OnNode { cpus: Some(Cpus::List(vec![100_000])), tun_name: TUN.to_owned() };
    let (weight, other) = ([("weight", "7")], [("weight", "7"), ("tun-name", "lo")]);
    for (settings, started, is_taken) in [
        (data(&weight), Some(&started), true),
        (data(&other), Some(&started), false),
        (data(&weight), None, false),
    ] {
        assert_eq!(config(&command_line, &settings, started).is_ok(), is_taken, "{settings:?}");
    }
}
