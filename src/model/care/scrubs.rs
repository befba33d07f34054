//! Checks of md arrays, scrubs of ZFS pools and btrfs: which start now, and what each of the others waits
//! for.
//!
//! What has run is known from the notes of `facts::last_pass`, whoever started it. A note in the store
//! says which the daemon started last. One that did not come to its end is begun again (md), or goes on
//! (btrfs, by `btrfs scrub resume`; ZFS goes on by itself).

use std::collections::BTreeSet;
use std::slice;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CareState, Past, Planner, attempt, name};
use crate::assess::scrub::{ScrubKind, Scrubbed, scrubbed};
use crate::block::LayerState;
use crate::care::settings::Task;
use crate::counters::{CounterHistory, recorded_time};
use crate::drive::Transport;
use crate::facts::Facts;
use crate::facts::corruption::of_filesystem;
use crate::facts::last_pass::SCRUB_STARTED;
use crate::facts::smart::SmartOutcome;
use crate::stack::{BtrfsFs, PoolState, ScanState, device_of_pool, pool_of_device};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::path::HostPath;
use diskvitals_smart::history::StartedTest;

/// Until it is seen to run.
const BEGINS_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// Of one array, pool or btrfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubTask {
    /// `md0`, `tank`; a btrfs' label or mount point.
    pub name: String,
    /// None: an array of LVM, which the daemon does not check.
    pub task: Option<Task>,
    pub kind: ScrubKind,
    /// When one last came to its end.
    pub ended: Option<Timestamp>,
    /// None: it has no schedule here.
    pub due: Option<Timestamp>,
    pub state: CareState,
    /// What else starts it on this node, and does not: for people. Empty: that has not been looked for.
    pub others: String,
}

/// What is checked or scrubbed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubTarget {
    /// By its kernel name.
    Md(String),
    Zpool(String),
    Btrfs {
        uuid: String,
        /// In the host's mount namespace.
        mount: HostPath,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStart {
    pub target: ScrubTarget,
    /// A btrfs' goes on where it stopped.
    pub is_resumed: bool,
}

pub(super) struct PlannedScrub<'a> {
    pub(super) task: ScrubTask,
    pub(super) drives: Vec<&'a DriveId>,
    /// Why these are not its hours.
    pub(super) closed: Option<String>,
    pub(super) start: Option<ScrubStart>,
}

#[derive(Clone, Copy)]
enum Thing<'a> {
    Device(&'a str, &'a LayerState),
    Btrfs(&'a BtrfsFs),
}

impl<'a> Planner<'a> {
    pub(super) fn scrubs(&self) -> Vec<PlannedScrub<'a>> {
        let facts: &'a Facts = self.facts;
        let Some(inventory) = facts.inventory() else { return Vec::new() };
        let devices = inventory.devices.keys().filter_map(|device| {
            let of = scrubbed(facts, slice::from_ref(device), None).pop()?;
            let drives = inventory.drives_below(device).into_iter().collect();
            Some((Thing::Device(device, facts.layer_state(device)?), of, drives))
        });
        let btrfs = inventory.btrfs.iter().filter_map(|fs| {
            let of = scrubbed(facts, &[], Some(fs)).pop()?;
            let below = fs.devices.iter().flat_map(|device| inventory.drives_below(device));
            let drives: BTreeSet<&DriveId> = below.collect();
            Some((Thing::Btrfs(fs), of, drives.into_iter().collect()))
        });
        devices.chain(btrfs).map(|(thing, of, drives)| self.scrub(thing, &of, drives)).collect()
    }

    fn scrub(&self, thing: Thing<'a>, of: &Scrubbed, drives: Vec<&'a DriveId>) -> PlannedScrub<'a> {
        let names = self.names(thing, of);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let task = thing.task();
        let mut planned = PlannedScrub {
            task: ScrubTask {
                name: self.shown_name(thing, of),
                task,
                kind: of.kind,
                ended: of.pass.ended,
                due: None,
                state: if of.is_running { CareState::Runs } else { CareState::Waits },
                others: of.others(),
            },
            drives,
            closed: None,
            start: None,
        };
        let Some(schedule) = task.and_then(|task| self.policy.care.schedule(task, &names)) else {
            return planned;
        };
        let is_named = !schedule.arrays.is_empty();
        let other = of.triggers.iter().flatten().find(|trigger| trigger.is_on());
        if let Some(other) = other.filter(|_| !is_named) {
            if planned.task.state == CareState::Waits {
                let why = format!("{} starts it", other.file);
                planned.task.state = CareState::Held { why };
            }
            return planned;
        }
        let (target, owner) = match self.target(thing) {
            Ok(found) => found,
            Err(why) => {
                planned.task.state = CareState::Held { why };
                return planned;
            }
        };
        let started = self.facts.started_scrub(&owner);
        let was_aborted = |at: Timestamp| self.was_cut_off(thing, of, at);
        let ended = of.pass.ended;
        let past = Past { ended, started: started.as_ref(), was_aborted: &was_aborted };
        let first_seen = of.pass.watched_since.unwrap_or(self.now);
        let (due, refusal) = self.due(&schedule, &owner.to_string(), first_seen, &past);
        let is_due = due <= self.now;
        let open = past.open().filter(|open| open.refused.is_none());
        let begins = open.is_some_and(|it| self.now.duration_since(it.at) < BEGINS_WITHIN);
        planned.task.due = Some(due);
        planned.task.state = match self.scrub_obstacle(thing, of, &planned.drives, is_named) {
            _ if of.is_running || begins => CareState::Runs,
            _ if let Some(why) = refusal.filter(|_| !is_due) => CareState::Held { why },
            Some(why) if is_due => CareState::Held { why },
            _ if is_due => CareState::Starts,
            _ => CareState::Waits,
        };
        planned.closed = self.closed(&schedule, due);
        let is_resumed = open.is_some_and(|open| was_aborted(open.at));
        planned.start = Some(ScrubStart { target, is_resumed });
        planned
    }

    fn shown_name(&self, thing: Thing, of: &Scrubbed) -> String {
        match thing {
            Thing::Device(..) => of.name.clone(),
            Thing::Btrfs(fs) => {
                let place = || self.facts.mount_points_of(fs).into_iter().next();
                fs.label.clone().or_else(place).unwrap_or_else(|| fs.uuid.clone())
            }
        }
    }

    /// By which a schedule may name it.
    fn names(&self, thing: Thing, of: &Scrubbed) -> Vec<String> {
        match thing {
            Thing::Device(device, _) => {
                vec![of.name.clone(), pool_of_device(device).unwrap_or(device).to_owned()]
            }
            Thing::Btrfs(fs) => {
                let own = [Some(fs.uuid.clone()), fs.label.clone()].into_iter().flatten();
                own.chain(self.facts.mount_points_of(fs)).collect()
            }
        }
    }

    /// With what its notes are kept under.
    fn target(&self, thing: Thing) -> Result<(ScrubTarget, Subject), String> {
        let target = match thing {
            Thing::Device(device, _) => match pool_of_device(device) {
                Some(pool) => ScrubTarget::Zpool(pool.to_owned()),
                None => ScrubTarget::Md(device.to_owned()),
            },
            Thing::Btrfs(fs) => {
                let volumes = self.facts.volumes_of_btrfs(fs);
                let mut mounts = volumes.flat_map(|known| &known.facts.mounts);
                let mount = mounts.find(|it| !it.is_read_only() && !it.is_super_read_only());
                let Some(mount) = mount else {
                    return Err("it is mounted nowhere for writing".to_owned());
                };
                ScrubTarget::Btrfs { uuid: fs.uuid.clone(), mount: mount.path.clone() }
            }
        };
        let owner = self.facts.scrub_owner(&target);
        let owner = owner.ok_or_else(|| "it has no UUID".to_owned())?;
        Ok((target, owner))
    }

    /// Whether one of ours that does not run any more has not read all. md: an end would be in the log of
    /// this boot.
    fn was_cut_off(&self, thing: Thing, of: &Scrubbed, started: Timestamp) -> bool {
        match thing {
            Thing::Device(_, LayerState::Zfs(pool)) => {
                let scan = pool.status.as_ref().and_then(|status| status.scan.as_ref());
                // A resilver takes the place of a scrub.
                scan.is_some_and(|scan| scan.state == ScanState::Canceled || scan.is_resilver)
            }
            Thing::Device(..) => {
                let kernel = &self.facts.kernel;
                let is_watched = kernel.quiet_since(started) == Some(started);
                let unknown = kernel.progress.unknown_pass_end;
                self.facts.booted.is_some_and(|booted| booted > started)
                    || is_watched && unknown.is_none_or(|end| end < started)
            }
            Thing::Btrfs(_) => {
                let record = of.record.flatten();
                record.is_some_and(|record| record.read_at > started && !record.is_dated)
            }
        }
    }

    fn scrub_obstacle(
        &self,
        thing: Thing<'a>,
        of: &Scrubbed,
        drives: &[&DriveId],
        is_named: bool,
    ) -> Option<String> {
        let words = |text: &str| Some(text.to_owned());
        if !self.facts.settled() {
            return words("not all has been read since the start");
        }
        if of.triggers.is_none() && !is_named {
            return words("what else starts it on this node has not been read");
        }
        if of.is_degraded {
            return words("it is degraded");
        }
        match thing {
            Thing::Device(_, LayerState::Md(md)) => {
                let action = md.sync_action.as_deref().unwrap_or("not known");
                if action != "idle" {
                    return Some(format!("its sync_action is {action}"));
                }
                // Documentation/admin-guide/md.rst; the others are read-only, or about to be.
                if !matches!(&*md.array_state, "clean" | "active" | "active-idle" | "write-pending")
                {
                    return Some(format!("its array_state is {}", md.array_state));
                }
            }
            Thing::Device(_, LayerState::Zfs(pool)) => {
                if !pool.has_layout() {
                    return words("what `zpool status` says of it is not known");
                }
                if let Some(scan) = pool.running_scan() {
                    return Some(format!("{scan} runs"));
                }
                if pool.state != PoolState::Online {
                    return words("it is not ONLINE");
                }
            }
            Thing::Device(..) => {}
            Thing::Btrfs(fs) => {
                if let Some(operation) = &fs.operation {
                    return Some(format!("{operation} runs"));
                }
                let is_open = |known| self.facts.checks_of(known).any(|it| it.ended.is_none());
                if self.facts.volumes_of_btrfs(fs).any(is_open) {
                    return words("a check of it waits or runs, and may freeze it");
                }
            }
        }
        drives.iter().find_map(|id| self.member_obstacle(id, is_named))
    }

    fn member_obstacle(&self, id: &DriveId, is_named: bool) -> Option<String> {
        let known = self.facts.drives.get(id)?;
        let name = name(known);
        if let Some(reasons) = self.findings.get(id) {
            return Some(format!("{name} has {reasons}"));
        }
        let smart = self.facts.smart.get(id);
        let outcome = smart.and_then(|smart| smart.outcome.as_ref());
        let sleeps = matches!(outcome, Some((_, SmartOutcome::Standby { .. })));
        if known.facts.asleep || sleeps {
            return Some(format!("{name} sleeps, and is not woken"));
        }
        let location = &known.facts.location;
        let (usb, raid) = (
            known.facts.transport == Transport::Usb,
            location.raid_controller.is_some() || location.array_driver.is_some(),
        );
        match (usb, raid) {
            _ if is_named => None,
            (true, _) => Some(format!("{name} is behind a USB bridge")),
            (_, true) => Some(format!("the RAID controller of {name} reads its drives itself")),
            _ => None,
        }
    }
}

impl Thing<'_> {
    fn task(self) -> Option<Task> {
        match self {
            Thing::Device(_, LayerState::Md(_)) => Some(Task::MdCheck),
            Thing::Device(_, LayerState::Zfs(_)) => Some(Task::ZpoolScrub),
            Thing::Device(..) => None,
            Thing::Btrfs(_) => Some(Task::BtrfsScrub),
        }
    }
}

impl Facts {
    /// Before the command is given.
    pub fn note_scrub_started(&mut self, target: &ScrubTarget, at: Timestamp) {
        if let Some(owner) = self.scrub_owner(target) {
            let ended = self.pass_under(&owner).ended;
            let started = attempt(at, ended, self.started_scrub(&owner).as_ref());
            self.keep_started_scrub(owner, &started);
        }
    }

    /// It did not begin.
    pub(crate) fn note_scrub_refused(&mut self, target: &ScrubTarget, why: &str) {
        if let Some(owner) = self.scrub_owner(target)
            && let Some(started) = self.started_scrub(&owner)
        {
            let refused = Some(why.to_owned());
            self.keep_started_scrub(owner, &StartedTest { refused, ..started });
        }
    }

    /// One of ours has begun, and no end of it is known.
    pub(crate) fn awaits_scrub_of(&self, fs: &BtrfsFs) -> bool {
        let owner = of_filesystem(&fs.uuid);
        let ended = self.pass_under(&owner).ended;
        self.started_scrub(&owner).is_some_and(|started| {
            started.refused.is_none() && ended.is_none_or(|ended| ended < started.at)
        })
    }

    fn scrub_owner(&self, target: &ScrubTarget) -> Option<Subject> {
        match target {
            ScrubTarget::Md(device) => self.pass_owner(device),
            ScrubTarget::Zpool(pool) => self.pass_owner(&device_of_pool(pool)),
            ScrubTarget::Btrfs { uuid, .. } => Some(of_filesystem(uuid)),
        }
    }

    fn started_scrub(&self, owner: &Subject) -> Option<StartedTest> {
        let details = self.counters.note(owner, SCRUB_STARTED)?;
        Some(StartedTest {
            at: self.steady_time(recorded_time(details, "at")?),
            attempts: details.get("attempts")?.parse().ok()?,
            refused: details.get("refused").cloned(),
        })
    }

    fn keep_started_scrub(&mut self, owner: Subject, started: &StartedTest) {
        let details = [
            ("at", Some(self.wall_time(started.at).as_second().to_string())),
            ("attempts", Some(started.attempts.to_string())),
            ("refused", started.refused.clone()),
        ];
        self.keep_pass_note(owner, SCRUB_STARTED, CounterHistory::note(String::new(), details));
    }
}
