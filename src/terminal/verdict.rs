//! What a program says about a node or a cluster as a whole, and its exit status.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Good,
    Unknown,
    Warning,
    Critical,
}

impl Verdict {
    /// Exit codes of the monitoring-plugin convention.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Good => 0,
            Verdict::Warning => 1,
            Verdict::Critical => 2,
            Verdict::Unknown => 3,
        }
    }
}
