//! The first look: what the records and the volume group tell of volumes, put together into the
//! book.
//!
//! In: records as they were read. Out: volumes, each not yet compared with the host. A record that
//! cannot be read makes a volume that is left alone; a volume group that cannot be listed leaves
//! its volumes unknown, which is not the same as absent.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use crate::attach::engine::hand::{ATTACHMENTS, Hand, INTENTS, VOLUMES, pool_backing};
use crate::attach::engine::volume::{Backing, Broken, Volume, static_backing};
use crate::attach::engine::{Settings, pool};
use crate::attach::fault::Fault;
use crate::attach::record::{
    self, AttachmentsRecord, Intent, Named, Operation, RecordError, VolumeRecord, tags,
};
use crate::attach::rules::names;
use crate::attach::step::{LogicalVolume, Record, Room, Steps};
use crate::model::attach::Kind;
use crate::model::causes::with_causes;
use crate::model::path::HostPath;

/// All records, and the group's volumes where there is a group.
pub struct Found {
    pub volumes: Vec<Record>,
    pub intents: Vec<Record>,
    pub attachments: Vec<Record>,
    /// Or why they could not be listed.
    pub group: Result<Vec<LogicalVolume>, String>,
}

pub async fn read<S: Steps>(hand: &Hand<S>) -> Result<Found, Fault> {
    if hand.settings.folder_given {
        // Where its disk is not mounted the folder is not there, which is not a folder without
        // volumes.
        pool::room(hand, Kind::Loop).await?;
    }
    // Intents last: one that is removed meanwhile was done, and its records are read already.
    // Nothing else writes before the first look is over.
    let volumes = hand.records(VOLUMES).await?;
    let attachments = hand.records(ATTACHMENTS).await?;
    let intents = hand.records(INTENTS).await?;
    let group = match hand.settings.group.clone() {
        Some(group) => hand
            .logical_volumes(&group)
            .await
            .map_err(|fault| with_causes(&fault)),
        None => Ok(Vec::new()),
    };
    Ok(Found {
        volumes,
        intents,
        attachments,
        group,
    })
}

pub async fn rooms<S: Steps>(hand: &Hand<S>) -> Vec<(Kind, Result<Room, String>)> {
    let mut rooms = vec![(
        Kind::Loop,
        pool::room(hand, Kind::Loop)
            .await
            .map_err(|fault| with_causes(&fault)),
    )];
    if hand.settings.group.is_some() {
        rooms.push((
            Kind::Lvm,
            pool::room(hand, Kind::Lvm)
                .await
                .map_err(|fault| with_causes(&fault)),
        ));
    }
    rooms.sort_by_key(|(kind, _)| *kind != hand.settings.default_kind());
    rooms
}

pub fn book(settings: &Settings, found: Found) -> BTreeMap<String, Volume> {
    let mut book: BTreeMap<String, Volume> = BTreeMap::new();
    for (handle, text) in named(&found.volumes) {
        let volume = image_volume(settings, &handle, text.as_ref());
        book.insert(handle, volume);
    }
    let listed = found.group.is_ok();
    let mut unfinished = BTreeSet::new();
    for logical in found.group.into_iter().flatten() {
        if let Some(group) = &settings.group {
            if logical.unfinished {
                unfinished.insert(logical.name.clone());
            }
            book.insert(logical.name.clone(), logical_volume(group, &logical));
        }
    }
    for entry in &settings.statics {
        book.entry(entry.name.clone())
            .or_insert_with(|| Volume::of_static(entry));
    }
    let waits = |kind: Kind| kind == Kind::Lvm && !listed;
    for (handle, text) in named(&found.intents) {
        match parse::<Intent>(&handle, &text) {
            Ok(intent) if waits(intent.kind) => {}
            Ok(intent) => {
                let making = matches!(
                    intent.operation,
                    Operation::Create { .. } | Operation::Delete
                );
                if let Some(volume) = known(
                    &mut book,
                    settings,
                    &handle,
                    intent.kind,
                    intent.entry.as_ref(),
                    making,
                ) {
                    if let Operation::Create { record } = &intent.operation {
                        if volume.record.is_none() {
                            *volume = volume.clone().with_record(record.clone());
                        }
                        // Nobody was told of it.
                        volume.made &= !unfinished.contains(&handle);
                    }
                    volume.intent = Some(intent);
                }
            }
            Err(why) => unreadable(
                &mut book,
                settings,
                &handle,
                format!("its intent cannot be read: {why}"),
            ),
        }
    }
    for (handle, text) in named(&found.attachments) {
        match parse::<AttachmentsRecord>(&handle, &text) {
            Ok(record) if waits(record.kind) => {}
            Ok(record) => {
                if let Some(volume) = known(
                    &mut book,
                    settings,
                    &handle,
                    record.kind,
                    record.entry.as_ref(),
                    false,
                ) {
                    if let (true, Some(entry)) = (volume.is_static(), record.entry) {
                        // As it was when it was attached; the configuration's word counts again
                        // when it is not.
                        volume.backing = static_backing(record.kind, entry);
                        volume.kind = record.kind;
                    }
                    (volume.staged, volume.published, volume.other) =
                        (record.staged, record.published, record.other);
                }
            }
            Err(why) => unreadable(
                &mut book,
                settings,
                &handle,
                format!("the record of its attachments cannot be read: {why}"),
            ),
        }
    }
    book
}

impl Found {
    /// Files among the records that are none, by their folders.
    pub fn strays(&self) -> BTreeSet<String> {
        let folders = [
            (VOLUMES, &self.volumes),
            (INTENTS, &self.intents),
            (ATTACHMENTS, &self.attachments),
        ];
        let stray = |record: &&Record| record::handle_of(&record.name).is_none();
        let of = |(folder, records): (&str, &'_ Vec<Record>)| -> Vec<String> {
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
fn named(records: &[Record]) -> impl Iterator<Item = (String, Result<&[u8], &str>)> {
    records.iter().filter_map(|found| {
        let handle = record::handle_of(&found.name)?;
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

fn parse<T: DeserializeOwned + Named>(
    handle: &str,
    text: &Result<&[u8], &str>,
) -> Result<T, String> {
    let text = text.map_err(str::to_owned)?;
    record::read(handle, text).map_err(|error: RecordError| with_causes(&error))
}

fn image_volume(settings: &Settings, handle: &str, text: Result<&&[u8], &&str>) -> Volume {
    let text = text.copied().map_err(|why| *why);
    let backing =
        pool_backing(settings, Kind::Loop, handle).unwrap_or(Backing::Image(HostPath::default()));
    let volume = Volume::new(handle, Kind::Loop, backing);
    match parse::<VolumeRecord>(handle, &text) {
        Ok(record) => volume.with_record(record),
        Err(why) => broken(
            volume,
            text.ok().and_then(record::name_in),
            format!("its record cannot be read: {why}"),
        ),
    }
}

fn logical_volume(group: &str, logical: &LogicalVolume) -> Volume {
    let backing = Backing::LogicalVolume {
        group: group.to_owned(),
        name: logical.name.clone(),
    };
    let volume = Volume::new(&logical.name, Kind::Lvm, backing);
    let text = tags::text(&logical.tags).map_err(|error| with_causes(&error));
    let parsed = match &text {
        Ok(text) if names::is_pool_handle(&logical.name) => {
            record::read(&logical.name, text).map_err(|error| with_causes(&error))
        }
        Ok(_) => Err("its name is no handle".to_owned()),
        Err(why) => Err(why.clone()),
    };
    let mut volume = match parsed {
        Ok(record) => volume.with_record(record),
        Err(why) => broken(
            volume,
            text.ok().as_deref().and_then(record::name_in),
            format!("its record cannot be read: {why}"),
        ),
    };
    volume.size = logical.size;
    if logical.unfinished {
        volume.trouble = Some(
            "its making was never finished: it is given to nobody, and can be deleted".to_owned(),
        );
    }
    volume
}

fn broken(mut volume: Volume, name: Option<String>, why: String) -> Volume {
    volume.broken = Some(Broken::Unreadable(why));
    if let Some(name) = name {
        volume.name = name;
    }
    volume
}

/// The volume that a record speaks of. One whose own record is not there: being made or deleted, or
/// a static one that left the configuration, or an orphan.
fn known<'a>(
    book: &'a mut BTreeMap<String, Volume>,
    settings: &Settings,
    handle: &str,
    kind: Kind,
    entry: Option<&HostPath>,
    making: bool,
) -> Option<&'a mut Volume> {
    if !book.contains_key(handle) {
        let backing = match (kind, entry) {
            (Kind::StaticDevice | Kind::StaticDirectory, Some(path)) => {
                static_backing(kind, path.clone())
            }
            (Kind::StaticDevice | Kind::StaticDirectory, None) => {
                unreadable(
                    book,
                    settings,
                    handle,
                    "a record of it does not say what it lies in".into(),
                );
                return None;
            }
            (Kind::Loop | Kind::Lvm, _) => match pool_backing(settings, kind, handle) {
                Some(backing) => backing,
                None => {
                    unreadable(
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
        volume.made = !making;
        if !making && !volume.is_static() {
            volume.broken = Some(Broken::Orphan("its own record is gone".into()));
        }
        book.insert(handle.to_owned(), volume);
    }
    book.get_mut(handle)
}

fn unreadable(book: &mut BTreeMap<String, Volume>, settings: &Settings, handle: &str, why: String) {
    let kind = if names::is_pool_handle(handle) {
        Kind::Loop
    } else {
        Kind::StaticDevice
    };
    let backing =
        pool_backing(settings, kind, handle).unwrap_or(Backing::Device(HostPath::default()));
    let volume = book
        .entry(handle.to_owned())
        .or_insert_with(|| Volume::new(handle, kind, backing));
    volume.broken = Some(Broken::Unreadable(why));
}
