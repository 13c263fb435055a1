//! An API server of a few paths: enough to read and list, and to write with versions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use kube::{Client, Config};
use serde_json::{Value, json};

use crate::checks::Checked;
use crate::facts::Source;

/// The server, as long as the test's process runs.
pub(in crate::checks) struct Fake {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    collections: BTreeSet<String>,
    objects: BTreeMap<String, Value>,
    refusals: BTreeMap<String, u16>,
    /// What somebody else makes of an object before it is replaced.
    intrusion: Option<(String, Value)>,
    writes: Vec<(String, String, Value)>,
}

impl Fake {
    pub(in crate::checks) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            // Each by itself: one that connects and asks for nothing holds up no other.
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, state }
    }

    /// Serves a kind, with these objects.
    pub(in crate::checks) fn list(&self, path: &str, objects: &[Value]) {
        self.state.lock().unwrap().collections.insert(path.to_owned());
        for object in objects {
            self.put(&format!("{path}/{}", object["metadata"]["name"].as_str().unwrap()), object.clone());
        }
    }

    /// Puts an object there.
    pub(in crate::checks) fn put(&self, path: &str, object: Value) {
        self.state.lock().unwrap().objects.insert(path.to_owned(), object);
    }

    /// Returns what is there.
    pub(in crate::checks) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(path).cloned()
    }

    /// Refuses a method from now on.
    pub(in crate::checks) fn refuse(&self, method: &str, code: u16) {
        self.state.lock().unwrap().refusals.insert(method.to_owned(), code);
    }

    /// Lets somebody else be faster, once, when an object is replaced.
    pub(in crate::checks) fn before_replacing(&self, path: &str, object: Value) {
        self.state.lock().unwrap().intrusion = Some((path.to_owned(), object));
    }

    /// Returns what was to be written: method, path with query, object.
    pub(in crate::checks) fn writes(&self) -> Vec<(String, String, Value)> {
        self.state.lock().unwrap().writes.clone()
    }

    /// Returns the cluster with this server.
    pub(in crate::checks) fn checked(&self, namespace: &str) -> Checked {
        let config = Config::new(format!("http://{}", self.address).parse().unwrap());
        let client = Client::try_from(config).unwrap();
        Checked::new(Source { client, namespace: namespace.to_owned() }, "c", "")
    }
}

/// Answers one request.
fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (code, answer) = match state.lock().unwrap().answer(method, target, body) {
        Ok(answer) => (200, answer),
        Err(code) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "refused", "reason": "Refused", "code": code});
            (code, status)
        }
    };
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    // The client may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.as_bytes()));
}

impl State {
    fn answer(&mut self, method: &str, target: &str, sent: Value) -> Result<Value, u16> {
        let path = target.split('?').next().unwrap();
        if method != "GET" {
            self.writes.push((method.to_owned(), target.to_owned(), sent.clone()));
        }
        if let Some(code) = self.refusals.get(method) {
            return Err(*code);
        }
        match method {
            "GET" if self.collections.contains(path) => {
                let is_in =
                    |(key, _): &(&String, &Value)| key.rsplit_once('/').is_some_and(|(head, _)| head == path);
                let items: Vec<&Value> =
                    self.objects.iter().filter(is_in).map(|(_, object)| object).collect();
                Ok(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
            }
            "GET" => self.objects.get(path).cloned().ok_or(404),
            "POST" => {
                let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
                self.written(path, sent)
            }
            "PUT" => {
                if let Some((path, object)) = self.intrusion.take() {
                    self.objects.insert(path, object);
                }
                let there = self.objects.get(path).ok_or(404_u16)?;
                if there["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] {
                    return Err(409);
                }
                self.objects.remove(path);
                self.written(path.to_owned(), sent)
            }
            _ => Err(405),
        }
    }

    /// Takes in an object that is not there.
    fn written(&mut self, path: String, mut object: Value) -> Result<Value, u16> {
        if self.objects.contains_key(&path) {
            return Err(409);
        }
        object["metadata"]["resourceVersion"] = json!(format!("w{}", self.writes.len()));
        self.objects.insert(path, object.clone());
        Ok(object)
    }
}
