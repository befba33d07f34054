//! Messages between the daemon and its helper for filesystem errors, one line each.

use serde::{Deserialize, Serialize};

use diskvitals_finding::dev::DevNo;
use diskvitals_finding::path::HostPath;
use diskvitals_model::source_update::FsErrorNotice;

/// To the helper: all filesystems to watch, complete each time. Repeating a request makes the
/// helper check again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRequest {
    pub filesystems: Vec<Filesystem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    pub dev: DevNo,
    /// `ext4`
    pub kind: String,
    /// Its mounts in PID 1's mount namespace: one suffices, the others are alternatives.
    pub paths: Vec<HostPath>,
}

/// Events of the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum HelperMessage {
    /// The first message. Names missing privileges, as text.
    Hello {
        limitations: Vec<String>,
    },
    /// fanotify is not available here.
    Unavailable {
        errno: i32,
        text: String,
    },
    /// The result for one filesystem. Sent when it changes.
    Mark {
        dev: DevNo,
        mark: MarkResult,
    },
    Error {
        error: FsErrorNotice,
    },
    /// Notices were lost.
    Overflow,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum MarkResult {
    Set,
    Refused {
        errno: i32,
        text: String,
    },
    /// The call has not returned; the helper has continued with other filesystems.
    Stuck,
}
