//! What outlives the process.

use trieste_control::natdiscovery::MAX_REMOTES;
use trieste_control::natdiscovery::memory::MAX_BYTES;

use super::*;

/// The memory, as the next process reads it, after `answer` was given or nobody answered.
fn memory_after(answer: Option<(usize, ResponseType, &str)>) -> Memory {
    let mut bench = Bench::new();
    bench.add(remote());
    let asked = bench.asked();
    if let Some((index, verdict, from)) = answer {
        assert_eq!(bench.respond(response_to(&asked[index].1, verdict), from), Outcome::Accepted);
    }
    bench.run_until(100);
    assert_eq!(bench.machine.memory().revision(), 1);
    Memory::parse(&bench.machine.memory().emit()).unwrap()
}

fn restarted(memory: Memory, remote: Remote) -> Bench {
    let mut bench = Bench::with(local(), memory);
    bench.add(remote);
    bench
}

#[test]
fn a_result_is_used_at_once_by_the_next_process_and_checked_in_the_background() {
    let memory = memory_after(Some((1, ResponseType::NatDetected, PUBLIC)));
    let mut bench = restarted(memory, remote());
    assert_eq!(bench.selected(), [selection(PUBLIC, true, How::Remembered)]);
    let [(_, private), _] = bench.asked().try_into().unwrap();
    assert_eq!(bench.status().0, "remembered");
    bench.respond(response_to(&private, ResponseType::Ok), PRIVATE);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Private)]);
    let mut again = restarted(bench.machine.memory().clone(), remote());
    assert_eq!(again.selected(), [selection(PRIVATE, false, How::Remembered)]);
}

#[test]
fn a_confirmed_result_is_told_and_not_written_again() {
    let memory = memory_after(Some((0, ResponseType::Ok, PRIVATE)));
    let mut bench = restarted(memory, remote());
    bench.selected();
    let asked = bench.asked();
    bench.respond(response_to(&asked[0].1, ResponseType::Ok), PRIVATE);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Private)]);
    assert_eq!(bench.machine.memory().revision(), 0);
}

#[test]
fn an_earlier_answer_outlives_silence_but_not_a_cable_in_error() {
    let memory = memory_after(Some((1, ResponseType::NatDetected, PUBLIC)));
    let mut bench = restarted(memory, remote());
    bench.selected();
    bench.run_until(300);
    assert_eq!(bench.selected(), []);
    assert_eq!(bench.status().0, "remembered");
    bench.machine.rediscover(&cable("b"), bench.now);
    bench.run_until(361);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Fallback)]);
    assert_eq!(bench.machine.memory().revision(), 1);
}

#[test]
fn a_peer_that_never_answers_costs_nothing_the_second_time() {
    let mut bench = restarted(memory_after(None), remote());
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Remembered)]);
    bench.run_until(60);
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Fallback)]);
}

#[test]
fn a_result_for_another_endpoint_or_from_another_address_is_not_used() {
    let memory = memory_after(Some((0, ResponseType::Ok, PRIVATE)));
    let others = [
        Remote { public_ip: None, ..remote() },
        Remote { nat_enabled: true, ..remote() },
        Remote { port: Some(1), ..remote() },
        Remote { cluster_id: "c".to_owned(), ..remote() },
        Remote { cable_name: cable("c"), ..remote() },
    ];
    for other in others {
        assert_eq!(restarted(memory.clone(), other).selected(), []);
    }
    let mut moved = Bench::with(Local { private_ips: vec![ip("172.31.1.99")], ..local() }, memory);
    moved.add(remote());
    assert_eq!(moved.selected(), []);
}

#[test]
fn a_file_cannot_name_an_address_that_the_endpoint_does_not_publish() {
    let text = memory_after(Some((0, ResponseType::Ok, PRIVATE))).emit();
    let forged = Memory::parse(&text.replace(PRIVATE, "203.0.113.66")).unwrap();
    assert_eq!(forged.len(), 1);
    assert_eq!(restarted(forged, remote()).selected(), []);
}

#[test]
fn a_removed_cable_is_remembered_for_when_it_comes_back() {
    let mut bench = restarted(memory_after(Some((0, ResponseType::Ok, PRIVATE))), remote());
    bench.selected();
    bench.machine.remove(&cable("b"));
    assert_eq!(bench.selected(), []);
    bench.add(remote());
    assert_eq!(bench.selected(), [selection(PRIVATE, false, How::Remembered)]);
}

#[test]
fn what_is_no_memory_is_refused_with_a_reason() {
    let wrong = ["", "{}", "[1]", r#"{"version":1,"results":{"a":{"ip":"x"}}}"#, "\u{0}"];
    for text in wrong {
        assert!(Memory::parse(text).unwrap_err().to_string().starts_with("cannot read NAT"), "{text}");
    }
    let newer = Memory::parse(r#"{"version":2,"results":{}}"#).unwrap_err();
    assert_eq!(newer.to_string(), "cannot read NAT discovery results of version 2: this program reads 1");
    assert!(Memory::parse(&Memory::default().emit()).unwrap().is_empty());
}

#[test]
fn memory_is_bounded_and_forgets_the_dead_first() {
    let mut bench = Bench::new();
    for n in 0..MAX_REMOTES {
        bench.add(Remote { cable_name: format!("cable-{n:04}-{}", "x".repeat(240)), ..remote() });
    }
    bench.run_until(61);
    let memory = bench.machine.memory();
    assert_eq!(memory.len(), MAX_REMOTES);
    assert!(memory.emit().len() <= MAX_BYTES);
    let dead = format!("cable-0003-{}", "x".repeat(240));
    bench.machine.remove(&dead);
    bench.add(remote());
    bench.run_until(130);
    let text = bench.machine.memory().emit();
    assert_eq!(bench.machine.memory().len(), MAX_REMOTES);
    assert!(!text.contains(&dead) && text.contains(&cable("b")));
}
