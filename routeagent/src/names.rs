//! The addresses of servers that are known by a name, so that no member may claim them.
//!
//! [`Names`] is pure: it holds what resolvers answered and when. Names of load balancers rotate, and a resolver may be
//! away just when it matters: an address stays protected for a day after it was in an answer, and for as long as there
//! is no other answer. The task around it asks the system's resolver and keeps the answers over a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rand_core::OsRng;
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use trieste_control::backoff::Backoff;

use crate::keep;

/// Ours: how long an address stays protected that is no longer in the answers, seconds.
const KEPT: u64 = 24 * 3600;
/// Ours: most addresses of one name.
const MAX_ADDRESSES: usize = 64;
/// Ours: the longest time between two questions for a name; the shortest is half of it.
const PERIOD: Duration = Duration::from_secs(60);
/// Ours: the first wait after a question without an answer.
const RETRY: Duration = Duration::from_secs(2);
/// Ours: how long claims wait to be decided for the first answers.
const FIRST: Duration = Duration::from_secs(5);

/// Addresses by host name, with the second (Unix) at which each was last in an answer.
type Answers = BTreeMap<String, BTreeMap<IpAddr, u64>>;

/// The resolved addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Addresses that no member may claim, and whose they are.
    pub addresses: BTreeMap<IpAddr, String>,
    /// Names without an address yet.
    pub unknown: BTreeSet<String>,
}

/// Host names, and what was answered for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Whose each name is.
    whose: BTreeMap<String, String>,
    answers: Answers,
}

impl Names {
    /// Begins with what was kept of the answers for these names; `now` is in seconds (Unix).
    #[must_use]
    pub fn new(whose: BTreeMap<String, String>, kept: Answers, now: u64) -> Self {
        let mut answers = kept;
        answers.retain(|name, _| whose.contains_key(name));
        for addresses in answers.values_mut() {
            // A clock that was ahead would keep them for ever.
            addresses.values_mut().for_each(|last| *last = now.min(*last));
            bound(addresses);
        }
        Self { whose, answers }
    }

    /// Records the answer for a name; an empty one changes nothing.
    pub fn answer(&mut self, name: &str, answer: &[IpAddr], now: u64) {
        if answer.is_empty() || !self.whose.contains_key(name) {
            return;
        }
        let known = self.answers.entry(name.to_owned()).or_default();
        known.retain(|_, last| now.saturating_sub(*last) <= KEPT);
        known.extend(answer.iter().map(|address| (address.to_canonical(), now)));
        bound(known);
    }

    /// Returns the protected addresses.
    #[must_use]
    pub fn resolved(&self) -> Resolved {
        let known = |name: &String| self.answers.get(name).filter(|known| !known.is_empty());
        let unknown = self.whose.keys().filter(|name| known(name).is_none()).cloned().collect();
        let addresses = self.whose.iter().filter_map(|(name, whose)| Some((known(name)?, whose)));
        let addresses = addresses.flat_map(|(known, whose)| known.keys().map(|one| (*one, whose.clone())));
        Resolved { addresses: addresses.collect(), unknown }
    }
}

/// Drops the addresses that were not in an answer for the longest time, where there are too many.
fn bound(known: &mut BTreeMap<IpAddr, u64>) {
    if known.len() > MAX_ADDRESSES {
        let mut newest: Vec<(u64, IpAddr)> = known.iter().map(|(address, last)| (*last, *address)).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        *known = newest.into_iter().take(MAX_ADDRESSES).map(|(last, address)| (address, last)).collect();
    }
}

/// Asks for these names from now on, each with whose it is. Begins with the answers that a state directory has, and keeps
/// them there if `is_kept`. Returns once each name has an address, or after a few seconds.
pub async fn follow(
    whose: BTreeMap<String, String>,
    directory: &Path,
    is_kept: bool,
) -> watch::Receiver<Resolved> {
    let kept = if whose.is_empty() { Answers::new() } else { read(directory) };
    let names = Names::new(whose, kept, now());
    let (sender, mut resolved) = watch::channel(names.resolved());
    if !names.whose.is_empty() {
        tokio::spawn(ask(names, is_kept.then(|| directory.to_owned()), sender));
    }
    // Without an answer what is known otherwise decides.
    drop(timeout(FIRST, resolved.wait_for(|resolved| resolved.unknown.is_empty())).await);
    resolved
}

/// Resolves the names periodically, until the receivers are dropped. Every lookup ends by itself within half a minute.
async fn ask(mut names: Names, directory: Option<PathBuf>, sender: watch::Sender<Resolved>) {
    let mut retry = Backoff::new(RETRY, PERIOD);
    let mut failing = BTreeSet::new();
    loop {
        let hosts: Vec<String> = names.whose.keys().cloned().collect();
        let mut questions: FuturesUnordered<_> = hosts.into_iter().map(question).collect();
        let mut is_answered = true;
        while let Some((host, answer)) = questions.next().await {
            match answer {
                Ok(answer) => {
                    names.answer(&host, &answer, now());
                    if failing.remove(&host) {
                        info!(host, "name has addresses again");
                    }
                }
                Err(error) => {
                    is_answered = false;
                    if failing.insert(host.clone()) {
                        warn!(host, %error, "name has no address; those of former answers stay protected");
                    }
                }
            }
            let fresh = names.resolved();
            sender.send_if_modified(|last| std::mem::replace(last, fresh.clone()) != fresh);
        }
        if let Some(directory) = &directory
            && let Err(error) = write(&names.answers, directory)
        {
            warn!(directory = %directory.display(), %error, "addresses of names are not kept for the next start");
        }
        let wait = if is_answered {
            retry.reset();
            Backoff::new(PERIOD, PERIOD).next_wait(&mut OsRng)
        } else {
            retry.next_wait(&mut OsRng)
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = sender.closed() => return,
        }
    }
}

async fn question(host: String) -> (String, io::Result<Vec<IpAddr>>) {
    let answer = lookup_host((host.as_str(), 0)).await;
    let answer = answer.map(|found| found.map(|address| address.ip()).collect());
    (host, answer)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reads the file; an invalid one counts as empty, as the first answer replaces it.
fn read(directory: &Path) -> Answers {
    let text = fs::read(directory.join(keep::NAMES_FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn write(answers: &Answers, directory: &Path) -> io::Result<()> {
    keep::put(directory, keep::NAMES_FILE, &serde_json::to_vec(answers)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "broker.example.com";

    fn names(kept: Answers) -> Names {
        Names::new([(HOST.to_owned(), "the broker".to_owned())].into(), kept, 1000)
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_was_answered_is_protected_for_a_day_and_while_there_is_no_other_answer() {
        // Answers with their seconds, and what is protected then.
        type Case<'a> = (&'a [(u64, &'a [&'a str])], &'a [&'a str]);
        let cases: [Case<'_>; 6] = [
            (&[(1000, &["10.70.1.1"])], &["10.70.1.1"]),
            (&[(1000, &["10.70.1.1", "fd00::1"])], &["10.70.1.1", "fd00::1"]),
            (&[(1000, &["::ffff:10.70.1.1"])], &["10.70.1.1"]),
            (&[(1000, &["10.70.1.1"]), (1060, &["10.70.1.2"])], &["10.70.1.1", "10.70.1.2"]),
            (&[(1000, &["10.70.1.1"]), (1001 + KEPT, &["10.70.1.2"])], &["10.70.1.2"]),
            (&[(1000, &["10.70.1.1"]), (1001 + KEPT, &[])], &["10.70.1.1"]),
        ];
        for (answers, expected) in cases {
            let mut names = names(Answers::new());
            assert_eq!(names.resolved().unknown, [HOST.to_owned()].into());
            for (now, answer) in answers {
                names.answer(HOST, &addresses(answer), *now);
            }
            let resolved = names.resolved();
            assert_eq!(
                resolved.addresses.into_keys().collect::<Vec<_>>(),
                addresses(expected),
                "{answers:?}"
            );
            assert_eq!(resolved.unknown, BTreeSet::new());
        }
    }

    #[test]
    fn of_very_many_addresses_those_that_were_answered_last_stay() {
        let mut names = names(Answers::new());
        let many = |net: u8| (0..=99).map(|host| IpAddr::from([10, 0, net, host])).collect::<Vec<_>>();
        names.answer(HOST, &many(0), 1000);
        names.answer(HOST, &many(1)[..10], 1060);
        let known = names.resolved().addresses;
        assert_eq!(known.len(), MAX_ADDRESSES);
        assert!(many(1)[..10].iter().all(|address| known.contains_key(address)), "{known:?}");
    }

    #[test]
    fn what_is_kept_is_protected_from_the_start_unless_nobody_names_it_any_more() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), Answers::new());
        let kept = |name: &str, address: &str| (name.to_owned(), [(address.parse().unwrap(), 5000)].into());
        write(&[kept(HOST, "10.70.1.1"), kept("gone", "10.9.9.9")].into(), directory.path()).unwrap();
        let mut names = names(read(directory.path()));
        keep::remove_files(directory.path()).unwrap();
        assert_eq!(read(directory.path()), Answers::new());
        let protected = names.resolved().addresses;
        assert_eq!(protected, [("10.70.1.1".parse().unwrap(), "the broker".to_owned())].into());
        // The clock was ahead when it was kept.
        names.answer(HOST, &addresses(&["10.70.1.2"]), 1001 + KEPT);
        assert_eq!(names.resolved().addresses.into_keys().collect::<Vec<_>>(), addresses(&["10.70.1.2"]));
    }

    #[tokio::test]
    async fn the_systems_resolver_is_asked_and_its_answer_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        // An address is a name that needs no name server.
        let whose = BTreeMap::from([("192.0.2.1".to_owned(), "the broker".to_owned())]);
        let resolved = follow(whose, directory.path(), true).await;
        let known = resolved.borrow().addresses.clone();
        assert_eq!(known.into_keys().collect::<Vec<_>>(), addresses(&["192.0.2.1"]));
    }
}
