//! Discovery: builds the volumes from the records on disk and from the volume group.
//!
//! In: records as they were read. Out: volumes, not yet compared with the host. A record that
//! cannot
//! be read makes a volume that no operation touches. If the volume group cannot be listed, its
//! volumes
//! are unknown, not absent.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use crate::model::causes::with_causes;
use crate::model::path::HostPath;
use crate::model::provision::BackingKind;
use crate::provision::engine::settings::Settings;
use crate::provision::engine::step_context::{
    ATTACHMENTS_DIR, INTENTS_DIR, StepContext, VOLUMES_DIR, pool_backing,
};
use crate::provision::engine::volume::{Backing, RecordProblem, Volume, static_backing};
use crate::provision::error::ProvisionError;
use crate::provision::record::{
    self, AttachmentsRecord, HasHandle, Intent, Operation, RecordError, VolumeRecord, tags,
};
use crate::provision::rules::names;
use crate::provision::step::{LogicalVolume, PoolCapacity, RecordFile, StepExecutor};

/// All records, and the group's volumes where there is a group.
pub(crate) struct DiscoveredRecords {
    pub volumes: Vec<RecordFile>,
    pub intents: Vec<RecordFile>,
    pub attachments: Vec<RecordFile>,
    /// Or why they could not be listed.
    pub logical_volumes: Result<Vec<LogicalVolume>, ProvisionError>,
}

pub(crate) async fn read_records<S: StepExecutor>(
    ctx: &StepContext<S>,
) -> Result<DiscoveredRecords, ProvisionError> {
    if ctx.settings.directory_configured {
        // Where its disk is not mounted the folder is not there, which is not a folder without
        // volumes.
        ctx.capacity(BackingKind::Loop).await?;
    }
    // Intents last: one that is removed meanwhile was done, and its records are read already.
    // Nothing else writes before discovery has ended.
    let volumes = ctx.read_records(VOLUMES_DIR).await?;
    let attachments = ctx.read_records(ATTACHMENTS_DIR).await?;
    let intents = ctx.read_records(INTENTS_DIR).await?;
    let group = match ctx.settings.volume_group.clone() {
        Some(group) => ctx.list_logical_volumes(&group).await,
        None => Ok(Vec::new()),
    };
    Ok(DiscoveredRecords {
        volumes,
        intents,
        attachments,
        logical_volumes: group,
    })
}

pub(crate) async fn measure_capacities<S: StepExecutor>(
    ctx: &StepContext<S>,
) -> Vec<(BackingKind, Result<PoolCapacity, ProvisionError>)> {
    let mut rooms = vec![(BackingKind::Loop, ctx.capacity(BackingKind::Loop).await)];
    if ctx.settings.volume_group.is_some() {
        rooms.push((BackingKind::Lvm, ctx.capacity(BackingKind::Lvm).await));
    }
    rooms.sort_by_key(|(kind, _)| *kind != ctx.settings.default_kind());
    rooms
}

pub(crate) fn build_volumes(
    settings: &Settings,
    found: DiscoveredRecords,
) -> BTreeMap<String, Volume> {
    let mut book: BTreeMap<String, Volume> = BTreeMap::new();
    for (handle, text) in records_by_handle(&found.volumes) {
        let volume = image_volume(settings, &handle, text.as_ref());
        book.insert(handle, volume);
    }
    let listed = found.logical_volumes.is_ok();
    let mut unfinished = BTreeSet::new();
    for logical in found.logical_volumes.into_iter().flatten() {
        if let Some(group) = &settings.volume_group {
            if logical.unfinished {
                unfinished.insert(logical.name.clone());
            }
            book.insert(logical.name.clone(), logical_volume(group, &logical));
        }
    }
    for entry in &settings.static_volumes {
        book.entry(entry.name.clone())
            .or_insert_with(|| Volume::from_static(entry));
    }
    let waits = |kind: BackingKind| kind == BackingKind::Lvm && !listed;
    for (handle, text) in records_by_handle(&found.intents) {
        match parse_record::<Intent>(&handle, &text) {
            Ok(intent) if waits(intent.kind) => {}
            Ok(intent) => {
                let making = matches!(
                    intent.operation,
                    Operation::Create { .. } | Operation::Delete
                );
                if let Some(volume) = volume_for_record(
                    &mut book,
                    settings,
                    &handle,
                    intent.kind,
                    intent.static_path.as_ref(),
                    making,
                ) {
                    if let Operation::Create { record } = &intent.operation {
                        if volume.record.is_none() {
                            *volume = volume.clone().with_record(record.clone());
                        }
                        // No caller was told of it.
                        volume.exists &= !unfinished.contains(&handle);
                    }
                    volume.intent = Some(intent);
                }
            }
            Err(why) => mark_unreadable(
                &mut book,
                settings,
                &handle,
                format!("its intent cannot be read: {why}"),
            ),
        }
    }
    for (handle, text) in records_by_handle(&found.attachments) {
        match parse_record::<AttachmentsRecord>(&handle, &text) {
            Ok(record) if waits(record.kind) => {}
            Ok(record) => {
                if let Some(volume) = volume_for_record(
                    &mut book,
                    settings,
                    &handle,
                    record.kind,
                    record.static_path.as_ref(),
                    false,
                ) {
                    if let (true, Some(entry)) = (volume.is_static(), record.static_path) {
                        // As it was when it was attached; the configuration's word counts again
                        // when it is not.
                        volume.backing = static_backing(record.kind, entry);
                        volume.kind = record.kind;
                    }
                    (volume.staged, volume.published, volume.unknown_fields) =
                        (record.staged, record.published, record.unknown_fields);
                }
            }
            Err(why) => mark_unreadable(
                &mut book,
                settings,
                &handle,
                format!("the record of its attachments cannot be read: {why}"),
            ),
        }
    }
    book
}

impl DiscoveredRecords {
    /// Files among the records that are none, by their folders.
    pub(crate) fn unrecognized_files(&self) -> BTreeSet<String> {
        let folders = [
            (VOLUMES_DIR, &self.volumes),
            (INTENTS_DIR, &self.intents),
            (ATTACHMENTS_DIR, &self.attachments),
        ];
        let stray = |record: &&RecordFile| record::handle_from_file_name(&record.name).is_none();
        let of = |(folder, records): (&str, &'_ Vec<RecordFile>)| -> Vec<String> {
            records
                .iter()
                .filter(stray)
                .map(|record| format!("{folder}/{}", record.name))
                .collect()
        };
        folders.into_iter().flat_map(of).collect()
    }
}

/// Records by their handles. Other files in our folders are not ours.
fn records_by_handle(
    records: &[RecordFile],
) -> impl Iterator<Item = (String, Result<&[u8], &str>)> {
    records.iter().filter_map(|found| {
        let handle = record::handle_from_file_name(&found.name)?;
        Some((
            handle.to_owned(),
            found
                .text
                .as_ref()
                .map(String::as_bytes)
                .map_err(String::as_str),
        ))
    })
}

fn parse_record<T: DeserializeOwned + HasHandle>(
    handle: &str,
    text: &Result<&[u8], &str>,
) -> Result<T, String> {
    let text = text.map_err(str::to_owned)?;
    record::read(handle, text).map_err(|error: RecordError| with_causes(&error))
}

fn image_volume(settings: &Settings, handle: &str, text: Result<&&[u8], &&str>) -> Volume {
    let text = text.copied().map_err(|why| *why);
    let backing = pool_backing(settings, BackingKind::Loop, handle)
        .unwrap_or(Backing::Image(HostPath::default()));
    let volume = Volume::new(handle, BackingKind::Loop, backing);
    match parse_record::<VolumeRecord>(handle, &text) {
        Ok(record) => volume.with_record(record),
        Err(why) => with_unreadable_record(
            volume,
            text.ok().and_then(record::name_in_unreadable),
            format!("its record cannot be read: {why}"),
        ),
    }
}

fn logical_volume(group: &str, logical: &LogicalVolume) -> Volume {
    let backing = Backing::LogicalVolume {
        group: group.to_owned(),
        name: logical.name.clone(),
    };
    let volume = Volume::new(&logical.name, BackingKind::Lvm, backing);
    let text = tags::decode(&logical.tags).map_err(|error| with_causes(&error));
    let parsed = match &text {
        Ok(text) if names::is_pool_handle(&logical.name) => {
            record::read(&logical.name, text).map_err(|error| with_causes(&error))
        }
        Ok(_) => Err("its name is no handle".to_owned()),
        Err(why) => Err(why.clone()),
    };
    let mut volume = match parsed {
        Ok(record) => volume.with_record(record),
        Err(why) => with_unreadable_record(
            volume,
            text.ok().as_deref().and_then(record::name_in_unreadable),
            format!("its record cannot be read: {why}"),
        ),
    };
    volume.size = logical.size;
    if logical.unfinished {
        volume.error = Some(
            "its creation was interrupted: it cannot be used, but it can be deleted".to_owned(),
        );
    }
    volume
}

fn with_unreadable_record(mut volume: Volume, name: Option<String>, why: String) -> Volume {
    volume.record_problem = Some(RecordProblem::Unreadable(why));
    if let Some(name) = name {
        volume.name = name;
    }
    volume
}

/// The volume that a record speaks of. One whose own record is not there: being made or deleted, or
/// a static one that left the configuration, or an orphan.
fn volume_for_record<'a>(
    book: &'a mut BTreeMap<String, Volume>,
    settings: &Settings,
    handle: &str,
    kind: BackingKind,
    entry: Option<&HostPath>,
    making: bool,
) -> Option<&'a mut Volume> {
    if !book.contains_key(handle) {
        let backing = match (kind, entry) {
            (BackingKind::StaticDevice | BackingKind::StaticDirectory, Some(path)) => {
                static_backing(kind, path.clone())
            }
            (BackingKind::StaticDevice | BackingKind::StaticDirectory, None) => {
                mark_unreadable(
                    book,
                    settings,
                    handle,
                    "a record of it does not name its device or directory".into(),
                );
                return None;
            }
            (BackingKind::Loop | BackingKind::Lvm, _) => match pool_backing(settings, kind, handle)
            {
                Some(backing) => backing,
                None => {
                    mark_unreadable(
                        book,
                        settings,
                        handle,
                        "it lies in a volume group, and [pool] volume_group is not set".into(),
                    );
                    return None;
                }
            },
        };
        let mut volume = Volume::new(handle, kind, backing);
        volume.exists = !making;
        if !making && !volume.is_static() {
            volume.record_problem = Some(RecordProblem::Orphan("its own record is missing".into()));
        }
        book.insert(handle.to_owned(), volume);
    }
    book.get_mut(handle)
}

fn mark_unreadable(
    book: &mut BTreeMap<String, Volume>,
    settings: &Settings,
    handle: &str,
    why: String,
) {
    let kind = if names::is_pool_handle(handle) {
        BackingKind::Loop
    } else {
        BackingKind::StaticDevice
    };
    let backing =
        pool_backing(settings, kind, handle).unwrap_or(Backing::Device(HostPath::default()));
    let volume = book
        .entry(handle.to_owned())
        .or_insert_with(|| Volume::new(handle, kind, backing));
    volume.record_problem = Some(RecordProblem::Unreadable(why));
}
