//! What the daemon and its helper for filesystem errors say to each other, a line each.

use serde::{Deserialize, Serialize};

use crate::model::dev::DevNo;
use crate::model::path::HostPath;
use crate::model::source_update::FsErrorNotice;

/// To the helper: all that shall be watched. Whole each time; saying it again makes it look again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRequest {
    pub filesystems: Vec<Filesystem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    pub dev: DevNo,
    /// `ext4`
    pub kind: String,
    /// Mounts of it, in PID 1's mount namespace: one is enough, the others are for when that one
    /// does not serve.
    pub paths: Vec<HostPath>,
}

/// From the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum HelperMessage {
    /// First of all. What it may not see or do, in words.
    Hello {
        limitations: Vec<String>,
    },
    /// There is no fanotify for us here.
    Unavailable {
        errno: i32,
        text: String,
    },
    /// What became of a filesystem that was wanted. Said when it changes.
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
    /// The call has not returned; others were marked meanwhile.
    Stuck,
}
