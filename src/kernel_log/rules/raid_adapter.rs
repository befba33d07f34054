//! Rules for RAID adapters: their error handling, and what their firmware reports. The disks of the
//! kernel are arrays here, and the drives have no names.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Rule, RuleFamily};
use crate::rules::hba::SCSI;

/// 3.10-4.0 without the address: `megasas: `, `megaraid_sas: `
const MEGARAID: RuleFamily = DRIVE.with_prefix("mega<raid_sas|sas>{ <pci>}: ");
const HPSA: RuleFamily = DRIVE.with_prefix("hpsa <pci>: ");
const SMARTPQI: RuleFamily = DRIVE.with_prefix("smartpqi <pci>: ");
const AACRAID: RuleFamily = DRIVE.with_prefix("aacraid: ");
const ARCMSR: RuleFamily = DRIVE.with_prefix("arcmsr{<dec>}: ");

pub(crate) const RULES: &[Rule] = &[
    SCSI.rule(
        "mega-smid",
        "Abort request is for SMID: <dec>$",
        Continuation,
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_task_abort_fusion(); 4.20-6.18",
    ),
    SCSI.rule(
        "mega-reset",
        "megasas: RESET {<dec> }cmd=<hex> retries=<hex>$",
        Parse(adapter_timeout),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_generic_reset(); 2.6.32-6.18",
    ),
    SCSI.rule(
        "mega-timeout",
        "OCR is requested due to IO timeout!!$",
        Parse(adapter_timeout),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_dump_sys_regs(), megasas_reset_timer(); 4.20-6.18",
    ),
    MEGARAID.rule(
        "mega-io-timeout",
        "<IO/DCMD timeout is detected, forcibly FAULT Firmware|pending commands remain after waiting, \
         will reset adapter>",
        Cause(Timeout, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_wait_for_outstanding_fusion(); 3.10-6.18",
    ),
    MEGARAID.rule(
        "mega-fault-state",
        "{Found }FW in FAULT state",
        Cause(Reset, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_wait_for_outstanding_fusion(); 2.6.32-6.18",
    ),
    MEGARAID.rule(
        "mega-reset-failed",
        "<cannot recover from previous reset failures|failed to do reset>$",
        Cause(Removed, No),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_generic_reset(); 2.6.32-6.18",
    ),
    // What the firmware reports of its drives, by its own names for them.
    MEGARAID.rule(
        "mega-event",
        "<dec> ({boot + }<word>/0x<hex>/<DEAD|FATAL|CRIT|WARN>) - ",
        ParseKind(firmware_event),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_decode_evt(); 3.19-6.18",
    ),
    MEGARAID.rule(
        "mega-waiting",
        "[<blanks><dec>]waiting for <dec> commands to complete",
        Cause(Transport, No),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_wait_for_outstanding(); 3.10-6.18",
    ),
    DRIVE.rule(
        "mega-waiting-mbox",
        "megaraid mbox: Wait for <dec> commands to complete:<dec>$",
        Cause(Transport, No),
        "drivers/scsi/megaraid/megaraid_mbox.c megaraid_reset_handler(); 3.10-6.18",
    ),
    MEGARAID.rule(
        "mega-fault",
        "FW detected to be in fault<blanks>state, ",
        Cause(Reset, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 3.10-6.18",
    ),
    MEGARAID.rule(
        "mega-killed",
        "{<word>:<dec> }{OCR failed and }HBA is killed.$",
        Cause(Removed, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 4.1-6.18",
    ),
    MEGARAID.rule(
        "mega-killing",
        "{<word>:<dec> }{Reset not supported, }{Reset failed, }killing adapter{ scsi<dec>}",
        Cause(Removed, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 3.10-6.18",
    ),
    MEGARAID.rule(
        "mega-resetting",
        "resetting fusion adapter{ scsi<dec>}.$",
        Cause(Reset, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_reset_fusion(); 3.10-6.18",
    ),
    HPSA.rule(
        "hpsa-reset",
        "scsi <hctl>: resetting logical ",
        Parse(reset_of_device),
        "drivers/scsi/hpsa.c hpsa_show_dev_msg(); 4.2-6.18",
    ),
    HPSA.rule(
        "hpsa-reset-physical",
        "scsi <hctl>: resetting physical ",
        Parse(reset_of_device),
        "drivers/scsi/hpsa.c hpsa_show_dev_msg(); 4.2-6.18",
    ),
    HPSA.rule(
        "hpsa-reset-device",
        "resetting device <hctl>$",
        Parse(reset_of_device),
        "drivers/scsi/hpsa.c hpsa_eh_device_reset_handler(); 2.6.33-4.1",
    ),
    HPSA.rule(
        "hpsa-sense",
        "cp <hex> has status 0x<hex> Sense: 0x<hex>, ASC: 0x<hex>, ASCQ: 0x<hex>, Returning result",
        ParseKind(sense_of_command),
        "drivers/scsi/hpsa.c complete_scsi_command(); 2.6.33-6.18",
    ),
    HPSA.rule(
        "hpsa-timeout",
        "<cp 0x|cp |CDB ><hex> <timed out|timedout>$",
        Cause(Timeout, No),
        "drivers/scsi/hpsa.c complete_scsi_command(); 2.6.33-6.18",
    ),
    HPSA.rule(
        "hpsa-hardware",
        "<cp 0x|cp |CDB ><hex> <had hardware error|: hardware error>$",
        Cause(Io, Unclear),
        "drivers/scsi/hpsa.c complete_scsi_command(); 2.6.33-6.18",
    ),
    HPSA.rule(
        "hpsa-connection",
        "<cp 0x|cp |CDB ><hex> <had connection lost|: connection lost>$",
        Cause(Transport, No),
        "drivers/scsi/hpsa.c complete_scsi_command(); 2.6.33-6.18",
    ),
    HPSA.rule(
        "hpsa-lockup",
        "<C|c>ontroller lockup detected",
        Cause(Reset, No),
        "drivers/scsi/hpsa.c controller_lockup_detected(), smartpqi; 3.10-6.18",
    ),
    SMARTPQI.rule(
        "pqi-reset",
        "resetting scsi <hctl>",
        Parse(reset_of_device),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_device_reset(); 4.9-6.18",
    ),
    SMARTPQI.rule(
        "pqi-heartbeat",
        "no heartbeat detected - last heartbeat count: <dec>",
        Cause(Reset, No),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_heartbeat_timer_handler(); 4.9-6.18",
    ),
    SCSI.rule(
        "pqi-unit-failed",
        "received 'logical unit failure' from controller for scsi <hctl>$",
        Cause(Removed, Unclear),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_process_raid_io_error(); 4.9-6.18",
    ),
    SMARTPQI.rule(
        "pqi-offline",
        "controller offline",
        Cause(Removed, No),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_take_ctrl_offline(); 4.9-6.18",
    ),
    AACRAID.rule(
        "aacraid-abort",
        "Host adapter abort request<.| (| timed out>",
        Parse(adapter_timeout),
        "drivers/scsi/aacraid/linit.c aac_eh_abort(); 3.10-6.18",
    ),
    AACRAID.rule(
        "aacraid-reset",
        "Host adapter reset request. SCSI hang ?$",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_host_reset(); 3.10-6.18",
    ),
    AACRAID.rule(
        "aacraid-bus-reset",
        "Host bus reset request. SCSI hang ?$",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_bus_reset(); 4.11-6.18",
    ),
    AACRAID.rule(
        "aacraid-target-reset",
        "Host target reset request. SCSI hang ?$",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_target_reset(); 4.11-6.18",
    ),
    AACRAID.rule(
        "aacraid-device-reset",
        "Host device reset request. SCSI hang ?$",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_dev_reset(); 4.11-6.18",
    ),
    AACRAID.rule(
        "aacraid-hung",
        "SCSI bus appears hung$",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_reset(); 2.6.32-4.10",
    ),
    DRIVE.with_prefix("aacraid <pci>: ").rule(
        "aacraid-controller-reset",
        "<Controller reset type is |Issuing IOP reset>",
        Cause(Reset, No),
        "drivers/scsi/aacraid/commsup.c aac_reset_adapter(), src.c aac_src_restart_adapter(); 4.11-6.18",
    ),
    SCSI.rule(
        "aacraid-offlined",
        "Device offlined - <array deleted|enclosure services event|array failed>$",
        Cause(Removed, Unclear),
        "drivers/scsi/aacraid/commsup.c aac_handle_aif(); 2.6.32-6.18",
    ),
    DRIVE.rule(
        "aacraid-dead",
        "<aacraid|AAC0|AAC1|AAC2|AAC3|AAC>: Host adapter <is dead (or got a PCI error)|dead> <dec>$",
        Cause(Removed, No),
        "drivers/scsi/aacraid/commsup.c aac_check_health(), linit.c aac_eh_reset(); 2.6.32-6.18",
    ),
    DRIVE.rule(
        "aacraid-blink",
        "AAC{<dec>}: Host adapter BLINK LED <hex>$",
        Cause(Reset, No),
        "drivers/scsi/aacraid/commsup.c aac_check_health(); 3.10-6.18",
    ),
    AACRAID.rule(
        "aacraid-blink-send",
        "aac_fib_send: adapter blinkLED <hex>.",
        Cause(Reset, No),
        "drivers/scsi/aacraid/commsup.c aac_fib_send(); 3.10-6.18",
    ),
    ARCMSR.rule(
        "arcmsr-abort",
        "abort device command of scsi id = <dec> lun = <dec>$",
        Parse(adapter_timeout),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_abort(); 3.10-6.18",
    ),
    ARCMSR.rule(
        "arcmsr-reset",
        "executing bus reset eh.....num_resets = <dec>",
        Cause(Reset, No),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_bus_reset(); 3.10-6.18",
    ),
    ARCMSR.rule(
        "arcmsr-abort-timeout",
        "<wait 'abort all outstanding command' timeout|executing hw bus reset .....>",
        Cause(Reset, No),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_hbaA_abort_allcmd(), arcmsr_hardware_reset(); 2.6.32-6.18",
    ),
    DRIVE.with_prefix("<3w-9xxx|3w-sas|3w-xxxx>: scsi<dec>: AEN: <ERROR|WARNING|INFO> (0x<hex>:0x<hex>): ").rule(
        "3w-event",
        "<Drive timeout|Drive error|Drive reported data ECC error|Drive ECC error|Sector repair|Degraded unit\
         |Incomplete unit|SMART threshold|Unit inoperable|Drive was removed|Rebuild failed\
         |Backup DCB read error|Source drive ECC error>",
        ParseKind(event_of_3ware),
        "drivers/scsi/3w-9xxx.h, 3w-sas.h twa_aen_table; 2.6.32-6.18",
    ),
    SCSI.rule(
        "3w-timeout",
        "WARNING: {(<hex>:<hex>): }Command (<hex>) timed out, resetting card.$",
        Parse(adapter_timeout),
        "drivers/scsi/3w-9xxx.c twa_scsi_eh_reset(); 3.10-6.18",
    ),
];

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
fn firmware_event(text: &MatchedText<'_>) -> Option<RecordKind> {
    let has = |words: &[&str]| words.iter().any(|word| text.after.contains(word));
    Some(match () {
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
    })
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
