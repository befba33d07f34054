//! Rules for host bus adapters: their error handling (abort; reset of device, target, bus,
//! adapter), and their own failures.
//!
//! An abort means that a command was not completed in time. The drive is the likely cause when one
//! device is affected, and an unlikely one when all devices of an adapter are.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{Class, DeviceName};
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind, ScsiRecord};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Role, Rule, RuleFamily};

const NETWORK: RuleFamily = DRIVE.with_role(Role::NetworkOutage);
pub(super) const SCSI: RuleFamily =
    DRIVE.with_prefix("<sd|sr|st|ses|scsi|sg|ch|osst> <hctl>: {[<disk>] }{tag#<dec> }");
/// The record has no device: `mptscsih: ioc1: `, `mptbase: ioc0: `, `mpt2sas3: `, `mpt3sas_cm0: `
const MPT: RuleFamily = DRIVE.with_prefix(
    "<mptscsih: ioc|mptbase: ioc|mptsas: ioc|mptfc: ioc|mptspi: ioc|ioc|mpt2sas|mpt3sas><word>: ",
);
const QLA2XXX: &str = "qla2xxx [<pci>]-<hex>:<dec>: ";
const LPFC: &str = "lpfc <pci>: <dec>:{(<dec>):}<dec> ";

pub(crate) const RULES: &[Rule] = &[
    SCSI.rule(
        "hba-abort",
        "attempting task abort!",
        Cause(Timeout, Unclear),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(), message/fusion/mptscsih.c, megaraid_sas_fusion.c; 3.10-6.18",
    ),
    MPT.rule(
        "hba-abort-unnamed",
        "attempting task abort!<blanks>{scmd(<hex>}{(sc=<hex>}",
        Parse(unnamed_abort),
        "drivers/message/fusion/mptscsih.c mptscsih_abort(), scsi/mpt2sas/mpt2sas_scsih.c; 3.10-6.18",
    ),
    // The result of an abort whose beginning was not logged, or is not in the excerpt.
    SCSI.rule(
        "hba-abort-result",
        "task abort: <SUCCESS|FAILED> scmd(<hex>)",
        Effect(Timeout, Unclear),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(); 2.6.32-6.18",
    ),
    SCSI.rule(
        "hba-reset-result",
        "device reset: <SUCCESS|FAILED> scmd(<hex>)",
        Effect(Reset, Unclear),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_dev_reset(); 2.6.32-6.18",
    ),
    SCSI.rule(
        "hba-abort-completed",
        "No reference found at driver, assuming scmd(<hex>) might have completed$",
        Continuation,
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(); 5.4-6.18",
    ),
    SCSI.with_role(Role::DeviceReset).rule(
        "hba-device-reset",
        "attempting device reset!",
        Cause(Reset, Unclear),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_dev_reset(); 3.10-6.18",
    ),
    MPT.with_role(Role::DeviceReset).rule(
        "hba-device-reset-unnamed",
        "attempting device reset!<blanks>{scmd(<hex>}{(sc=<hex>}",
        Parse(unnamed_reset),
        "drivers/scsi/mpt2sas/mpt2sas_scsih.c _scsih_dev_reset(); 3.10",
    ),
    SCSI.with_role(Role::TargetReset).rule(
        "hba-target-reset",
        "attempting target reset!",
        Cause(Reset, Unclear),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_target_reset(), mptscsih.c, megaraid_sas; 3.10-6.18",
    ),
    MPT.with_role(Role::TargetReset).rule(
        "hba-target-reset-unnamed",
        "attempting target reset!<blanks>{scmd(<hex>}{(sc=<hex>}",
        Parse(unnamed_reset),
        "drivers/message/fusion/mptscsih.c mptscsih_dev_reset(), scsi/mpt2sas/mpt2sas_scsih.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("scsi target<dec>:<dec>:<dec>: ").with_role(Role::TargetReset).rule(
        "hba-target-reset-target",
        "attempting target reset!<blanks>{scmd(<hex>}{(sc=<hex>}",
        Parse(unnamed_reset),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_target_reset(); 3.10-6.18",
    ),
    MPT.rule(
        "hba-bus-reset",
        "attempting bus reset!",
        Cause(Reset, No),
        "drivers/message/fusion/mptscsih.c mptscsih_bus_reset(); 3.10-6.18",
    ),
    MPT.rule(
        "hba-host-reset",
        "attempting host reset!",
        Cause(Reset, No),
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c scsih_host_reset(); 3.10-6.18",
    ),
    MPT.rule(
        "mpt-diag-reset",
        "sending diag reset !!$",
        Cause(Reset, No),
        "drivers/scsi/mpt3sas/mpt3sas_base.c _base_diag_reset(); 3.10-6.18",
    ),
    MPT.rule(
        "mpt-fault",
        "fault_state(<hex>)!$",
        Cause(Reset, No),
        "drivers/scsi/mpt3sas/mpt3sas_base.c mpt3sas_base_fault_info(); 3.10-6.18",
    ),
    MPT.rule(
        "mpt-down",
        "SAS host is non-operational !!!!$",
        Cause(Removed, No),
        "drivers/scsi/mpt3sas/mpt3sas_base.c _base_fault_reset_work(); 3.10-6.18",
    ),
    MPT.rule(
        "mpt-ioc-fault",
        "WARNING - <IOC is in FAULT state|Issuing Reset from |Issuing HardReset from >",
        Cause(Reset, No),
        "drivers/message/fusion/mptbase.c mpt_do_ioc_recovery(), mpt_fault_reset_work(); 2.6.32-6.18",
    ),
    MPT.rule(
        "mpt-recovery",
        "Initiating <recovery|bringup>",
        Continuation,
        "drivers/message/fusion/mptbase.c mpt_do_ioc_recovery(); 2.6.32-6.18",
    ),
    // An array of the adapter; the record contains no device of the kernel.
    MPT.rule(
        "mpt-member",
        "<blanks>PhysDisk is now <missing|not compatible|failed|initializing|offline requested\
         |failed requested|offline|invalid>",
        Cause(Removed, Unclear),
        "drivers/message/fusion/mptbase.c mpt_display_event_info(); 2.6.32-6.18",
    ),
    MPT.rule(
        "mpt-volume",
        "<blanks>volume is now <degraded|failed|missing>",
        Cause(Removed, No),
        "drivers/message/fusion/mptbase.c mpt_display_event_info(); 2.6.32-6.18",
    ),
    MPT.rule(
        "mpt-smp",
        "SMP command sent to the expander<blanks>(",
        Cause(Transport, No),
        "drivers/scsi/mpt3sas/mpt3sas_transport.c; 4.10-6.18",
    ),
    DRIVE.with_prefix(QLA2XXX).rule(
        "qla-abort",
        "Abort command issued nexus=",
        Cause(Timeout, No),
        "drivers/scsi/qla2xxx/qla_os.c qla2xxx_eh_abort(); 3.10-6.18",
    ),
    DRIVE.with_prefix(QLA2XXX).rule(
        "qla-reset",
        "<DEVICE|TARGET|BUS|ADAPTER> RESET ISSUED nexus=",
        Cause(Reset, No),
        "drivers/scsi/qla2xxx/qla_os.c __qla2xxx_eh_generic_reset(); 3.10-6.18",
    ),
    NETWORK.with_prefix(QLA2XXX).rule(
        "qla-loop-down",
        "LOOP DOWN detected",
        Cause(Transport, No),
        "drivers/scsi/qla2xxx/qla_isr.c qla2x00_async_event(); 3.10-6.18",
    ),
    NETWORK.with_prefix(LPFC).rule(
        "lpfc-link-down",
        "Link Down Event",
        Cause(Transport, No),
        "drivers/scsi/lpfc/lpfc_hbadisc.c; 3.10-6.18",
    ),
    NETWORK.with_prefix(LPFC).rule(
        "lpfc-device-lost",
        "Devloss timeout on WWPN ",
        Cause(Transport, No),
        "drivers/scsi/lpfc/lpfc_hbadisc.c lpfc_dev_loss_tmo_handler(); 2.6.32-6.18",
    ),
    DRIVE.with_prefix(LPFC).rule(
        "lpfc-timeout",
        "SCSI Layer I/O Abort Request",
        Cause(Timeout, No),
        "drivers/scsi/lpfc/lpfc_scsi.c lpfc_abort_handler(); 3.10-6.18",
    ),
    DRIVE.with_prefix(LPFC).rule(
        "lpfc-reset",
        "SCSI layer issued ",
        Cause(Reset, No),
        "drivers/scsi/lpfc/lpfc_scsi.c lpfc_device_reset_handler(); 3.10-6.18",
    ),
    NETWORK.rule(
        "fc-port",
        "<blanks>rport-<dec>:<dec>-<dec>: blocked FC remote port time out: ",
        Cause(Transport, No),
        "drivers/scsi/scsi_transport_fc.c fc_timeout_deleted_rport(); 3.10-6.18",
    ),
    NETWORK.rule(
        "iscsi-conn",
        "<blanks>connection<dec>:<dec>: detected conn error (<dec>)$",
        Cause(Transport, No),
        "drivers/scsi/scsi_transport_iscsi.c iscsi_conn_error_event(); 3.10-6.18",
    ),
    NETWORK.rule(
        "iscsi-session",
        "<blanks>session<dec>: session recovery timed out after <dec> secs$",
        Cause(Transport, No),
        "drivers/scsi/scsi_transport_iscsi.c session_recovery_timedout(); 3.10-6.18",
    ),
    NETWORK.rule(
        "iscsi-ping",
        "<blanks>connection<dec>:<dec>: ping timeout of <dec> secs expired",
        Cause(Transport, No),
        "drivers/scsi/libiscsi.c iscsi_check_transport_timeouts(); 3.10-6.18",
    ),
    // libsas: the address is the drive's, and no name of a disk.
    DRIVE.with_prefix("sas: ").rule(
        "sas-task-timeout",
        "TMF task timeout for <hex> and not done$",
        Cause(Timeout, Unclear),
        "drivers/scsi/libsas/sas_scsi_host.c sas_execute_tmf(); 6.0-6.18",
    ),
    DRIVE.with_prefix("sas: ").rule(
        "sas-reset",
        "I_T nexus reset for dev <hex>$",
        Cause(Reset, Unclear),
        "drivers/scsi/libsas/sas_scsi_host.c sas_recover_I_T(); 3.10-6.18",
    ),
    DRIVE.with_prefix("sas: ").rule(
        "sas-lost",
        "error from {device }{ device }<hex>, LUN <hex> couldn't be recovered in any way$",
        Cause(Removed, Unclear),
        "drivers/scsi/libsas/sas_scsi_host.c sas_eh_handle_sas_errors(); 2.6.32-6.18",
    ),
    DRIVE.rule(
        "sas-task",
        "sas: sas_scsi_find_task: <aborting task|querying task|task> 0x",
        Continuation,
        "drivers/scsi/libsas/sas_scsi_host.c; 3.10-6.18",
    ),
];

/// `mpt2sas3: attempting task abort! scmd(ffff8814605d2100)`: the next record is about the command
/// and contains the device. A later record may repeat the command's address.
fn unnamed_recovery(text: &MatchedText<'_>, class: Class) -> Option<ParsedRecord> {
    let address = text.fields.first().copied().unwrap_or_default();
    Some(ParsedRecord::new(
        DeviceName::Unnamed,
        RecordKind::Scsi(ScsiRecord::UnnamedRecovery(class, Unclear, address.to_owned())),
    ))
}

fn unnamed_abort(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    unnamed_recovery(text, Timeout)
}

fn unnamed_reset(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    unnamed_recovery(text, Reset)
}
