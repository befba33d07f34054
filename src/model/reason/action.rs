//! The action for a finding of one level, where the levels of a reason need different ones. The text in
//! the table is for all levels, as `diskvitals reasons` shows it.

use crate::model::finding::Severity;
use crate::model::reason::Reason;

impl Reason {
    pub fn action_at(self, severity: Severity) -> &'static str {
        use Severity::{Bad, Info, Suspect};
        match (self, severity) {
            (Reason::DriveMissing, Info) => {
                "Nothing, if it was removed or replaced on purpose. Otherwise reconnect it."
            }
            (Reason::MediaErrors, Suspect) => {
                "See that there is a backup. Rewriting a weak sector repairs it: a RAID check or a scrub does that. If errors come back, replace the drive."
            }
            (Reason::MediaErrors, Bad) => {
                "Save what has no other copy, then replace the drive: sectors fail again, or more of them."
            }
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
                "Save what has no other copy, then replace the drive: they are many, or their number grows."
            }
            (Reason::PendingSectors, Suspect) => {
                "Check the data against its other copies. Rewriting the sectors (a rebuild, a repairing scrub) repairs those that are only weak."
            }
            (Reason::PendingSectors, Bad) => {
                "Save what has no other copy, then replace the drive: they are many, or their number grows."
            }
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
                let text = reason.action_at(severity);
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
