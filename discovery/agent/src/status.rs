//! How far an agent is, for those who read it.

/// The status of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Whether both stores are known.
    pub is_complete: bool,
    /// Whether, in addition, nothing is left to be written.
    pub is_settled: bool,
    /// How many services this cluster exports.
    pub exports: usize,
    /// How many services are imported, this cluster's own among them.
    pub imports: usize,
    /// One reason why something is not written, if there is one.
    pub problem: Option<String>,
    /// Objects of other clusters that are left alone; not all if they are many.
    pub refused: Vec<RefusedObject>,
}

/// An object of another cluster that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedObject {
    /// Its kind, namespace and name.
    pub object: String,
    /// Why.
    pub reason: String,
}
