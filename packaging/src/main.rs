//! `trieste-image`: builds the container image. People run it as `./dev image`.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use trieste_packaging::{Built, Compression, Options, Reference, build};

/// Builds the container image, without a daemon, without root and without network
#[derive(Debug, Parser)]
#[command(name = "trieste-image", version)]
struct Args {
    /// Directory with our programs
    #[arg(long, value_name = "DIRECTORY", default_value = "target/dist")]
    binaries: PathBuf,
    /// The file to write [default: target/image/trieste-VERSION.tar]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Under which name the image is loaded [default: localhost/trieste:VERSION]
    #[arg(long, value_name = "REFERENCE")]
    tag: Option<Reference>,
    /// Leave debug information in our programs
    #[arg(long)]
    no_strip: bool,
    /// Leave layers uncompressed: quicker to build and to load
    #[arg(long)]
    no_compression: bool,
    /// Leave the licences of crates out: for images that stay on this machine
    #[arg(long)]
    no_notices: bool,
    /// Print what was built as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieste-image: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "what was built is the answer")]
fn run(args: &Args) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let output = args.output.clone();
    let built = build(&Options {
        binaries: args.binaries.clone(),
        output: output.unwrap_or_else(|| PathBuf::from(format!("target/image/trieste-{version}.tar"))),
        reference: args.tag.clone().unwrap_or_else(|| Reference::local(version)),
        strip: !args.no_strip,
        compression: if args.no_compression { Compression::None } else { Compression::Gzip },
        notices: (!args.no_notices).then(|| PathBuf::from(".")),
    })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&built)?);
    } else {
        print!("{}", report(&built));
    }
    Ok(())
}

/// What was built, and what to do with it.
fn report(built: &Built) -> String {
    let path = built.path.display();
    let mut text = format!("{path}\n  reference  {}\n  digest     {}\n", built.reference, built.digest);
    text.push_str(&format!("  image ID   {}\n\n", built.image_id));
    text.push_str(&format!("  {:<10} {:>12} {:>12} {:>8}\n", "layer", "compressed", "unpacked", "entries"));
    for layer in &built.layers {
        let (compressed, uncompressed) = (megabytes(layer.compressed), megabytes(layer.uncompressed));
        text.push_str(&format!(
            "  {:<10} {compressed:>12} {uncompressed:>12} {:>8}\n",
            layer.name, layer.entries
        ));
    }
    let (compressed, uncompressed) = (megabytes(built.compressed()), megabytes(built.uncompressed()));
    text.push_str(&format!("  {:<10} {compressed:>12} {uncompressed:>12}\n", "together"));
    let name = built.reference.rsplit_once('/').map_or(built.reference.as_str(), |(_, name)| name);
    text.push_str(&format!(
        "\nOn every node, or into a registry (then join with --image):\n\
         \x20 containerd  ctr --namespace k8s.io images import {path}\n\
         \x20 kind        kind load image-archive {path}\n\
         \x20 podman      podman load --input {path}\n\
         \x20 docker      docker load --input {path}\n\
         \x20 a registry  skopeo copy oci-archive:{path} docker://REGISTRY/{name}\n"
    ));
    text
}

/// Megabytes of a million bytes, as registries count.
fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_make_sense() {
        Args::command().debug_assert();
        assert!(Args::try_parse_from(["trieste-image", "--tag", "trieste"]).is_err());
    }

    #[test]
    fn sizes_are_in_millions_of_bytes() {
        assert_eq!(megabytes(59_960_000), "59.9 MB");
        assert_eq!(megabytes(1), "0.0 MB");
    }
}
