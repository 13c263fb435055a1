//! Workers, what they share, and what drives them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rand_core::{OsRng, RngCore as _};
use trieste_cables::Site;
use trieste_control::admin::{IoCapability, SnapshotStatus};
use trieste_control::api::EndpointSpec;
use trieste_control::conditions::Conditions;
use trieste_control::store::Location;
use trieste_nat::OwnerKey;
use trieste_packet::{CableId, GatewayKey};
use trieste_pipeline::services::Services;
use trieste_pipeline::{Fleet, Tables};

use crate::capture::CaptureHub;
use crate::config::{Config, Psk};
use crate::devices::Devices;
use crate::engine::Engine;
use crate::globalnet::board::Board;
use crate::globalnet::sessions::{Restored, SessionFiles};
use crate::globalnet::{key, sessions};
use crate::kinds::Made;
use crate::node::Node;
use crate::paths::Paths;
use crate::status::Fixed;
use crate::tables::{Local, Owners};
use crate::threads::{Ended, spawn_workers};
use crate::{ike, node};

/// Workers, what they share, and what drives them.
pub(super) struct PacketPath {
    pub(super) engine: Engine,
    pub(super) ended: Ended,
    pub(super) hub: Arc<CaptureHub>,
    pub(super) names: Arc<ArcSwap<BTreeMap<u16, String>>>,
    pub(super) io: Vec<IoCapability>,
    pub(super) services: Arc<ArcSwap<Services>>,
}

impl PacketPath {
    pub(super) fn start(
        config: &Config,
        node: &Node,
        mut devices: Devices,
        made: Made,
        spec: &EndpointSpec,
        keeps_sessions: bool,
    ) -> anyhow::Result<Self> {
        let names: Arc<ArcSwap<BTreeMap<u16, String>>> = Arc::default();
        let lookup = Arc::clone(&names);
        let hub = CaptureHub::new(node.private_ip, node.udp_port)
            .with_cable_names(move |cable: CableId| lookup.load().get(&cable.0).cloned());
        let hub = Arc::new(hub);
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let paths = Paths::default();
        // Where a route agent is to come: without it, answers of a machine that has just started would leave in clear.
        paths.board.shut(devices.is_new() && matches!(config.store, Location::Kube { .. }));
        let services: Arc<ArcSwap<Services>> = Arc::default();
        let fleet = Fleet::new(GatewayKey::of(&spec.cable_name), OsRng.next_u64(), Instant::now());
        let carried = made.kind.carries_esp().then(|| devices.carry_esp(config));
        if made.kind.identifies_by_address() {
            devices.carry_vxlan();
        }
        let io = devices.capabilities();
        let (workers, ended_sender, ended) = spawn_workers(
            config,
            devices,
            &made.kind,
            &tables,
            &hub,
            keeps_sessions,
            (&paths, &fleet, &services),
        )?;
        let local = Local {
            cluster_id: config.cluster_id.clone(),
            site: Site {
                cable_name: spec.cable_name.clone(),
                private_ip: node.private_ip,
                public_ip: None,
                subnets: config.published_subnets(),
                driver: spec.backend.clone(),
                backend_config: spec.backend_config.clone(),
            },
            // Looked at in the first round of the control loop, and followed from then on.
            icmp_sources: Vec::new(),
            path_mtu: node.path_mtu(config, made.kind.overhead()),
            translation: None,
            allowed: config.allowed.clone(),
            node_addresses: node::addresses(config),
        };
        let [a, b, ..] = OsRng.next_u32().to_le_bytes();
        let slow_half = made.slow_half;
        let ike =
            slow_half.map(|slow_half| ike::spawn(slow_half, workers.clone(), ended_sender)).transpose()?;
        let engine = Engine::new(local, made.kind, tables, workers, u16::from_le_bytes([a, b]))
            .with_ike(ike, carried)
            .with_paths(paths, fleet);
        Ok(Self { engine, ended, hub, names, io, services })
    }
}

/// Who translates what, where sessions are kept, and those of the process before.
pub(super) fn before(
    config: &Config,
    state_dir: Option<&std::path::Path>,
) -> (Owners, Option<SessionFiles>, Restored) {
    let key = key::derive(&config.cluster_id, config.psk.as_ref().map(Psk::expose));
    let owners = Owners { key: OwnerKey(key), workers: config.workers };
    let most = usize::try_from(config.globalnet.max_sessions).unwrap_or(usize::MAX);
    let most = most.saturating_mul(usize::from(config.workers));
    let files = state_dir
        .filter(|_| !config.global_cidrs.is_empty())
        .map(|dir| SessionFiles::new(dir, key::fingerprint(&key), most));
    let restored = files
        .as_ref()
        .map(|files| sessions::restore(files, &config.globalnet, Timestamp::now()))
        .unwrap_or_default();
    (owners, files, restored)
}

/// Where everything about Globalnet is known. The engine gets the sessions of the process before.
pub(super) fn board(
    config: &Config,
    engine: &mut Engine,
    restored: Restored,
    conditions: &Conditions,
) -> Arc<Board> {
    let begun_with = SnapshotStatus { not_restored: restored.expired, ..SnapshotStatus::default() };
    engine.set_sessions(restored.records);
    let workers = engine.workers().to_vec();
    let board = Board::new(!config.global_cidrs.is_empty(), workers, conditions.clone(), begun_with);
    Arc::new(board.with_fleet(Arc::clone(engine.fleet())))
}

/// What does not change while the gateway runs.
pub(super) fn fixed(config: &Config, node: &Node, io: Vec<IoCapability>) -> Fixed {
    let (cluster, hostname) = (config.cluster_id.clone(), node.hostname.clone());
    Fixed { started: Timestamp::now(), cluster, hostname, io }
}
