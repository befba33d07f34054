//! Resumes volumes that lvm left suspended when it was killed: otherwise all writers of a
//! snapshot's origin would wait for ever.
//!
//! It uses the intents of lvm processes. A process that is still alive resumes its volume itself
//! and is left alone. The daemon calls it at its start and when one of its lvm processes has ended;
//! the unit's ExecStopPost also calls it. It reads no disk; lvm itself removes leftover snapshots.

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::poll::PollTimeout;

use crate::checks::freezer::protocol::ResumeResult;
use diskvitals_host::dm;
use diskvitals_host::dm::suspended;
use diskvitals_host::dm::suspended::SuspendedDevice;
use diskvitals_host::intents::lvm_intent::LvmIntent;
use diskvitals_host::intents::{StoredIntent, lvm_intent};
use diskvitals_host::root::HostRoot;
use diskvitals_text::causes::with_causes;

/// Between its suspend and its resume lvm only writes the metadata of the volume group.
const SUSPEND_GRACE: Duration = Duration::from_secs(1);

/// Runs in the host's mount namespace. `forget`: removes intents that have nothing left to resume.
pub fn resume(root: &HostRoot, intents: &Path, forget: bool) -> ResumeResult {
    let mut resumed = ResumeResult::default();
    let found = match lvm_intent::find(intents) {
        Ok(found) => found,
        Err(error) => {
            return ResumeResult { lines: vec![with_causes(&error)], ..ResumeResult::default() };
        }
    };
    let lives = |note: &StoredIntent<LvmIntent>| {
        note.intent.as_ref().is_some_and(LvmIntent::is_writer_alive)
    };
    let (living, dead): (Vec<_>, Vec<_>) = found.into_iter().partition(lives);
    resumed.still_running = !living.is_empty();
    resumed.had_intents = dead.iter().any(|note| note.intent.is_some());
    for note in dead {
        let Some(change) = &note.intent else {
            resumed.lines.push(format!(
                "{} is no note of a change of a volume, and stays",
                note.path.display()
            ));
            continue;
        };
        // The suspended volume may belong to the process that is alive.
        if living
            .iter()
            .filter_map(|note| note.intent.as_ref())
            .any(|living| living.group == change.group)
        {
            continue;
        }
        let (lines, is_over) = resume_one(root, change);
        resumed.lines.extend(lines);
        if is_over && forget {
            resumed.lines.extend(remove_intent(&note));
        }
    }
    resumed
}

fn remove_intent(note: &StoredIntent<LvmIntent>) -> Option<String> {
    note.remove().err().map(|error| format!("removing {}: {error}", note.path.display()))
}

/// Returns a line for each device, and whether all are resumed.
fn resume_one(root: &HostRoot, change: &LvmIntent) -> (Vec<String>, bool) {
    let LvmIntent { group, volume, snapshot, .. } = change;
    let held = match suspended_for_long(root, group, volume, snapshot) {
        Ok(held) => held,
        Err(error) => {
            let why = format!(
                "whether {group}/{volume} was left suspended cannot be told: {error}; see `dmsetup info`"
            );
            return (vec![why], false);
        }
    };
    let (mut lines, mut is_over) = (Vec::new(), true);
    // A device that cannot be resumed must not keep the others suspended.
    for device in held {
        let name = &device.name;
        let left = format!("{name} was left suspended by an lvm that was killed");
        match dm::resume(root, device.dev) {
            Ok(()) => lines.push(format!("{left}, and is resumed")),
            Err(error) => {
                is_over = false;
                lines.push(format!(
                    "{left}, and all that write to it wait: {}; try `dmsetup resume {name}`",
                    with_causes(&error)
                ));
            }
        }
    }
    (lines, is_over)
}

/// An administrator's lvm also suspends volumes, for a moment.
fn suspended_for_long(
    root: &HostRoot,
    group: &str,
    volume: &str,
    snapshot: &str,
) -> io::Result<Vec<SuspendedDevice>> {
    let mut held = suspended::beneath(root, group, &[volume, snapshot])?;
    if !held.is_empty() {
        // Only sleeps.
        let _ = nix::poll::poll(
            &mut [],
            PollTimeout::try_from(SUSPEND_GRACE).unwrap_or(PollTimeout::ZERO),
        );
        let still = suspended::beneath(root, group, &[volume, snapshot])?;
        held.retain(|device| still.contains(device));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_host::intents::process_start_time;

    fn change(group: &str, pid: u32, started: u64) -> LvmIntent {
        LvmIntent {
            group: group.into(),
            volume: "data".into(),
            snapshot: "diskvitals-check-c1".into(),
            pid,
            started,
        }
    }

    fn notes(changes: &[LvmIntent]) -> tempfile::TempDir {
        let memory = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        changes.iter().for_each(|change| change.write(memory.path()).expect("written"));
        memory
    }

    fn host(with_sysfs: bool) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().expect("a folder");
        if with_sysfs {
            std::fs::create_dir_all(dir.path().join("sys/block")).expect("made");
        }
        let root = HostRoot::new(dir.path());
        (dir, root)
    }

    fn left(notes: &tempfile::TempDir) -> usize {
        lvm_intent::find(notes.path()).expect("readable").len()
    }

    #[test]
    fn an_intent_of_an_active_volume_is_removed_when_allowed() {
        let (_dir, root) = host(true);
        let notes = notes(&[change("vg", u32::MAX, 1)]);
        let seen = ResumeResult { had_intents: true, ..ResumeResult::default() };
        assert_eq!(resume(&root, notes.path(), false), seen);
        assert_eq!(left(&notes), 1);
        assert_eq!(resume(&root, notes.path(), true), seen);
        assert_eq!(left(&notes), 0);
        assert_eq!(resume(&root, notes.path(), true), ResumeResult::default());
    }

    #[test]
    fn a_living_lvm_resumes_by_itself_and_its_volume_group_is_left_alone() {
        let (_dir, root) = host(true);
        let own = std::process::id();
        let notes = notes(&[
            change("vg", own, process_start_time(own).expect("we live")),
            change("vg", u32::MAX, 1),
            change("other", u32::MAX - 1, 1),
        ]);
        assert_eq!(
            resume(&root, notes.path(), true),
            ResumeResult { lines: Vec::new(), had_intents: true, still_running: true }
        );
        assert_eq!(left(&notes), 2, "both of vg stay");
    }

    #[test]
    fn an_intent_of_unknown_state_is_kept() {
        let (_dir, root) = host(false);
        let notes = notes(&[change("vg", u32::MAX, 1)]);
        let resumed = resume(&root, notes.path(), true);
        assert!(
            resumed.lines[0].starts_with("whether vg/data was left suspended cannot be told"),
            "{resumed:?}"
        );
        assert_eq!(left(&notes), 1);
    }
}
