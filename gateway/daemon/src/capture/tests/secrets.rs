//! The tables of keys, as Wireshark's own program reads them, on exchanges that were recorded between two strongSwans.

use std::path::Path;
use std::process::Command;

use trieste_cables::ipsec::ike::SaSecrets;
use trieste_cables::ipsec::{EspKeys, EspSuite, Spi};
use trieste_control::admin::CaptureSecrets;

use super::super::secrets::tables;
use super::tools::is_installed;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cables/tests/vectors/golden");
const A: &str = "192.168.77.1:4500";
const B: &str = "192.168.77.2:4500";

/// The keys of a recorded exchange: of its IKE SA, and of both directions of its child SA.
fn golden(name: &str, cipher: &'static str, suite: EspSuite) -> Vec<SaSecrets> {
    let text = std::fs::read_to_string(format!("{GOLDEN}/{name}/golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let said = |key: &str| json[key].as_str().unwrap();
    let number = |key: &str| u64::from_str_radix(said(key), 16).unwrap();
    let bytes = |key: &str| -> Vec<u8> {
        let digits = said(key).as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    let esp = |(source, destination): (&str, &str), spi, key| {
        let keys = bytes(key);
        let (key, salt) = keys.split_at(keys.len() - EspSuite::SALT_BYTES);
        SaSecrets::Esp {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            spi: Spi(u32::try_from(number(spi)).unwrap()),
            suite,
            has_esn: false,
            keys: EspKeys { key: key.to_vec().into(), salt: salt.try_into().unwrap() },
        }
    };
    vec![
        SaSecrets::Ike {
            initiator_spi: number("spi_i"),
            responder_spi: number("spi_r"),
            cipher,
            sk_ei: bytes("Sk_ei secret").into(),
            sk_er: bytes("Sk_er secret").into(),
        },
        esp((A, B), "spi_out", "encryption initiator key"),
        // Where the kernel chooses our address, the line leaves it open.
        esp((B, "0.0.0.0:4500"), "spi_in", "encryption responder key"),
    ]
}

/// What tshark reads in a recorded exchange with these tables: the fields of every packet, separated by semicolons.
fn read(name: &str, tables: &CaptureSecrets, fields: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    for (file, lines) in
        [("esp_sa", &tables.esp_sa), ("ikev2_decryption_table", &tables.ikev2_decryption_table)]
    {
        std::fs::write(profile.path().join(file), lines.join("\n") + "\n").unwrap();
    }
    let mut command = Command::new("tshark");
    command.env("WIRESHARK_CONFIG_DIR", profile.path());
    command.args(["-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE"]);
    command.arg("-r").arg(Path::new(GOLDEN).join(name).join("cap.pcap"));
    command.args(["-T", "fields", "-E", "separator=;"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("esp_sa") && !errors.contains("ikev2"), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tshark_reads_recorded_exchanges_with_the_tables() {
    if !is_installed("tshark") {
        return;
    }
    let cases = [
        ("gcm128", "aes128gcm16", EspSuite::Aes128Gcm16),
        ("gcm256", "aes256gcm16", EspSuite::Aes256Gcm16),
        ("gcm256-384", "aes256gcm16", EspSuite::Aes256Gcm16),
    ];
    for (name, cipher, suite) in cases {
        let keys = golden(name, cipher, suite);
        let fields =
            ["esp.spi", "esp.icv_good", "icmp.type", "isakmp.exchangetype", "isakmp.id.data.ipv4_addr"];
        let text = read(name, &tables(&keys), &fields);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
        let esp: Vec<_> = lines.iter().filter(|line| !line[0].is_empty()).collect();
        assert!(esp.len() >= 6, "{name}: {text}");
        assert!(esp.iter().all(|line| line[1] == "1" && matches!(line[2], "0" | "8")), "{name}: {text}");
        // Identities are inside what only SK_e opens.
        let identities: Vec<_> = lines.iter().filter(|line| line[3] == "35").map(|line| line[4]).collect();
        assert_eq!(identities.len(), 2, "{name}: {text}");
        assert!(identities.iter().all(|id| id.contains("192.168.77.")), "{name}: {text}");

        let without = read(name, &tables(&keys[..1]), &fields);
        assert!(!without.contains(";1;"), "no keys, no ICV: {without}");
    }
}

#[test]
fn lines_have_wiresharks_columns() {
    let keys = EspKeys { key: vec![0xab; 16].into(), salt: [1, 2, 3, 4] };
    let esp = |source: &str, destination: &str, has_esn| SaSecrets::Esp {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        spi: Spi(0x0001_0201),
        suite: EspSuite::Aes128Gcm16,
        has_esn,
        keys: keys.clone(),
    };
    let all = [
        esp("192.0.2.1:0", "192.0.2.2:0", false),
        esp("[::]:4500", "[2001:db8::2]:4500", true),
        SaSecrets::Ike {
            initiator_spi: 0xa8,
            responder_spi: 0x9b06_da0d_a484_c6d9,
            cipher: "aes256gcm16",
            sk_ei: vec![1; 36].into(),
            sk_er: vec![2; 36].into(),
        },
    ];
    let tables = tables(&all);
    let key = "abababababababababababababababab01020304";
    let gcm = "AES-GCM with 16 octet ICV [RFC4106]";
    assert_eq!(
        tables.esp_sa,
        [
            format!(r#""IPv4","192.0.2.1","192.0.2.2","0x00010201","{gcm}","0x{key}","NULL","""#),
            format!(
                r#""IPv6","*","2001:db8::2","0x00010201","{gcm}","0x{key}","NULL","","64-bit","0x00000000""#
            ),
        ]
    );
    let (ei, er) = ("01".repeat(36), "02".repeat(36));
    let ike = format!(
        r#"00000000000000a8,9b06da0da484c6d9,{ei},{er},"AES-GCM-256 with 16 octet ICV [RFC5282]",,,"NONE [RFC4306]""#
    );
    assert_eq!(tables.ikev2_decryption_table, [ike]);
    assert!(tables.unreadable.is_empty());
}

#[test]
fn what_wireshark_cannot_decrypt_is_named_without_its_keys() {
    let mut keys = golden("gcm256", "chacha20poly1305", EspSuite::ChaCha20Poly1305);
    let tables = tables(&keys);
    assert!(tables.esp_sa.is_empty() && tables.ikev2_decryption_table.is_empty());
    assert_eq!(tables.unreadable.len(), 3);
    for (line, sa) in tables.unreadable.iter().zip(keys.drain(..)) {
        assert!(line.contains("chacha20poly1305") && line.contains("Wireshark"), "{line}");
        if let SaSecrets::Esp { spi, .. } = sa {
            assert!(line.contains(&spi.to_string()), "{line}");
        }
        assert!(line.len() < 120, "no key in {line}");
    }
}
