//! USB storage. A bridge is between the drive and the kernel: what it does not answer, and what it
//! forgets, is not the drive's.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::Device;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Learn, Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "uas-abort",
        "s",
        "uas_eh_abort_handler",
        Cause(Timeout, No),
        "drivers/usb/storage/uas.c uas_eh_abort_handler(); 3.10-6.18",
    ),
    rule(
        "uas-reset",
        "scsi host",
        "uas_eh_device_reset_handler start",
        Cause(Reset, No),
        "drivers/usb/storage/uas.c uas_eh_device_reset_handler(); 3.10-6.18",
    ),
    rule(
        "uas-reset-failed",
        "scsi host",
        "uas_eh_device_reset_handler FAILED",
        Cause(Reset, No),
        "drivers/usb/storage/uas.c uas_eh_device_reset_handler(); 3.15-6.18",
    ),
    rule(
        "uas-reset-done",
        "scsi host",
        "uas_eh_device_reset_handler success",
        Follow,
        "drivers/usb/storage/uas.c uas_eh_device_reset_handler(); 3.10-6.18",
    ),
    rule(
        "uas-zap",
        "s",
        "uas_zap_pending",
        Effect(Removed, No),
        "drivers/usb/storage/uas.c uas_zap_pending(); 3.17-6.18",
    ),
    rule(
        "uas-data",
        "s",
        "data cmplt err",
        Follow,
        "drivers/usb/storage/uas.c uas_data_cmplt(); 3.10-6.18",
    ),
    rule(
        "usb-reset",
        "usb ",
        " USB device number ",
        Read(reset),
        "drivers/usb/core/hub.c hub_port_init(); 3.10-6.18",
    ),
    rule(
        "usb-disconnect",
        "usb ",
        "USB disconnect",
        Read(unplugged),
        "drivers/usb/core/hub.c usb_disconnect(); 3.10-6.18",
    ),
    rule(
        "usb-bus",
        "usb ",
        "USB disconnect, ",
        Read(unplugged),
        "drivers/usb/core/hub.c usb_disconnect(); 3.10-6.18",
    ),
];

/// `usb 2-1: reset SuperSpeed USB device number 2 using xhci_hcd`: of a disk, or of a mouse.
fn reset(text: &Text<'_>) -> Option<Said> {
    let (path, rest) = path(text)?;
    rest.starts_with("reset ")
        .then(|| Said::new(Device::Unnamed, Part::Learn(Learn::UsbReset(path))))
}

fn unplugged(text: &Text<'_>) -> Option<Said> {
    let (path, _) = path(text)?;
    Some(Said::new(
        Device::Unnamed,
        Part::Learn(Learn::Unplugged(path)),
    ))
}

fn path<'a>(text: &Text<'a>) -> Option<(String, &'a str)> {
    let (path, rest) = text
        .all
        .trim_start()
        .strip_prefix("usb ")?
        .split_once(": ")?;
    (path.len() < 40).then(|| (path.to_owned(), rest))
}
