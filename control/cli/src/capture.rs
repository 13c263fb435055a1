//! `trieste capture`: packets from inside a gateway, to a file or a pipe, as they pass.

mod secrets;

use std::fs::Permissions;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::exec;
use super::gateway::GatewayArgs;
use super::output::{is_reader_gone, remark};
use super::pcapng::PacketCounter;
use super::socket;
use secrets::{FILE_MODE, Folder, Source};
use trieste_control::admin::{CAPTURE_PATH, CapturePoint, CaptureProtocol, CaptureRequest};

/// Ours: how soon it is noticed, in silence, that nobody reads any more.
const READER_CHECK: Duration = Duration::from_millis(200);

/// Ours: how long the write under way may take once the operator wants an end.
const LAST_WRITE: Duration = Duration::from_millis(500);

/// Ours: how much is read at once of a pod's output.
const PIECE_BYTES: usize = 64 << 10;

/// Ours: how much is read of what a command in a pod complains about, in bytes.
const MAX_COMPLAINT: u64 = 64 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct CaptureArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Where on the line to look, several separated by commas [default: everywhere]
    #[arg(long, value_name = "POINT", value_delimiter = ',')]
    point: Vec<CapturePoint>,
    /// Only packets from or to this address
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// Only packets from or to this TCP or UDP port
    #[arg(long)]
    port: Option<u16>,
    /// Only packets of this protocol: tcp, udp or icmp
    #[arg(long, value_name = "PROTOCOL")]
    proto: Option<CaptureProtocol>,
    /// Bytes to keep of each packet [default: all]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snaplen: Option<u32>,
    /// Write to this file; - is standard output [default: -]
    #[arg(long, short, value_name = "FILE", default_value = "-", hide_default_value = true)]
    write: PathBuf,
    /// Also write the keys that Wireshark needs to read the packets, into a folder of its own (IPsec only). Whoever has
    /// that folder can read all traffic of these connections [default folder: FILE.secrets]
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true)]
    with_secrets: Option<Option<PathBuf>>,
}

/// A capture, as it comes.
type Pieces = BoxStream<'static, anyhow::Result<Bytes>>;

/// Why a capture ended.
enum End {
    /// We were told to: Ctrl-C, or a polite kill.
    Told,
    /// Nobody reads what we write.
    ReaderGone,
    /// The gateway stopped sending.
    GatewayGone,
}

pub(super) async fn run(args: &CaptureArgs) -> anyhow::Result<()> {
    let is_piped = args.write.as_os_str() == "-";
    if is_piped && io::stdout().is_terminal() {
        bail!(
            "a capture is binary and this is a terminal. Write to a file with -w FILE, or pipe it: \
             trieste capture -w - | tcpdump -n -r -"
        );
    }
    if args.gateway.is_of_cluster() && args.with_secrets.is_some() {
        bail!(
            "keys do not leave the gateway's node: run this there, or in its pod, without naming a cluster"
        );
    }
    if args.gateway.is_of_cluster() { of_pod(args, is_piped).await } else { of_socket(args, is_piped).await }
}

/// From this node's gateway.
async fn of_socket(args: &CaptureArgs, is_piped: bool) -> anyhow::Result<()> {
    let socket = args.gateway.socket.path();
    let query = args.request().to_query();
    let path = if query.is_empty() { CAPTURE_PATH.to_owned() } else { format!("{CAPTURE_PATH}?{query}") };
    let folder = args.secrets_folder(is_piped)?;
    let source = match folder {
        Some(_) => Some(Source::open(&socket).await?),
        None => None,
    };
    let body = socket::open(&socket, &path).await?.into_body();
    let _keys = match (source, &folder) {
        (Some(source), Some(folder)) => Some(write_keys(source, folder, &args.write)?),
        _ => None,
    };
    let pieces = body.into_data_stream().map(|piece| piece.map_err(anyhow::Error::from));
    match carry(args, is_piped, &socket.display().to_string(), Box::pin(pieces)).await? {
        End::Told | End::ReaderGone => Ok(()),
        End::GatewayGone => {
            bail!("the gateway ended the capture; has it stopped? What was captured so far is complete")
        }
    }
}

/// Begins to write keys. They are written until the value is dropped.
fn write_keys(source: Source, folder: &Path, capture: &Path) -> anyhow::Result<AbortOnDrop> {
    let files = Folder::open(folder)?;
    remark(&format!(
        "warning: the keys of all connections are written to {}; whoever has them can read all traffic. Delete the \
         folder when you are done. To look: WIRESHARK_CONFIG_DIR={} tshark -r {}",
        folder.display(),
        folder.display(),
        capture.display(),
    ));
    Ok(AbortOnDrop(tokio::spawn(source.follow(files))))
}

/// A task that ends with this value.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// From a gateway of a cluster, by the same command in its pod.
async fn of_pod(args: &CaptureArgs, is_piped: bool) -> anyhow::Result<()> {
    let pod = args.gateway.pod().await?;
    let words = args.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut process = pod.start(&words).await?;
    let (stdout, stderr, status) = (process.stdout(), process.stderr(), process.take_status());
    let stdout = stdout.context("the API server gives no output of the command")?;
    let pieces = futures::stream::try_unfold(stdout, async |mut stdout| {
        let mut piece = vec![0; PIECE_BYTES];
        let length = stdout.read(&mut piece).await?;
        piece.truncate(length);
        anyhow::Ok((length > 0).then(|| (Bytes::from(piece), stdout)))
    });
    let mut pieces = pieces.boxed().peekable();
    // A capture begins with its header at once, unless it is refused.
    let has_begun = Pin::new(&mut pieces).peek().await.is_some_and(Result::is_ok);
    let is_told = has_begun
        && !matches!(
            carry(args, is_piped, &format!("pod {}", pod.name), pieces.boxed()).await?,
            End::GatewayGone
        );
    if is_told {
        // The command in the pod ends by itself: nobody reads what it writes.
        process.abort();
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(stderr) = stderr {
        // Bounded by time and size: a node that has gone says nothing more.
        let _ = timeout(LAST_WRITE, stderr.take(MAX_COMPLAINT).read_to_end(&mut said)).await;
    }
    let status = match status {
        Some(status) => timeout(LAST_WRITE, status).await.ok().flatten(),
        None => None,
    };
    let failure =
        status.as_ref().and_then(exec::failure).unwrap_or_else(|| "the connection broke off".to_owned());
    bail!("the capture has ended: {}", pod.explain(&failure, &said))
}

/// Carries pieces to where they go, and says what it does.
async fn carry(args: &CaptureArgs, is_piped: bool, from: &str, pieces: Pieces) -> anyhow::Result<End> {
    // Opened after the gateway has agreed: a refused capture leaves an older file alone.
    let to: Pin<Box<dyn AsyncWrite>> =
        if is_piped { Box::pin(tokio::io::stdout()) } else { Box::pin(open_file(&args.write).await?) };
    remark(&format!("capturing from {from}; Ctrl-C ends it"));
    let mut pump = Pump { to, is_piped, counter: PacketCounter::default(), bytes: 0 };
    let end = pump.run(pieces).await;
    remark(&format!("{} packets, {} bytes captured", pump.counter.packets(), pump.bytes));
    end
}

/// Opens the file of a capture: for its owner alone, and not through a link or over a file that somebody else has put
/// there. A device or a pipe is taken as it is.
async fn open_file(path: &Path) -> anyhow::Result<tokio::fs::File> {
    let cannot = || format!("cannot write to {}", path.display());
    if std::fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_symlink()) {
        bail!("{} is a link: name the file that it leads to", path.display());
    }
    let user = rustix::process::geteuid().as_raw();
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let there = std::fs::metadata(folder).with_context(cannot)?;
    // In a folder such as /tmp, which has the sticky bit, everybody removes but their own files.
    let is_open = there.mode() & 0o002 != 0 && there.mode() & 0o1000 == 0;
    if is_open || (there.uid() != user && there.uid() != 0) {
        bail!(
            "{} is not a folder of yours (owner {}, mode {:o}): whoever it belongs to could take the packets; name a file \
             in another",
            folder.display(),
            there.uid(),
            there.mode() & 0o7777,
        );
    }
    let mut options = tokio::fs::OpenOptions::new();
    let no_links = OFlags::NOFOLLOW.bits().cast_signed();
    options.write(true).create(true).mode(FILE_MODE).custom_flags(no_links);
    let file = options.open(path).await.with_context(cannot)?;
    let there = file.metadata().await.with_context(cannot)?;
    if there.is_file() {
        if there.uid() != user {
            bail!(
                "{} is a file of somebody else (owner {}): remove it, or name another",
                path.display(),
                there.uid()
            );
        }
        // One that was there keeps its mode, and what is in it, otherwise.
        file.set_permissions(Permissions::from_mode(FILE_MODE)).await.with_context(cannot)?;
        file.set_len(0).await.with_context(cannot)?;
    }
    Ok(file)
}

impl CaptureArgs {
    fn request(&self) -> CaptureRequest {
        let names: Vec<&str> = self.point.iter().map(|point| point.as_str()).collect();
        CaptureRequest {
            point: (!names.is_empty()).then(|| names.join(",")),
            host: self.host,
            port: self.port,
            proto: self.proto,
            snaplen: self.snaplen,
        }
    }

    /// Where keys go, if they are wanted.
    fn secrets_folder(&self, is_piped: bool) -> anyhow::Result<Option<PathBuf>> {
        match &self.with_secrets {
            None => Ok(None),
            Some(Some(folder)) => Ok(Some(folder.clone())),
            Some(None) if is_piped => {
                bail!("a pipe has no place beside it: say where keys go, with --with-secrets=FOLDER")
            }
            Some(None) => Ok(Some(Folder::beside(&self.write))),
        }
    }

    /// The same capture as a command in a pod.
    fn words(&self) -> Vec<String> {
        let CaptureRequest { point, host, port, proto, snaplen } = self.request();
        let mut words = ["trieste", "capture", "--write", "-"].map(str::to_owned).to_vec();
        let options = [
            ("point", point),
            ("host", host.map(|host| host.to_string())),
            ("port", port.map(|port| port.to_string())),
            ("proto", proto.map(|proto| proto.as_str().to_owned())),
            ("snaplen", snaplen.map(|snaplen| snaplen.to_string())),
        ];
        words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
        words
    }
}

/// Carries the gateway's answer to where it goes.
struct Pump {
    to: Pin<Box<dyn AsyncWrite>>,
    is_piped: bool,
    counter: PacketCounter,
    bytes: u64,
}

impl Pump {
    async fn run(&mut self, mut pieces: Pieces) -> anyhow::Result<End> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut check = interval(READER_CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let piece = tokio::select! {
                () = told(&mut interrupt, &mut terminate) => return Ok(End::Told),
                _ = check.tick(), if self.is_piped => {
                    if is_stdout_closed() { return Ok(End::ReaderGone) }
                    continue;
                }
                piece = pieces.next() => piece,
            };
            let Some(Ok(piece)) = piece else { return Ok(End::GatewayGone) };
            let mut write = Box::pin(self.write(&piece));
            let (written, is_told) = tokio::select! {
                written = &mut write => (written, false),
                // What is being written is finished, unless its reader has stalled: that must not keep us from ending.
                () = told(&mut interrupt, &mut terminate) => match timeout(LAST_WRITE, &mut write).await {
                    Ok(written) => (written, true),
                    Err(_) => return Ok(End::Told),
                },
            };
            match written {
                Ok(()) if is_told => return Ok(End::Told),
                Ok(()) => {}
                Err(error) if is_reader_gone(&error) => return Ok(End::ReaderGone),
                Err(error) => return Err(error.context("cannot write the capture; is the disk full?")),
            }
        }
    }

    /// Writes a piece, through to the reader: whoever looks at the other end looks at what happens now.
    async fn write(&mut self, piece: &Bytes) -> anyhow::Result<()> {
        self.to.write_all(piece).await?;
        self.to.flush().await?;
        self.counter.feed(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }
}

/// Waits until the operator wants an end.
async fn told(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Whether the reader of standard output has gone. Without traffic no write would tell.
fn is_stdout_closed() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let looked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    looked.is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn a_capture_is_its_owners_alone_and_goes_where_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;

        drop(open_file(&at("new.pcapng")).await.unwrap());
        assert_eq!(mode(&at("new.pcapng")), 0o600);

        std::fs::write(at("old.pcapng"), "an older capture").unwrap();
        std::fs::set_permissions(at("old.pcapng"), Permissions::from_mode(0o644)).unwrap();
        drop(open_file(&at("old.pcapng")).await.unwrap());
        assert_eq!((mode(&at("old.pcapng")), std::fs::metadata(at("old.pcapng")).unwrap().len()), (0o600, 0));

        std::fs::write(at("precious"), "data").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        let error = open_file(&at("link")).await.unwrap_err().to_string();
        assert!(error.contains("is a link"), "{error}");
        assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "data");

        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let error = open_file(&at("open.pcapng")).await.unwrap_err().to_string();
        assert!(error.contains("not a folder of yours"), "{error}");
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        open_file(&at("sticky.pcapng")).await.unwrap();
        open_file(Path::new("/dev/null")).await.unwrap();
    }
}
