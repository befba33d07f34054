//! What a daemon reports, by id, and whether that is complete and as new as the daemon's own state.
//!
//! In: the events of its Watch, its findings, its node. Out: the objects, and where to resume. Pure.

use std::collections::BTreeMap;

use crate::watch_event::{Change, Item};
use crate::{Cause, Check, Drive, Finding, Node, Volume, WatchEvent};

/// The newest cleared findings are kept: more than the daemon keeps.
const MAX_CLEARED: usize = 10_000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    pub drives: BTreeMap<String, Drive>,
    pub volumes: BTreeMap<String, Volume>,
    /// Active ones.
    pub findings: BTreeMap<String, Finding>,
    pub cleared: BTreeMap<String, Finding>,
    pub causes: BTreeMap<String, Cause>,
    pub checks: BTreeMap<String, Check>,
}

#[derive(Debug, Default)]
pub struct NodeView {
    /// The daemon's newest answer. It is of the same moment as the objects if they are current.
    pub node: Node,
    /// The newest complete list, with all changes since.
    pub objects: Objects,
    /// The list that is being received; it replaces the objects when it is complete.
    incoming: Option<Objects>,
    resume: Resume,
}

/// What an answer of GetNode says about the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They are incomplete, or the daemon has changed since.
    Behind,
    /// The daemon itself does not know the node completely yet.
    Unsettled,
    Current,
}

/// Where a watch that was interrupted continues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resume {
    /// The last one that was received completely; 0: a list must come.
    pub revision: u64,
    in_list: bool,
}

impl Resume {
    pub(super) fn needs_list(self) -> bool {
        self.revision == 0
    }

    /// A list that is interrupted must come again.
    pub(super) fn note(&mut self, event: &WatchEvent) {
        let change = event.change();
        self.in_list &= change != Change::SnapshotEnd;
        self.in_list |= change == Change::SnapshotBegin;
        self.revision = if self.in_list { 0 } else { event.revision };
    }
}

impl NodeView {
    pub fn apply(&mut self, event: WatchEvent) {
        self.resume.note(&event);
        let change = event.change();
        match change {
            Change::SnapshotBegin => self.incoming = Some(Objects::default()),
            Change::SnapshotEnd => {
                if let Some(complete) = self.incoming.take() {
                    self.objects = complete;
                }
            }
            _ => {}
        }
        let removed = change == Change::Removed;
        let objects = self.incoming.as_mut().unwrap_or(&mut self.objects);
        match event.item {
            Some(Item::Drive(it)) => put(&mut objects.drives, it.id.clone(), it, removed),
            Some(Item::Volume(it)) => put(&mut objects.volumes, it.id.clone(), it, removed),
            Some(Item::Cause(it)) => put(&mut objects.causes, it.id.clone(), it, removed),
            Some(Item::Check(it)) => put(&mut objects.checks, it.id.clone(), it, removed),
            Some(Item::Finding(it)) => objects.put_finding(it, removed),
            // From a newer daemon.
            None => {}
        }
    }

    /// A list is being received: the objects stay as they are.
    pub fn is_listing(&self) -> bool {
        self.incoming.is_some()
    }

    /// The cleared ones of these findings, which a list leaves out.
    pub(crate) fn add_cleared(&mut self, findings: Vec<Finding>) {
        let objects = self.incoming.as_mut().unwrap_or(&mut self.objects);
        let cleared = findings.into_iter().filter(|finding| finding.cleared.is_some());
        objects.cleared.extend(cleared.map(|finding| (finding.id.clone(), finding)));
    }

    /// The node may report a change (for example settled) before Watch has sent all earlier ones.
    pub fn standing(&self) -> Standing {
        let revision = self.resume.revision;
        match self.node.settled {
            _ if revision == 0 || revision < self.node.revision => Standing::Behind,
            true => Standing::Current,
            false => Standing::Unsettled,
        }
    }
}

impl Objects {
    fn put_finding(&mut self, finding: Finding, removed: bool) {
        let id = finding.id.clone();
        if finding.cleared.is_none() {
            return put(&mut self.findings, id, finding, removed);
        }
        self.findings.remove(&id);
        self.cleared.insert(id, finding);
        if self.cleared.len() > MAX_CLEARED {
            let time = |it: &&Finding| Some(it.cleared.as_ref()?.time?.seconds);
            let oldest = self.cleared.values().min_by_key(time).map(|it| it.id.clone());
            oldest.and_then(|id| self.cleared.remove(&id));
        }
    }
}

fn put<T>(objects: &mut BTreeMap<String, T>, id: String, object: T, removed: bool) {
    match removed {
        true => drop(objects.remove(&id)),
        false => drop(objects.insert(id, object)),
    }
}

#[cfg(test)]
mod tests;
