//! Rules for host bus adapters: their error handling (abort; reset of device, target, bus,
//! adapter), and their own failures.
//!
//! An abort means that a command was not completed in time. The drive is the likely cause when one
//! device is affected, and an unlikely one when all devices of an adapter are.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::{Blame, Class, DeviceName};
use crate::model::kernel_log::parsed_record::{MatchedText, ParsedRecord, RecordKind, ScsiRecord};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Role, Rule, RuleFamily};

const NETWORK: RuleFamily = DRIVE.with_role(Role::NetworkOutage);

pub(crate) const RULES: &[Rule] = &[
    DRIVE.rule(
        "hba-abort",
        "attempting task abort!",
        Parse(abort),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(), message/fusion/mptscsih.c, megaraid_sas_fusion.c; 3.10-6.18",
    ),
    DRIVE.with_role(Role::DeviceReset).rule(
        "hba-device-reset",
        "attempting device reset!",
        Parse(reset),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_dev_reset(); 3.10-6.18",
    ),
    DRIVE.with_role(Role::TargetReset).rule(
        "hba-target-reset",
        "attempting target reset!",
        Parse(reset),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_target_reset(), mptscsih.c, megaraid_sas; 3.10-6.18",
    ),
    DRIVE.rule(
        "hba-bus-reset",
        "attempting bus reset!",
        Cause(Reset, No),
        "drivers/message/fusion/mptscsih.c mptscsih_bus_reset(); 3.10-6.18",
    ),
    DRIVE.rule(
        "hba-host-reset",
        "attempting host reset!",
        Cause(Reset, No),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_host_reset(); 3.10-6.18",
    ),
    DRIVE.with_prefix("mpt").rule(
        "mpt-diag-reset",
        "sending diag reset",
        Cause(Reset, No),
        "drivers/scsi/mpt3sas/mpt3sas_base.c _base_diag_reset(); 3.10-6.18",
    ),
    DRIVE.with_prefix("mpt").rule(
        "mpt-fault",
        "fault_state(0x",
        Cause(Reset, No),
        "drivers/scsi/mpt3sas/mpt3sas_base.c mpt3sas_base_fault_info(); 3.10-6.18",
    ),
    DRIVE.with_prefix("mpt").rule(
        "mpt-smp",
        "SMP command sent to the expander",
        Cause(Transport, No),
        "drivers/scsi/mpt3sas/mpt3sas_transport.c; 4.10-6.18",
    ),
    DRIVE.with_prefix("sd ").rule(
        "mega-smid",
        "Abort request is for SMID",
        Continuation,
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_task_abort_fusion(); 4.20-6.18",
    ),
    DRIVE.with_prefix("megaraid").rule(
        "mega-waiting",
        "commands to complete",
        Cause(Transport, No),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_wait_for_outstanding(); 3.10-6.18",
    ),
    DRIVE.with_prefix("megaraid").rule(
        "mega-fault",
        "FW detected to be in fault",
        Cause(Reset, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("megaraid").rule(
        "mega-killed",
        "HBA is killed",
        Cause(Removed, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 4.1-6.18",
    ),
    DRIVE.with_prefix("megaraid").rule(
        "mega-killing",
        "Killing HBA",
        Cause(Removed, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("megaraid").rule(
        "mega-resetting",
        "resetting fusion adapter",
        Cause(Reset, No),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_reset_fusion(); 3.10-6.18",
    ),
    DRIVE.rule(
        "hpsa-reset",
        "resetting logical",
        Parse(reset_logical),
        "drivers/scsi/hpsa.c hpsa_show_dev_msg(); 4.2-6.18",
    ),
    DRIVE.rule(
        "hpsa-reset-physical",
        "resetting physical",
        Parse(reset),
        "drivers/scsi/hpsa.c hpsa_show_dev_msg(); 4.2-6.18",
    ),
    DRIVE.rule(
        "hpsa-lockup",
        "ontroller lockup detected",
        Cause(Reset, No),
        "drivers/scsi/hpsa.c controller_lockup_detected(), smartpqi; 3.10-6.18",
    ),
    DRIVE.with_prefix("smartpqi").rule(
        "pqi-reset",
        "resetting scsi",
        Parse(reset_logical),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_device_reset(); 4.9-6.18",
    ),
    DRIVE.with_prefix("smartpqi").rule(
        "pqi-offline",
        "controller offline",
        Cause(Removed, No),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_take_ctrl_offline(); 4.9-6.18",
    ),
    DRIVE.with_prefix("aacraid").rule(
        "aacraid-abort",
        "Host adapter abort request",
        Parse(adapter_timeout),
        "drivers/scsi/aacraid/linit.c aac_eh_abort(); 3.10-6.18",
    ),
    DRIVE.with_prefix("aacraid").rule(
        "aacraid-reset",
        "Host adapter reset request",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_host_reset(); 3.10-6.18",
    ),
    DRIVE.with_prefix("aacraid").rule(
        "aacraid-bus-reset",
        "Host bus reset request",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_bus_reset(); 4.11-6.18",
    ),
    DRIVE.with_prefix("aacraid").rule(
        "aacraid-target-reset",
        "Host target reset request",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_target_reset(); 4.11-6.18",
    ),
    DRIVE.with_prefix("aacraid").rule(
        "aacraid-device-reset",
        "Host device reset request",
        Cause(Reset, No),
        "drivers/scsi/aacraid/linit.c aac_eh_dev_reset(); 4.11-6.18",
    ),
    DRIVE.with_prefix("AAC").rule(
        "aacraid-blink",
        "adapter blinkLED",
        Cause(Reset, No),
        "drivers/scsi/aacraid/commsup.c aac_check_health(); 3.10-6.18",
    ),
    DRIVE.with_prefix("arcmsr").rule(
        "arcmsr-abort",
        "abort device command",
        Parse(adapter_timeout),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_abort(); 3.10-6.18",
    ),
    DRIVE.with_prefix("arcmsr").rule(
        "arcmsr-reset",
        "executing bus reset",
        Cause(Reset, No),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_bus_reset(); 3.10-6.18",
    ),
    DRIVE.with_prefix("3w-").rule(
        "3w-timeout",
        "Command (0x",
        Parse(adapter_timeout),
        "drivers/scsi/3w-9xxx.c twa_scsi_eh_reset(); 3.10-6.18",
    ),
    DRIVE.with_prefix("qla2xxx").rule(
        "qla-abort",
        ": Abort command issued",
        Cause(Timeout, No),
        "drivers/scsi/qla2xxx/qla_os.c qla2xxx_eh_abort(); 3.10-6.18",
    ),
    DRIVE.with_prefix("qla2xxx").rule(
        "qla-reset",
        "RESET ISSUED nexus",
        Cause(Reset, No),
        "drivers/scsi/qla2xxx/qla_os.c __qla2xxx_eh_generic_reset(); 3.10-6.18",
    ),
    NETWORK.with_prefix("qla2xxx").rule(
        "qla-loop-down",
        "LOOP DOWN detected",
        Cause(Transport, No),
        "drivers/scsi/qla2xxx/qla_isr.c qla2x00_async_event(); 3.10-6.18",
    ),
    NETWORK.with_prefix("lpfc").rule(
        "lpfc-link-down",
        "Link Down Event",
        Cause(Transport, No),
        "drivers/scsi/lpfc/lpfc_hbadisc.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("lpfc").rule(
        "lpfc-timeout",
        "SCSI Layer I/O Abort Request",
        Cause(Timeout, No),
        "drivers/scsi/lpfc/lpfc_scsi.c lpfc_abort_handler(); 3.10-6.18",
    ),
    DRIVE.with_prefix("lpfc").rule(
        "lpfc-reset",
        "SCSI layer issued",
        Cause(Reset, No),
        "drivers/scsi/lpfc/lpfc_scsi.c lpfc_device_reset_handler(); 3.10-6.18",
    ),
    NETWORK.rule(
        "fc-port",
        "blocked FC remote port time out",
        Cause(Transport, No),
        "drivers/scsi/scsi_transport_fc.c fc_timeout_deleted_rport(); 3.10-6.18",
    ),
    NETWORK.rule(
        "iscsi-conn",
        "detected conn error (",
        Cause(Transport, No),
        "drivers/scsi/scsi_transport_iscsi.c iscsi_conn_error_event(); 3.10-6.18",
    ),
    NETWORK.rule(
        "iscsi-session",
        "session recovery timed out after",
        Cause(Transport, No),
        "drivers/scsi/scsi_transport_iscsi.c session_recovery_timedout(); 3.10-6.18",
    ),
    NETWORK.rule(
        "iscsi-ping",
        "ping timeout of ",
        Cause(Transport, No),
        "drivers/scsi/libiscsi.c iscsi_check_transport_timeouts(); 3.10-6.18",
    ),
    DRIVE.with_prefix("vmw_pvscsi").rule(
        "pvscsi-abort",
        "abort:",
        Continuation,
        "drivers/scsi/vmw_pvscsi.c pvscsi_abort(); 3.10-6.18",
    ),
    DRIVE.with_prefix("sas: ").rule(
        "sas-task",
        "task: ",
        Continuation,
        "drivers/scsi/libsas/sas_scsi_host.c; 3.10-6.18",
    ),
];

fn error_recovery(text: &MatchedText<'_>, class: Class, blame: Blame) -> Option<ParsedRecord> {
    let parsed = ParsedRecord::from_text(text, RecordKind::Cause(class, blame));
    // `mpt2sas3: attempting task abort! scmd(…)`: the next record is about the command and contains
    // the device.
    let named = matches!(parsed.device, DeviceName::Hctl(_) | DeviceName::Block(_));
    Some(if named {
        parsed
    } else {
        ParsedRecord::new(
            DeviceName::Unnamed,
            RecordKind::Scsi(ScsiRecord::UnnamedRecovery(
                class,
                blame,
                command_address(text.after),
            )),
        )
    })
}

/// `scmd(ffff8814605d2100)`, `(sc=ffff88061db32a00)`
fn command_address(text: &str) -> String {
    text.split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(inside, _)| inside.chars().take(40).collect())
        .unwrap_or_default()
}

fn abort(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    error_recovery(text, Timeout, Unclear)
}

fn reset(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    error_recovery(text, Reset, Unclear)
}

/// `hpsa 0000:03:00.0: scsi 0:1:0:0: resetting logical Direct-Access …`; `… reset logical completed
/// successfully` is another message.
fn reset_logical(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let at = text.all.find("scsi ")?;
    let (device, other_name) = crate::model::kernel_log::device_name::find_in_text(&text.all[at..]);
    Some(ParsedRecord {
        other_name,
        ..ParsedRecord::new(device, RecordKind::Cause(Reset, Unclear))
    })
}

fn adapter_timeout(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        secondary: Some((Reset, No)),
        ..ParsedRecord::from_text(text, RecordKind::Cause(Timeout, No))
    })
}
