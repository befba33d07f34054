//! The classifier's state of the host: device names, device kinds, and known outages.
//!
//! In: parsed records, in order. Out: which device a record is about, whether that device counts as
//! a drive, and its maximum blame. Only this file lowers the blame of devices behind a bridge, a
//! network or a failing path, as the log shows them; not where sysfs shows them better
//! (`ClassifierOptions::knows_devices`): there a record excuses nothing.

use crate::classify::ClassifierOptions;
use crate::device_map::DeviceMap;
use crate::device_name;
use crate::event::{Blame, Class, DeviceName};
use crate::incident::LogPosition;
use crate::parsed_record::{DeviceKind, ParsedRecord, RecordKind, ScsiRecord};
use crate::record::Record;
use crate::rule::Role;

/// How long an outage of a path explains the failures of the devices behind it.
const OUTAGE_MICROS: u64 = 300_000_000;
const OUTAGE_RECORDS: u64 = 4_096;
/// How long after a USB device was unplugged its disk's records are about that.
const UNPLUG_MICROS: u64 = 60_000_000;
const UNPLUG_RECORDS: u64 = 1_024;
/// The kernel has started by then, and no user's program yet.
const BOOT_MICROS: u64 = 1_000_000;
/// A record without a device is about the device of the preceding records (3.10's SCSI, torn
/// lines), at most this many records earlier.
const CONTEXT_RECORDS: u64 = 8;
/// A message of bcachefs has more lines.
const BCACHEFS_RECORDS: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct HostState {
    options: ClassifierOptions,
    pub devices: DeviceMap,
    /// A network is down or was: failures of the SCSI disks behind it are explained.
    pub network_outage: Option<LogPosition>,
    /// A slot is empty: failures of NVMe drives are explained.
    pub slot_outage: Option<LogPosition>,
    /// A USB device was unplugged; which disk it was, the record does not say.
    pub usb_unplugged: Option<LogPosition>,
    /// USB disks that were unplugged, and whether that was reported.
    pub unplugged_disks: Vec<UnpluggedDisk>,
    /// The filesystem of the last record of bcachefs that names one.
    last_bcachefs: Option<(DeviceName, u64)>,
    /// The device of the last SCSI record, its other name, and the record's number.
    last_scsi: Option<(DeviceName, Option<DeviceName>, u64)>,
    /// The device of the last ATA record.
    last_ata: Option<(DeviceName, u64)>,
    /// `rejecting I/O to offline device`; the block layer's next record contains the disk's name.
    offline_rejection: Option<(DeviceName, LogPosition)>,
}

/// A disk behind a USB port that was unplugged. It is a failure only if the disk was in use.
#[derive(Debug)]
pub(super) struct UnpluggedDisk {
    pub name: String,
    pub at: LogPosition,
    pub is_reported: bool,
}

/// Two names turned out to mean the same device.
pub(super) struct Renamed {
    pub hctl: String,
    pub block: String,
}

impl HostState {
    pub(crate) fn new(options: ClassifierOptions) -> HostState {
        HostState { options, ..HostState::default() }
    }

    pub(crate) fn take_options(&mut self) -> ClassifierOptions {
        std::mem::take(&mut self.options)
    }

    pub(crate) fn has_outage(&self) -> bool {
        self.network_outage.is_some()
            || self.slot_outage.is_some()
            || self.usb_unplugged.is_some()
            || !self.unplugged_disks.is_empty()
    }

    /// The disk of this name or partition, if it was unplugged just now.
    pub(super) fn unplugged_disk(&mut self, device: &DeviceName) -> Option<&mut UnpluggedDisk> {
        let DeviceName::Block(name) = device else {
            return None;
        };
        let disk = device_name::whole_disk(name);
        self.unplugged_disks.iter_mut().find(|one| one.name == disk)
    }

    pub(crate) fn expire_outages(&mut self, now: LogPosition, all: bool) {
        for outage in [&mut self.network_outage, &mut self.slot_outage] {
            if outage
                .is_some_and(|since| all || now.is_beyond(since, OUTAGE_MICROS, OUTAGE_RECORDS))
            {
                *outage = None;
            }
        }
        let is_over =
            |since: LogPosition| all || now.is_beyond(since, UNPLUG_MICROS, UNPLUG_RECORDS);
        self.usb_unplugged = self.usb_unplugged.filter(|since| !is_over(*since));
        self.unplugged_disks.retain(|disk| !is_over(disk.at));
    }

    /// Clears the context: a reader that begins here has no preceding records either.
    pub(crate) fn forget_context(&mut self) {
        (self.last_scsi, self.last_ata, self.last_bcachefs) = (None, None, None);
    }

    /// Sets the device of a record whose text does not contain one, or for which a better name is
    /// known.
    pub(crate) fn resolve_device(
        &mut self,
        parsed: &mut ParsedRecord,
        role: Option<Role>,
        record: &Record<'_>,
        now: LogPosition,
    ) -> Option<Renamed> {
        if let (DeviceName::Block(name), Some(DeviceName::Hctl(hctl))) =
            (&parsed.device, &parsed.other_name)
        {
            self.devices.assign_name(hctl, name);
        }
        let near = |seq: u64| now.seq.saturating_sub(seq) <= CONTEXT_RECORDS;
        if parsed.device == DeviceName::Unnamed {
            if let Some(device) = record.device.and_then(device_from_field) {
                parsed.device = device;
            } else if let (RecordKind::Scsi(_), Some((device, other, seq))) =
                (&parsed.kind, &self.last_scsi)
            {
                if near(*seq)
                    && !matches!(parsed.kind, RecordKind::Scsi(ScsiRecord::UnnamedRecovery(..)))
                {
                    parsed.device = device.clone();
                    parsed.other_name = other.clone();
                }
            } else if let (RecordKind::Ata(_), Some((device, seq))) = (&parsed.kind, &self.last_ata)
                && near(*seq)
            {
                parsed.device = device.clone();
            } else if let (Some(Role::Bcachefs), Some((device, seq))) = (role, &self.last_bcachefs)
                && now.seq.saturating_sub(*seq) <= BCACHEFS_RECORDS
            {
                parsed.device = device.clone();
            }
        }
        if role == Some(Role::Bcachefs) && parsed.device != DeviceName::Unnamed {
            self.last_bcachefs = Some((parsed.device.clone(), now.seq));
        }
        // Only records that open an incident: a reader that begins again there has the same
        // context.
        match (&parsed.kind, &parsed.device) {
            (RecordKind::Ata(_), DeviceName::Ata { .. }) => {
                self.last_ata = Some((parsed.device.clone(), now.seq))
            }
            (RecordKind::Scsi(_), DeviceName::Hctl(_) | DeviceName::Block(_)) => {
                self.last_scsi = Some((parsed.device.clone(), parsed.other_name.clone(), now.seq));
            }
            _ => {}
        }
        self.prefer_block_name(parsed);
        self.link_offline_rejection(parsed, now)
    }

    pub(crate) fn prefer_block_name(&self, parsed: &mut ParsedRecord) {
        if let Some(block) = self.devices.block_name(&parsed.device) {
            parsed.other_name = Some(std::mem::replace(&mut parsed.device, block));
        }
    }

    /// `sd 6:1:8:0: rejecting I/O to offline device`, followed by the block layer's `dev sdi`: both
    /// are names of one device (scsi_prep_state_check()).
    fn link_offline_rejection(
        &mut self,
        parsed: &mut ParsedRecord,
        now: LogPosition,
    ) -> Option<Renamed> {
        match (&parsed.device, &parsed.kind) {
            (DeviceName::Hctl(_), RecordKind::Effect(Class::Removed, _)) => {
                self.offline_rejection = Some((parsed.device.clone(), now));
                None
            }
            (DeviceName::Block(name), RecordKind::Effect(..))
                if name.starts_with("sd") && device_name::whole_disk(name) == name =>
            {
                let (DeviceName::Hctl(hctl), at) = self.offline_rejection.take()? else {
                    return None;
                };
                if now.is_beyond(at, 1_000_000, 3) || self.devices.hctl_of(&parsed.device).is_some()
                {
                    return None;
                }
                let block = name.clone();
                self.devices.assign_name(&hctl, &block);
                parsed.other_name = Some(DeviceName::Hctl(hctl.clone()));
                Some(Renamed { hctl, block })
            }
            _ => None,
        }
    }

    /// The other name of a device, if the last SCSI record was about this device.
    pub(crate) fn recent_other_name(&self, device: &DeviceName) -> Option<DeviceName> {
        match &self.last_scsi {
            Some((name, other, _)) if name == device => other.clone(),
            _ => None,
        }
    }

    pub(crate) fn device_of_key(&self, key: &str) -> DeviceName {
        match &self.last_scsi {
            Some((device, _, _)) if self.devices.drive_key(device) == key => {
                self.devices.block_name(device).unwrap_or_else(|| device.clone())
            }
            _ => device_name::parse(key).unwrap_or(DeviceName::Unnamed),
        }
    }

    fn kind_of(&self, device: &DeviceName) -> DeviceKind {
        match self.options.knows_devices {
            true => self.devices.kind_by_name(device),
            false => self.devices.kind_of(device),
        }
    }

    /// `DeviceKind::blame`, and a drive whose path has an outage is not blamed either.
    pub(crate) fn adjust_blame(
        &self,
        class: Class,
        blame: Blame,
        device: &DeviceName,
        role: Option<Role>,
    ) -> Blame {
        match self.kind_of(device) {
            // An MMC host of which no card is known: it may have none.
            _ if matches!(device, DeviceName::Block(name) if device_name::is_mmc_host(name)
                && !self.devices.has_card(name) && role != Some(Role::CardPresent)) =>
            {
                Blame::No
            }
            DeviceKind::Direct
                if self.has_path_outage(device)
                    && (class.is_path_class() || class == Class::Io) =>
            {
                Blame::No
            }
            kind => kind.blame(class, blame),
        }
    }

    /// The path to this device is known to have an outage.
    fn has_path_outage(&self, device: &DeviceName) -> bool {
        if self.options.knows_devices {
            return false;
        }
        match device {
            DeviceName::Nvme(_) => self.slot_outage.is_some(),
            DeviceName::Block(name) if name.starts_with("nvme") => self.slot_outage.is_some(),
            DeviceName::Block(name) => self.network_outage.is_some() && name.starts_with("sd"),
            DeviceName::Hctl(_) | DeviceName::ScsiHost(_) => self.network_outage.is_some(),
            _ => false,
        }
    }

    /// An I/O error without a reported cause has one over a network, or in an emptied slot.
    pub(crate) fn explain_io(&self, class: Class, device: &DeviceName) -> Class {
        if class != Class::Io {
            return class;
        }
        match self.kind_of(device) {
            DeviceKind::Network => Class::Transport,
            DeviceKind::Direct if self.slot_outage.is_some() && self.has_path_outage(device) => {
                Class::Removed
            }
            _ => class,
        }
    }

    /// The record is about a device that is no drive.
    pub(crate) fn is_excluded(&self, parsed: &ParsedRecord, text: &str) -> bool {
        let never = |device: &DeviceName| match device {
            DeviceName::Block(name) => {
                device_name::is_never_drive(name)
                    && !device_name::is_remote(name)
                    && !self.options.admits(device_name::whole_disk(name))
            }
            _ => false,
        };
        never(&parsed.device)
            || parsed.other_name.as_ref().is_some_and(never)
            || ["sr ", "st ", "ses ", "ch ", "osst "].iter().any(|driver| text.starts_with(driver))
            || self.is_of_other_kind(&parsed.device)
    }

    /// Optical drives, tapes, enclosures. A disk is one whatever a record says.
    fn is_of_other_kind(&self, device: &DeviceName) -> bool {
        let is_disk = matches!(device, DeviceName::Block(_));
        !(self.options.knows_devices && is_disk)
            && self.devices.kind_of(device) == DeviceKind::Other
    }

    /// Users write to the log from here on: what the kernel prints once at its start is not believed.
    pub(crate) fn is_after_boot(&self, now: LogPosition) -> bool {
        self.options.knows_devices && now.time_us > BOOT_MICROS
    }
}

/// Parses `DEVICE=` of /dev/kmsg: `b8:16`, `+scsi:6:0:0:0`, `+pci:0000:03:00.0`.
fn device_from_field(field: &str) -> Option<DeviceName> {
    if let Some(number) = field.strip_prefix('b') {
        return number.parse().ok().map(DeviceName::Number);
    }
    let (bus, name) = field.strip_prefix('+')?.split_once(':')?;
    match bus {
        "scsi" => device_name::parse(name),
        "pci" => Some(DeviceName::Pci(name.to_owned())),
        _ => None,
    }
}
