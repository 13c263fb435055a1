//! Flags of any other cloud: none.

use trieste_cloud::CloudError;
use trieste_cloud::choice::Choice;

use super::flags::Flags;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct GenericArgs;

impl Flags for GenericArgs {
    fn choice(&self) -> Result<Choice, CloudError> {
        Ok(Choice::Generic)
    }

    fn lists_rules(&self) -> bool {
        true
    }
}
