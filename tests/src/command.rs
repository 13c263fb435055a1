//! Running a program to its end: in a namespace or not, bounded in time, output captured.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;
use crate::process::ProcessId;

/// A program to run. Its output goes to files, so that a helper which it leaves behind cannot hold us up.
#[derive(Debug, Clone)]
pub struct Run {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    timeout: Duration,
}

/// Lines of a failed program's output that its error shows, beside all of its errors.
const LAST_LINES: usize = 5;

/// How a program ended.
#[derive(Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    shown: String,
}

impl Run {
    /// A program in this process's own namespace; a minute to finish, which beside other tests is not long.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            words: vec![program.as_ref().to_owned()],
            environment: Vec::new(),
            input: Vec::new(),
            timeout: Duration::from_secs(60),
        }
    }

    /// A program in the network namespace of this name. `ip netns exec` replaces itself by the program, so the
    /// process ID is the program's own.
    pub fn in_namespace(namespace: &str, program: impl AsRef<OsStr>) -> Self {
        Self::new("ip").args(["netns", "exec", namespace]).arg(program)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        self.words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// What it reads from standard input.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// How long it may take; then its whole process group is killed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs it, whatever its exit status.
    ///
    /// # Errors
    /// If it cannot be started, takes too long, or a signal interrupts this process.
    pub fn output(&self) -> anyhow::Result<Output> {
        interrupt::check()?;
        let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut child = self
            .command(stdout.try_clone()?, stderr.try_clone()?)?
            .spawn()
            .with_context(|| format!("starting: {}", self.shown()))?;
        let end = Instant::now() + self.timeout;
        let process = ProcessId::of(child.id().cast_signed());
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let late = Instant::now() >= end;
            if late || interrupt::is_interrupted() {
                // The group's leader is our unreaped child, so the group cannot be anybody else's.
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                child.wait()?;
                interrupt::check()?;
                let stderr = contents(&mut stderr)?;
                anyhow::bail!("took longer than {:?}: {}\n{stderr}", self.timeout, self.shown());
            }
            if let Ok(process) = process {
                process.wait_end(Duration::from_millis(50));
            }
        };
        let output = Output {
            status,
            stdout: contents(&mut stdout)?,
            stderr: contents(&mut stderr)?,
            shown: self.shown(),
        };
        Ok(output)
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// As [`Run::output`], and if its exit status is not 0: the error shows what it wrote to standard error.
    pub fn stdout(&self) -> anyhow::Result<String> {
        self.output()?.success()
    }

    /// Runs it to its end even if a signal has interrupted this process: for tidying up.
    ///
    /// # Errors
    /// If it cannot be started or its exit status is not 0.
    pub fn finish(&self) -> anyhow::Result<()> {
        let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = self.command(stdout.try_clone()?, stderr.try_clone()?)?;
        let status = command.status().with_context(|| format!("starting: {}", self.shown()))?;
        let output = Output {
            status,
            stdout: contents(&mut stdout)?,
            stderr: contents(&mut stderr)?,
            shown: self.shown(),
        };
        output.success().map(drop)
    }

    /// The process to spawn, in a process group of its own: a Ctrl-C at the terminal reaches only the lab, which
    /// then ends its children in order.
    pub(crate) fn command(&self, stdout: File, stderr: File) -> anyhow::Result<Command> {
        let (program, arguments) = self.words.split_first().context("a command has at least one word")?;
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(self.stdin()?).stdout(stdout).stderr(stderr).process_group(0);
        Ok(command)
    }

    fn stdin(&self) -> anyhow::Result<Stdio> {
        if self.input.is_empty() {
            return Ok(Stdio::null());
        }
        let mut file = tempfile::tempfile()?;
        file.write_all(&self.input)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.into())
    }

    /// The command as a person would type it.
    pub(crate) fn shown(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

impl Output {
    /// Standard output, if the program succeeded.
    ///
    /// # Errors
    /// If its exit status is not 0.
    pub fn success(self) -> anyhow::Result<String> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("ended with status {code}"),
            (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
        };
        let (stdout, stderr) = (self.stdout.trim(), self.stderr.trim());
        if stderr.is_empty() {
            anyhow::bail!("{} {how}:\n{stdout}", self.shown)
        }
        // The last step that a program has begun is the one that failed.
        let begin = stdout.rmatch_indices('\n').nth(LAST_LINES - 1).map_or(0, |(at, _)| at + 1);
        let last = &stdout[begin..];
        let separator = if last.is_empty() { "" } else { "\n" };
        anyhow::bail!("{} {how}:\n{last}{separator}{stderr}", self.shown)
    }
}

fn contents(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_reaches_the_program_and_output_comes_back() {
        let text = Run::new("tr").args(["a-z", "A-Z"]).input("salve").stdout().unwrap();

        assert_eq!(text, "SALVE");
    }

    #[test]
    fn failure_shows_the_command_its_status_and_its_words() {
        let error = Run::new("sh").args(["-c", "echo alas >&2; exit 3"]).stdout().unwrap_err().to_string();

        assert!(error.contains("sh -c") && error.contains("status 3") && error.contains("alas"), "{error}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let start = Instant::now();

        let run = Run::new("sh").args(["-c", "sleep 30 & wait"]).timeout(Duration::from_millis(100));
        let error = run.output().unwrap_err().to_string();

        assert!(error.contains("took longer than"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_helper_left_in_the_background_does_not_hold_us_up() {
        let start = Instant::now();

        Run::new("sh").args(["-c", "sleep 5 &"]).stdout().unwrap();

        assert!(start.elapsed() < Duration::from_secs(4));
    }
}
