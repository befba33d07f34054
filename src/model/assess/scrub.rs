//! How long ago the last whole check or scrub ended: of arrays of md and LVM with redundancy, of ZFS
//! pools, and of btrfs.

use jiff::{SignedDuration, Timestamp};

use crate::assess::input::{Context, VolumeInput};
use crate::assess::layers::clear_without_layer;
use crate::assess::text::{INFO, evidence, format_span, raised, unknown};
use crate::block::LayerState;
use crate::care::triggers::{ScrubTrigger, TriggerTarget};
use crate::facts::Facts;
use crate::facts::last_pass::{PassRecord, WholePass};
use crate::stack::{BtrfsFs, StorageStack, pool_of_device, state_file};
use crate::volume::VolumeFacts;
use diskvitals_finding::{Verdict, WitnessKind};

const DAY_HOURS: u32 = 24;

/// The last check or scrub that has read all of an array, a pool or a btrfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastScrub {
    /// `md0`, `tank`.
    pub name: String,
    pub kind: ScrubKind,
    pub ended: Option<Timestamp>,
    /// See `WholePass::found`.
    pub found: Option<u64>,
}

/// What a check or a scrub reads as a whole.
pub(crate) struct Scrubbed {
    pub(crate) name: String,
    /// `md0 (raid1)`, `tank (ZFS)`.
    label: String,
    pub(crate) kind: ScrubKind,
    pub(crate) pass: WholePass,
    /// What ZFS or btrfs-progs keeps of the last scrub. md and LVM keep nothing.
    pub(crate) record: Option<Option<PassRecord>>,
    file: String,
    pub(crate) is_running: bool,
    pub(crate) is_degraded: bool,
    /// What else starts it on this node. None: it has not been looked for, or nobody does.
    pub(crate) triggers: Option<Vec<ScrubTrigger>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubKind {
    /// Of md and LVM: copies or parity are compared.
    Check,
    /// Of ZFS and btrfs: what is in use is compared with its checksums.
    Scrub,
}

impl ScrubKind {
    pub fn word(self) -> &'static str {
        match self {
            ScrubKind::Check => "check",
            ScrubKind::Scrub => "scrub",
        }
    }

    /// `, 128 sectors differed`; empty if it is not known.
    pub fn result(self, found: Option<u64>) -> String {
        match (self, found) {
            (_, None) => String::new(),
            (ScrubKind::Check, Some(0)) => ", without a difference".to_owned(),
            (ScrubKind::Check, Some(count)) => format!(", {count} sectors differed"),
            (ScrubKind::Scrub, Some(0)) => ", no errors".to_owned(),
            (ScrubKind::Scrub, Some(count)) => format!(", errors: {count}"),
        }
    }
}

/// What below these devices is scrubbed, and the filesystem itself.
pub(crate) fn scrubbed(facts: &Facts, devices: &[String], fs: Option<&BtrfsFs>) -> Vec<Scrubbed> {
    let Some(inventory) = facts.inventory() else {
        return Vec::new();
    };
    let of_device = |device: &String| {
        let state = facts.layer_state(device)?;
        let stack = state.stack().filter(|stack| stack.is_scrubbed())?;
        let is_pool = pool_of_device(device).is_some();
        Some(Scrubbed {
            name: stack.name(inventory, device),
            label: stack.label(inventory, device),
            is_degraded: stack.is_bad(),
            triggers: match state {
                LayerState::Md(_) => {
                    triggers(facts, TriggerTarget::Md, std::slice::from_ref(device))
                }
                LayerState::Zfs(_) => {
                    let pool = pool_of_device(device).unwrap_or_default();
                    triggers(facts, TriggerTarget::Zfs, &[pool.to_owned()])
                }
                _ => None,
            },
            kind: if is_pool { ScrubKind::Scrub } else { ScrubKind::Check },
            pass: facts.last_pass(device),
            record: is_pool.then(|| facts.pass_record(device)),
            file: if is_pool { state_file(device) } else { format!("/sys/block/{device}") },
            is_running: is_running(state, stack),
        })
    };
    let of_fs = fs.map(|fs| Scrubbed {
        name: fs.name(inventory, &fs.uuid),
        label: fs.label(inventory, &fs.uuid),
        is_degraded: fs.is_bad(),
        triggers: triggers(facts, TriggerTarget::Btrfs, &facts.mount_points_of(fs)),
        kind: ScrubKind::Scrub,
        pass: facts.last_pass_of_btrfs(fs),
        record: Some(facts.pass_record_of_btrfs(fs)),
        file: format!("/var/lib/btrfs/scrub.status.{}", fs.uuid),
        is_running: facts.pass_record_of_btrfs(fs).is_some_and(|record| record.is_running),
    });
    devices.iter().filter_map(of_device).chain(of_fs).collect()
}

fn triggers(facts: &Facts, of: TriggerTarget, names: &[String]) -> Option<Vec<ScrubTrigger>> {
    Some(facts.triggers_of(of, names)?.into_iter().cloned().collect())
}

/// For people: what is known of each.
pub(crate) fn last_scrubs(facts: &Facts, volume: &VolumeFacts) -> Vec<LastScrub> {
    let found = of_volume(facts, volume).into_iter();
    let last = |it: Scrubbed| LastScrub {
        name: it.name,
        kind: it.kind,
        ended: it.pass.ended,
        found: it.pass.found,
    };
    found.map(last).collect()
}

fn is_running(state: &LayerState, stack: &dyn StorageStack) -> bool {
    match state {
        LayerState::Zfs(pool) => pool.running_scan() == Some("scrub"),
        _ => matches!(stack.action(), Some("check" | "repair")),
    }
}

fn of_volume(facts: &Facts, volume: &VolumeFacts) -> Vec<Scrubbed> {
    scrubbed(facts, &volume.devices, btrfs(facts, volume))
}

fn btrfs<'a>(facts: &'a Facts, volume: &VolumeFacts) -> Option<&'a BtrfsFs> {
    facts.inventory()?.btrfs_of(volume.device.as_ref()?)
}

/// No whole check or scrub of an array with redundancy, a ZFS pool or a btrfs has ended for
/// `scrub_overdue_days`, or for half as long again as the period of what starts them. Information. Sources: the ends in the kernel log; what ZFS and btrfs-progs keep
/// of the last scrub. Unknown until it has been watched for so long without a gap of the log, where
/// nothing dates the last one. Clears when one has ended.
pub(crate) fn overdue(input: &VolumeInput) -> Option<Verdict> {
    let (facts, volume) = (input.context.facts, &input.known.facts);
    let found = judge(input.context, &of_volume(facts, volume));
    found.or_else(|| clear_without_layer(facts, volume))
}

/// The same of an array or a pool that carries no volume.
pub(super) fn of_devices(context: Context, devices: &[String]) -> Option<Verdict> {
    judge(context, &scrubbed(context.facts, devices, None))
}

fn judge(context: Context, all: &[Scrubbed]) -> Option<Verdict> {
    let days = context.policy.scrub_overdue_days;
    if days == 0 || all.is_empty() {
        return (!all.is_empty()).then_some(Verdict::Clear);
    }
    let mut why = None;
    let mut oldest: Option<(&Scrubbed, Quiet)> = None;
    for it in all {
        let active = it.triggers.iter().flatten().filter(|trigger| trigger.is_on());
        let period = active.filter_map(|trigger| trigger.period_days).max().unwrap_or_default();
        let hours = (period * DAY_HOURS * 3 / 2).max(days.saturating_mul(DAY_HOURS));
        match it.age(context, SignedDuration::from_hours(hours.into())) {
            Age::Recent => {}
            Age::Unknown(reason) => drop(why.get_or_insert(reason)),
            Age::Overdue(quiet) => {
                let is_older = oldest.as_ref().is_none_or(|(_, known)| quiet.span > known.span);
                oldest = if is_older { Some((it, quiet)) } else { oldest };
            }
        }
    }
    match (oldest, why) {
        (Some((it, quiet)), _) => it.raise(context.facts, &quiet),
        (None, Some(why)) => unknown(why),
        (None, None) => Some(Verdict::Clear),
    }
}

enum Age {
    Recent,
    Overdue(Quiet),
    Unknown(String),
}

/// A time in which it is known that no pass has ended.
struct Quiet {
    since: Timestamp,
    span: SignedDuration,
}

impl Scrubbed {
    fn age(&self, context: Context, limit: SignedDuration) -> Age {
        let Context { facts, now, .. } = context;
        let (name, kind) = (&self.label, self.kind.word());
        if self.pass.ended.is_some_and(|ended| now.duration_since(ended) <= limit) {
            return Age::Recent;
        }
        let until = match self.record {
            None => now,
            Some(Some(record)) => record.read_at,
            Some(None) => {
                return Age::Unknown(format!("{} has not been read", self.file));
            }
        };
        let is_dated = self.record.flatten().is_some_and(|record| record.is_dated);
        let since = match self.pass.ended.filter(|_| is_dated) {
            Some(ended) => Some(ended),
            None => self.pass.watched_since.and_then(|since| {
                let since = facts.kernel.quiet_since(since)?;
                let unknown = facts.kernel.progress.unknown_pass_end;
                [unknown, self.pass.ended].into_iter().flatten().chain([since]).max()
            }),
        };
        let Some(since) = since else {
            return Age::Unknown(format!("no end of a {kind} of {name} would be noticed"));
        };
        let span = until.duration_since(since);
        match span > limit {
            true => Age::Overdue(Quiet { since, span }),
            false => Age::Unknown(format!(
                "it is known for {} only that no {kind} of {name} has ended",
                format_span(span)
            )),
        }
    }

    /// What was to start one.
    fn starters(&self, triggers: &[ScrubTrigger]) -> String {
        let says = |trigger: &ScrubTrigger| match &trigger.off {
            Some(why) => format!("{} starts none: {why}", trigger.file),
            None if trigger.needs_online() && self.is_degraded => {
                format!("{} leaves out a pool that is not ONLINE", trigger.file)
            }
            None => format!("{} should have started one", trigger.file),
        };
        match triggers {
            [] => "no timer or cron job that starts one was found".to_owned(),
            triggers => triggers.iter().map(says).collect::<Vec<_>>().join("; "),
        }
    }

    /// What else starts one on this node. Empty: that has not been looked for.
    pub(crate) fn others(&self) -> String {
        let says = |trigger: &ScrubTrigger| match &trigger.off {
            Some(why) => format!("{} starts none: {why}", trigger.file),
            None => format!("{} starts it", trigger.file),
        };
        match self.triggers.as_deref() {
            None => String::new(),
            Some([]) => "no timer or cron job starts it".to_owned(),
            Some(triggers) => triggers.iter().map(says).collect::<Vec<_>>().join("; "),
        }
    }

    fn raise(&self, facts: &Facts, quiet: &Quiet) -> Option<Verdict> {
        let (name, kind) = (&self.label, self.kind.word());
        let span = format_span(quiet.span);
        let result = self.kind.result(self.pass.found);
        let mut message = match self.pass.ended {
            Some(ended) if ended == quiet.since => format!(
                "no {kind} of {name} has ended for {span}; the last one ended at {}{result}",
                facts.wall_text(ended)
            ),
            Some(ended) => format!(
                "no {kind} of {name} has ended for {span} at least; the last known one ended at {}{result}",
                facts.wall_text(ended)
            ),
            None => format!(
                "no {kind} of {name} has ended for {span}, as long as it has been watched; none is known"
            ),
        };
        if self.is_running {
            message += "; one is running";
        } else if let Some(triggers) = &self.triggers {
            message += "; ";
            message += &self.starters(triggers);
        }
        let seen = match self.pass.ended {
            Some(_) => format!("the last known end{result}"),
            None => format!("watched since then, and no end of a {kind} was noticed"),
        };
        let time = self.pass.ended.unwrap_or(quiet.since);
        let proof = vec![evidence(WitnessKind::Other, &self.file, time, seen)];
        raised(INFO, message, proof, format!("a whole {kind} of {name} has ended"), None)
    }
}
