use std::collections::BTreeMap;

use crate::block::Layer;
use crate::condition::statuses;
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use crate::storage::tests::pool;
use crate::volume::{CsiStatus, MountRole, Stack, VolumeFacts};
use diskvitals_finding::Subject;
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::provision::{BackingKind, ProvisionState, VolumePresence};
use diskvitals_finding::reason::Reason;

const K: &str = "/var/lib/kubelet";

fn staging() -> String {
    format!("{K}/plugins/kubernetes.io/csi/own/0af/globalmount")
}

fn target() -> String {
    format!("{K}/pods/u1/volumes/kubernetes.io~csi/pv-1/mount")
}

fn provided_volume(host: &TestHost) -> VolumeFacts {
    host.volumes().into_iter().find(|volume| volume.id.as_str() == "csi:own/v1").expect("there")
}

fn read_all_and_provision(host: &mut TestHost, seconds: i64) {
    host.read_all(seconds);
    host.read_provision(seconds);
}

fn csi_status(host: &TestHost) -> CsiStatus {
    statuses(&host.facts.volumes[&volume("csi:own/v1")], &[]).csi
}

fn provision(host: &mut TestHost) -> &mut ProvisionState {
    host.provision.as_mut().expect("has one")
}

#[test]
fn an_idle_volume_stands_on_what_its_image_lies_on() {
    let volume = provided_volume(&pool(None, &[]));
    assert_eq!(
        (volume.device.as_deref(), volume.devices.as_slice()),
        (None, &["sdp1".to_owned(), "sdp".to_owned()][..])
    );
    assert_eq!(
        (volume.drive_ids.as_slice(), &volume.stack),
        (&[DriveId::new("P")][..], &Stack::Drive(DriveId::new("P")))
    );
    assert!(!volume.device_gone && volume.missing_mounts.is_empty());
}

#[test]
fn a_published_volume_has_its_mounts_its_pod_and_the_whole_stack() {
    let mut host = pool(Some(&staging()), &[&target()]);
    let volume = provided_volume(&host);
    assert_eq!(volume.devices, ["loop7", "sdp1", "sdp"]);
    assert_eq!(volume.stack, Stack::Drive(DriveId::new("P")));
    assert_eq!(
        volume.mounts.iter().map(|mount| mount.role).collect::<Vec<_>>(),
        [MountRole::Staging, MountRole::Pod]
    );
    assert_eq!((volume.pods[0].uid.as_str(), volume.pods[0].volume_name.as_str()), ("u1", "pv-1"));
    assert_eq!(host.volumes().len(), 2, "it is no volume of the host as well; the pool is");
    // The kubelet's records say the same thing once more.
    host = host.csi("own", "v1", Some(&staging()), &[("u1", &target())]);
    let joined = provided_volume(&host);
    assert_eq!(
        (joined.mounts, joined.pods.len(), joined.pv.as_deref()),
        (volume.mounts, 1, Some("pv-v1"))
    );
}

#[test]
fn loop_devices_that_count_as_drives_are_looked_through_all_the_same() {
    let mut host = pool(Some(&staging()), &[]);
    host.inventory.devices.get_mut("loop7").expect("there").drive = Some(DriveId::new("loop7"));
    assert_eq!(provided_volume(&host).drive_ids, [DriveId::new("P")]);
}

#[test]
fn csi_status_is_known_from_the_first_provision_report() {
    let mut host = pool(None, &[]);
    read_all_and_provision(&mut host, 0);
    assert_eq!(csi_status(&host), CsiStatus::Created);
    let mut host = pool(Some(&staging()), &[]);
    read_all_and_provision(&mut host, 0);
    assert_eq!(csi_status(&host), CsiStatus::Staged);
    let mut host = pool(Some(&staging()), &[&target()]);
    read_all_and_provision(&mut host, 0);
    assert_eq!(csi_status(&host), CsiStatus::Published);
    // A report that failed takes nothing away.
    host.apply(SourceUpdate::Provision(Observation::failed(at(1), "no")), 1);
    host.read_mounts(2);
    assert_eq!(csi_status(&host), CsiStatus::Published);
}

#[test]
fn a_removed_drive_makes_idle_volumes_of_its_pool_missing() {
    let mut host = pool(None, &[]);
    read_all_and_provision(&mut host, 0);
    host.pull("sdp");
    host.scan(10);
    let raised = host.raised(20);
    assert!(
        raised.contains(&"volume csi:own/v1 DriveFailing Bad Inaccessible".to_owned())
            || raised.iter().any(|line| line.contains("csi:own/v1 DeviceMissing")),
        "{raised:?}"
    );
}

#[test]
fn a_staged_provided_volume_that_is_not_mounted_is_missing_without_kubelet_records() {
    let mut host = pool(Some(&staging()), &[&target()]);
    read_all_and_provision(&mut host, 0);
    assert!(host.raised(0).is_empty());
    host.umount(&target());
    host.umount(&staging());
    host.read_mounts(10);
    let missing: Vec<String> =
        host.raised(60).into_iter().filter(|line| line.contains("csi:own/v1")).collect();
    assert_eq!(missing.len(), 2, "{missing:?}");
    let said = host.raised_for(Reason::NotMounted, 61).expect("raised").message;
    assert!(said.starts_with("according to this node's own record a pod has the volume"), "{said}");
    provision(&mut host).volumes[0].published.clear();
    provision(&mut host).volumes[0].staged = None;
    host.read_provision(70);
    assert!(host.raised(71).iter().all(|line| !line.contains("csi:own/v1")));
}

#[test]
fn a_loop_device_that_went_beneath_a_mount_is_missing_and_one_that_has_just_come_is_not() {
    let mut host = pool(None, &[]);
    read_all_and_provision(&mut host, 0);
    // Attached and mounted; the scan that will show the device has not been made.
    let devices = host.inventory.clone();
    let mut host =
        TestHost { inventory: devices, facts: host.facts, ..pool(Some(&staging()), &[]) };
    provision(&mut host).volumes[0].staged.as_mut().expect("staged").since = at(100);
    host.read_provision(100);
    host.read_mounts(100);
    assert!(host.raised_for(Reason::DeviceMissing, 101).is_none());
    assert!(host.raised_for(Reason::DeviceMissing, 110).is_some(), "nobody has seen it since");
    let world_with_loop = pool(Some(&staging()), &[]);
    host.inventory = world_with_loop.inventory;
    host.scan(111);
    assert!(host.raised_for(Reason::DeviceMissing, 112).is_none());
    host.inventory.devices.remove("loop7");
    host.scan(120);
    assert!(
        host.raised_for(Reason::DeviceMissing, 120).is_some(),
        "it was seen before: there is nothing to wait for"
    );
}

#[test]
fn restored_provided_volumes_stay_until_the_first_provision_report() {
    let mut host = pool(None, &[]);
    read_all_and_provision(&mut host, 0);
    let stored: Vec<_> = host.facts.stored_volumes().into_values().collect();
    let mut later = pool(None, &[]);
    later.restore_volumes(stored, 5);
    later.read_all(10);
    let id = volume("csi:own/v1");
    assert_eq!(later.facts.volumes[&id].first_seen, at(0));
    later.read_provision(11);
    assert_eq!(later.facts.volumes[&id].first_seen, at(0));
    provision(&mut later).volumes.clear();
    later.read_provision(12);
    assert!(!later.facts.volumes.contains_key(&id), "deleted");
}

#[test]
fn a_static_device_is_what_its_link_leads_to() {
    let mut host = TestHost::default().disk("sdb", "8:16", "B");
    host.inventory.devices.get_mut("sdb").expect("there").links =
        vec!["/dev/disk/by-id/ata-B".into()];
    host.provision = pool(None, &[]).provision;
    let provided = &mut provision(&mut host).volumes[0];
    (provided.kind, provided.backing) = (BackingKind::StaticDevice, "/dev/disk/by-id/ata-B".into());
    let volume = provided_volume(&host);
    assert_eq!(
        (volume.device.as_deref(), volume.drive_ids.as_slice(), volume.device_gone),
        (Some("sdb"), &[DriveId::new("B")][..], false)
    );
    // A link that leads nowhere proves nothing: udev may not be there.
    provision(&mut host).volumes[0].backing = "/dev/disk/by-id/other".into();
    assert!(!provided_volume(&host).device_gone);
    provision(&mut host).volumes[0].device = Some("sdq".into());
    assert!(provided_volume(&host).device_gone);
}

#[test]
fn a_folder_is_staged_without_a_mount() {
    let mut host = pool(None, &[]).csi("own", "v1", Some(&staging()), &[]);
    let attachment = pool(Some(&staging()), &[]).provision.expect("one").volumes[0].staged.clone();
    let provided = &mut provision(&mut host).volumes[0];
    (provided.kind, provided.backing, provided.staged) =
        (BackingKind::StaticDirectory, "/pool/data".into(), attachment);
    read_all_and_provision(&mut host, 0);
    let known = &host.facts.volumes[&volume("csi:own/v1")];
    assert!(known.facts.missing_mounts.is_empty());
    assert_eq!(
        (csi_status(&host), known.facts.drive_ids.as_slice()),
        (CsiStatus::Staged, &[DriveId::new("P")][..])
    );
}

/// A static device that is not there, so far without a user.
fn without_device(presence: VolumePresence) -> TestHost {
    let mut host = pool(None, &[]);
    let provided = &mut provision(&mut host).volumes[0];
    (provided.kind, provided.backing) = (BackingKind::StaticDevice, "/dev/disk/by-id/x".into());
    (provided.presence, provided.error) = (presence, Some("no such device".into()));
    host
}

fn own_findings(host: &mut TestHost, seconds: i64) -> Vec<String> {
    let raised = host.raised(seconds).into_iter();
    raised.filter(|line| line.contains("csi:own/v1")).collect()
}

const MISSED: &str = "csi:own/v1 DeviceMissing Bad Inaccessible";

#[test]
fn a_static_volume_that_was_never_here_is_no_volume_of_the_node() {
    let mut host = without_device(VolumePresence::Absent);
    read_all_and_provision(&mut host, 0);
    assert!(!host.facts.volumes.contains_key(&volume("csi:own/v1")));
    assert_eq!(host.raised(500), [""; 0]);
    let absent = &host.facts.node_context.absent_volumes;
    assert_eq!(absent["v1"], "/dev/disk/by-id/x".into());
    // The kubelet has a record of it here: it is missed.
    let mut host = host.csi("own", "v1", Some(&staging()), &[]);
    host.read_kubelet(600);
    assert_eq!(own_findings(&mut host, 601), [MISSED]);
    assert!(host.facts.node_context.absent_volumes.is_empty());
}

#[test]
fn a_static_volume_that_is_missed_is_bad_until_it_is_there() {
    let mut host = without_device(VolumePresence::Missing);
    read_all_and_provision(&mut host, 0);
    assert_eq!(own_findings(&mut host, 1), [MISSED]);
    let id = volume("csi:own/v1");
    assert_eq!(csi_status(&host), CsiStatus::Failed);
    host.apply(SourceUpdate::Provision(Observation::failed(at(2), "no")), 2);
    own_findings(&mut host, 3);
    assert!(is_active(&host.active, &Subject::Volume(id), Reason::DeviceMissing), "not read");
    // The next run has read its record, and not looked for it yet.
    provision(&mut host).volumes[0].error = None;
    host.read_provision(4);
    assert_eq!(own_findings(&mut host, 4), [""; 0]);
    let missed = Subject::Volume(volume("csi:own/v1"));
    assert!(is_active(&host.active, &missed, Reason::DeviceMissing), "not looked for");
    provision(&mut host).volumes[0].presence = VolumePresence::Present;
    host.read_provision(5);
    assert_eq!(own_findings(&mut host, 5), [""; 0]);
    assert!(host.active.is_empty());
}

#[test]
fn an_idle_logical_volume_stands_on_its_groups_drives_as_far_as_the_kernel_tells() {
    let mut host = TestHost::default().disk("sda", "8:0", "A").disk("sdb", "8:16", "B");
    let lv = |name: &str| Layer::Dm {
        name: format!("vg-{name}"),
        uuid: Some("LVM-x".into()),
        volume_group: Some("vg".into()),
        logical_volume: Some(name.into()),
    };
    host = host.with(device("dm-0", "252:0", lv("other"), &["sda"])).with(device(
        "dm-1",
        "252:1",
        lv("thin"),
        &["dm-0", "sdb"],
    ));
    host.provision = pool(None, &[]).provision;
    let provided = &mut provision(&mut host).volumes[0];
    (provided.kind, provided.backing) = (BackingKind::Lvm, "/dev/vg/v1".into());
    let volume = provided_volume(&host);
    assert_eq!(
        (volume.device.as_deref(), volume.drive_ids.as_slice()),
        (None, &[DriveId::new("A"), DriveId::new("B")][..])
    );
    let mut host = host.with(device("dm-2", "252:2", lv("v1"), &["sdb"]));
    provision(&mut host).volumes[0].device = Some("dm-2".into());
    let volume = provided_volume(&host);
    assert_eq!(
        (volume.device.as_deref(), volume.drive_ids.as_slice()),
        (Some("dm-2"), &[DriveId::new("B")][..])
    );
}

#[test]
fn a_pool_on_a_mirrored_btrfs_survives_one_drive() {
    let mut host = pool(None, &[]).disk("sdq", "8:16", "Q");
    let fs = btrfs("b", &["sdp1", "sdq"], "raid1");
    host.inventory.btrfs.push(fs);
    let mount = host.mount_mut("/pool");
    mount.fs_type = "btrfs".into();
    let volume = provided_volume(&host);
    assert!(matches!(volume.stack, Stack::Redundant { tolerates: 1, .. }), "{:?}", volume.stack);
    assert_eq!(volume.drive_ids, [DriveId::new("P"), DriveId::new("Q")]);
    read_all_and_provision(&mut host, 0);
    assert_eq!(
        host.facts.node_context.pool,
        BTreeMap::from([(BackingKind::Loop, volume.stack)]),
        "what is made in it will stand on the same"
    );
}

#[test]
fn what_this_node_cannot_serve_is_abnormal_and_says_why() {
    let mut host = pool(None, &[]);
    provision(&mut host).volumes[0].error = Some("its record cannot be read".into());
    read_all_and_provision(&mut host, 0);
    assert_eq!(csi_status(&host), CsiStatus::Failed);
}

#[test]
fn a_volume_group_without_logical_volumes_stands_on_the_physical_volumes_that_lvm_lists() {
    let mut host = pool(None, &[]).disk("sdq", "8:16", "Q");
    *provision(&mut host) =
        ProvisionState { volume_group: Some("vg".into()), ..ProvisionState::default() };
    read_all_and_provision(&mut host, 0);
    assert_eq!(host.facts.node_context.pool, BTreeMap::new(), "until lvm has answered");
    provision(&mut host).physical_volumes = vec!["/dev/sdp1".into(), "/dev/sdq".into()];
    read_all_and_provision(&mut host, 1);
    let drives = ["P", "Q"].map(|serial| Stack::Drive(DriveId::new(serial)));
    let both = BTreeMap::from([(BackingKind::Lvm, Stack::All(drives.to_vec()))]);
    assert_eq!(host.facts.node_context.pool, both);
    host.pull("sdq");
    provision(&mut host).physical_volumes = vec!["/dev/sdp1".into(), "[unknown]".into()];
    read_all_and_provision(&mut host, 2);
    assert_eq!(host.facts.node_context.pool, both, "the missing one belongs to it still");
    provision(&mut host).physical_volumes = vec!["/dev/sdp1".into()];
    read_all_and_provision(&mut host, 3);
    assert_eq!(
        host.facts.node_context.pool,
        BTreeMap::from([(BackingKind::Lvm, Stack::Drive(DriveId::new("P")))]),
        "it was reduced"
    );
}
