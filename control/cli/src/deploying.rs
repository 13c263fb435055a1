//! What the commands that change clusters have in common: how they fail, what they show instead of doing, flags of
//! upstream's that mean nothing here.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use trieste_control::steps::{Outcome, Record};
use trieste_deploy::DeployError;
use trieste_deploy::join::Ask;
use trieste_deploy::objects::{Image, Manifest, Proxy, PullPolicy, names, to_yaml};

use super::output::{Output, printable, printable_lines, remark};

/// Which image pods run, and how they reach the world.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Images")]
pub(super) struct ImageArgs {
    /// The image, such as registry.example.com/trieste:0.1.0
    #[arg(long, value_name = "REFERENCE", conflicts_with_all = ["repository", "image_version"])]
    image: Option<String>,
    /// The repository of the image `trieste` [default: localhost]
    #[arg(long)]
    repository: Option<String>,
    /// The tag of the image [default: this command's version]
    #[arg(long = "version", value_name = "TAG")]
    image_version: Option<String>,
    /// The image of one component, COMPONENT=REFERENCE; submariner-gateway and submariner-routeagent are one image here
    #[arg(long, value_name = "COMPONENT=REFERENCE")]
    image_override: Vec<String>,
    /// When nodes pull the image: Always, IfNotPresent or Never [default: IfNotPresent]
    #[arg(long, value_name = "WHEN")]
    pub(super) image_pull_policy: Option<PullPolicy>,
    /// Names of Secrets in the namespace with which nodes pull the image
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) image_pull_secrets: Vec<String>,
}

/// How pods reach the world.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Proxy")]
pub(super) struct ProxyArgs {
    /// The HTTP proxy of the pods
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    http_proxy: String,
    /// The HTTPS proxy of the pods
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    https_proxy: String,
    /// Hosts that pods reach without a proxy
    #[arg(long, value_name = "HOSTS", default_value = "", hide_default_value = true)]
    no_proxy: String,
}

impl ProxyArgs {
    pub(super) fn proxy(&self) -> Proxy {
        Proxy {
            http: self.http_proxy.clone(),
            https: self.https_proxy.clone(),
            no_proxy: self.no_proxy.clone(),
        }
    }

    pub(super) fn is_said(&self) -> bool {
        self.proxy() != Proxy::default()
    }
}

/// What to do with what is made.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Applying")]
pub(super) struct ApplyArgs {
    /// Print the objects as YAML instead of applying them; checks run, nothing is changed
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run: print what Secrets hold, too
    #[arg(long, requires = "dry_run")]
    show_secrets: bool,
    /// Take over fields that somebody else manages
    #[arg(long)]
    pub(super) force_conflicts: bool,
}

impl ImageArgs {
    /// Whether any of an image's name is said.
    pub(super) fn is_named(&self) -> bool {
        let said = [&self.image, &self.repository, &self.image_version];
        said.into_iter().any(Option::is_some) || !self.image_override.is_empty()
    }

    /// The image, and remarks about components that have none here.
    ///
    /// # Errors
    /// If an override is none, or two of them want different images.
    pub(super) fn image(&self) -> anyhow::Result<(Image, Vec<String>)> {
        let mut image = match &self.image {
            Some(reference) => Image::new(reference.as_str()),
            None => Image::of(self.repository.as_deref(), self.image_version.as_deref()),
        };
        let (mut chosen, mut unused): (Option<&str>, Vec<String>) = (None, Vec::new());
        for entry in &self.image_override {
            let Some((component, reference)) = entry.split_once('=') else {
                return Err(anyhow!("--image-override {}: expected COMPONENT=REFERENCE", printable(entry)));
            };
            if ![names::GATEWAY, names::ROUTE_AGENT].contains(&component) {
                unused.push(format!(
                    "--image-override {}: there is no such component here",
                    printable(component)
                ));
                continue;
            }
            if chosen.is_some_and(|other| other != reference) {
                return Err(anyhow!(
                    "--image-override: gateway and route agent are one image, of one version; name the same for both"
                ));
            }
            chosen = Some(reference);
        }
        if let Some(reference) = chosen {
            image = Image::new(reference);
        }
        Ok((image.pulled(self.image_pull_policy.unwrap_or_default()), unused))
    }

    pub(super) fn is_said(&self) -> bool {
        self.image.is_some()
            || self.repository.is_some()
            || self.image_version.is_some()
            || !self.image_override.is_empty()
    }
}

impl ApplyArgs {
    /// Prints objects instead of applying them.
    pub(super) fn show(self, manifests: &[Manifest], output: &mut Output) -> anyhow::Result<()> {
        let shown =
            |manifest: &Manifest| if self.show_secrets { manifest.clone() } else { manifest.redacted() };
        let manifests: Vec<Manifest> = manifests.iter().map(shown).collect();
        output.write(to_yaml(&manifests).as_bytes())
    }
}

/// An error with what to do next.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
pub(super) fn explained(error: DeployError) -> anyhow::Error {
    let next = error.next();
    let text = printable_lines(&error.to_string());
    if next.is_empty() { anyhow!("{text}") } else { anyhow!("{text}\nnext: {}", printable_lines(&next)) }
}

/// What the steps of something that was not done have found, beside the answer.
pub(super) fn remark_steps(record: &Record) {
    for (outcome, text) in record.steps.iter().flat_map(|step| &step.remarks) {
        match outcome {
            Outcome::Success => {}
            Outcome::Warning => remark(&format!("warning: {}", printable_lines(text))),
            Outcome::Failure => remark(&format!("failed: {}", printable_lines(text))),
        }
    }
}

/// Says of flags that were given that they do nothing here, and why.
pub(super) fn without_effect(flags: &[(bool, &str, &str)]) {
    for (_, flag, why) in flags.iter().filter(|(is_said, _, _)| *is_said) {
        remark(&format!("warning: {flag} has no effect: {why}"));
    }
}

/// The time, for names of files.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Where the join file is, unless somebody says otherwise.
pub(super) fn join_file() -> PathBuf {
    Path::new(trieste_deploy::broker_info::FILE_NAME).to_owned()
}

/// Whoever sits at the terminal; nobody, if there is none.
pub(super) struct Terminal;

impl Terminal {
    fn is_there() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a question that is answered with yes or no; `None` if nobody is there.
    pub(super) fn confirm(question: &str) -> Option<bool> {
        if !Self::is_there() {
            return None;
        }
        let answer = Self::line(&format!("? {} (y/N) ", printable(question)))?;
        Some(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    fn line(prompt: &str) -> Option<String> {
        let mut stderr = io::stderr();
        stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush()).ok()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).ok()?;
        Some(line.trim().to_owned())
    }
}

impl Ask for Terminal {
    fn choose(&mut self, question: &str, choices: &[String]) -> Option<usize> {
        if !Self::is_there() {
            return None;
        }
        let mut text = format!("? {}\n", printable(question));
        for (index, choice) in choices.iter().enumerate() {
            text.push_str(&format!("  {}) {}\n", index + 1, printable(choice)));
        }
        loop {
            let answer = Self::line(&format!("{text}  [1] "))?;
            let number = if answer.is_empty() { Some(1) } else { answer.parse::<usize>().ok() };
            match number {
                Some(number) if (1..=choices.len()).contains(&number) => return Some(number - 1),
                _ => remark(&format!("a number from 1 to {}, please", choices.len())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(disable_version_flag = true)]
    struct Command {
        #[command(flatten)]
        image: ImageArgs,
    }

    fn image(words: &[&str]) -> anyhow::Result<(Image, Vec<String>)> {
        Command::try_parse_from([&["x"], words].concat()).unwrap().image.image()
    }

    #[test]
    fn an_image_is_named_in_any_of_upstreams_ways() {
        let of = |words: &[&str]| image(words).unwrap().0.reference;
        assert_eq!(of(&["--repository", "r.example/x", "--version", "1.2"]), "r.example/x/trieste:1.2");
        assert_eq!(of(&["--image", "r/t:1"]), "r/t:1");
        assert_eq!(of(&["--image-override", "submariner-gateway=r/t:2"]), "r/t:2");
    }

    #[test]
    fn overrides_that_contradict_are_refused_and_those_of_other_components_are_remarked() {
        let two = ["--image-override", "submariner-gateway=a", "--image-override", "submariner-routeagent=b"];
        assert!(image(&two).unwrap_err().to_string().contains("one image"));
        assert!(image(&["--image-override", "x"]).is_err());
        let (chosen, unused) = image(&["--image-override", "submariner-lighthouse-agent=x"]).unwrap();
        assert_eq!((chosen, unused.len()), (Image::default(), 1));
    }
}
