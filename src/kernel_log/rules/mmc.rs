//! Rules for SD cards and eMMC: one host has one card, and a record contains the name of either.

use crate::device_name;
use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{Class, DeviceName};
use crate::parsed_record::{DeviceKind, MatchedText, ParsedRecord, RecordKind, TopologyUpdate};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Role, RuleFamily, rules};

/// The card's disk, or the host.
const MMC: RuleFamily = DRIVE.with_prefix("<disk>: ");
/// The host, about a card that it has initialized.
const OF_CARD: RuleFamily = MMC.with_role(Role::CardPresent);

rules! {
    in "drivers/mmc/";
    "mmc-attached": MMC, "<disk>:<hex> "
        => Parse(attached), "core/block.c mmc_blk_alloc_req(): `mmcblk0: mmc0:0001 …`; 3.10-6.18";
    "mmc-error": MMC,
        "error <dec> <requesting status|transferring data|sending |reading general status>"
        => ParseKind(error),
           "card/block.c mmc_blk_issue_rw_rq(), mmc_blk_cmd_recovery(), core/block.c; 2.6.32-6.18";
    "mmc-no-retry": MMC,
        "<not retrying|command error, retrying|status not valid, retrying> timeout$"
        => ParseKind(command_timeout), "card/block.c mmc_blk_cmd_error(); 3.2-4.14";
    "mmc-command": MMC, "timed out sending <r/w cmd|SET_BLOCK_COUNT|stop> command"
        => ParseKind(command_timeout), "card/block.c mmc_blk_cmd_error(); 3.10-4.14";
    "mmc-send": MMC, "<response CRC |unknown |>error {<dec> }sending r/w cmd command"
        => ParseKind(response_error), "card/block.c; up to 3.19, and vendors'";
    "mmc-recovery": MMC, "recovery failed!$"
        => ParseKind(command_timeout), "core/block.c mmc_blk_mq_rw_recovery(); 4.16-6.18";
    "mmc-stuck": OF_CARD, "Card stuck <in programming state|in wrong state|being busy>! "
        => ParseKind(host_timeout), "core/mmc_ops.c mmc_poll_for_busy(), block.c; 3.10-6.18";
    "mmc-interrupt": MMC, "Timeout waiting for hardware {cmd }interrupt"
        => ParseKind(host_timeout),
           "host/sdhci.c sdhci_timeout_timer(), sdhci_timeout_data_timer(); 2.6.32-6.18";
    "mmc-cqhci": OF_CARD, "cqhci: timeout for tag <dec>"
        => ParseKind(host_timeout), "host/cqhci-core.c cqhci_timeout(); 4.16-6.18";
    "mmc-never-busy": OF_CARD, "card never left busy state"
        => ParseKind(host_timeout), "core/core.c mmc_wait_for_req_done(); 3.10-6.18";
    "mmc-inhibited": MMC, "Controller never released inhibit bit(s)."
        => ParseKind(host_failed), "host/sdhci.c sdhci_send_command(); 2.6.32-6.18";
    // An MMC card is nearly always an eMMC, which nobody can pull out.
    "mmc-initialising-emmc": OF_CARD, "error <dec> whilst initialising MMC card$"
        => ParseKind(host_error), "core/mmc.c mmc_attach_mmc(); 2.6.32-6.18";
    "mmc-resume": MMC, "error <dec> during resume (card was removed?)$"
        => ParseKind(host_error), "core/core.c mmc_resume_host(), mmc_resume_bus(); 2.6.32-6.18";
    // Without `SDIO card`, which is a radio.
    "mmc-initialising": MMC, "error <dec> whilst initialising SD card$"
        => ParseKind(host_error), "core/sd.c mmc_attach_sd(); 2.6.32-6.18";
    "mmc-host-error": OF_CARD, "<cache|Cache> flush error <dec>$"
        => ParseKind(host_error), "core/mmc.c mmc_flush_cache(), _mmc_flush_cache(); 3.8-6.18";
    "mmc-suspend": OF_CARD, "error <dec> doing <runtime|aggressive> <suspend|resume>$"
        => ParseKind(host_error), "core/mmc.c, sd.c mmc_runtime_suspend(); 3.10-6.18";
    "mmc-dma": MMC, "ADMA error{: 0x<hex>}$"
        => ParseKind(host_transport), "host/sdhci.c sdhci_data_irq(); 2.6.32-6.18";
    "mmc-recovering": OF_CARD, "<running CQE recovery|tried to HW reset card, got error \
         |tried to SW reset card, got error >"
        => ParseKind(host_reset), "core/core.c mmc_cqe_recovery(), mmc_hw_reset(); 4.14-6.18";
    "mmc-pulled-out": MMC, "Card removed during transfer!$"
        => ParseKind(host_removed), "host/sdhci.c sdhci_card_event(): by a person; 2.6.32-6.18";
    "mmc-new": MMC, "new <words>"
        => ParseKind(new_card),
           "core/bus.c mmc_add_card(): `new high speed SDIO card at address 0001`; 2.6.32-6.18";
}

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

/// -ETIMEDOUT: no answer; -EILSEQ: a CRC error on the bus; -ENOMEDIUM: pulled out; others: the host
/// gave up.
fn class_of(errno: &str) -> Class {
    match errno {
        "-84" => Transport,
        "-123" => Removed,
        _ => Timeout,
    }
}

fn error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let class = class_of(text.fields.first()?);
    is_card(text.device).then_some(RecordKind::Cause(class, Unclear))
}

/// `response CRC error sending r/w cmd command`, `unknown error -110 sending r/w cmd command`
fn response_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let class = match text.fields {
        ["response CRC ", ..] => Transport,
        [.., errno] => class_of(errno),
        [] => Timeout,
    };
    is_card(text.device).then_some(RecordKind::Cause(class, Unclear))
}

fn command_timeout(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_card(text.device).then_some(RecordKind::Cause(Timeout, Unclear))
}

/// The host's number is not the card's: `mmc0` usually, but not always, has `mmcblk0`.
/// `DeviceMap::add_card` records the pair from `mmc-attached`.
fn host_timeout(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_host(text.device).then_some(RecordKind::Cause(Timeout, Unclear))
}

fn host_error(text: &MatchedText<'_>) -> Option<RecordKind> {
    let class = text
        .fields
        .iter()
        .find(|field| field.parse::<i32>().is_ok())
        .map(|errno| class_of(errno))?;
    is_host(text.device).then_some(RecordKind::Cause(class, Unclear))
}

/// The host, and not the card.
fn host_failed(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_host(text.device).then_some(RecordKind::Cause(Timeout, No))
}

fn host_transport(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_host(text.device).then_some(RecordKind::Cause(Transport, Unclear))
}

fn host_reset(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_host(text.device).then_some(RecordKind::Cause(Reset, Unclear))
}

fn host_removed(text: &MatchedText<'_>) -> Option<RecordKind> {
    is_host(text.device).then_some(RecordKind::Cause(Removed, No))
}

/// An SDIO card is a radio; a combined one (`SDIO combo card`) has both.
fn new_card(text: &MatchedText<'_>) -> Option<RecordKind> {
    let card = text.fields.first()?;
    let update = match card {
        _ if card.contains("SDIO card at address ") => TopologyUpdate::Kind(DeviceKind::Other),
        _ if card.contains(" card at address ") => TopologyUpdate::CardFound,
        _ => return None,
    };
    is_host(text.device).then_some(RecordKind::Topology(update))
}
