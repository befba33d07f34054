//! Rules for the IDE drivers (`hda`), which libata replaced; up to 5.13.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::event::{Blame, Class, DeviceName};
use crate::parsed_record::{MatchedText, ParsedRecord, RecordKind};
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, Evidence, RuleFamily, rules};

const IDE: RuleFamily = DRIVE.with_prefix("<disk>: ").with_evidence(Evidence::DriveStatus);

/// The names of the bits of the error register, as in libata's ata_dump_status().
const ERROR_BITS: [&str; 8] = [
    "DriveStatusError",
    "BadCRC",
    "BadSector",
    "Sector",
    "UncorrectableError",
    "SectorIdNotFound",
    "TrackZeroNotFound",
    "AddrMarkNotFound",
];

rules! {
    in "drivers/ide/";
    "ide-error": IDE, "<word>: error=0x<hex> <{|{>"
        => Parse(error), "ide-lib.c ide_dump_ata_error(), ide.c ide_dump_status(): `hda: dma_intr: \
            error=0x40 { UncorrectableError }, LBAsect=…, sector=…`; up to 5.13";
    "ide-timeout": IDE,
        "<irq timeout: status=0x|dma_timer_expiry: dma status == 0x|DMA timeout error>"
        => Parse(timeout), "ide-io.c ide_timer_expiry(), ide-dma.c dma_timer_expiry(); up to 5.13";
}

/// What the names in `{ … }` mean. None: one of them is no bit. Some(None): the command was rejected.
pub(super) fn error_bits(text: &str) -> Option<Option<(Class, Blame)>> {
    let (bits, _) = text.split_once('}')?;
    let mut bits = bits.split_ascii_whitespace();
    let has = |bit: &str| text.split('}').next().is_some_and(|bits| bits.contains(bit));
    if !bits.all(|bit| ERROR_BITS.contains(&bit)) {
        return None;
    }
    Some(match () {
        // An UDMA transfer sets both bits for a damaged transfer.
        () if has("BadCRC") => Some((Transport, Unclear)),
        () if has("UncorrectableError") || has("AddrMarkNotFound") => Some((Medium, Yes)),
        () if has("SectorIdNotFound") => Some((Medium, Unclear)),
        () => None,
    })
}

fn is_disk(device: &DeviceName) -> bool {
    matches!(device, DeviceName::Block(name) if name.starts_with("hd"))
}

fn error(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    let kind = match error_bits(text.after)? {
        Some((class, blame)) => RecordKind::Cause(class, blame),
        None => RecordKind::Continuation,
    };
    let sector = text
        .after
        .rsplit_once(", sector=")
        .and_then(|(_, sector)| sector.trim_ascii().parse().ok());
    is_disk(text.device).then(|| ParsedRecord { sector, ..ParsedRecord::from_text(text, kind) })
}

fn timeout(text: &MatchedText<'_>) -> Option<ParsedRecord> {
    is_disk(text.device).then(|| ParsedRecord::from_text(text, RecordKind::Cause(Timeout, Unclear)))
}
