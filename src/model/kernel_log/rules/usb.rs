//! Rules for USB storage. A bridge is between the drive and the kernel: missing responses and lost
//! data do not blame the drive.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::parsed_record::{MatchedText, RecordKind, TopologyUpdate};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Role, Rule, RuleFamily};

const UAS: RuleFamily = DRIVE.with_role(Role::UsbStorage);

pub(crate) const RULES: &[Rule] = &[
    UAS.with_prefix("s").rule(
        "uas-abort",
        "uas_eh_abort_handler",
        Cause(Timeout, No),
        "drivers/usb/storage/uas.c uas_eh_abort_handler(); 3.10-6.18",
    ),
    UAS.with_prefix("scsi host").rule(
        "uas-reset",
        "uas_eh_device_reset_handler start",
        Cause(Reset, No),
        "drivers/usb/storage/uas.c uas_eh_device_reset_handler(); 3.10-6.18",
    ),
    UAS.with_prefix("scsi host").rule(
        "uas-reset-failed",
        "uas_eh_device_reset_handler FAILED",
        Cause(Reset, No),
        "drivers/usb/storage/uas.c uas_eh_device_reset_handler(); 3.15-6.18",
    ),
    UAS.with_prefix("scsi host").rule(
        "uas-reset-done",
        "uas_eh_device_reset_handler success",
        Continuation,
        "drivers/usb/storage/uas.c uas_eh_device_reset_handler(); 3.10-6.18",
    ),
    UAS.with_prefix("s").rule(
        "uas-zap",
        "uas_zap_pending",
        Effect(Removed, No),
        "drivers/usb/storage/uas.c uas_zap_pending(); 3.17-6.18",
    ),
    UAS.with_prefix("s").rule(
        "uas-data",
        "data cmplt err",
        Continuation,
        "drivers/usb/storage/uas.c uas_data_cmplt(); 3.10-6.18",
    ),
    DRIVE.with_prefix("usb ").rule(
        "usb-reset",
        " USB device number ",
        ParseKind(reset),
        "drivers/usb/core/hub.c hub_port_init(); 3.10-6.18",
    ),
    DRIVE.with_prefix("usb ").rule(
        "usb-disconnect",
        "USB disconnect",
        ParseKind(unplugged),
        "drivers/usb/core/hub.c usb_disconnect(); 3.10-6.18",
    ),
    DRIVE.with_prefix("usb ").rule(
        "usb-bus",
        "USB disconnect, ",
        ParseKind(unplugged),
        "drivers/usb/core/hub.c usb_disconnect(); 3.10-6.18",
    ),
];

/// `usb 2-1: reset SuperSpeed USB device number 2 using xhci_hcd`: a disk, or a mouse.
fn reset(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (path, rest) = path(text)?;
    rest.starts_with("reset ")
        .then_some(RecordKind::Topology(TopologyUpdate::UsbReset(path)))
}

fn unplugged(text: &MatchedText<'_>) -> Option<RecordKind> {
    let (path, _) = path(text)?;
    Some(RecordKind::Topology(TopologyUpdate::UsbDisconnect(path)))
}

fn path<'a>(text: &MatchedText<'a>) -> Option<(String, &'a str)> {
    let (path, rest) = text
        .all
        .trim_start()
        .strip_prefix("usb ")?
        .split_once(": ")?;
    (path.len() < 40).then(|| (path.to_owned(), rest))
}
