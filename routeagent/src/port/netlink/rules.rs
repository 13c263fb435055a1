//! Removes policy-routing rules that Submariner wrote.

use netlink_packet_route::rule::{RuleAttribute, RuleMessage};

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
        let is_known =
            |there: &ObservedRule| there.rule == *rule && (there.is_submariners() || there.is_ours());
        let reads = |message: &RuleMessage| parse::rule(message).filter(is_known);
        let alike: Vec<_> = self.alike(rule).await?.iter().map(reads).collect();
        let Some(last) =
            alike.iter().rposition(|there| there.as_ref().is_some_and(ObservedRule::is_submariners))
        else {
            return Ok(());
        };
        let (until, behind) = alike.split_at(last + 1);
        if until.iter().any(Option::is_none) {
            return Err(PortError::RuleInFront(rule.to_string()));
        }
        if is_wanted && !behind.iter().flatten().any(ObservedRule::is_ours) {
            // Without EXCL the kernel takes a second one of the same content, and puts it behind the first.
            let mut request = self.handle().rule().add().replace();
            *request.message_mut() = rule_message(rule);
            request.execute().await.map_err(refused)?;
        }
        for _ in until {
            let mut request = rule_message(rule);
            request.attributes.retain(|attribute| !matches!(attribute, RuleAttribute::Protocol(_)));
            self.handle().rule().del(request).execute().await.map_err(refused)?;
        }
        Ok(())
    }

    /// Returns the rules of that priority and table, in the kernel's order.
    async fn alike(&self, rule: &Rule) -> Result<Vec<RuleMessage>, PortError> {
        let messages = collect(self.handle().rule().get(version(rule.family)).execute()).await?;
        Ok(messages.into_iter().filter(|message| parse::leads_to(message, rule)).collect())
    }
}
