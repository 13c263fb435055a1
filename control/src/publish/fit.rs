//! A Gateway's status within what an API server takes and readers decode.
//!
//! ```text
//!   1. all connections whole
//!   2. those that are connected in short, the others whole
//!   3. all in short
//!   4. those that are not connected in short, then as many others as there is space for; the rest is counted
//! ```
//!
//! In short, a connection is what readers act on: state, message, addresses and networks, without round trips and the
//! driver's settings. Upstream's DNS answers with a cluster's services where a connection to it is listed as connected, so
//! that these are shortened before any is left out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::{Connection, ConnectionStatus, EndpointSpec, LeftOut, PublishedStatus};
use crate::store::{OBJECT_BYTES, size};

/// Most bytes of a status as JSON. Ours: etcd takes requests of 1.5 MiB by default (`--max-request-bytes`), of which
/// metadata, and what the server notes of who wrote what, take a part.
pub const MAX_STATUS_BYTES: usize = 1 << 20;

/// Most memory of a status once it is decoded: the rest of the object needs some, too.
const MAX_STATUS_MEMORY: usize = OBJECT_BYTES - (1 << 20);

/// Ours: no status is cut to less than that, whatever it holds besides connections.
const LEAST_BYTES: usize = 16 << 10;

/// The parts that a published status lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// How many connections are there in short.
    pub shortened: usize,
    /// How many are not there.
    pub left_out: LeftOut,
}

/// A status as it is written.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) status: Value,
    /// Its length as JSON.
    pub(super) bytes: usize,
    pub(super) cut: Cut,
    /// Whether a Gateway with it has the shape of one.
    pub(super) is_valid: bool,
}

/// Makes a status fit. Connections stay in their order.
///
/// # Panics
/// Never: a status is made of strings, numbers and JSON.
pub(super) fn fit(status: &PublishedStatus) -> Fitted {
    let mut most = MAX_STATUS_BYTES;
    loop {
        let (fitted, bytes, cut) = within(status, most);
        let value = serde_json::to_value(&*fitted).expect("its keys are strings and its values are JSON");
        // Many small texts take more memory than their length says.
        if size::of_value(&value, MAX_STATUS_MEMORY) <= MAX_STATUS_MEMORY || most <= LEAST_BYTES {
            return Fitted { is_valid: fitted.check_shape().is_ok(), status: value, bytes, cut };
        }
        most /= 2;
    }
}

/// Returns a status of at most so many bytes, how many it has, and what it lacks.
fn within(status: &PublishedStatus, most: usize) -> (Cow<'_, PublishedStatus>, usize, Cut) {
    let frame = PublishedStatus {
        version: status.version.clone(),
        ha_status: status.ha_status,
        local_endpoint: status.local_endpoint.clone(),
        status_failure: status.status_failure.clone(),
        connections: Vec::new(),
        extra: status.extra.clone(),
    };
    let around = length(&frame);
    let space = most.saturating_sub(around);
    let whole = lengths(&status.connections);
    let sum = whole.iter().sum::<usize>();
    if sum <= space {
        // There is one comma less than there are connections.
        return (Cow::Borrowed(status), around + sum.saturating_sub(1), Cut::default());
    }
    let (connections, cut) = shortened(&status.connections, &whole, space);
    let fitted = PublishedStatus { connections, ..frame };
    let bytes = length(&fitted);
    (Cow::Owned(fitted), bytes, cut)
}

/// Shortens connections, and leaves some out if that is not enough.
fn shortened(all: &[Connection], whole: &[usize], space: usize) -> (Vec<Connection>, Cut) {
    let mut short: Vec<Connection> = all.iter().map(in_short).collect();
    let brief = lengths(&short);
    let others_whole = |index: usize| if is_connected(&all[index]) { brief[index] } else { whole[index] };
    if (0..all.len()).map(others_whole).sum::<usize>() <= space {
        for (short, whole) in short.iter_mut().zip(all).filter(|(_, whole)| !is_connected(whole)) {
            short.clone_from(whole);
        }
        let shortened = all.iter().filter(|connection| is_connected(connection)).count();
        return (short, Cut { shortened, ..Cut::default() });
    }
    let (others, connected): (Vec<usize>, Vec<usize>) =
        (0..all.len()).partition(|index| !is_connected(&all[*index]));
    let mut left = space;
    let mut is_kept = vec![false; all.len()];
    for index in others.into_iter().chain(connected) {
        if let Some(rest) = left.checked_sub(brief[index]) {
            left = rest;
            is_kept[index] = true;
        }
    }
    let mut cut = Cut::default();
    for (connection, _) in short.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept) {
        let count =
            if is_connected(connection) { &mut cut.left_out.connected } else { &mut cut.left_out.others };
        *count += 1;
    }
    let mut kept = is_kept.into_iter();
    short.retain(|_| kept.next().unwrap_or_default());
    cut.shortened = short.len();
    (short, cut)
}

fn is_connected(connection: &Connection) -> bool {
    connection.status == ConnectionStatus::Connected
}

fn in_short(connection: &Connection) -> Connection {
    let endpoint =
        EndpointSpec { backend_config: BTreeMap::new(), extra: Map::new(), ..connection.endpoint.clone() };
    Connection { endpoint, latency_rtt: None, extra: Map::new(), ..connection.clone() }
}

/// Returns the length of each connection in a list, comma included.
fn lengths(connections: &[Connection]) -> Vec<usize> {
    connections.iter().map(|connection| length(connection) + 1).collect()
}

/// Returns how many bytes a value takes as JSON.
fn length(value: &impl Serialize) -> usize {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, value).expect("its keys are strings and its values are JSON");
    length.0
}

struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
