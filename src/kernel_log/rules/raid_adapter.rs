//! Rules for RAID adapters: their error handling, and what their firmware reports. The disks of the
//! kernel are arrays here, and the drives have no names.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::DeviceName;
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::raid_array;
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, RuleFamily, rules};
use crate::rules::hba::SCSI;

/// 3.10-4.0 without the address: `megasas: `, `megaraid_sas: `
const MEGARAID: RuleFamily = DRIVE.with_prefix("mega<raid_sas|sas>{ <pci>}: ");
const HPSA: RuleFamily = DRIVE.with_prefix("hpsa <pci>: ");
const SMARTPQI: RuleFamily = DRIVE.with_prefix("smartpqi <pci>: ");
const AACRAID: RuleFamily = DRIVE.with_prefix("aacraid: ");
const ARCMSR: RuleFamily = DRIVE.with_prefix("arcmsr{<dec>}: ");
const EVENT_OF_3WARE: RuleFamily = DRIVE.with_prefix(
    "<3w-9xxx|3w-sas|3w-xxxx>: scsi<dec>: AEN: <ERROR|WARNING|INFO> (0x<hex>:0x<hex>): ",
);

rules! {
    in "drivers/scsi/";
    "mega-smid": SCSI, "Abort request is for SMID: <dec>$"
        => Continuation, "megaraid/megaraid_sas_fusion.c megasas_task_abort_fusion(); 4.20-6.18";
    "mega-reset": SCSI, "megasas: RESET {<dec> }cmd=<hex> retries=<hex>$"
        => Parse(adapter_timeout),
           "megaraid/megaraid_sas_base.c megasas_generic_reset(); 2.6.32-6.18";
    "mega-timeout": SCSI, "OCR is requested due to IO timeout!!$"
        => Parse(adapter_timeout),
           "megaraid/megaraid_sas_base.c megasas_dump_sys_regs(), megasas_reset_timer(); 4.20-6.18";
    "mega-io-timeout": MEGARAID, "<IO/DCMD timeout is detected, forcibly FAULT Firmware\
         |pending commands remain after waiting, will reset adapter>"
        => Cause(Timeout, No),
           "megaraid/megaraid_sas_fusion.c megasas_wait_for_outstanding_fusion(); 3.10-6.18";
    "mega-fault-state": MEGARAID, "{Found }FW in FAULT state"
        => Cause(Reset, No),
           "megaraid/megaraid_sas_fusion.c megasas_wait_for_outstanding_fusion(); 2.6.32-6.18";
    "mega-reset-failed": MEGARAID,
        "<cannot recover from previous reset failures|failed to do reset>$"
        => Cause(Removed, No), "megaraid/megaraid_sas_base.c megasas_generic_reset(); 2.6.32-6.18";
    // What the firmware reports of its arrays and drives, by its own names for them.
    "mega-event": MEGARAID, "<dec> ({boot + }<word>/0x<hex>/<DEAD|FATAL|CRIT|WARN|info>) - "
        => Parse(firmware_event),
           "megaraid/megaraid_sas_base.c megasas_decode_evt(); 3.19-6.18";
    "mega-waiting": MEGARAID, "[<blanks><dec>]waiting for <dec> commands to complete"
        => Cause(Transport, No),
           "megaraid/megaraid_sas_base.c megasas_wait_for_outstanding(); 3.10-6.18";
    "mega-waiting-mbox": DRIVE, "megaraid mbox: Wait for <dec> commands to complete:<dec>$"
        => Cause(Transport, No), "megaraid/megaraid_mbox.c megaraid_reset_handler(); 3.10-6.18";
    "mega-fault": MEGARAID, "FW detected to be in fault<blanks>state, "
        => Cause(Reset, No), "megaraid/megaraid_sas_fusion.c; 3.10-6.18";
    "mega-killed": MEGARAID, "{<word>:<dec> }{OCR failed and }HBA is killed.$"
        => Cause(Removed, No), "megaraid/megaraid_sas_fusion.c; 4.1-6.18";
    "mega-killing": MEGARAID,
        "{<word>:<dec> }{Reset not supported, }{Reset failed, }killing adapter{ scsi<dec>}"
        => Cause(Removed, No), "megaraid/megaraid_sas_fusion.c; 3.10-6.18";
    "mega-resetting": MEGARAID, "resetting fusion adapter{ scsi<dec>}.$"
        => Cause(Reset, No), "megaraid/megaraid_sas_fusion.c megasas_reset_fusion(); 3.10-6.18";
    "hpsa-reset": HPSA, "scsi <hctl>: resetting logical "
        => Parse(reset_of_device), "hpsa.c hpsa_show_dev_msg(); 4.2-6.18";
    "hpsa-reset-physical": HPSA, "scsi <hctl>: resetting physical "
        => Parse(reset_of_device), "hpsa.c hpsa_show_dev_msg(); 4.2-6.18";
    "hpsa-reset-device": HPSA, "resetting device <hctl>$"
        => Parse(reset_of_device), "hpsa.c hpsa_eh_device_reset_handler(); 2.6.33-4.1";
    "hpsa-sense": HPSA,
        "cp <hex> has status 0x<hex> Sense: 0x<hex>, ASC: 0x<hex>, ASCQ: 0x<hex>, Returning result"
        => ParseKind(sense_of_command), "hpsa.c complete_scsi_command(); 2.6.33-6.18";
    "hpsa-timeout": HPSA, "<cp 0x|cp |CDB ><hex> <timed out|timedout>$"
        => Cause(Timeout, No), "hpsa.c complete_scsi_command(); 2.6.33-6.18";
    "hpsa-hardware": HPSA, "<cp 0x|cp |CDB ><hex> <had hardware error|: hardware error>$"
        => Cause(Io, Unclear), "hpsa.c complete_scsi_command(); 2.6.33-6.18";
    "hpsa-connection": HPSA, "<cp 0x|cp |CDB ><hex> <had connection lost|: connection lost>$"
        => Cause(Transport, No), "hpsa.c complete_scsi_command(); 2.6.33-6.18";
    "hpsa-lockup": HPSA, "<C|c>ontroller lockup detected"
        => Cause(Reset, No), "hpsa.c controller_lockup_detected(), smartpqi; 3.10-6.18";
    "pqi-reset": SMARTPQI, "resetting scsi <hctl>"
        => Parse(reset_of_device), "smartpqi/smartpqi_init.c pqi_device_reset(); 4.9-6.18";
    "pqi-heartbeat": SMARTPQI, "no heartbeat detected - last heartbeat count: <dec>"
        => Cause(Reset, No), "smartpqi/smartpqi_init.c pqi_heartbeat_timer_handler(); 4.9-6.18";
    "pqi-unit-failed": SCSI, "received 'logical unit failure' from controller for scsi <hctl>$"
        => Cause(Removed, Unclear),
           "smartpqi/smartpqi_init.c pqi_process_raid_io_error(); 4.9-6.18";
    "pqi-offline": SMARTPQI, "controller offline"
        => Cause(Removed, No), "smartpqi/smartpqi_init.c pqi_take_ctrl_offline(); 4.9-6.18";
    "aacraid-abort": AACRAID, "Host adapter abort request<.| (| timed out>"
        => Parse(adapter_timeout), "aacraid/linit.c aac_eh_abort(); 3.10-6.18";
    "aacraid-reset": AACRAID, "Host adapter reset request. SCSI hang ?$"
        => Cause(Reset, No), "aacraid/linit.c aac_eh_host_reset(); 3.10-6.18";
    "aacraid-bus-reset": AACRAID, "Host bus reset request. SCSI hang ?$"
        => Cause(Reset, No), "aacraid/linit.c aac_eh_bus_reset(); 4.11-6.18";
    "aacraid-target-reset": AACRAID, "Host target reset request. SCSI hang ?$"
        => Cause(Reset, No), "aacraid/linit.c aac_eh_target_reset(); 4.11-6.18";
    "aacraid-device-reset": AACRAID, "Host device reset request. SCSI hang ?$"
        => Cause(Reset, No), "aacraid/linit.c aac_eh_dev_reset(); 4.11-6.18";
    "aacraid-hung": AACRAID, "SCSI bus appears hung$"
        => Cause(Reset, No), "aacraid/linit.c aac_eh_reset(); 2.6.32-4.10";
    "aacraid-controller-reset": DRIVE.with_prefix("aacraid <pci>: "),
        "<Controller reset type is |Issuing IOP reset>"
        => Cause(Reset, No),
           "aacraid/commsup.c aac_reset_adapter(), src.c aac_src_restart_adapter(); 4.11-6.18";
    "aacraid-offlined": SCSI,
        "Device offlined - <array deleted|enclosure services event|array failed>$"
        => Cause(Removed, Unclear), "aacraid/commsup.c aac_handle_aif(); 2.6.32-6.18";
    "aacraid-dead": DRIVE,
        "<aacraid|AAC0|AAC1|AAC2|AAC3|AAC>: Host adapter <is dead (or got a PCI error)|dead> <dec>$"
        => Cause(Removed, No),
           "aacraid/commsup.c aac_check_health(), linit.c aac_eh_reset(); 2.6.32-6.18";
    "aacraid-blink": DRIVE, "AAC{<dec>}: Host adapter BLINK LED <hex>$"
        => Cause(Reset, No), "aacraid/commsup.c aac_check_health(); 3.10-6.18";
    "aacraid-blink-send": AACRAID, "aac_fib_send: adapter blinkLED <hex>."
        => Cause(Reset, No), "aacraid/commsup.c aac_fib_send(); 3.10-6.18";
    "arcmsr-abort": ARCMSR, "abort device command of scsi id = <dec> lun = <dec>$"
        => Parse(adapter_timeout), "arcmsr/arcmsr_hba.c arcmsr_abort(); 3.10-6.18";
    "arcmsr-reset": ARCMSR, "executing bus reset eh.....num_resets = <dec>"
        => Cause(Reset, No), "arcmsr/arcmsr_hba.c arcmsr_bus_reset(); 3.10-6.18";
    "arcmsr-abort-timeout": ARCMSR,
        "<wait 'abort all outstanding command' timeout|executing hw bus reset .....>"
        => Cause(Reset, No),
           "arcmsr/arcmsr_hba.c arcmsr_hbaA_abort_allcmd(), arcmsr_hardware_reset(); 2.6.32-6.18";
    "3w-event": EVENT_OF_3WARE,
        "<Drive timeout|Drive error|Drive reported data ECC error|Drive ECC error|Sector repair\
         |Degraded unit|Incomplete unit|SMART threshold|Unit inoperable|Drive was removed\
         |Rebuild failed|Backup DCB read error|Source drive ECC error>"
        => ParseKind(event_of_3ware), "3w-9xxx.h, 3w-sas.h twa_aen_table; 2.6.32-6.18";
    "3w-timeout": SCSI, "WARNING: {(<hex>:<hex>): }Command (<hex>) timed out, resetting card.$"
        => Parse(adapter_timeout), "3w-9xxx.c twa_scsi_eh_reset(); 3.10-6.18";
}

/// `hpsa 0000:03:00.0: scsi 0:1:0:0: resetting logical Direct-Access …`: the adapter's address is in
/// front of the device's.
fn reset_of_device(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord::new(text.devices.first()?.clone(), RecordKind::Cause(Reset, Unclear)))
}

fn adapter_timeout(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        secondary: Some((Reset, No)),
        ..ParsedRecord::from_text(text, RecordKind::Cause(Timeout, No))
    })
}

/// `1234 (700000000s/0x0002/WARN) - Unexpected sense: PD 05(e0x20/s5) …, Sense: 3/11/00`: the texts
/// are the firmware's, and no user can choose them.
fn firmware_event(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    if let Some((number, state)) = raid_array::parse(text.after) {
        let device = match (text.device, number) {
            (DeviceName::Pci(pci), Some(number)) => {
                DeviceName::RaidArray { pci: pci.clone(), number }
            }
            (adapter, _) => adapter.clone(),
        };
        let blame = if state == raid_array::ArrayState::Optimal { No } else { Unclear };
        // Each record is a new state.
        return Some(ParsedRecord::new(device, RecordKind::SeparateCause(ArrayState, blame)));
    }
    if text.fields.last() == Some(&"info") {
        return None;
    }
    Some(ParsedRecord::from_text(text, event_of_drive(text)))
}

fn event_of_drive(text: &MatchedText<'_>) -> RecordKind {
    let has = |words: &[&str]| words.iter().any(|word| text.after.contains(word));
    match () {
        () if has(&[
            "medium error",
            "Predictive failure",
            "uncturing bad block",
            "Sense: 3/",
            "Sense: 4/",
        ]) =>
        {
            RecordKind::Cause(Medium, Unclear)
        }
        () if has(&["Command timeout", "command timeout"]) => RecordKind::Cause(Timeout, Unclear),
        () if has(&["OFFLINE", "DEGRADED", "FAILED", "emoved: PD", "PD missing"]) => {
            RecordKind::Cause(Removed, Unclear)
        }
        () if has(&["fatal", "Fatal"]) => RecordKind::Cause(Reset, No),
        () => RecordKind::Continuation,
    }
}

/// The drive's sense, under the address of a command. Sense keys 3 and 4 are the drive's.
fn sense_of_command(text: &MatchedText<'_>) -> Option<RecordKind> {
    let [_, _, key, ..] = text.fields else {
        return None;
    };
    Some(match *key {
        "3" | "4" => RecordKind::Cause(Medium, Unclear),
        _ => RecordKind::Continuation,
    })
}

fn event_of_3ware(text: &MatchedText<'_>) -> Option<RecordKind> {
    Some(match *text.fields.last()? {
        "Drive timeout" => RecordKind::Cause(Timeout, Unclear),
        "Degraded unit" | "Incomplete unit" | "Unit inoperable" | "Drive was removed"
        | "Rebuild failed" => RecordKind::Cause(Removed, Unclear),
        _ => RecordKind::Cause(Medium, Unclear),
    })
}
