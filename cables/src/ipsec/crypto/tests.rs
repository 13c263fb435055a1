//! The cryptography against published values and recorded exchanges.

mod agreement;
mod derivation;
mod protection;
mod recorded;
mod wycheproof;

/// Bytes of hexadecimal text; white space is left out.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.as_chunks::<2>().0;
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
