//! Congestion marks through a cable (RFC 6040). On the way out the inner field is copied (normal mode,
//! section 4.1), which the lanes do; here is what happens on the way in.

use trieste_packet::{DropReason, Packet, wire};

/// Carries the outer header's congestion mark into the inner one, once.
pub(crate) fn mark(packet: &mut Packet) -> Result<(), DropReason> {
    let outer = std::mem::take(&mut packet.outer.tos) & 3;
    if outer == 0 {
        return Ok(());
    }
    let inner = wire::tos(packet.bytes()) & 3;
    let marked = decapsulate(inner, outer).ok_or(DropReason::EcnNotCapable)?;
    if marked != inner {
        wire::set_ecn(packet.buf.bytes_mut(), marked);
    }
    Ok(())
}

/// The inner ECN field after decapsulation (RFC 6040 figure 4), or `None` when the packet has to be dropped: it
/// was marked on the way but says that it cannot carry the mark. Fields are 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
#[must_use]
pub fn decapsulate(inner: u8, outer: u8) -> Option<u8> {
    //= https://www.rfc-editor.org/rfc/rfc6040#section-4.2
    //# If the inner ECN field is Not-ECT, the decapsulator MUST NOT
    //# propagate any other ECN codepoint onwards.
    match (inner & 3, outer & 3) {
        (0, 3) => None,
        (0, _) => Some(0),
        (_, 3) | (3, _) => Some(3),
        (2, 1) => Some(1),
        (inner, _) => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6040#section-4.2
    //= type=test
    //# decapsulation
    #[test]
    fn all_sixteen_cells_are_those_of_the_table() {
        const NOT: u8 = 0;
        const ECT1: u8 = 1;
        const ECT0: u8 = 2;
        const CE: u8 = 3;
        let table = [
            (NOT, [Some(NOT), Some(NOT), Some(NOT), None]),
            (ECT0, [Some(ECT0), Some(ECT0), Some(ECT1), Some(CE)]),
            (ECT1, [Some(ECT1), Some(ECT1), Some(ECT1), Some(CE)]),
            (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [NOT, ECT0, ECT1, CE].into_iter().zip(row) {
                assert_eq!(decapsulate(inner, outer), expected, "inner {inner} outer {outer}");
            }
        }
    }
}
