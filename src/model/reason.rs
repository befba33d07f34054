//! The one table of reasons: name, who it is about, how bad it can be, what it means, what it means
//! for the data, what to do, what ends it. The wire, `diskvitals reasons`, docs and alerts come
//! from it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::finding::Severity;

/// Whom a reason can be said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonScope {
    Drive,
    Volume,
    /// A drive or a volume.
    Both,
}

macro_rules! reasons {
    ($($name:ident, $scope:ident, [$($level:ident),*], $meaning:literal, $data:literal, $action:literal, $clears:literal;)*) => {
        /// Names are stable: alerts, scripts and Kubernetes show them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($name),* }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }

            pub fn scope(self) -> ReasonScope {
                match self { $(Reason::$name => ReasonScope::$scope),* }
            }

            /// How bad it can be, the least first; which of them it is decides `assess`.
            pub fn levels(self) -> &'static [Severity] {
                match self { $(Reason::$name => &[$(Severity::$level),*]),* }
            }

            /// One sentence for a person who reads it at three in the morning.
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning),* }
            }

            /// What is lost with it, what is at risk, and what is not.
            pub fn data(self) -> &'static str {
                match self { $(Reason::$name => $data),* }
            }

            /// What to do about it.
            pub fn action(self) -> &'static str {
                match self { $(Reason::$name => $action),* }
            }

            /// The rest of a sentence that begins with "It is over when". What cannot be told ends
            /// nothing.
            pub fn clears(self) -> &'static str {
                match self { $(Reason::$name => $clears),* }
            }
        }
    };
}

reasons! {
    DriveMissing, Drive, [Info, Suspect, Bad],
        "The drive was here and is gone.",
        "Out of reach where nothing else holds it. That it is lost is not said: the drive may come back with all of it.",
        "Look whether it was pulled, lost power or died: reseat or replace it. It is recognised when it returns, under whatever name.",
        "a scan shows it again, under whatever name, or its RAID controller another drive in its place; as information also when it is forgotten (`[drives] forget_missing_after`)";
    DriveOffline, Drive, [Bad],
        "The kernel has the drive and does not talk to it any more: its error handling gave up, or the controller is dead or stuck in recovery.",
        "Out of reach where nothing else holds it: reads and writes fail at once.",
        "Read the kernel log for the reason. Reseat the drive or its cable; a rescan or a power cycle may bring it back. Plan its replacement when it comes again.",
        "the kernel calls the drive, or one path to it, running or live, or the drive is gone (DriveMissing)";
    MediaErrors, Drive, [Suspect, Bad],
        "The drive said that it could not read or write some of its medium, or that its hardware failed.",
        "What lies on the sectors that failed could not be read, or was not written. What redundancy or the drive itself put right is whole.",
        "Back up what lies on it. Look at the drive's own health; when it happens again, replace it. Rewriting the sector may heal one that is weak.",
        "nothing like it was heard for `[errors] quiet_after` (BAD: `bad_quiet_after`); what the drive's own lifelong counter says stays";
    IoErrors, Both, [Suspect, Bad],
        "Reads or writes failed, and no record says whether the drive, the way to it or the layer beneath is the cause.",
        "Single reads or writes were refused. What the drive itself could not read, again or in several places, and nothing else holds, is lost (status DATA_LOSS).",
        "Read the evidence and the kernel log around it. Look at the cable, the slot and the adapter before the drive is replaced.",
        "nothing like it was heard for `[errors] quiet_after` (BAD: `bad_quiet_after`)";
    IoTimeouts, Drive, [Suspect, Bad],
        "The drive did not answer commands in their time.",
        "Not known to be damaged; reads and writes wait, or fail after a long wait.",
        "Look at the drive, its cable and power, and its firmware; a drive that times out again and again is dying or badly connected.",
        "nothing like it was heard for `[errors] quiet_after` (BAD: `bad_quiet_after`)";
    ControllerResets, Drive, [Suspect],
        "The kernel had to reset the drive, its link or its controller.",
        "Not touched: commands are repeated after a reset. One that failed for good is told as IoErrors.",
        "One reset may be chance. When it comes again, look at firmware, power and cabling.",
        "nothing like it was heard for `[errors] quiet_after`";
    LinkErrors, Drive, [Suspect],
        "Data was damaged or lost on the way between the drive and the host, and repeated.",
        "Not touched: damaged transfers are found by their checksums and repeated. One that failed for good is told as IoErrors.",
        "Reseat or change the cable, the backplane slot or the adapter: the drive's medium is not concerned.",
        "nothing like it was heard for `[errors] quiet_after`, and the drive's own count has not grown for `[smart.limits] growth_window`";
    SmartFailing, Drive, [Info, Bad],
        "The drive itself says that it is failing, or that its data cannot be relied on.",
        "All of it is at risk, although it may be read without an error today.",
        "Replace it now. Where there is no redundancy, save the data first and stop writing to it.",
        "the drive answers and no longer says so, which hardly happens";
    SmartAttributeFailing, Drive, [Suspect, Bad],
        "A value that the drive keeps of itself has fallen to the limit that its maker set for imminent failure, now or in the past.",
        "At risk; nothing is lost by this alone.",
        "Replace it; where the value has recovered (a temperature), find out what brought it down.",
        "no such value is at its limit, now or in the past: drives remember their past";
    SmartAttributeSuspect, Drive, [Suspect],
        "A counter that goes before failure (spin retries, end-to-end errors, command time-outs, a limit of old age) is not what it was.",
        "Not touched so far.",
        "Watch whether it grows. Look at power and cabling for time-outs; plan a replacement when it grows.",
        "the drive no longer tells it; counters that were judged by their growth, after `[smart.limits] growth_window` without any; lifelong ones stay";
    ReallocatedSectors, Drive, [Suspect, Bad],
        "The drive has given up some of its sectors and uses spare ones in their place.",
        "Good where it lies now. What such a sector held may have been lost before it was replaced (MediaErrors, PendingSectors).",
        "A few that stay as they are can be lived with. When their number grows, plan the replacement; when it grows by the day, replace now.",
        "never by itself: the count does not fall. Acknowledge one that stands still";
    PendingSectors, Drive, [Suspect, Bad],
        "Some sectors cannot be read: what they held is lost to this drive unless a later reading succeeds.",
        "What those sectors hold cannot be read from this drive; nothing else on it is concerned.",
        "Check the data against its other copies. Writing the sectors anew (a rebuild, a scrub that repairs) heals those that are only weak; replace the drive when more come.",
        "the drive tells of none";
    SpareLow, Drive, [Suspect, Bad],
        "The drive has hardly any spare blocks left: the next worn blocks cannot be replaced.",
        "Not touched. When the last spare block is used, the drive stops taking writes.",
        "Replace it soon.",
        "the drive tells of enough";
    WornOut, Drive, [Suspect],
        "The flash has taken as much writing as it was designed for, or nearly.",
        "Not touched. Worn flash keeps its data for a shorter time while it has no power.",
        "Plan its replacement. It may go on for long, and how it ends is not foreseeable.",
        "never by itself. Acknowledge it with the date of the planned replacement";
    DriveReadOnly, Drive, [Bad],
        "The drive has stopped accepting writes to protect what it holds.",
        "Can be read; nothing more can be written.",
        "Copy the data off it and replace it.",
        "the drive no longer says so";
    Overheating, Drive, [Info, Suspect],
        "The drive is warmer than its limit.",
        "Not touched.",
        "Look at fans, air filters and the neighbours. Heat shortens its life and makes it slow; the data is not concerned.",
        "it is `[smart.limits] temperature_clear_below` degrees below its limit";
    SelfTestFailed, Drive, [Suspect, Bad],
        "The drive's own test of its medium found a fault, and no later test has passed.",
        "Some of the medium cannot be read; what lies there, the test does not say.",
        "Replace it. To see whether rewriting has healed it: `diskvitals self-test DRIVE long`.",
        "a later extended test has passed";
    SmartUnavailable, Drive, [Info],
        "The drive does not tell of its own health.",
        "Nothing is said of it: this drive fails without a warning of its own.",
        "Nothing, where it cannot. SMART that is switched off is switched on by `smartctl -s on`; behind a bridge or a controller another device type may help (`[[smart.override]] device_type`).",
        "the drive answers";
    FirmwareNotice, Drive, [Info],
        "The firmware of this drive is known to have faults, says the database of smartmontools.",
        "It depends on the fault, which the notice tells.",
        "Read the notice, and the maker's notes on the firmware; update it when the fault concerns this host.",
        "the drive has another firmware, or the database no longer says so";
    ProbeTimeout, Both, [Suspect, Bad],
        "A question to this device or mount has not been answered in its time: whoever uses it is likely to hang as well.",
        "Not known to be damaged, and out of reach while it lasts.",
        "Look at the drives beneath it and at the kernel log (hung tasks, resets). A dead network path does this too.",
        "the pending question, or a later one, is answered, or the mount or device is gone";
    StagingNotMounted, Volume, [Suspect, Bad],
        "The kubelet's records say that the volume is staged on this node, and nothing is mounted at its staging path.",
        "As it was, on its device. Pods that are started now do not get it.",
        "Look for an unmount by hand or a failed stage in the driver's log. Deleting the pod makes the kubelet stage it anew.",
        "something is mounted at the staging path, or the record of it is gone";
    NotMounted, Volume, [Bad],
        "The kubelet's records say that a pod has this volume, and nothing is mounted at the pod's path: the pod writes to the node's own disk, or into nothing.",
        "What was in the volume is as it was. What the pod has written since lies on the node's own disk below the pod's folder, and goes with the pod.",
        "Stop the pod before it writes more, then delete it so that the kubelet mounts the volume anew.",
        "something is mounted at the pod's path, or the pod or its record is gone";
    NotAccessible, Volume, [Bad],
        "The volume is mounted and answers with an error.",
        "Out of reach; whether it is whole shows when the cause is gone.",
        "Read the error and the kernel log: I/O error means a drive or a filesystem that shut down; stale or not connected, a server that is gone.",
        "statfs and readdir of every mount of the volume succeed, or it is unmounted";
    ReadOnly, Volume, [Bad],
        "The kernel has made this filesystem read-only after an error.",
        "Can be read as far as the error did not reach. What was not on disk at that moment is lost, and nothing more can be written.",
        "Find the error in the kernel log, save the data, check the filesystem while it is unmounted, and mount it again.",
        "the filesystem is writable again, or is not mounted any more";
    FilesystemErrors, Volume, [Suspect, Bad],
        "The filesystem met errors of the device beneath it, or counts errors of its own, and goes on.",
        "Single files may be concerned: reads or writes of theirs failed.",
        "Look at the drive beneath. Save the data, and check the filesystem while it is unmounted.",
        "nothing like it was heard for `[errors] quiet_after` (BAD: `bad_quiet_after`)";
    FilesystemCorrupted, Volume, [Suspect, Bad],
        "The filesystem found its own structures or data to be damaged.",
        "Some of it is wrong or cannot be found; lost for certain (status DATA_LOSS) where a check has proven it. SUSPECT: redundancy has put all of it right.",
        "Save what can be read, unmount, and run the filesystem's checker; find out what damaged it (drive, memory, power) first.",
        "said by the kernel: nothing like it was heard for `[errors] bad_quiet_after` (SUSPECT: `quiet_after`), or a check while frozen or unmounted finds it clean; said by a check: a later one of at least its strength finds it clean, or a new filesystem is made";
    FilesystemSuspect, Volume, [Suspect],
        "A check of the live filesystem showed the same findings each time. What moves under a checker can look like this; damage does.",
        "Perhaps damaged: it is not proven.",
        "Have it checked where nothing moves: `diskvitals check VOLUME --freeze` where the policy allows it, or unmounted. Save the data first.",
        "a later check finds it clean or proves the damage (FilesystemCorrupted), or a new filesystem is made";
    FilesystemShutdown, Volume, [Bad],
        "The filesystem has stopped itself: every access fails until it is mounted anew.",
        "Out of reach until it is mounted anew. What programs had synced is on disk or in the journal; what they had not is lost.",
        "Stop its users, look at the device beneath, unmount, check, and mount again.",
        "it is unmounted, or answers again";
    OutOfSpace, Volume, [Suspect, Bad],
        "There is hardly any space left for an unprivileged user.",
        "What is there is not touched; writes fail (BAD), or soon will.",
        "Delete or move data, or grow the volume.",
        "`[space] clear_percent` or twice `raise_bytes` are available";
    OutOfInodes, Volume, [Suspect, Bad],
        "There are hardly any inodes left: no new file can be made although there may be space.",
        "What is there is not touched; new files cannot be made (BAD), or soon not.",
        "Delete small files, or make the filesystem anew with more inodes.",
        "`[space] clear_inodes_percent` of the inodes are free";
    DeviceMissing, Volume, [Bad],
        "The block device beneath this volume is gone while it is in use.",
        "Out of reach, but for what is still in memory. What had not reached the device is lost to it.",
        "Bring the drive back or replace it. Unmount what is left before the device returns: it returns under another name.",
        "the device is there again, or nothing of it is mounted and its drive has returned";
    DriveFailing, Volume, [Suspect, Bad],
        "A drive beneath this volume has findings of its own.",
        "BAD: what is said of the drive's data holds for this volume. SUSPECT: redundancy covers it, or the drive is only suspect itself.",
        "See the drive's findings. Without redundancy, move the data now.",
        "no drive beneath the volume has a finding of its own";
    IoStalled, Volume, [Bad],
        "I/O has been sent to the device beneath this volume and nothing has been completed for a long time.",
        "Not known to be damaged; whoever reads or writes waits.",
        "Look at the drive, its cable and its controller; for a remote volume, at the network.",
        "the device completes I/O again, or has none in flight";
    RaidDegraded, Volume, [Suspect, Bad],
        "A RAID array beneath this volume runs with fewer devices than it should.",
        "Whole, and held by less than it should be. BAD: more is lost than the array can make up for, or it does not run.",
        "Replace the failed member and watch the rebuild. Until then another failure may lose the data.",
        "every member is there, active and in sync";
    ThinPoolFull, Volume, [Suspect, Bad],
        "The thin pool beneath this volume is nearly or wholly used: when it is full, writes fail for all its volumes.",
        "What is written is there. When the pool is full, writes fail for all its volumes, and their filesystems may be damaged by that.",
        "Extend the pool's data or metadata (lvextend), or delete snapshots and discard unused blocks (fstrim).",
        "data and metadata are below `[thin_pool] clear_percent`, in a pool that takes writes";
    PathsDegraded, Volume, [Suspect, Bad],
        "Some paths to this volume's multipath device have failed.",
        "Reached over the paths that are left; out of reach when none is (BAD).",
        "Look at the failed path's adapter, cable and switch port.",
        "all its paths are active";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_kubernetes_accepts_and_read_back() {
        for reason in Reason::ALL {
            assert!(
                reason.name().bytes().all(|b| b.is_ascii_alphanumeric()),
                "{reason}"
            );
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
