//! Device names in kernel messages: their forms, and which names belong to one disk.
//!
//! In: a name. Out: a `DeviceName`. Where a message has its names is said by its `pattern`; which
//! device has a name at present, by `device_map`.

use crate::event::DeviceName;
use diskvitals_finding::dev::DevNo;

/// A device name of any form.
pub fn parse(text: &str) -> Option<DeviceName> {
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
    parse_ata(text).or_else(|| parse_nvme_controller(text)).or_else(|| parse_block(text))
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

/// A text that is wholly the name of a block device, or its path in /dev.
pub(crate) fn parse_block_path(text: &str) -> Option<DeviceName> {
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    parse_block(name)
        .filter(|device| matches!(device, DeviceName::Block(parsed) if parsed.len() == name.len()))
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
    Some(DeviceName::Ata { port: port.parse().ok()?, device })
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

pub(crate) fn parse_pci(text: &str) -> Option<DeviceName> {
    let name = text.split([' ', ',']).next()?.trim_end_matches(':');
    let shape = name
        .bytes()
        .map(|byte| if byte.is_ascii_hexdigit() { b'x' } else { byte })
        .collect::<Vec<_>>();
    // Behind a VMD controller the domain has five digits or more.
    let domain = shape.iter().take_while(|byte| **byte == b'x').count();
    ((4..=8).contains(&domain) && shape[domain..] == *b":xx:xx.x")
        .then(|| DeviceName::Pci(name.to_owned()))
}

/// The whole disk of a partition: `sda1` → `sda`, `nvme0n1p2` → `nvme0n1`.
pub fn whole_disk(name: &str) -> &str {
    let without = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if without.len() == name.len() {
        return name;
    }
    for letters in ["sd", "vd", "hd", "xvd", "dasd"] {
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
pub fn drive_of(name: &str) -> &str {
    let disk = whole_disk(name);
    match disk.strip_prefix("nvme").and_then(|rest| rest.find(|c: char| !c.is_ascii_digit())) {
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

/// A disk whose data are on another machine.
pub fn is_remote(name: &str) -> bool {
    has_numbered_prefix(name, &["nbd", "rbd", "drbd"])
}

/// Devices of `is_never_drive` that can carry a volume.
pub const SOFTWARE_DEVICES: [&str; 7] = ["loop", "nbd", "rbd", "drbd", "zram", "nullb", "ubiblock"];

pub fn is_software_device(name: &str) -> bool {
    has_numbered_prefix(name, &SOFTWARE_DEVICES)
}

/// Whether the name is one of the prefixes, followed by a digit.
fn has_numbered_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
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
            ["loop0", "sr0", "fd0", "ram1", "zram0", "nbd3", "mtdblock1", "st0"]
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
