//! What impairs a connection that works.

use super::*;
use crate::node::wire::Refusal;
use crate::node::{SendError, SentPacket};

#[test]
fn large_packets_vanish() {
    let change = |e: &mut Evidence| {
        let Some(Ok(report)) = e.probes.get_mut(&probe::SIZES) else { panic!("no sizes") };
        let (mut number, mut size) = (2, 1200);
        report.sent.truncate(1);
        while size <= 1400 {
            report.sent.push(SentPacket { number, size, ..SentPacket::default() });
            (number, size) = (number + 1, size + 100);
        }
    };
    broken(change, Cause::MtuBlackHole, Hop::SourceVxlan);
}

#[test]
fn a_black_hole_may_take_every_size_but_that_of_small_pings() {
    let mut evidence = healthy();
    let Some(Ok(report)) = evidence.probes.get_mut(&probe::SIZES) else { panic!("no sizes") };
    report.sent = vec![SentPacket { number: 1, size: 600, ..SentPacket::default() }];
    assert_eq!(verdict(&evidence).1, Cause::MtuBlackHole);
}

#[test]
fn a_size_that_somebody_names_is_no_black_hole() {
    let mut evidence = healthy();
    let Some(Ok(report)) = evidence.probes.get_mut(&probe::SIZES) else { panic!("no sizes") };
    let from = "240.1.1.11".parse().unwrap();
    let error = Some(SendError { from, reason: Refusal::TooBig, mtu: Some(1412) });
    report.sent.push(SentPacket { number: 3, size: 1440, error, ..SentPacket::default() });
    report.sent.push(SentPacket { number: 4, size: 1460, ..SentPacket::default() });
    let diagnosis = judge(&evidence);
    assert_eq!((diagnosis.health, diagnosis.measured.path_mtu_bytes), (Health::Healthy, Some(1412)));
}

#[test]
fn source_is_masqueraded() {
    let mut evidence = healthy();
    translated(&mut evidence, "172.31.1.21");
    assert_eq!(verdict(&evidence).1, Cause::SourceMasqueraded);
    assert_eq!(judge(&evidence).health, Health::Impaired);
    let change = |e: &mut Evidence| {
        lost_before(e, Way::There, Stop::LeavesTunnel);
        translated(e, "172.31.1.21");
    };
    broken(change, Cause::SourceMasqueraded, Hop::SourceNode);
}

#[test]
fn only_the_health_check_fails() {
    let mut evidence = healthy();
    statuses(&mut evidence.source, |status| {
        status.connections[0].connection.status = ConnectionStatus::Error
    });
    assert_eq!(verdict(&evidence), (Health::Impaired, Cause::HealthCheckOnly, Hop::Cable));
}
