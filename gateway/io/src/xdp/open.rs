//! Opening: an interface is taken, and the thread started that keeps it.

use std::sync::Arc;

use super::config::XdpConfig;
use super::filter::FilterConfig;
use super::plan::{Part, Plan};
use super::resolver::Resolver;
use super::routes::Routes;
use crate::{Error, Fallback};

/// What a group shares, and each worker's part.
pub(super) struct Opened {
    pub(super) parts: Vec<Part>,
    pub(super) routes: Arc<Routes>,
    pub(super) fallbacks: Vec<Fallback>,
}

/// Opens sockets on all queues of the interface, shared out among `workers`, attaches the program, and lets what is ours come.
pub(super) fn open(config: &XdpConfig, port: u16, workers: usize) -> Result<Opened, Error> {
    let mut ports = config.ports.clone();
    ports.push(port);
    let filter = FilterConfig { ports, esp: config.esp, ..FilterConfig::default() };
    let mut resolver = Resolver::new(&config.interface, config.mark, filter)?;
    let plan = Plan { config: config.clone(), workers };
    let mut taken = plan.take(&mut resolver, 0)?;
    let routes = Arc::new(Routes::start(resolver, plan, taken.held)?);
    for part in &mut taken.parts {
        part.lead()?;
    }
    Ok(Opened { parts: taken.parts, routes, fallbacks: taken.fallbacks })
}
