//! Staging: the volume gets its device, a filesystem when it is certainly blank, and its mount at
//! the staging path. And back.

use crate::attach::engine::hand::Hand;
use crate::attach::engine::volume::{Backing, Volume};
use crate::attach::engine::{StageWish, settle};
use crate::attach::fault::Fault;
use crate::attach::record::Operation;
use crate::attach::rules::filesystem::Filesystem;
use crate::attach::rules::{access, mkfs, mount};
use crate::attach::step::{Content, Device, Place, Step, Steps};
use crate::host::clock;
use crate::model::attach::{Access, Attachment};
use crate::model::path::HostPath;

const STAGING: &str = "staging_path";

pub async fn stage<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wish: &StageWish,
) -> Result<(), Fault> {
    volume.usable()?;
    fits(volume, &wish.access)?;
    let place = hand.place(STAGING, &HostPath::from(wish.staging_path.as_str()))?;
    if let Some(staged) = volume.staged.clone() {
        if staged.path != place.path {
            return Err(Fault::Precondition(format!(
                "volume {} is staged at {} already",
                volume.handle, staged.path
            )));
        }
        if !access::same(&staged.access, &wish.access) {
            return Err(Fault::Exists(format!(
                "volume {} is staged at {} with another access",
                volume.handle, staged.path
            )));
        }
        volume.looked = false;
        settle::settle(hand, volume).await?;
        if volume.staged.is_some() {
            return Ok(());
        }
    }
    if !wish.access.block
        && !matches!(volume.backing, Backing::Folder(_))
        && hand.mounted(&place, Some(STAGING)).await?.is_some()
    {
        find_what_is_left(hand, volume).await?;
        find_strangers(hand, volume, &place, STAGING).await?;
    }
    hand.intend(
        volume,
        Operation::Stage {
            path: place.path.clone(),
            access: wish.access.clone(),
        },
    )
    .await?;
    let staged = make_ready(hand, volume, &wish.access, &place).await;
    conclude(hand, volume, staged).await
}

async fn make_ready<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wanted: &Access,
    place: &Place,
) -> Result<(), Fault> {
    let read_only = match &volume.backing {
        Backing::Folder(path) => {
            check_folder(hand, path).await?;
            access::is_read_only(wanted.mode)
        }
        Backing::Image(_) | Backing::LogicalVolume { .. } | Backing::Device(_) => {
            attach_and_mount(
                hand,
                volume,
                wanted,
                (!wanted.block).then_some(place),
                STAGING,
                false,
            )
            .await?
        }
    };
    let since = clock::now();
    volume.staged = Some(Attachment {
        path: place.path.clone(),
        access: wanted.clone(),
        read_only,
        pod: None,
        since,
    });
    let written = hand.write_attachments(volume).await;
    if written.is_err() {
        volume.staged = None;
    }
    written
}

/// The device, and where a place is told, its filesystem mounted there. Returns whether that is
/// read-only.
pub async fn attach_and_mount<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    wanted: &Access,
    place: Option<&Place>,
    field: &'static str,
    read_only: bool,
) -> Result<bool, Fault> {
    let (options, asked) = mount::options(&wanted.mount_flags);
    let read_only = read_only || asked || access::is_read_only(wanted.mode);
    let device = hand.attach(volume, wanted.block && read_only).await?;
    let Some(device) = device else {
        return Ok(read_only);
    };
    if volume.is_static() {
        volume.size = device.size;
    }
    if device.read_only && !read_only {
        return Err(Fault::Precondition(format!(
            "{} is read-only, volume {} is wanted for writing",
            device.name, volume.handle
        )));
    }
    let Some(place) = place else {
        return Ok(read_only);
    };
    find_strangers(hand, volume, place, field).await?;
    let (filesystem, size) = filesystem_on(hand, volume, &device, wanted).await?;
    if let (Filesystem::Ext4, Some(size), Some(_)) = (filesystem, size, &volume.record)
        && falls_short(size, device.size)
    {
        grow_before_mount(hand, volume, &device, place).await?;
    }
    mount::check(filesystem, true, &wanted.mount_flags)?;
    let fs_type = filesystem.name().to_owned();
    hand.step_at(
        Step::Mount {
            device: device.node,
            target: place.clone(),
            fs_type,
            options,
            read_only,
        },
        field,
    )
    .await?;
    Ok(read_only)
}

/// What else is mounted where it is wanted is not covered.
pub async fn find_strangers<S: Steps>(
    hand: &Hand<S>,
    volume: &Volume,
    place: &Place,
    field: &'static str,
) -> Result<(), Fault> {
    match hand.mounted(place, Some(field)).await? {
        Some(other) if !volume.is_mounted_as(&other) => Err(Fault::Exists(format!(
            "{field}: {} is mounted at {} already",
            other.source, place.path
        ))),
        _ => Ok(()),
    }
}

/// The filesystem that is wanted of a blank device: who stages it may leave it to who made the
/// volume.
fn asked<'a>(volume: &'a Volume, wanted: &'a Access) -> Option<&'a str> {
    let made = volume.record.as_ref().and_then(|record| {
        record
            .accesses
            .iter()
            .find_map(|access| access.fs_type.as_deref())
    });
    wanted.fs_type.as_deref().or(made)
}

/// What is on it, made first when there is certainly nothing.
async fn filesystem_on<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    device: &Device,
    wanted: &Access,
) -> Result<(Filesystem, Option<u64>), Fault> {
    match hand.content(device).await? {
        Content::Foreign { what } => Err(Fault::Precondition(format!(
            "{} carries {what}: it is not formatted",
            device.name
        ))),
        Content::Filesystem { fs_type, size, .. } => {
            let known = Filesystem::of(&fs_type);
            let other = wanted.fs_type.as_deref().filter(|asked| *asked != fs_type);
            match (known, other) {
                (Some(filesystem), None) => Ok((filesystem, size)),
                (_, Some(asked)) => Err(Fault::Precondition(format!(
                    "{} carries {fs_type}, and {asked} is asked for: it is not formatted",
                    device.name
                ))),
                (None, None) => Err(Fault::Precondition(format!(
                    "{} carries {fs_type}, which is not mounted for volumes",
                    device.name
                ))),
            }
        }
        Content::Blank => {
            let filesystem = Filesystem::asked(asked(volume, wanted))?;
            if device.size < filesystem.smallest() {
                let (name, least) = (filesystem.name(), filesystem.smallest());
                return Err(Fault::Precondition(format!(
                    "{} has {} bytes, {name} needs {least}",
                    device.name, device.size
                )));
            }
            let options = volume
                .record
                .as_ref()
                .map(|record| record.mkfs_options.clone())
                .unwrap_or_default();
            let options = mkfs::options(filesystem, &options)?;
            format(hand, volume, device, filesystem, options).await?;
            Ok((filesystem, None))
        }
    }
}

async fn format<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    device: &Device,
    filesystem: Filesystem,
    options: Vec<String>,
) -> Result<(), Fault> {
    hand.formatting(volume, Some(device.is())).await?;
    let step = Step::Format {
        device: device.node.clone(),
        fs_type: filesystem.name().to_owned(),
        options,
    };
    let what = step.about().words;
    match hand.take(step).await {
        Ok(_) => hand.formatting(volume, None).await,
        Err(error) => {
            // What is there is not our mkfs's, and nobody may take it for that later.
            if error.kind.is_refusal()
                && let Err(left) = hand.formatting(volume, None).await
            {
                tracing::warn!(volume = volume.handle, error = %left, "a mkfs that was refused may still be written down as begun");
            }
            Err(Fault::of_step(&what, None, error))
        }
    }
}

/// A volume that was grown, and its filesystem not with it. A filesystem of full size may lack a
/// tail that is too short for a group's own metadata.
fn falls_short(filesystem: u64, device: u64) -> bool {
    let missing = device.saturating_sub(filesystem);
    missing >= 8 << 20 || missing >= device / 8
}

/// Growing a mounted ext4 takes a right (CAP_SYS_RESOURCE) that not every machine gives; before it
/// is mounted it takes none. Where it cannot be grown now, it is mounted as large as it is: its
/// files matter more than its size.
async fn grow_before_mount<S: Steps>(
    hand: &Hand<S>,
    volume: &Volume,
    device: &Device,
    place: &Place,
) -> Result<(), Fault> {
    let step = Step::GrowFilesystem {
        device: device.node.clone(),
        at: place.clone(),
        fs_type: Filesystem::Ext4.name().to_owned(),
    };
    match hand.step(step).await {
        Err(fault @ Fault::Stuck(_)) => Err(fault),
        Err(error) => {
            tracing::warn!(volume = volume.handle, %error, "a filesystem that is smaller than its volume is mounted as it is");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The end of what makes a thing: its intent goes, or everything is taken back. What has not come
/// back keeps its intent: nobody knows how it went.
pub async fn conclude<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    result: Result<(), Fault>,
) -> Result<(), Fault> {
    match result {
        Ok(()) => {
            // It is done and recorded; an intent that stays is found to be done when the volume is
            // settled next.
            if let Err(error) = hand.done(volume).await {
                tracing::warn!(volume = volume.handle, %error, "an intent could not be removed");
            }
            Ok(())
        }
        Err(fault @ Fault::Stuck(_)) => Err(fault),
        Err(fault) => {
            // What cannot be taken back yet is told by it, and tried again later.
            drop(settle::settle(hand, volume).await);
            Err(fault)
        }
    }
}

/// The end of what unmakes a thing: who holds it keeps it, everything else is finished later.
pub async fn conclude_unmaking<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    result: Result<(), Fault>,
) -> Result<(), Fault> {
    if let Err(Fault::Held(_)) = &result
        && let Err(error) = hand.done(volume).await
    {
        tracing::warn!(volume = volume.handle, %error, "an intent could not be removed");
    }
    result
}

/// Takes staging back. A filesystem that mkfs may have begun is nobody's, and the pool's volumes
/// are made blank again where they lie.
pub async fn undo<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    path: &HostPath,
) -> Result<(), Fault> {
    let place = hand.place("path", path)?;
    find_what_is_left(hand, volume).await?;
    match hand.unmount(volume, &place, Some("path"), false).await {
        // It leads through a link now, or did from the start: what is ours is nowhere that it
        // names. A mount that is left elsewhere holds the device.
        Err(Fault::Invalid { .. }) => {}
        unmounted => drop(unmounted?),
    }
    take_back_device(hand, volume).await?;
    hand.write_attachments(volume).await?;
    hand.done(volume).await
}

/// A device that cannot be found any more is gone with what was on it.
pub async fn find_what_is_left<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    match hand.find(volume).await {
        Err(Fault::Unavailable(_)) => {
            volume.device = None;
            Ok(())
        }
        found => found,
    }
}

pub async fn take_back_device<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    if volume.is_attached() {
        return Ok(());
    }
    let formatting = volume
        .intent
        .as_ref()
        .is_some_and(|intent| intent.formatting);
    if formatting && volume.is_static() {
        finish_format(hand, volume).await?;
    } else if formatting && volume.record.is_some() {
        make_blank(hand, volume).await?;
    }
    hand.detach(volume).await?;
    if formatting {
        hand.formatting(volume, None).await?;
    }
    Ok(())
}

/// Blank before mkfs began, and never mounted since: nothing of anybody's is lost. A cut mkfs
/// leaves what is neither blank nor a filesystem, and no later mkfs would be allowed over it. The
/// volume itself is not let go meanwhile: its place could be somebody else's then, and with a
/// logical volume goes its record.
async fn make_blank<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    match hand.attach(volume, false).await {
        Ok(Some(device)) => {
            hand.step(Step::Blank {
                device: device.node,
            })
            .await
        }
        Ok(None) => Ok(()),
        Err(Fault::Unavailable(why)) => {
            tracing::error!(
                volume = volume.handle,
                why,
                "a mkfs was cut off on a device that is gone: what it left is not formatted again"
            );
            Ok(())
        }
        Err(fault) => Err(fault),
    }
}

/// A static volume is not ours to make anew: its mkfs is begun once more. What is there meanwhile
/// that no mkfs of ours has left stays, and so does whatever is on another device that has the same
/// name by now.
async fn finish_format<S: Steps>(hand: &Hand<S>, volume: &Volume) -> Result<(), Fault> {
    let (Some(device), Some(intent)) = (&volume.device, &volume.intent) else {
        return Ok(());
    };
    let (Operation::Stage { access, .. } | Operation::Publish { access, .. }) = &intent.operation
    else {
        return Ok(());
    };
    let fs_type = Filesystem::asked(asked(volume, access))?.name().to_owned();
    let was = intent.device.clone().unwrap_or_default();
    match hand
        .step(Step::FormatAgain {
            device: device.node.clone(),
            was,
            fs_type,
            options: Vec::new(),
        })
        .await
    {
        // The mkfs that was left alone may still be at it.
        Err(fault @ (Fault::Held(_) | Fault::Stuck(_))) => Err(fault),
        Err(error) => {
            tracing::error!(volume = volume.handle, %error, "a mkfs that was cut off could not be repeated: look what is on the device");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

pub async fn unstage<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    path: &str,
) -> Result<(), Fault> {
    volume.touchable()?;
    let place = hand.place(STAGING, &HostPath::from(path))?;
    if let Some(held) = volume.published.first() {
        return Err(Fault::Precondition(format!(
            "volume {} is published to {}",
            volume.handle,
            access::name_of(held)
        )));
    }
    if volume
        .staged
        .as_ref()
        .is_none_or(|staged| staged.path != place.path)
    {
        // Never staged there, as far as we know; perhaps something of it is there all the same.
        find_what_is_left(hand, volume).await?;
        match hand.mounted(&place, Some(STAGING)).await? {
            None => return Ok(()),
            Some(mounted) if volume.is_mounted_as(&mounted) => {}
            Some(other) => {
                return Err(Fault::Precondition(format!(
                    "{} is mounted at {}, not this volume",
                    other.source, place.path
                )));
            }
        }
    }
    hand.intend(
        volume,
        Operation::Unstage {
            path: place.path.clone(),
        },
    )
    .await?;
    let unstaged = finish_unstage(hand, volume, &place.path, Some(STAGING)).await;
    conclude_unmaking(hand, volume, unstaged).await
}

pub async fn finish_unstage<S: Steps>(
    hand: &Hand<S>,
    volume: &mut Volume,
    path: &HostPath,
    field: Option<&'static str>,
) -> Result<(), Fault> {
    let place = hand.place(STAGING, path)?;
    find_what_is_left(hand, volume).await?;
    let mounted_there = volume
        .staged
        .as_ref()
        .is_some_and(|staged| !staged.access.block)
        && !matches!(volume.backing, Backing::Folder(_));
    if (mounted_there || volume.staged.is_none())
        && let Some(other) = hand.unmount(volume, &place, field, mounted_there).await?
    {
        return Err(Fault::Held(format!(
            "{} is mounted at {}, not this volume",
            other.source, place.path
        )));
    }
    if volume.published.is_empty()
        && volume
            .staged
            .as_ref()
            .is_none_or(|staged| staged.path == *path)
    {
        hand.detach(volume).await?;
    }
    let staged = volume.staged.take_if(|staged| staged.path == *path);
    if let Err(fault) = hand.write_attachments(volume).await {
        volume.staged = staged.or(volume.staged.take());
        return Err(fault);
    }
    volume.trouble = None;
    hand.done(volume).await
}

/// A static volume that nobody uses: whether it is there.
pub async fn look<S: Steps>(hand: &Hand<S>, volume: &mut Volume) -> Result<(), Fault> {
    let looked = match volume.backing.clone() {
        Backing::Folder(path) => check_folder(hand, &path).await,
        Backing::Device(_) | Backing::Image(_) | Backing::LogicalVolume { .. } => {
            hand.find(volume).await
        }
    };
    match looked {
        Ok(()) => {
            if let Some(device) = &volume.device {
                volume.size = device.size;
            }
            volume.trouble = None;
            Ok(())
        }
        Err(fault @ Fault::Stuck(_)) => Err(fault),
        Err(fault) => {
            volume.device = None;
            volume.trouble = Some(fault.to_string());
            Ok(())
        }
    }
}

pub async fn check_folder<S: Steps>(hand: &Hand<S>, path: &HostPath) -> Result<(), Fault> {
    hand.step(Step::CheckFolder {
        path: path.clone(),
        roots: hand.settings.roots.clone(),
    })
    .await
}

/// Whether the wish can be fulfilled by what the volume is.
pub fn fits(volume: &Volume, wanted: &Access) -> Result<(), Fault> {
    access::check(wanted)?;
    if wanted.block && matches!(volume.backing, Backing::Folder(_)) {
        return Err(Fault::invalid(
            "access.block",
            format!("volume {} is a folder", volume.handle),
        ));
    }
    Ok(())
}
