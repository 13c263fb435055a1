//! Asks the gateway on this node for its status, over its admin socket: HTTP/1.0, one question, one answer.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use trieste_control::admin::{GatewayStatus, STATUS_PATH};

/// Ours: a gateway answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Ours: longest answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// The status; `Ok(None)` where there is no socket, and a reason where nobody answers.
///
/// # Errors
/// Why there is no answer, for people.
pub fn status(socket: &Path) -> Result<Option<Box<GatewayStatus>>, String> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            return Err(format!("nobody answers at {}: the gateway's process has ended", socket.display()));
        }
        Err(error) => return Err(format!("cannot connect to {}: {error}", socket.display())),
    };
    let answer = ask(stream).map_err(|error| format!("the gateway does not answer: {error}"))?;
    body(&answer).map(Some)
}

fn ask(mut stream: UnixStream) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {STATUS_PATH} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

fn body(answer: &[u8]) -> Result<Box<GatewayStatus>, String> {
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let head = head.ok_or_else(|| "the gateway's answer is no HTTP".to_owned())?;
    let first = answer[..head].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first).into_owned();
    if first.split(' ').nth(1) != Some("200") {
        return Err(format!(
            "the gateway refuses to say its status: {}",
            first.chars().take(80).collect::<String>()
        ));
    }
    serde_json::from_slice(&answer[head + 4..])
        .map(Box::new)
        .map_err(|error| format!("the gateway's status cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const STATUS: &str = r#"{"version":"1","pid":7,"started":"2026-11-21T05:48:28Z","cluster":"a","hostname":"h",
        "haStatus":"active","endpoint":{"cluster_id":"a","cable_name":"c","hostname":"h","subnets":[],
        "private_ip":"10.0.0.1","backend":"wireguard"}}"#;

    fn answered(answer: String) -> Result<Option<Box<GatewayStatus>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /v1/status HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let status = status(&path);
        server.join().unwrap();
        status
    }

    #[test]
    fn a_gateway_says_its_status() {
        let status = answered(format!("HTTP/1.0 200 OK\r\na: b\r\n\r\n{STATUS}")).unwrap().unwrap();
        assert_eq!((status.cluster.as_str(), status.pid), ("a", 7));
    }

    #[test]
    fn what_is_no_status_is_explained() {
        let error = answered("HTTP/1.0 503 No\r\n\r\n".to_owned()).unwrap_err();
        assert!(error.contains("503 No"), "{error}");
        assert!(answered("HTTP/1.0 200 OK\r\n\r\n{}".to_owned()).is_err());
        assert!(answered(String::new()).is_err());
    }

    #[test]
    fn no_socket_is_no_gateway_and_a_dead_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        assert_eq!(status(&path), Ok(None));
        drop(UnixListener::bind(&path).unwrap());
        assert!(status(&path).unwrap_err().contains("has ended"));
    }
}
