//! Removes policy-routing rules that Submariner wrote.

use netlink_packet_route::rule::RuleMessage;

use super::{Kernel, collect, parse, refused, rule_message, version};
use crate::hostnet::Rule;
use crate::observed::ObservedRule;
use crate::port::PortError;

impl Kernel {
    /// Removes all rules of this content that are not ours. Where one of ours is wanted there is one at any moment.
    ///
    /// The kernel removes the first rule that has what a request names, whatever else it selects by, and a protocol of 0, which
    /// Submariner's rules have, is not looked at. So one of ours that is in front goes first, and has to be behind as well.
    pub(super) async fn remove_submariners_rule(
        &self,
        rule: &Rule,
        is_wanted: bool,
    ) -> Result<(), PortError> {
        let alike = self.alike(rule).await?;
        let reads = |message: &RuleMessage| parse::rule(message).filter(|there| there.rule == *rule);
        let has_ours = alike.iter().filter_map(reads).any(|there| there.is_ours());
        let is_any = alike.iter().filter_map(reads).any(|there| !there.is_ours() && there.protocol == 0);
        if is_wanted && (is_any || !has_ours) {
            // Without EXCL the kernel takes a second one of the same content, and puts it behind the first.
            let mut request = self.handle().rule().add().replace();
            *request.message_mut() = rule_message(rule);
            request.execute().await.map_err(refused)?;
        }
        for _ in 0..=alike.len() {
            let alike = self.alike(rule).await?;
            let is_theirs = |there: &ObservedRule| !there.is_ours();
            let Some(target) = alike.iter().find(|message| reads(message).as_ref().is_some_and(is_theirs))
            else {
                return Ok(());
            };
            let first = alike.iter().find(|message| is_reached(message, target));
            if first.and_then(reads).is_none() {
                break;
            }
            self.handle().rule().del(target.clone()).execute().await.map_err(refused)?;
        }
        Err(PortError::RuleInFront(rule.to_string()))
    }

    /// Returns the rules of that priority and table, in the kernel's order.
    async fn alike(&self, rule: &Rule) -> Result<Vec<RuleMessage>, PortError> {
        let messages = collect(self.handle().rule().get(version(rule.family)).execute()).await?;
        Ok(messages.into_iter().filter(|message| parse::leads_to(message, rule)).collect())
    }
}

/// Returns `true` if the kernel may take a rule for one that a request names.
fn is_reached(message: &RuleMessage, named: &RuleMessage) -> bool {
    let protocol = parse::rule_protocol(named);
    protocol == 0 || parse::rule_protocol(message) == protocol
}
