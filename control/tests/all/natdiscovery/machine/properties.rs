//! Laws of the machine.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    /// Answers one of the newest requests, or a made-up one.
    Answer {
        number: Option<bool>,
        nat: bool,
        from_private: bool,
    },
    Hear,
    Rediscover,
    Readd {
        nat_enabled: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..30_000).prop_map(Step::Wait),
        3 => (any::<Option<bool>>(), any::<bool>(), any::<bool>())
            .prop_map(|(number, nat, from_private)| Step::Answer { number, nat, from_private }),
        1 => Just(Step::Hear),
        1 => Just(Step::Rediscover),
        1 => any::<bool>().prop_map(|nat_enabled| Step::Readd { nat_enabled }),
    ]
}

proptest! {
    /// Whatever happens in whatever order: an answer selects only if its request was outstanding and, for the
    /// private address, came from there; only published addresses are selected; and requests stay seldom.
    #[test]
    fn the_machine_selects_only_what_was_answered_and_asks_seldom(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut bench = Bench::new();
        bench.add(remote());
        let mut newest: [Option<Request>; 2] = [None, None];
        let (mut sent, mut restarts) = (0_usize, 1_usize);
        for step in steps {
            let mut accepted = false;
            match step {
                Step::Wait(ms) => bench.advance(Duration::from_millis(ms)),
                Step::Answer { number, nat, from_private } => {
                    let index = number.map(usize::from);
                    let request = index.and_then(|index| newest[index].clone()).unwrap_or_default();
                    let verdict = if nat { ResponseType::NatDetected } else { ResponseType::Ok };
                    let from = if from_private { PRIVATE } else { PUBLIC };
                    let outcome = bench.respond(response_to(&request, verdict), from);
                    accepted = outcome == Outcome::Accepted;
                    if accepted {
                        let index = index.expect("a made-up number is not accepted");
                        prop_assert!(newest[index].is_some());
                        prop_assert!(index == 1 || from_private);
                    }
                }
                Step::Hear => {
                    let payload = message::emit(Body::Request(request()));
                    bench.machine.handle_datagram(&payload, at(PRIVATE), None, bench.now);
                }
                Step::Rediscover => bench.machine.rediscover(&cable("b"), bench.now),
                Step::Readd { nat_enabled } => {
                    restarts += 1;
                    bench.add(Remote { nat_enabled, ..remote() });
                }
            }
            let before = bench.machine.selection(&cable("b"));
            for transmit in bench.sent() {
                if let Ok(Body::Request(request)) = message::parse(&transmit.payload) {
                    sent += 1;
                    newest[usize::from(transmit.to == at(PUBLIC))] = Some(request);
                }
            }
            for selection in bench.selected() {
                prop_assert!([ip(PRIVATE), ip(PUBLIC)].contains(&selection.ip));
                if matches!(selection.how, How::Private | How::Public) && before != Some(selection) {
                    // Held for the private answer's sake, or just accepted.
                    prop_assert!(accepted || selection.how == How::Public);
                }
            }
            let seconds = usize::try_from(bench.now.duration_since(bench.start).as_secs()).unwrap();
            prop_assert!(sent <= 2 * (seconds + 1 + restarts), "{sent} requests in {seconds} s, {restarts} starts");
            prop_assert!(bench.machine.poll_timeout().is_none_or(|at| at > bench.now));
        }
    }
}
