//! Finds the locate lamp of a drive in sysfs, and switches it: the only files of sysfs that are
//! written to. For a worker in the host's mount namespace, because each reading or writing of a SES
//! lamp is a command to the enclosure, which may hang.
//!
//! In: the kernel names of a drive. Out: its lamp. Never touches a fault lamp, nor a lamp that shows
//! something else than off or locate.

#[cfg(test)]
mod tests;

use std::fs::OpenOptions;
use std::io::{self, Write};

use crate::inventory::block::{file_name, parent};
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_host::root::HostRoot;
use diskvitals_model::lamp::LampPlace;

/// The bit of the state of an AHCI port that means locate, and those of locate and fault together
/// (AHCI 1.3.1, 12.2.1; ahci_led_store(), drivers/ata/libahci.c). The bits of activity may be anything.
const AHCI_LOCATE: u32 = 0x0008_0000;
const AHCI_LOCATE_AND_FAULT: u32 = 0x01f8_0000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LampError {
    #[error("looking for the drive's lamp: the drive has just been removed")]
    Removed,
    #[error("there is no lamp any more: {0}")]
    NoLamp(LampPlace),
    #[error("{path} shows `{value}`, neither off nor locate: another program uses this lamp")]
    InUse { path: String, value: String },
    #[error("reading {path}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("writing {path}")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} was set and shows `{value}`: the lamp has not followed")]
    NotFollowed { path: String, value: String },
}

impl From<DeviceRemoved> for LampError {
    fn from(_: DeviceRemoved) -> LampError {
        LampError::Removed
    }
}

/// The lamp of the drive with these block devices and NVMe controllers. None: it has none that the
/// kernel knows.
pub(crate) fn find(
    root: &HostRoot,
    devices: &[String],
    controllers: &[String],
) -> Result<Option<LampPlace>, LampError> {
    let reader = SysfsReader::new(root);
    let devices =
        devices.iter().filter_map(|name| reader.link(&format!("/sys/class/block/{name}")));
    let devices: Vec<String> = devices.collect();
    let controllers =
        controllers.iter().filter_map(|name| reader.link(&format!("/sys/class/nvme/{name}")));
    let controllers: Vec<String> = controllers.collect();
    for device in &devices {
        if let Some(place) = ses(&reader, parent(parent(device)))? {
            return Ok(Some(place));
        }
    }
    let npem = controllers.iter().find_map(|controller| npem(&reader, controller));
    if npem.is_some() {
        return Ok(npem);
    }
    for controller in &controllers {
        if let Some(place) = vmd(&reader, controller)? {
            return Ok(Some(place));
        }
    }
    for device in &devices {
        if let Some(place) = ahci(&reader, device)? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// The slot whose `device` is this SCSI device: a link of the drive alone may be left from its former
/// slot.
fn ses(reader: &SysfsReader<'_>, scsi_device: &str) -> Result<Option<LampPlace>, LampError> {
    let links = reader.list(scsi_device).into_iter();
    for link in links.filter(|name| name.starts_with("enclosure_device:")) {
        let Some(component) = reader.link(&format!("{scsi_device}/{link}")) else { continue };
        let is_its = reader.link(&format!("{component}/device")).as_deref() == Some(scsi_device);
        if is_its && reader.exists(&format!("{component}/locate")) {
            let enclosure = parent(&component);
            let id = reader.text(&format!("{enclosure}/id"))?;
            return Ok(Some(LampPlace::Ses {
                enclosure: id.unwrap_or_else(|| file_name(enclosure).to_owned()),
                component: file_name(&component).to_owned(),
            }));
        }
    }
    Ok(None)
}

/// `0000:01:00.0`; the domains of VMD have five digits.
fn is_pci_address(name: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    let Some((rest, function)) = name.split_once('.') else { return false };
    let parts: Vec<&str> = rest.split(':').collect();
    matches!(parts.as_slice(), [_, _, _]) && parts.iter().all(|it| is_hex(it)) && is_hex(function)
}

/// On the controller itself, or on the port above it.
fn npem(reader: &SysfsReader<'_>, controller: &str) -> Option<LampPlace> {
    let above = controller.split('/').rev().filter(|name| is_pci_address(name));
    let mut lit = above.take(2).filter(|pci| reader.exists(&npem_file(pci)));
    lit.next().map(|pci| LampPlace::Npem { pci: pci.to_owned() })
}

fn npem_file(pci: &str) -> String {
    format!("/sys/class/leds/{pci}:enclosure:locate/brightness")
}

/// The codes of a slot's attention lamp have this meaning below VMD only.
fn vmd(reader: &SysfsReader<'_>, controller: &str) -> Result<Option<LampPlace>, LampError> {
    let Some((host, _)) = controller.split_once("/pci1") else { return Ok(None) };
    let driver = reader.link(&format!("{host}/driver"));
    let pci = controller.split('/').rev().find(|name| is_pci_address(name));
    let Some((slot_of_drive, _)) = pci.and_then(|pci| pci.split_once('.')) else { return Ok(None) };
    if driver.as_deref().map(file_name) != Some("vmd") {
        return Ok(None);
    }
    for slot in reader.list("/sys/bus/pci/slots") {
        let address = reader.text(&format!("/sys/bus/pci/slots/{slot}/address"))?;
        if address.as_deref() == Some(slot_of_drive) && reader.exists(&vmd_file(&slot)) {
            return Ok(Some(LampPlace::Vmd { slot }));
        }
    }
    Ok(None)
}

fn vmd_file(slot: &str) -> String {
    format!("/sys/bus/pci/slots/{slot}/attention")
}

/// libahci transmits only messages of the type LED (ahci_transmit_led_message()). Behind a port
/// multiplier there is a line for each of its ports: such a lamp is not ours to choose.
fn ahci(reader: &SysfsReader<'_>, device: &str) -> Result<Option<LampPlace>, LampError> {
    let mut above = device.match_indices('/').map(|(at, _)| &device[..at]);
    let is_host = |dir: &&str| {
        file_name(dir).starts_with("host")
            && file_name(parent(dir))
                .strip_prefix("ata")
                .is_some_and(|it| it.parse::<u32>().is_ok())
    };
    let Some(host) = above.find(is_host) else { return Ok(None) };
    let host = format!("{host}/scsi_host/{}", file_name(host));
    let types = reader.text(&format!("{host}/em_message_supported"))?.unwrap_or_default();
    let states = reader.text(&format!("{host}/em_message"))?.unwrap_or_default();
    let has_lamp = types.split_whitespace().any(|it| it == "led") && states.lines().count() == 1;
    Ok(has_lamp.then_some(LampPlace::Ahci { host }))
}

/// A file of sysfs that switches a lamp.
struct Switch {
    path: String,
    on: &'static str,
    off: &'static str,
    /// What it shows: on, off, or something else.
    meaning: fn(&str) -> Option<bool>,
}

fn plain(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Decimal (attention_write_file(), drivers/pci/hotplug/pci_hotplug_core.c).
fn of_vmd(value: &str) -> Option<bool> {
    match value {
        "15" => Some(false),
        "7" => Some(true),
        _ => None,
    }
}

/// Hexadecimal without a prefix (ahci_led_show()).
fn of_ahci(value: &str) -> Option<bool> {
    match u32::from_str_radix(value, 16).ok()? & AHCI_LOCATE_AND_FAULT {
        0 => Some(false),
        AHCI_LOCATE => Some(true),
        _ => None,
    }
}

fn switch_of(root: &HostRoot, place: &LampPlace) -> Result<Option<Switch>, DeviceRemoved> {
    Ok(match place {
        LampPlace::Ses { enclosure, component } => {
            let path = ses_file(root, enclosure, component)?;
            path.map(|path| Switch { path, on: "1", off: "0", meaning: plain })
        }
        LampPlace::Npem { pci } => {
            Some(Switch { path: npem_file(pci), on: "1", off: "0", meaning: plain })
        }
        LampPlace::Vmd { slot } => {
            Some(Switch { path: vmd_file(slot), on: "7", off: "15", meaning: of_vmd })
        }
        LampPlace::Ahci { host } => {
            let path = format!("{host}/em_message");
            Some(Switch { path, on: "0x80000", off: "0", meaning: of_ahci })
        }
    })
}

/// Its directory has another name after a reboot.
fn ses_file(
    root: &HostRoot,
    enclosure: &str,
    component: &str,
) -> Result<Option<String>, DeviceRemoved> {
    let reader = SysfsReader::new(root);
    for name in reader.list("/sys/class/enclosure") {
        let dir = format!("/sys/class/enclosure/{name}");
        let path = format!("{dir}/{component}/locate");
        let is_it =
            name == enclosure || reader.text(&format!("{dir}/id"))?.as_deref() == Some(enclosure);
        if is_it && reader.exists(&path) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Switches a lamp and reads it back.
pub(crate) fn switch(root: &HostRoot, place: &LampPlace, is_on: bool) -> Result<(), LampError> {
    let no_lamp = || LampError::NoLamp(place.clone());
    let Switch { path, on, off, meaning } = switch_of(root, place)?.ok_or_else(no_lamp)?;
    let read = || match std::fs::read_to_string(root.at(&path)) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_lamp()),
        Err(source) => Err(LampError::Read { path: path.clone(), source }),
    };
    let before = read()?;
    match meaning(&before) {
        None => return Err(LampError::InUse { path, value: before }),
        Some(before) if before == is_on => return Ok(()),
        Some(_) => {}
    }
    let opened = OpenOptions::new().write(true).truncate(true).open(root.at(&path));
    let written =
        opened.and_then(|mut file| file.write_all(if is_on { on } else { off }.as_bytes()));
    written.map_err(|source| LampError::Write { path: path.clone(), source })?;
    let after = read()?;
    match meaning(&after) == Some(is_on) {
        true => Ok(()),
        false => Err(LampError::NotFollowed { path, value: after }),
    }
}
