//! A Corefile, of which one section is ours and everything else is somebody's.
//!
//! The section is what upstream's operator writes (api §10.4): where that has been, ours takes its place, and the other way
//! round. It stands in front, or where it stood; no other byte changes.

use std::fmt::Write as _;
use std::net::IpAddr;

const START: &str = "#lighthouse-start";
const END: &str = "#lighthouse-end";
/// The first line, as upstream's operator writes it.
const FIRST_LINE: &str = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT";

/// The port of DNS.
const PORT: u16 = 53;

/// Names, and to which server they are forwarded; `None` where they are no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forward {
    pub(super) zones: Vec<String>,
    pub(super) server: Option<IpAddr>,
}

impl Forward {
    /// Returns the server blocks that say so, for a DNS server that answers at this port; `None` if there are to be none.
    pub(super) fn blocks(&self, port: u16) -> Option<String> {
        let server = self.server?;
        let mut text = String::new();
        for zone in &self.zones {
            let _ = writeln!(text, "{zone}:{port} {{\n    forward . {server}\n}}");
        }
        Some(text)
    }
}

/// Why a Corefile is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CorefileError {
    /// Where the section ends cannot be told.
    #[error("it has a line {START} without {END}, or the other way round")]
    Unpaired,
    /// The DNS server would refuse to start.
    #[error("it has a server for {0} already, which is not between {START} and {END}")]
    Taken(String),
}

/// Returns a Corefile with the section, in the place of the one that it has or in front; or without, where nothing is forwarded.
///
/// # Errors
/// [`CorefileError`]; a DNS server would not start with what came out.
pub(super) fn with_section(corefile: &str, forward: &Forward) -> Result<String, CorefileError> {
    let (before, after) = split(corefile)?;
    let servers: Vec<(String, u16)> = [before, after].into_iter().flat_map(servers).collect();
    let port = servers.iter().find(|(zone, _)| zone.is_empty()).map_or(PORT, |(_, port)| *port);
    let Some(blocks) = forward.blocks(port) else { return Ok(format!("{before}{after}")) };
    for zone in &forward.zones {
        if servers.contains(&(zone.clone(), port)) {
            return Err(CorefileError::Taken(zone.clone()));
        }
    }
    Ok(format!("{before}{FIRST_LINE}\n{blocks}{END}\n{after}"))
}

/// Returns `true` if a Corefile takes further servers from files in a folder: what is written into itself may be undone by
/// whoever provides it.
pub(super) fn imports_servers(corefile: &str) -> bool {
    lines(corefile).any(|(depth, words)| {
        depth == 0 && matches!(words.as_slice(), ["import", pattern, ..] if pattern.ends_with("/*.server"))
    })
}

/// Returns what is before and after the section; without one, nothing and everything.
fn split(corefile: &str) -> Result<(&str, &str), CorefileError> {
    let is = |line: &str, mark: &str| line.split_whitespace().next() == Some(mark);
    let (mut offset, mut start, mut end) = (0, None, None);
    for line in corefile.split_inclusive('\n') {
        let next = offset + line.len();
        if is(line, START) {
            if start.is_some() {
                return Err(CorefileError::Unpaired);
            }
            start = Some(offset);
        } else if is(line, END) {
            if start.is_none() || end.is_some() {
                return Err(CorefileError::Unpaired);
            }
            end = Some(next);
        }
        offset = next;
    }
    match (start, end) {
        (None, None) => Ok(("", corefile)),
        (Some(start), Some(end)) => Ok((&corefile[..start], &corefile[end..])),
        (Some(_), None) | (None, Some(_)) => Err(CorefileError::Unpaired),
    }
}

/// Returns the zones of all server blocks, each with its port.
fn servers(corefile: &str) -> impl Iterator<Item = (String, u16)> {
    server_blocks(corefile).into_iter().flat_map(|block| block.servers)
}

/// A server block of a Corefile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerBlock<'a> {
    /// Its zones, in lower case and without the last dot, each with its port.
    pub servers: Vec<(String, u16)>,
    /// The words of the lines in it, without what is in blocks of their own.
    pub lines: Vec<Vec<&'a str>>,
}

/// Returns the server blocks of a Corefile. What cannot be read says nothing.
pub fn server_blocks(corefile: &str) -> Vec<ServerBlock<'_>> {
    let (mut blocks, mut keys): (Vec<ServerBlock<'_>>, Vec<&str>) = (Vec::new(), Vec::new());
    for (depth, words) in lines(corefile) {
        match depth {
            0 if words[0] == "import" => {}
            0 => {
                // Keys may stand on several lines; the last one has the brace.
                let is_opened = words.last().is_some_and(|word| word.ends_with('{'));
                keys.extend(words);
                if is_opened {
                    let servers = keys.drain(..).flat_map(servers_of).collect();
                    blocks.push(ServerBlock { servers, lines: Vec::new() });
                }
            }
            1 if words != ["}"] => {
                if let Some(block) = blocks.last_mut() {
                    block.lines.push(words);
                }
            }
            _ => {}
        }
    }
    blocks
}

/// Returns the zones and ports in a word in front of a block.
fn servers_of(word: &str) -> impl Iterator<Item = (String, u16)> {
    word.trim_end_matches('{').split(',').filter(|key| !key.is_empty()).map(|key| {
        let key = key.split_once("://").map_or(key, |(_, key)| key);
        let port = key.rsplit_once(':').and_then(|(zone, port)| Some((zone, port.parse().ok()?)));
        let (zone, port) = port.unwrap_or((key, PORT));
        (zone.trim_end_matches('.').to_ascii_lowercase(), port)
    })
}

/// Returns the words of each line that has any, without comments, and in how many blocks it is.
fn lines(corefile: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let mut depth = 0_usize;
    corefile.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let outer = depth;
        // A brace opens a block at the end of its line, and closes one alone; others belong to words, such as {$NAME}.
        match words.as_slice() {
            ["}"] => depth = depth.saturating_sub(1),
            [.., last] if last.ends_with('{') => depth += 1,
            _ => {}
        }
        (!words.is_empty()).then_some((outer, words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubeadm has it.
    const COREFILE: &str = ".:53 {\n    errors\n    health {\n       lameduck 5s\n    }\n    ready\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       pods insecure\n       fallthrough in-addr.arpa ip6.arpa\n    }\n    forward . /etc/resolv.conf\n    cache 30\n    reload\n}\n";
    /// As upstream's operator has it.
    const SECTION: &str = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT\nclusterset.local:53 {\n    forward . 10.96.0.77\n}\n#lighthouse-end\n";

    const NO_MORE: Forward = Forward { zones: Vec::new(), server: None };

    fn forward(zones: &[&str], server: &str) -> Forward {
        let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
        Forward { zones, server: Some(server.parse().unwrap()) }
    }

    #[test]
    fn the_section_is_upstreams_and_goes_without_a_trace() {
        let ours = forward(&["clusterset.local"], "10.96.0.77");
        for corefile in [COREFILE, "", "# mine\n.:53 {\n}", "\n\n.:53 {\n}\nexample.org {\n}\n\n"] {
            let with = with_section(corefile, &ours).unwrap();
            assert_eq!(with, format!("{SECTION}{corefile}"));
            assert_eq!(with_section(&with, &ours).unwrap(), with);
            assert_eq!(with_section(&with, &NO_MORE).unwrap(), corefile);
            assert_eq!(with_section(corefile, &NO_MORE).unwrap(), corefile);
        }
    }

    #[test]
    fn an_earlier_section_is_replaced_where_it_stands_whatever_others_have_written_around_it() {
        let earlier =
            format!("# before\n{COREFILE}    {SECTION}example.org:53 {{\n    forward . 192.0.2.1\n}}\n");
        let ours = forward(&["clusterset.local", "set.example"], "fd00::5");
        let with = with_section(&earlier, &ours).unwrap();
        let section = "#lighthouse-start AUTO-GENERATED SECTION. DO NOT EDIT\nclusterset.local:53 {\n    forward . fd00::5\n}\nset.example:53 {\n    forward . fd00::5\n}\n#lighthouse-end\n";
        assert_eq!(
            with,
            format!("# before\n{COREFILE}{section}example.org:53 {{\n    forward . 192.0.2.1\n}}\n")
        );
        assert_eq!(
            with_section(&with, &NO_MORE).unwrap(),
            format!("# before\n{COREFILE}example.org:53 {{\n    forward . 192.0.2.1\n}}\n")
        );
    }

    #[test]
    fn blocks_answer_at_the_port_at_which_the_server_does() {
        let ours = forward(&["clusterset.local"], "10.96.0.77");
        for (head, port) in
            [(".:1053 {", 1053), (". {", 53), ("dns://.:5353 {", 5353), ("a.b:99, .:54 {", 54), (".:55{", 55)]
        {
            let with = with_section(&format!("{head}\n    cache {{\n    }}\n}}\n"), &ours).unwrap();
            assert!(with.contains(&format!("\nclusterset.local:{port} {{\n")), "{head}: {with}");
        }
    }

    #[test]
    fn what_would_keep_the_server_from_starting_is_refused() {
        let ours = forward(&["clusterset.local"], "10.96.0.77");
        for head in [
            "clusterset.local:53 {",
            "ClusterSet.local. {",
            "a.example clusterset.local {",
            "a.example:53,clusterset.local:53 {",
            "dns://clusterset.local:53 {",
            "a.example,\nclusterset.local {",
        ] {
            let outcome = with_section(&format!("{COREFILE}{head}\n}}\n"), &ours);
            assert_eq!(outcome, Err(CorefileError::Taken("clusterset.local".to_owned())), "{head}");
        }
        for text in [
            "clusterset.local:54 {\n}\n",
            "# clusterset.local {\n",
            "x.clusterset.local {\n}\n",
            "b.example {\n    rewrite name clusterset.local {\n    }\n}\n",
            "(clusterset.local) {\n}\n",
        ] {
            assert!(with_section(&format!("{COREFILE}{text}"), &ours).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_section_without_an_end_or_a_beginning_is_left_to_people() {
        let ours = forward(&["clusterset.local"], "10.96.0.77");
        let (start, end) = ("#lighthouse-start\n", "#lighthouse-end\n");
        for text in [
            format!("{start}{COREFILE}"),
            format!("{end}{COREFILE}"),
            format!("{start}{start}{end}"),
            format!("{SECTION}{SECTION}"),
        ] {
            assert_eq!(with_section(&text, &ours), Err(CorefileError::Unpaired), "{text}");
            assert_eq!(with_section(&text, &NO_MORE), Err(CorefileError::Unpaired), "{text}");
        }
        let mention = "# the #lighthouse-start line is ours\n#lighthouse-starter\n";
        assert_eq!(with_section(mention, &NO_MORE).unwrap(), mention);
    }

    #[test]
    fn servers_of_a_folder_are_found_outside_of_blocks_alone() {
        assert!(imports_servers(&format!("{COREFILE}import /etc/coredns/custom/*.server\n")));
        assert!(imports_servers("import custom/*.server # AKS\n"));
        for text in [
            COREFILE,
            "import custom/*.override\n",
            ".:53 {\n    import custom/*.server\n}\n",
            "# import custom/*.server\n",
        ] {
            assert!(!imports_servers(text), "{text}");
        }
    }
}
