//! Asks an HTTP server for nothing but its answer's first line: HEAD, as upstream's check of metrics does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Ours: how long connecting, and each read, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the server said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadReport {
    /// The answer's status; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there was none; empty if there was.
    #[serde(default)]
    pub error: String,
}

/// Asks; blocks.
#[must_use]
pub fn head(to: SocketAddr, path: &str) -> HeadReport {
    match ask(to, path) {
        Ok(first) => match status(&first) {
            Some(status) => HeadReport { status: Some(status), error: String::new() },
            None => HeadReport { status: None, error: "its answer is no HTTP".to_owned() },
        },
        Err(error) => HeadReport { status: None, error: error.to_string() },
    }
}

fn ask(to: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let path: String = path.chars().filter(char::is_ascii_graphic).collect();
    stream
        .write_all(format!("HEAD {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer)?;
    Ok(answer)
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next()?.strip_prefix("HTTP/1.")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_in_the_first_line() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n"), Some(200));
        for wrong in [&b""[..], b"HTTP/1.1", b"SSH-2.0 200", b"\xff\xfe 200"] {
            assert_eq!(status(wrong), None);
        }
    }
}
