use std::sync::Arc;

use super::*;
use crate::block::Layer;
use crate::drive::{DriveKind, Transport};
use crate::fixture::*;
use crate::ledger::Ledger;
use crate::snapshot::NodeState;
use crate::snapshot_builder::{SnapshotBuilder, SnapshotInput};
use diskvitals_finding::ids::FindingId;
use diskvitals_finding::{Status, Subject};

fn snapshot(mut host: TestHost) -> Snapshot {
    host.read_all(0);
    let input = SnapshotInput {
        facts: &host.facts,
        ledger: &mut Ledger::default(),
        policy: &host.policy,
        care: &crate::care::CarePlan::default(),
        node: NodeState::default(),
        settled: true,
        now: at(1),
    };
    let built = SnapshotBuilder::default().build(&Arc::default(), input);
    (*built.snapshot).clone()
}

fn finding(subject: Subject, reason: Reason, severity: Severity) -> Finding {
    Finding {
        id: FindingId::known("f00d"),
        subject,
        reason,
        severity,
        status: Status::Degraded,
        message: "m".into(),
        since: at(0),
        last_seen: at(0),
        count: 1,
        evidence: Vec::new(),
        clears_when: String::new(),
        advice: None,
        acknowledged: None,
        maintained: false,
        cleared: None,
        follows: None,
    }
}

/// A drive with one finding.
fn advised(
    change: impl Fn(&mut crate::drive::DriveFacts),
    reason: Reason,
    severity: Severity,
) -> (String, String) {
    let mut snapshot = snapshot(TestHost::default().disk("sda", "8:0", "A"));
    let id = DriveId::new("A");
    let found = finding(Subject::Drive(id.clone()), reason, severity);
    let drive = Arc::make_mut(snapshot.drives.get_mut(&id).expect("is there"));
    change(&mut drive.facts);
    drive.findings.push(found.id.clone());
    let drive = drive.clone();
    let text = for_finding(&snapshot, &found);
    snapshot.findings.insert(found.id.clone(), Arc::new(found));
    let advice = advise(&snapshot, &drive).expect("an advice");
    (advice.to_do, text)
}

#[test]
fn no_drive_is_to_be_replaced_beside_a_text_that_calls_its_number_acceptable() {
    for reason in Reason::ALL {
        for severity in [Severity::Suspect, Severity::Bad] {
            let (to_do, text) = advised(|_| (), *reason, severity);
            if to_do.starts_with("Replace it now") {
                assert!(!text.contains("acceptable"), "{reason}: {to_do} {text}");
                assert!(!text.contains("diskvitals ack"), "{reason}: {text}");
            }
        }
    }
}

#[test]
fn an_acknowledgement_is_named_where_nothing_else_ends_the_finding() {
    for (reason, severity, command) in [
        (Reason::WornOut, Severity::Suspect, "`diskvitals ack sda --note TEXT`"),
        (Reason::ReallocatedSectors, Severity::Suspect, "`diskvitals ack f00d --note TEXT`"),
        (Reason::IoErrors, Severity::Suspect, "`diskvitals ack sda --repaired --note TEXT`"),
        (Reason::LinkErrors, Severity::Suspect, "`diskvitals ack f00d --repaired --note TEXT`"),
    ] {
        let (to_do, text) = advised(|_| (), reason, severity);
        assert!(format!("{to_do} {text}").contains(command), "{reason}: {to_do} {text}");
    }
    // What is over by itself needs none.
    let (to_do, text) = advised(|_| (), Reason::Overheating, Severity::Suspect);
    assert!(!format!("{to_do} {text}").contains("ack"), "{to_do} {text}");
}

#[test]
fn what_has_no_cable_gets_no_advice_about_one() {
    type Change = fn(&mut crate::drive::DriveFacts);
    let kinds: [(&str, Change); 2] = [
        ("hypervisor", |facts| facts.kind = DriveKind::Virtual),
        ("network", |facts| facts.transport = Transport::Iscsi),
    ];
    for (word, change) in kinds {
        for reason in [
            Reason::IoErrors,
            Reason::MediaErrors,
            Reason::LinkErrors,
            Reason::ControllerResets,
            Reason::IoTimeouts,
            Reason::DriveOffline,
        ] {
            for severity in [Severity::Suspect, Severity::Bad] {
                let (to_do, text) = advised(change, reason, severity);
                assert!(text.contains(word), "{reason}: {text}");
                // `status` shows the text then.
                assert!(to_do.contains(word) || to_do.starts_with("Watch it"), "{to_do}");
                for text in [to_do, text] {
                    for wrong in ["cable", "slot", "power", "Reseat", "Replace"] {
                        assert!(!text.contains(wrong), "{reason}: {text}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_nvme_drive_has_no_cable() {
    let (to_do, _) =
        advised(|facts| facts.kind = DriveKind::Nvme, Reason::LinkDowngraded, Severity::Suspect);
    assert!(to_do.starts_with("Reseat it") && !to_do.contains("cable"), "{to_do}");
}

#[test]
fn commands_name_the_drive() {
    let snapshot = snapshot(TestHost::default().disk("sda", "8:0", "A"));
    let subject = Subject::Drive(DriveId::new("A"));
    let text = for_finding(&snapshot, &finding(subject, Reason::TimeoutMismatch, Severity::Info));
    assert!(text.contains("/sys/block/sda/device/timeout"), "{text}");
    let subject = Subject::Drive(DriveId::new("A"));
    let member = finding(subject, Reason::RaidMemberFailed, Severity::Suspect);
    let text = for_finding(&snapshot, &member);
    assert!(text.contains("`smartctl -x /dev/sda`"), "{text}");
}

#[test]
fn the_filesystem_on_a_loop_device_is_looked_for_in_its_file() {
    let layer = Layer::Loop { backing_file: Some("/a.img".into()) };
    let host = TestHost::default()
        .with(device("loop0", "7:0", layer, &[]))
        .uuid("loop0", "u")
        .mounted("7:0", "/", "/mnt", "ext4", "/dev/loop0");
    let snapshot = snapshot(host);
    let volume = snapshot.volumes.keys().next().expect("a volume").clone();
    for subject in [Subject::Volume(volume), Subject::Device("loop0".into())] {
        let found = finding(subject, Reason::IoErrors, Severity::Bad);
        let text = for_finding(&snapshot, &found);
        assert!(text.contains("the file behind the loop device"), "{text}");
        assert!(!text.contains("cable") && !text.contains("slot"), "{text}");
    }
}

#[test]
fn a_corrupted_filesystem_is_repaired_by_steps_that_name_its_device() {
    let host = |fs_type: &str| {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .disk("sdb", "8:16", "B")
            .with(dm("dm-0", "253:0", "luks", "CRYPT-x", &["sdb"]))
            .uuid("sda", "u")
            .mounted("8:0", "/", "/data", fs_type, "/dev/sda");
        let device = host.inventory.devices.get_mut("dm-0").expect("there");
        device.fs_type = Some(fs_type.into());
        snapshot(host)
    };
    let mounted = || Subject::Volume(volume("fs:u"));
    let unmounted = || Subject::Device("dm-0".into());
    for (fs_type, subject, steps) in [
        (
            "ext4",
            mounted(),
            &[
                "unmount it",
                "mount and unmount /dev/sda once",
                "`e2fsck -fn /dev/sda`",
                "`e2fsck -f /dev/sda`",
            ][..],
        ),
        (
            "xfs",
            unmounted(),
            &[
                "mount and unmount /dev/mapper/luks once",
                "`xfs_repair -n /dev/mapper/luks`",
                "`xfs_repair /dev/mapper/luks`",
                "`diskvitals check /dev/mapper/luks`",
            ],
        ),
        (
            "btrfs",
            mounted(),
            &[
                "Then start a scrub",
                "`btrfs scrub start -B /data`",
                "unmount it",
                "`diskvitals check /dev/sda`",
            ],
        ),
        (
            "btrfs",
            unmounted(),
            &["mount it and start a scrub", "`diskvitals check /dev/mapper/luks`"],
        ),
    ] {
        let found = finding(subject, Reason::FilesystemCorrupted, Severity::Bad);
        let text = for_finding(&host(fs_type), &found);
        let places: Vec<Option<usize>> = steps.iter().map(|step| text.find(step)).collect();
        assert!(places.iter().all(Option::is_some), "{steps:?}: {text}");
        assert!(places.is_sorted(), "{steps:?}: {text}");
        for never in ["DEVICE", "xfs_repair -L", "--repair", "  "] {
            assert!(!text.contains(never), "{text}");
        }
    }
    let suspect = finding(mounted(), Reason::FilesystemCorrupted, Severity::Suspect);
    let text = for_finding(&host("btrfs"), &suspect);
    assert!(text.contains("`btrfs scrub start -B /data`"), "{text}");
    // The text of the table where the device or the filesystem is not known.
    for subject in [Subject::Volume(volume("fs:gone")), Subject::Device("sda".into())] {
        let found = finding(subject, Reason::FilesystemCorrupted, Severity::Bad);
        let text = for_finding(&host("ext4"), &found);
        assert_eq!(text, Reason::FilesystemCorrupted.action_at(Severity::Bad));
    }
}

/// The same host with these active findings of the drive A.
fn with_findings(mut snapshot: Snapshot, found: &[&Finding], health: Health) -> Snapshot {
    let drive = snapshot.drives.get_mut(&DriveId::new("A"));
    let drive = Arc::make_mut(drive.expect("is there"));
    drive.health = health;
    for finding in found {
        drive.findings.push(finding.id.clone());
        let finding = Arc::new((*finding).clone());
        snapshot.findings.insert(finding.id.clone(), finding);
    }
    snapshot
}

fn of_drive(id: &str, reason: Reason, severity: Severity) -> Finding {
    Finding {
        id: FindingId::known(id),
        ..finding(Subject::Drive(DriveId::new("A")), reason, severity)
    }
}

fn plain_disk(mount_point: &str) -> Snapshot {
    snapshot(TestHost::default().disk("sda", "8:0", "A").uuid("sda", "u").mounted(
        "8:0",
        "/",
        mount_point,
        "ext4",
        "/dev/sda",
    ))
}

fn a_mirror() -> Snapshot {
    let layer = Layer::Md { level: Some("raid1".into()) };
    let mut host = TestHost::default()
        .with(device("md0", "9:0", layer, &["sda", "sdb"]))
        .disk("sda", "8:0", "A")
        .disk("sdb", "8:16", "B")
        .uuid("md0", "m")
        .mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(0);
    snapshot(host)
}

#[test]
fn without_redundancy_the_data_is_copied_first_and_no_other_copy_is_mentioned() {
    let failing = of_drive("bad", Reason::SmartFailing, Severity::Bad);
    for reason in [Reason::MediaErrors, Reason::PendingSectors] {
        for (others, health) in [(vec![], Health::Suspect), (vec![&failing], Health::Bad)] {
            let found = of_drive("f00d", reason, Severity::Suspect);
            let all: Vec<&Finding> = others.iter().copied().chain([&found]).collect();
            let host = with_findings(plain_disk("/data"), &all, health);
            let text = for_finding(&host, &found);
            assert!(text.starts_with("Copy the data off first"), "{text}");
            for wrong in ["other copies", "scrub", "RAID"] {
                assert!(!text.contains(wrong), "{reason}: {text}");
            }
            let is_replaced = text.contains("Then replace the drive.");
            assert_eq!(is_replaced, health == Health::Bad, "{reason}: {text}");
        }
    }
    let host = with_findings(plain_disk("/data"), &[&failing], Health::Bad);
    let drive = host.drives.get(&DriveId::new("A")).expect("is there");
    let advice = advise(&host, drive).expect("an advice");
    assert_eq!(
        advice.to_do,
        "Save what is on it first, this host has no other copy; then replace it."
    );
    assert!(
        advice.sentence.contains("This host has no other copy of /data: save it first."),
        "{}",
        advice.sentence
    );
}

#[test]
fn the_other_copies_are_named_where_there_are_any() {
    let found = of_drive("f00d", Reason::PendingSectors, Severity::Suspect);
    let host = with_findings(a_mirror(), &[&found], Health::Suspect);
    let text = for_finding(&host, &found);
    assert!(text.contains("from the other copies"), "{text}");
}

#[test]
fn what_a_drive_counts_itself_is_not_called_repairable() {
    let log = |witness| diskvitals_finding::Evidence {
        source: "s".into(),
        time: at(0),
        text: "t".into(),
        witness,
        present: true,
    };
    for (witness, command) in [
        (WitnessKind::Smart, "`diskvitals ack f00d --note TEXT`"),
        (WitnessKind::KernelLog, "`diskvitals ack f00d --repaired --note TEXT`"),
    ] {
        let found = Finding {
            evidence: vec![log(witness)],
            ..of_drive("f00d", Reason::MediaErrors, Severity::Suspect)
        };
        let host = with_findings(plain_disk("/data"), &[&found], Health::Suspect);
        let text = for_finding(&host, &found);
        assert!(text.contains(command), "{text}");
    }
}

#[test]
fn the_advice_for_a_filesystem_depends_on_where_it_is_mounted() {
    for (mount_point, text) in [
        (
            "/",
            "Save important data, and look at sda, the drive below, first. / cannot be unmounted: check it at the next boot (`fsck.mode=force`",
        ),
        ("/data", "Check the filesystem when it can be unmounted."),
    ] {
        let host = plain_disk(mount_point);
        let id = host.volumes.keys().next().expect("a volume").clone();
        let found = finding(Subject::Volume(id), Reason::FilesystemErrors, Severity::Suspect);
        let advice = for_finding(&host, &found);
        assert!(advice.contains(text), "{advice}");
    }
}

#[test]
fn a_volume_on_a_failing_drive_is_told_what_holds_at_its_level() {
    let cause = of_drive("c", Reason::PendingSectors, Severity::Suspect);
    for (host, severity, status, text) in [
        (
            plain_disk("/data"),
            Severity::Bad,
            Status::Degraded,
            "Copy the data off first, as the drive's finding says.",
        ),
        (plain_disk("/data"), Severity::Bad, Status::Inaccessible, "Bring the drive back first"),
        (
            plain_disk("/data"),
            Severity::Suspect,
            Status::Degraded,
            "Make sure that there is a backup of today: this host has no other copy of the data.",
        ),
        (
            a_mirror(),
            Severity::Suspect,
            Status::Degraded,
            "Follow the drive's finding. Redundancy covers the data.",
        ),
    ] {
        let host = with_findings(host, &[&cause], Health::Suspect);
        let id = host.volumes.keys().next().expect("a volume").clone();
        let found =
            Finding { status, ..finding(Subject::Volume(id), Reason::DriveFailing, severity) };
        let advice = for_finding(&host, &found);
        assert!(advice.starts_with(text), "{severity:?}: {advice}");
    }
}

#[test]
fn why_md_removed_a_drive_is_found_out_before_it_is_added_again() {
    let (to_do, _) = advised(|_| (), Reason::RaidMemberFailed, Severity::Suspect);
    assert!(to_do.starts_with("Find out why md took it out"), "{to_do}");
    let (to_do, _) = advised(|_| (), Reason::DriveMissing, Severity::Bad);
    assert!(to_do.starts_with("Bring it back, or replace it"), "{to_do}");
}
