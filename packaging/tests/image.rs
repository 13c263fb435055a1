//! A whole image, with this test in the place of our programs: the same bytes twice, and every reader's view of it.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use trieste_packaging::contents::PROGRAMS;
use trieste_packaging::layer::digest;
use trieste_packaging::{Built, Compression, Options, Reference, build};

/// An image of this very program, in a directory.
fn image(directory: &Path, compression: Compression) -> Built {
    let binaries = directory.join("binaries");
    std::fs::create_dir_all(&binaries).unwrap();
    for name in PROGRAMS {
        std::fs::copy(std::env::current_exe().unwrap(), binaries.join(name)).unwrap();
    }
    let reference: Reference = "registry.example:5000/net/trieste:1.2.3".parse().unwrap();
    let options = Options::quick(&binaries, &directory.join("image/trieste.tar"), reference);
    build(&Options { compression, ..options }).unwrap()
}

/// Path and bytes of everything in a tar file.
fn unpacked(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(bytes);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let (mut entry, mut bytes) = (entry.unwrap(), Vec::new());
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().to_str().unwrap().to_owned(), bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The blob that a descriptor names, if digest and size are right.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let named = descriptor["digest"].as_str().unwrap();
    let bytes = &files[&format!("blobs/{}", named.replace(':', "/"))];
    assert_eq!(digest(bytes), named);
    assert_eq!(bytes.len() as u64, descriptor["size"].as_u64().unwrap());
    bytes
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = image(one.path(), Compression::None);
    let second = image(other.path(), Compression::None);
    assert_eq!(first.digest, second.digest);
    assert_eq!(std::fs::read(&first.path).unwrap(), std::fs::read(&second.path).unwrap());
    let left: Vec<_> = std::fs::read_dir(first.path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".layer") || name.starts_with(".image"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_blob_is_what_the_documents_say() {
    let directory = tempfile::tempdir().unwrap();
    let built = image(directory.path(), Compression::Gzip);
    let bytes = std::fs::read(&built.path).unwrap();
    assert_eq!(bytes.len() as u64, built.bytes);
    let files = unpacked(&bytes);

    assert_eq!(json(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"]);
    let entry = &index["manifests"][0];
    assert_eq!(entry["digest"], built.digest);
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "registry.example:5000/net/trieste:1.2.3");
    assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
    let manifest = json(blob(&files, entry));
    let config = json(blob(&files, &manifest["config"]));
    assert_eq!(manifest["config"]["digest"], built.image_id);
    assert_eq!(config["os"], "linux");
    assert_eq!(config["config"]["User"], "0");
    assert!(config["config"]["Entrypoint"].is_null());

    let layers = manifest["layers"].as_array().unwrap();
    let diff_ids = config["rootfs"]["diff_ids"].as_array().unwrap();
    assert_eq!((layers.len(), diff_ids.len()), (2, 2));
    for ((layer, diff_id), summary) in layers.iter().zip(diff_ids).zip(&built.layers) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(blob(&files, layer)).read_to_end(&mut plain).map(drop).unwrap();
        assert_eq!(digest(&plain), diff_id.as_str().unwrap());
        assert_eq!(plain.len() as u64, summary.uncompressed);
    }

    // Docker's form names the same blobs, and there is nothing besides.
    let docker = &json(&files["manifest.json"])[0];
    assert_eq!(docker["RepoTags"][0], "registry.example:5000/net/trieste:1.2.3");
    let mut named: BTreeSet<&str> = ["oci-layout", "index.json", "manifest.json"].into();
    named.insert(docker["Config"].as_str().unwrap());
    named.extend(docker["Layers"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()));
    let path = format!("blobs/{}", built.digest.replace(':', "/"));
    named.insert(&path);
    assert_eq!(files.keys().map(String::as_str).collect::<BTreeSet<_>>(), named);
}

#[test]
fn what_has_to_be_in_it_is_in_it_and_what_this_machine_trusts_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let built = image(directory.path(), Compression::None);
    let files = unpacked(&std::fs::read(&built.path).unwrap());
    let mut paths = BTreeMap::new();
    for layer in &built.layers {
        paths.extend(unpacked(&files[&format!("blobs/{}", layer.digest.replace(':', "/"))]));
    }
    for path in [
        "usr/local/bin/trieste",
        "usr/local/bin/trieste-gateway",
        "usr/local/bin/trieste-routeagent",
        "usr/local/bin/trieste-discovery",
        "usr/local/bin/trieste-operator",
        "usr/local/bin/trieste-plugin-sync",
        "usr/local/bin/lighthouse-agent",
        "usr/local/bin/lighthouse-coredns",
        "usr/local/bin/submariner.sh",
        "usr/local/bin/submariner-route-agent.sh",
        "usr/local/bin/submariner-globalnet.sh",
        "usr/bin/sh",
        "usr/bin/tar",
        "usr/sbin/nft",
        "usr/sbin/ip6tables-save",
        "usr/sbin/ip6tables-legacy",
        "etc/nsswitch.conf",
        "etc/os-release",
        "usr/share/doc/nftables/copyright",
        "usr/share/doc/trieste/copyright",
        "usr/share/common-licenses/GPL-2",
        "var/lib/dpkg/status.d/libc6",
        "host/proc/sys/net/",
        "var/lib/trieste/",
    ] {
        assert!(paths.contains_key(path), "{path} is missing");
    }
    let has = |part: &str| paths.keys().any(|path| path.contains(part));
    assert!(has("/libc.so.6") && has("/ld-linux-") && has("/xtables/libxt_conntrack.so"));
    assert!(!has("usr/local/share"));

    let bundle = String::from_utf8(paths["etc/ssl/certs/ca-certificates.crt"].clone()).unwrap();
    assert!(bundle.matches("-----BEGIN CERTIFICATE-----").count() > 50);
    for entry in std::fs::read_dir("/usr/local/share/ca-certificates").into_iter().flatten().flatten() {
        let own = std::fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(own.trim().is_empty() || !bundle.contains(own.trim()), "{:?} got in", entry.path());
    }
}
