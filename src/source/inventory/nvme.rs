//! NVMe drives: a controller is a drive, and its namespaces are the devices of the drive.
//! Controllers of one subsystem (a dual-ported drive, the paths of an array) are one drive, as in
//! the kernel (nvme_init_subsystem(), drivers/nvme/host/core.c).

use std::collections::BTreeMap;

use crate::inventory::block::{BlockEntry, file_name};
use crate::inventory::classify::{self, DiskProperties, is_numbered_name};
use crate::inventory::drive::{self, DetectedDrive};
use crate::inventory::formats::{self, Wwid};
use crate::inventory::identity::{self, IdentityCandidate};
use crate::inventory::sysfs::{DeviceRemoved, SysfsReader};
use diskvitals_model::drive::{DriveDevice, DriveFacts, DriveKind, Transport, model_serial};

/// A controller, or a subsystem that has lost all its controllers.
struct Member {
    /// `nvme0`, `nvme-subsys0`.
    name: String,
    /// Its directory below /sys/devices.
    sysfs: String,
    model: Option<String>,
    serial: Option<String>,
    firmware: Option<String>,
    transport: Option<String>,
    state: Option<String>,
}

struct Namespace<'a> {
    entry: &'a BlockEntry,
    nsid: u64,
    wwid: Option<Wwid>,
}

/// Leaves out drives whose name, or the name of one of their namespaces, is ignored.
pub fn detect(
    reader: &SysfsReader<'_>,
    entries: &[BlockEntry],
    ignored: &dyn Fn(&str) -> bool,
) -> Vec<DetectedDrive> {
    let mut subsystems: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    for (class, prefix) in
        [("/sys/class/nvme", "nvme"), ("/sys/class/nvme-subsystem", "nvme-subsys")]
    {
        for name in reader.list(class).into_iter().filter(|name| is_numbered_name(name, prefix)) {
            // On `DeviceRemoved`, a uevent follows.
            if let Some(Ok((key, member))) = reader
                .link(&format!("{class}/{name}"))
                .map(|sysfs| read_member(reader, &name, sysfs))
            {
                subsystems.entry(key).or_default().push(member);
            }
        }
    }
    let drives = subsystems
        .into_values()
        .filter(|members| !members.iter().any(|member| ignored(&member.name)));
    drives
        .filter_map(|members| drive(reader, &members, entries).ok())
        .filter(|found| !found.facts.devices.iter().any(|device| ignored(&device.name)))
        .collect()
}

/// Also returns the key that it shares with other controllers of its subsystem: qualified name,
/// model and serial. The name alone is not enough: some drives all have the same.
fn read_member(
    reader: &SysfsReader<'_>,
    name: &str,
    sysfs: String,
) -> Result<(String, Member), DeviceRemoved> {
    let attribute = |attribute: &str| reader.text(&format!("{sysfs}/{attribute}"));
    let (model, serial) = (attribute("model")?, attribute("serial")?);
    let key = match attribute("subsysnqn")? {
        Some(nqn) => format!(
            "{nqn}\n{}\n{}",
            model.as_deref().unwrap_or(""),
            serial.as_deref().unwrap_or("")
        ),
        None => name.to_owned(),
    };
    let firmware = attribute("firmware_rev")?;
    let (transport, state) = (attribute("transport")?, attribute("state")?);
    if !reader.is_dir(&sysfs) {
        return Err(DeviceRemoved);
    }
    Ok((key, Member { name: name.to_owned(), model, serial, firmware, transport, state, sysfs }))
}

fn drive(
    reader: &SysfsReader<'_>,
    members: &[Member],
    entries: &[BlockEntry],
) -> Result<DetectedDrive, DeviceRemoved> {
    let controllers: Vec<&Member> =
        members.iter().filter(|member| is_numbered_name(&member.name, "nvme")).collect();
    // A subsystem without controllers remains while its namespaces are in use.
    let first = controllers.first().copied().or(members.first()).ok_or(DeviceRemoved)?;
    let mut namespaces = Vec::new();
    for entry in entries.iter().filter(|entry| {
        entry
            .nvme_parent
            .as_ref()
            .is_some_and(|dir| members.iter().any(|member| &member.sysfs == dir))
    }) {
        // The parent of a partition is a namespace, so this is one. If it vanishes, the drive
        // remains.
        namespaces.extend(namespace(reader, entry));
    }
    if controllers.is_empty() && namespaces.is_empty() {
        return Err(DeviceRemoved);
    }
    namespaces.sort_by_key(|namespace| namespace.nsid);

    let state = controllers
        .iter()
        .find(|member| member.state.as_deref() == Some("live"))
        .unwrap_or(&first)
        .state
        .clone();
    let mut facts = namespaces
        .iter()
        .find_map(|namespace| drive::common_facts(reader, namespace.entry).ok())
        .unwrap_or_else(empty_facts);
    facts.devices = namespaces
        .iter()
        .map(|namespace| device(namespace, &controllers, state.as_ref()))
        .collect();
    facts.devices.sort_by(|a, b| drive::compare_kernel_names(&a.name, &b.name));
    facts.name =
        facts.devices.first().map_or_else(|| first.name.clone(), |device| device.name.clone());
    facts.links = namespaces
        .iter()
        .flat_map(|namespace| &namespace.entry.device.links)
        .filter(|link| link.starts_with("/dev/disk/by-"))
        .cloned()
        .collect();
    facts.links.sort();
    facts.links.dedup();
    facts.size_bytes =
        facts.devices.iter().map(|device| device.size_bytes).fold(0, u64::saturating_add);
    facts.model.clone_from(&first.model);
    facts.serial.clone_from(&first.serial);
    facts.firmware.clone_from(&first.firmware);
    facts.wwn = namespaces.first().and_then(|namespace| namespace.wwid.as_ref()?.number());
    facts.location.pci = classify::pci_address(&first.sysfs).map(str::to_owned);
    facts.location.controllers = controllers.iter().map(|member| member.name.clone()).collect();
    facts.location.controllers.sort();
    facts.state = state;
    let properties = DiskProperties {
        name: &facts.name,
        sysfs: &first.sysfs,
        model: first.model.as_deref(),
        // A subsystem has no transport attribute; without controllers it is a guess: a local drive
        // does not lose its controllers.
        nvme_transport: Some(first.transport.as_deref().unwrap_or(if controllers.is_empty() {
            "tcp"
        } else {
            "pcie"
        })),
        ..DiskProperties::default()
    };
    facts.transport = classify::transport(&properties);
    facts.kind = classify::kind(&properties, facts.transport);
    let candidate = identity_candidate(&facts, first, &namespaces);
    Ok(DetectedDrive { facts, candidate })
}

fn namespace<'a>(
    reader: &SysfsReader<'_>,
    entry: &'a BlockEntry,
) -> Result<Namespace<'a>, DeviceRemoved> {
    let attribute = |name: &str| reader.text(&format!("{}/{name}", entry.sysfs));
    let wwid =
        formats::parse_namespace_id(attribute("nguid")?.as_deref(), attribute("eui")?.as_deref());
    let wwid = match wwid {
        Some(wwid) => Some(wwid),
        None => attribute("wwid")?
            .as_deref()
            .and_then(formats::parse_wwid)
            .filter(|wwid| wwid.number().is_some()),
    };
    // Without the attribute, the number in the name is used.
    let by_name = || entry.device.name.rsplit_once('n').and_then(|(_, number)| number.parse().ok());
    let nsid =
        reader.number(&format!("{}/nsid", entry.sysfs))?.or_else(by_name).unwrap_or(u64::MAX);
    if !reader.is_dir(&entry.sysfs) {
        return Err(DeviceRemoved);
    }
    Ok(Namespace { entry, nsid, wwid })
}

/// A namespace below one controller has that controller's state; one below the subsystem works
/// while any controller does.
fn device(namespace: &Namespace<'_>, controllers: &[&Member], any: Option<&String>) -> DriveDevice {
    let block = &namespace.entry.device;
    let own = controllers
        .iter()
        .find(|member| namespace.entry.nvme_parent.as_ref() == Some(&member.sysfs));
    let state = own.map_or(any, |member| member.state.as_ref()).cloned();
    DriveDevice {
        name: block.name.clone(),
        dev: block.dev,
        size_bytes: block.size_bytes,
        state,
        hctl: None,
    }
}

fn identity_candidate(
    facts: &DriveFacts,
    first: &Member,
    namespaces: &[Namespace<'_>],
) -> IdentityCandidate {
    let serial = first.serial.clone().filter(|serial| !identity::is_bogus_serial(serial));
    let mut identities = Vec::new();
    identities.extend(
        serial
            .as_ref()
            .map(|serial| model_serial(first.model.as_deref().unwrap_or("nvme"), serial)),
    );
    let number = namespaces
        .iter()
        .filter_map(|namespace| namespace.wwid.as_ref())
        .find(|wwid| !drive::is_bogus_wwid(wwid));
    identities.extend(number.and_then(Wwid::number));
    let exact_path = first.sysfs.strip_prefix("/sys/devices/").unwrap_or(&first.sysfs);
    // The directory ends in the controller's number, which depends on the order of discovery.
    let exact_path = match facts.location.pci {
        Some(_) => exact_path.trim_end_matches(file_name(&first.sysfs)).trim_end_matches('/'),
        None => exact_path,
    };
    IdentityCandidate {
        identities,
        path: facts
            .location
            .pci
            .as_ref()
            .map_or_else(|| exact_path.to_owned(), |pci| format!("pci-{pci}")),
        exact_path: exact_path.to_owned(),
        serial,
        model: first.model.clone(),
        size_bytes: facts.size_bytes,
        // The kernel has already joined the paths.
        nexus: None,
        is_unstable: false,
        is_remote: facts.transport.is_remote(),
    }
}

/// A controller without a namespace: a drive without readable blocks.
fn empty_facts() -> DriveFacts {
    DriveFacts {
        kind: DriveKind::Nvme,
        transport: Transport::Nvme,
        logical_block_size: 512,
        physical_block_size: 512,
        ..DriveFacts::default()
    }
}
