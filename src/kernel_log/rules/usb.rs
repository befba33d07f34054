//! Rules for USB storage. A bridge is between the drive and the kernel: missing responses and lost
//! data do not blame the drive.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{MatchedText, RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Role, RuleFamily, rules};
use crate::rules::scsi;

const UAS: RuleFamily = DRIVE.with_role(Role::UsbStorage);
const UAS_COMMAND: RuleFamily = UAS.with_prefix(scsi::COMMAND);
const UAS_HOST: RuleFamily = UAS.with_prefix("scsi host<host>: ");

rules! {
    in "drivers/usb/";
    "uas-abort": UAS_COMMAND, "uas_eh_abort_handler "
        => Cause(Timeout, No), "storage/uas.c uas_eh_abort_handler(); 3.10-6.18";
    "uas-reset": UAS_HOST, "uas_eh_<device|bus>_reset_handler start"
        => Cause(Reset, No),
           "storage/uas.c uas_eh_device_reset_handler(), uas_eh_bus_reset_handler(); 3.10-6.18";
    "uas-reset-failed": UAS_HOST, "uas_eh_<device|bus>_reset_handler FAILED"
        => Cause(Reset, No), "storage/uas.c uas_eh_device_reset_handler(); 3.15-6.18";
    "uas-reset-done": UAS_HOST, "uas_eh_<device|bus>_reset_handler success"
        => Continuation, "storage/uas.c uas_eh_device_reset_handler(); 3.10-6.18";
    "uas-zap": UAS_COMMAND, "uas_zap_pending "
        => Effect(Removed, No), "storage/uas.c uas_zap_pending(); 3.17-6.18";
    "uas-data": UAS_COMMAND, "data cmplt err <dec> "
        => Continuation, "storage/uas.c uas_data_cmplt(); 3.10-6.18";
    // A path (`2-1.4`, `usb2`) has the bytes of a `<file>`.
    "usb-reset": DRIVE, "usb <file>: reset <low speed|full speed|high speed|low-speed|full-speed\
         |high-speed|super-speed|variable speed Wireless|wireless|SuperSpeed\
         |UNKNOWN>{ Plus}{ Gen <dec>}{x<dec>} USB device {number <dec> }using "
        => ParseKind(reset), "core/hub.c hub_port_init(): a disk, or a mouse; 2.6.32-6.18";
    "usb-disconnect": DRIVE, "usb <file>: USB disconnect, <device number |address ><dec>$"
        => ParseKind(unplugged), "core/hub.c usb_disconnect(); 2.6.32-6.18";
}

fn reset(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Topology(TopologyUpdate::UsbReset(path(text)?)))
}

fn unplugged(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(RecordKind::Topology(TopologyUpdate::UsbDisconnect(path(text)?)))
}

fn path(text: &MatchedText<'_>) -> Option<String> {
    let path = text.fields.first()?;
    (path.len() < 40).then(|| (*path).to_owned())
}
