//! Builds drives from block devices: SCSI and ATA disks, virtio, MMC, nbd, and virtual devices that
//! the configuration admits. NVMe: see `nvme`.
//!
//! `detect` reads the attributes of one node, `build_drives` decides which nodes are one drive and
//! which id it has.

use crate::inventory::block::{BlockEntry, file_name, parent};
use crate::inventory::classify::{self, DiskProperties};
use crate::inventory::formats::{self, AtaIdentify, Wwid};
use crate::inventory::identity::{self, IdentityCandidate};
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::block::Layer;
use diskvitals_model::drive::{
    DriveDevice, DriveFacts, DriveKind, FlashHealth, Location, Transport, WriteCache, model_serial,
};

/// A drive, or one path to it: its facts, still without an id, and the candidates for its id.
pub struct DetectedDrive {
    pub facts: DriveFacts,
    pub candidate: IdentityCandidate,
}

/// Assigns an id to each drive and joins the paths of a drive. Sorted by id.
pub(crate) fn build_drives(found: Vec<DetectedDrive>) -> Vec<DriveFacts> {
    let candidates: Vec<IdentityCandidate> =
        found.iter().map(|found| found.candidate.clone()).collect();
    let mut facts: Vec<Option<DriveFacts>> =
        found.into_iter().map(|found| Some(found.facts)).collect();
    let mut drives: Vec<DriveFacts> = identity::assign_ids(&candidates)
        .into_iter()
        .filter_map(|assigned| {
            let mut paths = assigned.members.iter().filter_map(|at| facts.get_mut(*at)?.take());
            let first = paths.next()?;
            let mut drive = paths.fold(first, merge_path);
            drive.devices.sort_by(|a, b| compare_kernel_names(&a.name, &b.name));
            drive.id = assigned.id;
            drive.id_stable = assigned.stable;
            drive.identities = assigned.identities;
            drive.place = assigned.place;
            Some(drive)
        })
        .collect();
    drives.sort_by(|a, b| a.id.cmp(&b.id));
    drives
}

/// `sdb` before `sdaa`: the order of the kernel.
pub(super) fn compare_kernel_names(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Adds a path of the same drive. The drive works while one path does; the state of each path stays
/// with its device.
fn merge_path(mut drive: DriveFacts, path: DriveFacts) -> DriveFacts {
    if compare_kernel_names(&path.name, &drive.name).is_lt() {
        drive.name = path.name;
    }
    if drive.state.as_deref() != Some("running") && path.state.is_some() {
        drive.state = path.state;
    }
    drive.command_timeout = drive.command_timeout.into_iter().chain(path.command_timeout).min();
    drive.asleep &= path.asleep;
    drive.devices.extend(path.devices);
    drive.links.extend(path.links);
    drive.links.sort();
    drive.links.dedup();
    drive
}

/// None for a device that is no drive, or has vanished.
pub fn detect(
    reader: &SysfsReader<'_>,
    entry: &BlockEntry,
    admit: &[String],
) -> Option<DetectedDrive> {
    let admitted = || formats::matches_any(admit, &entry.device.name);
    let found = match &entry.device.layer {
        Layer::Disk => physical_drive(reader, entry),
        Layer::Loop { backing_file: Some(file) } if admitted() => {
            virtual_drive(reader, entry, Some(file))
        }
        Layer::Other
            if entry.device.size_bytes > 0 && entry.device.underlying.is_empty() && admitted() =>
        {
            virtual_drive(reader, entry, None)
        }
        _ => return None,
    };
    // On `DeviceRemoved`, a uevent follows.
    found.ok()
}

/// A loop device is identified by its backing file; other virtual devices only by their kernel
/// name.
fn virtual_drive(
    reader: &SysfsReader<'_>,
    entry: &BlockEntry,
    backing_file: Option<&str>,
) -> Result<DetectedDrive, DeviceRemoved> {
    let mut facts = common_facts(reader, entry)?;
    let properties =
        DiskProperties { name: &facts.name, sysfs: &entry.sysfs, ..DiskProperties::default() };
    facts.transport = classify::transport(&properties);
    facts.kind = classify::kind(&properties, facts.transport);
    let offset =
        reader.number(&format!("{}/loop/offset", entry.sysfs))?.filter(|offset| *offset > 0);
    let identity = backing_file.map(|file| {
        // The kernel adds this suffix to the path of a deleted file.
        let file = file.strip_suffix(" (deleted)").unwrap_or(file);
        offset.map_or_else(|| format!("loop:{file}"), |offset| format!("loop:{file}:{offset}"))
    });
    let candidate = IdentityCandidate {
        identities: identity.into_iter().collect(),
        path: facts.name.clone(),
        exact_path: facts.name.clone(),
        size_bytes: facts.size_bytes,
        is_unstable: true,
        ..IdentityCandidate::default()
    };
    Ok(DetectedDrive { facts, candidate })
}

/// The facts that every block device has, whatever its driver is.
pub(crate) fn common_facts(
    reader: &SysfsReader<'_>,
    entry: &BlockEntry,
) -> Result<DriveFacts, DeviceRemoved> {
    let (sysfs, device) = (&entry.sysfs, &entry.device);
    let block_size = |name: &str| -> Result<u32, DeviceRemoved> {
        let size = reader.number(&format!("{sysfs}/queue/{name}"))?;
        Ok(size.and_then(|size| u32::try_from(size).ok()).unwrap_or(512))
    };
    let write_cache = reader.text(&format!("{sysfs}/queue/write_cache"))?;
    let by_id_or_path = device.links.iter().filter(|link| link.starts_with("/dev/disk/by-"));
    Ok(DriveFacts {
        name: device.name.clone(),
        devices: vec![DriveDevice {
            name: device.name.clone(),
            dev: device.dev,
            size_bytes: device.size_bytes,
            state: None,
            hctl: None,
        }],
        links: by_id_or_path.cloned().collect(),
        size_bytes: device.size_bytes,
        logical_block_size: block_size("logical_block_size")?,
        physical_block_size: block_size("physical_block_size")?,
        rotational: reader.flag(&format!("{sysfs}/queue/rotational"))?,
        removable: reader.flag(&format!("{sysfs}/removable"))?.unwrap_or(false),
        write_cache: write_cache.and_then(|text| match text.as_str() {
            "write back" => Some(WriteCache::WriteBack),
            "write through" => Some(WriteCache::WriteThrough),
            _ => None,
        }),
        location: Location {
            pci: classify::pci_address(sysfs).map(str::to_owned),
            path: entry.udev.get("ID_PATH").map(str::to_owned),
            ..Location::default()
        },
        ..DriveFacts::default()
    })
}

fn physical_drive(
    reader: &SysfsReader<'_>,
    entry: &BlockEntry,
) -> Result<DetectedDrive, DeviceRemoved> {
    let (sysfs, udev) = (entry.sysfs.as_str(), &entry.udev);
    let attribute = |name: &str| reader.text(&format!("{sysfs}/device/{name}"));
    let mut facts = common_facts(reader, entry)?;
    let hctl = classify::hctl(sysfs).map(str::to_owned);
    let is_scsi = hctl.is_some();

    let ata = match is_scsi {
        true => reader
            .bytes(&format!("{sysfs}/device/vpd_pg89"))?
            .and_then(|page| formats::parse_vpd_ata(&page))
            .unwrap_or_default(),
        false => AtaIdentify::default(),
    };
    let (vendor, inquiry_model) = match is_scsi {
        true => (attribute("vendor")?, attribute("model")?),
        // An MMC card has `name`; elsewhere `device/vendor` is a bus number (virtio's 0x1af4),
        // which is no vendor's name.
        false => (None, attribute("name")?),
    };
    let proc_name = scsi_host(sysfs)
        .map(|host| reader.text(&format!("{host}/proc_name")))
        .transpose()?
        .flatten();
    let raid_level = attribute("raid_level")?;
    // Only for ATA and USB is udev's model longer than the sixteen characters of the inquiry, and
    // preferred.
    let udev_model =
        udev.get_decoded("ID_MODEL").filter(|_| matches!(udev.get("ID_BUS"), Some("ata" | "usb")));
    facts.model =
        ata.model.or(udev_model).or(inquiry_model).or_else(|| udev.get_decoded("ID_MODEL"));
    facts.vendor = vendor.clone();
    facts.firmware = match (ata.firmware, udev.get("ID_REVISION")) {
        (Some(firmware), _) => Some(firmware),
        (None, Some(firmware)) => Some(firmware.to_owned()),
        (None, None) => attribute("rev")?.or(attribute("fwrev")?),
    };

    let properties = DiskProperties {
        name: &facts.name,
        sysfs,
        vendor: vendor.as_deref(),
        model: facts.model.as_deref(),
        nvme_transport: None,
        scsi_driver: proc_name.as_deref(),
        scsi_channel: hctl.as_ref().and_then(|hctl| hctl.split(':').nth(1)?.parse().ok()),
        raid_level: raid_level.as_deref(),
        rotational: facts.rotational,
    };
    facts.transport = classify::transport(&properties);
    facts.kind = classify::kind(&properties, facts.transport);
    // QEMU's megasas has disks of the hypervisor.
    let is_array = facts.transport == Transport::Raid && facts.kind != DriveKind::Virtual;
    facts.location.array_driver = proc_name.filter(|_| is_array);

    facts.serial = serial(reader, entry, ata.serial, is_scsi, facts.transport)?;
    let wwid = match is_scsi {
        true => attribute("wwid")?.as_deref().and_then(formats::parse_wwid),
        false => None,
    };
    let udev_wwn = ["ID_WWN_WITH_EXTENSION", "ID_WWN"]
        .iter()
        .find_map(|key| formats::parse_wwid(udev.get(key)?))
        .filter(|wwid| wwid.number().is_some());
    let number = wwid.clone().filter(|wwid| wwid.number().is_some()).or(udev_wwn);
    facts.wwn = number.as_ref().and_then(Wwid::number);

    if facts.transport == Transport::Mmc {
        let life_time = attribute("life_time")?.and_then(|text| formats::parse_codes(&text));
        let pre_eol_info = attribute("pre_eol_info")?.and_then(|text| formats::parse_codes(&text));
        facts.flash = match (life_time, pre_eol_info) {
            (Some(life_time), Some([pre_eol_info])) => {
                Some(FlashHealth { life_time, pre_eol_info })
            }
            _ => None,
        };
    }
    facts.state = if is_scsi { attribute("state")? } else { None };
    facts.command_timeout = match is_scsi {
        true => reader.number(&format!("{sysfs}/device/timeout"))?,
        false => None,
    };
    facts.asleep = is_scsi && attribute("power/runtime_status")?.as_deref() == Some("suspended");
    facts.location.hctl.clone_from(&hctl);
    facts.location.ata_port = classify::ata_port(sysfs);
    facts.lowered_link_speed =
        facts.location.ata_port.map(|port| lowered_speed(reader, port)).transpose()?.flatten();
    facts.location.sas_address = sas_address(reader, sysfs)?;
    (facts.location.enclosure, facts.location.slot) = enclosure(reader, sysfs)?;
    facts.devices[0].state.clone_from(&facts.state);
    facts.devices[0].hctl = hctl;

    // An attribute of a disk that is being removed reads as absent, and would give the drive a
    // wrong id. A SCSI device loses its attributes before its disk (device_del(),
    // drivers/base/core.c); `state` exists as long as the device.
    if !reader.exists(&format!("{sysfs}/dev"))
        || (is_scsi && !reader.exists(&format!("{sysfs}/device/state")))
    {
        return Err(DeviceRemoved);
    }
    let candidate = identity_candidate(&facts, sysfs, number, wwid);
    Ok(DetectedDrive { facts, candidate })
}

fn identity_candidate(
    facts: &DriveFacts,
    sysfs: &str,
    number: Option<Wwid>,
    wwid: Option<Wwid>,
) -> IdentityCandidate {
    let serial = facts.serial.clone().filter(|serial| !identity::is_bogus_serial(serial));
    let mut identities = Vec::new();
    // Wide numbers come before naa; a device has one of them.
    identities
        .extend(number.filter(|number| !is_bogus_wwid(number)).and_then(|number| number.number()));
    identities.extend(serial.as_ref().map(|serial| {
        model_serial(facts.model.as_deref().unwrap_or(bus_name(facts.transport)), serial)
    }));
    if let (Some(Wwid::Text(words)), None) = (wwid, &serial) {
        // `t10.`, a vendor of eight characters, then text that the vendor chose.
        let own = words.strip_prefix("t10.").and_then(|rest| rest.get(8..)).unwrap_or("");
        let last = own.split_whitespace().last().unwrap_or("");
        if !identity::is_bogus_serial(last) && Some(own.trim()) != facts.model.as_deref() {
            identities.push(words.split_whitespace().collect::<Vec<_>>().join("_"));
        }
    }
    let exact_path = exact_path(sysfs).to_owned();
    let path = facts.location.path.clone().or_else(|| {
        (facts.transport == Transport::Virtio && facts.location.hctl.is_none())
            .then(|| facts.location.pci.as_ref().map(|pci| format!("pci-{pci}")))?
    });
    IdentityCandidate {
        identities,
        path: path.unwrap_or_else(|| exact_path.clone()),
        exact_path,
        serial,
        model: facts.model.clone(),
        size_bytes: facts.size_bytes,
        nexus: scsi_target(facts),
        is_unstable: false,
        is_remote: facts.transport.is_remote(),
    }
}

/// host:channel:target, if several paths can lead to one drive.
fn scsi_target(facts: &DriveFacts) -> Option<String> {
    let several = match facts.transport {
        Transport::Sas
        | Transport::Scsi
        | Transport::FibreChannel
        | Transport::Iscsi
        | Transport::Virtio
        | Transport::HyperV => true,
        // Only behind a SAS expander can a SATA disk have two paths.
        Transport::Sata => facts.location.sas_address.is_some(),
        _ => false,
    };
    let hctl = facts.location.hctl.as_ref().filter(|_| several)?;
    hctl.rsplit_once(':').map(|(target, _lun)| target.to_owned())
}

pub(super) fn is_bogus_wwid(wwid: &Wwid) -> bool {
    match wwid {
        Wwid::Naa(digits) | Wwid::Eui(digits) | Wwid::Nguid(digits) | Wwid::Uuid(digits) => {
            identity::is_bogus_number(digits)
        }
        Wwid::Text(_) => true,
    }
}

/// Replaces the model of a drive that has none.
fn bus_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Virtio => "virtio",
        Transport::Xen => "xen",
        Transport::Mmc => "mmc",
        Transport::Usb => "usb",
        Transport::Nbd => "nbd",
        _ => "disk",
    }
}

/// The path of the device in sysfs, without the kernel name of the disk:
/// `pci0000:00/0000:00:02.0/virtio1`.
fn exact_path(sysfs: &str) -> &str {
    let device = match parent(sysfs) {
        dir if file_name(dir) == "block" && !dir.ends_with("/virtual/block") => parent(dir),
        _ => sysfs,
    };
    device.strip_prefix("/sys/devices/").unwrap_or(device)
}

/// The first plausible serial number; else the first one, for people.
fn serial(
    reader: &SysfsReader<'_>,
    entry: &BlockEntry,
    ata: Option<String>,
    is_scsi: bool,
    transport: Transport,
) -> Result<Option<String>, DeviceRemoved> {
    let (sysfs, udev) = (&entry.sysfs, &entry.udev);
    let mut serials = Vec::new();
    serials.extend(ata);
    if is_scsi {
        serials.extend(
            reader
                .bytes(&format!("{sysfs}/device/vpd_pg80"))?
                .and_then(|page| formats::parse_vpd_serial(&page)),
        );
        serials.extend(udev.get("ID_SCSI_SERIAL").map(str::to_owned));
    }
    // On a SCSI bus, ID_SERIAL_SHORT repeats the WWN (scsi_id).
    if udev.get("ID_BUS") != Some("scsi") {
        serials.extend(udev.get("ID_SERIAL_SHORT").map(str::to_owned));
    }
    match transport {
        Transport::Mmc => serials.extend(reader.text(&format!("{sysfs}/device/serial"))?),
        Transport::Usb => serials.extend(usb_serial(reader, sysfs)?),
        // virtio-blk queries the hypervisor at each read (virtblk_get_id), so udev's copy comes
        // first.
        Transport::Virtio if !is_scsi && serials.is_empty() && udev.get("ID_SERIAL").is_none() => {
            serials.extend(reader.text(&format!("{sysfs}/serial"))?)
        }
        Transport::Virtio if !is_scsi && serials.is_empty() => {
            serials.extend(udev.get("ID_SERIAL").map(str::to_owned))
        }
        _ => {}
    }
    let sensible =
        serials.iter().position(|serial| !identity::is_bogus_serial(serial)).unwrap_or(0);
    Ok((sensible < serials.len()).then(|| serials.swap_remove(sensible)))
}

/// The serial number of the USB device above: that of the bridge, often not of the disk.
fn usb_serial(reader: &SysfsReader<'_>, sysfs: &str) -> Result<Option<String>, DeviceRemoved> {
    let mut dir = parent(sysfs);
    while dir.len() > "/sys/devices".len() {
        if reader.exists(&format!("{dir}/idVendor")) {
            return reader.text(&format!("{dir}/serial"));
        }
        dir = parent(dir);
    }
    Ok(None)
}

/// `…/host0/scsi_host/host0` in the path of a SCSI device.
fn scsi_host(sysfs: &str) -> Option<String> {
    let mut dir = sysfs;
    while !dir.is_empty() {
        if classify::is_numbered_name(file_name(dir), "host") {
            return Some(format!("{dir}/scsi_host/{}", file_name(dir)));
        }
        dir = parent(dir);
    }
    None
}

/// The limit of a SATA link, if it is below that of its port. Both are in kernel memory
/// (drivers/ata/libata-transport.c); the kernel sets them equal for each newly attached disk
/// (ata_dev_init()). A port without a limit has `<unknown>`.
fn lowered_speed(reader: &SysfsReader<'_>, port: u32) -> Result<Option<String>, DeviceRemoved> {
    let read = |name: &str| reader.text(&format!("/sys/class/ata_link/link{port}/{name}"));
    let (limit, of_port) = (read("sata_spd_limit")?, read("hw_sata_spd_limit")?);
    Ok(limit.zip(of_port).and_then(|(limit, of_port)| {
        let speed = formats::parse_sata_speed(&limit)?;
        let is_lower = formats::parse_sata_speed(&of_port).is_none_or(|of_port| speed < of_port);
        is_lower.then_some(limit)
    }))
}

/// The address of the SAS end device above (scsi_transport_sas), or of the device itself if the
/// driver has no SAS transport (hpsa, smartpqi).
fn sas_address(reader: &SysfsReader<'_>, sysfs: &str) -> Result<Option<String>, DeviceRemoved> {
    let mut dir = sysfs;
    while !dir.is_empty() {
        let name = file_name(dir);
        if name.starts_with("end_device-") {
            return reader.text(&format!("{dir}/sas_device/{name}/sas_address"));
        }
        dir = parent(dir);
    }
    reader.text(&format!("{sysfs}/device/sas_address"))
}

/// From the links of the enclosure driver (drivers/misc/enclosure.c). Its `id` and the names are in
/// kernel memory; `status`, `fault` and `locate` of a slot query the enclosure and are not read
/// here.
fn enclosure(
    reader: &SysfsReader<'_>,
    sysfs: &str,
) -> Result<(Option<String>, Option<String>), DeviceRemoved> {
    let device = format!("{sysfs}/device");
    // Through the link itself, which is in the directory of the SCSI device.
    let Some(link) =
        reader.list(&device).into_iter().find(|name| name.starts_with("enclosure_device:"))
    else {
        return Ok((None, None));
    };
    let slot = link.trim_start_matches("enclosure_device:").trim().to_owned();
    // Resolved by name from the SCSI device's own directory, not from below `block/`.
    let scsi_device = parent(parent(sysfs));
    let Some(component) = reader.link(&format!("{scsi_device}/{link}")) else {
        return Ok((None, Some(slot)));
    };
    let enclosure = parent(&component);
    let id = reader
        .text(&format!("{enclosure}/id"))?
        .filter(|id| !identity::is_bogus_number(id.trim_start_matches("0x")));
    Ok((Some(id.unwrap_or_else(|| file_name(enclosure).to_owned())), Some(slot)))
}
