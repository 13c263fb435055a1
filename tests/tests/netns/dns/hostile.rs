//! Clients that mean harm: others are answered meanwhile, and memory stays bounded.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use trieste_tests::guard::{root_test, slack};

use super::{Bed, DB, OTHER, SERVER, SERVER_V6, WEB};

/// Most memory that the server may take for whatever is done to it, in bytes.
const MEMORY: u64 = 120 << 20;

fn server() -> SocketAddr {
    SocketAddr::new(SERVER.parse().unwrap(), 53)
}

/// A query of type A with number 7 for a name.
fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    query
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// Reads a framed message.
fn read(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect_timeout(&server(), Duration::from_secs(2)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(8))).unwrap();
    stream
}

#[test]
fn messages_that_make_no_sense_are_survived_and_cost_only_themselves() {
    let name = "messages_that_make_no_sense_are_survived_and_cost_only_themselves";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::with_services();
    let daemon = bed.start(&[]);
    // A name that refers to itself, one to the end of the message, the longest one, and a label of 64 bytes.
    let mut loops = query("x");
    loops.truncate(12);
    loops.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
    let mut outside = loops.clone();
    outside[13] = 0xff;
    let long = query(&format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61)));
    let mut label = query("x");
    label[12] = 64;
    let cases: [(&str, Vec<u8>, Option<u8>); 8] = [
        ("a loop", loops, Some(1)),
        ("a pointer outside", outside, Some(1)),
        ("a name of 255 bytes", long, Some(5)),
        ("a label of 64 bytes", label, Some(1)),
        ("half a header", vec![0, 7, 1], None),
        (
            "a response",
            {
                let mut query = query(WEB);
                query[2] |= 0x80;
                query
            },
            None,
        ),
        ("a datagram of 4 KiB", [query(WEB), vec![0; 4_096]].concat(), None),
        ("nothing", Vec::new(), None),
    ];
    bed.client
        .enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(server())?;
            socket.set_read_timeout(Some(Duration::from_millis(300)))?;
            for (what, message, rcode) in &cases {
                socket.send(message)?;
                let mut reply = [0; 2_048];
                let found = socket.recv(&mut reply).ok().map(|_| reply[3] & 0xf);
                assert_eq!(found, *rcode, "{what}");
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(bed.dig(&[&format!("@{SERVER}"), WEB]).len(), 1);
    assert_eq!(bed.metric("trieste_dns_dropped_total{transport=\"udp\",reason=\"too_long\"}"), 1);
    daemon.check().unwrap();
}

#[test]
fn an_answer_is_never_longer_than_the_client_reads_and_leaves_from_where_it_was_asked() {
    let name = "an_answer_is_never_longer_than_the_client_reads_and_leaves_from_where_it_was_asked";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::with_services();
    let _daemon = bed.start(&[]);
    bed.client
        .enter(|| {
            for address in [SERVER, OTHER, SERVER_V6] {
                let own = if address == SERVER_V6 { "[::]:0" } else { "0.0.0.0:0" };
                // Not connected, so that an answer from elsewhere would be seen.
                let socket = UdpSocket::bind(own)?;
                socket.set_read_timeout(Some(Duration::from_secs(2)))?;
                let to = SocketAddr::new(address.parse()?, 53);
                for size in [None, Some(0_u16), Some(700), Some(1_232), Some(65_535)] {
                    let mut message = query(DB);
                    if let Some(size) = size {
                        let [high, low] = size.to_be_bytes();
                        message[11] = 1;
                        message.extend_from_slice(&[0, 0, 41, high, low, 0, 0, 0, 0, 0, 0]);
                    }
                    socket.send_to(&message, to)?;
                    let mut reply = [0; 4_096];
                    let (length, from) = socket.recv_from(&mut reply)?;
                    assert_eq!(from, to);
                    let most = usize::from(size.unwrap_or(512).clamp(512, 1_232));
                    assert!(length <= most && length > most - 40, "{length} of {most} bytes");
                    assert!(reply[2] & 2 != 0, "truncated, and not said so");
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn clients_of_tcp_that_are_slow_or_many_keep_nobody_from_an_answer() {
    let name = "clients_of_tcp_that_are_slow_or_many_keep_nobody_from_an_answer";
    let Some(_turn) = root_test(name) else { return };
    let bed = Bed::with_services();
    let daemon = bed.start(&[]);
    let message = framed(&query(WEB));
    bed.client
        .enter(|| {
            // Several queries at once, a message of 64 KiB, and another query behind it.
            let mut stream = connect();
            stream.write_all(&message.repeat(20))?;
            for _ in 0..20 {
                assert_eq!(read(&mut stream)?[3] & 0xf, 0);
            }
            stream.write_all(&framed(&[query(WEB), vec![0; 65_000]].concat()))?;
            stream.write_all(&message)?;
            read(&mut stream)?;
            assert_eq!(read(&mut stream)?[7], 1, "a query after a long one");
            // One byte a second is too slow, however long it goes on.
            let begun = Instant::now();
            let mut slow = connect();
            let mut sent = 0;
            let longest = Duration::from_secs(5) + slack();
            while sent < message.len() && slow.write_all(&message[sent..=sent]).is_ok() {
                sent += 1;
                std::thread::sleep(Duration::from_secs(1));
            }
            assert!(sent < message.len(), "all of it was read, for {:?}", begun.elapsed());
            assert!(begun.elapsed() < longest, "it was read for {:?}", begun.elapsed());
            // A client that asks and reads nothing.
            let mut deaf = connect();
            deaf.set_write_timeout(Some(Duration::from_millis(200)))?;
            let questions = framed(&query(DB)).repeat(1_000);
            let begun = Instant::now();
            let longest = Duration::from_secs(12) + slack();
            while begun.elapsed() < longest {
                match deaf.write(&questions) {
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                    Ok(_) | Err(_) => {}
                }
            }
            assert!(begun.elapsed() < longest, "it was never cut");
            // A client takes as many connections as it gets; another one is answered.
            let mut many: Vec<TcpStream> = (0..400).map(|_| connect()).collect();
            let answered =
                many.iter_mut().map(|stream| stream.write_all(&message).and_then(|()| read(stream)));
            let answered = answered.filter(Result::is_ok).count();
            // Those from before may not be over yet.
            assert!((120..=128).contains(&answered), "{answered} connections of one client");
            Ok(())
        })
        .unwrap();
    assert_eq!(bed.dig(&[&format!("@{SERVER_V6}"), "+tcp", WEB]).len(), 1);
    assert!(bed.metric("trieste_dns_dropped_total{transport=\"tcp\",reason=\"client_limit\"}") >= 272);
    assert!(bed.metric("trieste_dns_dropped_total{transport=\"tcp\",reason=\"too_slow\"}") >= 2);
    let memory = daemon.id().resident_bytes().unwrap();
    assert!(memory < MEMORY, "{memory} bytes");
    daemon.check().unwrap();
}

#[test]
fn a_flood_of_random_names_takes_no_memory_and_others_are_answered() {
    let Some(_turn) = root_test("a_flood_of_random_names_takes_no_memory_and_others_are_answered") else {
        return;
    };
    let bed = Bed::with_services();
    let daemon = bed.start(&[]);
    let before = daemon.id().resident_bytes().unwrap();
    let answered = bed
        .client
        .enter(|| {
            let flood = UdpSocket::bind("0.0.0.0:0")?;
            flood.connect(server())?;
            flood.set_nonblocking(true)?;
            let asker = UdpSocket::bind("0.0.0.0:0")?;
            asker.connect(server())?;
            asker.set_read_timeout(Some(Duration::from_secs(1)))?;
            let end = Instant::now() + Duration::from_secs(4);
            let (mut number, mut answered, mut asked) = (0_u64, 0, 0);
            while Instant::now() < end {
                for _ in 0..200 {
                    number += 1;
                    let name = format!("r{number}.{WEB}");
                    let _ = flood.send(&query(&name));
                    let _ = flood.recv(&mut [0; 512]);
                }
                asked += 1;
                asker.send(&query(WEB))?;
                answered += u32::from(asker.recv(&mut [0; 512]).is_ok());
            }
            eprintln!("{number} random names; {answered} of {asked} others answered");
            assert!(number > 10_000);
            assert!(answered * 100 >= asked * 99, "{answered} of {asked}");
            Ok(answered)
        })
        .unwrap();
    assert!(answered > 0);
    let after = daemon.id().resident_bytes().unwrap();
    assert!(after < before + (8 << 20), "{before} bytes before, {after} after");
    let page = bed.page(9153, "/metrics").unwrap();
    assert!(page.len() < 64 << 10, "{} bytes of metrics", page.len());
}
