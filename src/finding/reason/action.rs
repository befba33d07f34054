//! The actions for a finding. The texts of single levels are in the table, where the levels of a reason
//! need different ones.

use crate::reason::Reason;
use crate::severity::Severity;

/// The first action for a drive. Ordered: the later the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// No problem is known.
    Nothing,
    /// The further development decides.
    Watch,
    /// Fans, filters, neighbours.
    Cool,
    /// Power, adapter, firmware, network: no evidence shows that the drive is the cause.
    LookAtPath,
    /// The cable, the slot, the backplane.
    ReseatCable,
    /// Order another drive; it is not urgent.
    PlanReplacement,
    /// The drive is missing: reconnect it, or replace it.
    BringBack,
    ReplaceNow,
}

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

pub(super) struct ActionText {
    pub severity: Severity,
    /// Empty: whatever else holds the data, unless another text names it.
    pub covers: &'static [Cover],
    pub text: &'static str,
}

impl Reason {
    pub fn first_action(self, severity: Severity) -> Action {
        let action = match severity {
            Severity::Bad => self.first_actions().last(),
            Severity::Info | Severity::Suspect => self.first_actions().first(),
        };
        action.copied().unwrap_or(Action::Watch)
    }

    /// The action for a finding of this level, where it is known what else holds the data.
    pub fn action_for(self, severity: Severity, cover: Cover) -> &'static str {
        let mut texts = self.action_texts().iter();
        let text = texts.find(|it| it.severity == severity && it.covers.contains(&cover));
        text.map_or_else(|| self.action_at(severity), |it| it.text)
    }

    pub fn action_at(self, severity: Severity) -> &'static str {
        let mut texts = self.action_texts().iter();
        let text = texts.find(|it| it.severity == severity && it.covers.is_empty());
        text.map_or_else(|| self.action(), |it| it.text)
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
