//! The table of docs/findings.md: what must have been looked at once before a health is known.

use super::plain;
use crate::assess::is_first_look_outstanding;
use crate::counters::{CounterDevice, CounterReading};
use crate::drive::{DriveKind, Transport};
use crate::fixture::*;
use crate::policy::Policy;
use crate::source_update::{SourceStatus, SourceUpdate};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Subject, UnknownCause, UnknownHealth};
use diskvitals_kernel_log::event::{Batch, Cursor};
use diskvitals_smart::SmartResponse;
use diskvitals_smart::history::SmartHistory;
use diskvitals_smart::report::{Ata, Body, SmartReport};

fn unknown_drive(host: &TestHost) -> Option<UnknownHealth> {
    unknown_at(0, &host.facts, &Subject::Drive(DriveId::new("A")))
}

fn unknown_volume(host: &TestHost) -> Option<UnknownHealth> {
    unknown_at(0, &host.facts, &Subject::Volume(volume("fs:u")))
}

fn cause(unknown: Option<UnknownHealth>) -> Option<UnknownCause> {
    unknown.map(|unknown| unknown.cause)
}

/// A host with one drive and nothing read but its existence.
fn unread(change: impl FnOnce(&mut crate::drive::DriveFacts)) -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .uuid("sda", "u")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    change(&mut host.inventory.drives[0]);
    host.read_all(0);
    host
}

fn virtio() -> TestHost {
    unread(|drive| {
        drive.kind = DriveKind::Virtual;
        drive.transport = Transport::Virtio;
    })
}

fn status(host: &mut TestHost, source: Source, status: SourceStatus) {
    host.apply(SourceUpdate::Source { source, status }, 1);
}

fn read_log(host: &mut TestHost) {
    let batch = Batch {
        cursor: Cursor { boot_id: "b".into(), ..Cursor::default() },
        events: Vec::new(),
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: true,
    };
    host.apply(SourceUpdate::KernelLog(batch), 1);
}

fn read_counters(host: &mut TestHost) {
    host.apply(SourceUpdate::Counters(Observation::ok(at(1), Vec::new())), 1);
}

fn respond(host: &mut TestHost, response: SmartResponse) {
    host.apply(
        SourceUpdate::Smart {
            drive: DriveId::new("A"),
            at: at(2),
            response: Box::new(response),
            duration: std::time::Duration::ZERO,
        },
        2,
    );
}

fn not_applicable() -> SmartResponse {
    SmartResponse::NotApplicable { why: "no SMART".into(), hint: None, said_so: true }
}

#[test]
fn a_virtual_disk_waits_for_the_kernel_log_and_the_counters() {
    let mut host = virtio();
    let pending = UnknownHealth::pending("the kernel log has not been read yet");
    assert_eq!(unknown_drive(&host), Some(pending));
    read_log(&mut host);
    let pending = UnknownHealth::pending("the kernel's error counters have not been read yet");
    assert_eq!(unknown_drive(&host), Some(pending));
    read_counters(&mut host);
    assert_eq!(unknown_drive(&host), None);
}

#[test]
fn a_kernel_log_that_cannot_be_read_or_is_switched_off_is_no_evidence() {
    let mut host = virtio();
    read_counters(&mut host);
    status(
        &mut host,
        Source::KernelLog,
        SourceStatus::Down("opening /dev/kmsg: permission denied".into()),
    );
    assert_eq!(
        unknown_drive(&host),
        Some(UnknownHealth::failed("kernel log: opening /dev/kmsg: permission denied"))
    );
    status(&mut host, Source::KernelLog, SourceStatus::Absent("switched off".into()));
    // Then only its counters are left, and a virtio disk has none.
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Failed));
    let reading = CounterReading {
        device: CounterDevice::Block("sda".into()),
        source: "scsi".into(),
        file: "/sys/block/sda/device".into(),
        values: [("ioerr_cnt".to_owned(), 0)].into(),
        details: Default::default(),
    };
    let readings = Observation::ok(at(2), vec![reading]);
    host.apply(SourceUpdate::Counters(readings), 2);
    assert_eq!(unknown_drive(&host), None);
    // A log that an earlier run has read is evidence.
    let mut host = virtio();
    read_counters(&mut host);
    read_log(&mut host);
    let off = SourceStatus::Absent("switched off".into());
    status(&mut host, Source::KernelLog, off);
    assert_eq!(unknown_drive(&host), None);
}

#[test]
fn counters_that_cannot_be_read_are_no_evidence() {
    let mut host = virtio();
    read_log(&mut host);
    let failed = Observation::failed(at(1), "reading /sys/class/block: no");
    host.apply(SourceUpdate::Counters(failed), 1);
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Failed));
    read_counters(&mut host);
    // Once read, a later failure takes nothing back.
    let failed = Observation::failed(at(3), "reading /sys/class/block: no");
    host.apply(SourceUpdate::Counters(failed), 3);
    assert_eq!(unknown_drive(&host), None);
}

#[test]
fn a_disk_waits_for_its_first_answer_to_smartctl() {
    let mut host = unread(|_| {});
    read_log(&mut host);
    read_counters(&mut host);
    let pending = UnknownHealth::pending("SMART: not queried yet");
    assert_eq!(unknown_drive(&host), Some(pending));
    respond(&mut host, SmartResponse::Report(Box::default()));
    assert_eq!(unknown_drive(&host), None);
}

#[test]
fn logs_without_a_verdict_are_no_answer_about_health() {
    let mut host = unread(|_| {});
    read_log(&mut host);
    read_counters(&mut host);
    let logs = SmartReport {
        body: Body::Ata(Ata { error_count: Some(2), ..Ata::default() }),
        ..SmartReport::default()
    };
    respond(&mut host, SmartResponse::Report(Box::new(logs.clone())));
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Failed));
    let judged = SmartReport { passed: Some(true), ..logs };
    respond(&mut host, SmartResponse::Report(Box::new(judged)));
    assert_eq!(unknown_drive(&host), None);
}

#[test]
fn a_disk_without_smart_data_needs_the_kernel_log_and_the_counters() {
    let mut host = unread(|_| {});
    respond(&mut host, not_applicable());
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Pending));
    read_log(&mut host);
    read_counters(&mut host);
    assert_eq!(unknown_drive(&host), None);
}

fn no_smartctl() -> SourceStatus {
    SourceStatus::Down("smartctl is not installed".into())
}

#[test]
fn without_smartctl_a_disk_whose_kind_has_smart_is_unknown() {
    let no_answer = UnknownHealth::no_smart("SMART: smartctl is not installed");
    let kinds = [
        (DriveKind::Hdd, Transport::Sata),
        (DriveKind::Ssd, Transport::Sas),
        (DriveKind::Hdd, Transport::Scsi),
        (DriveKind::Nvme, Transport::Nvme),
        (DriveKind::Usb, Transport::Usb),
    ];
    for (kind, transport) in kinds {
        let mut host = unread(|drive| (drive.kind, drive.transport) = (kind, transport));
        read_log(&mut host);
        read_counters(&mut host);
        status(&mut host, Source::Smart, no_smartctl());
        assert_eq!(unknown_drive(&host), Some(no_answer.clone()), "{kind:?}");
    }
}

#[test]
fn drives_without_smart_by_nature_need_no_smartctl() {
    let kinds = [
        (DriveKind::Virtual, Transport::Virtio, false),
        (DriveKind::Virtual, Transport::Nvme, false),
        (DriveKind::Virtual, Transport::Sata, false),
        (DriveKind::Virtual, Transport::Loop, false),
        (DriveKind::Remote, Transport::Iscsi, false),
        (DriveKind::Remote, Transport::FibreChannel, false),
        (DriveKind::Emmc, Transport::Mmc, false),
        // A stick, a card reader, a management controller's virtual medium.
        (DriveKind::Usb, Transport::Usb, true),
    ];
    for (kind, transport, removable) in kinds {
        let mut host = unread(|drive| {
            (drive.kind, drive.transport, drive.removable) = (kind, transport, removable);
        });
        read_log(&mut host);
        read_counters(&mut host);
        status(&mut host, Source::Smart, no_smartctl());
        assert_eq!(unknown_drive(&host), None, "{kind:?} {transport:?}");
        assert!(host.raised(100_000).is_empty(), "{kind:?} {transport:?}");
    }
}

#[test]
fn a_drive_that_the_configuration_excludes_needs_the_kernel_log_and_the_counters() {
    let mut host = unread(|_| {});
    let off = SourceStatus::Absent("switched off (smart.enabled)".into());
    status(&mut host, Source::Smart, off);
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Pending));
    read_log(&mut host);
    read_counters(&mut host);
    assert_eq!(unknown_drive(&host), None);
    let mut host = unread(|_| {});
    read_log(&mut host);
    read_counters(&mut host);
    host.apply(SourceUpdate::SmartIgnored(vec![DriveId::new("A")]), 3);
    assert_eq!(unknown_drive(&host), None, "excluded");
}

#[test]
fn a_disk_that_smartctl_cannot_ask_is_unknown_and_one_that_says_so_is_not() {
    let response = |said_so| SmartResponse::NotApplicable {
        why: "smartctl does not know this USB bridge".into(),
        hint: Some("name its protocol".into()),
        said_so,
    };
    let usb = |removable| {
        let mut host = unread(|drive| {
            (drive.kind, drive.transport, drive.removable) =
                (DriveKind::Usb, Transport::Usb, removable);
        });
        read_log(&mut host);
        read_counters(&mut host);
        host
    };
    let mut disk = usb(false);
    assert_eq!(cause(unknown_drive(&disk)), Some(UnknownCause::Pending));
    respond(&mut disk, response(false));
    assert_eq!(
        unknown_drive(&disk),
        Some(UnknownHealth::no_smart(
            "SMART: smartctl does not know this USB bridge; name its protocol"
        ))
    );
    respond(&mut disk, response(true));
    assert_eq!(unknown_drive(&disk), None);
    let mut stick = usb(true);
    respond(&mut stick, response(false));
    assert_eq!(unknown_drive(&stick), None);
}

const DAY: i64 = 24 * 3600;

fn unknown_later(host: &TestHost, seconds: i64) -> Option<UnknownHealth> {
    unknown_at(seconds, &host.facts, &Subject::Drive(DriveId::new("A")))
}

#[test]
fn an_answer_counts_for_a_day_or_three_intervals_while_the_drive_is_awake() {
    let mut host = unread(|_| {});
    respond(&mut host, SmartResponse::Report(Box::default()));
    assert_eq!(unknown_later(&host, DAY), None);
    let old = format!("SMART: the last answer is from {:.0}", at(2));
    let no_smart = UnknownHealth::no_smart(old);
    assert_eq!(unknown_later(&host, DAY + 10), Some(no_smart));
    status(&mut host, Source::Smart, no_smartctl());
    let no_tool = UnknownHealth::no_smart("SMART: smartctl is not installed");
    assert_eq!(unknown_later(&host, DAY), None, "an upgrade is shorter");
    assert_eq!(unknown_later(&host, DAY + 10), Some(no_tool));
    let day = std::time::Duration::from_secs(DAY as u64);
    assert_eq!(Policy::answer_valid(day / 48), day);
    assert_eq!(Policy::answer_valid(day), 3 * day);
}

#[test]
fn the_time_in_which_a_drive_sleeps_does_not_make_its_answer_old() {
    let mut host = unread(|_| {});
    respond(&mut host, SmartResponse::Report(Box::default()));
    host.inventory.drives[0].asleep = true;
    host.scan(10);
    assert_eq!(unknown_later(&host, 5 * DAY), None, "suspended");
    host.inventory.drives[0].asleep = false;
    host.scan(5 * DAY);
    assert_eq!(unknown_later(&host, 5 * DAY + 60), None, "just awake");
    assert!(unknown_later(&host, 6 * DAY + 60).is_some());
    let mut host = unread(|_| {});
    respond(&mut host, SmartResponse::Report(Box::default()));
    let standby = SourceUpdate::Smart {
        drive: DriveId::new("A"),
        at: at(5 * DAY),
        response: Box::new(SmartResponse::Standby { mode: "STANDBY".into() }),
        duration: std::time::Duration::ZERO,
    };
    host.apply(standby, 5 * DAY);
    assert_eq!(unknown_later(&host, 5 * DAY + 60), None, "in standby");
    assert!(unknown_later(&host, 6 * DAY + 60).is_some(), "nobody knows whether it still sleeps");
}

#[test]
fn the_time_in_which_an_idle_drive_is_left_alone_does_not_make_its_answer_old() {
    let mut host = unread(|drive| drive.rotational = Some(true));
    host.io("8:0", "sda", 7, 0, 0);
    respond(&mut host, SmartResponse::Report(Box::default()));
    host.io("8:0", "sda", 7, 0, 5 * DAY);
    assert_eq!(unknown_later(&host, 5 * DAY + 10), None, "idle");
    host.io("8:0", "sda", 8, 0, 6 * DAY);
    assert_eq!(unknown_later(&host, 6 * DAY + 10), None, "it is asked now");
    assert!(unknown_later(&host, 7 * DAY + 10).is_some(), "it has not answered");
}

#[test]
fn a_stored_answer_counts_after_a_restart_until_it_is_too_old() {
    let mut host = unread(|_| {});
    let mut history = SmartHistory::default();
    history.record(&SmartReport::default(), at(-1000));
    host.facts.smart.restore(vec![(DriveId::new("A"), history)]);
    assert_eq!(unknown_drive(&host), None);
    assert_eq!(
        cause(unknown_later(&host, DAY)),
        Some(UnknownCause::Pending),
        "the first query of this run is outstanding"
    );
    status(&mut host, Source::Smart, no_smartctl());
    assert_eq!(unknown_drive(&host), None);
    assert_eq!(
        cause(unknown_later(&host, DAY)),
        Some(UnknownCause::NoSmart),
        "an answer of last year makes no drive good"
    );
}

#[test]
fn a_disk_in_standby_that_has_never_answered_is_asleep() {
    let standby = || SmartResponse::Standby { mode: "STANDBY".into() };
    let mut host = unread(|_| {});
    respond(&mut host, standby());
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Asleep));
    respond(&mut host, SmartResponse::Report(Box::default()));
    respond(&mut host, standby());
    assert_eq!(unknown_drive(&host), None, "its last answer counts");
}

#[test]
fn a_runtime_suspended_disk_is_asleep_and_its_volume_is_not_awaited() {
    let host = unread(|drive| drive.asleep = true);
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Asleep));
    assert_eq!(unknown_volume(&host), None);
}

#[test]
fn a_controllers_disk_waits_for_its_first_answer_also_before_it_is_listed() {
    let mut host = unread(|drive| {
        drive.transport = Transport::Raid;
        drive.location.raid_controller = Some("megaraid host0".into());
    });
    read_log(&mut host);
    read_counters(&mut host);
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Pending));
    // The kernel sees nothing of it.
    let down = SourceStatus::Down("/usr/sbin/smartctl is not installed".into());
    status(&mut host, Source::Smart, down);
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::NoSmart));
}

#[test]
fn a_removed_drive_is_judged_by_its_removal() {
    let mut host = unread(|_| {});
    host.pull("sda");
    host.scan(10);
    assert_eq!(unknown_drive(&host), None);
}

#[test]
fn a_volume_is_unknown_until_its_first_probe_and_again_for_another_filesystem() {
    let mut host = unread(|_| {});
    let pending = UnknownHealth::pending("/data has not been probed yet");
    assert_eq!(unknown_volume(&host), Some(pending.clone()));
    host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 1);
    assert_eq!(unknown_volume(&host), None);
    host.plug("sdb", "8:16", "B");
    host.inventory.devices.get_mut("sdb").expect("plugged").fs_uuid = Some("v".into());
    let mount = host.mount_mut("/data");
    (mount.dev, mount.source) = ("8:16".parse().unwrap(), "/dev/sdb".into());
    host.scan(2);
    host.read_mounts(2);
    let other = unknown_at(0, &host.facts, &Subject::Volume(volume("fs:v")));
    assert_eq!(other, Some(pending));
}

#[test]
fn the_answer_of_one_mount_is_enough_and_a_failure_counts_before_a_wait() {
    let mut host = unread(|_| {}).mounted("8:0", "/", "/again", "ext4", "/dev/sda");
    host.read_mounts(1);
    let failed = SourceUpdate::Probe {
        path: "/data".into(),
        result: Observation::failed(at(2), "not tried"),
        duration: std::time::Duration::ZERO,
    };
    host.apply(failed, 2);
    assert_eq!(cause(unknown_volume(&host)), Some(UnknownCause::Failed));
    host.probe("/again", healthy_probe(usage(100 * GIB, 50 * GIB)), 3);
    assert_eq!(unknown_volume(&host), None);
}

#[test]
fn a_mount_that_another_one_hides_is_not_awaited() {
    let host = unread(|_| {}).mounted("8:16", "/", "/data", "xfs", "/dev/sdb");
    let mut host = host.with(device("sdb", "8:16", crate::block::Layer::Disk, &[]));
    host.scan(1);
    host.read_mounts(1);
    assert_eq!(unknown_volume(&host), None);
}

#[test]
fn the_answers_of_volumes_survive_a_restart_of_the_daemon() {
    let before = plain();
    let stored: Vec<_> = before.facts.stored_volumes().into_values().collect();
    assert_eq!(stored[0].answered, ["/data".into()]);
    let mut host = TestHost {
        inventory: before.inventory.clone(),
        mounts: before.mounts.clone(),
        ..TestHost::default()
    };
    host.restore_volumes(stored, 1);
    assert_eq!(unknown_volume(&host), None);
    host.read_all(100);
    assert_eq!(unknown_volume(&host), None);
    // A mount that is younger than the record is another one.
    let mut other = before;
    let stored: Vec<_> = other.facts.stored_volumes().into_values().collect();
    other.mount_mut("/data").dev = "8:16".parse().unwrap();
    let mut host = TestHost {
        inventory: other.inventory.clone(),
        mounts: other.mounts.clone(),
        ..TestHost::default()
    };
    let mut disk = device("sdb", "8:16", crate::block::Layer::Disk, &[]);
    disk.fs_uuid = Some("u".into());
    host.inventory.devices.insert("sdb".into(), disk);
    host.inventory.devices.get_mut("sda").unwrap().fs_uuid = None;
    host.restore_volumes(stored, 1);
    host.read_all(100);
    assert_eq!(cause(unknown_volume(&host)), Some(UnknownCause::Pending));
}

/// A complete snapshot waits for what comes within moments, not for the answers of drives.
#[test]
fn a_first_look_is_over_with_the_log_the_counters_and_the_probes() {
    let mut host = unread(|_| {});
    assert!(is_first_look_outstanding(&host.facts));
    read_log(&mut host);
    read_counters(&mut host);
    assert!(is_first_look_outstanding(&host.facts));
    host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 1);
    assert!(!is_first_look_outstanding(&host.facts));
    assert_eq!(cause(unknown_drive(&host)), Some(UnknownCause::Pending));
}
