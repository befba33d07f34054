//! What the watches have listed: a new list replaces what is known only when it is complete.
//!
//! In: changes of a watch. Out: the known objects by name, whether they are complete, whether the
//! watch fails. No I/O.

use std::collections::BTreeMap;

use crate::fleet::api::Change;
use crate::fleet::model::{Node, Report, Volume};

/// Lists that are being received, and which kinds are known completely.
#[derive(Default)]
pub(crate) struct Lists {
    pub nodes: Listing<Node>,
    pub reports: Listing<Report>,
    pub volumes: Listing<Volume>,
}

pub(crate) struct Listing<T> {
    new: BTreeMap<String, T>,
    pub is_complete: bool,
    pub is_failing: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Listing {
            new: BTreeMap::new(),
            is_complete: false,
            is_failing: false,
        }
    }
}

impl<T: PartialEq> Listing<T> {
    /// True if what is known has changed. What was known stays until a new list is complete.
    pub(crate) fn apply(&mut self, change: Change<T>, known: &mut BTreeMap<String, T>) -> bool {
        self.is_failing = matches!(change, Change::Failing);
        match change {
            Change::Listing => self.new.clear(),
            Change::ListedOne(name, object) => {
                self.new.insert(name, object);
            }
            Change::Listed => {
                *known = std::mem::take(&mut self.new);
                self.is_complete = true;
                return true;
            }
            Change::Set(name, object) => {
                if known.get(&name) == Some(&object) {
                    return false;
                }
                known.insert(name, object);
                return true;
            }
            Change::Deleted(name) => return known.remove(&name).is_some(),
            Change::Failing => {}
        }
        false
    }
}
