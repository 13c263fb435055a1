//! The log lines of a period, for tests.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// Takes down what is logged on this thread, of everything, from its beginning to its end.
pub(super) struct Logged {
    lines: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Logged {
    /// Begins with everything that is as important as `level`.
    pub(super) fn begin(level: Level) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&lines);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(move || Writer(Arc::clone(&writer)))
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Returns what was logged so far.
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.lines.lock().unwrap().clone()).unwrap()
    }

    /// Checks that something was logged, that it has no long line, and nothing of `mark`.
    pub(super) fn check(&self, row: &str, mark: &str) {
        let text = self.text();
        assert!(!text.is_empty(), "{row}: nothing was logged");
        assert!(!text.contains(mark), "{row}: what was read was logged");
        assert!(text.lines().all(|line| line.len() < 4_096), "{row}: a line of the log is too long");
    }
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
