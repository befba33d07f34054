//! The table of all duties. A duty is its folder and its line here.
//!
//! In: options. Out: the duties that they name, as one list.

use crate::claims::Claims;
use crate::duty::{Duty, DutyName};
use crate::lost_nodes::LostNodes;
use crate::options::Options;
use crate::quarantine::Quarantines;
use crate::release::Engine;
use crate::retention::Retention;
use crate::shared_drives::SharedDrives;
use crate::timing::Timing;
use crate::unreachable::UnreachableStorage;

pub(crate) const RELEASE: DutyName = "release";
pub(crate) const UNREACHABLE: DutyName = "unreachable";

type NewDuty = fn(&Options, &Timing) -> Box<dyn Duty>;

/// In the order of their writes.
pub(crate) const DUTIES: [(DutyName, NewDuty); 6] = [
    ("claims", |_, timing| Box::new(Claims::new(timing))),
    ("shared-drives", |_, timing| Box::new(SharedDrives::new(timing))),
    ("lost-nodes", |_, timing| Box::new(LostNodes::new(timing))),
    (RELEASE, |options, timing| Box::new(Engine::new(timing.release, &options.carry_out_in))),
    ("quarantine", |options, timing| {
        Box::new(Quarantines::new(timing.quarantine, &options.unclean_taint))
    }),
    (UNREACHABLE, |options, timing| {
        let (key, evicts) = (&options.unreachable_taint, options.evict_unreachable);
        Box::new(UnreachableStorage::new(timing, key, evicts))
    }),
];

/// Those of the options, and what is always done.
pub(crate) fn duties(options: &Options, timing: &Timing) -> Vec<(DutyName, Box<dyn Duty>)> {
    let chosen = DUTIES.iter().filter(|(name, _)| options.duties.contains(name));
    let mut duties: Vec<_> = chosen.map(|(name, new)| (*name, new(options, timing))).collect();
    duties.push(("retention", Box::new(Retention::new(timing))));
    duties
}
