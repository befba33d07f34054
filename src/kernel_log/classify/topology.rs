//! The effect of a record that reveals names and kinds of devices.
//!
//! In: a `TopologyUpdate`. Out: changes of the host's state, and `NameAssignment`s.

use crate::classify::host_state::UnpluggedDisk;
use crate::classify::{Classifier, MAX_PENDING_NOTICES, RecordContext};
use crate::event::{Blame, Class, DeviceName, Event, FullRead, NameAssignment};
use crate::parsed_record::{DeviceKind, ParsedRecord, RecordKind, TopologyUpdate};
use crate::rules::derived;
use crate::{device_map, device_name};

/// The kernel removes the disk at once after its USB device.
const FLUSH_MICROS: u64 = 3_000_000;
const FLUSH_RECORDS: u64 = 256;

impl Classifier {
    pub(super) fn apply_topology(
        &mut self,
        update: &TopologyUpdate,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) {
        let parsed = context.parsed;
        match update {
            TopologyUpdate::DiskAttached
            | TopologyUpdate::FilesystemMounted
            | TopologyUpdate::FilesystemRemounted => {
                let (DeviceName::Block(name) | DeviceName::Nvme(name)) = &parsed.device else {
                    return;
                };
                let filesystem = *update != TopologyUpdate::DiskAttached;
                if filesystem {
                    self.host.devices.set_mounted(name, true);
                }
                if let Some(DeviceName::Pci(pci)) = &parsed.other_name {
                    self.host.devices.add_nvme(pci, name);
                }
                if let Some(DeviceName::Block(host)) = &parsed.other_name
                    && device_name::is_mmc_host(host)
                {
                    self.host.devices.add_card(host, name);
                }
                // The open incident belongs to the former device of this name.
                let key = self.incident_key(&parsed.device, filesystem);
                if let Some(mut former) = self.take_open_incident(&key) {
                    self.update(&mut former, out)
                        .finish_command(context.position, context.line.time);
                }
                if self.name_assignments.len() >= MAX_PENDING_NOTICES {
                    self.name_assignments.remove(0);
                }
                self.name_assignments.push(NameAssignment {
                    seq: context.position.seq,
                    name: name.clone(),
                    at: context.line.time,
                    is_filesystem: filesystem,
                    is_remount: *update == TopologyUpdate::FilesystemRemounted,
                });
            }
            TopologyUpdate::ReadBegun(member) | TopologyUpdate::ReadDone(member) => {
                if let DeviceName::Block(name) = &parsed.device
                    && self.full_reads.len() < MAX_PENDING_NOTICES
                {
                    self.full_reads.push(FullRead {
                        seq: context.position.seq,
                        device: name.clone(),
                        member: *member,
                        at: context.line.time,
                        is_done: matches!(update, TopologyUpdate::ReadDone(_)),
                    });
                }
            }
            TopologyUpdate::ScsiHost { host, driver } => {
                self.host.devices.add_scsi_host(*host, driver)
            }
            TopologyUpdate::AtaPort(port) => self.host.devices.add_ata_port(*port),
            TopologyUpdate::AtaPortOfHost => {
                self.host.devices.has_unplugged_device = true;
                if let (DeviceName::Ata { port, .. }, Some(DeviceName::Hctl(hctl))) =
                    (&parsed.device, &parsed.other_name)
                    && let Some(host) = device_map::scsi_host_of(hctl)
                {
                    self.host.devices.link_port_to_host(*port, host);
                }
            }
            TopologyUpdate::Model(model) => {
                if is_virtual_model(model) {
                    self.host.devices.set_kind(&parsed.device, DeviceKind::Virtual);
                }
            }
            TopologyUpdate::Kind(kind) => self.host.devices.set_kind(&parsed.device, *kind),
            TopologyUpdate::UsbReset(path) => {
                if let Some(host) = self.host.devices.host_of_usb_path(path) {
                    let parsed = ParsedRecord::new(
                        DeviceName::ScsiHost(host),
                        RecordKind::Cause(Class::Reset, Blame::No),
                    );
                    let key = self.host.devices.drive_key(&parsed.device);
                    let context = RecordContext { parsed: &parsed, ..*context };
                    let mut incident = self.take_incident(key, &context, out);
                    let new = !incident.reported.contains(Class::Reset);
                    self.update(&mut incident, out).emit(&context, Class::Reset, Blame::No, new);
                    self.open_incidents.push(incident);
                }
            }
            TopologyUpdate::SlotEmptied => {
                self.host.devices.has_unplugged_device = true;
                self.host.slot_outage = Some(context.position);
            }
            TopologyUpdate::UsbDisconnect(path) => {
                self.host.devices.has_unplugged_device = true;
                self.host.usb_unplugged = Some(context.position);
                if let Some(host) = self.host.devices.host_of_usb_path(path) {
                    self.host.devices.set_kind(&DeviceName::ScsiHost(host), DeviceKind::Usb);
                    for disk in self.host.devices.disks_of_host(host) {
                        self.add_unplugged_disk(&disk, context, out);
                    }
                }
            }
            TopologyUpdate::CacheFlush => {
                if let DeviceName::Block(name) = &parsed.device
                    && self.host.usb_unplugged.is_some_and(|since| {
                        !context.position.is_beyond(since, FLUSH_MICROS, FLUSH_RECORDS)
                    })
                {
                    self.add_unplugged_disk(&name.clone(), context, out);
                }
            }
            TopologyUpdate::FilesystemUnmounted => {
                if let DeviceName::Block(name) = &parsed.device {
                    self.host.devices.set_mounted(name, false);
                }
            }
            TopologyUpdate::CardFound => self.host.devices.add_host_with_card(&parsed.device),
            TopologyUpdate::VirtualMachine | TopologyUpdate::Boot
                if self.host.is_after_boot(context.position) => {}
            TopologyUpdate::VirtualMachine => self.host.devices.is_virtual_machine = true,
            TopologyUpdate::Boot => self.reset_for_boot(),
        }
    }
}

impl Classifier {
    /// A USB disk was unplugged. That is a failure if it was in use: a filesystem of it is mounted,
    /// or the log has errors of it, before or after.
    fn add_unplugged_disk(
        &mut self,
        disk: &str,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) {
        let device = DeviceName::Block(disk.to_owned());
        // The machine stops or suspends, and another USB device was unplugged.
        if !self.host.devices.may_be_usb(&device) {
            return;
        }
        self.host.devices.set_kind(&device, DeviceKind::Usb);
        if self.host.unplugged_disk(&device).is_some()
            || self.host.unplugged_disks.len() >= MAX_PENDING_NOTICES
        {
            return;
        }
        let key = self.host.devices.drive_key(&device);
        let has_errors = self.open_incidents.iter().any(|incident| {
            let is_of_disk = incident.key == key
                || incident
                    .key
                    .strip_prefix("fs:")
                    .is_some_and(|name| device_name::whole_disk(name) == disk);
            is_of_disk && !incident.reported.is_empty()
        });
        let is_in_use = has_errors || self.host.devices.is_disk_mounted(disk);
        self.host.unplugged_disks.push(UnpluggedDisk {
            name: disk.to_owned(),
            at: context.position,
            is_reported: false,
        });
        if is_in_use {
            self.report_unplugged_disk(&device, context, out);
        }
    }

    /// Reports once that the disk was unplugged while it was in use.
    pub(super) fn report_unplugged_disk(
        &mut self,
        device: &DeviceName,
        context: &RecordContext<'_>,
        out: &mut Vec<Event>,
    ) {
        let Some(disk) = self.host.unplugged_disk(device) else {
            return;
        };
        if std::mem::replace(&mut disk.is_reported, true) {
            return;
        }
        let disk = DeviceName::Block(disk.name.clone());
        let parsed = ParsedRecord::new(disk, RecordKind::Cause(Class::Removed, Blame::No));
        let context = RecordContext { rule: &derived::USB_UNPLUGGED, parsed: &parsed, ..*context };
        let key = self.host.devices.drive_key(&parsed.device);
        let mut incident = self.take_incident(key, &context, out);
        if !incident.reported.contains(Class::Removed) {
            self.update(&mut incident, out).emit(&context, Class::Removed, Blame::No, true);
        }
        self.open_incidents.push(incident);
    }
}

fn is_virtual_model(model: &str) -> bool {
    [
        "QEMU",
        "VMware",
        "VBOX",
        "Msft",
        "Virtual",
        "VIRTUAL",
        "LIO-ORG",
        "IET",
        "scsi_debug",
        "Google  PersistentDisk",
        "Google",
        "XENSRC",
        "Nutanix",
        "NUTANIX",
    ]
    .iter()
    .any(|word| model.contains(word))
}
