//! Parser of device names in kernel messages: the positions at which drivers print them, and which
//! names belong to one disk.
//!
//! In: a record's text. Out: `DeviceName`s. Does not resolve which device has a name at present.

use crate::model::dev::DevNo;
use crate::model::kernel_log::event::DeviceName;

/// The device at the text's beginning, and its second name (`sd 2:0:0:0: [sdb]`).
pub(crate) fn find_in_text(text: &str) -> (DeviceName, Option<DeviceName>) {
    let text = text.trim_start();
    let (first, rest) = token(text);
    let device = match first {
        "sd" | "scsi" | "sr" | "st" | "ses" | "osst" | "ch" | "sg" => {
            return parse_scsi_prefix(rest);
        }
        "nvme" => rest
            .split([':', ' '])
            .next()
            .and_then(parse_nvme_controller)
            .or_else(|| parse_pci(rest)),
        "block" => rest.split(':').next().and_then(parse_block),
        "XFS" | "EXT4-fs" | "EXT3-fs" | "EXT2-fs" | "F2FS-fs" | "FAT-fs" | "BTRFS" | "BTRFS:"
        | "GFS2:" | "ext4" | "JFS" | "EROFS" => parse_parenthesized(text),
        "device-mapper:" => parse_dm_prefix(rest),
        _ => parse_driver_prefix(first, rest),
    };
    (device.unwrap_or(DeviceName::Unnamed), None)
}

/// `2:0:0:0: [sdb] …`, `host6: …`
fn parse_scsi_prefix(rest: &str) -> (DeviceName, Option<DeviceName>) {
    let (first, after) = token(rest);
    let Some(hctl) = parse_hctl(first.trim_end_matches(':')) else {
        return (
            first
                .trim_end_matches(':')
                .strip_prefix("host")
                .and_then(|host| host.parse().ok())
                .map_or(DeviceName::Unnamed, DeviceName::ScsiHost),
            None,
        );
    };
    let letters = after
        .strip_prefix('[')
        .and_then(|text| text.split_once(']'))
        .and_then(|(name, _)| parse_block(name));
    match letters {
        Some(name) => (name, Some(hctl)),
        None => (hctl, None),
    }
}

/// A name before the first colon: `ata3.00:`, `nvme0n1:`, `mmcblk0:`, `md/raid1:md0:`,
/// `md: sdb1 …`, `virtio_blk virtio1: [vda]`.
fn parse_driver_prefix(first: &str, rest: &str) -> Option<DeviceName> {
    if let Some((_, array)) = first.trim_end_matches(':').split_once("md/raid") {
        return array
            .split_once(':')
            .and_then(|(_, name)| parse_block(name));
    }
    let name = first.split(':').next().unwrap_or_default();
    if let Some(ata) = parse_ata(name) {
        return Some(ata);
    }
    if let Some(host) = name.strip_prefix("scsi").and_then(|host| host.parse().ok()) {
        return Some(DeviceName::ScsiHost(host));
    }
    if first.ends_with(':') && is_disk_name(name) {
        return parse_block(name);
    }
    if let Some(nvme) = parse_nvme_controller(name) {
        return Some(nvme);
    }
    if let Some(device) = rest
        .split_once('[')
        .and_then(|(before, after)| (before.len() < 40).then_some(after))
        .and_then(|after| after.split_once(']'))
        && is_disk_name(device.0)
    {
        return parse_block(device.0);
    }
    parse_pci(rest)
}

/// `(device sda1)`, `(device sda1 state EA)`, `(dm-4)`, `(device <uuid>)`
fn parse_parenthesized(text: &str) -> Option<DeviceName> {
    let head = text
        .char_indices()
        .nth(90)
        .map_or(text, |(end, _)| &text[..end]);
    let (inside, _) = head.split_once('(')?.1.split_once(')')?;
    let name = inside.strip_prefix("device ").unwrap_or(inside);
    let name = name.strip_prefix("dev ").unwrap_or(name);
    parse(name.split(' ').next().unwrap_or_default())
}

/// `thin: 253:5: …`, `multipath: Failing path 8:176.`, `integrity: dm-0: …`
fn parse_dm_prefix(rest: &str) -> Option<DeviceName> {
    rest.split(": ").skip(1).take(2).find_map(parse)
}

/// A device name of any form.
pub(crate) fn parse(text: &str) -> Option<DeviceName> {
    let text = text.trim().trim_end_matches(['.', ',', ':']);
    let text = text.strip_prefix("/dev/").unwrap_or(text);
    if let Some(hctl) = parse_hctl(text) {
        return Some(hctl);
    }
    if let Ok(number) = text.parse::<DevNo>() {
        return Some(DeviceName::Number(number));
    }
    if text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4 {
        return Some(DeviceName::FilesystemId(text.to_owned()));
    }
    parse_ata(text)
        .or_else(|| parse_nvme_controller(text))
        .or_else(|| parse_block(text))
}

/// The block device name at the text's beginning.
pub(crate) fn parse_block(text: &str) -> Option<DeviceName> {
    let text = text.strip_prefix("/dev/").unwrap_or(text);
    let end = text
        .bytes()
        .position(|byte| {
            !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b'!'))
        })
        .unwrap_or(text.len());
    let name = &text[..end];
    let plausible = (2..=40).contains(&name.len()) && name.as_bytes()[0].is_ascii_lowercase();
    plausible.then(|| DeviceName::Block(name.replace('!', "/")))
}

fn parse_nvme_controller(text: &str) -> Option<DeviceName> {
    let number = text.strip_prefix("nvme")?;
    (!number.is_empty() && number.len() < 6 && number.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| DeviceName::Nvme(text.to_owned()))
}

fn parse_ata(text: &str) -> Option<DeviceName> {
    let number = text.strip_prefix("ata")?;
    let (port, device) = match number.split_once('.') {
        Some((port, device)) => (port, Some(device.parse().ok()?)),
        None => (number, None),
    };
    Some(DeviceName::Ata {
        port: port.parse().ok()?,
        device,
    })
}

fn parse_hctl(text: &str) -> Option<DeviceName> {
    let mut numbers = 0;
    for part in text.split(':') {
        if part.is_empty() || part.len() > 20 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        numbers += 1;
    }
    (numbers == 4).then(|| DeviceName::Hctl(text.to_owned()))
}

fn parse_pci(text: &str) -> Option<DeviceName> {
    let name = text.split([' ', ',']).next()?.trim_end_matches(':');
    let shape = name
        .bytes()
        .map(|byte| if byte.is_ascii_hexdigit() { b'x' } else { byte })
        .collect::<Vec<_>>();
    (shape == b"xxxx:xx:xx.x").then(|| DeviceName::Pci(name.to_owned()))
}

fn token(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn is_disk_name(name: &str) -> bool {
    [
        "sd", "nvme", "mmcblk", "vd", "xvd", "hd", "dm-", "md", "bcache", "nullb", "pmem", "dasd",
    ]
    .iter()
    .any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty()
                && (name.bytes().any(|byte| byte.is_ascii_digit())
                    || rest.bytes().all(|byte| byte.is_ascii_lowercase()))
        })
    })
}

/// The whole disk of a partition: `sda1` → `sda`, `nvme0n1p2` → `nvme0n1`.
pub(crate) fn whole_disk(name: &str) -> &str {
    let without = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if without.len() == name.len() {
        return name;
    }
    for letters in ["sd", "vd", "hd", "xvd"] {
        if without.strip_prefix(letters).is_some_and(|rest| {
            !rest.is_empty() && rest.len() < 4 && rest.bytes().all(|byte| byte.is_ascii_lowercase())
        }) {
            return without;
        }
    }
    match without.strip_suffix('p') {
        Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ => name,
    }
}

/// The common part of all names of one drive: the disk, for NVMe the controller (`nvme0c0n1` is a
/// path of `nvme0`).
pub(crate) fn drive_of(name: &str) -> &str {
    let disk = whole_disk(name);
    match disk
        .strip_prefix("nvme")
        .and_then(|rest| rest.find(|c: char| !c.is_ascii_digit()))
    {
        Some(digits) if digits > 0 => &disk[.."nvme".len() + digits],
        _ => disk,
    }
}

/// Never a drive: a software device, optical, tape, or a flash translation layer (mtdblock).
pub(crate) fn is_never_drive(name: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "loop", "sr", "scd", "fd", "ram", "zram", "nbd", "mtdblock", "st", "nst", "rbd", "drbd",
        "nullb", "ubiblock", "romblock", "cdrom",
    ];
    has_numbered_prefix(name, &PREFIXES)
}

/// Whether the name is one of the prefixes, followed by a digit.
fn has_numbered_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// `mmc0`: a host for a card, or for a radio (SDIO).
pub(crate) fn is_mmc_host(name: &str) -> bool {
    name.strip_prefix("mmc")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the name is that of a virtual disk.
pub(crate) fn is_virtual(name: &str) -> bool {
    ["vd", "xvd"].iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_lowercase()) && rest.len() < 6
        })
    })
}

/// Whether the device is stacked on others.
pub(crate) fn is_stacked(name: &str) -> bool {
    has_numbered_prefix(name, &["dm-", "md", "bcache"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let (device, also) = find_in_text(text);
        also.map_or(device.to_string(), |also| format!("{device} {also}"))
    }

    #[test]
    fn device_names_are_found_in_driver_prefixes() {
        for (text, names) in [
            ("sd 2:0:0:0: [sdb] tag#3 FAILED", "sdb 2:0:0:0"),
            ("sd 2:0:0:0: rejecting I/O to offline device", "2:0:0:0"),
            ("scsi host6: usb-storage 1-2:1.0", "host6"),
            ("scsi6 : ahci", "host6"),
            ("ata3: hard resetting link", "ata3"),
            ("ata3.01: disabled", "ata3.01"),
            ("nvme nvme0: I/O 1 QID 2 timeout, aborting", "nvme0"),
            ("nvme 0000:05:00.0: x", "0000:05:00.0"),
            ("nvme0n1: I/O Cmd(0x2) @ LBA 2048", "nvme0n1"),
            ("nvme0: Identify(0x6), Invalid Field", "nvme0"),
            ("block nvme0n1: no available path - failing I/O", "nvme0n1"),
            ("XFS (dm-4): Internal error", "dm-4"),
            ("EXT4-fs error (device sda1): x", "sda1"),
            ("EXT4-fs (sda1): x", "sda1"),
            ("BTRFS error (device sda3 state EA): x", "sda3"),
            ("BTRFS: error (device sda3) in f:1: errno=-5", "sda3"),
            ("device-mapper: thin: 253:5: switching", "253:5"),
            ("device-mapper: integrity: dm-0: Checksum failed", "dm-0"),
            ("md/raid1:md0: Disk failure on sdb1", "md0"),
            ("mmcblk1: error -110 requesting status", "mmcblk1"),
            (
                "virtio_blk virtio1: [vda] 20971520 512-byte logical blocks",
                "vda",
            ),
            ("Modules linked in: foo", "unnamed"),
            ("aacraid: Host adapter abort request.", "unnamed"),
            ("megaraid_sas 0000:01:00.0: x", "0000:01:00.0"),
        ] {
            assert_eq!(shown(text), names, "{text}");
        }
    }

    #[test]
    fn a_partition_is_of_a_disk_and_a_namespace_of_a_controller() {
        for (name, disk, of) in [
            ("sda1", "sda", "sda"),
            ("sdaa12", "sdaa", "sdaa"),
            ("nvme0n1p2", "nvme0n1", "nvme0"),
            ("nvme0c1n1", "nvme0c1n1", "nvme0"),
            ("nvme10", "nvme10", "nvme10"),
            ("mmcblk0p1", "mmcblk0", "mmcblk0"),
            ("md127p1", "md127", "md127"),
            ("md127", "md127", "md127"),
            ("dm-3", "dm-3", "dm-3"),
            ("loop0p1", "loop0", "loop0"),
        ] {
            assert_eq!((whole_disk(name), drive_of(name)), (disk, of), "{name}");
        }
    }

    #[test]
    fn software_optical_and_tape_devices_are_never_drives() {
        assert!(
            [
                "loop0",
                "sr0",
                "fd0",
                "ram1",
                "zram0",
                "nbd3",
                "mtdblock1",
                "st0"
            ]
            .iter()
            .all(|name| is_never_drive(name))
        );
        assert!(
            ["sda", "sdr1", "nvme0n1", "dm-0", "md0", "mmcblk0", "vda"]
                .iter()
                .all(|name| !is_never_drive(name))
        );
        assert!(is_virtual("vda1") && is_virtual("xvdb") && !is_virtual("sda"));
    }
}
