//! Discovery: builds the volumes from the records on disk and from the volume group.
//!
//! In: the records that were read. Out: volumes, not yet compared with the host. No operation
//! touches a volume whose record cannot be read. If the volume group cannot be listed, its volumes
//! are unknown, not absent.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use crate::engine::backing::pool_backing;
use crate::engine::settings::Settings;
use crate::engine::step_context::{
    ATTACHMENTS_DIR, FORMATS_DIR, INTENTS_DIR, StepContext, VOLUMES_DIR,
};
use crate::engine::volume::{Backing, RecordProblem, Volume, static_backing};
use crate::error::ProvisionError;
use crate::record::formatting::FormatRecord;
use crate::record::{self, AttachmentsRecord, Intent, Operation, RecordError, VolumeRecord, tags};
use crate::rules::names;
use crate::step::{LogicalVolume, PoolCapacity, RecordFile, StepExecutor};
use diskvitals_finding::path::HostPath;
use diskvitals_finding::provision::BackingKind;
use diskvitals_host::clock;
use diskvitals_text::causes::with_causes;

/// All records, and the volumes of the volume group if there is one.
pub struct DiscoveredRecords {
    pub volumes: Vec<RecordFile>,
    pub intents: Vec<RecordFile>,
    pub attachments: Vec<RecordFile>,
    pub formats: Vec<RecordFile>,
    /// The volumes, or the reason why they could not be listed.
    pub logical_volumes: Result<Vec<LogicalVolume>, ProvisionError>,
}

pub(crate) async fn read_records<S: StepExecutor>(
    ctx: &StepContext<S>,
) -> Result<DiscoveredRecords, ProvisionError> {
    if ctx.settings.directory_configured {
        // If the pool's disk is not mounted, the folder is missing; it does not count as empty.
        ctx.capacity(BackingKind::Loop).await?;
    }
    // Intents are read last: an intent that is removed during the read belongs to a finished
    // operation, whose records are already read. Nothing else writes before discovery ends.
    let volumes = ctx.read_records(VOLUMES_DIR).await?;
    let attachments = ctx.read_records(ATTACHMENTS_DIR).await?;
    let formats = ctx.read_records(FORMATS_DIR).await?;
    let intents = ctx.read_records(INTENTS_DIR).await?;
    let group = match ctx.settings.volume_group.clone() {
        Some(group) => ctx.list_logical_volumes(&group).await,
        None => Ok(Vec::new()),
    };
    Ok(DiscoveredRecords { volumes, intents, attachments, formats, logical_volumes: group })
}

pub(crate) async fn measure_capacities<S: StepExecutor>(
    ctx: &StepContext<S>,
) -> Vec<(BackingKind, Result<PoolCapacity, ProvisionError>)> {
    let mut capacities = vec![(BackingKind::Loop, ctx.capacity(BackingKind::Loop).await)];
    if ctx.settings.volume_group.is_some() {
        capacities.push((BackingKind::Lvm, ctx.capacity(BackingKind::Lvm).await));
    }
    capacities.sort_by_key(|(kind, _)| *kind != ctx.settings.default_kind());
    capacities
}

pub(crate) fn build_volumes(
    settings: &Settings,
    found: DiscoveredRecords,
) -> BTreeMap<String, Volume> {
    let mut volumes: BTreeMap<String, Volume> = BTreeMap::new();
    for (handle, file) in records_by_handle(&found.volumes) {
        volumes.insert(handle.to_owned(), image_volume(settings, handle, file));
    }
    let listed = found.logical_volumes.is_ok();
    let mut unfinished = BTreeSet::new();
    for logical in found.logical_volumes.into_iter().flatten() {
        if let Some(group) = &settings.volume_group {
            if logical.unfinished {
                unfinished.insert(logical.name.clone());
            }
            volumes.insert(logical.name.clone(), logical_volume(group, &logical));
        }
    }
    for entry in &settings.static_volumes {
        volumes.entry(entry.name.clone()).or_insert_with(|| Volume::from_static(entry));
    }
    let is_unlisted = |kind: BackingKind| kind == BackingKind::Lvm && !listed;
    for (handle, file) in records_by_handle(&found.intents) {
        let intent = match parse_record::<Intent>(handle, file) {
            Ok(intent) if is_unlisted(intent.kind) => continue,
            Ok(intent) => intent,
            Err(error) => {
                let problem = record_problem("its intent", &error);
                mark_unreadable(&mut volumes, settings, handle, problem);
                continue;
            }
        };
        let incomplete = matches!(intent.operation, Operation::Create { .. } | Operation::Delete);
        let path = intent.static_path.as_ref();
        if let Some(volume) =
            volume_for_record(&mut volumes, settings, handle, intent.kind, path, incomplete)
        {
            if let Operation::Create { record } = &intent.operation {
                if volume.record.is_none() {
                    *volume = volume.clone().with_record(record.clone());
                }
                // No caller has received it.
                volume.exists &= !unfinished.contains(handle);
            }
            (volume.intent, volume.has_begun) = (Some(intent), true);
        }
    }
    for (handle, file) in records_by_handle(&found.attachments) {
        let record = match parse_record::<AttachmentsRecord>(handle, file) {
            Ok(record) if is_unlisted(record.kind) => continue,
            Ok(record) => record,
            Err(error) => {
                let problem = record_problem("the record of its attachments", &error);
                mark_unreadable(&mut volumes, settings, handle, problem);
                continue;
            }
        };
        let path = record.static_path.as_ref();
        if let Some(volume) =
            volume_for_record(&mut volumes, settings, handle, record.kind, path, false)
        {
            if let (true, Some(path)) = (volume.is_static(), record.static_path) {
                // The state at the time of the attachment. The configuration applies again after
                // the detach.
                volume.backing = static_backing(record.kind, path);
                volume.kind = record.kind;
            }
            (volume.staged, volume.published, volume.unknown_fields) =
                (record.staged, record.published, record.unknown_fields);
            // Written by another run, perhaps with a clock that was ahead.
            let now = clock::now();
            for at in volume.staged.iter_mut().chain(&mut volume.published) {
                at.since = at.since.min(now);
            }
        }
    }
    for (handle, file) in records_by_handle(&found.formats) {
        // A static volume that left the configuration keeps its record for its return.
        let Some(volume) = volumes.get_mut(handle) else {
            continue;
        };
        match parse_record::<FormatRecord>(handle, file) {
            Ok(record) => volume.format = record,
            Err(error) => {
                let problem = record_problem("the record of its formatting", &error);
                mark_unreadable(&mut volumes, settings, handle, problem);
            }
        }
    }
    for volume in volumes.values_mut().filter(|volume| volume.is_static()) {
        // Records of an earlier version do not say that its device was here; that there is one does.
        if volume.is_attached() || (volume.format.seen.is_none() && !volume.format.is_empty()) {
            volume.note_seen();
        }
        volume.presence = volume.presence_without_device(settings.is_expected(&volume.handle));
    }
    volumes
}

impl DiscoveredRecords {
    /// Files in the directories of records that are not records.
    pub(crate) fn unrecognized_files(&self) -> BTreeSet<String> {
        let folders = [
            (VOLUMES_DIR, &self.volumes),
            (INTENTS_DIR, &self.intents),
            (ATTACHMENTS_DIR, &self.attachments),
            (FORMATS_DIR, &self.formats),
        ];
        let is_unrecognized =
            |file: &&RecordFile| record::handle_from_file_name(&file.name).is_none();
        folders
            .into_iter()
            .flat_map(|(folder, files)| {
                let files = files.iter().filter(is_unrecognized);
                files.map(move |file| format!("{folder}/{}", file.name))
            })
            .collect()
    }
}

/// Indexes records by their handles. Ignores other files in the directories.
fn records_by_handle(files: &[RecordFile]) -> impl Iterator<Item = (&str, &RecordFile)> {
    files.iter().filter_map(|file| Some((record::handle_from_file_name(&file.name)?, file)))
}

fn parse_record<T: DeserializeOwned>(handle: &str, file: &RecordFile) -> Result<T, RecordError> {
    match &file.text {
        Ok(text) => record::read(handle, text.as_bytes()),
        Err(why) => Err(RecordError::Unreadable(why.clone())),
    }
}

fn image_volume(settings: &Settings, handle: &str, file: &RecordFile) -> Volume {
    let backing = pool_backing(settings, BackingKind::Loop, handle)
        .unwrap_or(Backing::Image(HostPath::default()));
    let volume = Volume::new(handle, BackingKind::Loop, backing);
    let text = file.text.as_ref().map_or(b"".as_slice(), |text| text.as_bytes());
    with_record_or_problem(volume, parse_record(handle, file), text)
}

fn logical_volume(group: &str, logical: &LogicalVolume) -> Volume {
    let backing = Backing::LogicalVolume { group: group.to_owned(), name: logical.name.clone() };
    let volume = Volume::new(&logical.name, BackingKind::Lvm, backing);
    let text = tags::decode(&logical.tags);
    let parsed = match &text {
        Ok(text) if names::is_pool_handle(&logical.name) => record::read(&logical.name, text),
        _ => Err(RecordError::NotAHandle),
    };
    let (parsed, text) = match text {
        Ok(text) => (parsed, text),
        Err(error) => (Err(error), Vec::new()),
    };
    let mut volume = with_record_or_problem(volume, parsed, &text);
    volume.size = logical.size;
    if logical.unfinished {
        volume.error = Some(
            "its creation was interrupted: it cannot be used, but it can be deleted".to_owned(),
        );
    }
    volume
}

fn with_record_or_problem(
    mut volume: Volume,
    record: Result<VolumeRecord, RecordError>,
    text: &[u8],
) -> Volume {
    match record {
        Ok(record) => volume.with_record(record),
        Err(error) => {
            volume.record_problem = Some(record_problem("its record", &error));
            volume.name = record::name_in_unreadable(text).unwrap_or(volume.name);
            volume
        }
    }
}

/// The volume of a record. A volume without its own record is being created or deleted
/// (`incomplete`), is a static one that left the configuration, or is an orphan.
fn volume_for_record<'a>(
    volumes: &'a mut BTreeMap<String, Volume>,
    settings: &Settings,
    handle: &str,
    kind: BackingKind,
    static_path: Option<&HostPath>,
    incomplete: bool,
) -> Option<&'a mut Volume> {
    if !volumes.contains_key(handle) {
        let backing = match kind {
            BackingKind::StaticDevice | BackingKind::StaticDirectory => static_path
                .map(|path| static_backing(kind, path.clone()))
                .ok_or("a record of it does not name its device or directory"),
            BackingKind::Loop | BackingKind::Lvm => pool_backing(settings, kind, handle)
                .ok_or("it lies in a volume group, and [pool] volume_group is not set"),
        };
        let mut volume = match backing {
            Ok(backing) => Volume::new(handle, kind, backing),
            Err(why) => {
                let problem = RecordProblem::Unreadable(why.to_owned());
                mark_unreadable(volumes, settings, handle, problem);
                return None;
            }
        };
        volume.exists = !incomplete;
        if !incomplete && !volume.is_static() {
            volume.record_problem = Some(RecordProblem::Orphan);
        }
        volumes.insert(handle.to_owned(), volume);
    }
    volumes.get_mut(handle)
}

fn record_problem(what: &str, error: &RecordError) -> RecordProblem {
    let why = format!("{what} cannot be read: {}", with_causes(error));
    match error {
        RecordError::Unreadable(_) => RecordProblem::NotRead(why),
        _ => RecordProblem::Unreadable(why),
    }
}

fn mark_unreadable(
    volumes: &mut BTreeMap<String, Volume>,
    settings: &Settings,
    handle: &str,
    problem: RecordProblem,
) {
    let kind =
        if names::is_pool_handle(handle) { BackingKind::Loop } else { BackingKind::StaticDevice };
    let backing =
        pool_backing(settings, kind, handle).unwrap_or(Backing::Device(HostPath::default()));
    let volume =
        volumes.entry(handle.to_owned()).or_insert_with(|| Volume::new(handle, kind, backing));
    volume.record_problem = Some(problem);
}
