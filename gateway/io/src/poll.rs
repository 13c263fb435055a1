//! Waiting for several descriptors and for other threads, without allocating.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// Largest token that a descriptor can have.
pub const MAX_TOKEN: u8 = 62;

const WAKER_TOKEN: u64 = 63;
const EVENTS: usize = 16;

/// What to wait for. Errors and hang-ups are always reported, as both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to receive.
    Readable,
    /// Room to send.
    Writable,
    /// Either.
    Both,
    /// Neither; the descriptor stays registered.
    Nothing,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Readable => epoll::EventFlags::IN,
            Self::Writable => epoll::EventFlags::OUT,
            Self::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Self::Nothing => epoll::EventFlags::empty(),
        }
    }
}

/// The descriptors that are ready, by token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    readable: u64,
    writable: u64,
    woken: bool,
}

impl Ready {
    /// Whether the descriptor of `token` has something to receive (or an error to report).
    #[must_use]
    pub fn is_readable(&self, token: u8) -> bool {
        self.readable & (1 << token) != 0
    }

    /// Whether the descriptor of `token` has room to send (or an error to report).
    #[must_use]
    pub fn is_writable(&self, token: u8) -> bool {
        self.writable & (1 << token) != 0
    }

    /// Whether a [`Waker`] was used.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.woken
    }

    /// Whether the time ran out with nothing ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.readable == 0 && self.writable == 0 && !self.woken
    }
}

/// Waits for descriptors, level-triggered: what is not taken is reported again.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    waker: Waker,
}

impl Poller {
    /// Makes a poller with nothing registered but its own waker.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(WAKER_TOKEN), epoll::EventFlags::IN)?;
        Ok(Self { epoll, waker: Waker { event: Arc::new(event) } })
    }

    /// Registers `fd` under `token`, at most [`MAX_TOKEN`]. Several descriptors may share a token. A descriptor
    /// leaves by itself when it is closed for the last time.
    ///
    /// # Errors
    /// When the token is too large, or the descriptor is registered already or cannot be waited for.
    pub fn add(&self, fd: impl AsFd, token: u8, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(token)?, interest.flags())?)
    }

    /// Changes what to wait for.
    ///
    /// # Errors
    /// When the token is too large, or the descriptor is not registered.
    pub fn modify(&self, fd: impl AsFd, token: u8, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, data(token)?, interest.flags())?)
    }

    /// Forgets `fd`.
    ///
    /// # Errors
    /// When it is not registered.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// A handle with which other threads end a `wait`.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until something is ready or `timeout` is over (rounded up to a millisecond); `None` waits for ever.
    /// A signal ends the wait with nothing ready.
    ///
    /// # Errors
    /// Never in practice; the descriptor would have to be broken.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Ready> {
        let timeout = timeout.map(timespec);
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS];
        let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut ready = Ready::default();
        for event in &events[..count] {
            let (flags, data) = (event.flags, event.data);
            if data.u64() == WAKER_TOKEN {
                self.waker.clear();
                ready.woken = true;
                continue;
            }
            let bit = 1u64 << data.u64();
            let is_broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            if is_broken || flags.contains(epoll::EventFlags::IN) {
                ready.readable |= bit;
            }
            if is_broken || flags.contains(epoll::EventFlags::OUT) {
                ready.writable |= bit;
            }
        }
        Ok(ready)
    }
}

/// Ends a [`Poller::wait`] from another thread. Uses before the next wait count as one.
#[derive(Debug, Clone)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// Ends the current wait, or the next one if none is under way.
    pub fn wake(&self) {
        // The only failure is a counter at its end, and then a wake-up is pending anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

fn data(token: u8) -> io::Result<epoll::EventData> {
    if token > MAX_TOKEN {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("token {token} is above {MAX_TOKEN}"),
        ));
    }
    Ok(epoll::EventData::new_u64(u64::from(token)))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn ready_descriptors_are_told_apart_by_token() {
        let mut poller = Poller::new().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        poller.add(&far, 5, Interest::Readable).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());

        near.write_all(b"x").unwrap();
        let ready = poller.wait(None).unwrap();
        assert!(ready.is_readable(5) && !ready.is_writable(5) && !ready.is_readable(4));

        poller.modify(&far, 6, Interest::Writable).unwrap();
        let ready = poller.wait(None).unwrap();
        assert!(ready.is_writable(6) && !ready.is_readable(5));

        poller.modify(&far, 6, Interest::Nothing).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        poller.remove(&far).unwrap();
        assert!(poller.remove(&far).is_err());
    }

    #[test]
    fn a_closed_far_end_is_ready_for_everything() {
        let mut poller = Poller::new().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        poller.add(&far, 0, Interest::Nothing).unwrap();
        drop(near);
        let ready = poller.wait(None).unwrap();
        assert!(ready.is_readable(0) && ready.is_writable(0));
    }

    #[test]
    fn wakers_end_a_wait_once() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        let other = std::thread::spawn(move || {
            waker.wake();
            waker.wake();
        });
        assert!(poller.wait(None).unwrap().is_woken());
        other.join().unwrap();
        let _ = poller.wait(Some(Duration::ZERO)).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }

    #[test]
    fn tokens_out_of_range_are_refused() {
        let poller = Poller::new().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(poller.add(&near, MAX_TOKEN + 1, Interest::Readable).is_err());
    }
}
