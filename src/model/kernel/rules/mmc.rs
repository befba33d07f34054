//! SD cards and eMMC: one host, one card, and the two are hard to tell apart.

use crate::model::kernel::event::Blame::*;
use crate::model::kernel::event::Class::*;
use crate::model::kernel::event::Device;
use crate::model::kernel::said::Says::*;
use crate::model::kernel::said::{Learn, Part, Rule, Said, Text, rule};

pub const RULES: &[Rule] = &[
    rule(
        "mmc-attached",
        "mmcblk",
        ": mmc",
        Read(attached),
        "drivers/mmc/core/block.c mmc_blk_alloc_req(): `mmcblk0: mmc0:0001 …`; 3.10-6.18",
    ),
    rule(
        "mmc-status",
        "mmcblk",
        "requesting status",
        Read(error),
        "drivers/mmc/card/block.c mmc_blk_cmd_recovery(), core/block.c; 3.10-6.18",
    ),
    rule(
        "mmc-transfer",
        "mmcblk",
        "transferring data",
        Read(error),
        "drivers/mmc/card/block.c mmc_blk_err_check(); 3.10-4.14",
    ),
    rule(
        "mmc-command",
        "mmcblk",
        "timed out sending",
        Cause(Timeout, Unclear),
        "drivers/mmc/card/block.c mmc_blk_cmd_error(); 3.10-4.14",
    ),
    rule(
        "mmc-send",
        "mmcblk",
        "sending r/w cmd command",
        Read(error),
        "drivers/mmc/card/block.c; up to 3.19, and vendors'",
    ),
    rule(
        "mmc-recovery",
        "mmcblk",
        "recovery failed!",
        Cause(Removed, Unclear),
        "drivers/mmc/core/block.c mmc_blk_mq_rw_recovery(); 4.16-6.18",
    ),
    rule(
        "mmc-stuck",
        "mmc",
        "Card stuck in ",
        Read(host_timeout),
        "drivers/mmc/core/mmc_ops.c mmc_poll_for_busy(), block.c; 3.10-6.18",
    ),
    rule(
        "mmc-interrupt",
        "mmc",
        "Timeout waiting for hardware interrupt",
        Read(host_timeout),
        "drivers/mmc/host/sdhci.c sdhci_timeout_timer(); 3.10-6.18",
    ),
    rule(
        "mmc-cqhci",
        "mmc",
        "cqhci: timeout for tag",
        Read(host_timeout),
        "drivers/mmc/host/cqhci-core.c cqhci_timeout(); 4.16-6.18",
    ),
    rule(
        "mmc-never-busy",
        "mmc",
        "card never left busy state",
        Read(host_timeout),
        "drivers/mmc/core/core.c mmc_wait_for_req_done(); 3.10-6.18",
    ),
];

fn attached(text: &Text<'_>) -> Option<Said> {
    let host = text
        .after
        .split(':')
        .next()
        .filter(|host| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit()));
    Some(Said {
        also: host.map(|host| Device::Block(format!("mmc{host}"))),
        ..Said::of(text, Part::Learn(Learn::Attached))
    })
}

/// -110 is a time-out, -84 a CRC error on the wires.
fn error(text: &Text<'_>) -> Option<Said> {
    let class = if text.before.contains("-84") {
        Transport
    } else {
        Timeout
    };
    Some(Said::of(text, Part::Cause(class, Unclear)))
}

/// The host's name is not the card's: `mmc0` has `mmcblk0` mostly, and not always; what
/// `mmc-attached` has taught says it (`Learned::card`).
fn host_timeout(text: &Text<'_>) -> Option<Said> {
    let host: String = text
        .all
        .trim_start()
        .strip_prefix("mmc")?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    (!host.is_empty()).then(|| {
        Said::new(
            Device::Block(format!("mmc{host}")),
            Part::Cause(Timeout, Unclear),
        )
    })
}
