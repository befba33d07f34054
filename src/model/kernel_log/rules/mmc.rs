//! Rules for SD cards and eMMC: one host has one card, and a record contains the name of either.

use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::DeviceName;
use crate::model::kernel_log::parsed_record::{
    MatchedText, ParsedRecord, RecordKind, TopologyUpdate,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Rule, RuleFamily};

/// The card's disk, or the host.
const MMC: RuleFamily = DRIVE.with_prefix("<disk>: ");

pub(crate) const RULES: &[Rule] = &[
    MMC.rule(
        "mmc-attached",
        "<disk>:<hex> ",
        Parse(attached),
        "drivers/mmc/core/block.c mmc_blk_alloc_req(): `mmcblk0: mmc0:0001 …`; 3.10-6.18",
    ),
    MMC.rule(
        "mmc-status",
        "error <dec> requesting status",
        ParseKind(error),
        "drivers/mmc/card/block.c mmc_blk_cmd_recovery(), core/block.c; 3.10-6.18",
    ),
    MMC.rule(
        "mmc-transfer",
        "error <dec> transferring data",
        ParseKind(error),
        "drivers/mmc/card/block.c mmc_blk_err_check(); 3.10-4.14",
    ),
    MMC.rule(
        "mmc-command",
        "timed out sending <r/w cmd|SET_BLOCK_COUNT|stop> command",
        ParseKind(command_timeout),
        "drivers/mmc/card/block.c mmc_blk_cmd_error(); 3.10-4.14",
    ),
    MMC.rule(
        "mmc-send",
        "<response CRC |unknown |>error {<dec> }sending r/w cmd command",
        ParseKind(error),
        "drivers/mmc/card/block.c; up to 3.19, and vendors'",
    ),
    MMC.rule(
        "mmc-recovery",
        "recovery failed!$",
        ParseKind(recovery_failed),
        "drivers/mmc/core/block.c mmc_blk_mq_rw_recovery(); 4.16-6.18",
    ),
    MMC.rule(
        "mmc-stuck",
        "Card stuck in <programming|wrong> state",
        ParseKind(host_timeout),
        "drivers/mmc/core/mmc_ops.c mmc_poll_for_busy(), block.c; 3.10-6.18",
    ),
    MMC.rule(
        "mmc-interrupt",
        "Timeout waiting for hardware interrupt",
        ParseKind(host_timeout),
        "drivers/mmc/host/sdhci.c sdhci_timeout_timer(); 3.10-6.18",
    ),
    MMC.rule(
        "mmc-cqhci",
        "cqhci: timeout for tag <dec>",
        ParseKind(host_timeout),
        "drivers/mmc/host/cqhci-core.c cqhci_timeout(); 4.16-6.18",
    ),
    MMC.rule(
        "mmc-never-busy",
        "card never left busy state",
        ParseKind(host_timeout),
        "drivers/mmc/core/core.c mmc_wait_for_req_done(); 3.10-6.18",
    ),
];

fn is_card(device: &DeviceName) -> bool {
    matches!(device, DeviceName::Block(name) if name.starts_with("mmcblk"))
}

fn is_host(device: &DeviceName) -> bool {
    matches!(device, DeviceName::Block(name) if device_name::is_mmc_host(name))
}

/// `mmcblk0: mmc0:0001 SD16G 14.8 GiB`: the card's address has four digits, and a program's name is
/// shorter than the text up to it.
fn attached(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let ([host], [address]) = (text.devices, text.fields) else {
        return None;
    };
    (is_card(text.device) && is_host(host) && address.len() == 4).then(|| ParsedRecord {
        other_name: Some(host.clone()),
        ..ParsedRecord::from_text(text, RecordKind::Topology(TopologyUpdate::DiskAttached))
    })
}

/// -110 is a timeout, -84 a CRC error on the bus.
fn error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let class = if text.fields.contains(&"-84") {
        Transport
    } else {
        Timeout
    };
    is_card(text.device).then_some(RecordKind::Cause(class, Unclear))
}

fn command_timeout(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_card(text.device).then_some(RecordKind::Cause(Timeout, Unclear))
}

fn recovery_failed(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_card(text.device).then_some(RecordKind::Cause(Removed, Unclear))
}

/// The host's number is not the card's: `mmc0` usually, but not always, has `mmcblk0`.
/// `DeviceMap::add_card` records the pair from `mmc-attached`.
fn host_timeout(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_host(text.device).then_some(RecordKind::Cause(Timeout, Unclear))
}
