//! Rules for disks behind a network, a hypervisor or a phone's storage controller: nbd, rbd, Hyper-V,
//! VMware, virtio, zfcp, DASD, UFS. The drive is elsewhere, except for UFS.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::parsed_record::{MatchedText, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Role, RuleFamily, rules};
use crate::rules::hba::SCSI;

const NBD: RuleFamily = DRIVE.with_prefix("block <disk>: ");
const RBD: RuleFamily = DRIVE.with_prefix("rbd: <disk>: ");
/// `dasd-eckd 0.0.4711: `: the address of the channel is no name of a disk.
const DASD: RuleFamily = DRIVE.with_prefix("<dasd-eckd|dasd-fba|dasd> 0.0.<hex>: ");
/// `ufshcd-qcom 1d84000.ufshc: `, `exynos-ufs 11100000.ufs: `; the SCSI layer's records of the command
/// contain the disk.
const UFS: RuleFamily = DRIVE.with_prefix("<word> <file>: ");

rules! {
    in "drivers/";
    "nbd-timeout": NBD, "<Connection timed out|Possible stuck request >"
        => Cause(Timeout, No), "block/nbd.c nbd_xmit_timeout(); 3.10-6.18";
    // `shutting down sockets` and `queue cleared` are also printed for a disconnection on request.
    "nbd-connection": NBD, "<Receive control failed (result |Receive data failed (result \
         |Send control failed (result |Send data failed (result |Attempted send on closed socket\
         |Attempted send on invalid socket|Dead connection, failed to find a fallback\
         |Request send failed, requeueing|Other side returned error (>"
        => Cause(Transport, No),
           "block/nbd.c nbd_read_stat(), nbd_send_cmd(), sock_shutdown(); 3.10-6.18";
    "rbd-result": RBD, "<read|write|discard|zeroout> at objno <dec> <dec>~<dec> result <dec>$"
        => Cause(Transport, No), "block/rbd.c rbd_obj_handle_request(); 4.18-6.18";
    "rbd-result-old": RBD, "{<word> }{<hex> at <hex> (<hex>)}<blanks>result <dec>$"
        => Cause(Transport, No),
           "block/rbd.c rbd_img_obj_end_request(), rbd_img_end_request(); 3.10-6.18";
    "storvsc-status": DRIVE.with_prefix("hv_storvsc <file>: "),
        "{tag#<dec> }cmd 0x<hex> <status: scsi|scsi status> 0x<hex> <srb status|srb> 0x<hex>"
        => ParseKind(storvsc_status), "scsi/storvsc_drv.c storvsc_on_io_completion(); 3.14-6.18";
    "pvscsi-abort": SCSI, "task abort on host <dec>, "
        => Cause(Timeout, No), "scsi/vmw_pvscsi.c pvscsi_abort(); 2.6.33-6.18";
    "pvscsi-reset": SCSI, "SCSI <device reset on scsi|Bus reset|Host reset>"
        => Cause(Reset, No),
           "scsi/vmw_pvscsi.c pvscsi_device_reset(), pvscsi_bus_reset(); 2.6.33-6.18";
    "virtio-scsi-abort": SCSI, "abort$"
        => Cause(Timeout, No), "scsi/virtio_scsi.c virtscsi_abort(); 3.10-6.18";
    "virtio-scsi-reset": SCSI, "device reset$"
        => Cause(Reset, No), "scsi/virtio_scsi.c virtscsi_device_reset(); 3.10-6.18";
    "zfcp-link": DRIVE.with_role(Role::NetworkOutage).with_prefix("zfcp <file>: "),
        "<The local link is down|There is no wrap plug|The error threshold for checksum statistics>"
        => Cause(Transport, No), "s390/scsi/zfcp_fsf.c zfcp_fsf_link_down_info_eval(); 2.6.32-6.18";
    "dasd-timeout": DASD, "<cqr |request ><hex> timed out ("
        => Cause(Timeout, No), "s390/block/dasd.c __dasd_device_check_expire(); 2.6.32-6.18";
    "dasd-failed": DASD,
        "<Accessing the DASD failed because of a hardware error|default ERP has run out of retries>"
        => Cause(Io, No),
           "s390/block/dasd_3990_erp.c, dasd_erp.c dasd_default_erp_action(); 2.6.32-6.18";
    "ufs-abort": UFS, "<ufshcd_abort|ufshcd_try_to_abort_task>: <Device abort task at tag \
         |no response from device. tag = |issued. tag = |Failed clearing cmd at tag \
         |Failed to abort task, tag = >"
        => Cause(Timeout, Unclear),
           "ufs/core/ufshcd.c ufshcd_abort(), ufshcd_try_to_abort_task(); 3.14-6.18";
    "ufs-command-timeout": UFS,
        "<uic cmd 0x|pwr ctrl cmd 0x><hex> with <arg3|mode> 0x<hex> {uic }completion timeout"
        => Cause(Timeout, Unclear),
           "ufs/core/ufshcd.c ufshcd_wait_for_uic_cmd(), ufshcd_uic_pwr_ctrl(); 3.14-6.18";
    "ufs-task-timeout": UFS,
        "<__ufshcd_issue_tm_cmd|ufshcd_issue_tm_cmd>: task management cmd <hex> timed-out"
        => Cause(Timeout, Unclear), "ufs/core/ufshcd.c __ufshcd_issue_tm_cmd(); 3.14-6.18";
    "ufs-not-answering": UFS, "ufshcd_verify_dev_init: NOP OUT failed <dec>$"
        => Cause(Timeout, Unclear), "ufs/core/ufshcd.c ufshcd_verify_dev_init(); 3.12-6.18";
    "ufs-query": UFS, "<ufshcd_query_flag|ufshcd_query_attr|__ufshcd_query_descriptor\
         |ufshcd_query_descriptor>: <Sending flag query|opcode 0x><blanks>{<hex> }for idn <dec> \
         failed, {index <dec>, }err = <dec>$"
        => ParseKind(ufs_query),
           "ufs/core/ufshcd.c ufshcd_query_flag(), ufshcd_query_attr(); 3.12-6.18";
    "ufs-status": UFS, "OCS error from controller = <hex> for tag <dec>$"
        => Cause(Transport, Unclear),
           "ufs/core/ufshcd.c ufshcd_transfer_rsp_status(): overall command status; 3.4-6.18";
    "ufs-link": UFS, "<link startup failed |ufshcd_uic_hibern8_enter: hibern8 enter failed. ret = \
         |ufshcd_uic_hibern8_exit: hibern8 exit failed. ret = \
         |ufshcd_change_power_mode: power mode change failed >"
        => Cause(Transport, Unclear),
           "ufs/core/ufshcd.c ufshcd_link_startup(), ufshcd_uic_hibern8_enter(); 3.12-6.18";
    "ufs-lost": UFS, "<ufshcd_link_recovery: link recovery failed, err \
         |ufshcd_host_reset_and_restore: Host init failed \
         |ufshcd_err_handler: reset and restore failed with err >"
        => Cause(Removed, Unclear), "ufs/core/ufshcd.c ufshcd_link_recovery(), \
            ufshcd_host_reset_and_restore(), ufshcd_err_handler(); 3.14-6.18";
    "ufs-controller": UFS, "<Controller enable failed|Host controller enable failed\
         |Controller not ready to accept UIC commands>"
        => Cause(Timeout, Unclear),
           "ufs/core/ufshcd.c ufshcd_hba_enable(), ufshcd_send_uic_cmd(); 3.4-6.18";
    "ufs-error": UFS, "<ufshcd_check_errors: saved_err 0x|ufshcd_err_handler started; HBA state \
         |ufshcd_err_handler: saved_err = 0x>"
        => Cause(Transport, Unclear),
           "ufs/core/ufshcd.c ufshcd_check_errors(), ufshcd_err_handler(); 3.18-6.18";
    "ufs-reset": UFS, "ufshcd_eh_device_reset_handler: failed with err "
        => Cause(Reset, Unclear), "ufs/core/ufshcd.c ufshcd_eh_device_reset_handler(); 3.14-6.18";
}

/// -ETIMEDOUT, -EAGAIN (no answer to the query): positive numbers are answers, of a device that does
/// not have the flag.
fn ufs_query(text: &MatchedText<'_>) -> Option<RecordKind> {
    matches!(text.fields.last(), Some(&("-110" | "-11")))
        .then_some(RecordKind::Cause(Timeout, Unclear))
}

/// Hyper-V logs each failed command. Only reads, writes and flushes are about data: the others are
/// questions that the host does not know.
fn storvsc_status(text: &MatchedText<'_>) -> Option<RecordKind> {
    let command = text
        .fields
        .iter()
        .position(|field| field.contains("scsi"))
        .and_then(|at| text.fields.get(at.checked_sub(1)?))?;
    let is_data =
        matches!(*command, "8" | "a" | "28" | "2a" | "35" | "88" | "8a" | "91" | "a8" | "aa");
    is_data.then_some(RecordKind::Effect(Io, No))
}
