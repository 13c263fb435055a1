//! Hashes of addresses, by which NAT is noticed (RFC 7296 section 2.23).

use std::net::{IpAddr, SocketAddr};

use ring::digest;

/// The data of a `NAT_DETECTION_SOURCE_IP` or `NAT_DETECTION_DESTINATION_IP`: SHA-1 of the SPIs as they are in the header
/// of the message, the address and the port. SHA-1 is the RFC's; nothing rests on its strength.
///
//= https://www.rfc-editor.org/rfc/rfc7296#section-2.23
//# SHA-1 digest of the SPIs (in the order they appear in the
//# header), IP address, and port from which this packet was sent.
#[must_use]
pub fn nat_detection_hash(spi_i: u64, spi_r: u64, address: SocketAddr) -> [u8; 20] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&spi_i.to_be_bytes());
    context.update(&spi_r.to_be_bytes());
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => context.update(&ip.octets()),
        IpAddr::V6(ip) => context.update(&ip.octets()),
    }
    context.update(&address.port().to_be_bytes());
    context.finish().as_ref().try_into().expect("SHA-1 has 20 bytes")
}
