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
use crate::rule::{DRIVE, Role, RuleFamily, rules};

const NETWORK: RuleFamily = DRIVE.with_role(Role::NetworkOutage);
pub(super) const SCSI: RuleFamily =
    DRIVE.with_prefix("<sd|sr|st|ses|scsi|sg|ch|osst> <hctl>: {[<disk>] }{tag#<dec> }");
/// The record has no device: `mptscsih: ioc1: `, `mptbase: ioc0: `, `mpt2sas3: `, `mpt3sas_cm0: `
const MPT: RuleFamily = DRIVE.with_prefix(
    "<mptscsih: ioc|mptbase: ioc|mptsas: ioc|mptfc: ioc|mptspi: ioc|ioc|mpt2sas|mpt3sas><word>: ",
);
const TARGET_RESET: RuleFamily =
    DRIVE.with_prefix("scsi target<dec>:<dec>:<dec>: ").with_role(Role::TargetReset);
const QLA2XXX: RuleFamily = DRIVE.with_prefix("qla2xxx [<pci>]-<hex>:<dec>: ");
const LPFC: RuleFamily = DRIVE.with_prefix("lpfc <pci>: <dec>:{(<dec>):}<dec> ");
const LPFC_LINK: RuleFamily = LPFC.with_role(Role::NetworkOutage);
const SAS: RuleFamily = DRIVE.with_prefix("sas: ");

rules! {
    in "drivers/";
    "hba-abort": SCSI, "attempting task abort!"
        => Cause(Timeout, Unclear), "scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(), \
            message/fusion/mptscsih.c, megaraid_sas_fusion.c; 3.10-6.18";
    "hba-abort-unnamed": MPT, "attempting task abort!<blanks>{scmd(<hex>}{(sc=<hex>}"
        => Parse(unnamed_abort),
           "message/fusion/mptscsih.c mptscsih_abort(), scsi/mpt2sas/mpt2sas_scsih.c; 3.10-6.18";
    // The result of an abort whose beginning was not logged, or is not in the excerpt.
    "hba-abort-result": SCSI, "task abort: <SUCCESS|FAILED> scmd(<hex>)"
        => Effect(Timeout, Unclear), "scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(); 2.6.32-6.18";
    "hba-reset-result": SCSI, "device reset: <SUCCESS|FAILED> scmd(<hex>)"
        => Effect(Reset, Unclear), "scsi/mpt3sas/mpt3sas_scsih.c scsih_dev_reset(); 2.6.32-6.18";
    "hba-abort-completed": SCSI,
        "No reference found at driver, assuming scmd(<hex>) might have completed$"
        => Continuation, "scsi/mpt3sas/mpt3sas_scsih.c scsih_abort(); 5.4-6.18";
    "hba-device-reset": SCSI.with_role(Role::DeviceReset), "attempting device reset!"
        => Cause(Reset, Unclear), "scsi/mpt3sas/mpt3sas_scsih.c scsih_dev_reset(); 3.10-6.18";
    "hba-device-reset-unnamed": MPT.with_role(Role::DeviceReset),
        "attempting device reset!<blanks>{scmd(<hex>}{(sc=<hex>}"
        => Parse(unnamed_reset), "scsi/mpt2sas/mpt2sas_scsih.c _scsih_dev_reset(); 3.10";
    "hba-target-reset": SCSI.with_role(Role::TargetReset), "attempting target reset!"
        => Cause(Reset, Unclear),
           "scsi/mpt3sas/mpt3sas_scsih.c scsih_target_reset(), mptscsih.c, megaraid_sas; 3.10-6.18";
    "hba-target-reset-unnamed": MPT.with_role(Role::TargetReset),
        "attempting target reset!<blanks>{scmd(<hex>}{(sc=<hex>}"
        => Parse(unnamed_reset), "message/fusion/mptscsih.c mptscsih_dev_reset(), \
            scsi/mpt2sas/mpt2sas_scsih.c; 3.10-6.18";
    "hba-target-reset-target": TARGET_RESET,
        "attempting target reset!<blanks>{scmd(<hex>}{(sc=<hex>}"
        => Parse(unnamed_reset), "scsi/mpt3sas/mpt3sas_scsih.c scsih_target_reset(); 3.10-6.18";
    "hba-bus-reset": MPT, "attempting bus reset!"
        => Cause(Reset, No), "message/fusion/mptscsih.c mptscsih_bus_reset(); 3.10-6.18";
    "hba-host-reset": MPT, "attempting host reset!"
        => Cause(Reset, No), "scsi/mpt3sas/mpt3sas_scsih.c scsih_host_reset(); 3.10-6.18";
    "mpt-diag-reset": MPT, "sending diag reset !!$"
        => Cause(Reset, No), "scsi/mpt3sas/mpt3sas_base.c _base_diag_reset(); 3.10-6.18";
    "mpt-fault": MPT, "fault_state(<hex>)!$"
        => Cause(Reset, No), "scsi/mpt3sas/mpt3sas_base.c mpt3sas_base_fault_info(); 3.10-6.18";
    "mpt-down": MPT, "SAS host is non-operational !!!!$"
        => Cause(Removed, No), "scsi/mpt3sas/mpt3sas_base.c _base_fault_reset_work(); 3.10-6.18";
    "mpt-ioc-fault": MPT,
        "WARNING - <IOC is in FAULT state|Issuing Reset from |Issuing HardReset from >"
        => Cause(Reset, No),
           "message/fusion/mptbase.c mpt_do_ioc_recovery(), mpt_fault_reset_work(); 2.6.32-6.18";
    "mpt-recovery": MPT, "Initiating <recovery|bringup>"
        => Continuation, "message/fusion/mptbase.c mpt_do_ioc_recovery(); 2.6.32-6.18";
    // An array of the adapter; the record contains no device of the kernel.
    "mpt-member": MPT, "<blanks>PhysDisk is now <missing|not compatible|failed|initializing\
         |offline requested|failed requested|offline|invalid>"
        => Cause(Removed, Unclear),
           "message/fusion/mptbase.c mpt_display_event_info(); 2.6.32-6.18";
    "mpt-volume": MPT, "<blanks>volume is now <degraded|failed|missing>"
        => Cause(Removed, No), "message/fusion/mptbase.c mpt_display_event_info(); 2.6.32-6.18";
    "mpt-smp": MPT, "SMP command sent to the expander<blanks>("
        => Cause(Transport, No), "scsi/mpt3sas/mpt3sas_transport.c; 4.10-6.18";
    "qla-abort": QLA2XXX, "Abort command issued nexus="
        => Cause(Timeout, No), "scsi/qla2xxx/qla_os.c qla2xxx_eh_abort(); 3.10-6.18";
    "qla-reset": QLA2XXX, "<DEVICE|TARGET|BUS|ADAPTER> RESET ISSUED nexus="
        => Cause(Reset, No), "scsi/qla2xxx/qla_os.c __qla2xxx_eh_generic_reset(); 3.10-6.18";
    "qla-loop-down": QLA2XXX.with_role(Role::NetworkOutage), "LOOP DOWN detected"
        => Cause(Transport, No), "scsi/qla2xxx/qla_isr.c qla2x00_async_event(); 3.10-6.18";
    "lpfc-link-down": LPFC_LINK, "Link Down Event"
        => Cause(Transport, No), "scsi/lpfc/lpfc_hbadisc.c; 3.10-6.18";
    "lpfc-device-lost": LPFC_LINK, "Devloss timeout on WWPN "
        => Cause(Transport, No),
           "scsi/lpfc/lpfc_hbadisc.c lpfc_dev_loss_tmo_handler(); 2.6.32-6.18";
    "lpfc-timeout": LPFC, "SCSI Layer I/O Abort Request"
        => Cause(Timeout, No), "scsi/lpfc/lpfc_scsi.c lpfc_abort_handler(); 3.10-6.18";
    "lpfc-reset": LPFC, "SCSI layer issued "
        => Cause(Reset, No), "scsi/lpfc/lpfc_scsi.c lpfc_device_reset_handler(); 3.10-6.18";
    "fc-port": NETWORK, "<blanks>rport-<dec>:<dec>-<dec>: blocked FC remote port time out: "
        => Cause(Transport, No), "scsi/scsi_transport_fc.c fc_timeout_deleted_rport(); 3.10-6.18";
    "iscsi-conn": NETWORK, "<blanks>connection<dec>:<dec>: detected conn error (<dec>)$"
        => Cause(Transport, No), "scsi/scsi_transport_iscsi.c iscsi_conn_error_event(); 3.10-6.18";
    "iscsi-session": NETWORK, "<blanks>session<dec>: session recovery timed out after <dec> secs$"
        => Cause(Transport, No),
           "scsi/scsi_transport_iscsi.c session_recovery_timedout(); 3.10-6.18";
    "iscsi-ping": NETWORK, "<blanks>connection<dec>:<dec>: ping timeout of <dec> secs expired"
        => Cause(Transport, No), "scsi/libiscsi.c iscsi_check_transport_timeouts(); 3.10-6.18";
    // libsas: the address is the drive's, and no name of a disk.
    "sas-task-timeout": SAS, "TMF task timeout for <hex> and not done$"
        => Cause(Timeout, Unclear), "scsi/libsas/sas_scsi_host.c sas_execute_tmf(); 6.0-6.18";
    "sas-reset": SAS, "I_T nexus reset for dev <hex>$"
        => Cause(Reset, Unclear), "scsi/libsas/sas_scsi_host.c sas_recover_I_T(); 3.10-6.18";
    "sas-lost": SAS,
        "error from {device }{ device }<hex>, LUN <hex> couldn't be recovered in any way$"
        => Cause(Removed, Unclear),
           "scsi/libsas/sas_scsi_host.c sas_eh_handle_sas_errors(); 2.6.32-6.18";
    "sas-task": DRIVE, "sas: sas_scsi_find_task: <aborting task|querying task|task> 0x"
        => Continuation, "scsi/libsas/sas_scsi_host.c; 3.10-6.18";
}

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
