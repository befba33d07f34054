//! The table of reasons: name, scope, levels, those at which data is endangered; what else is true of
//! it (`Trait`), the first `Action` for a drive below BAD and at BAD; meaning, effect on the data, action,
//! the actions of single levels, and clearing condition. The wire and `diskvitals reasons` are generated
//! from it. Which rule raises a reason is in `assess::reason_rules`.

mod action;
mod traits;

pub use action::{Action, Cover};
pub use traits::{Figure, LayerKind, LoggedErrors};

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::reason::action::ActionText;
use crate::reason::traits::Trait;
use crate::severity::Severity;

/// The kind of subject that a reason applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonScope {
    Drive,
    Volume,
    /// Drives and volumes.
    Both,
    /// What the daemon reads.
    Source,
}

macro_rules! reasons {
    ($($name:ident, $scope:ident, [$($level:ident),*], [$($endangers:ident),*], [$($trait_:expr),*], [$($first:ident),*], $meaning:literal, $data:literal, $action:literal, [$($at:ident [$($cover:ident),*] $text:expr,)*], $clears:literal;)*) => {
        /// Names are stable: alerts, scripts and Kubernetes use them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($name),* }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            pub const fn name(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }

            pub fn scope(self) -> ReasonScope {
                match self { $(Reason::$name => ReasonScope::$scope),* }
            }

            /// The levels a finding can have, least severe first; `assess` decides which.
            pub fn levels(self) -> &'static [Severity] {
                match self { $(Reason::$name => &[$(Severity::$level),*]),* }
            }

            /// The levels at which such a finding of a drive endangers data now, so that the volumes
            /// on the drive follow it. At the others it is a hint for planning.
            pub fn endangers_data_at(self) -> &'static [Severity] {
                match self { $(Reason::$name => &[$(Severity::$endangers),*]),* }
            }

            fn traits(self) -> &'static [Trait] {
                use {Figure::*, LayerKind::*, LoggedErrors::*, Trait::*};
                match self { $(Reason::$name => &[$($trait_),*]),* }
            }

            fn first_actions(self) -> &'static [Action] {
                match self { $(Reason::$name => &[$(Action::$first),*]),* }
            }

            fn action_texts(self) -> &'static [ActionText] {
                match self {
                    $(Reason::$name => &[$(ActionText {
                        severity: Severity::$at,
                        covers: &[$(Cover::$cover),*],
                        text: $text,
                    }),*]),*
                }
            }

            /// The meaning, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning),* }
            }

            /// The data that is lost, at risk, or safe.
            pub fn data(self) -> &'static str {
                match self { $(Reason::$name => $data),* }
            }

            /// The action at all levels, as `diskvitals reasons` shows it.
            pub fn action(self) -> &'static str {
                match self { $(Reason::$name => $action),* }
            }

            /// The rest of a sentence that begins with "It is over when". An unknown state clears nothing.
            pub fn clears(self) -> &'static str {
                match self { $(Reason::$name => $clears),* }
            }
        }
    };
}

const SAVE_AND_REPLACE: &str = "Save what has no other copy, then replace the drive.";
const REPLACE_COVERED: &str = "Replace the drive now. Redundancy covers its data.";
const COPY_AND_REPLACE: &str =
    "Copy the data off first: this host has no other copy of it. Then replace the drive.";
const COPY_READABLE_AND_REPLACE: &str = "Copy the data off first: this host has no other copy of it, and what cannot be read is lost unless a backup has it. Then replace the drive.";

reasons! {
    DriveMissing, Drive, [Info, Suspect, Bad], [Suspect, Bad],
        [FailsIo, Presence, Gone, Hardware, LeavesArray], [BringBack],
        "The drive was present and is missing now.",
        "Inaccessible where there is no other copy. It is not known to be lost: the drive may return with all of it.",
        "Find out whether the drive was pulled, lost power or died. Reseat or replace it. It is recognized when it returns, even under another name.", [
            Info [] "Nothing, if it was removed or replaced on purpose. Otherwise reconnect it.",
        ],
        "a scan finds the drive again, even under another name, or its RAID controller reports another drive in its slot; at level information also when the drive is forgotten (`[drives] forget_missing_after`)";
    DriveOffline, Drive, [Bad], [Bad],
        [FailsIo, CountsForModel, Presence, Gone, Hardware, LeavesArray], [BringBack],
        "The kernel has taken the drive offline: error handling gave up, or the controller is dead or stuck in recovery.",
        "Inaccessible where there is no other copy: reads and writes fail at once.",
        "Read the kernel log for the cause. Reseat the drive or its cable; a rescan or a power cycle may bring it back. Plan its replacement if it goes offline again.", [],
        "the kernel reports the drive, or one path to it, as running or live, or the drive is missing (DriveMissing)";
    DuplicateIdentity, Drive, [Info], [],
        [Presence], [Watch],
        "Another drive of this node reports the same serial number or WWN.",
        "Not affected. The history of the identity stays with the drive that had it before; this one is known by its location and has its own.",
        "Find out which of the two is genuine: the message names the location of each. USB bridges and docks with one serial number for all are harmless. Otherwise remove the clone, and do not replace, wipe or attach a drive by its serial number, WWN or /dev/disk/by-id link until then.", [],
        "no other drive that is present has its identity";
    RaidMemberFailed, Drive, [Suspect], [Suspect],
        [FailsIo, Presence, LeavesArray], [BringBack],
        "Linux software RAID (md) has taken the drive out of an array and runs without it.",
        "Intact on the other members of the array. What the drive holds is outdated.",
        "Find out why md took it out: the kernel log (`Disk failure on`), `smartctl -x DEVICE`. Then replace the drive. Add the old one again (`mdadm --re-add`, or `--add` if mdadm refuses that) only if cable or power was at fault and it tests healthy.", [],
        "the array has the drive again or is complete without it, or the drive has no superblock of it any more, or is missing (DriveMissing)";
    RaidVolumeDegraded, Drive, [Suspect, Bad], [Bad],
        [Logged(ArrayState)], [PlanReplacement, BringBack],
        "The RAID controller reports that its array, which the kernel has as this drive, lacks members, or has lost blocks.",
        "SUSPECT: intact, but for blocks that the message calls lost; the failure of further members loses it. BAD: the array is offline, and its data is inaccessible.",
        "Look at the members with the controller's tool (storcli, ssacli, arcconf). SUSPECT: replace the one that failed, and watch the rebuild; lost blocks: restore the files that cannot be read. BAD: bring the members back (power, cables, backplane); do not create the array again, and do not import a foreign configuration before you know which members are current.", [],
        "the controller's tool reports or the kernel logs that the array is optimal (the latter only with `event_log_level` 0 of megaraid_sas), or a repair is acknowledged (`diskvitals ack --repaired`)";
    RaidStateUnknown, Drive, [Info], [],
        [Stays], [Watch],
        "Nothing reads whether the arrays of a RAID controller lack members.",
        "Not known to be affected. An array that lost a member may go unnoticed.",
        "Install the controller's tool, which the message names; `diskvitals doctor` says whether it works. If there is none, or diskvitals does not read it, look with the vendor's tool, and acknowledge this.", [],
        "the controller's tool or the kernel log reports the state of every array of it";
    RaidCacheUnprotected, Drive, [Suspect], [],
        [], [Watch],
        "The write cache of a RAID controller may lose writes: its battery or capacitor has not been well for a day, write-back is forced without one, or the cache holds data of an array that is gone.",
        "Intact while the power stays on. Writes that the cache holds are lost without power and battery.",
        "Replace the battery or capacitor, or switch forced write-back off. Preserved cache: do not power off and never discard it; bring the members of the array back, then the controller writes it.", [],
        "the controller's tool reports an optimal battery or capacitor, no forced write-back without one, and no preserved cache";
    RaidForeignConfig, Drive, [Info], [],
        [], [Watch],
        "A RAID controller sees drives with the configuration of another controller or of an earlier time.",
        "Not affected if used drives were plugged in. If these are members that fell off an array, importing or deleting the wrong configuration destroys its data.",
        "Find out where these drives come from. Used drives: nothing is urgent. Members that fell off: make sure that there is a backup, and repair power, cables or backplane. Neither import nor delete the configuration before you know which members are current.", [],
        "the controller's tool lists no foreign drive";
    MediaErrors, Drive, [Suspect, Bad], [Suspect, Bad],
        [FailsIo, CountsForModel, Hardware, Stays, Logged(Medium), Shows(Uncorrectable)], [Watch, ReplaceNow],
        "The drive reported that it could not read or write part of its medium, or that its hardware failed.",
        "Data on the failed sectors could not be read, or was not written. Data that redundancy or the drive itself repaired is intact.",
        "Back up the data on the drive; without redundancy, what cannot be read is lost unless a backup has it. Look at its SMART data; if the errors come back, replace the drive. With redundancy, a RAID check or a scrub rewrites weak sectors; without, overwriting one lets the drive reallocate it.", [
            Suspect [] "Make sure that there is a backup: without redundancy, what cannot be read is lost otherwise. With redundancy, a RAID check or a scrub rewrites weak sectors. If errors come back, replace the drive.",
            Suspect [Covered, Last] "Make sure that there is a backup. A RAID check or a scrub rewrites weak sectors from the other copies. If errors come back, replace the drive.",
            Suspect [Exposed] "Copy the data off first: this host has no other copy of it, and what cannot be read is lost unless a backup has it. Overwriting a sector lets the drive reallocate it. If errors come back, replace the drive.",
            Bad [] SAVE_AND_REPLACE,
            Bad [Exposed] COPY_READABLE_AND_REPLACE,
            Bad [Covered] REPLACE_COVERED,
        ],
        "no such error was logged for `[errors] quiet_after` (BAD: `bad_quiet_after`), an array check or an extended self-test has read all of it since, or a repair is acknowledged (`diskvitals ack --repaired`); never by itself from the drive's own lifetime counter: acknowledge it (`diskvitals ack --note`), or replace the drive";
    IoErrors, Both, [Suspect, Bad], [Suspect, Bad],
        [FailsIo, FollowsDrive, CountsForModel, Hardware, Logged(Io)], [LookAtPath, PlanReplacement],
        "Reads or writes failed, and no record says whether the drive, the connection to it or a layer below is the cause.",
        "Single reads or writes failed. Data that the drive could not read repeatedly or in several places, and that has no other copy, is lost (status DATA_LOSS).",
        "Read the evidence and the kernel log around it. Check the cable, the slot and the adapter before you replace the drive.", [],
        "no such error was logged for `[errors] quiet_after` (BAD: `bad_quiet_after`), an array check or a btrfs scrub has read all of the drive since, or a repair is acknowledged (`diskvitals ack --repaired`)";
    IoTimeouts, Drive, [Suspect, Bad], [Suspect, Bad],
        [FailsIo, CountsForModel, Hardware, Logged(Timeout)], [LookAtPath, PlanReplacement],
        "The drive did not answer commands in time.",
        "Not known to be damaged. Reads and writes wait, or fail after a long wait.",
        "Check the drive, its cable, its power and its firmware. A drive that times out again and again is dying or badly connected.", [],
        "no such error was logged for `[errors] quiet_after` (BAD: `bad_quiet_after`), an array check or a btrfs scrub has read all of the drive since, or a repair is acknowledged (`diskvitals ack --repaired`)";
    ControllerResets, Drive, [Suspect], [],
        [FailsIo, Hardware, Logged(Reset)], [LookAtPath],
        "The kernel had to reset the drive, its link or its controller.",
        "Not affected: commands are repeated after a reset. A command that failed for good is reported as IoErrors.",
        "One reset may be chance. If resets come back, check firmware, power and cabling.", [],
        "no such error was logged for `[errors] quiet_after`, or a repair is acknowledged (`diskvitals ack --repaired`)";
    LinkErrors, Drive, [Suspect], [],
        [FailsIo, Hardware, Logged(Transport), Shows(LinkErrors)], [ReseatCable],
        "Data was damaged or lost in transfer between the drive and the host, and was sent again.",
        "Not affected: checksums detect damaged transfers, which are repeated. A transfer that failed for good is reported as IoErrors.",
        "Reseat or replace the cable, the backplane slot or the adapter. The drive's medium is not affected.", [],
        "no such error was logged for `[errors] quiet_after` or a repair is acknowledged (`diskvitals ack --repaired`), the drive's own count has not grown for `[smart.limits] growth_window`, and its SAS phys count none for a day";
    LinkDowngraded, Drive, [Info, Suspect], [],
        [Hardware], [ReseatCable],
        "The drive's link is slower or narrower than it was in the same place, or the kernel has lowered the speed of its SATA link after errors.",
        "Not affected: the link works with less.",
        "Reseat or replace the cable, or use another port; without a cable, look at the slot, riser or backplane. A limit of SATA stays until the drive is attached anew or the host boots. The drive's medium is not affected.", [],
        "the link is as good as it was; of SATA, the limit is gone, because the drive was attached anew or the host was booted";
    SmartFailing, Drive, [Info, Bad], [Bad],
        [CountsForModel], [ReplaceNow],
        "The drive itself reports that it is failing, or that its data is not reliable.",
        "All of it is at risk, even if it can be read without errors today.",
        "Replace the drive now. Without redundancy, save the data first and stop writing to the drive.", [
            Info [] "Nothing: a test of the drive's alarm is switched on.",
            Bad [Exposed] "Stop what writes to the drive, as far as you can, and copy the data off first: this host has no other copy of it. Then replace the drive.",
            Bad [Covered] REPLACE_COVERED,
        ],
        "the drive answers and no longer reports it, which hardly ever happens";
    SmartAttributeFailing, Drive, [Suspect, Bad], [Bad],
        [CountsForModel, Stays], [PlanReplacement, ReplaceNow],
        "A SMART attribute is or was at the threshold that the manufacturer set for imminent failure.",
        "At risk; this alone loses nothing.",
        "Replace the drive. If the value has recovered (a temperature), find out what lowered it.", [
            Suspect [] "Find out what lowered the value at that time. It has recovered.",
            Bad [] SAVE_AND_REPLACE,
            Bad [Exposed] COPY_AND_REPLACE,
            Bad [Covered] REPLACE_COVERED,
        ],
        "never by itself, because the drive remembers it: acknowledge it, or replace the drive";
    SmartAttributeSuspect, Drive, [Suspect], [],
        [Stays], [Watch],
        "A value that precedes failure (spin retries, end-to-end errors, command timeouts, an old-age threshold) has become worse.",
        "Not affected so far.",
        "Watch whether the value grows. For timeouts, check power and cabling. Plan a replacement if it grows.", [],
        "the drive no longer reports it; counters that are judged by growth clear after `[smart.limits] growth_window` without growth; lifetime counters never fall: acknowledge it, or replace the drive";
    ReallocatedSectors, Drive, [Suspect, Bad], [Bad],
        [CountsForModel, Stays, Shows(Reallocated)], [Watch, ReplaceNow],
        "The drive has replaced some of its sectors with spare ones.",
        "Intact where it is now. The contents of such a sector may have been lost before it was replaced (MediaErrors, PendingSectors).",
        "A few are acceptable while their number does not change. If it grows, plan the replacement; if it grows daily, replace the drive now.", [
            Suspect [] "A few are acceptable while their number does not change. If it grows, plan the replacement.",
            Bad [] SAVE_AND_REPLACE,
            Bad [Exposed] COPY_AND_REPLACE,
            Bad [Covered] REPLACE_COVERED,
        ],
        "never by itself, because the count does not fall: acknowledge it, or replace the drive";
    PendingSectors, Drive, [Suspect, Bad], [Suspect, Bad],
        [FailsIo, CountsForModel, Shows(Pending)], [Watch, ReplaceNow],
        "Some sectors cannot be read. Their contents are lost on this drive unless a later read succeeds.",
        "The contents of those sectors cannot be read from this drive. The other data on it is not affected.",
        "With redundancy: a RAID check or a repairing scrub rewrites the sectors from the other copies, which repairs those that are only weak. Without: copy the data off first; what cannot be read is lost unless a backup has it. Replace the drive if the number grows.", [
            Suspect [] "Without redundancy, copy the data off first: what cannot be read is lost unless a backup has it. With redundancy, a RAID check or a repairing scrub rewrites the sectors.",
            Suspect [Covered, Last] "A RAID check or a repairing scrub rewrites the sectors from the other copies, which repairs those that are only weak. If the number grows, replace the drive.",
            Suspect [Exposed] "Copy the data off first: this host has no other copy of it, and what cannot be read is lost unless a backup has it. Overwriting a sector lets the drive reallocate it. If the number grows, replace the drive.",
            Bad [] SAVE_AND_REPLACE,
            Bad [Exposed] COPY_READABLE_AND_REPLACE,
            Bad [Covered] REPLACE_COVERED,
        ],
        "the drive reports none";
    SpareLow, Drive, [Suspect, Bad], [Bad],
        [CountsForModel, Wear, Stays, Shows(Spare)], [PlanReplacement, ReplaceNow],
        "The drive has hardly any spare blocks left: it cannot replace the next blocks that wear out.",
        "Not affected. When the last spare block is used, the drive stops accepting writes.",
        "Replace the drive soon.", [
            Suspect [] "Plan the replacement.",
            Bad [] "Replace the drive soon: with the last spare block it stops accepting writes.",
            Bad [Exposed] COPY_AND_REPLACE,
        ],
        "never by itself, because spare blocks are not regained: acknowledge it, or replace the drive";
    WornOut, Drive, [Info, Suspect], [],
        [Wear, Stays, Shows(WearPercent)], [PlanReplacement],
        "The flash has been written as much as it was designed for, or soon will be.",
        "Not affected. Worn flash keeps its data for a shorter time without power.",
        "Plan the replacement. The drive may work for a long time, but its failure cannot be predicted.", [
            Info [] "Find out what writes so much, or plan the replacement. At 100 % the maker's warranty ends, not the drive.",
        ],
        "never by itself, because wear does not fall: acknowledge it with the date of the planned replacement, or replace the drive";
    DriveReadOnly, Drive, [Bad], [Bad],
        [FailsIo, CountsForModel], [ReplaceNow],
        "The drive has stopped accepting writes to protect its data.",
        "Readable; nothing more can be written.",
        "Copy the data off the drive and replace it.", [],
        "the drive no longer reports it";
    Overheating, Drive, [Info, Suspect], [],
        [Shows(Temperature)], [Cool],
        "The drive is warmer than its temperature limit.",
        "Not affected.",
        "Check fans, air filters and neighboring drives. Heat shortens the drive's life and slows it down.", [
            Info [] "Nothing: the drive is cool, and the threshold of its attribute is wrong.",
        ],
        "the drive is `[smart.limits] temperature_clear_below` degrees below its limit";
    SelfTestFailed, Drive, [Suspect, Bad], [Suspect, Bad],
        [CountsForModel], [PlanReplacement, ReplaceNow],
        "The drive's self-test found a fault in its medium, and no later test has passed.",
        "Part of the medium cannot be read. The test does not say which data is stored there.",
        "Replace the drive. To test whether rewriting has repaired it: `diskvitals self-test DRIVE long`.", [
            Suspect [] "Test all of the medium: `diskvitals self-test DRIVE long`. If that fails, replace the drive.",
            Bad [] "Replace the drive. If its bad sector was rewritten, prove it: `diskvitals self-test DRIVE long`.",
            Bad [Exposed] COPY_AND_REPLACE,
        ],
        "a later extended test has passed; a failure that has only left the drive's log stays";
    SmartUnavailable, Drive, [Info], [],
        [Stays], [Watch],
        "The drive does not report its health.",
        "Not known to be affected. This drive fails without a warning from SMART.",
        "Nothing, if the drive has no SMART. If SMART is disabled, enable it with `smartctl -s on`. Behind a bridge or a controller another device type may help (`[[smart.override]] device_type`).", [],
        "the drive reports its health";
    FirmwareNotice, Drive, [Info, Suspect], [],
        [Stays], [Watch],
        "Known faults in the firmware of this drive have been published.",
        "Depends on the fault: read the notice.",
        "Read the notice and the manufacturer's release notes. Update the firmware if the fault affects this host.", [
            Suspect [] "Make sure that its data is elsewhere too, then update the firmware before the drive reaches these hours. Drives of one age reach them together.",
        ],
        "the drive has other firmware, or the fault is no longer listed";
    SelfTestOverdue, Drive, [Info], [],
        [Stays], [Watch],
        "The drive has been tested by itself before, and not for a long time now.",
        "Not affected. Sectors that nothing reads may have become unreadable without anybody knowing.",
        "Start a long test (`diskvitals self-test DRIVE long`), and find out why the scheduled ones do not run. If none is wanted: `self_test_overdue_days = 0` in `[smart.limits]`.", [],
        "a self-test has ended";
    TimeoutMismatch, Drive, [Info], [],
        [Stays], [Watch],
        "The drive may try to read a weak sector for longer than the kernel waits for it, and is a member of an array or pool with redundancy.",
        "Not affected. One weak sector may take the whole drive out of its array, instead of being rewritten from another copy.",
        "While other copies exist, let the drive give up first: `smartctl -l scterc,70,70 DEVICE`. If it cannot, let the kernel wait longer: `echo 180 > /sys/block/NAME/device/timeout`. Both are lost at boot: repeat them there, in a udev rule for example.", [
            Info [Exposed] "Let the kernel wait longer: `echo 180 > /sys/block/NAME/device/timeout`. That is lost at boot: repeat it there, in a udev rule for example. Do not shorten the drive's own attempts: this host has no other copy of some of its data.",
        ],
        "the drive gives up well before the kernel (SCT ERC), the kernel waits more than 30 s, or the drive is in no array or pool with redundancy";
    SmrInArray, Drive, [Info], [],
        [Stays], [Watch],
        "A drive whose tracks overlap (drive-managed SMR) is a member of an array with parity or of a ZFS pool.",
        "Not affected. A rebuild or resilver onto the drive may take days, or fail.",
        "Nothing is urgent. Replace it with a drive without SMR (CMR) when you replace it, and use none as a spare. Until then, keep a backup, and do not take a slow drive in a rebuild for a failing one.", [],
        "the drive is in no array with parity and in no ZFS pool";
    ProbeTimeout, Both, [Suspect, Bad], [Suspect, Bad],
        [FailsIo, FollowsDrive, Hang, Unmeasured, Disconnects, Unreachable], [LookAtPath],
        "A probe of this device or mount was not answered in time: programs that use it are likely to hang too.",
        "Not known to be damaged; inaccessible until the probe is answered.",
        "Check the drives below it and the kernel log (hung tasks, resets). A dead network path has the same effect.", [],
        "the pending probe or a later one is answered, or the mount or device is removed";
    StagingNotMounted, Volume, [Suspect, Bad], [],
        [OfUsers, Unmeasured, Unmounted], [],
        "According to the kubelet's records the volume is staged on this node, but nothing is mounted at its staging path.",
        "Unchanged on its device. Pods that start now do not get the volume.",
        "Look for a manual unmount, or for a failed staging in the CSI driver's log. Delete the pod to make the kubelet stage the volume again.", [],
        "something is mounted at the staging path, or the record of it is removed";
    NotMounted, Volume, [Bad], [],
        [OfUsers, Unmeasured, Unmounted], [],
        "According to the kubelet's records a pod uses this volume, but nothing is mounted at the pod's path. A container that started before keeps the volume by a mount of its own; one that starts now writes to the node's own disk.",
        "Data in the volume is unchanged. What a container that started since has written is on the node's own disk, in the pod's directory, and is deleted with the pod.",
        "Look whether the pod still has the volume (`kubectl exec POD -- df PATH`). Then delete the pod, before one of its containers restarts: the kubelet mounts the volume again.", [],
        "something is mounted at the pod's path, or the pod or its record is removed";
    NotAccessible, Volume, [Bad], [],
        [FollowsDrive, Unmeasured, Unreachable, AccessFails], [],
        "The volume is mounted, but access to it fails with an error.",
        "Inaccessible. Whether it is intact can be seen once the cause is repaired.",
        "Read the error and the kernel log. An I/O error of a local device: look for resets or a removal of the device, then check the filesystem read-only. `stale`: the server's export has changed; unmount and mount again. `not connected`: the FUSE process has ended; mount again.", [],
        "statfs and readdir of every mount of the volume succeed, or the volume is unmounted";
    ReadOnly, Volume, [Suspect, Bad], [],
        [FollowsDrive], [],
        "The kernel has made this filesystem read-only after an error.",
        "Readable where the error did not damage it. Data that was not on disk at that moment is lost, and nothing more can be written.",
        "Find the error in the kernel log, save the data, check the filesystem while it is unmounted, and mount it again.", [],
        "the filesystem is writable again, or is unmounted";
    FilesystemErrors, Volume, [Suspect, Bad], [],
        [FollowsDrive, Logged(Filesystem)], [],
        "The filesystem had errors from the device below it, or has recorded errors that nothing has repaired, and continues.",
        "Single files may be affected: reads or writes of them failed.",
        "Check the drive below. Save the data, and check the filesystem while it is unmounted (btrfs: scrub it; ext4 on `/`: `fsck.mode=force` on the kernel command line at the next boot).", [
            Suspect [] "Look at the drive below first. Check the filesystem when it can be unmounted.",
        ],
        "no such error was logged for `[errors] quiet_after` (BAD: `bad_quiet_after`), or a repair is acknowledged (`diskvitals ack --repaired`); and the filesystem has no recorded error left: ext4 was repaired and mounted again, or a check while frozen or unmounted found it clean; a scrub of all devices of a btrfs found nothing, or its statistics were set to zero";
    FilesystemCorrupted, Volume, [Suspect, Bad], [],
        [Logged(Corruption)], [],
        "The filesystem found that its metadata or data is corrupted.",
        "Some of it is wrong or missing; lost for certain (status DATA_LOSS) where a check has proven it. SUSPECT: redundancy has repaired all of it, or has a good copy of it.",
        "Find out what caused the corruption first (drive, memory, power). Save what can be read, and unmount. Then mount and unmount it once, which replays its log; look first (`e2fsck -fn DEVICE`, `xfs_repair -n DEVICE`), then repair (`e2fsck -f DEVICE`, `xfs_repair DEVICE`). After xfs_repair run `diskvitals check DEVICE` before it is mounted. btrfs: mount it and start a scrub (`btrfs scrub start -B MOUNT`); restore what is left.", [
            Suspect [] "Redundancy has repaired it. Find out what caused it (drive, memory, cable), and run a scrub.",
        ],
        "reported by the kernel: a check while frozen or unmounted finds the filesystem clean, ext4 is mounted again after a repair that its superblock records, a new filesystem is made, or it is acknowledged after an unmount (btrfs and integrity layers: no such error was logged for `[errors] bad_quiet_after`; SUSPECT: `quiet_after`); reported by a check: a later check of at least the same strength finds it clean, ext4 is mounted after a repair that its superblock records, a later scrub reads every device of a btrfs without an error (SUSPECT: damaged copies), or a new filesystem is made";
    FilesystemSuspect, Volume, [Suspect], [],
        [], [],
        "Checks of the live filesystem found the same inconsistencies each time. Corruption looks like this; writes during a check can, too.",
        "Perhaps corrupted; this is not proven.",
        "Save the data first. Then check the filesystem while nothing is written: `diskvitals check VOLUME --freeze` where the policy allows it, or unmounted.", [],
        "a later check finds the filesystem clean, ext4 is mounted after a repair that its superblock records, a later check proves the corruption (FilesystemCorrupted), or a new filesystem is made";
    FilesystemShutdown, Volume, [Suspect, Bad], [],
        [FollowsDrive, AccessFails], [],
        "The filesystem has shut itself down: every access fails until it is mounted again.",
        "Inaccessible until it is mounted again. Synced data is on disk or in the journal; data that was not synced is lost.",
        "Stop the programs that use it, check the device below, unmount, check the filesystem, and mount it again.", [],
        "the filesystem is unmounted, or answers again";
    OutOfSpace, Volume, [Suspect, Bad], [],
        [OfUsers, Shows(Space)], [],
        "There is hardly any space left for an unprivileged user, or there will be none in a few days.",
        "Existing data is not affected; writes fail (BAD), or soon will.",
        "Delete or move data, or grow the volume.", [],
        "`[space] clear_percent` or twice `raise_bytes` are available, whichever is less, and it will not be full within twice `forecast`";
    OutOfInodes, Volume, [Suspect, Bad], [],
        [OfUsers, Shows(Inodes)], [],
        "There are hardly any inodes left: new files cannot be created even if there is space.",
        "Existing data is not affected; new files cannot be created (BAD), or soon cannot.",
        "Delete small files, or create the filesystem again with more inodes.", [],
        "`[space] clear_inodes_percent` of the inodes are free";
    DeviceMissing, Volume, [Bad], [],
        [FollowsDrive, Unmeasured, Disconnects, Unreachable, AccessFails], [],
        "The block device of this volume is missing while the volume is in use, or that of an idle static volume is.",
        "Inaccessible, except for what is cached in memory. Data that had not reached the device is lost.",
        "Reconnect or replace the drive. Unmount the volume before the device returns: it returns under another name.", [],
        "the device is present again, or the volume is unmounted and its drive has returned";
    DriveFailing, Volume, [Suspect, Bad], [],
        [OfDrives], [],
        "A drive below this volume has findings that endanger data.",
        "BAD: the state of the drive's data applies to this volume. SUSPECT: redundancy protects it, or the drive itself is only suspect.",
        "BAD: copy the data off before anything else. SUSPECT: without redundancy, make sure that there is a backup of today. Then follow the drive's finding.", [
            Suspect [] "Make sure that there is a backup of today. Then follow the drive's finding.",
            Suspect [Exposed] "Make sure that there is a backup of today: this host has no other copy of the data. Then follow the drive's finding.",
            Suspect [Last] "Make sure that there is a backup of today: no redundancy is left. Then follow the drive's finding.",
            Suspect [Covered] "Follow the drive's finding. Redundancy covers the data.",
            Bad [] "Copy the data off first, as the drive's finding says. Then follow the rest of it.",
        ],
        "no drive below the volume has a finding that endangers data";
    IoStalled, Volume, [Bad], [],
        [FollowsDrive, Hang, Disconnects, Unreachable], [],
        "The device of this volume has I/O in flight and has completed none of it for a long time.",
        "Not known to be damaged. Programs that read or write wait.",
        "Check the drive, its cable and its controller; for a remote volume, the network.", [],
        "the device completes I/O again, or has none in flight";
    RedundancyLost, Volume, [Suspect], [],
        [FollowsDrive, Leads, Of(Array)], [],
        "A RAID array below this volume has only one copy left of its data, or of a part of it.",
        "Intact. The next failure of a drive that holds the copy loses it.",
        "If a rebuild is running, wait and do not pull a drive. If the drive with the last copy has findings of its own, back up first: a rebuild reads all of it. Otherwise replace the missing member today.", [],
        "the array survives the failure of a member again: the missing one is replaced and filled";
    RedundancyAtRisk, Volume, [Suspect], [],
        [OfDrives], [],
        "Members of an array below this volume have findings that endanger data, new or grown within 30 days, and no further one may fail.",
        "Intact. If these drives fail, the next failure loses it.",
        "Make sure that there is a backup of today. Replace these drives, one after the other: wait until each rebuild has ended. Where the stack can fill the new drive while the old one stays, let it (`mdadm --replace`, `lvconvert --replace`, `btrfs replace start`).", [],
        "the drives have no such finding any more, or none is new or has grown for 30 days, or more copies hold the data, or redundancy is lost already (RedundancyLost)";
    RaidDegraded, Volume, [Suspect, Bad], [],
        [FollowsDrive, Of(Array)], [],
        "A RAID array below this volume runs with fewer devices than it should, or does not run.",
        "SUSPECT: intact, and it survives the failure of one more device at least. BAD: more members are missing than the array tolerates, or it does not run.",
        "SUSPECT: replace the failed member and watch the rebuild. BAD: find out why members are missing (power, cables, adapter) and bring them back; do not create the array again.", [],
        "all members are present and in sync, or no further one may fail (RedundancyLost)";
    ArrayMismatch, Volume, [Suspect], [],
        [Of(Array)], [],
        "A check of an array below this volume found places where its parity does not match its data.",
        "Readable. What is computed from wrong parity after the loss of a member is wrong. Which side is right is not known.",
        "Look for the cause first: errors of each member, power, cables, memory. Compare the data with a backup. Then check again (`check` to /sys/block/mdN/md/sync_action, `lvchange --syncaction check VG/LV`). Do not begin with `repair`: it takes the data as right.", [],
        "a later check of the array in one run finds no difference; a restart, which sets the count to 0, does not end it";
    ScrubOverdue, Volume, [Info], [],
        [Of(Scrubbed)], [],
        "No check of an array below this volume, or no scrub of its ZFS pool or btrfs, has ended for a long time.",
        "Not affected. What nothing reads may have become unreadable without anybody knowing: a rebuild finds it when it needs it.",
        "Start one (`check` to /sys/block/mdN/md/sync_action, `lvchange --syncaction check VG/LV`, `zpool scrub POOL`, `btrfs scrub start MOUNT`), and find out why the scheduled ones do not run. If none is wanted: `scrub_overdue_days = 0` in `[volumes]`.", [],
        "a whole check or scrub has ended";
    ThinPoolFull, Volume, [Suspect, Bad], [],
        [Of(Pool)], [],
        "The thin pool or VDO pool below this volume is full or nearly full: when it is full, writes fail for all its volumes.",
        "Data already written is intact. When the pool is full, writes fail for all its volumes, which may corrupt their filesystems.",
        "Extend what is full: data (`lvextend -L +SIZE VG/POOL`) or metadata (`lvextend --poolmetadatasize +SIZE VG/POOL`). Otherwise discard unused blocks (`fstrim`) and delete old snapshots.", [],
        "data and metadata usage is below `[thin_pool] clear_percent`, and the pool accepts writes";
    CacheFailed, Volume, [Bad], [],
        [FollowsDrive, Of(Cache)], [],
        "A cache below this volume (dm-cache, dm-writecache, bcache) does not work.",
        "What the cache had not written back may be lost; reads and writes may fail.",
        "Save what can be read. Look at the drive of the cache. Do not detach the cache by force (`lvconvert --uncache --force`, bcache's `detach` or `running`): what only the cache holds is lost then. dm-cache in `needs_check`: deactivate it, then `lvconvert --repair VG/LV`.", [],
        "the cache works again";
    PathsDegraded, Volume, [Suspect, Bad], [],
        [FollowsDrive, Of(Paths)], [],
        "Some paths to this volume's multipath device have failed.",
        "Accessible over the remaining paths; inaccessible when there is none (BAD).",
        "Check the failed path's adapter, cable and switch port.", [],
        "all paths of the device are active";
    PoolDataErrors, Volume, [Bad], [],
        [Of(Zpool)], [],
        "A ZFS pool below this volume has data that no copy could repair.",
        "Lost in the listed files, or in metadata, of some dataset of the pool. All else is intact.",
        "List the files with `zpool status -v POOL`, and restore them from a backup; find out what damaged them (drive, memory, cable). Then scrub twice: `zpool scrub POOL`.", [],
        "`zpool status` counts no data error in the pool";
    PoolDegraded, Volume, [Suspect], [],
        [FollowsDrive, Of(Zpool)], [],
        "A ZFS pool below this volume works without a part of its redundancy.",
        "Intact on the other members of the pool.",
        "Find the member: `zpool status -v POOL`. Bring it back (`zpool online`), or replace it (`zpool replace`), this week. If other members have findings, back up first: a resilver reads all of them.", [],
        "every member that holds data of the pool works again, or the pool has stopped (PoolSuspended, PoolFaulted)";
    PoolErrors, Drive, [Suspect], [],
        [Hardware], [LookAtPath],
        "A ZFS pool has counted errors of this drive: reads or writes failed, or what was read did not have its checksum.",
        "Intact where the pool has redundancy, which repairs it. What could not be repaired is reported as PoolDataErrors.",
        "Look at the drive's SMART data, its cable, slot and adapter. Then `zpool clear POOL` and `zpool scrub POOL`: if the errors come back, replace what is at fault. As many errors on all members: memory, adapter or cables.", [],
        "`zpool status` counts none (`zpool clear`), and none has come for `[errors] quiet_after`";
    IntegrityErrors, Drive, [Suspect], [],
        [Hardware], [LookAtPath],
        "Sectors of this drive do not have the checksum that dm-integrity keeps of them.",
        "Intact where an array above has another copy, which repairs it. Otherwise reads of these sectors fail.",
        "Look at the drive's SMART data, its cable, slot and adapter, and the memory. Then have the array above read everything (`lvchange --syncaction check VG/LV`, `check` to /sys/block/mdN/md/sync_action). If the count grows again, replace the drive.", [],
        "dm-integrity has counted none for `[errors] quiet_after`";
    PoolFull, Volume, [Suspect, Bad], [],
        [Of(Zpool)], [],
        "A ZFS pool below this volume has hardly any space left for its datasets.",
        "Existing data is not affected; writes fail (BAD), or soon will: in every dataset and sparse zvol of the pool.",
        "Look what takes the space: `zfs list -r -o space POOL`. Destroy snapshots first: a deleted file stays in them. Or add a vdev.", [],
        "its root dataset can write as much as ends OutOfSpace";
    PoolFaulted, Volume, [Bad], [],
        [FollowsDrive, Of(Zpool), Disconnects, Unreachable, AccessFails], [],
        "A ZFS pool does not work: it lacks more members than its redundancy covers, or its metadata is damaged.",
        "Inaccessible. It is not known to be lost: members that come back bring it back.",
        "Find out why members are missing (power, cables, adapter) and bring them back. Read `zpool status -v POOL` before anything else; do not create the pool again, and write to none of its members.", [],
        "the pool works again, or is exported";
    PoolSuspended, Volume, [Bad], [],
        [FollowsDrive, Of(Zpool), Hang, Unmeasured, Disconnects, Unreachable], [],
        "ZFS has suspended the pool: too many of its members do not answer, and everything that reads or writes waits.",
        "What is on disk is not known to be damaged. What programs wrote in the last seconds waits in memory, and is lost at a restart.",
        "Bring the members back (power, cables, adapter), then run `zpool clear POOL`. Until then start no other `zpool` or `zfs` command: it may hang, and then hangs for every pool.", [],
        "the pool works again, or is exported";
    MonitoringIncomplete, Source, [Suspect], [],
        [], [],
        "Something that the daemon judges this node by has not been readable, or only in part, for ten minutes.",
        "Not affected. A failure that only this source shows is not noticed.",
        "Do what the message says: install the missing program, or give the daemon the permission that it lacks. Until then nothing that depends on it is known to be well.", [],
        "it can be read completely, or nothing on the node depends on it any longer";
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a reason: `diskvitals reasons` lists them")]
pub struct UnknownReason(pub String);

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Reason::ALL
            .iter()
            .copied()
            .find(|reason| reason.name() == name)
            .ok_or_else(|| UnknownReason(name.to_owned()))
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How messages about the last copy begin.
pub const NO_REDUNDANCY: &str = "no redundancy left";

/// What is said of data that the next failure takes away, by the reasons of its cause.
pub fn last_copy_words<'a>(mut reasons: impl Iterator<Item = &'a str>) -> &'static str {
    match reasons.any(|it| it.parse() == Ok(Reason::PathsDegraded)) {
        true => "no spare path left",
        false => NO_REDUNDANCY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_kubernetes_accepts_and_read_back() {
        for reason in Reason::ALL {
            assert!(reason.name().bytes().all(|b| b.is_ascii_alphanumeric()), "{reason}");
            assert_eq!(reason.name().parse::<Reason>().as_ref(), Ok(reason));
        }
    }

    #[test]
    fn every_row_is_complete_and_its_levels_begin_with_the_least() {
        for reason in Reason::ALL {
            assert!(
                !reason.levels().is_empty()
                    && reason.levels().is_sorted_by(|less, more| less < more),
                "{reason}: {:?}",
                reason.levels()
            );
            for level in reason.endangers_data_at() {
                assert!(reason.levels().contains(level), "{reason}: {level:?}");
                assert_ne!(reason.scope(), ReasonScope::Volume, "{reason}");
            }
            let is_of_drives = matches!(reason.scope(), ReasonScope::Drive | ReasonScope::Both);
            assert_eq!(!reason.first_actions().is_empty(), is_of_drives, "{reason}");
            for text in [reason.meaning(), reason.data(), reason.action()] {
                assert!(
                    text.ends_with('.') && text.starts_with(char::is_uppercase),
                    "{reason}: {text}"
                );
            }
            // The rest of a sentence.
            assert!(
                !reason.clears().is_empty() && !reason.clears().ends_with('.'),
                "{reason}: {}",
                reason.clears()
            );
        }
    }
}
