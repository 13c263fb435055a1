//! The image as a runtime sees it: every program starts in its root, and finds what it needs there.

use std::path::Path;

use trieste_tests::command::{Output, Run};
use trieste_tests::guard::root_test;
use trieste_tests::image;

/// Runs a program inside, with the image's environment and no other, and without the machine's network.
fn inside(root: &Path, words: &[&str]) -> Output {
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    Run::new("unshare")
        .args(["--net", "chroot"])
        .arg(root)
        .args(["/usr/bin/env", "-i", path])
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn every_program_starts_in_the_image_and_none_needs_anything_from_outside() {
    let Some(_turn) = root_test("every_program_starts_in_the_image_and_none_needs_anything_from_outside")
    else {
        return;
    };
    let built = image::of_programs().unwrap();
    let root = tempfile::tempdir().unwrap();
    image::unpack(&built, root.path()).unwrap();

    for (words, expected) in [
        (&["trieste", "--version"][..], "trieste "),
        (&["trieste-gateway", "--version"], "trieste-gateway version: v"),
        (&["trieste-routeagent", "--version"], "trieste-routeagent version: v"),
        (&["trieste-discovery", "--version"], "trieste-discovery version: v"),
        (&["trieste-operator", "--version"], "trieste-operator version: v"),
        (&["trieste-plugin-sync", "--version"], "trieste-plugin-sync version: v"),
        (&["submariner.sh", "--version"], "submariner-gateway version: v"),
        (&["submariner-gateway", "--version"], "submariner-gateway version: v"),
        (&["submariner-route-agent.sh", "--version"], "submariner-routeagent version: v"),
        (&["submariner-route-agent", "--version"], "submariner-routeagent version: v"),
        (&["nft", "--version"], "nftables v"),
        (&["ip", "-V"], "ip utility"),
        (&["bridge", "-V"], "bridge utility"),
        (&["iptables", "-V"], "(nf_tables)"),
        (&["ip6tables-legacy", "-V"], "(legacy)"),
        (&["ip6tables-save", "-V"], "(nf_tables)"),
        // Loads a module of its own directory.
        (&["iptables", "-m", "conntrack", "-h"], "--ctstate"),
        (&["sh", "-c", "echo $((6*7)) | tr 2 3; test -r /etc/ssl/certs/ca-certificates.crt"], "43"),
        // `kubectl cp` calls for it.
        (&["tar", "-cf", "-", "/etc/passwd"], "etc/passwd"),
        // Protocols are known by name. Nothing is changed.
        (
            &[
                "nft",
                "-c",
                "add table inet t; add chain inet t c; add rule inet t c meta l4proto ipv6-icmp accept",
            ],
            "",
        ),
    ] {
        let output = inside(root.path(), words);
        assert!(output.status.success(), "{words:?}: {}{}", output.stdout, output.stderr);
        assert!(output.stdout.contains(expected), "{words:?}: {}", output.stdout);
    }
    for name in ["submariner-globalnet.sh", "submariner-globalnet"] {
        let output = inside(root.path(), &[name, "--version"]);
        assert!(output.stderr.starts_with("submariner-globalnet "), "{name}: {}", output.stderr);
        // It says what it lacks, and needs neither devices nor rights for that.
        let output = inside(root.path(), &[name]);
        assert!(
            !output.status.success() && output.stderr.contains("--cluster-id"),
            "{name}: {}",
            output.stderr
        );
    }
    // Every name of busybox is one.
    let links = inside(root.path(), &["find", "/usr/bin", "-type", "l"]).stdout;
    let applets = inside(root.path(), &["busybox", "--list"]).stdout;
    for link in links.lines() {
        let name = link.rsplit('/').next().unwrap();
        assert!(applets.lines().any(|applet| applet == name), "busybox has no {name}");
    }
}
