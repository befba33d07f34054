//! Host adapters: their error handling (abort, reset the device, the target, the bus, the adapter),
//! and their own ends.
//!
//! An abort says that a command was not answered; that the drive is why is likely for one device
//! and unlikely for all of an adapter.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::{Blame, Class, Device};
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Part, Rule, Said, Scsi, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "hba-abort",
        "",
        "attempting task abort!",
        Read(abort),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(), message/fusion/mptscsih.c, megaraid_sas_fusion.c; 3.10-6.18",
    ),
    rule(
        "hba-device-reset",
        "",
        "attempting device reset!",
        Read(reset),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_dev_reset(); 3.10-6.18",
    ),
    rule(
        "hba-target-reset",
        "",
        "attempting target reset!",
        Read(reset),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_target_reset(), mptscsih.c, megaraid_sas; 3.10-6.18",
    ),
    rule(
        "hba-bus-reset",
        "",
        "attempting bus reset!",
        Read(adapter),
        "drivers/message/fusion/mptscsih.c mptscsih_bus_reset(); 3.10-6.18",
    ),
    rule(
        "hba-host-reset",
        "",
        "attempting host reset!",
        Read(adapter),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_host_reset(); 3.10-6.18",
    ),
    rule(
        "mpt-diag-reset",
        "mpt",
        "sending diag reset",
        Read(adapter),
        "drivers/scsi/mpt3sas/mpt3sas_base.c _base_diag_reset(); 3.10-6.18",
    ),
    rule(
        "mpt-fault",
        "mpt",
        "fault_state(0x",
        Read(adapter),
        "drivers/scsi/mpt3sas/mpt3sas_base.c mpt3sas_base_fault_info(); 3.10-6.18",
    ),
    rule(
        "mpt-smp",
        "mpt",
        "SMP command sent to the expander",
        Read(path),
        "drivers/scsi/mpt3sas/mpt3sas_transport.c; 4.10-6.18",
    ),
    rule(
        "mega-smid",
        "sd ",
        "Abort request is for SMID",
        Follow,
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_task_abort_fusion(); 4.20-6.18",
    ),
    rule(
        "mega-waiting",
        "megaraid",
        "commands to complete",
        Read(path),
        "drivers/scsi/megaraid/megaraid_sas_base.c megasas_wait_for_outstanding(); 3.10-6.18",
    ),
    rule(
        "mega-fault",
        "megaraid",
        "FW detected to be in fault",
        Read(adapter),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 3.10-6.18",
    ),
    rule(
        "mega-killed",
        "megaraid",
        "HBA is killed",
        Read(adapter_gone),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 4.1-6.18",
    ),
    rule(
        "mega-killing",
        "megaraid",
        "Killing HBA",
        Read(adapter_gone),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c; 3.10-6.18",
    ),
    rule(
        "mega-resetting",
        "megaraid",
        "resetting fusion adapter",
        Read(adapter),
        "drivers/scsi/megaraid/megaraid_sas_fusion.c megasas_reset_fusion(); 3.10-6.18",
    ),
    rule(
        "hpsa-reset",
        "",
        "resetting logical",
        Read(reset_logical),
        "drivers/scsi/hpsa.c hpsa_show_dev_msg(); 4.2-6.18",
    ),
    rule(
        "hpsa-reset-physical",
        "",
        "resetting physical",
        Read(reset),
        "drivers/scsi/hpsa.c hpsa_show_dev_msg(); 4.2-6.18",
    ),
    rule(
        "hpsa-lockup",
        "",
        "ontroller lockup detected",
        Read(adapter),
        "drivers/scsi/hpsa.c controller_lockup_detected(), smartpqi; 3.10-6.18",
    ),
    rule(
        "pqi-reset",
        "smartpqi",
        "resetting scsi",
        Read(reset_logical),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_device_reset(); 4.9-6.18",
    ),
    rule(
        "pqi-offline",
        "smartpqi",
        "controller offline",
        Read(adapter_gone),
        "drivers/scsi/smartpqi/smartpqi_init.c pqi_take_ctrl_offline(); 4.9-6.18",
    ),
    rule(
        "aacraid-abort",
        "aacraid",
        "Host adapter abort request",
        Read(adapter_timeout),
        "drivers/scsi/aacraid/linit.c aac_eh_abort(); 3.10-6.18",
    ),
    rule(
        "aacraid-reset",
        "aacraid",
        "Host adapter reset request",
        Read(adapter),
        "drivers/scsi/aacraid/linit.c aac_eh_host_reset(); 3.10-6.18",
    ),
    rule(
        "aacraid-bus-reset",
        "aacraid",
        "Host bus reset request",
        Read(adapter),
        "drivers/scsi/aacraid/linit.c aac_eh_bus_reset(); 4.11-6.18",
    ),
    rule(
        "aacraid-target-reset",
        "aacraid",
        "Host target reset request",
        Read(adapter),
        "drivers/scsi/aacraid/linit.c aac_eh_target_reset(); 4.11-6.18",
    ),
    rule(
        "aacraid-device-reset",
        "aacraid",
        "Host device reset request",
        Read(adapter),
        "drivers/scsi/aacraid/linit.c aac_eh_dev_reset(); 4.11-6.18",
    ),
    rule(
        "aacraid-blink",
        "AAC",
        "adapter blinkLED",
        Read(adapter),
        "drivers/scsi/aacraid/commsup.c aac_check_health(); 3.10-6.18",
    ),
    rule(
        "arcmsr-abort",
        "arcmsr",
        "abort device command",
        Read(adapter_timeout),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_abort(); 3.10-6.18",
    ),
    rule(
        "arcmsr-reset",
        "arcmsr",
        "executing bus reset",
        Read(adapter),
        "drivers/scsi/arcmsr/arcmsr_hba.c arcmsr_bus_reset(); 3.10-6.18",
    ),
    rule(
        "3w-timeout",
        "3w-",
        "Command (0x",
        Read(adapter_timeout),
        "drivers/scsi/3w-9xxx.c twa_scsi_eh_reset(); 3.10-6.18",
    ),
    rule(
        "qla-abort",
        "qla2xxx",
        ": Abort command issued",
        Read(path_timeout),
        "drivers/scsi/qla2xxx/qla_os.c qla2xxx_eh_abort(); 3.10-6.18",
    ),
    rule(
        "qla-reset",
        "qla2xxx",
        "RESET ISSUED nexus",
        Read(path_reset),
        "drivers/scsi/qla2xxx/qla_os.c __qla2xxx_eh_generic_reset(); 3.10-6.18",
    ),
    rule(
        "qla-loop-down",
        "qla2xxx",
        "LOOP DOWN detected",
        Read(path),
        "drivers/scsi/qla2xxx/qla_isr.c qla2x00_async_event(); 3.10-6.18",
    ),
    rule(
        "lpfc-link-down",
        "lpfc",
        "Link Down Event",
        Read(path),
        "drivers/scsi/lpfc/lpfc_hbadisc.c; 3.10-6.18",
    ),
    rule(
        "lpfc-timeout",
        "lpfc",
        "SCSI Layer I/O Abort Request",
        Read(path_timeout),
        "drivers/scsi/lpfc/lpfc_scsi.c lpfc_abort_handler(); 3.10-6.18",
    ),
    rule(
        "lpfc-reset",
        "lpfc",
        "SCSI layer issued",
        Read(path_reset),
        "drivers/scsi/lpfc/lpfc_scsi.c lpfc_device_reset_handler(); 3.10-6.18",
    ),
    rule(
        "fc-port",
        "",
        "blocked FC remote port time out",
        Read(path),
        "drivers/scsi/scsi_transport_fc.c fc_timeout_deleted_rport(); 3.10-6.18",
    ),
    rule(
        "iscsi-conn",
        "",
        "detected conn error (",
        Read(path),
        "drivers/scsi/scsi_transport_iscsi.c iscsi_conn_error_event(); 3.10-6.18",
    ),
    rule(
        "iscsi-session",
        "",
        "session recovery timed out after",
        Read(path),
        "drivers/scsi/scsi_transport_iscsi.c session_recovery_timedout(); 3.10-6.18",
    ),
    rule(
        "iscsi-ping",
        "",
        "ping timeout of ",
        Read(path),
        "drivers/scsi/libiscsi.c iscsi_check_transport_timeouts(); 3.10-6.18",
    ),
    rule(
        "pvscsi-abort",
        "vmw_pvscsi",
        "abort:",
        Follow,
        "drivers/scsi/vmw_pvscsi.c pvscsi_abort(); 3.10-6.18",
    ),
    rule(
        "sas-task",
        "sas: ",
        "task: ",
        Follow,
        "drivers/scsi/libsas/sas_scsi_host.c; 3.10-6.18",
    ),
];

fn awaits(text: &Text<'_>, class: Class, blame: Blame) -> Option<Said> {
    let said = Said::of(text, Part::Cause(class, blame));
    // `mpt2sas3: attempting task abort! scmd(…)`: the next record is the command's, with its
    // device.
    let named = matches!(said.device, Device::Hctl(_) | Device::Block(_));
    Some(if named {
        said
    } else {
        Said::new(
            Device::Unnamed,
            Part::Scsi(Scsi::Awaits(class, blame, address(text.after))),
        )
    })
}

/// `scmd(ffff8814605d2100)`, `(sc=ffff88061db32a00)`
fn address(text: &str) -> String {
    text.split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(inside, _)| inside.chars().take(40).collect())
        .unwrap_or_default()
}

fn abort(text: &Text<'_>) -> Option<Said> {
    awaits(text, Timeout, Unclear)
}

fn reset(text: &Text<'_>) -> Option<Said> {
    awaits(text, Reset, Unclear)
}

/// `hpsa 0000:03:00.0: scsi 0:1:0:0: resetting logical Direct-Access …`; `… reset logical completed
/// successfully` is another line.
fn reset_logical(text: &Text<'_>) -> Option<Said> {
    let at = text.all.find("scsi ")?;
    let (device, also) = crate::model::kernel::name::named(&text.all[at..]);
    Some(Said {
        also,
        ..Said::new(device, Part::Cause(Reset, Unclear))
    })
}

fn adapter(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Cause(Reset, No)))
}

fn adapter_timeout(text: &Text<'_>) -> Option<Said> {
    Some(Said {
        then: Some((Reset, No)),
        ..Said::of(text, Part::Cause(Timeout, No))
    })
}

fn adapter_gone(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Cause(Removed, No)))
}

/// Cables, expanders, networks.
fn path(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Cause(Transport, No)))
}

fn path_timeout(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Cause(Timeout, No)))
}

fn path_reset(text: &Text<'_>) -> Option<Said> {
    Some(Said::of(text, Part::Cause(Reset, No)))
}
