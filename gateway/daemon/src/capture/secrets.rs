//! Keys of SAs as the lines that Wireshark reads them from.
//!
//! Addresses stand in the lines because two peers may choose the same SPI. One that nobody has chosen is left open.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use trieste_cables::ipsec::ike::SaSecrets;
use trieste_cables::ipsec::{EspKeys, EspSuite, Spi};
use trieste_control::admin::CaptureSecrets;
use zeroize::Zeroizing;

/// Any address, in Wireshark's tables.
const ANY: &str = "*";

/// Returns the lines of Wireshark's tables for these SAs.
#[must_use]
pub fn tables(secrets: &[SaSecrets]) -> CaptureSecrets {
    let mut tables = CaptureSecrets::default();
    for sa in secrets {
        match sa {
            SaSecrets::Ike { initiator_spi, responder_spi, cipher, sk_ei, sk_er } => {
                match ike_algorithm(cipher) {
                    Some(algorithm) => tables.ikev2_decryption_table.push(format!(
                        "{initiator_spi:016x},{responder_spi:016x},{},{},\"{algorithm}\",,,\"NONE [RFC4306]\"",
                        *hex(sk_ei),
                        *hex(sk_er),
                    )),
                    None => tables.unreadable.push(format!(
                        "IKE SA {initiator_spi:016x}_i {responder_spi:016x}_r: Wireshark knows no {cipher} for IKE"
                    )),
                }
            }
            SaSecrets::Esp { source, destination, spi, suite, has_esn, keys } => {
                match esp_algorithm(*suite) {
                    Some(algorithm) => {
                        tables.esp_sa.push(esp_line((source, destination), *spi, algorithm, *has_esn, keys));
                    }
                    None => tables.unreadable.push(format!(
                        "ESP SA {spi} from {} to {}: Wireshark knows no {suite} for ESP",
                        source.ip(),
                        destination.ip(),
                    )),
                }
            }
        }
    }
    tables
}

fn esp_line(
    (source, destination): (&SocketAddr, &SocketAddr),
    spi: Spi,
    algorithm: &str,
    has_esn: bool,
    keys: &EspKeys,
) -> String {
    let known = if source.ip().is_unspecified() { destination } else { source };
    let family = if known.ip().to_canonical().is_ipv4() { "IPv4" } else { "IPv6" };
    let key = Zeroizing::new([&keys.key[..], &keys.salt].concat());
    // The upper half of sequence numbers is one value for the whole capture: the first 4 billion packets have it.
    let esn = if has_esn { ",\"64-bit\",\"0x00000000\"" } else { "" };
    format!(
        "\"{family}\",\"{}\",\"{}\",\"{spi}\",\"{algorithm}\",\"0x{}\",\"NULL\",\"\"{esn}",
        place(source.ip()),
        place(destination.ip()),
        *hex(&key),
    )
}

/// Formats an address; the unspecified one as any.
fn place(address: IpAddr) -> String {
    let address = address.to_canonical();
    if address.is_unspecified() { ANY.to_owned() } else { address.to_string() }
}

/// Returns the name in Wireshark's `esp_sa`, for both lengths of key.
fn esp_algorithm(suite: EspSuite) -> Option<&'static str> {
    match suite {
        EspSuite::Aes128Gcm16 | EspSuite::Aes256Gcm16 => Some("AES-GCM with 16 octet ICV [RFC4106]"),
        EspSuite::ChaCha20Poly1305 => None,
    }
}

/// Returns the name in Wireshark's `ikev2_decryption_table`.
fn ike_algorithm(cipher: &str) -> Option<&'static str> {
    match cipher {
        "aes128gcm16" => Some("AES-GCM-128 with 16 octet ICV [RFC5282]"),
        "aes256gcm16" => Some("AES-GCM-256 with 16 octet ICV [RFC5282]"),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * bytes.len()));
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}
