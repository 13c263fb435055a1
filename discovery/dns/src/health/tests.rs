use super::*;

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn events(health: &mut Health) -> Vec<(String, bool)> {
    let events = std::iter::from_fn(|| health.poll_event());
    events.map(|(id, state)| (id.to_string(), state.is_some_and(|state| state.is_up))).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_cluster_is_out_at_once_and_back_after_a_hold() {
    let (mut health, east, start) = (Health::new(HealthConfig::default()), label("east"), Instant::now());
    health.handle_paths(&east, true, None, start);
    assert_eq!(events(&mut health), [("east".to_owned(), true)]);
    health.handle_paths(&east, false, None, start + SECOND);
    assert_eq!(events(&mut health), [("east".to_owned(), false)]);
    assert_eq!(health.poll_timeout(), None);
    health.handle_paths(&east, true, None, start + 2 * SECOND);
    assert_eq!(events(&mut health), []);
    assert_eq!(health.poll_timeout(), Some(start + 4 * SECOND));
    health.handle_timeout(start + 3 * SECOND);
    assert_eq!(events(&mut health), []);
    health.handle_timeout(start + 4 * SECOND);
    assert_eq!(events(&mut health), [("east".to_owned(), true)]);
    assert_eq!(health.poll_timeout(), None);
}

#[test]
fn a_cluster_that_flaps_is_held_longer_each_time() {
    let (mut health, east, mut now) = (Health::new(HealthConfig::default()), label("east"), Instant::now());
    let mut holds = Vec::new();
    health.handle_paths(&east, true, None, now);
    for _ in 0..8 {
        health.handle_paths(&east, false, None, now);
        health.handle_paths(&east, true, None, now);
        let until = health.poll_timeout().unwrap();
        holds.push((until - now).as_secs());
        health.handle_timeout(until);
        now = until + SECOND;
    }
    assert_eq!(holds, [2, 4, 8, 16, 32, 60, 60, 60]);
    now += HealthConfig::default().calm;
    health.handle_paths(&east, false, None, now);
    health.handle_paths(&east, true, None, now);
    assert_eq!(health.poll_timeout(), Some(now + 2 * SECOND), "it was calm in between");
}

#[test]
fn a_hold_that_is_broken_begins_again() {
    let (mut health, east, start) = (Health::new(HealthConfig::default()), label("east"), Instant::now());
    health.handle_paths(&east, true, None, start);
    health.handle_paths(&east, false, None, start);
    health.handle_paths(&east, true, None, start);
    health.handle_paths(&east, false, None, start + SECOND);
    health.handle_paths(&east, true, None, start + SECOND);
    health.handle_timeout(start + 2 * SECOND);
    assert_eq!(events(&mut health), [("east".to_owned(), true), ("east".to_owned(), false)]);
    assert_eq!(health.poll_timeout(), Some(start + 3 * SECOND));
}

#[test]
fn a_cluster_that_connects_for_the_first_time_is_not_held() {
    let (mut health, east, start) = (Health::new(HealthConfig::default()), label("east"), Instant::now());
    health.handle_paths(&east, false, None, start);
    health.handle_paths(&east, true, None, start + SECOND);
    assert_eq!(events(&mut health), [("east".to_owned(), false), ("east".to_owned(), true)]);
    assert_eq!(health.poll_timeout(), None);
}

#[test]
fn a_cluster_without_a_record_is_unknown_again() {
    let (mut health, east, start) = (Health::new(HealthConfig::default()), label("east"), Instant::now());
    health.handle_paths(&east, false, None, start);
    health.handle_removed(&east);
    assert_eq!(health.poll_event().map(|(_, state)| state.is_some()), Some(true));
    assert_eq!(health.poll_event(), Some((east.clone(), None)));
    health.handle_removed(&east);
    assert_eq!(health.poll_event(), None);
}

#[test]
fn small_changes_of_a_round_trip_time_are_no_event() {
    let (mut health, east, start) = (Health::new(HealthConfig::default()), label("east"), Instant::now());
    let millis = |n| Some(Duration::from_millis(n));
    health.handle_paths(&east, true, millis(20), start);
    assert_eq!(health.poll_event().unwrap().1.unwrap().rtt, millis(20));
    health.handle_paths(&east, true, millis(22), start);
    health.handle_paths(&east, true, millis(18), start);
    assert_eq!(health.poll_event(), None);
    for _ in 0..20 {
        health.handle_paths(&east, true, millis(60), start);
    }
    let last = std::iter::from_fn(|| health.poll_event()).last().unwrap();
    assert!(last.1.unwrap().rtt > millis(45), "{last:?}");
}

#[test]
fn the_number_of_clusters_is_bounded() {
    let (mut health, start) = (Health::new(HealthConfig::default()), Instant::now());
    for number in 0..MAX_CLUSTERS + 10 {
        health.handle_paths(&label(&format!("c{number}")), false, None, start);
    }
    assert_eq!(events(&mut health).len(), MAX_CLUSTERS);
}
