//! Which changes of nftables can matter. kube-proxy rewrites its chains all the time; those are passed over.

use crate::foreign::FIREWALLD;
use crate::nft::{CLUSTERSET_TABLE, GUARD_TABLE, Hook, SERVICES_TABLE};
use crate::port::notice::Notice;
use crate::port::wire::{NETFILTER_HEADER_LEN, find, split, text};

/// Kinds of messages (`NFT_MSG_*`), as far as they are distinguished here.
const NEW_TABLE: u8 = 0;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const DELETE_CHAIN: u8 = 5;
const NEW_RULE: u8 = 6;
const DELETE_RULE: u8 = 8;
/// The first attribute of every message names the table.
const TABLE: u16 = 1;
/// A rule's chain.
const RULE_CHAIN: u16 = 2;
/// A chain's name.
const CHAIN_NAME: u16 = 3;
/// Present if the chain is a base chain.
const CHAIN_HOOK: u16 = 4;

/// Returns the notification of a datagram's messages; `None` if none of them matters.
pub(super) fn classify(datagram: &[u8]) -> Option<Notice> {
    let (mut rest, mut notice) = (datagram, None);
    while let Some((kind, body, next)) = split(rest) {
        // The upper byte names the subsystem, which is nftables.
        let [_, kind] = kind.to_be_bytes();
        let attributes = body.get(NETFILTER_HEADER_LEN..).unwrap_or_default();
        notice = match is_ours_gone(kind, attributes) {
            Some(true) => Some(Notice::FilterGone),
            // It was made again in the same transaction.
            Some(false) => Some(Notice::Changed),
            None => notice.or_else(|| message_can_matter(kind, attributes).then_some(Notice::Changed)),
        };
        rest = next;
    }
    notice
}

/// Returns whether our table went, or came; `None` if it did neither.
fn is_ours_gone(kind: u8, attributes: &[u8]) -> Option<bool> {
    (matches!(kind, NEW_TABLE | DELETE_TABLE) && text(attributes, TABLE) == Some(GUARD_TABLE))
        .then_some(kind == DELETE_TABLE)
}

fn message_can_matter(kind: u8, attributes: &[u8]) -> bool {
    let table = text(attributes, TABLE);
    if table
        .is_some_and(|table| [GUARD_TABLE, SERVICES_TABLE, CLUSTERSET_TABLE, FIREWALLD.1].contains(&table))
    {
        return true;
    }
    match kind {
        NEW_TABLE | DELETE_TABLE => true,
        NEW_CHAIN | DELETE_CHAIN => {
            find(attributes, CHAIN_HOOK).is_some() || is_named_as_ours(text(attributes, CHAIN_NAME))
        }
        NEW_RULE..=DELETE_RULE => table == Some("filter") && is_named_as_ours(text(attributes, RULE_CHAIN)),
        _ => false,
    }
}

fn is_named_as_ours(chain: Option<&str>) -> bool {
    Hook::OF_IPTABLES.iter().any(|hook| chain == Some(hook.iptables()) || chain == Some(hook.ours()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::wire::{Message, attribute};

    #[test]
    fn our_table_and_every_table_that_comes_or_goes_matter() {
        assert!(can_matter(&message(DELETE_RULE, &[(TABLE, b"trieste\0"), (RULE_CHAIN, b"mss\0")])));
        assert!(can_matter(&message(DELETE_TABLE, &[(TABLE, b"other\0")])));
        assert!(can_matter(&message(NEW_CHAIN, &[(TABLE, b"x\0"), (CHAIN_NAME, b"c\0"), (CHAIN_HOOK, &[])])));
        assert!(can_matter(&message(NEW_RULE, &[(TABLE, b"filter\0"), (RULE_CHAIN, b"FORWARD\0")])));
    }

    #[test]
    fn what_kube_proxy_rewrites_is_passed_over_also_before_something_that_matters() {
        let noise = message(NEW_RULE, &[(TABLE, b"filter\0"), (RULE_CHAIN, b"KUBE-SERVICES\0")]);
        assert!(!can_matter(&noise));
        assert!(!can_matter(&message(NEW_CHAIN, &[(TABLE, b"nat\0"), (CHAIN_NAME, b"KUBE-SVC-X\0")])));
        let both = [noise, message(DELETE_TABLE, &[(TABLE, b"other\0")])].concat();
        assert!(can_matter(&both));
    }

    #[test]
    fn that_our_table_is_gone_is_told_unless_it_is_made_again_in_the_same_transaction() {
        let [gone, made] = [DELETE_TABLE, NEW_TABLE].map(|kind| message(kind, &[(TABLE, b"trieste\0")]));
        let rule = message(DELETE_RULE, &[(TABLE, b"trieste\0"), (RULE_CHAIN, b"mss\0")]);
        let others = message(DELETE_TABLE, &[(TABLE, b"trieste-services\0")]);
        assert_eq!(classify(&[&rule[..], &gone, &others].concat()), Some(Notice::FilterGone));
        assert_eq!(classify(&[&rule[..], &gone, &made, &rule].concat()), Some(Notice::Changed));
        assert_eq!(classify(&others), Some(Notice::Changed));
    }

    fn can_matter(datagram: &[u8]) -> bool {
        classify(datagram).is_some()
    }

    #[test]
    fn nonsense_is_passed_over() {
        for bytes in [&[][..], &[0; 15], &[0; 64], &[0xff; 64]] {
            assert!(!can_matter(bytes));
        }
        let mut cut = message(NEW_RULE, &[(TABLE, b"filter\0"), (RULE_CHAIN, b"FORWARD\0")]);
        cut.truncate(30);
        assert!(!can_matter(&cut));
    }

    fn message(kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![1, 0, 0, 0];
        for (kind, value) in attributes {
            attribute(&mut body, *kind, value);
        }
        // The subsystem (nftables) is the upper byte of the kind.
        Message::new(10 << 8 | u16::from(kind), 0, &body).finish()
    }
}
