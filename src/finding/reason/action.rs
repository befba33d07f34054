//! The action for a finding of one level, where the levels of a reason need different ones. The text in
//! the table is for all levels, as `diskvitals reasons` shows it.

use crate::reason::Reason;
use crate::severity::Severity;

/// What else holds the data of a drive or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// No volume is known, or only its RAID controller knows.
    Unknown,
    /// Nothing else, for a part of it at least.
    Exposed,
    /// Others hold it, without any redundancy.
    Last,
    Covered,
}

impl Reason {
    /// The action for a finding of this level, where it is known what else holds the data.
    pub fn action_for(self, severity: Severity, cover: Cover) -> &'static str {
        use Cover::{Covered, Exposed, Last};
        use Severity::{Bad, Suspect};
        match (self, severity, cover) {
            (Reason::MediaErrors, Suspect, Covered | Last) => {
                "Make sure that there is a backup. A RAID check or a scrub rewrites weak sectors from the other copies. If errors come back, replace the drive."
            }
            (Reason::MediaErrors, Suspect, Exposed) => {
                "Copy the data off first: this host has no other copy of it, and what cannot be read is lost unless a backup has it. Overwriting a sector lets the drive reallocate it. If errors come back, replace the drive."
            }
            (Reason::PendingSectors, Suspect, Covered | Last) => {
                "A RAID check or a repairing scrub rewrites the sectors from the other copies, which repairs those that are only weak. If the number grows, replace the drive."
            }
            (Reason::PendingSectors, Suspect, Exposed) => {
                "Copy the data off first: this host has no other copy of it, and what cannot be read is lost unless a backup has it. Overwriting a sector lets the drive reallocate it. If the number grows, replace the drive."
            }
            (Reason::MediaErrors | Reason::PendingSectors, Bad, Exposed) => {
                "Copy the data off first: this host has no other copy of it, and what cannot be read is lost unless a backup has it. Then replace the drive."
            }
            (
                Reason::ReallocatedSectors
                | Reason::SmartAttributeFailing
                | Reason::SelfTestFailed
                | Reason::SpareLow,
                Bad,
                Exposed,
            ) => {
                "Copy the data off first: this host has no other copy of it. Then replace the drive."
            }
            (Reason::SmartFailing, Bad, Exposed) => {
                "Stop what writes to the drive, as far as you can, and copy the data off first: this host has no other copy of it. Then replace the drive."
            }
            (
                Reason::MediaErrors
                | Reason::PendingSectors
                | Reason::ReallocatedSectors
                | Reason::SmartAttributeFailing
                | Reason::SmartFailing,
                Bad,
                Covered,
            ) => "Replace the drive now. Redundancy covers its data.",
            (Reason::DriveFailing, Bad, _) => {
                "Copy the data off first, as the drive's finding says. Then follow the rest of it."
            }
            (Reason::DriveFailing, Suspect, Exposed) => {
                "Make sure that there is a backup of today: this host has no other copy of the data. Then follow the drive's finding."
            }
            (Reason::DriveFailing, Suspect, Last) => {
                "Make sure that there is a backup of today: no redundancy is left. Then follow the drive's finding."
            }
            (Reason::DriveFailing, Suspect, Covered) => {
                "Follow the drive's finding. Redundancy covers the data."
            }
            _ => self.action_at(severity),
        }
    }

    pub fn action_at(self, severity: Severity) -> &'static str {
        use Severity::{Bad, Info, Suspect};
        match (self, severity) {
            (Reason::DriveMissing, Info) => {
                "Nothing, if it was removed or replaced on purpose. Otherwise reconnect it."
            }
            (Reason::MediaErrors, Suspect) => {
                "Make sure that there is a backup: without redundancy, what cannot be read is lost otherwise. With redundancy, a RAID check or a scrub rewrites weak sectors. If errors come back, replace the drive."
            }
            (Reason::MediaErrors, Bad) => "Save what has no other copy, then replace the drive.",
            (Reason::SmartFailing, Info) => "Nothing: a test of the drive's alarm is switched on.",
            (Reason::SmartAttributeFailing, Suspect) => {
                "Find out what lowered the value at that time. It has recovered."
            }
            (Reason::SmartAttributeFailing, Bad) => {
                "Save what has no other copy, then replace the drive."
            }
            (Reason::ReallocatedSectors, Suspect) => {
                "A few are acceptable while their number does not change. If it grows, plan the replacement."
            }
            (Reason::ReallocatedSectors, Bad) => {
                "Save what has no other copy, then replace the drive."
            }
            (Reason::PendingSectors, Suspect) => {
                "Without redundancy, copy the data off first: what cannot be read is lost unless a backup has it. With redundancy, a RAID check or a repairing scrub rewrites the sectors."
            }
            (Reason::PendingSectors, Bad) => "Save what has no other copy, then replace the drive.",
            (Reason::SpareLow, Suspect) => "Plan the replacement.",
            (Reason::SpareLow, Bad) => {
                "Replace the drive soon: with the last spare block it stops accepting writes."
            }
            (Reason::Overheating, Info) => {
                "Nothing: the drive is cool, and the threshold of its attribute is wrong."
            }
            (Reason::SelfTestFailed, Suspect) => {
                "Test all of the medium: `diskvitals self-test DRIVE long`. If that fails, replace the drive."
            }
            (Reason::SelfTestFailed, Bad) => {
                "Replace the drive. If its bad sector was rewritten, prove it: `diskvitals self-test DRIVE long`."
            }
            (Reason::DriveFailing, Bad) => {
                "Copy the data off first, as the drive's finding says. Then follow the rest of it."
            }
            (Reason::DriveFailing, Suspect) => {
                "Make sure that there is a backup of today. Then follow the drive's finding."
            }
            (Reason::FilesystemErrors, Suspect) => {
                "Look at the drive below first. Check the filesystem when it can be unmounted."
            }
            (Reason::FilesystemCorrupted, Suspect) => {
                "Redundancy has repaired it. Find out what caused it (drive, memory, cable), and run a scrub."
            }
            _ => self.action(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_of_a_level_that_the_reason_has_and_is_a_sentence() {
        for reason in Reason::ALL {
            for severity in [Severity::Info, Severity::Suspect, Severity::Bad] {
                let covers = [Cover::Unknown, Cover::Exposed, Cover::Last, Cover::Covered];
                let texts = covers.map(|cover| reason.action_for(severity, cover));
                for text in texts.into_iter().chain([reason.action_at(severity)]) {
                    assert!(
                        text.ends_with('.') && text.starts_with(char::is_uppercase),
                        "{reason}: {text}"
                    );
                    assert!(
                        text == reason.action() || reason.levels().contains(&severity),
                        "{reason} has no level {severity:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_level_that_is_acceptable_is_to_be_replaced_and_no_other_is_called_acceptable() {
        for reason in Reason::ALL {
            let bad = reason.action_at(Severity::Bad);
            let is_split = bad != reason.action();
            assert!(!is_split || !bad.contains("acceptable"), "{reason}: {bad}");
        }
        let few = Reason::ReallocatedSectors.action_at(Severity::Suspect);
        assert!(few.contains("acceptable") && !few.contains("now"), "{few}");
    }
}
