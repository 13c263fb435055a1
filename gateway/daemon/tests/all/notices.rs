//! Notices to many route agents: everybody hears of a change at once, and what that costs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use trieste_control::conditions::Conditions;
use trieste_control::notice::message::{Datagram, hello, parse};
use trieste_control::notice::{GatewayKey, PublicKey, State};
use trieste_gateway::notice::{Notices, Stage};
use trieste_packet::CableId;
use trieste_pipeline::{Board, PathState};

const AGENTS: u16 = 1_000;
/// Longer than an answer takes.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// One route agent.
struct Agent(UdpSocket);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thousand_agents_hear_of_a_change_at_once_and_of_everything_every_second() {
    // Sockets carry a mark.
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the gateway's notices need root");
        return;
    }
    let (board, sibling, cable) = (Board::new(), GatewayKey::of_cable("second"), CableId(5));
    board.set_state(cable, PathState::Up);
    let listen = free_port();
    let changes = tokio::sync::watch::Sender::new(0);
    let paths = (std::sync::Arc::clone(&board), changes.subscribe());
    let notices = Notices::start("first", listen, None, paths, Conditions::new()).unwrap();
    notices.set_paths([(sibling, cable)].into(), [].into());
    let key = PublicKey(notices.key());
    let agents: Vec<Agent> = (0..AGENTS).map(|number| Agent::subscribe(number, listen)).collect();
    let begun = Instant::now();
    while notices.numbers().agents != usize::from(AGENTS) {
        let known = notices.numbers().agents;
        assert!(begun.elapsed() < ANSWERED_WITHIN, "{known} of {AGENTS} agents are known");
        std::thread::sleep(Duration::from_millis(1));
    }

    agents.iter().for_each(Agent::forget);
    let (before, sent) = (cpu(), notices.numbers().sent);
    let quiet = Duration::from_secs(5);
    tokio::time::sleep(quiet).await;
    let idle = cpu() - before;
    let rate = (notices.numbers().sent - sent) / quiet.as_secs();
    assert!((800..=1_200).contains(&rate), "{rate} notices a second");

    agents.iter().for_each(Agent::forget);
    let (before, changed) = (cpu(), Instant::now());
    board.set_state(cable, PathState::Down);
    changes.send_replace(board.generation());
    let bytes = agents.iter().map(|agent| agent.hears_that(sibling, &key)).max().unwrap();
    let all = changed.elapsed();
    let change = cpu() - before;
    eprintln!(
        "{AGENTS} agents: {:.2} % of a core and {} bytes a second while nothing changes; a change is heard by the last \
         one after {all:?} (which includes the agents' own work), and costs {change:?} of CPU time, agents included",
        idle.as_secs_f64() / quiet.as_secs_f64() * 100.0,
        rate * (bytes as u64 + 28),
    );
    assert_eq!(notices.numbers().failed, 0);
    notices.set_stage(Stage::Draining);
    agents.iter().for_each(|agent| agent.hears_state(State::Draining));
}

impl Agent {
    /// Says hello, with the cookie that is asked for, until it is told.
    fn subscribe(number: u16, gateway: SocketAddr) -> Self {
        let [high, low] = number.to_be_bytes();
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 9, high, low), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let agent = Self(socket);
        agent.0.send_to(&hello(None), gateway).unwrap();
        let (begun, mut buffer) = (Instant::now(), [0; 300]);
        loop {
            // The gateway may not listen yet.
            let Ok(length) = agent.0.recv(&mut buffer) else {
                assert!(begun.elapsed() < ANSWERED_WITHIN, "agent {number} is not answered");
                agent.0.send_to(&hello(None), gateway).unwrap();
                continue;
            };
            match parse(&buffer[..length]).unwrap() {
                Datagram::Challenge(cookie) => drop(agent.0.send_to(&hello(Some(cookie)), gateway).unwrap()),
                Datagram::Notice(_) => break,
                Datagram::Hello(_) => panic!("a gateway says hello"),
            }
        }
        agent.0.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        agent
    }

    /// Drops what has come until now.
    fn forget(&self) {
        self.0.set_nonblocking(true).unwrap();
        while self.0.recv(&mut [0; 300]).is_ok() {}
        self.0.set_nonblocking(false).unwrap();
    }

    /// Waits for a notice that calls a gateway down; returns its length.
    fn hears_that(&self, sibling: GatewayKey, key: &PublicKey) -> usize {
        let (begun, mut buffer) = (Instant::now(), [0; 300]);
        while begun.elapsed() < ANSWERED_WITHIN {
            let length = self.0.recv(&mut buffer).unwrap();
            let Some(Datagram::Notice(signed)) = parse(&buffer[..length]) else { panic!("no notice") };
            if signed.notice.siblings.get(&sibling) == Some(&State::Down) {
                assert!(signed.is_by(key));
                return length;
            }
        }
        panic!("no notice calls {sibling:?} down");
    }

    fn hears_state(&self, state: State) {
        let (begun, mut buffer) = (Instant::now(), [0; 300]);
        while begun.elapsed() < ANSWERED_WITHIN {
            let length = self.0.recv(&mut buffer).unwrap();
            if let Some(Datagram::Notice(signed)) = parse(&buffer[..length])
                && signed.notice.state == state
            {
                return;
            }
        }
        panic!("no notice has {state:?}");
    }
}

/// A port that nobody has at present.
fn free_port() -> SocketAddr {
    let address: IpAddr = Ipv4Addr::LOCALHOST.into();
    UdpSocket::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// CPU time of this process.
/// CPU time of the process: of this test, if it is run alone.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap())
}
