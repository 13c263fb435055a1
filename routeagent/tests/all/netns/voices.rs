//! Gateways of cluster `a` as far as route agents hear them: what they say of each other.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trieste_control::notice::message::challenge;
use trieste_control::notice::{Answer, GatewayKey, Sender, SigningKey, State, Subscribers, Word};
use zeroize::Zeroizing;

use super::lab::Lab;

/// A gateway's voice. Falls silent when it is dropped.
pub(crate) struct Voice {
    word: Arc<Mutex<Word>>,
    agents: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The key that agents check a voice with, in base64.
pub(crate) fn key(seed: u8) -> String {
    STANDARD.encode(signing(seed).public().0)
}

fn signing(seed: u8) -> SigningKey {
    SigningKey::from_seed(&Zeroizing::new([seed; 32]))
}

impl Voice {
    /// The gateway with this cable speaks from a node's address.
    pub(crate) fn start(lab: &Lab, place: &str, address: &str, cable: &str, seed: u8) -> Self {
        let socket = lab.inside(place, || UdpSocket::bind((address, 4801))).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let word = Word { state: State::Up, health: 255, siblings: BTreeMap::new() };
        let (word, agents) = (Arc::new(Mutex::new(word)), Arc::new(AtomicUsize::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        let boot = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let sender = Sender::new(GatewayKey::of_cable(cable), signing(seed), boot, Instant::now());
        let thread = std::thread::spawn({
            let (word, agents, is_over) = (Arc::clone(&word), Arc::clone(&agents), Arc::clone(&is_over));
            move || speak(&socket, sender, &word, &agents, &is_over)
        });
        Self { word, agents, is_over, thread: Some(thread) }
    }

    /// How many agents it tells.
    pub(crate) fn agents(&self) -> usize {
        self.agents.load(Ordering::Relaxed)
    }

    /// Says how it is itself.
    pub(crate) fn say(&self, state: State) {
        self.word.lock().unwrap().state = state;
    }

    /// Says how it finds another one.
    pub(crate) fn say_of(&self, cable: &str, state: State) {
        self.word.lock().unwrap().siblings.insert(GatewayKey::of_cable(cable), state);
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn speak(
    socket: &UdpSocket,
    mut sender: Sender,
    word: &Mutex<Word>,
    agents: &AtomicUsize,
    is_over: &AtomicBool,
) {
    let mut subscribers = Subscribers::new(Zeroizing::new([9; 32]));
    let mut buffer = [0; 512];
    while !is_over.load(Ordering::Relaxed) {
        let received = socket.recv_from(&mut buffer);
        let now = Instant::now();
        if let Ok((length, from)) = received {
            match subscribers.take(&buffer[..length], from, now) {
                Answer::Challenge(cookie) => drop(socket.send_to(&challenge(cookie), from)),
                Answer::Welcome => drop(sender.newest().map(|newest| socket.send_to(newest, from))),
                Answer::Renewed | Answer::Nothing => {}
            }
        }
        agents.store(subscribers.len(), Ordering::Relaxed);
        sender.update(&word.lock().unwrap(), now);
        let told: Vec<SocketAddr> = subscribers.iter().collect();
        while let Some(datagram) = sender.poll_transmit(now) {
            told.iter().for_each(|agent| drop(socket.send_to(datagram, agent)));
        }
    }
}
