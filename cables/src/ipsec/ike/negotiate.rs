//! What SAs are made of: what we propose, and what we choose of what the peer proposes (RFC 7296 sections 2.7, 3.3.6).

use super::EngineConfig;
use crate::ipsec::Spi;
use crate::ipsec::crypto::{EspOffer, Group, IkeSuite};
use crate::ipsec::wire::{NotifyKind, Proposal, Protocol, Transform, TransformKind};

/// Why nothing was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is nothing in it that we take.
    NoProposal,
    /// There is, but the public value is for another group than this one.
    WrongGroup(Group),
}

impl Refusal {
    /// The notify that says so, and its data.
    pub(super) fn answer(self) -> (NotifyKind, Vec<u8>) {
        match self {
            Self::NoProposal => (NotifyKind::NoProposalChosen, Vec::new()),
            Self::WrongGroup(group) => (NotifyKind::InvalidKePayload, group.number().to_be_bytes().to_vec()),
        }
    }
}

/// Our proposal for an IKE SA: all that we take. `spi` when it is to take the place of another.
pub(super) fn ike_offer(config: &EngineConfig, spi: Option<u64>) -> Vec<Proposal> {
    let aeads = config.ike_aeads.iter().map(|aead| aead.transform());
    let prfs = config.prfs.iter().map(|prf| prf.transform());
    let groups = config.groups.iter().map(|group| group.transform());
    vec![Proposal {
        number: 1,
        protocol: Protocol::Ike,
        spi: spi.map_or_else(Vec::new, |spi| spi.to_be_bytes().to_vec()),
        transforms: aeads.chain(prfs).chain(groups).collect(),
    }]
}

/// What we choose of the peer's proposals for an IKE SA, with the number of the proposal. Algorithms are ours in our order;
/// the group is the one that the peer already has a public value of, if it is among `groups`.
pub(super) fn choose_ike<'a>(
    config: &EngineConfig,
    groups: &[Group],
    proposals: &'a [Proposal],
    group: u16,
) -> Result<(&'a Proposal, IkeSuite), Refusal> {
    let known =
        [TransformKind::Encryption, TransformKind::Prf, TransformKind::Integrity, TransformKind::Group];
    let candidates =
        proposals.iter().filter(|proposal| proposal.protocol == Protocol::Ike && is_known(proposal, &known));
    for aead in &config.ike_aeads {
        for proposal in candidates.clone() {
            let has = |transform: Transform| proposal.transforms.contains(&transform);
            let prf = config.prfs.iter().copied().find(|prf| has(prf.transform()));
            let best = groups.iter().copied().find(|group| has(group.transform()));
            let (Some(prf), Some(best), true) = (prf, best, has(aead.transform())) else { continue };
            let sent = groups.iter().copied().find(|ours| ours.number() == group);
            return match sent.filter(|sent| has(sent.transform())) {
                Some(group) => Ok((proposal, IkeSuite { aead: *aead, prf, group })),
                None => Err(Refusal::WrongGroup(best)),
            };
        }
    }
    Err(Refusal::NoProposal)
}

/// What the peer chose of our proposals for an IKE SA, if it is one of them.
pub(super) fn chosen_ike(config: &EngineConfig, proposals: &[Proposal]) -> Option<IkeSuite> {
    let [proposal] = proposals else { return None };
    let IkeSuite { aead, prf, group } = IkeSuite::from_proposal(proposal)?;
    let is_ours =
        config.ike_aeads.contains(&aead) && config.prfs.contains(&prf) && config.groups.contains(&group);
    is_ours.then_some(IkeSuite { aead, prf, group })
}

/// Our proposals for a child SA.
///
/// Upstream's libreswan 4 takes no proposal that says anything about ESN, and may be set to have no key agreement of
/// child SAs: it is offered every variant. Trieste gateways are offered what they are known to take.
pub(super) fn esp_offer(config: &EngineConfig, spi: Spi, is_kin: bool, has_group: bool) -> Vec<Proposal> {
    let esn = |has_esn| EspOffer::esn_transform(has_esn);
    let with_esn = if config.esn { vec![esn(true), esn(false)] } else { vec![esn(false)] };
    let groups: Vec<Transform> = config.groups.iter().map(|group| group.transform()).collect();
    let variants: Vec<(&[Transform], &[Transform])> = match (is_kin, has_group) {
        (true, true) => vec![(&groups, &with_esn)],
        (true, false) => vec![(&[], &with_esn)],
        (false, true) => vec![(&groups, &with_esn), (&[], &with_esn), (&groups, &[]), (&[], &[])],
        (false, false) => vec![(&[], &with_esn), (&[], &[])],
    };
    let suites = config.esp_suites.iter().map(|suite| suite.transform());
    (1..)
        .zip(variants)
        .map(|(number, (groups, esn))| Proposal {
            number,
            protocol: Protocol::Esp,
            spi: spi.to_bytes().to_vec(),
            transforms: suites.clone().chain(groups.iter().copied()).chain(esn.iter().copied()).collect(),
        })
        .collect()
}

/// What we choose of the peer's proposals for a child SA. `group` is that of its public value, if it sent one;
/// `is_first` for the child SA of IKE_AUTH, which has no key agreement of its own.
pub(super) fn choose_esp<'a>(
    config: &EngineConfig,
    proposals: &'a [Proposal],
    group: Option<u16>,
    is_first: bool,
) -> Result<(&'a Proposal, EspOffer), Refusal> {
    let known =
        [TransformKind::Encryption, TransformKind::Integrity, TransformKind::Group, TransformKind::Esn];
    let candidates =
        proposals.iter().filter(|proposal| proposal.esp_spi().is_some() && is_known(proposal, &known));
    let mut wrong = None;
    for suite in &config.esp_suites {
        for proposal in candidates.clone() {
            if !proposal.transforms.contains(&suite.transform()) {
                continue;
            }
            let Some(esn) = choose_esn(config, proposal) else { continue };
            let chosen = if is_first { Ok(None) } else { choose_group(config, proposal, group) };
            match chosen {
                Ok(group) => return Ok((proposal, EspOffer { suite: *suite, esn, group })),
                Err(refusal @ Refusal::WrongGroup(_)) => wrong = wrong.or(Some(refusal)),
                Err(Refusal::NoProposal) => {}
            }
        }
    }
    Err(wrong.unwrap_or(Refusal::NoProposal))
}

/// What the peer chose of our proposals for a child SA, if it is one of them. `group` is that of the public value we sent.
pub(super) fn chosen_esp(
    config: &EngineConfig,
    proposals: &[Proposal],
    group: Option<Group>,
) -> Option<(Spi, EspOffer)> {
    let [proposal] = proposals else { return None };
    let offer = EspOffer::from_proposal(proposal)?;
    let is_group_ours = offer.group.is_none() || offer.group == group;
    let is_esn_ours = offer.esn != Some(true) || config.esn;
    let is_ours = config.esp_suites.contains(&offer.suite) && is_group_ours && is_esn_ours;
    is_ours.then_some((proposal.esp_spi()?, offer))
}

/// Whether sequence numbers are to have 64 bits. Outer none: no variant that we take.
#[expect(clippy::option_option, reason = "the inner one is what the offer says")]
fn choose_esn(config: &EngineConfig, proposal: &Proposal) -> Option<Option<bool>> {
    let has = |esn| proposal.transforms.contains(&EspOffer::esn_transform(esn));
    match (has(true) && config.esn, has(false)) {
        (true, _) => Some(Some(true)),
        (false, true) => Some(Some(false)),
        (false, false) if proposal.of_kind(TransformKind::Esn).next().is_none() => Some(None),
        (false, false) => None,
    }
}

fn choose_group(
    config: &EngineConfig,
    proposal: &Proposal,
    sent: Option<u16>,
) -> Result<Option<Group>, Refusal> {
    let mut offered = proposal.of_kind(TransformKind::Group).peekable();
    if offered.peek().is_none() {
        return Ok(None);
    }
    let can_be_none = offered.any(|transform| transform.id == 0);
    let ours = || config.groups.iter().filter(|group| proposal.transforms.contains(&group.transform()));
    let same = ours().find(|group| Some(group.number()) == sent).copied();
    match (same, ours().next()) {
        (Some(group), _) => Ok(Some(group)),
        (None, _) if can_be_none => Ok(None),
        (None, Some(best)) => Err(Refusal::WrongGroup(*best)),
        (None, None) => Err(Refusal::NoProposal),
    }
}

//= https://www.rfc-editor.org/rfc/rfc7296#section-3.3.6
//# If the responder receives a proposal that contains a Transform Type
//# it does not understand, or a proposal that is missing a mandatory
//# Transform Type, it MUST consider this proposal unacceptable
/// Whether all kinds of transform are known, and integrity can be left to the AEAD.
fn is_known(proposal: &Proposal, kinds: &[TransformKind]) -> bool {
    let mut integrity = proposal.of_kind(TransformKind::Integrity).peekable();
    let is_free = integrity.peek().is_none() || integrity.any(|transform| transform.id == 0);
    is_free && proposal.transforms.iter().all(|transform| kinds.contains(&transform.kind))
}

/// The words for the algorithms of a child SA.
pub(super) fn words(offer: &EspOffer) -> String {
    let mut words = offer.suite.to_string();
    if let Some(group) = offer.group {
        words = format!("{words}-{group}");
    }
    if offer.esn == Some(true) { format!("{words}-esn") } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipsec::EspSuite;
    use crate::ipsec::crypto::{IkeAead, Prf};

    fn config() -> EngineConfig {
        EngineConfig::default()
    }

    fn esp(number: u8, suites: &[EspSuite], more: &[Transform]) -> Proposal {
        let transforms = suites.iter().map(|suite| suite.transform()).chain(more.iter().copied()).collect();
        Proposal { number, protocol: Protocol::Esp, spi: vec![1, 2, 3, 4], transforms }
    }

    #[test]
    fn of_what_the_peer_proposes_our_own_order_decides() {
        let offer = ike_offer(&config(), None);
        let mut theirs = config();
        theirs.ike_aeads = vec![IkeAead::ChaCha20Poly1305, IkeAead::Aes128Gcm16];
        theirs.prfs = vec![Prf::HmacSha512];
        let (_, suite) = choose_ike(&theirs, &theirs.groups, &offer, Group::Ecp256.number()).unwrap();
        assert_eq!(suite.to_string(), "chacha20poly1305-prfsha512-ecp256");
        theirs.groups = vec![Group::Ecp384];
        assert_eq!(choose_ike(&theirs, &theirs.groups, &offer, 31), Err(Refusal::WrongGroup(Group::Ecp384)));
        theirs.prfs.clear();
        assert_eq!(choose_ike(&theirs, &theirs.groups, &offer, 20), Err(Refusal::NoProposal));
    }

    #[test]
    fn an_answer_that_we_did_not_propose_is_refused() {
        let suite = IkeSuite { aead: IkeAead::Aes256Gcm16, prf: Prf::HmacSha256, group: Group::Curve25519 };
        let mut config = config();
        assert_eq!(chosen_ike(&config, &[suite.proposal(1, None)]), Some(suite));
        assert_eq!(chosen_ike(&config, &[suite.proposal(1, None), suite.proposal(2, None)]), None);
        config.groups = vec![Group::Ecp256];
        assert_eq!(chosen_ike(&config, &[suite.proposal(1, None)]), None);
    }

    #[test]
    fn child_sas_are_offered_with_and_without_esn_to_foreign_peers_and_with_to_kin() {
        let count = |is_kin, has_group| esp_offer(&config(), Spi(0x1234_5678), is_kin, has_group).len();
        assert_eq!(
            (count(true, true), count(true, false), count(false, true), count(false, false)),
            (1, 1, 4, 2)
        );
        let offer = esp_offer(&config(), Spi(0x1234_5678), false, true);
        let silent = |proposal: &Proposal| proposal.of_kind(TransformKind::Esn).next().is_none();
        assert_eq!(offer.iter().map(silent).collect::<Vec<_>>(), [false, false, true, true]);
    }

    #[test]
    fn esn_is_taken_where_it_is_offered_and_nothing_said_means_none() {
        let (yes, no) = (EspOffer::esn_transform(true), EspOffer::esn_transform(false));
        let choose = |more: &[Transform]| {
            let offer = [esp(1, &EspSuite::ALL, more)];
            choose_esp(&config(), &offer, None, true).map(|(_, offer)| (offer.suite, offer.esn))
        };
        assert_eq!(choose(&[no, yes]), Ok((EspSuite::Aes128Gcm16, Some(true))));
        assert_eq!(choose(&[no]), Ok((EspSuite::Aes128Gcm16, Some(false))));
        assert_eq!(choose(&[]), Ok((EspSuite::Aes128Gcm16, None)));
        let unknown = Transform::new(TransformKind::Other(6), 1);
        assert_eq!(choose(&[no, unknown]), Err(Refusal::NoProposal));
    }

    #[test]
    fn a_group_is_asked_for_only_where_the_peer_insists_on_one() {
        let no_esn = EspOffer::esn_transform(false);
        let group = Group::Ecp256.transform();
        let choose = |more: &[Transform], sent| {
            let offer = [esp(1, &[EspSuite::Aes256Gcm16], more)];
            choose_esp(&config(), &offer, sent, false).map(|(_, offer)| offer.group)
        };
        assert_eq!(choose(&[group, no_esn], Some(19)), Ok(Some(Group::Ecp256)));
        assert_eq!(choose(&[group, no_esn], Some(31)), Err(Refusal::WrongGroup(Group::Ecp256)));
        assert_eq!(choose(&[group, no_esn], None), Err(Refusal::WrongGroup(Group::Ecp256)));
        assert_eq!(choose(&[group, Transform::new(TransformKind::Group, 0), no_esn], None), Ok(None));
        assert_eq!(choose(&[no_esn], Some(31)), Ok(None));
        let unknown = Transform::new(TransformKind::Group, 21);
        assert_eq!(choose(&[unknown, no_esn], Some(21)), Err(Refusal::NoProposal));
    }
}
