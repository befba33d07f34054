use super::{T, csi, plain};
use crate::facts::Urgency;
use crate::fixture::*;
use crate::probe::Usage;
use crate::source_update::{SourceStatus, SourceUpdate};
use diskvitals_finding::mount::FstabEntry;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::source::Source;
use diskvitals_finding::{Status, Subject};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event};

#[test]
fn a_device_mounted_before_its_scan_has_a_grace_period() {
    let mut host = TestHost::default();
    host.read_all(0);
    let mut host = host.mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_mounts(10);
    assert_eq!(host.raised(11), [""; 0]);
    assert_eq!(host.raised(20), ["mnt:/data DeviceMissing Bad Inaccessible"]);
}

#[test]
fn a_vanished_target_is_not_mounted_and_mounting_clears_it() {
    let mut host = csi();
    host.umount(T);
    host.read_mounts(10);
    assert_eq!(host.raised(12), [""; 0], "the kubelet may be unpublishing it");
    assert_eq!(host.raised(25), [""; 0], "the record may be gone since it was read");
    host.read_kubelet(21);
    let found = host.raised_for(Reason::NotMounted, 25).unwrap();
    assert_eq!(
        (found.severity, found.status, found.since),
        (Severity::Bad, Status::Inaccessible, Some(at(10)))
    );
    assert!(found.evidence.iter().any(|evidence| evidence.source.ends_with("vol_data.json")));
    let of_containers =
        "any more; a container that was running may still have it, one that starts now does not";
    assert!(found.message.ends_with(of_containers), "{}", found.message);
    let mut host = host.mounted("8:0", "/", T, "ext4", "/dev/sda");
    host.read_mounts(30);
    assert_eq!(host.raised(31), [""; 0]);
    assert!(host.active.is_empty());
}

#[test]
fn a_vanished_staging_mount_is_suspect_while_a_pod_is_served_and_bad_otherwise() {
    let mut host = csi();
    host.umount("/staging");
    host.read_mounts(10);
    host.read_kubelet(21);
    assert_eq!(host.raised(22), ["csi:d/h StagingNotMounted Suspect Degraded"]);
    host.umount(T);
    host.read_mounts(30);
    host.read_kubelet(41);
    assert_eq!(
        host.raised(42),
        ["csi:d/h StagingNotMounted Bad Inaccessible", "csi:d/h NotMounted Bad Inaccessible"]
    );
}

#[test]
fn a_volume_never_mounted_has_a_grace_period() {
    let mut host = TestHost::default().csi("d", "h", None, &[("u1", T)]);
    host.read_all(0);
    host.read_kubelet(119);
    assert_eq!(host.raised(119), [""; 0]);
    host.read_kubelet(120);
    let found = host.raised_for(Reason::NotMounted, 120).expect("raised");
    assert!(found.message.ends_with(&format!("nothing is mounted at {T}")), "{}", found.message);
    host.kubelet.volumes.clear();
    host.read_kubelet(140);
    assert_eq!(host.raised(141), [""; 0]);
    assert!(host.active.is_empty(), "the record is gone");
}

/// The kubelet makes record and folder also for drivers without NodeStageVolume.
#[test]
fn a_staging_path_of_a_driver_that_never_mounts_there_is_no_finding() {
    let mut host = TestHost::default().csi("d", "h", Some("/staging"), &[]);
    host.read_all(0);
    host.read_kubelet(500);
    assert_eq!(host.raised(500), [""; 0]);
    // Another volume of the driver is mounted at its staging path: so this one should be as well.
    let mut host = host
        .disk("sda", "8:0", "A")
        .csi("d", "other", Some("/other"), &[])
        .mounted("8:0", "/", "/other", "ext4", "/dev/sda");
    host.read_all(510);
    host.read_kubelet(520);
    assert_eq!(host.raised(520), ["csi:d/h StagingNotMounted Bad Inaccessible"]);
}

#[test]
fn errors_of_the_volume_are_faults_and_refusals_are_not() {
    for (errno, expected) in [
        (5, true),
        (107, true),
        (116, true),
        (117, true),
        (108, true),
        (19, true),
        (13, false),
        (1, false),
        (40, false),
        (2, false),
    ] {
        let mut host = plain();
        host.probe("/data", failing_probe(errno), 10);
        assert_eq!(
            host.raised(11) == ["fs:u NotAccessible Bad Inaccessible"],
            expected,
            "errno {errno}"
        );
        host.probe("/data", failing_probe(13), 20);
        host.judge(21);
        assert_eq!(
            is_active(&host.active, &Subject::Volume(volume("fs:u")), Reason::NotAccessible),
            expected,
            "a refusal clears nothing"
        );
        host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 30);
        host.judge(31);
        assert!(host.active.is_empty());
    }
}

#[test]
fn the_advice_for_an_error_names_what_causes_it() {
    for (errno, text) in [
        (5, "The cause is the device sda, the connection to it (cable, power, a reset"),
        (19, "look in the kernel log for errors and resets of sda."),
        (107, "The FUSE process behind /data has ended"),
        (108, "The filesystem has shut itself down"),
        (110, "The server behind /data does not answer"),
        (113, "The server behind /data does not answer"),
        (116, "The server's export has changed"),
        (117, "The filesystem found that it is corrupted"),
    ] {
        let mut host = plain();
        host.probe("/data", failing_probe(errno), 10);
        let found = host.raised_for(Reason::NotAccessible, 11).unwrap();
        let advice = found.advice.unwrap();
        assert!(advice.contains(text), "{errno}: {advice}");
    }
    let mut host = plain();
    host.probe("/data", failing_probe(61), 10);
    let found = host.raised_for(Reason::NotAccessible, 11).unwrap();
    assert_eq!(found.advice, None, "the reason's own text");
}

#[test]
fn the_amount_that_ends_a_shortage_is_the_smaller_of_both_limits() {
    for (total, left, clears) in
        [(50, 1, "3.5 GiB are available"), (40_000, 10, "100.0 GiB are available")]
    {
        let mut host = plain();
        host.probe("/data", healthy_probe(usage(total * GIB, left * GIB)), 10);
        let found = host.raised_for(Reason::OutOfSpace, 11).unwrap();
        assert_eq!(found.clears_when, clears, "{left} of {total}");
    }
}

#[test]
fn a_kernel_remount_read_only_is_a_finding_and_an_administrators_is_not() {
    let ro = || ["ro".to_owned()].into();
    // errors=remount-ro: the superblock only.
    let mut host = plain();
    host.mount_mut("/data").super_options = ro();
    host.read_mounts(10);
    assert_eq!(host.raised(11), ["fs:u ReadOnly Bad Degraded"]);
    host.mount_mut("/data").super_options = vec!["rw".into()].into();
    host.read_mounts(20);
    assert_eq!(host.raised(21), [""; 0]);
    assert!(host.active.is_empty());
    // mount -o remount,ro: both.
    host.mount_mut("/data").super_options = ro();
    host.mount_mut("/data").options = ro();
    host.read_mounts(30);
    assert_eq!(host.raised(31), [""; 0]);
}

#[test]
fn a_superblock_that_is_read_only_without_an_error_in_the_log_is_suspect_and_blames_nobody() {
    // mount -o remount,ro=fs, sysrq-u: the superblock only, as an error handler.
    let read_only = |reader: Option<SourceStatus>, events: Vec<Event>| {
        let mut host = plain();
        host.apply(SourceUpdate::KernelLog(batch(1, Vec::new())), 0);
        let source = Source::KernelLog;
        if let Some(status) = reader {
            host.apply(SourceUpdate::Source { source, status }, 2);
        }
        host.mount_mut("/data").super_options = vec!["ro".into()].into();
        host.read_mounts(10);
        if !events.is_empty() {
            host.apply(SourceUpdate::KernelLog(batch(2, events)), 10);
        }
        let found = host.raised_for(Reason::ReadOnly, 11).expect("raised");
        (found.severity, found.message)
    };
    let (severity, message) = read_only(None, Vec::new());
    assert_eq!(severity, Severity::Suspect);
    assert_eq!(
        message,
        "the ext4 on sda mounted at /data is read-only: its superblock is `ro`, the mount is `rw`, and the kernel log has no error of it"
    );
    // A log that is not read has no such witness.
    let down = SourceStatus::Down("it does not answer".into());
    let (severity, message) = read_only(Some(down), Vec::new());
    assert_eq!(severity, Severity::Bad);
    assert!(message.ends_with("whether the kernel logged an error is not known"), "{message}");
    for (class, expected) in [
        (Class::ReadOnly, "has been made read-only by the kernel"),
        (Class::FsError, "the mount is `rw`, and it had errors"),
    ] {
        let logged = Event { seq: 2, ..event(class, "sda", at(9), &[]) };
        let (severity, message) = read_only(None, vec![logged]);
        assert_eq!(severity, Severity::Bad, "{class:?}");
        assert!(message.ends_with(expected), "{message}");
    }
}

#[test]
fn records_that_are_lost_later_do_not_make_it_worse() {
    let mut host = plain();
    host.apply(SourceUpdate::KernelLog(batch(1, Vec::new())), 0);
    host.mount_mut("/data").super_options = vec!["ro".into()].into();
    host.read_mounts(10);
    assert_eq!(host.raised(11), ["fs:u ReadOnly Suspect Degraded"]);
    let mut lost = batch(900, Vec::new());
    lost.cursor.lost = 700;
    host.apply(SourceUpdate::KernelLog(lost), 20);
    assert_eq!(host.raised(21), ["fs:u ReadOnly Suspect Degraded"]);
}

fn batch(counted_to: u64, events: Vec<Event>) -> Batch {
    let cursor = Cursor {
        boot_id: "boot".into(),
        counted_to: Some(counted_to),
        reread_from: counted_to + 1,
        lost: 0,
    };
    Batch {
        cursor,
        events,
        name_assignments: Vec::new(),
        full_reads: Vec::new(),
        is_backlog: false,
    }
}

#[test]
fn a_read_only_bind_mount_excuses_nothing_and_a_read_only_mount_is_no_error() {
    let ro = || ["ro".to_owned()].into();
    let mut host = plain().mounted("8:0", "/sub", "/bind", "ext4", "/dev/sda");
    host.mount_mut("/bind").options = ro();
    host.read_mounts(5);
    assert_eq!(host.raised(6), [""; 0]);
    host.mount_mut("/data").super_options = ro();
    host.mount_mut("/bind").super_options = ro();
    host.read_mounts(10);
    assert_eq!(host.raised(11), ["fs:u ReadOnly Bad Degraded"]);

    let mut host =
        TestHost::default().disk("sda", "8:0", "A").mounted("8:0", "/", "/iso", "ext4", "/dev/sda");
    host.mount_mut("/iso").super_options = ro();
    host.mount_mut("/iso").options = ro();
    host.read_all(0);
    assert_eq!(host.raised(1), [""; 0]);
}

#[test]
fn a_remount_through_one_of_two_mounts_is_still_the_admins() {
    let mut host = plain().mounted("8:0", "/sub", "/bind", "ext4", "/dev/sda");
    host.read_mounts(5);
    for path in ["/data", "/bind"] {
        host.mount_mut(path).super_options = vec!["ro".into()].into();
    }
    host.mount_mut("/bind").options = vec!["ro".into()].into();
    host.read_mounts(10);
    assert_eq!(host.raised(11), [""; 0]);
}

#[test]
fn read_only_at_first_sight_is_compared_with_fstab() {
    let seen = |fstab: &str| {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        host.mount_mut("/data").super_options = vec!["ro".into()].into();
        host.mounts.fstab.push(FstabEntry {
            source: "/dev/sda".into(),
            mount_point: "/data".into(),
            fs_type: "ext4".into(),
            options: vec![fstab.into()],
        });
        host.read_all(0);
        host.raised(1).len()
    };
    assert_eq!((seen("defaults"), seen("ro")), (1, 0));
}

#[test]
fn emergency_ro_and_shutdown_always_come_from_the_kernel() {
    for (word, said) in [
        ("emergency_ro", "ReadOnly Bad Degraded"),
        ("shutdown", "FilesystemShutdown Bad Inaccessible"),
    ] {
        let mut host = plain();
        host.mount_mut("/data").super_options = vec!["rw".into(), word.into()].into();
        host.read_mounts(10);
        assert_eq!(host.raised(11), [format!("fs:u {said}")]);
    }
}

#[test]
fn space_is_short_below_the_smaller_limit_and_back_above_either_clearing_one() {
    // total and available in GiB; active before; expected severity.
    for (total, left, before, expected) in [
        (1024.0, 6.0, None, Some(Severity::Suspect)),
        (1024.0, 60.0, None, None),
        (100.0, 4.0, None, Some(Severity::Suspect)),
        (20_480.0, 500.0, None, None),
        (20_480.0, 30.0, None, Some(Severity::Suspect)),
        (1.0, 0.15, None, None),
        (1.0, 0.03, None, Some(Severity::Suspect)),
        (20_000.0, 200.0, None, None),
        (100.0, 5.5, None, None),
        (100.0, 3.0, None, Some(Severity::Suspect)),
        (10.0, 0.4, None, Some(Severity::Suspect)),
        // A thousandth, or 64 MiB: writers are about to fail.
        (100.0, 0.0, None, Some(Severity::Bad)),
        (20_480.0, 0.06, None, Some(Severity::Bad)),
        (20_480.0, 0.07, None, Some(Severity::Suspect)),
        (1.0, 0.0009, None, Some(Severity::Bad)),
        (1.0, 0.0011, None, Some(Severity::Suspect)),
        (20_480.0, 0.12, Some(Severity::Bad), Some(Severity::Bad)),
        (20_480.0, 0.13, Some(Severity::Bad), Some(Severity::Suspect)),
        (100.0, 6.5, Some(Severity::Suspect), Some(Severity::Suspect)),
        (100.0, 7.5, Some(Severity::Suspect), None),
        (20_480.0, 99.0, Some(Severity::Suspect), Some(Severity::Suspect)),
        (20_480.0, 101.0, Some(Severity::Suspect), None),
        (10.0, 0.69, Some(Severity::Suspect), Some(Severity::Suspect)),
        (10.0, 0.71, Some(Severity::Suspect), None),
    ] {
        let mut host = plain();
        let scale = |gib: f64| (gib * GIB as f64) as u64;
        host.probe("/data", healthy_probe(usage(scale(total), scale(left))), 10);
        if let Some(severity) = before {
            host.active.insert(
                (Subject::Volume(volume("fs:u")), Reason::OutOfSpace),
                active_at((severity, Status::Degraded)),
            );
        }
        assert_eq!(
            host.raised_for(Reason::OutOfSpace, 11).map(|raised| raised.severity),
            expected,
            "{left} of {total} GiB, {before:?}"
        );
    }
}

const HOUR: i64 = 3600;

/// A 100 GiB filesystem that loses this many GiB an hour for 48 hours, down to `left`.
fn filling(left: u64, per_hour: u64) -> crate::fixture::TestHost {
    let mut host = plain();
    for hour in 0..=48 {
        let available = (left + (48 - hour) * per_hour) * GIB;
        let probe = healthy_probe(usage(100 * GIB, available));
        host.probe("/data", probe, hour as i64 * HOUR);
    }
    host
}

#[test]
fn space_that_is_gone_in_two_days_is_suspect_before_it_is_short() {
    let mut host = filling(24, 1);
    assert_eq!(
        host
            .raised_for(Reason::OutOfSpace, 48 * HOUR + 1)
            .map(|raised| (raised.severity, raised.message)),
        Some((
            Severity::Suspect,
            "24.0 GiB of 100.0 GiB (24 %) left at /data; full in about 26 hours at the rate of the last 47 hours"
                .into()
        ))
    );
    // Above the share that counts, and more slowly than three days.
    assert!(filling(30, 1).raised_for(Reason::OutOfSpace, 48 * HOUR + 1).is_none());
    assert!(filling(24, 0).raised_for(Reason::OutOfSpace, 48 * HOUR + 1).is_none());
}

#[test]
fn a_forecast_clears_when_twice_the_time_is_left_and_not_before() {
    let raise = |per_hour: u64, left: u64| {
        let mut host = filling(left, per_hour);
        let subject = Subject::Volume(volume("fs:u"));
        let suspect = active_at((Severity::Suspect, Status::Degraded));
        host.active.insert((subject, Reason::OutOfSpace), suspect);
        host.raised_for(Reason::OutOfSpace, 48 * HOUR + 1).is_some()
    };
    assert!(raise(1, 20));
    assert!(!raise(0, 20));
}

#[test]
fn what_is_full_has_no_forecast_and_less_than_an_hour_is_not_about() {
    let message = |left: u64, forecast: u64| {
        let mut host = filling(left, 1);
        host.policy.space.forecast = std::time::Duration::from_secs(forecast);
        let raised = host.raised_for(Reason::OutOfSpace, 48 * HOUR + 1);
        raised.map(|raised| raised.message)
    };
    let day = 24 * HOUR as u64;
    assert_eq!(message(0, 3 * day).as_deref(), Some("0 B of 100.0 GiB (0 %) left at /data"));
    assert_eq!(message(24, 0), None);
    for (minutes, text) in [
        (20, "full in less than an hour"),
        (50, "full in about 1 hour"),
        (49 * 60, "full in about 2 days"),
    ] {
        let forecast = crate::space_history::Forecast {
            full_in: jiff::SignedDuration::from_mins(minutes),
            per_day: GIB,
            span: jiff::SignedDuration::from_hours(48),
        };
        assert_eq!(crate::assess::space::full_in(&forecast), text);
    }
}

#[test]
fn inodes_run_out_and_filesystems_without_a_number_are_not_judged() {
    for (total, left, expected) in [(1000, 10, true), (1000, 20, false), (0, 0, false)] {
        let mut host = plain();
        let usage =
            Usage { total_inodes: total, available_inodes: left, ..usage(100 * GIB, 50 * GIB) };
        host.probe("/data", healthy_probe(usage), 10);
        assert_eq!(
            host.raised_for(Reason::OutOfInodes, 11).is_some(),
            expected,
            "{left} of {total}"
        );
    }
}

#[test]
fn a_read_only_filesystem_may_be_full() {
    let mut host = plain();
    host.mount_mut("/data").super_options = vec!["ro".into()].into();
    host.mount_mut("/data").options = vec!["ro".into()].into();
    host.read_mounts(5);
    host.probe("/data", healthy_probe(usage(100 * GIB, 0)), 10);
    assert_eq!(host.raised(11), [""; 0]);
}

#[test]
fn a_stuck_probe_is_a_finding_until_a_probe_returns() {
    let mut host = plain();
    assert_eq!(host.stuck("/data", 10), Urgency::Immediate);
    assert_eq!(host.stuck("/data", 10), Urgency::Nothing);
    let found = host.raised_for(Reason::ProbeTimeout, 11).unwrap();
    assert_eq!(
        (found.since, found.evidence[0].text.contains("wait_on_page")),
        (Some(at(10)), true)
    );
    assert_eq!(
        host.probe("/data", healthy_probe(usage(100 * GIB, 50 * GIB)), 99),
        Urgency::Immediate
    );
    assert_eq!(host.raised(100), [""; 0]);
    assert!(host.active.is_empty());
}

#[test]
fn io_is_stalled_after_its_time_without_a_completion() {
    let mut host = plain();
    host.io("8:0", "sda", 5, 1, 0);
    host.io("8:0", "sda", 5, 1, 59);
    assert_eq!(host.raised(59), [""; 0]);
    assert_eq!(host.io("8:0", "sda", 5, 2, 60), Urgency::Immediate);
    let found = host.raised_for(Reason::IoStalled, 61).unwrap();
    assert_eq!((found.since, found.evidence.len()), (Some(at(0)), 2));
    host.io("8:0", "sda", 6, 2, 62);
    host.judge(62);
    assert!(host.active.is_empty());
}

#[test]
fn io_counters_that_decrease_or_are_disabled_never_stall() {
    let mut host = plain();
    host.io("8:0", "sda", 50, 1, 0);
    host.io("8:0", "sda", 5, 1, 59);
    host.io("8:0", "sda", 5, 1, 90);
    assert_eq!(host.raised(91), [""; 0]);
    host.inventory.devices.get_mut("sda").unwrap().iostats = false;
    host.scan(100);
    host.io("8:0", "sda", 5, 1, 200);
    assert_eq!(host.raised(201), [""; 0]);
}
