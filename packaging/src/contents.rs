//! What is in the image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::debian::{self, Packages};
use crate::libraries::{self, canonical, merged};
use crate::oci::Architecture;
use crate::tree::Tree;
use crate::{Error, notices};

/// Our programs.
pub const PROGRAMS: [&str; 6] = [
    "trieste",
    "trieste-discovery",
    "trieste-gateway",
    "trieste-operator",
    "trieste-plugin-sync",
    "trieste-routeagent",
];

/// The names that upstream's operator starts in an image, and those of upstream's programs; ours answer to them.
pub const UPSTREAM_NAMES: [(&str, &str); 9] = [
    ("lighthouse-agent", "trieste-discovery"),
    ("lighthouse-agent.sh", "trieste-discovery"),
    ("lighthouse-coredns", "trieste-discovery"),
    ("submariner.sh", "trieste-gateway"),
    ("submariner-gateway", "trieste-gateway"),
    ("submariner-route-agent.sh", "trieste-routeagent"),
    ("submariner-route-agent", "trieste-routeagent"),
    ("submariner-globalnet.sh", "trieste-gateway"),
    ("submariner-globalnet", "trieste-gateway"),
];

/// The system's programs, and the Debian packages that they come from. `ss` is not among them: it brings Kerberos along;
/// busybox's `netstat` does.
const SYSTEM: [(&str, &str); 6] = [
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("bridge", "iproute2"),
    ("xtables-nft-multi", "iptables"),
    // For nodes where somebody still filters in the older half of the kernel.
    ("xtables-legacy-multi", "iptables"),
    ("busybox", "busybox-static"),
];

/// The names of iptables; its back end is nftables whatever the build machine's default is.
const IPTABLES: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];

/// The names under which busybox is there: a shell, what `kubectl cp` and `exec` call for, and what one looks around with.
const APPLETS: &str = "[ [[ ash awk base64 basename cat chmod chown clear cmp cp cut date dd df diff dirname dmesg du \
                       echo egrep env expr false fgrep find free grep gunzip gzip head hexdump hostname id ifconfig kill \
                       killall less ln ls md5sum mkdir mknod mktemp more mount mv nc netstat nproc nslookup od pidof ping \
                       ping6 printf ps pwd readlink realpath rm rmdir route sed seq setpriv sh sha256sum sleep sort stat \
                       strings stty sync sysctl tail tar tee telnet test time timeout top touch tr traceroute traceroute6 \
                       true tty umount uname uniq uptime vi watch wc wget which whoami xargs xxd yes zcat";

/// Where programs are looked for on the build machine.
const SEARCH: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Directories with their modes; the last three are there to be mounted upon, since the image runs read-only.
const DIRECTORIES: [(&str, u32); 10] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("host/proc/sys/net", 0o755),
    ("run/trieste", 0o755),
    ("var/lib/trieste", 0o700),
];

/// What the C library looks up: `files` alone would not ask DNS, and without protocols nft knows numbers only.
const FILES: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
    ),
    (
        "etc/protocols",
        "ip 0 IP\nicmp 1 ICMP\nigmp 2 IGMP\nipencap 4 IP-ENCAP\ntcp 6 TCP\nudp 17 UDP\ndccp 33 DCCP\nipv6 41 IPv6\n\
         ipv6-route 43 IPv6-Route\nipv6-frag 44 IPv6-Frag\ngre 47 GRE\nesp 50 IPSEC-ESP\nah 51 IPSEC-AH\n\
         ipv6-icmp 58 IPv6-ICMP\nipv6-nonxt 59 IPv6-NoNxt\nipv6-opts 60 IPv6-Opts\nospf 89 OSPFIGP\nvrrp 112 VRRP\n\
         sctp 132 SCTP\nudplite 136 UDPLite\n",
    ),
];

/// The lower layer: the system's programs, every library that they or ours need, roots of trust, licences.
///
/// # Errors
/// What is missing on this machine, and how to get it.
pub fn system(ours: &BTreeMap<&'static str, PathBuf>) -> Result<(Tree, Architecture), Error> {
    let packages = Packages::read()?;
    let mut tree = Tree::default();
    // Everything that comes from a package, for its licence.
    let mut taken: BTreeSet<PathBuf> = BTreeSet::new();
    skeleton(&mut tree)?;

    let mut programs: Vec<PathBuf> = Vec::new();
    for (name, package) in SYSTEM {
        let path = find(name, package)?;
        tree.copy(&merged(&path), &path, true)?;
        programs.push(path);
    }
    links(&mut tree)?;
    taken.extend(programs.iter().cloned());

    for path in ours.values() {
        if !path.is_file() {
            return Err(Error::NotBuilt(path.clone()));
        }
        programs.push(path.clone());
    }
    let mut libraries = libraries::needed_by(programs.iter().map(PathBuf::as_path))?;
    let modules = modules(&libraries)?;
    if !modules.is_empty() {
        // They are loaded by name and in no list of needs.
        programs.extend(modules.iter().cloned());
        libraries = libraries::needed_by(programs.iter().map(PathBuf::as_path))?;
    }
    for module in modules {
        tree.copy(&merged(&module), &module, false)?;
        taken.insert(canonical(&module)?);
    }
    for (path, file) in &libraries.files {
        tree.copy(path, file, true)?;
        taken.insert(file.clone());
    }
    let mut owners = packages.owners(&taken)?;
    roots_of_trust(&mut tree, &packages)?;
    release(&mut tree)?;
    owners.extend(["ca-certificates", "base-files"].map(str::to_owned));
    debian::add_documents(&mut tree, &owners)?;
    Ok((tree, libraries.architecture))
}

/// The upper layer: our programs, upstream's names for them, licences.
///
/// # Errors
/// If licences cannot be read.
pub fn trieste(ours: &BTreeMap<&'static str, PathBuf>, workspace: Option<&Path>) -> Result<Tree, Error> {
    let mut tree = Tree::default();
    for (name, path) in ours {
        tree.copy(&format!("usr/local/bin/{name}"), path, true)?;
    }
    for (name, program) in UPSTREAM_NAMES {
        tree.link(&format!("usr/local/bin/{name}"), program)?;
    }
    tree.text("usr/share/doc/trieste/copyright", include_str!("../../LICENSE"))?;
    if let Some(workspace) = workspace {
        tree.text("usr/share/doc/trieste/crates", notices::of(workspace)?)?;
    }
    Ok(tree)
}

/// Directories, links into `/usr`, and what the C library looks up.
fn skeleton(tree: &mut Tree) -> Result<(), Error> {
    for (path, mode) in DIRECTORIES {
        tree.directory(path, mode)?;
    }
    for path in ["bin", "sbin", "lib", "lib64"] {
        tree.link(path, format!("usr/{path}"))?;
        tree.directory(&format!("usr/{path}"), 0o755)?;
    }
    for (path, text) in FILES {
        tree.text(path, text)?;
    }
    Ok(())
}

/// The names of programs that have several.
fn links(tree: &mut Tree) -> Result<(), Error> {
    for name in IPTABLES {
        tree.link(&format!("usr/sbin/{name}"), "xtables-nft-multi")?;
        for back_end in ["nft", "legacy"] {
            let path = format!("usr/sbin/{}", with_back_end(name, back_end));
            tree.link(&path, format!("xtables-{back_end}-multi"))?;
        }
    }
    for applet in APPLETS.split_whitespace() {
        let path = format!("usr/bin/{applet}");
        if !tree.contains(&path) {
            tree.link(&path, "busybox")?;
        }
    }
    Ok(())
}

/// `iptables-save` is `iptables-nft-save` too.
fn with_back_end(name: &str, back_end: &str) -> String {
    match name.split_once('-') {
        Some((tables, verb)) => format!("{tables}-{back_end}-{verb}"),
        None => format!("{name}-{back_end}"),
    }
}

fn find(name: &str, package: &'static str) -> Result<PathBuf, Error> {
    let found = SEARCH.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file());
    let missing =
        || Error::NoProgram { name: name.to_owned(), package, looked: SEARCH.map(str::to_owned).to_vec() };
    canonical(&found.ok_or_else(missing)?)
}

/// The matches and targets of iptables, which lie beside the library that loads them. All of them: rules of others
/// can be read only with their modules.
fn modules(libraries: &libraries::Libraries) -> Result<Vec<PathBuf>, Error> {
    let loader = libraries.files.iter().find(|(path, _)| path.contains("/libxtables.so."));
    let Some((_, library)) = loader else { return Ok(Vec::new()) };
    let directory = library.parent().unwrap_or_else(|| Path::new("/")).join("xtables");
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(Error::at("list", &directory))? {
        let path = entry.map_err(Error::at("list", &directory))?.path();
        if path.extension().is_some_and(|extension| extension == "so") {
            modules.push(path);
        }
    }
    modules.sort();
    Ok(modules)
}

/// The certificates that the package brings. What this machine trusts besides is nobody else's business.
fn roots_of_trust(tree: &mut Tree, packages: &Packages) -> Result<(), Error> {
    let mut bundle = String::new();
    for path in packages.files_of("ca-certificates") {
        let is_one =
            path.starts_with("/usr/share/ca-certificates") && path.extension().is_some_and(|e| e == "crt");
        if is_one {
            bundle.push_str(std::fs::read_to_string(&path).map_err(Error::at("read", &path))?.trim_end());
            bundle.push('\n');
        }
    }
    if bundle.is_empty() {
        let name = "the bundle of root certificates".to_owned();
        let looked = vec!["/usr/share/ca-certificates".to_owned()];
        return Err(Error::NoProgram { name, package: "ca-certificates", looked });
    }
    tree.text("etc/ssl/certs/ca-certificates.crt", bundle)
}

/// By these scanners know which distribution's advisories count.
fn release(tree: &mut Tree) -> Result<(), Error> {
    tree.copy("usr/lib/os-release", canonical(Path::new("/usr/lib/os-release"))?, false)?;
    tree.link("etc/os-release", "../usr/lib/os-release")?;
    let version = Path::new("/etc/debian_version");
    if version.is_file() { tree.copy("etc/debian_version", version, false) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_back_end_are_debians() {
        assert_eq!(with_back_end("iptables", "nft"), "iptables-nft");
        assert_eq!(with_back_end("ip6tables-restore", "legacy"), "ip6tables-legacy-restore");
    }

    #[test]
    fn the_names_of_programs_that_have_several_exclude_one_another() {
        let mut tree = Tree::default();
        skeleton(&mut tree).unwrap();
        links(&mut tree).unwrap();
        assert!(
            tree.contains("usr/sbin/ip6tables-nft-save")
                && tree.contains("usr/sbin/iptables-legacy")
                && tree.contains("usr/bin/sh")
        );
    }

    #[test]
    fn upstreams_names_lead_to_ours() {
        let ours = PROGRAMS.iter().map(|name| (*name, PathBuf::from("/bin").join(name))).collect();
        let tree = trieste(&ours, None).unwrap();
        let links: Vec<_> =
            tree.iter().filter(|(_, entry)| matches!(entry, crate::tree::Entry::Link(_))).collect();
        assert_eq!(links.len(), UPSTREAM_NAMES.len(), "{links:?}");
        for name in ["submariner.sh", "submariner-globalnet", "lighthouse-agent", "lighthouse-coredns"] {
            assert!(tree.contains(&format!("usr/local/bin/{name}")), "{name}");
        }
        assert!(tree.contains("usr/share/doc/trieste/copyright"));
    }
}
