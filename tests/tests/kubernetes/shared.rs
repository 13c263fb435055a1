//! One API server for all tests that neither break it nor look at what others have there: each has names of its own. It
//! comes up for the first of them, and goes when none of them runs or waits for its turn any more.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use trieste_tests::guard::{Turn, root_test};
use trieste_tests::kubernetes::{ApiServer, objects};
use trieste_tests::lab::Lab;

static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// The server, with the definitions of a Submariner installation.
struct Shared {
    server: ApiServer,
    _lab: Lab,
}

/// The right to use it for the length of a test.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    _turn: Turn,
}

/// Waits for a test's turn and for the server. `None` if the test has to be skipped.
pub(crate) fn server(test: &str) -> Option<Lease> {
    let lock = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let waits_with_it = lock().upgrade();
    let turn = root_test(test)?;
    let mut current = lock();
    let shared = waits_with_it.or_else(|| current.upgrade()).unwrap_or_else(|| {
        let lab = Lab::new().unwrap();
        let server = ApiServer::alone(&lab, "shared").unwrap();
        objects::install_definitions(server.client()).unwrap();
        Arc::new(Shared { server, _lab: lab })
    });
    *current = Arc::downgrade(&shared);
    Some(Lease { shared, _turn: turn })
}

impl Deref for Lease {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.shared.server
    }
}
