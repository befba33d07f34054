//! Which events of a watch are news: one entry for each problem, and none again after a new list.
//!
//! In: events. Out: entries. It remembers the text of each object, and of findings what the filter
//! needs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::findings::filter::Resolved;
use crate::render::watch::{Entry, What, subject_text};
use diskvitals_terminal::screen::Screen;
use diskvitals_wire as wire;
use diskvitals_wire::watch_event::{Change, Item};

/// Kind and id.
type Key = (u8, String);

#[derive(Debug)]
struct Known {
    /// What has to differ to be news.
    text: String,
    entry: String,
}

#[derive(Debug)]
pub struct Journal {
    changes_only: bool,
    filter: Resolved,
    /// The daemon sends causes: findings have no lines of their own.
    has_causes: bool,
    known: BTreeMap<Key, Known>,
    findings: BTreeMap<String, wire::Finding>,
    /// The objects of the list that is being received.
    listed: Option<BTreeSet<Key>>,
    /// A complete list was received.
    has_list: bool,
}

impl Journal {
    pub fn new(changes_only: bool) -> Journal {
        Journal {
            changes_only,
            filter: Resolved::default(),
            has_causes: true,
            known: BTreeMap::new(),
            findings: BTreeMap::new(),
            listed: None,
            has_list: false,
        }
    }

    pub(crate) fn only_changes(&self) -> bool {
        self.changes_only
    }

    /// A list is being received.
    pub(crate) fn is_in_list(&self) -> bool {
        self.listed.is_some()
    }

    pub(crate) fn set_filter(&mut self, filter: Resolved) {
        self.filter = filter;
    }

    pub(crate) fn set_causes(&mut self, has_causes: bool) {
        self.has_causes = has_causes;
    }

    /// The entries of an event; None if it is no news.
    pub fn apply(&mut self, event: &wire::WatchEvent, screen: &Screen) -> Option<Vec<Entry>> {
        let entry = |what: What| Entry { time: event.time, what };
        match event.change() {
            Change::SnapshotBegin => {
                self.listed = Some(BTreeSet::new());
                self.findings.clear();
                let is_first = !self.has_list && !self.changes_only;
                return is_first.then(|| vec![entry(What::ListBegin(event.revision))]);
            }
            Change::SnapshotEnd => {
                let listed = self.listed.take().unwrap_or_default();
                let is_first = !std::mem::replace(&mut self.has_list, true);
                let gone: Vec<Key> = self.known.keys().cloned().collect();
                let gone = gone.into_iter().filter(|key| !listed.contains(key));
                let mut entries: Vec<Entry> = gone
                    .filter_map(|key| self.known.remove(&key))
                    .map(|known| entry(What::Changed(Change::Removed, known.entry)))
                    .collect();
                if is_first && !self.changes_only {
                    entries.push(entry(What::ListEnd));
                }
                return (!entries.is_empty()).then_some(entries);
            }
            _ => {}
        }
        let item = event.item.as_ref()?;
        let is_removed = event.change() == Change::Removed;
        if let Item::Finding(finding) = item {
            match is_removed || finding.cleared.is_some() {
                true => drop(self.findings.remove(&finding.id)),
                false => drop(self.findings.insert(finding.id.clone(), finding.clone())),
            }
        }
        let key = key_of(item);
        if is_removed || !self.is_shown(item) {
            let known = self.known.remove(&key)?;
            return Some(vec![entry(What::Changed(Change::Removed, known.entry))]);
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        let text = subject_text(item, screen);
        let news = news(item, &text);
        let now = Known { text: news.clone(), entry: text.clone() };
        let change = match self.known.insert(key, now) {
            Some(before) if before.text == news => return None,
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        let is_silent = self.listed.is_some() && !self.has_list && self.changes_only;
        (!is_silent).then(|| vec![entry(What::Changed(change, text))])
    }

    /// Whether the filter lets the event pass, for those who read all events.
    pub fn passes(&self, event: &wire::WatchEvent) -> bool {
        match &event.item {
            None => true,
            Some(Item::Finding(finding)) => {
                self.filter.is_empty() || self.is_kept(&[finding.id.as_str()])
            }
            Some(item) => self.passes_filter(item),
        }
    }

    fn is_shown(&self, item: &Item) -> bool {
        match item {
            Item::Finding(finding) => {
                !self.has_causes && finding.follows.is_empty() && self.is_kept(&[&finding.id])
            }
            Item::Cause(_) => self.has_causes && self.passes_filter(item),
            _ => self.passes_filter(item),
        }
    }

    fn passes_filter(&self, item: &Item) -> bool {
        match item {
            _ if self.filter.is_empty() => true,
            Item::Cause(cause) => {
                let all = cause.findings.iter().chain(&cause.consequences);
                let ids: Vec<&str> = all.map(|it| it.finding_id.as_str()).collect();
                self.is_kept(&ids)
            }
            Item::Drive(drive) => self.filter.passes(&drive.id),
            Item::Volume(volume) => self.filter.passes(&volume.id),
            Item::Check(check) => self.filter.passes(&check.volume_id),
            Item::Finding(finding) => self.is_kept(&[&finding.id]),
        }
    }

    /// Whether the filter keeps one of these findings.
    fn is_kept(&self, ids: &[&str]) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let all = self.findings.values().cloned().collect();
        let kept = self.filter.keep(all);
        kept.iter().any(|finding| ids.contains(&finding.id.as_str()))
    }
}

fn key_of(item: &Item) -> Key {
    match item {
        Item::Drive(it) => (0, it.id.clone()),
        Item::Volume(it) => (1, it.id.clone()),
        Item::Finding(it) => (2, it.id.clone()),
        Item::Cause(it) => (3, it.id.clone()),
        Item::Check(it) => (4, it.id.clone()),
    }
}

/// A cause has the line about an unhealthy drive or volume; what no cause has is that its health is
/// unknown, and that it is missing.
fn news(item: &Item, text: &str) -> String {
    let of = |health: wire::Health, why: &str, missing: bool| match health {
        wire::Health::Unknown => format!("unknown {missing} {why}"),
        _ => format!("known {missing}"),
    };
    match item {
        Item::Drive(it) => {
            of(it.health(), &it.health_unknown_why, it.presence() == wire::Presence::Missing)
        }
        Item::Volume(it) => of(it.health(), &it.health_unknown_why, false),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
