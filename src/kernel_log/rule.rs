//! A row of the rule table: how one kernel message is recognized, and how it is treated.
//!
//! In: a record's text. Out: a `ParsedRecord`. Every property that the classifier or the drive's
//! verdict depends on is a field here; no code compares the name of a rule.
//!
//! A row's pattern, after its family's, is the kernel's format string from the first byte of the
//! record: see `pattern`. Its fields are the only source of the record's device. Text that the
//! kernel prints for others (names of programs, paths, mount options) is never matched.

use crate::event::{Blame, Class, DeviceName, Domain};
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::pattern::Captures;

/// One form of one kernel message.
#[derive(Debug)]
pub struct Rule {
    /// Printed in `Event.rule`; `family-message`.
    pub name: &'static str,
    pub(crate) family: RuleFamily,
    /// The text after the family's prefix begins with this `Pattern`.
    pub pattern: &'static str,
    pub(crate) action: RuleAction,
    /// The kernel file, function and versions that print it.
    #[cfg_attr(not(test), expect(dead_code, reason = "documents the row; a test requires it"))]
    pub(crate) kernel_source: &'static str,
}

/// The meaning of a record. The device is the first in the patterns, and a disk's name before its
/// SCSI address, unless a `Parse` function chooses another.
#[derive(Debug)]
pub(crate) enum RuleAction {
    /// A cause. Joins an open incident of the same class on the same device, or opens one.
    Cause(Class, Blame),
    /// The consequence of a failure. Joins any open incident of the device; without one, it opens
    /// an incident of this class.
    Effect(Class, Blame),
    /// Belongs to the open incident of the device; has no meaning alone.
    Continuation,
    /// Has no meaning; prevents a match of a broader row below.
    Ignore,
    /// Any other kind.
    Record(RecordKind),
    /// The text determines the kind.
    ParseKind(fn(&MatchedText<'_>) -> Option<RecordKind>),
    Parse(fn(&MatchedText<'_>) -> Option<ParsedRecord>),
}

/// The common properties of a family's rules: how their texts begin, and how their records are
/// treated. No row can be written without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleFamily {
    /// The record begins with this `Pattern`.
    pub prefix: &'static str,
    /// The kind of subject to which the record belongs.
    pub domain: Domain,
    /// The kernel limits the rate of these records and reports how many it suppressed.
    pub is_rate_limited: bool,
    pub role: Option<Role>,
    pub evidence: Option<Evidence>,
}

/// The effect of a record in the classifier besides its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A storage network is down: failures of SCSI disks are explained for a while.
    NetworkOutage,
    /// The SCSI host of the device is a USB bridge.
    UsbStorage,
    /// The adapter resets one device.
    DeviceReset,
    /// The adapter resets a target; after a `DeviceReset`: the device did not respond to it.
    TargetReset,
    /// The block layer reports one failed request with its sector.
    FailedRequest,
    /// Redundancy reports what it did about an error that the block layer reports too, with the
    /// sector from another start.
    Redundancy,
    /// A controller that is removed after a timeout has failed itself.
    NvmeController,
    /// The cache of a disk that is being removed could not be written.
    CacheFlush,
    /// Only a card that answered before has such records: its host has a card.
    CardPresent,
    /// bcachefs: its further lines name no filesystem.
    Bcachefs,
}

/// The weight of a record in the verdict over a whole log (`fault`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// SCSI error recovery gave up on the device.
    Offlined,
    /// md removed the device from its array.
    FailedByRedundancy,
    /// The device did not respond to the adapter's reset.
    ResetUnanswered,
    /// ATA's or NVMe's own status, which no software target forwards.
    DriveStatus,
    /// The sense data come from a software target.
    SoftwareSense,
    /// A medium error whose sense data contain no sector.
    MediumWithoutSector,
}

pub(crate) const DRIVE: RuleFamily = RuleFamily {
    prefix: "",
    domain: Domain::Drive,
    is_rate_limited: false,
    role: None,
    evidence: None,
};

pub(crate) const FILESYSTEM: RuleFamily = RuleFamily { domain: Domain::Filesystem, ..DRIVE };

impl RuleFamily {
    pub(crate) const fn with_prefix(self, prefix: &'static str) -> RuleFamily {
        RuleFamily { prefix, ..self }
    }

    pub(crate) const fn rate_limited(self) -> RuleFamily {
        RuleFamily { is_rate_limited: true, ..self }
    }

    pub(crate) const fn with_role(self, role: Role) -> RuleFamily {
        RuleFamily { role: Some(role), ..self }
    }

    pub(crate) const fn with_evidence(self, evidence: Evidence) -> RuleFamily {
        RuleFamily { evidence: Some(evidence), ..self }
    }

    /// A row of the table.
    pub(crate) const fn rule(
        self,
        name: &'static str,
        pattern: &'static str,
        action: RuleAction,
        kernel_source: &'static str,
    ) -> Rule {
        Rule { name, family: self, pattern, action, kernel_source }
    }

    /// A rule that no single record matches: the classifier derives it from several.
    pub(crate) const fn derived_rule(self, name: &'static str) -> Rule {
        self.rule(name, "", RuleAction::Ignore, "")
    }
}

/// The table of one file, `RULES`. A row is its name, family, pattern, action and source:
///
/// ```text
///     "scsi-offline": SCSI, "rejecting I/O to offline device"
///         => Effect(Removed, Unclear), "scsi_lib.c scsi_device_state_check(); 3.10-6.18";
/// ```
///
/// `in "drivers/scsi/";` before the rows begins the source of each.
macro_rules! rules {
    (in $directory:literal;
     $($name:literal: $family:expr, $pattern:expr => $action:expr, $source:literal;)*) => {
        pub(crate) const RULES: &[$crate::rule::Rule] =
            &[$($family.rule($name, $pattern, $action, concat!($directory, $source))),*];
    };
    ($name:literal: $($rest:tt)*) => {
        $crate::rule::rules! { in ""; $name: $($rest)* }
    };
}
pub(crate) use rules;

impl Rule {
    /// `head`: what the family's prefix found; `body`: what the row's pattern found, up to `after`.
    /// None: the text is not this rule's message.
    pub(crate) fn parse(
        &self,
        head: &Captures<'_>,
        body: &Captures<'_>,
        after: &str,
    ) -> Option<ParsedRecord> {
        let (head, devices) = (head.devices()?, body.devices()?);
        let (device, other_name) = record_device(head.iter().chain(&devices));
        let text = MatchedText {
            device: &device,
            other_name: other_name.as_ref(),
            devices: &devices,
            fields: &body.fields,
            after,
        };
        let kind = match &self.action {
            RuleAction::Cause(class, blame) => RecordKind::Cause(*class, *blame),
            RuleAction::Effect(class, blame) => RecordKind::Effect(*class, *blame),
            RuleAction::Continuation => RecordKind::Continuation,
            RuleAction::Ignore => return None,
            RuleAction::Record(kind) => kind.clone(),
            RuleAction::ParseKind(parse) => parse(&text)?,
            RuleAction::Parse(parse) => return parse(&text),
        };
        Some(ParsedRecord::from_text(&text, kind))
    }
}

/// The record's device: the first; `sd 2:0:0:0: [sdb]` is about sdb, whose other name is 2:0:0:0.
fn record_device<'a>(
    mut devices: impl Iterator<Item = &'a DeviceName>,
) -> (DeviceName, Option<DeviceName>) {
    match (devices.next(), devices.next()) {
        (Some(hctl @ DeviceName::Hctl(_)), Some(disk @ DeviceName::Block(_))) => {
            (disk.clone(), Some(hctl.clone()))
        }
        (first, _) => (first.cloned().unwrap_or(DeviceName::Unnamed), None),
    }
}
