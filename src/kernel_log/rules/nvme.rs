//! Rules for NVMe: controllers (`nvme nvme0: …`) and namespaces (`nvme0n1: …`), over PCIe and over
//! fabrics.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{Class, DeviceName, Operation};
use crate::parsed_record::{DeviceKind, MatchedText, ParsedRecord, RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Evidence, Role, RuleAction, RuleFamily, rules};

/// Up to 4.11 some records name the controller by its PCI address.
const NVME: RuleFamily = DRIVE
    .with_prefix("nvme <controller>: ")
    .with_role(Role::NvmeController)
    .with_evidence(Evidence::DriveStatus);
/// `NVME-FC{0}: `; the choice is a brace.
const FC: RuleFamily = NVME.with_prefix("nvme <controller>: NVME-FC<{|{><dec>}: ");

const OVER_NETWORK: RuleAction =
    Record(RecordKind::Topology(TopologyUpdate::Kind(DeviceKind::Network)));

rules! {
    in "drivers/";
    "nvme-timeout": NVME, "I/O {tag }<dec>{ (<words>)}{ opcode <hex> (<words>)} QID <dec> timeout, \
         <aborting|reset controller|disable controller|completion polled>"
        => Parse(timeout), "nvme/host/pci.c nvme_timeout(), tcp.c, rdma.c; 4.4-6.18";
    // A transport over a network prints the time-out and then recovers the connection.
    "nvme-timeout-fabrics": NVME,
        "I/O {tag }<dec>{ (<words>)}{ type <dec>}{ opcode <hex> (<words>)} QID <dec> timeout$"
        => Cause(Timeout, No),
           "nvme/host/rdma.c nvme_rdma_timeout(), tcp.c nvme_tcp_timeout() since 6.5; 4.8-6.18";
    "nvme-timeout-queue": NVME, "queue <dec>: timeout request <hex> type <dec>$"
        => Cause(Timeout, No), "nvme/host/tcp.c nvme_tcp_timeout(); 5.0-6.4";
    "nvme-timeout-fc": NVME.with_prefix("nvme <controller>: NVME-FC<{|{><dec>.<dec>}: "),
        "io timeout: "
        => Cause(Timeout, No), "nvme/host/fc.c nvme_fc_timeout(); 5.10-6.18";
    "nvme-timeout-old": NVME, "Timeout I/O <dec>{ QID <dec>}$"
        => Cause(Timeout, Unclear), "block/nvme-core.c nvme_timeout(); 3.19-4.4";
    "nvme-cancel": NVME, "Cancelling I/O <dec>{ QID <dec>}$"
        => Continuation, "block/nvme-core.c, nvme/host/core.c nvme_cancel_request(); 3.10-4.20";
    "nvme-aborting": NVME, "Aborting I/O <dec>{ QID <dec>}$"
        => Cause(Timeout, Unclear), "block/nvme-core.c nvme_abort_req(); 3.14-4.4";
    "nvme-abort-status": NVME, "Abort status:<blanks><hex>{ result:<hex>}$"
        => Continuation, "nvme/host/pci.c abort_endio(); 3.14-6.18";
    "nvme-failed-status": NVME, "Failed status: <hex>, reset controller"
        => Cause(Reset, Unclear), "block/nvme-core.c nvme_kthread(); 3.14-4.5";
    "nvme-down": NVME, "controller is down; will reset: CSTS=<hex>, PCI_STATUS"
        => Cause(Reset, Unclear), "nvme/host/pci.c nvme_warn_reset(); 4.8-6.18";
    "nvme-not-ready": NVME,
        "Device not ready; aborting <initialisation|reset|shutdown>{, CSTS=<hex>}$"
        => ParseKind(not_ready), "nvme/host/core.c nvme_wait_ready(); 3.10-6.18";
    // The PCI core prints these records under the name of the driver.
    "nvme-power": NVME, "<Unable to|can't|Refused to|refused to> change power \
         state<, currently in D3| from D3cold to D0| from D3hot to D0| from unknown to D0>"
        => Cause(Removed, Unclear),
           "pci/pci.c pci_power_up(), pci_raw_set_power_state(); 2.6.32-6.18";
    "nvme-disconnect": NVME, "failure state error detected, request disconnect$"
        => Cause(Removed, Unclear), "nvme/host/pci.c nvme_error_detected(); 4.6-6.18";
    "nvme-no-queues": NVME, "IO queues <not created|lost>$"
        => Effect(Removed, Unclear), "nvme/host/pci.c nvme_reset_work(); 4.5-6.18";
    "nvme-firmware": NVME, "Fw activation timeout, reset controller$"
        => Cause(Reset, Unclear), "nvme/host/core.c nvme_fw_act_work(); 4.15-6.18";
    "nvme-shutdown": NVME, "Device shutdown incomplete; abort shutdown$"
        => Continuation, "nvme/host/core.c nvme_shutdown_ctrl(); 3.10-6.18";
    "nvme-removing": NVME, "Removing after probe failure{ status: <dec>}$"
        => ParseKind(controller_removed), "nvme/host/pci.c nvme_remove_dead_ctrl(); 4.5-6.3";
    "nvme-disabling": NVME, "Disabling device after reset failure: <dec>$"
        => ParseKind(controller_removed), "nvme/host/pci.c nvme_reset_work(); 6.4-6.18";
    "nvme-live": NVME, "failed to mark controller live{ state}$"
        => Continuation, "nvme/host/pci.c nvme_reset_work(); 4.20-6.18";
    "nvme-aer": NVME, "resetting controller due to AER$"
        => Cause(Reset, Unclear), "nvme/host/pci.c nvme_slot_reset(), core.c; 4.12-6.18";
    "nvme-frozen": NVME, "frozen state error detected, reset controller$"
        => Cause(Reset, Unclear), "nvme/host/pci.c nvme_error_detected(); 4.6-6.18";
    "nvme-internal": NVME, "resetting controller due to persistent internal error$"
        => Cause(Reset, Yes), "nvme/host/core.c nvme_handle_aer_persistent_error(); 6.0-6.18";
    "nvme-fatal": NVME, "controller fatal status, resetting"
        => Cause(Reset, Yes), "nvme/host/core.c nvme_fw_act_work(); 4.15-6.18";
    "nvme-identify-timeout": NVME, "Identify Controller failed (<dec>)$"
        => Continuation, "nvme/host/core.c nvme_init_identify(); 3.10-6.18";
    "nvme-status": NVME.rate_limited().with_prefix("{nvme }<dev>: "),
        "<words>(0x<hex>){ @ LBA <dec>, <dec> blocks}, <words>(sct 0x<hex> / sc 0x<hex>)"
        => Parse(status), "nvme/host/core.c nvme_log_error(), nvme_log_err_passthru(); 5.17-6.18";
    "nvme-no-path": NVME.with_prefix("block <disk>: "),
        "no <available path - failing|usable path - requeuing> I/O$"
        => Effect(Transport, No), "nvme/host/multipath.c nvme_ns_head_submit_bio(); 4.15-6.18";
    "nvme-duplicate": NVME, "Duplicate cntlid <dec> with <nvme>, "
        => Continuation, "nvme/host/core.c nvme_validate_cntlid(); 4.18-6.18";
    // Only NVMe over fabrics prints these records.
    "nvme-recovery": NVME, "starting error recovery$"
        => Cause(Transport, No), "nvme/host/tcp.c, rdma.c nvme_tcp_error_recovery(); 5.0-6.18";
    "nvme-keep-alive": NVME, "keep-alive <failed: |support is mandatory for fabrics>"
        => Cause(Transport, No), "nvme/host/core.c nvme_keep_alive_end_io(); 4.8-6.18";
    "nvme-keep-alive-failed": NVME, "failed nvme_keep_alive_end_io error=<dec>$"
        => Cause(Transport, No), "nvme/host/core.c nvme_keep_alive_end_io(); 4.8-6.18";
    "nvme-socket": NVME, "<failed to send request |receive failed:|failed to connect socket: \
         |failed to connect queue: |data digest error: |header digest error: \
         |rdma connection establishment failed (|Connect rejected: status |Connect command failed, \
         |Property Get error: |Property Set error: |queue 0 connect >"
        => Cause(Transport, No), "nvme/host/tcp.c nvme_tcp_try_recv(), rdma.c, fabrics.c; 4.8-6.18";
    "nvme-access-state": NVME, "ANATT timeout, resetting controller.$"
        => Cause(Reset, No), "nvme/host/multipath.c nvme_anatt_timeout(); 4.19-6.18";
    "nvme-fabric-removed": NVME, "Removing controller{ (<dec>)}...$"
        => Cause(Removed, No),
           "nvme/host/tcp.c, rdma.c nvme_tcp_reconnect_or_remove(): no connection left; 4.8-6.18";
    "nvme-reconnecting": NVME, "<R|r>econnecting in <dec> seconds"
        => Cause(Transport, No), "nvme/host/tcp.c, rdma.c nvme_tcp_reconnect_or_remove(); 4.8-6.18";
    "nvme-reconnect": NVME, "Failed reconnect attempt"
        => Cause(Transport, No), "nvme/host/tcp.c, rdma.c, fc.c; 4.8-6.18";
    "nvme-transport-error": FC, "transport error during (re)connect$"
        => Cause(Transport, No), "nvme/host/fc.c nvme_fc_error_recovery(); 4.10-6.18";
    "nvme-association": FC, "transport association <event|error detected>: "
        => Cause(Transport, No), "nvme/host/fc.c nvme_fc_ctrl_connectivity_loss(); 4.10-6.18";
    "nvme-fc-io": FC, "<io failed due to |reconnect failure|Max reconnect attempts (|dev_loss_tmo (\
         |reset: Reconnect attempt failed (|resetting controller>"
        => Cause(Transport, No),
           "nvme/host/fc.c nvme_fc_fcpio_done(), nvme_fc_reconnect_or_delete(); 4.10-6.18";
    "nvme-connectivity": FC, "controller connectivity lost."
        => Cause(Transport, No), "nvme/host/fc.c nvme_fc_ctrl_connectivity_loss(); 4.10-6.18";
    "nvme-fabric": NVME, "new ctrl: {NQN }\""
        => OVER_NETWORK, "nvme/host/tcp.c, rdma.c, fc.c, target/loop.c; 4.8-6.18";
    "nvme-fabric-fc": FC, "new ctrl: NQN \""
        => OVER_NETWORK, "nvme/host/fc.c nvme_fc_init_ctrl(); 4.10-6.18";
    "nvme-unfabric": NVME, "Removing ctrl: NQN \""
        => OVER_NETWORK, "nvme/host/core.c, fabrics.c; 4.19-6.18";
    "nvme-attached": NVME, "pci function <pci>$"
        => Parse(attached), "nvme/host/pci.c nvme_probe(); 4.5-6.18";
}

/// Other drivers' records name the controller by its PCI function.
fn attached(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    Some(ParsedRecord {
        other_name: text.devices.first().cloned(),
        ..ParsedRecord::from_text(text, RecordKind::Topology(TopologyUpdate::DiskAttached))
    })
}

/// `I/O 900 (I/O Cmd) QID 2 timeout, aborting`; `…, reset controller` after an abort without
/// success; `…, disable controller` when the reset's own commands are not completed either; `…,
/// completion polled` when the drive had completed the command and only the interrupt was lost.
fn timeout(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let (blame, secondary) = match *text.fields.last()? {
        "completion polled" => (No, None),
        "reset controller" => (Unclear, Some((Reset, Unclear))),
        "disable controller" => (Yes, None),
        _ => (Unclear, None),
    };
    Some(ParsedRecord {
        secondary,
        ..ParsedRecord::from_text(text, RecordKind::Cause(Timeout, blame))
    })
}

/// CSTS.RDY does not follow CC.EN within CAP.TO, the controller's own limit: the controller failed.
/// Exceptions: it is absent from the bus (all ones), or it is shutting down (`aborting shutdown`:
/// CSTS.SHST, nvme_disable_ctrl(), 6.2-6.18).
fn not_ready(text: &MatchedText<'_>) -> Option<RecordKind> {
    let blame = match text.fields {
        ["shutdown", ..] | [_, "0xffffffff"] => Unclear,
        _ => Yes,
    };
    Some(RecordKind::Cause(Timeout, blame))
}

/// -ENODEV, -EIO and -ETIMEDOUT mean a drive that does not respond. Other errors mean that the
/// driver rejects the drive (-EINVAL: a quirk is missing).
fn controller_removed(text: &MatchedText<'_>) -> Option<RecordKind> {
    let status = text.fields.first().and_then(|number| number.parse::<i32>().ok());
    let blame = if matches!(status, Some(-19 | -5 | -110 | -4) | None) { Unclear } else { No };
    Some(RecordKind::Cause(Removed, blame))
}

/// Status code type and status code (NVM Express Base 2.0, figures 97-103; include/linux/nvme.h).
fn status(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let is_controller = match text.device {
        DeviceName::Nvme(_) => true,
        DeviceName::Block(name) if name.starts_with("nvme") => false,
        _ => return None,
    };
    let [_, opcode, .., sct, sc] = text.fields else {
        return None;
    };
    let number = |text: &str| u16::from_str_radix(text, 16).ok();
    let (sct, sc) = (number(sct)?, number(sc)?);
    let each = |class: Class, blame| RecordKind::SeparateCause(class, blame);
    let kind = match (sct, sc) {
        (0, 0x04) => each(Transport, Unclear),
        // Internal error: reported by the controller, but not about the medium.
        (0, 0x06) => each(Io, Unclear),
        (0, 0x05) | (0, 0x07..=0x0a) | (3, 0x71) => RecordKind::Continuation,
        // Namespace is write-protected.
        (0, 0x20) => each(ReadOnly, Unclear),
        (0, 0x22) | (3, 0x00..=0x70) => each(Transport, No),
        (0, 0x82) => each(Io, Unclear),
        // Write fault, unrecovered read error.
        (2, 0x80 | 0x81) => each(Medium, Yes),
        // Guard, application and reference tag: the data differ from the data written; where they
        // were corrupted is unknown.
        (2, 0x82..=0x84 | 0x88) => each(Medium, Unclear),
        // For an admin command, which the block layer does not report again.
        (0..=2, _) if is_controller => RecordKind::Continuation,
        // Invalid fields, out of range, command specific status.
        (0 | 1, _) => RecordKind::ExpectedFailure { medium: false },
        // Compare failed, access denied (a locked drive), deallocated block: nvme_error_status()
        // converts them to BLK_STS_MEDIUM.
        (2, _) => RecordKind::ExpectedFailure { medium: true },
        _ => each(Io, Unclear),
    };
    let operation = match *opcode {
        "2" => Some(Operation::Read),
        "1" => Some(Operation::Write),
        _ => None,
    };
    // The LBA is in the namespace's own unit, which is unknown here: the block layer's record has
    // the sector.
    Some(ParsedRecord { operation, ..ParsedRecord::from_text(text, kind) })
}
