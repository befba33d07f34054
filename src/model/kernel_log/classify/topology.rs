//! The effect of a record that reveals names and kinds of devices.
//!
//! In: a `TopologyUpdate`. Out: changes of the host's state, and `NameAssignment`s.

use crate::model::kernel_log::classify::{Classifier, MAX_PENDING_NOTICES, RecordContext};
use crate::model::kernel_log::event::{Blame, Class, DeviceName, Event, NameAssignment};
use crate::model::kernel_log::parsed_record::{
    DeviceKind, ParsedRecord, RecordKind, TopologyUpdate,
};
use crate::model::kernel_log::{device_map, device_name};

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
                    self.host
                        .devices
                        .set_kind(&parsed.device, DeviceKind::Virtual);
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
                    let context = RecordContext {
                        parsed: &parsed,
                        ..*context
                    };
                    let mut incident = self.take_incident(key, &context, out);
                    let new = !incident.reported.contains(Class::Reset);
                    self.update(&mut incident, out)
                        .emit(&context, Class::Reset, Blame::No, new);
                    self.open_incidents.push(incident);
                }
            }
            TopologyUpdate::SlotEmptied => {
                self.host.devices.has_unplugged_device = true;
                self.host.slot_outage = Some(context.position);
            }
            TopologyUpdate::UsbDisconnect(path) => {
                self.host.devices.has_unplugged_device = true;
                if let Some(host) = self.host.devices.host_of_usb_path(path) {
                    self.host
                        .devices
                        .set_kind(&DeviceName::ScsiHost(host), DeviceKind::Usb);
                }
            }
            TopologyUpdate::VirtualMachine => self.host.devices.is_virtual_machine = true,
            TopologyUpdate::Boot => self.reset_for_boot(),
        }
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
