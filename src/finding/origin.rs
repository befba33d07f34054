//! Which problems an unprivileged user can make: a pod that fills its volume, a user's mount whose
//! server hangs. There can be any number of them, with any names. They must not displace those of the
//! node's own storage: in messages, and in the history.
//!
//! In: drives and volumes, of a snapshot or of the daemon's answer. Out: yes or no for a subject. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::reason::Reason;

#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    Drive(&'a str),
    Device(&'a str),
    Volume(&'a str),
    Source,
}

impl<'a> From<&'a crate::Subject> for Subject<'a> {
    fn from(subject: &'a crate::Subject) -> Subject<'a> {
        match subject {
            crate::Subject::Drive(id) => Subject::Drive(id.as_str()),
            crate::Subject::Device(name) => Subject::Device(name),
            crate::Subject::Volume(id) => Subject::Volume(id.as_str()),
            crate::Subject::Source(_) => Subject::Source,
        }
    }
}

/// What decides about a volume.
#[derive(Clone, Debug, Default)]
pub struct Volume<'a> {
    pub id: &'a str,
    pub has_driver: bool,
    pub has_pv: bool,
    pub has_pods: bool,
    pub is_remote: bool,
    pub fs_type: &'a str,
    pub devices: &'a [String],
    pub drives: Vec<&'a str>,
    pub mounts: Vec<Mount<'a>>,
}

#[derive(Clone, Debug, Default)]
pub struct Mount<'a> {
    pub path: Cow<'a, str>,
    /// Mounted by the host itself.
    pub is_on_host: bool,
    pub options: &'a [String],
    pub super_options: &'a [String],
}

pub struct Origins<'a> {
    volumes: BTreeMap<&'a str, Volume<'a>>,
    remote_drives: BTreeSet<&'a str>,
    /// Drives that carry a filesystem of the host, and those that carry one of a user.
    host_drives: BTreeSet<&'a str>,
    user_drives: BTreeSet<&'a str>,
}

impl<'a> Origins<'a> {
    pub fn new(
        remote_drives: impl IntoIterator<Item = &'a str>,
        volumes: impl IntoIterator<Item = Volume<'a>>,
    ) -> Origins<'a> {
        let (mut host_drives, mut user_drives) = (BTreeSet::new(), BTreeSet::new());
        let mut by_id = BTreeMap::new();
        for volume in volumes {
            match belongs_to_user(&volume) {
                true => user_drives.extend(&volume.drives),
                false => host_drives.extend(&volume.drives),
            }
            by_id.insert(volume.id, volume);
        }
        Origins {
            volumes: by_id,
            remote_drives: remote_drives.into_iter().collect(),
            host_drives,
            user_drives,
        }
    }

    /// `reasons`: those of the findings of the subject itself.
    pub fn is_user_made<'b>(
        &self,
        subject: Subject<'_>,
        reasons: impl IntoIterator<Item = &'b str>,
    ) -> bool {
        match subject {
            // A pod can bring a network disk of its own, as a volume in its specification.
            Subject::Drive(id) => self.is_users_disk(id),
            // Desktops attach images for their users.
            Subject::Device(name) => is_loop(name),
            Subject::Volume(id) => match self.volumes.get(id) {
                Some(volume) => self.is_user_made_of(volume, reasons),
                // It is gone: whose it was is not known.
                None => true,
            },
            Subject::Source => false,
        }
    }

    /// Whether it can be said of this subject.
    pub fn is_known(&self, subject: Subject<'_>) -> bool {
        !matches!(subject, Subject::Volume(id) if !self.volumes.contains_key(id))
    }

    fn is_users_disk(&self, id: &str) -> bool {
        self.remote_drives.contains(id)
            && self.user_drives.contains(id)
            && !self.host_drives.contains(id)
    }

    fn is_user_made_of<'b>(
        &self,
        volume: &Volume<'_>,
        reasons: impl IntoIterator<Item = &'b str>,
    ) -> bool {
        let is_local = !volume.drives.is_empty()
            && !volume.is_remote
            && !volume.drives.iter().any(|id| self.is_users_disk(id));
        let can_make = |reason: &str| reason.parse().is_ok_and(Reason::is_of_users);
        belongs_to_user(volume)
            && (!is_local || is_users_mount(volume) || reasons.into_iter().all(can_make))
    }
}

/// A volume of pods, or a mount that a user can have made.
fn belongs_to_user(volume: &Volume<'_>) -> bool {
    let of_pods = volume.has_driver
        || volume.has_pv
        || (volume.has_pods && !volume.mounts.iter().any(|mount| mount.is_on_host));
    of_pods || is_users_mount(volume)
}

/// A FUSE filesystem of a user; or a mount without set-user-id bits and devices, as mount(8),
/// udisks and automount make them for users, of an image, or below /media or /net. Others are made by
/// root, who hardens them in the same way.
fn is_users_mount(volume: &Volume<'_>) -> bool {
    if volume.has_driver || volume.mounts.is_empty() {
        return false;
    }
    let fs_type = volume.fs_type;
    let is_fuse = fs_type == "fuse" || fs_type.starts_with("fuse.") || fs_type == "fuseblk";
    // The kernel shows the owner behind the options of the server (fuse_show_options()).
    let owner = |mount: &Mount<'_>| {
        let mut options = mount.super_options.iter().rev();
        options.find_map(|option| option.strip_prefix("user_id=")?.parse::<u32>().ok())
    };
    let is_confined = |mount: &Mount<'_>| {
        ["nosuid", "nodev"].iter().all(|option| mount.options.iter().any(|it| it == option))
    };
    let is_medium = |mount: &Mount<'_>| {
        ["/media/", "/run/media/", "/net/"]
            .iter()
            .any(|directory| mount.path.starts_with(directory))
    };
    let is_image = volume.devices.iter().any(|name| is_loop(name));
    let mut mounts = volume.mounts.iter();
    mounts.all(|mount| {
        (is_fuse && owner(mount).is_some_and(|uid| uid != 0))
            || (is_confined(mount) && (is_image || is_medium(mount)))
    })
}

fn is_loop(device: &str) -> bool {
    device
        .strip_prefix("loop")
        .is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}
