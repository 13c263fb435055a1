//! What strongSwan tells of its SAs: the answer to `swanctl --list-sas --raw`.

use anyhow::Context;

/// An IKE SA.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IkeSa {
    /// A number that no other one of this charon has.
    pub id: u64,
    /// `ESTABLISHED` and others.
    pub state: String,
    /// The initiator's SPI, hexadecimal.
    pub initiator_spi: String,
    /// Cipher, PRF and group, as strongSwan names them: `AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE_25519`.
    pub suite: String,
    /// Its child SAs.
    pub children: Vec<ChildSa>,
}

/// A child SA.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChildSa {
    /// The name of its configuration.
    pub name: String,
    /// `INSTALLED` and others.
    pub state: String,
    /// Whether it travels in UDP.
    pub is_encapsulated: bool,
    /// Its SPI for what comes in, hexadecimal.
    pub spi_in: String,
    /// Its SPI for what goes out, hexadecimal.
    pub spi_out: String,
    /// The cipher, and the group of the last rekeying if there was one: `AES_GCM_16-128/ECP_256`.
    pub suite: String,
    /// Bytes of inner packets that came in.
    pub bytes_in: u64,
    /// Bytes of inner packets that went out.
    pub bytes_out: u64,
    /// Its own selectors.
    pub local: String,
    /// The other side's.
    pub remote: String,
}

/// A section `name {…}` of the answer.
#[derive(Debug, Default)]
struct Section {
    values: Vec<(String, String)>,
    sections: Vec<(String, Self)>,
}

impl Section {
    fn value(&self, key: &str) -> &str {
        self.values.iter().find(|(other, _)| other == key).map_or("", |(_, value)| value)
    }

    fn number(&self, key: &str) -> anyhow::Result<u64> {
        let text = self.value(key);
        text.parse().with_context(|| format!("{key}={text} is no number"))
    }

    /// Those of `keys` that are there, with dashes within an algorithm and slashes between.
    fn suite(&self, cipher: [&str; 2], others: &[&str]) -> String {
        let cipher: Vec<_> =
            cipher.iter().map(|key| self.value(key)).filter(|word| !word.is_empty()).collect();
        let others = others.iter().map(|key| self.value(key)).filter(|word| !word.is_empty());
        std::iter::once(cipher.join("-")).chain(others.map(str::to_owned)).collect::<Vec<_>>().join("/")
    }
}

/// Reads all events of the answer.
///
/// # Errors
/// If brackets do not match, or a number is none.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<IkeSa>> {
    let mut sas = Vec::new();
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("list-sa event ")) {
        let (root, rest) = section(line.trim().strip_prefix('{').context("an event without a bracket")?)?;
        anyhow::ensure!(rest.trim().is_empty(), "words behind an event: {rest}");
        for (_, ike) in &root.sections {
            sas.push(ike_sa(ike)?);
        }
    }
    Ok(sas)
}

fn ike_sa(ike: &Section) -> anyhow::Result<IkeSa> {
    let children = ike.sections.iter().find(|(name, _)| name == "child-sas");
    let children = children.map_or(&[][..], |(_, children)| &children.sections);
    Ok(IkeSa {
        id: ike.number("uniqueid")?,
        state: ike.value("state").to_owned(),
        initiator_spi: ike.value("initiator-spi").to_owned(),
        suite: ike.suite(["encr-alg", "encr-keysize"], &["prf-alg", "dh-group"]),
        children: children.iter().map(|(_, child)| child_sa(child)).collect::<anyhow::Result<_>>()?,
    })
}

fn child_sa(child: &Section) -> anyhow::Result<ChildSa> {
    // One that is on its way has no counters yet.
    let count = |key: &str| if child.value(key).is_empty() { Ok(0) } else { child.number(key) };
    Ok(ChildSa {
        name: child.value("name").to_owned(),
        state: child.value("state").to_owned(),
        is_encapsulated: child.value("encap") == "yes",
        spi_in: child.value("spi-in").to_owned(),
        spi_out: child.value("spi-out").to_owned(),
        suite: child.suite(["encr-alg", "encr-keysize"], &["dh-group"]),
        bytes_in: count("bytes-in")?,
        bytes_out: count("bytes-out")?,
        local: child.value("local-ts").to_owned(),
        remote: child.value("remote-ts").to_owned(),
    })
}

/// Reads up to the closing bracket of a section; returns what is behind it. Values have no spaces, lists have.
fn section(text: &str) -> anyhow::Result<(Section, &str)> {
    let (mut own, mut rest) = (Section::default(), text);
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return Ok((own, behind));
        }
        let end = rest.find(['=', ' ', '{']).context("a section does not end")?;
        let (key, behind) = rest.split_at(end);
        if let Some(list) = behind.strip_prefix("=[") {
            let (value, behind) = list.split_once(']').context("a list does not end")?;
            own.values.push((key.to_owned(), value.to_owned()));
            rest = behind;
        } else if let Some(value) = behind.strip_prefix('=') {
            let end = value.find([' ', '}']).context("a section does not end")?;
            let (value, behind) = value.split_at(end);
            own.values.push((key.to_owned(), value.to_owned()));
            rest = behind;
        } else {
            let inside =
                behind.trim_start().strip_prefix('{').with_context(|| format!("{key} has no value"))?;
            let (inner, behind) = section(inside)?;
            own.sections.push((key.to_owned(), inner));
            rest = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As strongSwan 5.9.8 wrote it, without some of its values.
    const ANSWER: &str = "list-sa event {cable {uniqueid=1 version=2 state=ESTABLISHED local-host=172.31.2.1 \
        local-port=4500 initiator-spi=8fbaf6b4e1dbcdcd responder-spi=7ad7e02b5ea8a4d2 nat-local=yes nat-any=yes \
        encr-alg=AES_GCM_16 encr-keysize=256 prf-alg=PRF_HMAC_SHA2_256 dh-group=CURVE_25519 established=1 child-sas \
        {pods-1 {name=pods uniqueid=1 reqid=1 state=INSTALLED mode=TUNNEL protocol=ESP encap=yes spi-in=b89df2cd \
        spi-out=5bcbd5ee encr-alg=AES_GCM_16 encr-keysize=128 bytes-in=84 packets-in=1 bytes-out=168 packets-out=2 \
        local-ts=[10.2.0.0/16 10.102.0.0/16] remote-ts=[10.1.0.0/16]}}}}\nlist-sas reply {}\n";

    #[test]
    fn sas_and_their_children_are_read() {
        let sas = parse(ANSWER).unwrap();

        let [ike] = sas.as_slice() else { panic!("{sas:?}") };
        assert_eq!((ike.state.as_str(), ike.id), ("ESTABLISHED", 1));
        assert_eq!(ike.suite, "AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE_25519");
        let [child] = ike.children.as_slice() else { panic!("{ike:?}") };
        assert_eq!((child.name.as_str(), child.spi_in.as_str(), child.bytes_out), ("pods", "b89df2cd", 168));
        assert_eq!((child.suite.as_str(), child.is_encapsulated), ("AES_GCM_16-128", true));
        assert_eq!(child.local, "10.2.0.0/16 10.102.0.0/16");
        assert!(parse("list-sa event {cable {uniqueid=1").is_err());
        assert!(parse("list-sas reply {}").unwrap().is_empty());
    }
}
