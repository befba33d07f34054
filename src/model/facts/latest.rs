//! The newest observation of one source, with the last good value while newer ones fail.

use jiff::Timestamp;

use crate::facts::Urgency;
use diskvitals_finding::observation::Observation;

#[derive(Clone, Debug)]
pub struct Latest<T> {
    newest: Observation<T>,
    /// Set only while `newest` has no value.
    last_good: Option<T>,
    /// The source has reported, even if only that it does not apply to this node.
    answered: bool,
}

// Not derived: a derive would require `T: Default`.
impl<T> Default for Latest<T> {
    fn default() -> Self {
        Latest { newest: Observation::Unavailable, last_good: None, answered: false }
    }
}

impl<T> From<Observation<T>> for Latest<T> {
    fn from(newest: Observation<T>) -> Self {
        Latest { answered: newest.at().is_some(), newest, last_good: None }
    }
}

impl<T> Latest<T> {
    pub fn observation(&self) -> &Observation<T> {
        &self.newest
    }

    /// The value of the newest observation; none while it failed.
    pub fn value(&self) -> Option<&T> {
        self.newest.value()
    }

    pub fn error(&self) -> Option<&str> {
        self.newest.error()
    }

    /// The time of the newest observation.
    pub fn at(&self) -> Option<Timestamp> {
        self.newest.at()
    }

    /// The last good value, however old.
    pub(crate) fn last_known(&self) -> Option<&T> {
        self.newest.value().or(self.last_good.as_ref())
    }

    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Records that the source does not apply to this node. Returns true if that is new.
    pub(super) fn set_answered(&mut self) -> bool {
        !std::mem::replace(&mut self.answered, true)
    }

    /// Returns what changed, and whether `new` has a value.
    pub(super) fn replace(&mut self, new: Observation<T>) -> (Urgency, bool)
    where
        T: PartialEq,
    {
        let good = new.value().is_some();
        let change = match (&self.newest, &new) {
            (Observation::Ok { value: before, .. }, Observation::Ok { value, .. })
                if before == value =>
            {
                Urgency::Nothing
            }
            (
                Observation::Failed { error: before, .. },
                Observation::Failed { error: after, .. },
            ) if before == after => Urgency::Nothing,
            (Observation::Unavailable, Observation::Unavailable) => Urgency::Nothing,
            _ => Urgency::Immediate,
        };
        self.answered |= new.at().is_some();
        match (good, std::mem::replace(&mut self.newest, new)) {
            (true, _) => self.last_good = None,
            (false, Observation::Ok { value, .. }) => self.last_good = Some(value),
            (false, _) => {}
        }
        (change, good)
    }
}
