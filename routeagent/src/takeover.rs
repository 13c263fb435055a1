//! Of which of Submariner's programs ours have taken the place on a node.

/// The programs whose leftovers are removed (`submariner.rs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takeover {
    /// None.
    #[default]
    Nothing,
    /// The route agent: ours runs.
    Agent,
    /// The gateway and globalnet as well: the node's active gateway is ours.
    Gateway,
}
