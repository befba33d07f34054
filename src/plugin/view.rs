//! The view: what the objects say together. Pure: records and the time in, rows out. A list that
//! was not read is an error, never empty; what is missing from a cut list is unknown.

pub(crate) mod actions;
pub(crate) mod attachments;
pub(crate) mod claims;
pub(crate) mod drives;
pub(crate) mod fence;
pub(crate) mod nodes;
pub(crate) mod retained;
pub(crate) mod unclean;
pub(crate) mod unreachable;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::objects::{NodeRecord, PodRecord, StorageRecord};

/// What was read, or why not.
pub(crate) type Read<T> = Result<T, String>;

/// What every command reads.
pub(crate) struct Base {
    /// The API server's clock.
    pub now: Timestamp,
    pub storages: Vec<StorageRecord>,
    /// By name.
    pub nodes: Read<BTreeMap<String, NodeRecord>>,
    /// The reporters' pods.
    pub reporters: Read<Vec<PodRecord>>,
    /// Nodes were selected by labels: an object without a Node is of a node that was not selected.
    pub is_selected: bool,
}

/// What the answer does not contain, and what that means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gap {
    pub what: String,
    pub why: String,
}

impl Gap {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Gap {
        Gap { what: what.into(), why: why.into() }
    }
}

impl Base {
    /// Lists that could not be read.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if let Err(why) = &self.nodes {
            gaps.push(Gap::new(
                "nodes",
                format!("{why}; nodes that never reported are not known, and reports of deleted nodes are not recognized"),
            ));
        }
        if let Err(why) = &self.reporters {
            gaps.push(Gap::new(
                "pods of reporters",
                format!("{why}; whether a silent node's reporter runs is not known"),
            ));
        }
        gaps
    }
}
