//! Caches in front of slower drives: dm-cache, dm-writecache, bcache. Read by `source/layers`.

use serde::{Deserialize, Serialize};

use crate::stack::StorageStack;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::reason::LayerKind;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockCache {
    /// `dm-cache`, `dm-writecache`, `bcache`.
    pub kind: String,
    /// The devices that hold it; none: they are not known.
    pub devices: Vec<DevNo>,
    /// It has writes that the slower device does not have yet.
    pub is_dirty: bool,
    /// Why it does not work, in its own word: `Fail`, `ro`, `needs_check`, `error 5`, `inconsistent`.
    pub fault: Option<String>,
    pub status_line: String,
}

impl StorageStack for BlockCache {
    fn kind(&self) -> LayerKind {
        LayerKind::Cache
    }

    fn figure(&self) -> String {
        match (&self.fault, self.is_dirty) {
            (Some(fault), _) => format!("{}, {fault}", self.kind),
            (None, true) => format!("{}, dirty", self.kind),
            (None, false) => self.kind.clone(),
        }
    }

    fn is_bad(&self) -> bool {
        self.fault.is_some()
    }

    fn clear_usage(&mut self) {
        self.is_dirty = false;
        self.status_line.clear();
    }
}
