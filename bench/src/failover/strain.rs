//! What must not be taken for a death: gateways that are starved and packets that are late, for minutes, beside a load.

use std::time::{Duration, Instant};

use serde::Serialize;
use trieste_tests::flow::{FlowSpec, Outages, Probing};
use trieste_tests::interrupt::pause;
use trieste_tests::mesh::Mesh;
use trieste_tests::mesh::strain::{Spikes, Stalls};

/// For so long the process of a gateway stands still, and then runs.
const STALL: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(200)];
/// For so long another gateway's packets are held, and then pass.
const SPIKE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(900)];

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Strained {
    seconds: u64,
    /// How often a gateway stood still for 50 ms, and another one's packets were held for 100 ms.
    stalls: u32,
    spikes: u32,
    /// How often any path of any gateway was taken for dead, or came back.
    path_changes: u64,
    flows: usize,
    sent: u64,
    lost: u64,
    longest_ms: f64,
}

/// Starves the first cluster's first gateway and delays what the second's last one gets, for `duration`.
///
/// # Errors
/// When a fault cannot be made, or a gateway does not say how its paths are.
pub(super) fn run(mesh: &Mesh, flows: &[FlowSpec], duration: Duration) -> anyhow::Result<Strained> {
    let [near, far] = [&mesh.sides[0], &mesh.sides[1]];
    let starved = near.gateway(0)?.id();
    let last = far.plan().gateways().len() - 1;
    let spikes_on = Spikes::on(&mesh.plan.wan, far.gateway_node(last).wan_port())?;
    let before = changes(mesh)?;
    let probing = Probing::start(flows)?;
    pause(Duration::from_millis(500))?;
    probing.mark();
    let stalls = Stalls::start(starved, STALL[0], STALL[1]);
    let (start, mut spikes) = (Instant::now(), 0);
    while start.elapsed() < duration {
        spikes_on.hold(SPIKE[0])?;
        pause(SPIKE[1])?;
        spikes += 1;
        if spikes % 30 == 0 {
            eprintln!(
                "{} s: paths have changed {} times",
                start.elapsed().as_secs(),
                changes(mesh)? - before
            );
        }
    }
    let stalls = stalls.finish().times;
    let outages = probing.finish();
    let path_changes = changes(mesh)? - before;
    Ok(Strained::new(start.elapsed(), (stalls, spikes), path_changes, &outages))
}

/// How often any path of any gateway has changed its state.
fn changes(mesh: &Mesh) -> anyhow::Result<u64> {
    let gateways = mesh
        .sides
        .iter()
        .flat_map(|side| (0..side.plan().gateways().len()).map(move |gateway| (side, gateway)));
    gateways.map(|(side, gateway)| side.path_changes(gateway)).sum()
}

impl Strained {
    fn new(took: Duration, (stalls, spikes): (u32, u32), path_changes: u64, outages: &Outages) -> Self {
        Self {
            seconds: took.as_secs(),
            stalls,
            spikes,
            path_changes,
            flows: outages.flows.len(),
            sent: outages.flows.iter().map(|flow| u64::from(flow.sent)).sum(),
            lost: u64::from(outages.lost()),
            longest_ms: outages.longest().as_secs_f64() * 1e3,
        }
    }

    /// The result for people.
    pub(super) fn text(&self) -> String {
        format!(
            "{} s: one gateway stood still for 50 ms {} times, the packets to another one were held for 100 ms {} times\n\
             changes of paths: {}{}\n{} flows: {} of {} datagrams lost, longest silence {:.1} ms\n",
            self.seconds,
            self.stalls,
            self.spikes,
            self.path_changes,
            if self.path_changes > 0 { "  MISSED: wanted none" } else { "" },
            self.flows,
            self.lost,
            self.sent,
            self.longest_ms,
        )
    }
}
