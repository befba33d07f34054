//! What else is true of a reason, at whatever level. A row of the table names all of it, or `[]`.

use crate::reason::Reason;

/// The errors in the kernel log that a finding rests on. A repair of their cause ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedErrors {
    Io,
    Medium,
    Timeout,
    Reset,
    Transport,
    ArrayState,
    Filesystem,
    Corruption,
}

/// The storage stack below a volume that a reason is about: what can be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Its members hold copies or parity.
    Array,
    /// It is filled by the volumes on it.
    Pool,
    /// All its members lead to the same data.
    Paths,
    /// It holds writes that the drives behind it get later.
    Cache,
    /// A ZFS pool: members that hold copies or parity, filled by the datasets on it.
    Zpool,
    /// An array, a pool or a btrfs: a check or a scrub compares its copies, parity or checksums.
    Scrubbed,
}

/// The number that is shown with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Pending,
    Reallocated,
    Uncorrectable,
    LinkErrors,
    WearPercent,
    Spare,
    Temperature,
    Space,
    Inodes,
}

macro_rules! traits {
    ($($(#[$doc:meta])* $name:ident = $predicate:ident;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Trait {
            $($name,)*
            Logged(LoggedErrors),
            Of(LayerKind),
            Shows(Figure),
        }

        impl Reason {
            $($(#[$doc])* pub fn $predicate(self) -> bool {
                self.traits().contains(&Trait::$name)
            })*
        }
    };
}

traits! {
    /// Of a drive: reads and writes fail or wait because of it. Wear or heat does not cause that.
    FailsIo = fails_io;
    /// Of a volume: what such a failure of a drive below does to it. Corruption is another matter: it
    /// outlasts the drive.
    FollowsDrive = follows_drive;
    /// Of a volume: a conclusion from findings of the drives below it, which announce it.
    OfDrives = is_of_drives;
    /// At BAD it means that the drive has failed, and counts against its model. A drive that is missing
    /// may have been pulled; links and heat are not the drive's failures; a worn-out drive has served
    /// its time.
    CountsForModel = counts_for_model;
    /// It is about the drive being there, and what the host does with it, not about its medium or
    /// history.
    Presence = is_about_presence;
    /// The host does not have the drive.
    Gone = is_gone;
    /// The array that the drive belongs to runs without it.
    LeavesArray = leaves_array;
    /// The drive is near the end of its life.
    Wear = is_wear;
    /// Its action is for a drive with a cable: not for a file, a virtual disk or one on the network.
    Hardware = is_about_hardware;
    /// A drive may report it for the rest of its life: an acknowledgement keeps it from counting.
    Stays = stays;
    /// It does not answer, and has reported no error.
    Hang = is_hang;
    /// A volume with it does not reach its device.
    Disconnects = disconnects;
    /// A volume on the network with it does not answer.
    Unreachable = is_unreachable;
    /// Every access to the volume fails.
    AccessFails = access_fails;
    /// A mount that the kubelet's records require is missing.
    Unmounted = is_unmounted;
    /// It explains why there are no usage figures of a volume.
    Unmeasured = is_unmeasured;
    /// The user of a volume on a local disk can cause it. All else is the storage's own failure.
    OfUsers = is_of_users;
    /// It comes first among findings of the same severity: the next failure loses data.
    Leads = leads;
}

impl Reason {
    pub fn logged_errors(self) -> Option<LoggedErrors> {
        self.traits().iter().find_map(|it| match it {
            Trait::Logged(errors) => Some(*errors),
            _ => None,
        })
    }

    pub fn layer(self) -> Option<LayerKind> {
        self.traits().iter().find_map(|it| match it {
            Trait::Of(layer) => Some(*layer),
            _ => None,
        })
    }

    pub fn figure(self) -> Option<Figure> {
        self.traits().iter().find_map(|it| match it {
            Trait::Shows(figure) => Some(*figure),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::ReasonScope;

    #[test]
    fn what_is_true_of_drives_is_said_of_reasons_that_drives_have() {
        for reason in Reason::ALL {
            let (of_drives, of_volumes) = match reason.scope() {
                ReasonScope::Both => (true, true),
                scope => (scope == ReasonScope::Drive, scope == ReasonScope::Volume),
            };
            for it in reason.traits() {
                let applies = match it {
                    Trait::FailsIo
                    | Trait::CountsForModel
                    | Trait::Presence
                    | Trait::Gone
                    | Trait::LeavesArray
                    | Trait::Wear
                    | Trait::Hardware
                    | Trait::Stays => of_drives,
                    Trait::FollowsDrive
                    | Trait::OfDrives
                    | Trait::Hang
                    | Trait::Disconnects
                    | Trait::Unreachable
                    | Trait::AccessFails
                    | Trait::Unmounted
                    | Trait::Unmeasured
                    | Trait::OfUsers
                    | Trait::Leads
                    | Trait::Of(_)
                    | Trait::Shows(Figure::Space | Figure::Inodes) => of_volumes,
                    Trait::Shows(_) => of_drives,
                    Trait::Logged(LoggedErrors::Filesystem | LoggedErrors::Corruption) => {
                        of_volumes
                    }
                    Trait::Logged(_) => of_drives,
                };
                assert!(applies, "{reason}: {it:?}");
            }
            assert!(!reason.is_gone() || reason.leaves_array(), "{reason}");
            assert!(!reason.leaves_array() || reason.is_about_presence(), "{reason}");
            assert!(!reason.is_hang() || reason.disconnects(), "{reason}");
            assert!(!reason.disconnects() || reason.is_unreachable(), "{reason}");
        }
    }
}
