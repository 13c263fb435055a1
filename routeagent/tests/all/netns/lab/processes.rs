//! Processes of a lab: the agent, and who holds the TUN open.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::{Lab, NAMESPACE, PATIENCE, eventually, run};

const AGENT: &str = env!("CARGO_BIN_EXE_trieste-routeagent");

impl Lab {
    /// The agent's command line on the node.
    pub(crate) fn agent(&self, extra: &[&str]) -> Command {
        self.agent_as("a-gw1", extra)
    }

    pub(crate) fn agent_as(&self, hostname: &str, extra: &[&str]) -> Command {
        self.agent_on("node", hostname, extra)
    }

    pub(crate) fn agent_on(&self, place: &str, hostname: &str, extra: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name(place), AGENT])
            .args(["--store", &format!("dir:{}", self.store().display()), "--namespace", NAMESPACE])
            .args([
                "--cluster-id=a",
                "--cluster-cidrs=10.1.0.0/16,fd00:1::/48",
                "--service-cidrs=100.65.0.0/16",
            ])
            .args(["--hostname", hostname])
            .env("TRIESTE_CLOSE_GRACE", "0")
            .env("TRIESTE_STATE_DIR", self.state(place))
            .env("TRIESTE_PASS_FILE", self.directory.path().join("pass.json"))
            .args(extra);
        command
    }

    /// Runs the agent once; returns what it printed and logged.
    pub(crate) fn agent_once(&self, extra: &[&str]) -> String {
        finish(&mut self.agent(extra))
    }

    pub(crate) fn uninstall(&self) -> String {
        self.uninstall_on("node")
    }

    pub(crate) fn uninstall_on(&self, place: &str) -> String {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place), AGENT, "--uninstall"]);
        finish(command.env("TRIESTE_STATE_DIR", self.state(place)))
    }

    /// What a pass would do at present.
    pub(crate) fn plan(&self) -> String {
        let output = self.agent(&["--dry-run"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn start_agent(&self) -> Process {
        self.start_agent_on("node", "a-gw1")
    }

    pub(crate) fn start_agent_on(&self, place: &str, hostname: &str) -> Process {
        self.start_agent_with(place, hostname, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn start_agent_with(&self, place: &str, hostname: &str, more: &[(&str, &str)]) -> Process {
        let log = File::create(self.directory.path().join(format!("{place}.log"))).unwrap();
        Process(self.agent_on(place, hostname, &[]).envs(more.iter().copied()).stderr(log).spawn().unwrap())
    }

    pub(crate) fn agent_log(&self) -> String {
        self.agent_log_on("node")
    }

    pub(crate) fn agent_log_on(&self, place: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("{place}.log"))).unwrap()
    }

    /// Holds the TUN open as a living gateway does, and prints every packet in hexadecimal. Perl, because it is part
    /// of every Debian and can call ioctl(2) without unsafe code here.
    pub(crate) fn hold_tun(&self) -> Tun {
        // IFF_TUN | IFF_NO_PI | IFF_MULTI_QUEUE, TUNSETIFF.
        let script = r#"
            $| = 1;
            open(my $tun, "+<", "/dev/net/tun") or die "open: $!";
            my $request = pack("a16Sx22", "submariner", 0x1101);
            ioctl($tun, 0x400454ca, $request) or die "TUNSETIFF: $!";
            print "ready\n";
            while (sysread($tun, my $packet, 65535)) { print unpack("H*", $packet), "\n" }
        "#;
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name("node"), "perl", "-e", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let (sender, read) = channel();
        // It ends with the process.
        std::thread::spawn(move || {
            lines.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Tun { read, process: Process(child) }
    }
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        run("kill", &["-s", name, &self.0.id().to_string()]);
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        eventually("the process ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long a packet may be on its way before it is taken for lost.
const RESEND: Duration = Duration::from_secs(1);

/// A living gateway's hold on the TUN.
pub(crate) struct Tun {
    /// Packets in hexadecimal.
    read: Receiver<String>,
    process: Process,
}

impl Tun {
    /// Sends a packet that contains some text until a gateway would read one, and returns that in hexadecimal. Any packet may be lost
    /// on its way, as while a neighbour is not known yet; those of the kernel's own, such as router solicitations, are passed over.
    pub(crate) fn expect(&mut self, payload: &str, mut send: impl FnMut(&[u8]) -> usize) -> String {
        let wanted: String = payload.bytes().map(|byte| format!("{byte:02x}")).collect();
        let deadline = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        while Instant::now() < deadline {
            send(payload.as_bytes());
            let sent = Instant::now();
            while let Some(left) = RESEND.checked_sub(sent.elapsed()) {
                match self.read.recv_timeout(left) {
                    Ok(packet) if packet.contains(&wanted) => return packet,
                    Ok(packet) => others.push(packet),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => panic!("the TUN's reader ended"),
                }
            }
        }
        panic!("the gateway reads no packet with `{payload}` within {PATIENCE:?}, but {others:?}");
    }

    /// Ends as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.process.kill();
    }
}

/// Runs a command to its end; returns what it wrote to both outputs.
pub(crate) fn finish(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(status.success(), "{command:?}: {status}: {text}");
    text
}
