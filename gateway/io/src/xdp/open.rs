//! Opening: the best mode that interface and kernel offer, with a reason for each step down.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use super::attach::Attachment;
use super::bpf::Hook;
use super::channels;
use super::config::{XdpConfig, XdpMode};
use super::filter::{ETHERNET_BYTES, FilterConfig};
use super::frames::{self, Frames, KERNEL_HEADROOM};
use super::netlink::LinkState;
use super::routes::{Resolver, Routes};
use super::socket::{Copying, QueueSocket, Registration};
use crate::{Error, Fallback};

/// One worker's part.
pub(super) struct Part {
    pub(super) sockets: Vec<QueueSocket>,
    pub(super) frames: Frames,
}

/// What a group shares, and each worker's part.
pub(super) struct Opened {
    pub(super) mode: XdpMode,
    pub(super) parts: Vec<Part>,
    pub(super) attachment: Arc<Attachment>,
    pub(super) routes: Arc<Routes>,
    pub(super) fallbacks: Vec<Fallback>,
}

const MODES: [XdpMode; 3] = [XdpMode::ZeroCopy, XdpMode::Native, XdpMode::Generic];

/// Opens sockets on all queues of the interface, shared out among `workers`, and attaches the program.
pub(super) fn open(config: &XdpConfig, port: u16, workers: usize) -> Result<Opened, Error> {
    let mut ports = config.ports.clone();
    ports.push(port);
    let filter = FilterConfig { ports, esp: config.esp, ..FilterConfig::default() };
    let mut resolver = Resolver::new(&config.interface, config.mark, filter)?;
    let Some(link) = resolver.link().cloned() else {
        return Err(none(config, "there is no such Ethernet interface"));
    };
    let wanted = link.mtu_bytes + ETHERNET_BYTES;
    let frame_bytes = frames::frame_bytes(wanted);
    let most = frame_bytes - KERNEL_HEADROOM;
    let mut fallbacks = Vec::new();
    if wanted > most {
        let reason =
            format!("frames of {wanted} bytes do not fit {most}; larger ones go through the sockets");
        fallbacks.push(Fallback::new("xdp-jumbo-frames", reason));
    }
    let plan = Plan { config, link: &link, workers, frame_bytes };
    let (mode, parts, attachment) = plan.best(&mut resolver, &mut fallbacks)?;
    let attachment = Arc::new(attachment);
    let all = || parts.iter().flat_map(|part| &part.sockets);
    if all().any(|socket| !socket.has_budget) && mode != XdpMode::ZeroCopy {
        let reason = "the kernel does not have it (Linux 6.17); 32 frames leave by a system call";
        fallbacks.push(Fallback::new("xdp-tx-budget", reason));
    }
    if all().count() < workers {
        let reason = format!(
            "{} has {} queues for {workers} workers; the others send through the sockets",
            config.interface,
            all().count()
        );
        fallbacks.push(Fallback::new("xdp-queues", reason));
    }
    let routes = Arc::new(Routes::start(resolver, Arc::clone(&attachment))?);
    for socket in all() {
        let fail = |error| Error::kernel(format!("cannot lead queue {} to its socket", socket.queue), error);
        attachment.set(socket.queue, socket.as_fd()).map_err(fail)?;
    }
    Ok(Opened { mode, parts, attachment, routes, fallbacks })
}

fn none(config: &XdpConfig, reason: impl Into<String>) -> Error {
    Error::NoXdp { name: config.interface.clone(), reason: reason.into() }
}

struct Plan<'a> {
    config: &'a XdpConfig,
    link: &'a LinkState,
    workers: usize,
    frame_bytes: usize,
}

impl Plan<'_> {
    /// Tries the modes from the wanted one on.
    fn best(
        &self,
        resolver: &mut Resolver,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(XdpMode, Vec<Part>, Attachment), Error> {
        let mut native = None;
        let mut last = String::new();
        for mode in MODES.into_iter().filter(|mode| (self.config.mode..=self.config.least).contains(mode)) {
            let (hook, copying) = match mode {
                XdpMode::ZeroCopy => (Hook::Native, Copying::Never),
                XdpMode::Native => (Hook::Native, Copying::Always),
                XdpMode::Generic => (Hook::Generic, Copying::Always),
            };
            let attachment = match native.take().filter(|_| hook == Hook::Native) {
                Some(attachment) => Ok(attachment),
                None => self.attach(resolver, hook),
            };
            let reason = match attachment {
                Ok(attachment) => match self.bind(copying) {
                    Ok(parts) => return Ok((mode, parts, attachment)),
                    Err(error) => {
                        native = Some(attachment);
                        error.to_string()
                    }
                },
                Err(error @ (Error::ForeignProgram { .. } | Error::NotPermitted { .. })) => {
                    return Err(error);
                }
                Err(error) => error.to_string(),
            };
            let feature = match mode {
                XdpMode::ZeroCopy => "xdp-zero-copy",
                XdpMode::Native => "xdp-native",
                XdpMode::Generic => "xdp-generic",
            };
            last.clone_from(&reason);
            fallbacks.push(Fallback::new(feature, reason));
        }
        Err(none(self.config, last))
    }

    fn attach(&self, resolver: &mut Resolver, hook: Hook) -> Result<Attachment, Error> {
        let most = u16::try_from(self.frame_bytes - KERNEL_HEADROOM).unwrap_or(u16::MAX);
        resolver.set_frames(most, hook == Hook::Native);
        let queues = self.link.queues.max(1);
        Attachment::new(&self.config.interface, self.link.index, queues, hook, resolver.filter())
    }

    /// Opens the sockets of all workers: queue *i* is worker *i mod workers*'s.
    fn bind(&self, copying: Copying) -> Result<Vec<Part>, Error> {
        let queues = self.queues()?;
        (0..self.workers)
            .map(|worker| {
                let queues = (0..queues).filter(|queue| *queue as usize % self.workers == worker).collect();
                self.bind_worker(queues, copying)
            })
            .collect()
    }

    fn queues(&self) -> Result<u32, Error> {
        let name = &self.config.interface;
        let fail = |error| Error::kernel(format!("cannot count the queues of {name}"), error);
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).map_err(fail)?;
        channels::receive_queues(socket, name).map_err(fail)
    }

    fn bind_worker(&self, queues: Vec<u32>, copying: Copying) -> Result<Part, Error> {
        let size = self.config.ring_frames.max(64).next_power_of_two();
        // As many frames as the fill rings take, and as many for what is sent and what is in our hands.
        let count = size as usize * (queues.len() + 1);
        let fail = |error| Error::kernel("cannot make frames", error);
        let frames =
            Frames::new(if queues.is_empty() { 1 } else { count }, self.frame_bytes).map_err(fail)?;
        let mut sockets: Vec<QueueSocket> = Vec::with_capacity(queues.len());
        for queue in queues {
            let first = sockets.first().map(|socket| socket.as_fd());
            let registration = first.map_or(Registration::First(copying), Registration::Shared);
            let socket = QueueSocket::open(&frames, size, self.link.index, queue, registration);
            let fail = |error| Error::kernel(format!("cannot bind an AF_XDP socket to queue {queue}"), error);
            sockets.push(socket.map_err(fail)?);
        }
        Ok(Part { sockets, frames })
    }
}
