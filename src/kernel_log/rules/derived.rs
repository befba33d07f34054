//! Rules that no single record matches: the classifier derives them from several records.

use crate::rule::{DRIVE, Evidence, Rule};

/// A SCSI command's report, assembled from its records.
pub(crate) static COMMAND_FAILED: Rule = DRIVE.rate_limited().derived_rule("scsi-command-failed");
pub(crate) static SENSE_MEDIUM: Rule = DRIVE.rate_limited().derived_rule("scsi-sense-medium");
pub(crate) static SOFTWARE_SENSE: Rule = DRIVE
    .rate_limited()
    .with_evidence(Evidence::SoftwareSense)
    .derived_rule("scsi-sense-by-software");
pub(crate) static MEDIUM_WITHOUT_SECTOR: Rule = DRIVE
    .rate_limited()
    .with_evidence(Evidence::MediumWithoutSector)
    .derived_rule("block-medium-without-place");
pub(crate) static RESET_UNANSWERED: Rule =
    DRIVE.with_evidence(Evidence::ResetUnanswered).derived_rule("hba-reset-unanswered");

pub(crate) static USB_UNPLUGGED: Rule = DRIVE.derived_rule("usb-unplugged-in-use");

pub(crate) static RULES: [&Rule; 6] = [
    &COMMAND_FAILED,
    &SENSE_MEDIUM,
    &SOFTWARE_SENSE,
    &MEDIUM_WITHOUT_SECTOR,
    &RESET_UNANSWERED,
    &USB_UNPLUGGED,
];
