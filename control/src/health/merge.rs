//! The status of a cable in `Gateway.status`, merged from its driver's and its pinger's.

use crate::api::{Connection, ConnectionStatus, GoDuration, LatencyRtt};

use super::{PingerStatus, PingerView};

/// Merges a pinger's view into its driver's connection, by upstream's rules. Without a pinger the driver's word
/// stands.
///
/// | driver | pinger | status | message |
/// |---|---|---|---|
/// | connected | connected | connected | none |
/// | connected | error | error | the pinger's |
/// | connected | unknown | connected | the pinger's |
/// | error | connected | connected | none |
/// | error | error, unknown | error | the driver's |
/// | connecting, none | any | the driver's | the driver's |
///
/// Latency and health-check address are the pinger's in all rows. Gives the round trip for the latency gauge, which
/// only counts where the driver is connected and there was an answer.
pub fn merge(connection: &mut Connection, pinger: Option<&PingerView>) -> Option<GoDuration> {
    let pinger = pinger?;
    connection.latency_rtt = Some(LatencyRtt::from(pinger.latency.unwrap_or_default()));
    connection.endpoint.health_check_ip = pinger.ip.to_string();
    match (connection.status, pinger.status) {
        (ConnectionStatus::Connected, PingerStatus::Error) => {
            connection.status = ConnectionStatus::Error;
            connection.status_message.clone_from(&pinger.message);
        }
        (ConnectionStatus::Connected, PingerStatus::Unknown) => {
            connection.status_message.clone_from(&pinger.message);
        }
        (ConnectionStatus::Connected, PingerStatus::Connected) => connection.status_message.clear(),
        (ConnectionStatus::Error, PingerStatus::Connected) => {
            connection.status = ConnectionStatus::Connected;
            connection.status_message.clear();
            return None;
        }
        (ConnectionStatus::Error, PingerStatus::Error | PingerStatus::Unknown)
        | (ConnectionStatus::Connecting | ConnectionStatus::None, _) => return None,
    }
    pinger.latency.map(|latency| latency.last)
}

/// Returns the status that [`merge`] comes to, without the rest.
#[must_use]
pub fn merged(driver: ConnectionStatus, pinger: Option<PingerStatus>) -> ConnectionStatus {
    match (driver, pinger) {
        (ConnectionStatus::Connected, Some(PingerStatus::Error)) => ConnectionStatus::Error,
        (ConnectionStatus::Error, Some(PingerStatus::Connected)) => ConnectionStatus::Connected,
        _ => driver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Latency;

    #[test]
    fn the_status_alone_is_that_of_the_whole() {
        use ConnectionStatus::{Connected, Connecting, Error, None as Unset};
        for status in [Connected, Connecting, Error, Unset] {
            for pinger in [PingerStatus::Connected, PingerStatus::Error, PingerStatus::Unknown] {
                let (connection, _) = merged(status, pinger);
                assert_eq!(super::merged(status, Some(pinger)), connection.status);
            }
            assert_eq!(super::merged(status, None), status);
        }
    }

    #[test]
    fn without_a_pinger_the_drivers_word_stands() {
        let mut connection = driver(ConnectionStatus::Connected);
        assert_eq!(merge(&mut connection, None), None);
        assert_eq!(connection, driver(ConnectionStatus::Connected));
    }

    #[test]
    fn connected_and_answering_is_connected_without_a_message() {
        let (connection, gauge) = merged(ConnectionStatus::Connected, PingerStatus::Connected);
        assert_eq!(outcome(&connection), (ConnectionStatus::Connected, ""));
        assert_eq!(gauge, Some(GoDuration::from_nanos(388_079)));
    }

    #[test]
    fn connected_and_silent_is_an_error_with_the_pingers_message() {
        let (connection, gauge) = merged(ConnectionStatus::Connected, PingerStatus::Error);
        assert_eq!(outcome(&connection), (ConnectionStatus::Error, "pinger"));
        assert!(gauge.is_some(), "the driver is connected: the gauge is recorded");
    }

    #[test]
    fn connected_and_unknown_stays_connected_with_the_pingers_message() {
        let (connection, _) = merged(ConnectionStatus::Connected, PingerStatus::Unknown);
        assert_eq!(outcome(&connection), (ConnectionStatus::Connected, "pinger"));
    }

    #[test]
    fn an_answer_heals_the_drivers_error() {
        let (connection, gauge) = merged(ConnectionStatus::Error, PingerStatus::Connected);
        assert_eq!(outcome(&connection), (ConnectionStatus::Connected, ""));
        assert_eq!(gauge, None);
    }

    #[test]
    fn the_drivers_error_stands_while_nobody_answers() {
        for pinger in [PingerStatus::Error, PingerStatus::Unknown] {
            let (connection, _) = merged(ConnectionStatus::Error, pinger);
            assert_eq!(outcome(&connection), (ConnectionStatus::Error, "driver"), "{pinger:?}");
        }
    }

    #[test]
    fn connecting_is_never_overridden() {
        for status in [ConnectionStatus::Connecting, ConnectionStatus::None] {
            for pinger in [PingerStatus::Connected, PingerStatus::Error, PingerStatus::Unknown] {
                let (connection, gauge) = merged(status, pinger);
                assert_eq!((outcome(&connection), gauge), ((status, "driver"), None), "{pinger:?}");
            }
        }
    }

    #[test]
    fn latency_and_address_are_the_pingers_whatever_the_driver_says() {
        for status in [ConnectionStatus::Connected, ConnectionStatus::Connecting, ConnectionStatus::Error] {
            let (connection, _) = merged(status, PingerStatus::Error);
            assert_eq!(connection.latency_rtt.unwrap().last, "388.079µs");
            assert_eq!(connection.endpoint.health_check_ip, "10.2.0.1");
        }
    }

    #[test]
    fn before_the_first_answer_latency_is_zero_and_no_gauge_is_recorded() {
        let mut connection = driver(ConnectionStatus::Connected);
        let view = PingerView { latency: None, ..pinger(PingerStatus::Unknown) };
        assert_eq!(merge(&mut connection, Some(&view)), None);
        assert_eq!(connection.latency_rtt.unwrap().std_dev, "0s");
    }

    fn merged(status: ConnectionStatus, verdict: PingerStatus) -> (Connection, Option<GoDuration>) {
        let mut connection = driver(status);
        let gauge = merge(&mut connection, Some(&pinger(verdict)));
        (connection, gauge)
    }

    fn outcome(connection: &Connection) -> (ConnectionStatus, &str) {
        (connection.status, &connection.status_message)
    }

    fn driver(status: ConnectionStatus) -> Connection {
        Connection { status, status_message: "driver".to_owned(), ..Connection::default() }
    }

    fn pinger(status: PingerStatus) -> PingerView {
        let latency = Latency { last: GoDuration::from_nanos(388_079), ..Latency::default() };
        let message = if status == PingerStatus::Connected { "" } else { "pinger" };
        PingerView {
            status,
            message: message.to_owned(),
            ip: "10.2.0.1".parse().unwrap(),
            latency: Some(latency),
            sent: 1,
            received: 1,
        }
    }
}
