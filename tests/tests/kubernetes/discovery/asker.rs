//! A DNS server in this process, and clients that ask it all the time.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;
use trieste_control::store::KubeStore;
use trieste_discovery::dns::follow::{Progress, follow};
use trieste_discovery::dns::udp;
use trieste_dns::{Label, Settings, Writer, Zone};

/// Answers for west, from its API server's objects.
pub(super) fn serve(runtime: &Runtime, store: &KubeStore) -> udp::Worker {
    let west = Label::new("west").unwrap();
    let (writer, records) = Writer::new(west.clone());
    let (progress, followed) = (watch::Sender::new(Progress::default()), store.clone());
    runtime.spawn(async move { follow(&followed, "", west, writer, &progress).await });
    let settings = Settings::new(vec![Zone::new("clusterset.local").unwrap()], 5).unwrap();
    udp::begin("127.0.0.1:0".parse().unwrap(), 1, &records, &Arc::new(settings)).unwrap().remove(0)
}

pub(super) fn client(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    // As resolvers have it: on a busy machine a thread may wait for its turn.
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Asks for the addresses of a service.
///
/// # Errors
/// What came instead of one.
pub(super) fn ask(client: &UdpSocket, service: &str) -> Result<Vec<String>, String> {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [service, "shop", "svc", "clusterset", "local"] {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    client.send(&query).map_err(|error| error.to_string())?;
    let mut reply = [0; 512];
    client.recv(&mut reply).map_err(|error| error.to_string())?;
    // Behind the question, each record has a pointer to it.
    let records = reply[query.len()..].chunks(16).take(usize::from(reply[7]));
    match (reply[3] & 0xf, reply[7]) {
        (0, 1..) => Ok(records
            .map(|record| record[12..].iter().map(u8::to_string).collect::<Vec<_>>().join("."))
            .collect()),
        (code, count) => Err(format!("code {code}, {count} records")),
    }
}

/// Somebody who asks for one service all the time.
pub(super) struct Asker {
    is_over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Asker {
    /// Begins to ask. An answer that has another address than these is wrong, if any are named.
    pub(super) fn start(server: SocketAddr, service: &'static str, right: &'static [&'static str]) -> Self {
        let (is_over, asked, failed) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<String>>>::default());
        let shared = (Arc::clone(&is_over), Arc::clone(&asked), Arc::clone(&failed));
        let thread = std::thread::spawn(move || {
            let (is_over, asked, failed) = shared;
            let (client, begun) = (client(server), Instant::now());
            while !is_over.load(Ordering::Relaxed) {
                asked.fetch_add(1, Ordering::Relaxed);
                let is_right = |address: &String| right.is_empty() || right.contains(&address.as_str());
                let wrong = match ask(&client, service) {
                    Ok(addresses) => (!addresses.iter().all(is_right)).then(|| addresses.join(", ")),
                    Err(found) => Some(found),
                };
                failed
                    .lock()
                    .unwrap()
                    .extend(wrong.map(|found| format!("{found} after {:.1?}", begun.elapsed())));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { is_over, asked, failed, thread }
    }

    /// Returns how many queries there were, and what was wrong with some.
    pub(super) fn stop(self) -> (u64, Vec<String>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let failed = std::mem::take(&mut *self.failed.lock().unwrap());
        (self.asked.load(Ordering::Relaxed), failed)
    }
}
