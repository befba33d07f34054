//! Rules for SD cards and eMMC: one host has one card, and a record contains the name of either.

use crate::model::kernel_log::event::Blame::*;
use crate::model::kernel_log::event::Class::*;
use crate::model::kernel_log::event::DeviceName;
use crate::model::kernel_log::parsed_record::{
    MatchedText, ParsedRecord, RecordKind, TopologyUpdate, leading_digits,
};
use crate::model::kernel_log::rule::RuleAction::*;
use crate::model::kernel_log::rule::{DRIVE, Rule};

pub(crate) const RULES: &[Rule] = &[
    DRIVE.with_prefix("mmcblk").rule(
        "mmc-attached",
        ": mmc",
        Parse(attached),
        "drivers/mmc/core/block.c mmc_blk_alloc_req(): `mmcblk0: mmc0:0001 …`; 3.10-6.18",
    ),
    DRIVE.with_prefix("mmcblk").rule(
        "mmc-status",
        "requesting status",
        ParseKind(error),
        "drivers/mmc/card/block.c mmc_blk_cmd_recovery(), core/block.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("mmcblk").rule(
        "mmc-transfer",
        "transferring data",
        ParseKind(error),
        "drivers/mmc/card/block.c mmc_blk_err_check(); 3.10-4.14",
    ),
    DRIVE.with_prefix("mmcblk").rule(
        "mmc-command",
        "timed out sending",
        Cause(Timeout, Unclear),
        "drivers/mmc/card/block.c mmc_blk_cmd_error(); 3.10-4.14",
    ),
    DRIVE.with_prefix("mmcblk").rule(
        "mmc-send",
        "sending r/w cmd command",
        ParseKind(error),
        "drivers/mmc/card/block.c; up to 3.19, and vendors'",
    ),
    DRIVE.with_prefix("mmcblk").rule(
        "mmc-recovery",
        "recovery failed!",
        Cause(Removed, Unclear),
        "drivers/mmc/core/block.c mmc_blk_mq_rw_recovery(); 4.16-6.18",
    ),
    DRIVE.with_prefix("mmc").rule(
        "mmc-stuck",
        "Card stuck in ",
        Parse(host_timeout),
        "drivers/mmc/core/mmc_ops.c mmc_poll_for_busy(), block.c; 3.10-6.18",
    ),
    DRIVE.with_prefix("mmc").rule(
        "mmc-interrupt",
        "Timeout waiting for hardware interrupt",
        Parse(host_timeout),
        "drivers/mmc/host/sdhci.c sdhci_timeout_timer(); 3.10-6.18",
    ),
    DRIVE.with_prefix("mmc").rule(
        "mmc-cqhci",
        "cqhci: timeout for tag",
        Parse(host_timeout),
        "drivers/mmc/host/cqhci-core.c cqhci_timeout(); 4.16-6.18",
    ),
    DRIVE.with_prefix("mmc").rule(
        "mmc-never-busy",
        "card never left busy state",
        Parse(host_timeout),
        "drivers/mmc/core/core.c mmc_wait_for_req_done(); 3.10-6.18",
    ),
];

fn attached(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let host = text
        .after
        .split(':')
        .next()
        .filter(|host| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit()));
    Some(ParsedRecord {
        other_name: host.map(|host| DeviceName::Block(format!("mmc{host}"))),
        ..ParsedRecord::from_text(text, RecordKind::Topology(TopologyUpdate::DiskAttached))
    })
}

/// -110 is a timeout, -84 a CRC error on the bus.
fn error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let class = if text.before.contains("-84") {
        Transport
    } else {
        Timeout
    };
    Some(RecordKind::Cause(class, Unclear))
}

/// The host's number is not the card's: `mmc0` usually, but not always, has `mmcblk0`.
/// `DeviceMap::add_card` records the pair from `mmc-attached`.
fn host_timeout(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let host = leading_digits(text.all.trim_start().strip_prefix("mmc")?);
    (!host.is_empty()).then(|| {
        ParsedRecord::new(
            DeviceName::Block(format!("mmc{host}")),
            RecordKind::Cause(Timeout, Unclear),
        )
    })
}
