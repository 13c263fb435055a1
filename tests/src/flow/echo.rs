//! Sends every datagram back to where it came from.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;

use crate::netns::Namespace;

/// How often a waiting thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);

/// Echoes UDP in a namespace, on one port of all addresses, until it is dropped.
#[derive(Debug)]
pub struct Echo {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts on this port; 0 lets the kernel choose.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn start(at: &Namespace, port: u16) -> anyhow::Result<Self> {
        let socket = at.enter(|| UdpSocket::bind(("::", port)).context("a UDP socket"))?;
        let port = socket.local_addr()?.port();
        super::make_room(&socket)?;
        socket.set_read_timeout(Some(TICK))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            super::go_first();
            let mut datagram = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                let Ok((count, peer)) = socket.recv_from(&mut datagram) else { continue };
                // What cannot be sent back is lost, as on any other hop.
                let _ = socket.send_to(&datagram[..count], peer);
            }
        });
        Ok(Self { port, is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
