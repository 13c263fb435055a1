//! Captures as the tools read them that people use. Where a tool is not installed its test says that it was skipped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use trieste_packet::{CableId, DropReason, Layout, LayoutKind};

use super::*;

/// One packet at each point, and a train.
fn filled() -> Bench {
    let mut bench = Bench::new(&CaptureRequest::default());
    let packet = tcp([10, 1, 0, 1], [10, 2, 0, 2], 80, b"hello");
    bench.show_datagram(Point::OuterRx, "192.0.2.9:51820", b"sealed");
    bench.show_datagram(Point::OuterTx, "[2001:db8::9]:51820", b"sealed");
    bench.show_bytes(Point::Opened, &packet);
    bench.show_bytes(Point::InnerTx, &udp6(53, &[0; 40]));
    let payload = [7; 3000];
    let bytes = tcp([10, 1, 0, 1], [10, 2, 0, 2], 80, &payload);
    let mut train = bench.packet(&bytes);
    train.layout = Layout::train(LayoutKind::Tcp, 40, 1400, 3);
    bench.show(Point::InnerRx, &train);
    drop(train);
    bench.witness.as_mut().unwrap().dropped(CableId(1), DropReason::TooBig, &packet);
    bench
}

pub(super) fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("skipped: {tool} is not installed");
    }
    found.is_ok()
}

fn pipe(command: &mut Command, input: &[u8]) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn tcpdump_reads_every_interface() {
    if !is_installed("tcpdump") {
        return;
    }
    let text = pipe(Command::new("tcpdump").args(["-n", "-v", "-S", "-r", "-"]), &filled().bytes().await);
    let count = text.lines().filter(|line| line.contains("proto ") || line.contains("next-header")).count();
    assert_eq!(count, 8, "{text}");
    assert!(
        text.contains("192.0.2.9.51820 > 192.0.2.1.4500") && text.contains("2001:db8::9.51820"),
        "{text}"
    );
    assert!(!text.contains("incorrect") && !text.contains("bad udp cksum"), "{text}");
    assert!(text.contains("seq 1000:2400") && text.contains("seq 2400:3800"), "{text}");
}

#[tokio::test]
async fn tshark_sees_names_checksums_comments_and_directions() {
    if !is_installed("tshark") {
        return;
    }
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-T", "fields", "-E", "separator=;"]);
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    command.args(["-o", "ip.check_checksum:TRUE"]);
    for field in [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.comment",
        "ip.checksum.status",
        "tcp.checksum.status",
        "udp.checksum.status",
    ] {
        command.args(["-e", field]);
    }
    let text = pipe(&mut command, &filled().bytes().await);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    let names: Vec<_> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(
        names,
        ["outer-rx", "outer-tx", "opened", "inner-tx", "inner-rx", "inner-rx", "inner-rx", "drops"]
    );
    assert_eq!(lines[7][2], "reason=too_big cable=1");
    for line in &lines {
        assert!(line[3..].iter().all(|status| matches!(*status, "" | "1")), "wrong checksum: {line:?}");
        assert!(line[4..].contains(&"1"), "no transport checksum was looked at: {line:?}");
    }
    let directions: Vec<_> = lines.iter().map(|line| line[1].trim_start_matches("0x0000000")).collect();
    assert_eq!(directions, ["1", "2", "1", "1", "2", "2", "2", "2"], "{text}");
}

#[tokio::test]
async fn tcpdump_prints_while_the_capture_runs() {
    if !is_installed("tcpdump") {
        return;
    }
    let mut bench = Bench::at("inner-rx");
    let mut tcpdump = Command::new("tcpdump")
        .args(["-n", "-l", "-r", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = tcpdump.stdin.take().unwrap();
    let mut lines = BufReader::new(tcpdump.stdout.take().unwrap()).lines();
    stdin.write_all(&bench.stream.next().await.unwrap().unwrap()).unwrap();
    for port in [53, 54] {
        bench.show_bytes(Point::InnerRx, &udp6(port, b"x"));
        stdin.write_all(&bench.stream.next().await.unwrap().unwrap()).unwrap();
        // The pipe is still open: the line can only come from what was sent so far.
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&format!(".{port}:")), "{line}");
    }
    drop(stdin);
    assert!(tcpdump.wait().unwrap().success());
}
