//! What else starts checks and scrubs on this node: timers and cron jobs of the distribution.

use serde::{Deserialize, Serialize};

use crate::facts::Facts;

/// Of Debian's zfsutils-linux. It scrubs the pools whose health is ONLINE (/usr/lib/zfs-linux/scrub).
const CRON_OF_ZFS: &str = "/etc/cron.d/zfsutils-linux";

/// A timer or a cron job that starts checks or scrubs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubTrigger {
    pub of: TriggerTarget,
    /// What shows it: `/etc/cron.d/mdadm`.
    pub file: String,
    /// Kernel names of arrays, names of pools, mount points. Empty: all.
    pub only: Vec<String>,
    pub except: Vec<String>,
    /// Between two starts. None: it has no simple period.
    pub period_days: Option<u32>,
    /// Why it starts nothing: `AUTOCHECK=false in /etc/default/mdadm`.
    pub off: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerTarget {
    Md,
    Zfs,
    Btrfs,
}

impl ScrubTrigger {
    pub fn of(of: TriggerTarget) -> ScrubTrigger {
        let (only, except) = (Vec::new(), Vec::new());
        ScrubTrigger { of, file: String::new(), only, except, period_days: None, off: None }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.off.is_none()
    }

    /// Whether it leaves out a pool that is not ONLINE.
    pub(crate) fn needs_online(&self) -> bool {
        self.file == CRON_OF_ZFS
    }

    fn is_for(&self, of: TriggerTarget, names: &[String]) -> bool {
        self.of == of
            && (self.only.is_empty() || names.iter().any(|name| self.only.contains(name)))
            && !names.iter().any(|name| self.except.contains(name))
    }
}

impl Facts {
    /// None: they have not been read.
    pub(crate) fn triggers_of(
        &self,
        of: TriggerTarget,
        names: &[String],
    ) -> Option<Vec<&ScrubTrigger>> {
        let all = self.scrub_triggers.value()?.iter();
        Some(all.filter(|it| it.is_for(of, names)).collect())
    }
}
