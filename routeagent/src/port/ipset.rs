//! IP sets by netlink: their names, and the removal of one. The package `ipset` need not be there.

use std::io::ErrorKind;
use std::path::Path;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::PortError;
use super::wire::{AF_INET, Message, NETFILTER_HEADER_LEN, NLM_F_ACK, NLM_F_DUMP, Requests, text};

// --- from the kernel's headers: nfnetlink.h, ip_set.h -------------------------------------------------------------

/// `NFNL_SUBSYS_IPSET`, in the upper byte of a message's type.
const IPSET: u16 = 6 << 8;
const IPSET_CMD_DESTROY: u16 = 3;
const IPSET_CMD_LIST: u16 = 7;
const IPSET_ATTR_PROTOCOL: u16 = 1;
const IPSET_ATTR_SETNAME: u16 = 2;
const IPSET_ATTR_FLAGS: u16 = 6;
/// `NLA_F_NET_BYTEORDER`.
const BIG_ENDIAN: u16 = 1 << 14;
/// `IPSET_FLAG_LIST_SETNAME`: names alone.
const NAMES: u32 = 1 << 1;
/// `IPSET_PROTOCOL_MIN`, which every kernel speaks.
const PROTOCOL: u8 = 6;

/// Where the kernel has IP sets, this exists. To ask one that has none would load the module.
const MODULE: &str = "/sys/module/ip_set";

/// Returns the names of all sets of this network namespace.
pub(super) fn names() -> Result<Vec<String>, PortError> {
    if !Path::new(MODULE).exists() {
        return Ok(Vec::new());
    }
    let requests = Requests::open(NETLINK_NETFILTER).map_err(PortError::Socket)?;
    let request = request(IPSET_CMD_LIST, NLM_F_DUMP | NLM_F_ACK)
        .with(IPSET_ATTR_FLAGS | BIG_ENDIAN, &NAMES.to_be_bytes());
    requests.exchange(request, name).map_err(|source| PortError::Refused { source })
}

/// Removes a set.
pub(super) fn destroy(name: &str) -> Result<(), PortError> {
    let requests = Requests::open(NETLINK_NETFILTER).map_err(PortError::Socket)?;
    let terminated = [name.as_bytes(), &[0]].concat();
    let request = request(IPSET_CMD_DESTROY, NLM_F_ACK).with(IPSET_ATTR_SETNAME, &terminated);
    match requests.send(request) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(PortError::Refused { source: error }),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn request(command: u16, flags: u16) -> Message {
    Message::new(IPSET | command, flags, &[AF_INET, 0, 0, 0]).with(IPSET_ATTR_PROTOCOL, &[PROTOCOL])
}

/// Returns the name of a set that the kernel lists.
fn name(body: &[u8]) -> Option<String> {
    text(body.get(NETFILTER_HEADER_LEN..)?, IPSET_ATTR_SETNAME).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::wire::attribute;

    #[test]
    fn the_name_of_a_set_is_read_and_nonsense_has_none() {
        let mut body = vec![0; NETFILTER_HEADER_LEN];
        attribute(&mut body, IPSET_ATTR_PROTOCOL, &[PROTOCOL]);
        attribute(&mut body, IPSET_ATTR_SETNAME, b"SUBMARINER-LOCALCIDRS\0");
        assert_eq!(name(&body).as_deref(), Some("SUBMARINER-LOCALCIDRS"));
        for bytes in [&[][..], &[0; 3], &[0xff; 40]] {
            assert_eq!(name(bytes), None);
        }
    }
}
