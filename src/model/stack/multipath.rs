//! dm-multipath, with the failures of its paths. Read by `source/layers/status.rs`.

use serde::{Deserialize, Serialize};

use crate::stack::StorageStack;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::reason::LayerKind;

/// dm-multipath's status: each path and whether the kernel uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multipath {
    pub paths: Vec<MultipathPath>,
    pub status_line: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipathPath {
    pub dev: DevNo,
    pub active: bool,
    pub fail_count: u64,
}

impl Multipath {
    fn active(&self) -> usize {
        self.paths.iter().filter(|path| path.active).count()
    }
}

impl StorageStack for Multipath {
    fn kind(&self) -> LayerKind {
        LayerKind::Paths
    }

    fn figure(&self) -> String {
        format!("{} of {} paths", self.active(), self.paths.len())
    }

    fn tolerates(&self) -> Option<usize> {
        self.active().checked_sub(1)
    }

    fn is_bad(&self) -> bool {
        self.paths.is_empty() || self.active() < self.paths.len()
    }

    fn clear_usage(&mut self) {
        self.status_line.clear();
    }
}
