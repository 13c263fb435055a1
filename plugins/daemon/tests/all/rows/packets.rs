//! Where packets of the pod go, as ovn-trace tells.

use crate::rows::ovn::Ovn;

/// Packets of the pod on node1.
const POD_V4: &str = "inport==\"default_pod1\" && eth.src==0a:58:0a:80:00:05 && eth.dst==0a:58:0a:80:00:01 && \
                      ip.ttl==64 && ip4.src==10.128.0.5 && ip4.dst==";
const POD_V6: &str = "inport==\"default_pod1\" && eth.src==0a:58:0a:80:00:05 && eth.dst==0a:58:0a:80:00:01 && \
                      ip.ttl==64 && ip6.src==fd00:10:128::5 && ip6.dst==";
/// Returns the path of a packet of the pod.
pub(crate) fn path(ovn: &Ovn, destination: &str) -> String {
    let packet = if destination.contains(':') { POD_V6 } else { POD_V4 };
    ovn.trace("est", "node1", &format!("{packet}{destination}"))
}

/// Returns the path of a packet that comes from a remote cluster by the external bridge of node1.
pub(crate) fn enters(ovn: &Ovn, destination: &str) -> String {
    let packet = "inport==\"br-local_node1\" && eth.src==0a:58:a9:fe:21:01 && eth.dst==00:60:2f:00:00:02 && \
                  ip.ttl==64 && ip4.src==10.132.1.9 && tcp.dst==80 && ip4.dst==";
    ovn.trace("new", "ext_node1", &format!("{packet}{destination}"))
}

/// Returns the ports by which a packet of the pod leaves OVN; none if it is dropped.
pub(crate) fn exits(ovn: &Ovn, destination: &str) -> Vec<String> {
    let path = path(ovn, destination);
    let outputs = path.lines().filter_map(|line| line.trim().strip_prefix("/* output to \""));
    let outside = outputs.filter_map(|line| line.split_once('"')).filter(|(_, kind)| {
        // Between switches and routers.
        !kind.contains("patch") && !kind.contains("l3gateway")
    });
    let exits: Vec<String> = outside.map(|(port, _)| port.to_owned()).collect();
    assert!(!exits.is_empty() || path.trim_end().ends_with("drop;"), "neither left nor dropped: {path}");
    exits
}
