//! Lighthouse's Corefile: blocks of zones with the plug-ins that say something here.
//!
//! ```text
//!  clusterset.local:53 {
//!      lighthouse { ttl 5; fallthrough }      zones behind the name replace the block's
//!      errors
//!      health { lameduck 5s }
//!      ready
//!      prometheus :9153
//!  }
//! ```
//!
//! A plug-in that would answer by itself cannot be left out without a wrong answer: it is refused, by name. What only logs,
//! checks or caches is left out. `fallthrough` has nothing to fall to.

use std::net::IpAddr;

use trieste_control::pages::{PagesAddress, parse_address};

/// Most blocks.
const MAX_BLOCKS: usize = 64;
/// Ports on which CoreDNS answers what says none.
const HEALTH: &str = ":8080";
const READY: &str = ":8181";
const METRICS: &str = "localhost:9153";

/// What a Corefile says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Corefile {
    /// Zones, in the order of their blocks, each once.
    pub zones: Vec<String>,
    /// Ports of the blocks, each once; `None` for the default.
    pub ports: Vec<Option<u16>>,
    /// Addresses to answer at; all, if there are none.
    pub bind: Vec<IpAddr>,
    /// Seconds that an answer may be kept; the least of all blocks.
    pub ttl: Option<u32>,
    /// Where /health is answered.
    pub health: PagesAddress,
    /// Where /ready is answered.
    pub ready: PagesAddress,
    /// Where /metrics is answered.
    pub metrics: PagesAddress,
    /// Seconds to go on after a signal.
    pub lameduck: Option<u64>,
}

/// Why a Corefile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct CorefileError {
    line: usize,
    reason: String,
}

/// A word, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

impl Corefile {
    /// Parses the text of a Corefile. `variable` returns the environment's `{$NAME}`.
    ///
    /// # Errors
    /// The first line that cannot be understood, or names a plug-in that answers by itself.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, CorefileError> {
        let mut corefile = Self::default();
        let mut lines = lines(&with_variables(text, variable)?)?.into_iter().peekable();
        let mut blocks = 0;
        while let Some(head) = lines.next() {
            blocks += 1;
            if blocks > MAX_BLOCKS {
                return Err(refused(&head, format!("there are more than {MAX_BLOCKS} blocks")));
            }
            corefile.block(&head, &mut lines)?;
        }
        if corefile.zones.is_empty() {
            return Err(CorefileError { line: 1, reason: "no block has the plug-in lighthouse".to_owned() });
        }
        Ok(corefile)
    }

    /// Reads a block behind its keys.
    fn block(
        &mut self,
        head: &[Token],
        lines: &mut impl Iterator<Item = Vec<Token>>,
    ) -> Result<(), CorefileError> {
        let (keys, is_open) = without_brace(head);
        if !is_open || keys.is_empty() {
            return Err(refused(head, "a block has zones and an opening brace"));
        }
        let keys: Vec<(String, Option<u16>)> = keys.iter().map(key).collect::<Result<_, _>>()?;
        loop {
            let Some(line) = lines.next() else { return Err(refused(head, "the block has no end")) };
            if line[0].text == "}" {
                return Ok(());
            }
            let (words, is_open) = without_brace(&line);
            let options = if is_open { options(&line, lines)? } else { Vec::new() };
            self.plugin(&keys, words, &options)?;
        }
    }

    /// Takes in a plug-in.
    fn plugin(
        &mut self,
        keys: &[(String, Option<u16>)],
        words: &[Token],
        options: &[Vec<Token>],
    ) -> Result<(), CorefileError> {
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        let page = |default: &str| {
            let text = arguments.first().map_or(default, |argument| argument.text.as_str());
            // CoreDNS would listen on the name's address; it is this one.
            let text = text.replace("localhost:", "127.0.0.1:");
            parse_address(&text).map_err(|reason| refused(words, reason))
        };
        match name.text.as_str() {
            "lighthouse" => self.lighthouse(keys, arguments, options)?,
            "health" => {
                self.health = page(HEALTH)?;
                for option in options {
                    self.lameduck = Some(lameduck(option)?);
                }
            }
            "ready" => self.ready = page(READY)?,
            "prometheus" => self.metrics = page(METRICS)?,
            "bind" => {
                for argument in arguments {
                    let address = argument.text.parse();
                    self.bind.push(address.map_err(|_| refused(words, "bind needs addresses"))?);
                }
            }
            "errors" | "log" | "debug" | "cache" | "loop" | "reload" | "loadbalance" | "cancel"
            | "metadata" | "nsid" | "pprof" | "trace" | "dnstap" | "any" => {}
            other => {
                return Err(refused(words, format!("plug-in {other} is not served here: take it out")));
            }
        }
        Ok(())
    }

    /// Takes in what is answered.
    fn lighthouse(
        &mut self,
        keys: &[(String, Option<u16>)],
        arguments: &[Token],
        options: &[Vec<Token>],
    ) -> Result<(), CorefileError> {
        let own: Vec<String> = arguments.iter().map(|argument| argument.text.clone()).collect();
        let of_block = keys.iter().map(|(zone, _)| zone.clone());
        for zone in if own.is_empty() { of_block.collect() } else { own } {
            if !self.zones.contains(&zone) {
                self.zones.push(zone);
            }
        }
        for (_, port) in keys {
            if !self.ports.contains(port) {
                self.ports.push(*port);
            }
        }
        for option in options {
            match (option[0].text.as_str(), option.get(1)) {
                ("fallthrough", _) => {}
                ("ttl", Some(ttl)) => {
                    let ttl = ttl.text.parse().ok().filter(|ttl| *ttl <= trieste_dns::MAX_TTL);
                    let ttl = ttl.ok_or_else(|| {
                        refused(option, format!("ttl must be in range [0, {}]", trieste_dns::MAX_TTL))
                    })?;
                    self.ttl = Some(self.ttl.map_or(ttl, |least| least.min(ttl)));
                }
                ("ttl", None) => return Err(refused(option, "ttl needs a number of seconds")),
                (other, _) => return Err(refused(option, format!("unknown property '{other}'"))),
            }
        }
        Ok(())
    }
}

/// Reads the options of a plug-in up to its closing brace.
fn options(
    head: &[Token],
    lines: &mut impl Iterator<Item = Vec<Token>>,
) -> Result<Vec<Vec<Token>>, CorefileError> {
    let mut options = Vec::new();
    for option in lines {
        if option[0].text == "}" {
            return Ok(options);
        }
        options.push(option);
    }
    Err(refused(head, "it has no end"))
}

/// Parses a block's key: a zone, with or without a port and the scheme of plain DNS.
fn key(token: &Token) -> Result<(String, Option<u16>), CorefileError> {
    let text = token.text.trim_end_matches(',');
    let text = text.strip_prefix("dns://").unwrap_or(text);
    if text.contains("://") || text.contains('/') || text.starts_with('(') {
        let reason = format!("{text} is not served here: only zones over UDP and TCP are");
        return Err(refused(std::slice::from_ref(token), reason));
    }
    match text.rsplit_once(':') {
        None => Ok((text.to_owned(), None)),
        Some((zone, port)) => {
            let port = port.parse().map_err(|_| {
                refused(std::slice::from_ref(token), format!("{text} is no zone with a port"))
            })?;
            Ok((zone.to_owned(), Some(port)))
        }
    }
}

/// Parses the option of `health`: seconds, or a duration in Go's form of one unit.
fn lameduck(option: &[Token]) -> Result<u64, CorefileError> {
    let expected = || refused(option, "health has one option: lameduck, with a duration such as 5s");
    let [name, duration] = option else { return Err(expected()) };
    let text = duration.text.as_str();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| expected())?;
    match (name.text.as_str(), unit) {
        ("lameduck", "s") => Ok(number),
        ("lameduck", "ms") => Ok(number.div_ceil(1_000)),
        ("lameduck", "m") => Ok(number.saturating_mul(60)),
        _ => Err(expected()),
    }
}

fn refused(line: &[Token], reason: impl Into<String>) -> CorefileError {
    CorefileError { line: line.first().map_or(0, |token| token.line), reason: reason.into() }
}

/// Returns a line's words without the brace at its end, and whether there is one.
fn without_brace(line: &[Token]) -> (&[Token], bool) {
    match line.split_last() {
        Some((last, words)) if last.text == "{" => (words, true),
        _ => (line, false),
    }
}

/// Replaces `{$NAME}` and `{%NAME%}`; a variable that is not set is empty.
fn with_variables(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, CorefileError> {
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("{$").into_iter().chain(rest.find("{%")).min() {
        let (before, behind) = rest.split_at(start);
        let Some(end) = behind.find('}') else {
            let line = 1 + text[..text.len() - behind.len()].matches('\n').count();
            return Err(CorefileError { line, reason: "a variable has no closing brace".to_owned() });
        };
        replaced.push_str(before);
        let name = behind[2..end].trim_end_matches('%');
        replaced.push_str(&variable(name).unwrap_or_default());
        rest = &behind[end + 1..];
    }
    Ok(replaced + rest)
}

/// Splits a text into lines of words; comments and empty lines are left out. A closing brace is a line of its own.
fn lines(text: &str) -> Result<Vec<Vec<Token>>, CorefileError> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = Vec::new();
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let (word, behind) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or_else(|| CorefileError {
                    line: number,
                    reason: "a quotation has no end".to_owned(),
                })?,
                None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
            };
            words.push(Token { text: word.to_owned(), line: number });
            rest = behind.trim_start();
        }
        let closing = words.iter().position(|word| word.text == "}").unwrap_or(words.len());
        let behind = words.split_off(closing);
        lines.extend([words].into_iter().chain(behind.into_iter().map(|brace| vec![brace])));
    }
    lines.retain(|line| !line.is_empty());
    Ok(lines)
}

#[cfg(test)]
mod tests;
