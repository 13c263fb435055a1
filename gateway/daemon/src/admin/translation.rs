//! Answers about Globalnet: its state, and what becomes of a packet.

use std::net::IpAddr;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use trieste_control::admin::{GlobalnetStatus, TraceDirection, TraceProtocol, TraceRequest};

use super::state::{AdminState, refusal};

pub(super) async fn globalnet(State(state): State<AdminState>) -> Json<GlobalnetStatus> {
    Json(state.globalnet.status())
}

pub(super) async fn trace(
    State(state): State<AdminState>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Response {
    let request = query.map_err(|error| error.to_string()).and_then(|query| read_request(&query.0));
    match request {
        Err(error) => refusal(StatusCode::BAD_REQUEST, error),
        Ok(request) => match state.globalnet.trace(request).await {
            Ok(answer) => Json(answer).into_response(),
            Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, error),
        },
    }
}

/// Reads the query. Stricter than serde: a key that is misspelt would otherwise trace another packet.
fn read_request(query: &[(String, String)]) -> Result<TraceRequest, String> {
    let (mut from, mut to): (Option<IpAddr>, Option<IpAddr>) = (None, None);
    let (mut proto, mut direction) = (TraceProtocol::default(), TraceDirection::default());
    let (mut sport, mut dport) = (0, 0);
    for (index, (key, value)) in query.iter().enumerate() {
        if query[..index].iter().any(|(other, _)| other == key) {
            return Err(format!("{key}: given twice"));
        }
        let address = || value.parse().map_err(|_| format!("{key}: `{value}` is not an IP address"));
        let port = || value.parse().map_err(|_| format!("{key}: `{value}` is not a port from 0 to 65535"));
        match key.as_str() {
            "from" => from = Some(address()?),
            "to" => to = Some(address()?),
            "sport" => sport = port()?,
            "dport" => dport = port()?,
            "proto" => proto = value.parse().map_err(|error| format!("proto: {error}"))?,
            "direction" => direction = value.parse().map_err(|error| format!("direction: {error}"))?,
            _ => {
                return Err(format!(
                    "`{key}` is not known; a trace has from, to, proto, sport, dport, direction"
                ));
            }
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err("from and to are needed: the packet's addresses as it reaches this gateway".to_owned());
    };
    if from.is_ipv4() != to.is_ipv4() {
        return Err(format!("{from} and {to} are not of one family: such a packet cannot be"));
    }
    Ok(TraceRequest { from, to, proto, sport, dport, direction })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<TraceRequest, String> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        read_request(&pairs)
    }

    #[test]
    fn a_query_is_read_as_the_command_writes_it() {
        let request = TraceRequest {
            from: "10.1.0.5".parse().unwrap(),
            to: "242.1.0.1".parse().unwrap(),
            proto: TraceProtocol::Other(47),
            sport: 4711,
            dport: 53,
            direction: TraceDirection::Inbound,
        };
        assert_eq!(read(&request.to_query()), Ok(request));
        let short = read("from=10.1.0.5&to=242.1.0.1").unwrap();
        assert_eq!((short.proto, short.direction), (TraceProtocol::Tcp, TraceDirection::Outbound));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (query, word) in [
            ("from=10.1.0.5", "from and to"),
            ("from=10.1.0.5&to=x", "to: `x`"),
            ("from=10.1.0.5&to=fd00::1", "one family"),
            ("from=10.1.0.5&to=10.1.0.6&port=1", "`port` is not known"),
            ("from=10.1.0.5&to=10.1.0.6&sport=70000", "sport"),
            ("from=10.1.0.5&from=10.1.0.5&to=10.1.0.6", "given twice"),
            ("from=10.1.0.5&to=10.1.0.6&direction=up", "outbound"),
        ] {
            let error = read(query).unwrap_err();
            assert!(error.contains(word), "{query}: {error}");
        }
    }
}
