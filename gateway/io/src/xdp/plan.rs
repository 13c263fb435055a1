//! Taking an interface: the best mode that it and the kernel offer, with a reason for each step down.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use super::attach::Attachment;
use super::bpf::Hook;
use super::channels;
use super::config::XdpConfig;
use super::filter::ETHERNET_BYTES;
use super::frames::{self, Frames, KERNEL_HEADROOM};
use super::receive;
use super::resolver::Resolver;
use super::socket::{Copying, QueueSocket, Registration, retry_while};
use crate::rings::{StepDown, XdpCounters, XdpMode};
use crate::{Error, Fallback};

/// The most bytes of one worker's frames, which are pinned: with many queues their rings are shorter. Ours.
const MOST_BYTES: usize = 128 << 20;

/// One worker's part.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) sockets: Vec<QueueSocket>,
    pub(super) frames: Frames,
    pub(super) mode: XdpMode,
    pub(super) steps: Arc<[StepDown]>,
    /// No queue leads to its socket before the worker calls [`Self::lead`]. `None` once the part was released.
    pub(super) held: Option<Held>,
    /// Counts the openings; hops of another one are not for these sockets.
    pub(super) generation: u32,
}

/// The program of an opening, which is detached when the last one of these goes.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) attachment: Arc<Attachment>,
    /// Goes after the program: whoever sees the last one go finds that detached.
    pub(super) token: Arc<()>,
}

impl Part {
    /// Gives the kernel frames and leads the queues to their sockets: from here on what is ours does not come to the kernel.
    ///
    /// # Errors
    /// The kernel's, for the first queue that cannot be led.
    pub(super) fn lead(&mut self) -> Result<(), Error> {
        for socket in &mut self.sockets {
            receive::refill(socket, &mut self.frames, &mut XdpCounters::default());
            let fail =
                |error| Error::kernel(format!("cannot lead queue {} to its socket", socket.queue), error);
            if let Some(Held { attachment, .. }) = &self.held {
                attachment.set(socket.queue, socket.as_fd()).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// Leaves the queues to the kernel; the program stays while other workers do.
    pub(super) fn detach(&self) {
        let Some(Held { attachment, .. }) = &self.held else { return };
        for socket in &self.sockets {
            attachment.clear(socket.queue);
        }
    }

    /// Closes the sockets and gives up frames and program. Frames that are in use free their memory when they come home.
    pub(super) fn release(&mut self) {
        self.detach();
        self.sockets.clear();
        self.frames = Frames::none();
        self.held = None;
    }
}

/// What is wanted of an interface, as often as it is opened.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) config: XdpConfig,
    pub(super) workers: usize,
}

/// An interface that was taken: the program is attached, and every worker has its part.
pub(super) struct Taken {
    pub(super) parts: Vec<Part>,
    pub(super) held: Held,
    pub(super) fallbacks: Vec<Fallback>,
}

impl Plan {
    /// Attaches the program and opens sockets on all queues of the interface, shared out among the workers.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`], [`Error::NotPermitted`], and [`Error::NoXdp`] where no mode works.
    pub(super) fn take(&self, resolver: &mut Resolver, generation: u32) -> Result<Taken, Error> {
        let Some(link) = resolver.link().cloned() else {
            return Err(self.none("there is no such Ethernet interface".to_owned(), Vec::new()));
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
        let attempt = Attempt { plan: self, index: link.index, queues: link.queues, frame_bytes, generation };
        let (parts, held) = attempt.best(resolver, &mut fallbacks)?;
        let all = || parts.iter().flat_map(|part| &part.sockets);
        let is_copying = parts.first().is_some_and(|part| part.mode != XdpMode::ZeroCopy);
        if is_copying && all().any(|socket| !socket.has_budget) {
            let reason = "the kernel does not have it (Linux 6.17); 32 frames leave by a system call";
            fallbacks.push(Fallback::new("xdp-tx-budget", reason));
        }
        if all().count() < self.workers {
            let reason = format!(
                "{} has {} queues for {} workers; the others send through the sockets",
                self.config.interface,
                all().count(),
                self.workers
            );
            fallbacks.push(Fallback::new("xdp-queues", reason));
        }
        Ok(Taken { parts, held, fallbacks })
    }

    fn none(&self, reason: String, steps: Vec<StepDown>) -> Error {
        Error::NoXdp { name: self.config.interface.clone(), reason, steps }
    }
}

/// One opening of an interface as it is now.
struct Attempt<'a> {
    plan: &'a Plan,
    index: u32,
    /// Those that the interface can have; not all of them are in use.
    queues: u32,
    frame_bytes: usize,
    generation: u32,
}

impl Attempt<'_> {
    /// Tries the modes from the wanted one on.
    fn best(
        &self,
        resolver: &mut Resolver,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(Vec<Part>, Held), Error> {
        let (mut native, mut steps) = (None, Vec::new());
        let XdpConfig { mode: wanted, least, .. } = self.plan.config;
        for mode in XdpMode::ALL.into_iter().filter(|mode| (wanted..=least).contains(mode)) {
            let (hook, copying) = match mode {
                XdpMode::ZeroCopy => (Hook::Native, Copying::Never),
                XdpMode::Native => (Hook::Native, Copying::Always),
                XdpMode::Generic => (Hook::Generic, Copying::Always),
            };
            let attachment = match native.take().filter(|_| hook == Hook::Native) {
                Some(attachment) => Ok(attachment),
                None => self.attach(resolver, hook),
            };
            let error = match attachment {
                Ok(attachment) => match self.bind(copying) {
                    Ok(bound) => {
                        let held = Held { attachment: Arc::new(attachment), token: Arc::new(()) };
                        return Ok((self.parts(bound, mode, steps, &held), held));
                    }
                    Err(error) => {
                        native = Some(attachment);
                        error
                    }
                },
                Err(error @ (Error::ForeignProgram { .. } | Error::NotPermitted { .. })) => {
                    return Err(error);
                }
                Err(error) => error,
            };
            let feature = match mode {
                XdpMode::ZeroCopy => "xdp-zero-copy",
                XdpMode::Native => "xdp-native",
                XdpMode::Generic => "xdp-generic",
            };
            fallbacks.push(Fallback::new(feature, error.to_string()));
            steps.push(StepDown { mode, cause: error.step_cause(), reason: error.to_string() });
        }
        let reason = steps.last().map_or_else(|| "no mode is wanted".to_owned(), |step| step.reason.clone());
        Err(self.plan.none(reason, steps))
    }

    fn parts(
        &self,
        bound: Vec<(Vec<QueueSocket>, Frames)>,
        mode: XdpMode,
        steps: Vec<StepDown>,
        held: &Held,
    ) -> Vec<Part> {
        let steps: Arc<[StepDown]> = steps.into();
        let part = |(sockets, frames)| Part {
            sockets,
            frames,
            mode,
            steps: Arc::clone(&steps),
            held: Some(held.clone()),
            generation: self.generation,
        };
        bound.into_iter().map(part).collect()
    }

    fn attach(&self, resolver: &mut Resolver, hook: Hook) -> Result<Attachment, Error> {
        let most = u16::try_from(self.frame_bytes - KERNEL_HEADROOM).unwrap_or(u16::MAX);
        resolver.set_frames(most, hook == Hook::Native);
        let (name, queues) = (&self.plan.config.interface, self.queues.max(1));
        Attachment::new(name, self.index, queues, hook, &resolver.filter())
    }

    /// Opens the sockets of all workers: queue *i* is worker *i mod workers*'s.
    fn bind(&self, copying: Copying) -> Result<Vec<(Vec<QueueSocket>, Frames)>, Error> {
        let queues = self.queues()?;
        let workers = self.plan.workers;
        (0..workers)
            .map(|worker| {
                let queues = (0..queues).filter(|queue| *queue as usize % workers == worker).collect();
                self.bind_worker(queues, copying)
            })
            .collect()
    }

    fn queues(&self) -> Result<u32, Error> {
        let name = &self.plan.config.interface;
        let fail = |error| Error::kernel(format!("cannot count the queues of {name}"), error);
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).map_err(fail)?;
        channels::receive_queues(socket, name).map_err(fail)
    }

    fn bind_worker(&self, queues: Vec<u32>, copying: Copying) -> Result<(Vec<QueueSocket>, Frames), Error> {
        let wanted = self.plan.config.ring_frames.max(64).next_power_of_two();
        let most = MOST_BYTES / (self.frame_bytes * (queues.len() + 1));
        let fitting = u32::try_from(most.max(64)).map_or(wanted, |most| 1 << most.ilog2());
        let size = wanted.min(fitting);
        // As many frames as the fill rings take, and as many for what is sent and what is in our hands.
        let count = size as usize * (queues.len() + 1);
        let fail = |error| Error::kernel("cannot make frames", error);
        let frames =
            Frames::new(if queues.is_empty() { 1 } else { count }, self.frame_bytes).map_err(fail)?;
        let mut sockets: Vec<QueueSocket> = Vec::with_capacity(queues.len());
        for queue in queues {
            let first = sockets.first().map(|socket| socket.as_fd());
            let registration = first.map_or(Registration::First(copying), Registration::Shared);
            let open = || QueueSocket::open(&frames, size, self.index, queue, registration);
            // Memory of a former opening counts for a little longer: to go on with a lesser mode for that would be for good.
            let is_passing =
                |error: &io::Error| self.generation > 0 && error.kind() == io::ErrorKind::OutOfMemory;
            let fail = |error| Error::kernel(format!("cannot bind an AF_XDP socket to queue {queue}"), error);
            sockets.push(retry_while(is_passing, open).map_err(fail)?);
        }
        Ok((sockets, frames))
    }
}
