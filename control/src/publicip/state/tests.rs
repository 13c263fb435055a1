use super::super::spec::Resolver;
use super::*;

const START: i64 = 1_700_000_000;

#[test]
fn the_first_round_is_due_at_once_and_the_next_a_minute_later() {
    let mut watch = Watch::new("dns:gw.example", None);
    assert!(watch.is_asked(0));
    assert!(!watch.is_asked(0), "asked twice for one round");
    watch.succeed(3, "dns:gw.example", "192.0.2.1");
    let known = watch.state.public_ip();
    assert_eq!(known.address, Some("192.0.2.1".parse().unwrap()));
    assert_eq!((known.since, known.next_try), (Some(wall(3)), Some(wall(63))));
    assert!(!watch.is_asked(62));
    assert!(watch.is_asked(63));
}

#[test]
fn failures_keep_the_last_good_address_and_are_tried_again_ever_more_slowly() {
    let mut watch = Watch::new("dns:gw.example", None);
    watch.is_asked(0);
    watch.succeed(0, "dns:gw.example", "192.0.2.1");
    let (mut at, mut waits) = (60, Vec::new());
    for _ in 0..40 {
        assert!(watch.is_asked(at));
        watch.fail(at);
        let known = watch.state.public_ip();
        assert_eq!((known.address, known.since), (Some("192.0.2.1".parse().unwrap()), Some(wall(60))));
        let wait = watch.state.poll_timeout().unwrap() - watch.at(at);
        waits.push(wait.as_secs_f64());
        at += wait.as_secs() + 1;
    }
    assert_eq!(waits[..3], [5.0, 6.0, 7.2]);
    assert_eq!((waits[23] < 360.0, waits[24], waits[39]), (true, 360.0, 360.0));
    let error = watch.state.public_ip().error.clone().unwrap();
    assert_eq!(error, "the last known public address 192.0.2.1 stays: no resolver is configured");

    watch.is_asked(at);
    watch.succeed(at, "dns:gw.example", "192.0.2.1");
    let known = watch.state.public_ip();
    assert_eq!((&known.error, known.since), (&None, Some(wall(at))));
    watch.is_asked(at + 60);
    watch.fail(at + 60);
    assert_eq!(watch.state.poll_timeout(), Some(watch.at(at + 65)), "the back-off did not start anew");
}

#[test]
fn only_a_first_round_that_takes_long_is_told_before_its_end() {
    let mut watch = Watch::new("dns:gw.example,none", None);
    watch.is_asked(0);
    assert_eq!(watch.state.poll_timeout(), Some(watch.at(10)));
    assert!(!watch.state.poll_slow(watch.at(9)));
    assert!(watch.state.poll_slow(watch.at(10)) && !watch.state.poll_slow(watch.at(11)), "told twice");
    watch.state.handle_slow(&Failures::default(), wall(10));
    let known = watch.state.public_ip();
    let error = known.error.as_ref().unwrap();
    assert!(error.contains("dns:gw.example: no answer yet; `none`"), "{error}");
    assert_eq!((known.since, known.next_try), (Some(wall(10)), None));

    // From here on it is known, and there is an end to wait for.
    watch.fail(40);
    assert_eq!(watch.state.public_ip().since, Some(wall(10)));
    assert!(watch.is_asked(45));
    assert!(!watch.state.poll_slow(watch.at(100)));
    watch.succeed(101, "dns:gw.example", "192.0.2.1");
    assert!(watch.is_asked(161));
    assert!(!watch.state.poll_slow(watch.at(200)), "the last known address is a good answer meanwhile");
}

#[test]
fn without_any_address_the_error_says_what_that_means() {
    let mut watch = Watch::new("dns:gw.example", None);
    watch.is_asked(0);
    watch.fail(0);
    let known = watch.state.public_ip();
    assert_eq!((known.address, known.resolver.as_str()), (None, ""));
    assert!(known.error.as_ref().unwrap().contains("cannot connect to this one"));
}

#[test]
fn a_remembered_address_counts_while_its_resolver_is_configured() {
    let remembered =
        || Some(Remembered { address: "192.0.2.1".parse().unwrap(), resolver: "lb:gw".to_owned() });
    let watch = Watch::new("dns:gw.example,lb:gw", remembered());
    assert_eq!(watch.state.public_ip().remembered(), remembered());
    assert!(watch.state.public_ip().is_load_balancer);
    let watch = Watch::new("dns:gw.example", remembered());
    assert_eq!(watch.state.public_ip(), &PublicIp::default());
}

#[test]
fn nothing_to_ask_asks_nothing() {
    let mut watch = Watch::new("", None);
    watch.state.handle_request(watch.start);
    assert!(!watch.is_asked(1000));
    assert_eq!((watch.state.poll_timeout(), watch.state.public_ip()), (None, &PublicIp::default()));
}

#[test]
fn a_request_is_heard_at_once_but_not_more_than_once_a_second() {
    let mut watch = Watch::new("lb:gw", None);
    watch.is_asked(0);
    watch.fail(0);
    watch.state.handle_request(watch.at(3));
    assert!(watch.is_asked(3));
    watch.state.handle_request(watch.at(3));
    watch.fail(3);
    assert_eq!(watch.state.poll_timeout(), Some(watch.at(4)));
}

#[test]
fn other_resolvers_are_asked_at_once_and_what_the_old_said_goes() {
    let mut watch = Watch::new("lb:gw", None);
    assert!(watch.state.public_ip().is_load_balancer, "it can become nothing else");
    watch.is_asked(0);
    watch.succeed(0, "lb:gw", "192.0.2.1");
    watch.state.handle_resolvers(Resolvers::read("lb:gw"));
    assert!(!watch.is_asked(1), "the same list again");

    watch.state.handle_resolvers(Resolvers::read("dns:gw.example,lb:gw"));
    assert_eq!(watch.state.public_ip().resolver, "lb:gw");
    assert!(watch.is_asked(1));

    watch.state.handle_resolvers(Resolvers::read("dns:gw.example"));
    assert_eq!(watch.state.public_ip(), &PublicIp::default());
}

#[test]
fn an_endpoint_gets_address_and_mark_and_loses_them() {
    let mut endpoint = EndpointSpec::default();
    let mut public = PublicIp { address: Some("192.0.2.1".parse().unwrap()), ..PublicIp::default() };
    public.is_load_balancer = true;
    assert!(public.apply_to(&mut endpoint));
    assert!(!public.apply_to(&mut endpoint));
    assert_eq!(endpoint.public_ip, "192.0.2.1");
    assert_eq!(endpoint.backend_config["using-loadbalancer"], "true");
    assert!(PublicIp::default().apply_to(&mut endpoint));
    assert_eq!(endpoint, EndpointSpec::default());
}

/// A state and its clocks, in seconds.
struct Watch {
    start: Instant,
    state: WatchState,
}

impl Watch {
    fn new(list: &str, remembered: Option<Remembered>) -> Self {
        Self { start: Instant::now(), state: WatchState::new(Resolvers::read(list), remembered) }
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    fn is_asked(&mut self, second: u64) -> bool {
        self.state.handle_timeout(self.at(second));
        self.state.poll_resolve(self.at(second))
    }

    fn succeed(&mut self, second: u64, resolver: &str, address: &str) {
        let resolver = Resolver::parse(resolver).unwrap();
        let resolution = Resolution { address: address.parse().unwrap(), resolver };
        self.state.handle_outcome(Ok(resolution), self.at(second), wall(second));
    }

    fn fail(&mut self, second: u64) {
        self.state.handle_outcome(Err(Failures::default()), self.at(second), wall(second));
    }
}

fn wall(second: u64) -> Timestamp {
    Timestamp::from_second(START + i64::try_from(second).unwrap()).unwrap()
}
