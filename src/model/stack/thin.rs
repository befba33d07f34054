//! dm-thin's pools, and VDO, which is filled and refuses writes like one. Read by
//! `source/layers/status.rs`.

use serde::{Deserialize, Serialize};

use crate::assess::percent;
use crate::stack::StorageStack;
use diskvitals_finding::reason::LayerKind;

/// dm-thin's pool status (Documentation/admin-guide/device-mapper/thin-provisioning.rst), in
/// blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinPool {
    pub metadata_used: u64,
    pub metadata_total: u64,
    pub data_used: u64,
    pub data_total: u64,
    /// `rw`, `ro`, `out_of_data_space`, `Fail`.
    pub mode: String,
    pub needs_check: bool,
    /// It has no metadata space of its own; `mode` is `rw` or `ro`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_vdo: bool,
    pub status_line: String,
}

impl StorageStack for ThinPool {
    fn kind(&self) -> LayerKind {
        LayerKind::Pool
    }

    fn figure(&self) -> String {
        let share = |used, total| {
            percent(used, total).map_or("unknown".to_owned(), |share| format!("{share} %"))
        };
        let data = share(self.data_used, self.data_total);
        if self.is_vdo {
            return format!("VDO, {data}");
        }
        format!("data {data}, metadata {}", share(self.metadata_used, self.metadata_total))
    }

    fn is_bad(&self) -> bool {
        self.mode != "rw" || self.needs_check
    }

    fn space(&self) -> Option<(u64, u64)> {
        Some((self.data_total, self.data_total.saturating_sub(self.data_used)))
    }

    fn clear_usage(&mut self) {
        self.metadata_used = 0;
        self.data_used = 0;
        self.status_line.clear();
    }
}
