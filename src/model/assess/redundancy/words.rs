//! An array that lacks something, in words: one text for every place that shows it.
//!
//! In: what is left of it. Out: the message and the advice of its finding.

use crate::assess::layers::Degradation;
use crate::assess::redundancy::Loss;
use crate::assess::redundancy::members::FaultyMember;
use crate::assess::text::{Level, join_limited};
use diskvitals_finding::Evidence;
use diskvitals_finding::reason::NO_REDUNDANCY;
use diskvitals_finding::reason::Reason;

/// What may still fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Left {
    /// It does not run: its state.
    Stopped,
    /// Some of its data has no copy.
    TooFew,
    #[default]
    None,
    Some(usize),
}

/// What repairs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Md,
    Lvm,
    Btrfs,
}

#[derive(Debug, Default)]
pub(super) struct Shown {
    /// As people call it: `md0`, `vg/home`.
    pub name: String,
    pub level: String,
    /// `devices`, `legs`.
    pub unit: &'static str,
    pub have: usize,
    pub all: usize,
    pub left: Left,
    /// The state of one that does not run.
    pub state: String,
    /// Drives of which none may fail.
    pub holders: Vec<String>,
    /// Only a part of the data has no second copy.
    pub is_part: bool,
    /// `sda lacks 2 ranges`.
    pub lacking: Vec<String>,
    pub waits_for_parity: bool,
    /// `rebuild`, or the name of md for what runs; empty when nothing does.
    pub action: String,
    /// `, 9 % done`, of the action.
    pub progress: String,
    /// Members are being filled.
    pub is_rebuilding: bool,
    /// Drives that are to be filled.
    pub filling: Vec<String>,
    /// `raid device 1 (was sdb, serial S, last in sync …)`.
    pub missing: Vec<String>,
    /// Those that are missing are present again, and the next mount uses them.
    pub are_back: bool,
    /// Members that failed and are still listed.
    pub faulty: Vec<FaultyMember>,
    /// Members that are back and lack what was written while they were away.
    pub not_current: Vec<String>,
    /// A path that a btrfs is mounted at.
    pub mount: Option<String>,
    pub has_partitions: bool,
    pub is_parity: bool,
    /// `sda (PendingSectors)`: of the holders, those with findings that endanger data.
    pub failing: Vec<String>,
    /// Of the holders, those of unknown health.
    pub unknown: Vec<String>,
    pub tool: Option<Tool>,
}

impl Shown {
    pub(super) fn loss(&self, level: Level, evidence: Vec<Evidence>) -> Loss {
        let reason = match self.left {
            Left::None => Reason::RedundancyLost,
            Left::Stopped | Left::TooFew | Left::Some(_) => Reason::RaidDegraded,
        };
        let degradation = Degradation {
            level,
            message: self.message(),
            advice: Some(self.advice()),
            clears: self.clears(),
            evidence,
        };
        Loss { reason, degradation }
    }

    fn message(&self) -> String {
        let name = format!("{} ({})", self.name, self.level);
        let count = format!("runs with {} of {} {}", self.have, self.all, self.unit);
        let holders = join_limited(&self.holders);
        let part = if self.is_part { "a part of " } else { "" };
        let mut message = match self.left {
            Left::Stopped => format!("{name} does not run: its state is `{}`", self.state),
            Left::TooFew => format!("{name} {count}: too few to carry its data"),
            Left::None if self.waits_for_parity => format!(
                "{NO_REDUNDANCY}: the parity of {name} has to be computed, after a crash or its creation"
            ),
            Left::None if !self.lacking.is_empty() && self.is_parity => format!(
                "{NO_REDUNDANCY}: some ranges of {name} need every one of {holders}; {}; it {count}",
                join_limited(&self.lacking)
            ),
            Left::None if !self.lacking.is_empty() => format!(
                "{NO_REDUNDANCY}: the only copy of some ranges of {name} is on {holders}; {}; it {count}",
                join_limited(&self.lacking)
            ),
            Left::None if self.holders.is_empty() => {
                format!("{NO_REDUNDANCY}: {name} {count}")
            }
            Left::None if self.is_parity => {
                format!("{NO_REDUNDANCY}: {name} needs every one of {holders}; it {count}")
            }
            Left::None => {
                format!(
                    "{NO_REDUNDANCY}: the only copy of {part}{name} is on {holders}; it {count}"
                )
            }
            Left::Some(1) => {
                format!("{name} {count}: it survives the failure of one more {}", self.one())
            }
            Left::Some(more) => {
                format!("{name} {count}: it survives the failure of {more} more {}", self.unit)
            }
        };
        if let Left::Some(_) = self.left
            && !self.lacking.is_empty()
        {
            message.push_str(&format!("; {}", join_limited(&self.lacking)));
        }
        if !self.action.is_empty() {
            message.push_str(&format!("; {}", self.action));
            if self.is_rebuilding && !self.filling.is_empty() {
                message.push_str(&format!(" onto {}", join_limited(&self.filling)));
            }
            message.push_str(&self.progress);
        }
        let mut list = |what: &str, names: &[String]| {
            if !names.is_empty() {
                message.push_str(&format!("; {what}: {}", join_limited(names)));
            }
        };
        list("missing", &self.missing);
        let faulty: Vec<String> = self.faulty.iter().map(|it| it.text.clone()).collect();
        list("faulty", &faulty);
        list("present, without what was written meanwhile", &self.not_current);
        if self.left == Left::None {
            list("of unknown health", &self.unknown);
        }
        message
    }

    fn advice(&self) -> String {
        let name = &self.name;
        match self.left {
            Left::Stopped | Left::TooFew => format!(
                "Do not create {name} again and do not format it. Find out why its members are missing (power, cables, adapter), bring them back, and start it again."
            ),
            Left::None => {
                let failing = join_limited(&self.failing);
                let back_up = match self.is_parity || self.holders.is_empty() {
                    true => format!("Back up {name} now: it cannot lose {failing}"),
                    false => format!("Back up {name} now: its only copy is on {failing}"),
                };
                match (self.runs_by_itself(), self.failing.is_empty()) {
                    (Some(wait), true) => wait,
                    (Some(wait), false) => format!("{back_up}. {wait}"),
                    (None, false) => format!(
                        "{back_up}, and a rebuild reads all of it. Then: {}",
                        lower_first(&self.repair("today"))
                    ),
                    (None, true) => self.repair("today"),
                }
            }
            Left::Some(_) => match self.runs_by_itself() {
                Some(wait) => wait,
                None => self.repair("this week"),
            },
        }
    }

    /// What ends without help.
    fn runs_by_itself(&self) -> Option<String> {
        let what = match self.is_rebuilding {
            true => format!("{} is being rebuilt", self.name),
            false if self.waits_for_parity && !self.action.is_empty() => {
                format!("The parity of {} is being computed", self.name)
            }
            false => return None,
        };
        Some(format!("{what}: wait until that has ended, and do not pull any of its drives."))
    }

    fn repair(&self, when: &str) -> String {
        let name = &self.name;
        if self.waits_for_parity {
            return format!(
                "Let the synchronization of {name} run ({}).",
                match self.tool {
                    Some(Tool::Lvm) => format!("`lvchange --syncaction repair {name}`"),
                    _ => format!(
                        "`mdadm --readwrite /dev/{name}`, or `idle` to /sys/block/{name}/md/sync_action"
                    ),
                }
            );
        }
        if !self.lacking.is_empty() && self.have == self.all {
            return format!(
                "Replace the drive that lacks ranges {when}, and leave it in the array until the new one is complete: `mdadm /dev/{name} --add /dev/NEW`, then `mdadm /dev/{name} --replace /dev/OLD`."
            );
        }
        if !self.not_current.is_empty() && self.have + self.not_current.len() == self.all {
            let mount = self.mount.as_deref().unwrap_or("MOUNT");
            return format!(
                "Start a scrub, which brings the returned device up to date: `btrfs scrub start -B {mount}`. Repeat it: the first one corrects errors, and one that finds none proves it. Until then, pull no other device. Files without checksums (nodatacow) it cannot compare: if there are any, replace the device with itself instead (`btrfs replace start`)."
            );
        }
        if let (true, Some(mount)) = (self.are_back, &self.mount) {
            return format!(
                "Unmount {mount}, run `btrfs device scan`, and mount it again {when}: the filesystem does not use the drive that is back before that. If nobody pulled it, check its cable and test it first. Then start a scrub, which brings it up to date: `btrfs scrub start -B {mount}`."
            );
        }
        let command = match self.tool {
            Some(Tool::Md) => return self.repair_md(when),
            Some(Tool::Lvm) if !self.filling.is_empty() => format!(
                "if it is back and tests healthy, `lvchange --refresh {name}`; otherwise `lvconvert --repair {name}`"
            ),
            Some(Tool::Lvm) => format!(
                "`lvconvert --repair {name}`. If the old drive is back and tests healthy, `lvchange --refresh {name}` is enough"
            ),
            Some(Tool::Btrfs) => {
                "`btrfs replace start`, with the id of the missing device (`btrfs filesystem show`)"
                    .to_owned()
            }
            None => "add another one".to_owned(),
        };
        format!("Replace the missing {} {when}: {command}.", self.one())
    }

    /// A member that is still listed keeps its place: md answers `--add` with `busy`.
    fn repair_md(&self, when: &str) -> String {
        let name = &self.name;
        let re_add = match self.faulty.is_empty() {
            true => {
                "Add the old drive again (`--re-add`, or `--add` if mdadm refuses that) only if it tests healthy."
            }
            false => {
                "Add the old drive again (`--re-add`, or `--add` if mdadm refuses that) only if cable or power was at fault and it tests healthy."
            }
        };
        let first = match self.faulty.as_slice() {
            [] => format!("Replace the missing device {when}"),
            faulty => {
                let commands = faulty
                    .iter()
                    .map(|it| format!("`mdadm /dev/{name} --remove /dev/{}`", it.device));
                format!(
                    "Remove what is faulty from the array: {}. Replace its drive {when}",
                    join_limited(commands)
                )
            }
        };
        match self.has_partitions {
            true => format!(
                "{first}: partition the new drive like the others and add the partition: `mdadm /dev/{name} --add /dev/NEW_PARTITION`. {re_add}"
            ),
            false => format!("{first}: `mdadm /dev/{name} --add /dev/NEW`. {re_add}"),
        }
    }

    fn one(&self) -> &'static str {
        match self.unit {
            "legs" => "leg",
            _ => "device",
        }
    }

    /// None: what holds for every array.
    fn clears(&self) -> Option<String> {
        let Shown { name, all, unit, .. } = self;
        let members = match self.tool? {
            Tool::Md => "raid devices",
            Tool::Lvm => unit,
            Tool::Btrfs => return None,
        };
        let is_one_short = self.have + 1 == *all && self.lacking.is_empty();
        match self.left {
            _ if *all == 0 => None,
            Left::Stopped | Left::TooFew => {
                Some(format!("{name} runs, with all {all} {members} present and in sync"))
            }
            Left::None if self.waits_for_parity => Some(format!("the parity of {name} is in sync")),
            Left::None if !is_one_short => None,
            Left::Some(_) if !self.lacking.is_empty() => None,
            Left::None | Left::Some(_) => {
                Some(format!("all {all} {members} of {name} are present and in sync"))
            }
        }
    }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
