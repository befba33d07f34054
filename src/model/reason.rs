//! The one table of reasons: name, who it is about, what it means, what to do. The wire, `diskvitals reasons`, docs and alerts come from it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whom a reason can be said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Drive,
    Volume,
    /// A drive or a volume.
    Both,
}

macro_rules! reasons {
    ($($name:ident, $about:ident, $meaning:literal, $action:literal;)*) => {
        /// Names are stable: alerts, scripts and Kubernetes show them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason { $($name),* }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }

            pub fn about(self) -> About {
                match self { $(Reason::$name => About::$about),* }
            }

            /// One sentence for a person who reads it at three in the morning.
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning),* }
            }

            /// What to do about it.
            pub fn action(self) -> &'static str {
                match self { $(Reason::$name => $action),* }
            }
        }
    };
}

reasons! {
    DriveMissing, Drive,
        "The drive was here and is gone.",
        "Look whether it was pulled, lost power or died: reseat or replace it. It is recognised when it returns, under whatever name.";
    DriveOffline, Drive,
        "The kernel has the drive and does not talk to it any more: its error handling gave up, or the controller is dead or stuck in recovery.",
        "Read the kernel log for the reason. Reseat the drive or its cable; a rescan or a power cycle may bring it back. Plan its replacement when it comes again.";
    MediaErrors, Drive,
        "The drive said that it could not read or write some of its medium, or that its hardware failed.",
        "Back up what lies on it. Look at the drive's own health; when it happens again, replace it. Rewriting the sector may heal one that is weak.";
    IoErrors, Both,
        "Reads or writes failed, and no record says whether the drive, the way to it or the layer beneath is the cause.",
        "Read the evidence and the kernel log around it. Look at the cable, the slot and the adapter before the drive is replaced.";
    IoTimeouts, Drive,
        "The drive did not answer commands in their time.",
        "Look at the drive, its cable and power, and its firmware; a drive that times out again and again is dying or badly connected.";
    ControllerResets, Drive,
        "The kernel had to reset the drive, its link or its controller.",
        "One reset may be chance. When it comes again, look at firmware, power and cabling.";
    LinkErrors, Drive,
        "Data was damaged or lost on the way between the drive and the host, and repeated.",
        "Reseat or change the cable, the backplane slot or the adapter: the drive's medium is not concerned.";
    ProbeTimeout, Both,
        "A question to this device or mount has not been answered in its time and is still pending: whoever uses it hangs as well.",
        "Look at the drives beneath it and at the kernel log (hung tasks, resets). A dead network path does this too.";
    StagingNotMounted, Volume,
        "The kubelet's records say that the volume is staged on this node, and nothing is mounted at its staging path.",
        "Look for an unmount by hand or a failed stage in the driver's log. Deleting the pod makes the kubelet stage it anew.";
    NotMounted, Volume,
        "The kubelet's records say that a pod has this volume, and nothing is mounted at the pod's path: the pod writes to the node's own disk, or into nothing.",
        "Stop the pod before it writes more, then delete it so that the kubelet mounts the volume anew.";
    NotAccessible, Volume,
        "The volume is mounted and answers with an error.",
        "Read the error and the kernel log: I/O error means a drive or a filesystem that shut down; stale or not connected, a server that is gone.";
    ReadOnly, Volume,
        "The kernel has made this filesystem read-only after an error.",
        "Find the error in the kernel log, save the data, check the filesystem while it is unmounted, and mount it again.";
    FilesystemErrors, Volume,
        "The filesystem met errors of the device beneath it, or counts errors of its own, and goes on.",
        "Look at the drive beneath. Save the data, and check the filesystem while it is unmounted.";
    FilesystemCorrupted, Volume,
        "The filesystem found its own structures or data to be damaged.",
        "Save what can be read, unmount, and run the filesystem's checker; find out what damaged it (drive, memory, power) first.";
    FilesystemShutdown, Volume,
        "The filesystem has stopped itself: every access fails until it is mounted anew.",
        "Stop its users, look at the device beneath, unmount, check, and mount again.";
    OutOfSpace, Volume,
        "There is hardly any space left for an unprivileged user.",
        "Delete or move data, or grow the volume.";
    OutOfInodes, Volume,
        "There are hardly any inodes left: no new file can be made although there may be space.",
        "Delete small files, or make the filesystem anew with more inodes.";
    DeviceMissing, Volume,
        "The block device beneath this volume is gone while it is in use.",
        "Bring the drive back or replace it. Unmount what is left before the device returns: it returns under another name.";
    DriveFailing, Volume,
        "A drive beneath this volume has findings of its own.",
        "See the drive's findings. Without redundancy, move the data now.";
    IoStalled, Volume,
        "I/O has been sent to the device beneath this volume and nothing has been completed for a long time.",
        "Look at the drive, its cable and its controller; for a remote volume, at the network.";
    RaidDegraded, Volume,
        "A RAID array beneath this volume runs with fewer devices than it should.",
        "Replace the failed member and watch the rebuild. Until then another failure may lose the data.";
    ThinPoolFull, Volume,
        "The thin pool beneath this volume is nearly or wholly used: when it is full, writes fail for all its volumes.",
        "Extend the pool's data or metadata (lvextend), or delete snapshots and discard unused blocks (fstrim).";
    PathsDegraded, Volume,
        "Some paths to this volume's multipath device have failed.",
        "Look at the failed path's adapter, cable and switch port.";
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a reason: `diskvitals reasons` lists them")]
pub struct NotAReason(pub String);

impl FromStr for Reason {
    type Err = NotAReason;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Reason::ALL.iter().copied().find(|reason| reason.name() == name).ok_or_else(|| NotAReason(name.to_owned()))
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
            assert!(reason.name().bytes().all(|b| b.is_ascii_alphanumeric()), "{reason}");
            assert_eq!(reason.name().parse::<Reason>().as_ref(), Ok(reason));
        }
    }
}
