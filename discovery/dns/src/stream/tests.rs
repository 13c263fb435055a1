use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// Answers a message with itself.
fn echo(message: &[u8], reply: &mut Vec<u8>) -> bool {
    reply.clear();
    reply.extend_from_slice(message);
    !message.is_empty()
}

fn stream(now: Instant) -> Stream {
    Stream::new(StreamTimes::default(), now)
}

#[test]
fn messages_are_answered_in_order_however_they_are_cut() {
    let now = Instant::now();
    let sent = [framed(b"one"), framed(b"two and three"), framed(&[7; 65_535])].concat();
    for size in [1, 2, 3, 7, 4_096, 70_000] {
        let (mut stream, mut got) = (stream(now), Vec::new());
        for piece in sent.chunks(size) {
            assert!(stream.wants_input());
            stream.handle_input(piece, now);
            stream.answer(now, echo);
            while !stream.output().is_empty() {
                got.extend_from_slice(stream.output());
                stream.handle_written(stream.output().len(), now);
                stream.answer(now, echo);
            }
        }
        assert!(got == sent, "in pieces of {size}");
        assert_eq!(stream.end(), None);
        assert!(stream.held() <= 3 * KEPT_BYTES, "{} bytes are held by an idle connection", stream.held());
    }
}

#[test]
fn a_client_that_takes_no_answers_is_not_read_any_more_and_cut() {
    let now = Instant::now();
    let mut stream = stream(now);
    let message = framed(&[7; 1_000]);
    let mut read = 0;
    while stream.wants_input() {
        stream.handle_input(&message, now);
        stream.answer(now, echo);
        read += message.len();
        assert!(read < 200_000);
    }
    assert!(stream.held() < 300_000, "{}", stream.held());
    stream.handle_written(10, now + 4 * SECOND);
    stream.answer(now + 4 * SECOND, echo);
    assert_eq!(stream.poll_timeout(false), now + 5 * SECOND, "a few bytes are not enough");
    stream.handle_timeout(false, now + 5 * SECOND);
    assert_eq!(stream.end(), Some(StreamEnd::TooSlow));
}

#[test]
fn a_message_has_to_arrive_within_a_time() {
    let start = Instant::now();
    let mut stream = stream(start);
    let message = framed(&[7; 100]);
    for (seconds, byte) in (1_u32..).zip(&message[..3]) {
        stream.handle_input(&[*byte], start + seconds * SECOND);
        stream.answer(start + seconds * SECOND, echo);
        assert_eq!(stream.poll_timeout(false), start + 4 * SECOND);
    }
    stream.handle_timeout(false, start + 3 * SECOND);
    assert_eq!(stream.end(), None);
    stream.handle_timeout(false, start + 4 * SECOND);
    assert_eq!(stream.end(), Some(StreamEnd::TooSlow));
    assert!(!stream.wants_input());
}

#[test]
fn an_idle_connection_ends_sooner_when_there_are_many() {
    let now = Instant::now();
    let mut stream = stream(now);
    assert_eq!(stream.poll_timeout(true), now + SECOND);
    stream.handle_timeout(false, now + SECOND);
    assert_eq!(stream.end(), None);
    stream.handle_timeout(true, now + SECOND);
    assert_eq!(stream.end(), Some(StreamEnd::Quiet));
}

#[test]
fn what_was_asked_before_the_end_is_answered() {
    let now = Instant::now();
    let mut stream = stream(now);
    stream.handle_input(&framed(b"one"), now);
    stream.handle_end();
    stream.answer(now, echo);
    assert_eq!((stream.output().len(), stream.end()), (5, None));
    stream.handle_written(5, now);
    stream.answer(now, echo);
    assert_eq!(stream.end(), Some(StreamEnd::Quiet));
}

#[test]
fn what_gets_no_answer_ends_the_connection_after_the_answers_before_it() {
    let now = Instant::now();
    let mut stream = stream(now);
    stream.handle_input(&[framed(b"one"), framed(b""), framed(b"two")].concat(), now);
    stream.answer(now, echo);
    assert_eq!(stream.end(), Some(StreamEnd::Unanswerable));
    assert_eq!(stream.output(), framed(b"one"));
    let mut cut = stream_with_half_a_message(now);
    cut.handle_end();
    cut.answer(now, echo);
    assert_eq!(cut.end(), Some(StreamEnd::Unanswerable));
}

fn stream_with_half_a_message(now: Instant) -> Stream {
    let mut stream = stream(now);
    stream.handle_input(&[0, 9, 1], now);
    stream
}
