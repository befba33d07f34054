//! Resolves the name that a person gives to the drive, device, volume or pod. Pure.
//!
//! In: a snapshot, and an id, a kernel name, a /dev path or by-id link, a serial, a WWN, a mount
//! point, a volume handle (or `driver/handle`), a PV, a filesystem UUID, a pod as namespace/name or
//! UID, a finding's id, or `path:` and the path of any file; where nothing has such a name, a slot,
//! the bare name of a pod, or the end of a serial. Out: the subject, or an error that lists the
//! candidates. Does not depend on wire types.

mod loose;
mod suggest;

use std::collections::{BTreeMap, BTreeSet};

use diskvitals_finding::Subject;
use diskvitals_finding::ids::{DriveId, FindingId, VolumeId};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::source::Source;
use diskvitals_model::block::{BlockDevice, Layer};
use diskvitals_model::policy::Exclusion;
use diskvitals_model::snapshot::{Drive, Presence, Snapshot, Volume};
use diskvitals_model::stack::device_of_pool;
use diskvitals_text::echo::echo;
use diskvitals_text::similar::did_you_mean;

/// Before the path of any file or folder, without links: the mount that holds it is meant.
const PATH: &str = "path:";
/// Maximum number of candidates that an error lists.
const MAX_CANDIDATES: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("nothing here is known as `{query}`{hint}")]
    Unknown { query: String, hint: String },
    #[error("`{query}` is only the end of a serial: give the whole serial")]
    EndOfSerial { query: String },
    #[error("`{query}` is ambiguous, it names {}", list(candidates))]
    Ambiguous { query: String, candidates: Vec<String> },
}

fn list(candidates: &[String]) -> String {
    let mut text = candidates.iter().take(MAX_CANDIDATES).cloned().collect::<Vec<_>>().join(", ");
    if candidates.len() > MAX_CANDIDATES {
        text.push_str(&format!(" and {} more", candidates.len() - MAX_CANDIDATES));
    }
    text
}

/// The meaning of a query: one subject, or a pod with all its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    Subject(Subject),
    /// The only drive known here whose serial ends like this; one that is not known may too.
    EndOfSerial(DriveId),
    Pod(Vec<VolumeId>),
}

impl Resolved {
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        match self {
            Resolved::Subject(subject) => vec![subject.clone()],
            Resolved::EndOfSerial(drive) => vec![Subject::Drive(drive.clone())],
            Resolved::Pod(volumes) => volumes.iter().cloned().map(Subject::Volume).collect(),
        }
    }
}

/// Exact ids come first, then all other forms at once; more than one match is ambiguous.
pub(crate) fn resolve(snapshot: &Snapshot, query: &str) -> Result<Resolved, ResolveError> {
    if let Some(subject) = find_by_id(snapshot, query) {
        return Ok(Resolved::Subject(subject));
    }
    let mut found = BTreeSet::new();
    found.extend(drives_matching(snapshot, query).map(Subject::Drive));
    found.extend(subjects_of_matching_devices(snapshot, query));
    found.extend(volume_ids(snapshot, |it| volume_matches(it, query)).map(Subject::Volume));
    let pod: Vec<VolumeId> = volume_ids(snapshot, |it| pod_matches(it, query)).collect();
    let mut found: Vec<Subject> = found.into_iter().collect();
    match (found.len(), pod.len()) {
        (0, 0) => match query.strip_prefix(PATH) {
            Some(path) => resolve_path(snapshot, path),
            None => loose::resolve(snapshot, query),
        },
        (0, 1..) => Ok(Resolved::Pod(pod)),
        (1, 0) => Ok(Resolved::Subject(found.remove(0))),
        _ => {
            found.extend(pod.into_iter().map(Subject::Volume));
            found.dedup();
            Err(ambiguous(snapshot, query, &found))
        }
    }
}

/// The volume on the mount that holds a file or folder. The caller has resolved its links.
fn resolve_path(snapshot: &Snapshot, query: &str) -> Result<Resolved, ResolveError> {
    let path = HostPath::unescape(query.as_bytes());
    // A device, or a mount that is missing.
    if query.starts_with('/')
        && let Ok(named) = resolve(snapshot, query)
    {
        return Ok(named);
    }
    let Some((point, mounted)) = snapshot.node_context.mount_of(&path) else {
        return Err(unknown(snapshot, query));
    };
    let on = |volume: &Volume| volume.facts.mount_at(point).is_some();
    let mut found: Vec<VolumeId> = volume_ids(snapshot, on).collect();
    if found.len() > 1 {
        // Of filesystems stacked on one path, the lookup ends in this one.
        let is_visible = |id: &VolumeId| {
            let volume = snapshot.volumes.get(id);
            volume.is_some_and(|it| it.facts.source.as_ref() == Some(&mounted.source))
        };
        found.retain(is_visible);
    }
    match found.as_slice() {
        [volume] => Ok(Resolved::Subject(Subject::Volume(volume.clone()))),
        [] => Err(ResolveError::Unknown {
            query: echo(query),
            hint: match excluded_mount(snapshot, point) {
                Some(why) => format!(": it is on {}{why}", echo(&point.to_string())),
                None => format!(
                    ": it is on {}: {}, which is no volume",
                    echo(&point.to_string()),
                    echo(&mounted.fs_type)
                ),
            },
        }),
        several => {
            let subjects: Vec<Subject> = several.iter().cloned().map(Subject::Volume).collect();
            Err(ambiguous(snapshot, query, &subjects))
        }
    }
}

/// The drive that `query` names, or the only drive below the named subject.
pub(crate) fn resolve_drive<'a>(
    snapshot: &'a Snapshot,
    query: &str,
) -> Result<&'a Drive, ResolveError> {
    if let Some(drive) = snapshot.drives.get(&DriveId::known(query)) {
        return Ok(drive);
    }
    let mut found = BTreeSet::new();
    for subject in resolve(snapshot, query)?.subjects() {
        match subject {
            Subject::Drive(id) => drop(found.insert(id)),
            Subject::Device(name) => found.extend(underlying_drives(snapshot, &name)),
            Subject::Source(_) => {}
            Subject::Volume(id) => {
                let volume = snapshot.volumes.get(&id).into_iter();
                found.extend(volume.flat_map(|volume| volume.facts.drive_ids.iter().cloned()));
            }
        }
    }
    single(snapshot, query, found, Subject::Drive, |id| snapshot.drives.get(id).map(AsRef::as_ref))
}

/// As `resolve_drive`, for what must not meet another drive: the end of a serial is refused.
pub(crate) fn resolve_whole_drive<'a>(
    snapshot: &'a Snapshot,
    query: &str,
) -> Result<&'a Drive, ResolveError> {
    let drive = resolve_drive(snapshot, query)?;
    match resolve(snapshot, query) {
        Ok(Resolved::EndOfSerial(_)) => Err(ResolveError::EndOfSerial { query: echo(query) }),
        _ => Ok(drive),
    }
}

/// The volume that `query` names, or the only volume on the named drive or device.
pub(crate) fn resolve_volume<'a>(
    snapshot: &'a Snapshot,
    query: &str,
) -> Result<&'a Volume, ResolveError> {
    if let Some(volume) = snapshot.volumes.get(&VolumeId::known(query)) {
        return Ok(volume);
    }
    let mut found = BTreeSet::new();
    for subject in resolve(snapshot, query)?.subjects() {
        match subject {
            Subject::Volume(id) => drop(found.insert(id)),
            Subject::Device(name) => found.extend(volumes_on_device(snapshot, &name)),
            Subject::Source(_) => {}
            Subject::Drive(id) => {
                let drive = snapshot.drives.get(&id).into_iter();
                found.extend(drive.flat_map(|drive| drive.volumes.iter().cloned()));
            }
        }
    }
    single(snapshot, query, found, Subject::Volume, |id| {
        snapshot.volumes.get(id).map(AsRef::as_ref)
    })
}

/// The only element of `found`; it must be in the snapshot.
fn single<'a, I: Ord, T>(
    snapshot: &Snapshot,
    query: &str,
    found: BTreeSet<I>,
    subject: impl Fn(I) -> Subject,
    get: impl Fn(&I) -> Option<&'a T>,
) -> Result<&'a T, ResolveError> {
    if found.len() > 1 {
        let subjects: Vec<Subject> = found.into_iter().map(subject).collect();
        return Err(ambiguous(snapshot, query, &subjects));
    }
    found.first().and_then(get).ok_or_else(|| unknown(snapshot, query))
}

/// A block device and every device below it, by kernel name.
pub(crate) fn underlying_devices<'a>(snapshot: &'a Snapshot, device: &'a str) -> BTreeSet<&'a str> {
    let devices = &snapshot.inventory.devices;
    reachable(device, |name| {
        let below = devices.get(name).map(|device| device.underlying.iter());
        below.into_iter().flatten().map(String::as_str)
    })
}

/// `start` and all names that repeated steps of `next` reach from it.
pub(crate) fn reachable<'a, I: Iterator<Item = &'a str>>(
    start: &'a str,
    next: impl Fn(&'a str) -> I,
) -> BTreeSet<&'a str> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![start]);
    while let Some(name) = todo.pop() {
        if found.insert(name) {
            todo.extend(next(name));
        }
    }
    found
}

/// Number of layers between a device and the hardware. The kernel has no cycles; a cycle in the
/// records ends at its second visit.
pub(crate) fn stack_depth(
    snapshot: &Snapshot,
    name: &str,
    known: &mut BTreeMap<String, usize>,
) -> usize {
    if let Some(depth) = known.get(name) {
        return *depth;
    }
    known.insert(name.to_owned(), 0);
    let device = snapshot.inventory.devices.get(name).into_iter();
    let below = device.flat_map(|device| &device.underlying);
    let depth = below.map(|name| stack_depth(snapshot, name, known) + 1).max().unwrap_or(0);
    known.insert(name.to_owned(), depth);
    depth
}

/// Drives below a block device, by kernel name.
pub(crate) fn underlying_drives(snapshot: &Snapshot, device: &str) -> BTreeSet<DriveId> {
    let devices = underlying_devices(snapshot, device).into_iter();
    devices.filter_map(|name| snapshot.inventory.devices.get(name)?.drive.clone()).collect()
}

/// Volumes that depend on a block device.
pub(crate) fn volumes_on_device(snapshot: &Snapshot, device: &str) -> Vec<VolumeId> {
    let stands_on = |volume: &Volume| {
        volume.facts.devices.iter().any(|name| name == device)
            || volume.facts.device.as_deref() == Some(device)
    };
    volume_ids(snapshot, stands_on).collect()
}

fn volume_ids(
    snapshot: &Snapshot,
    matches: impl Fn(&Volume) -> bool,
) -> impl Iterator<Item = VolumeId> {
    let volumes = snapshot.volumes.values();
    volumes.filter(move |volume| matches(volume)).map(|volume| volume.facts.id.clone())
}

fn find_by_id(snapshot: &Snapshot, query: &str) -> Option<Subject> {
    let drive = DriveId::known(query);
    if snapshot.drives.contains_key(&drive) {
        return Some(Subject::Drive(drive));
    }
    let volume = VolumeId::known(query);
    if snapshot.volumes.contains_key(&volume) {
        return Some(Subject::Volume(volume));
    }
    let mut cleared = snapshot.history.iter();
    if let Some(finding) = snapshot
        .findings
        .get(&FindingId::known(query))
        .or_else(|| cleared.find(|finding| finding.id.as_str() == query))
    {
        return Some(finding.subject.clone());
    }
    if let Some(name) = query.strip_prefix("source:") {
        return Source::from_name(name).map(Subject::Source);
    }
    let name = query.strip_prefix("dev:")?;
    snapshot.inventory.devices.contains_key(name).then(|| Subject::Device(name.to_owned()))
}

/// Finds drives by kernel name, link, serial or WWN. A kernel name belongs to the drive that has it
/// now. It finds a missing drive only if no present drive or device has the name.
fn drives_matching<'a>(
    snapshot: &'a Snapshot,
    query: &'a str,
) -> impl Iterator<Item = DriveId> + 'a {
    let name = query.strip_prefix("/dev/").unwrap_or(query);
    let has_name = move |drive: &Drive| {
        drive.facts.name == name || drive.facts.devices.iter().any(|device| device.name == name)
    };
    let present = |drive: &Drive| drive.presence == Presence::Present;
    let name_taken = snapshot.drives.values().any(|drive| present(drive) && has_name(drive))
        || snapshot.inventory.devices.contains_key(name);
    snapshot
        .drives
        .values()
        .filter(move |drive| {
            let facts = &drive.facts;
            (has_name(drive) && (present(drive) || !name_taken))
                || (has_link(&facts.links, query) && present(drive))
                || facts.serial.as_deref() == Some(query)
                || facts.wwn.as_deref().is_some_and(|wwn| same_wwn(wwn, query))
        })
        .map(|drive| drive.facts.id.clone())
}

/// `naa.5000…`, `5000…`, `0x5000…` and `wwn-0x5000…` are equal.
fn same_wwn(wwn: &str, query: &str) -> bool {
    let query = query.strip_prefix("wwn-").unwrap_or(query).to_ascii_lowercase();
    let bare = wwn.split_once('.').map_or(wwn, |(_, digits)| digits);
    query == wwn || query.strip_prefix("0x").unwrap_or(&query) == bare
}

/// Compares a link by its whole path, or a by-id link by its last part.
fn has_link(links: &[String], query: &str) -> bool {
    links.iter().any(|link| link == query || link.strip_prefix("/dev/disk/by-id/") == Some(query))
}

/// Subjects of the matching devices. A device that is not a drive (a partition, md, dm) means the
/// volumes directly on it, or itself if it has none.
fn subjects_of_matching_devices(snapshot: &Snapshot, query: &str) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for device in snapshot.inventory.devices.values().filter(|device| device_matches(device, query))
    {
        if let Some(drive) = &device.drive {
            subjects.push(Subject::Drive(drive.clone()));
            continue;
        }
        if let Layer::ZfsPool { .. } = &device.layer {
            subjects.push(Subject::Device(device.name.clone()));
            continue;
        }
        let is_on = |volume: &Volume| volume.facts.device.as_ref() == Some(&device.name);
        let mut volumes = volume_ids(snapshot, is_on).peekable();
        if volumes.peek().is_none() {
            subjects.push(Subject::Device(device.name.clone()));
        }
        subjects.extend(volumes.map(Subject::Volume));
    }
    subjects
}

fn device_matches(device: &BlockDevice, query: &str) -> bool {
    let path = query.strip_prefix("/dev/");
    if path.unwrap_or(query) == device.name || has_link(&device.links, query) {
        return true;
    }
    let (name, volume_group, logical_volume) = match &device.layer {
        Layer::Dm { name, volume_group, logical_volume, .. } => {
            (name, volume_group, logical_volume)
        }
        Layer::ZfsPool { name } | Layer::Zvol { dataset: Some(name) } => return query == name,
        _ => return false,
    };
    let lv = volume_group.as_deref().zip(logical_volume.as_deref());
    query == name
        || path.and_then(|path| path.strip_prefix("mapper/")) == Some(name)
        || lv.is_some() && path.unwrap_or(query).split_once('/') == lv
}

fn volume_matches(volume: &Volume, query: &str) -> bool {
    let facts = &volume.facts;
    if facts.handle.as_deref() == Some(query)
        || facts.pv.as_deref() == Some(query)
        || facts.fs_uuid.as_deref() == Some(query)
    {
        return true;
    }
    if let (Some(driver), Some(handle)) = (&facts.driver, &facts.handle)
        && query.strip_prefix(driver.as_str()).and_then(|rest| rest.strip_prefix('/'))
            == Some(handle)
    {
        return true;
    }
    let source = facts.source.as_ref().map(HostPath::as_bytes);
    // The name of a pool is also that of its root dataset.
    let is_pool = || facts.device.as_deref() == Some(device_of_pool(query).as_str());
    if !query.starts_with("/dev/") && source == Some(query.as_bytes()) && !is_pool() {
        return true;
    }
    if !query.starts_with('/') {
        return false;
    }
    let plain = if query == "/" { query } else { query.trim_end_matches('/') };
    let escaped = HostPath::unescape(plain.as_bytes());
    let same = |path: &HostPath| path.as_bytes() == plain.as_bytes() || *path == escaped;
    facts.mounts.iter().any(|mount| same(&mount.path))
        || facts.missing_mounts.iter().any(|mount| same(&mount.path))
}

fn pod_matches(volume: &Volume, query: &str) -> bool {
    let named = query.split_once('/');
    volume.facts.pods.iter().any(|pod| {
        pod.uid == query
            || pod
                .name
                .as_ref()
                .is_some_and(|name| named == Some((name.namespace.as_str(), name.name.as_str())))
    })
}

fn unknown(snapshot: &Snapshot, query: &str) -> ResolveError {
    let hint = if query.is_empty() {
        ": give an id, a device, a mount point, a volume handle or namespace/name of a pod"
            .to_owned()
    } else if let Some(why) = excluded_mount(snapshot, &HostPath::from(query)) {
        why
    } else {
        did_you_mean(&suggest::suggestions(snapshot, query))
    };
    ResolveError::Unknown { query: echo(query), hint }
}

/// Why the mount at this path is not a volume.
fn excluded_mount(snapshot: &Snapshot, path: &HostPath) -> Option<String> {
    let excluded = &snapshot.node_context.excluded_mounts;
    let (fs_type, why) = excluded.get(path)?;
    let fs_type = echo(fs_type);
    Some(match why {
        Exclusion::Type => format!(
            ": {fs_type} is mounted there, a type that counts as a volume only where [volumes] admit_mounts names the mount point"
        ),
        Exclusion::User(uid) => format!(
            ": {fs_type} is mounted there by the user with uid {uid}, so it is not probed and not judged; it counts as a volume only where [volumes] admit_mounts names the mount point"
        ),
        Exclusion::IgnoredMount => {
            format!(": {fs_type} is mounted there, which [volumes] ignore_mounts leaves out")
        }
        Exclusion::IgnoredType => {
            format!(": {fs_type} is mounted there, which [volumes] ignore_types leaves out")
        }
    })
}

fn ambiguous(snapshot: &Snapshot, query: &str, subjects: &[Subject]) -> ResolveError {
    ResolveError::Ambiguous {
        query: echo(query),
        candidates: subjects.iter().map(|it| describe(snapshot, it)).collect(),
    }
}

fn describe(snapshot: &Snapshot, subject: &Subject) -> String {
    match subject {
        Subject::Drive(id) => match snapshot.drives.get(id) {
            Some(drive) => format!("drive {id} ({})", drive.facts.name),
            None => format!("drive {id}"),
        },
        Subject::Volume(id) => {
            match snapshot.volumes.get(id).and_then(|volume| volume.facts.mounts.first()) {
                Some(mount) => format!("volume {id} ({})", echo(&mount.path.to_string())),
                None => format!("volume {id}"),
            }
        }
        Subject::Device(name) => format!("device {name}"),
        Subject::Source(source) => format!("source {}", source.name()),
    }
}

#[cfg(test)]
mod tests;
