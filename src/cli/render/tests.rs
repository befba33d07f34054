//! Whole screens, compared as they are.

mod causes;
mod hostile;
mod live;
mod monitoring;
mod tables;
mod unknown;

use crate::render::status::{StatusView, verdict};
use crate::render::{attachments, checks, drives, explain, findings, status, volumes};
use diskvitals_terminal::fixture::{before, screen};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_wire as wire;

fn finding() -> wire::Finding {
    wire::Finding {
        id: "0123456789ab".into(),
        subject: Some(wire::Subject { kind: wire::SubjectKind::Volume.into(), id: "csi:d.example/a".into(), name: "pod default/web-0".into() }),
        severity: wire::Severity::Bad.into(),
        status: wire::FindingStatus::Inaccessible.into(),
        reason: "NotAccessible".into(),
        message: "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers readdir with: Input/output error (EIO)".into(),
        since: before(200),
        last_seen: before(20),
        count: 2,
        evidence: vec![wire::Evidence { source: "readdir".into(), time: before(20), text: "Input/output error (EIO)".into(), ..Default::default() }],
        clears_when: "the path can be read again".into(),
        acknowledged: None,
        cleared: None,
        follows: String::new(),
        action: String::new(),
        maintained: None,
    }
}

fn drive(name: &str, health: wire::Health) -> wire::Drive {
    wire::Drive {
        id: format!("nguid.{name}"),
        id_stable: true,
        name: name.into(),
        model: "SAMSUNG MZVL21T0HCLR".into(),
        serial: "S64ANS0R".into(),
        kind: wire::DriveKind::Nvme.into(),
        transport: wire::Transport::Nvme.into(),
        size_bytes: 1_024_209_543_168,
        logical_block_size: 512,
        physical_block_size: 512,
        health: health.into(),
        presence: wire::Presence::Present.into(),
        first_seen: before(90_000),
        volume_ids: vec!["csi:d.example/a".into()],
        ..Default::default()
    }
}

fn volume(health: wire::Health, findings: Vec<wire::Finding>) -> wire::Volume {
    wire::Volume {
        id: "csi:d.example/a".into(),
        driver: "d.example".into(),
        handle: "a".into(),
        pv: "pv-a".into(),
        device: "dm-0".into(),
        source: "/dev/mapper/vg-a".into(),
        filesystem: Some(wire::Filesystem {
            r#type: "ext4".into(),
            uuid: "u-u".into(),
            label: String::new(),
        }),
        mounts: vec![wire::VolumeMount {
            path: "/staging".into(),
            role: wire::MountRole::Staging.into(),
            options: vec!["rw".into()],
            root: "/".into(),
            ..Default::default()
        }],
        missing_mounts: vec![wire::VolumeMount {
            path: "/pod".into(),
            role: wire::MountRole::Pod.into(),
            ..Default::default()
        }],
        pods: vec![wire::PodUse {
            uid: "u1".into(),
            namespace: "default".into(),
            name: "web-0".into(),
            volume_name: "pv-a".into(),
            path: "/pod".into(),
        }],
        drive_ids: vec!["nguid.nvme0n1".into()],
        devices: vec!["dm-0".into(), "nvme0n1p2".into(), "nvme0n1".into()],
        capacity: Some(wire::Capacity { total_bytes: 100 << 30, total_inodes: 1000 }),
        usage: Some(wire::Usage {
            used_bytes: 40 << 30,
            available_bytes: 60 << 30,
            used_inodes: 10,
            available_inodes: 990,
            time: before(30),
            stale_since: None,
            full_at: None,
        }),
        health: health.into(),
        csi_status: wire::CsiStatus::Published.into(),
        operational_status: wire::OperationalStatus::Operative.into(),
        usage_status: wire::UsageStatus::InUse.into(),
        condition: Some(wire::Condition {
            abnormal: !findings.is_empty(),
            message: findings.first().map(|it| it.message.clone()).unwrap_or_default(),
        }),
        findings,
        first_seen: before(3600),
        last_probe: before(30),
        ..Default::default()
    }
}

fn node(health: wire::Health) -> wire::Node {
    wire::Node {
        name: "node1".into(),
        kernel: "6.12.0".into(),
        version: "0.1.0".into(),
        started: before(7200),
        settled: true,
        health: health.into(),
        store: "ok".into(),
        ..Default::default()
    }
}

#[test]
fn status_says_in_a_line_that_all_is_good() {
    let (node, drives, volumes) = (
        node(wire::Health::Good),
        [drive("nvme0n1", wire::Health::Good)],
        [volume(wire::Health::Good, Vec::new())],
    );
    let view = StatusView {
        node: &node,
        drives: &drives,
        volumes: &volumes,
        findings: &[],
        causes: Some(&[]),
    };
    insta::assert_snapshot!(status::screen(&view, &screen(Some(80))), @r#"
    node1  Linux 6.12.0, diskvitalsd 0.1.0 started 2 h ago
    GOOD  1 drive, 1 volume, nothing wrong

    drives
    NAME     HEALTH  KIND  SIZE       MODEL         SERIAL    VOLUMES  ID
    nvme0n1  GOOD    NVMe  953.9 GiB  SAMSUNG MZV…  S64ANS0R  1        nguid.nvme0n1

    volumes
    WHERE          HEALTH  USED  SIZE       FS    DEVICE  ID
    default/web-0  GOOD    40 %  100.0 GiB  ext4  dm-0    csi:d.example/a
    "#);
}

#[test]
fn status_lists_problems_and_monitoring_gaps() {
    use wire::source_state::State;
    let mut node = node(wire::Health::Bad);
    node.store = "/var/lib/diskvitals/state.db: read-only file system".into();
    node.stuck_probes = 1;
    node.user_mounts = [(1000, 0), (4001, 136)]
        .map(|(uid, not_listed)| wire::UserMounts { uid, listed: 64, not_listed })
        .to_vec();
    node.sources = vec![
        wire::SourceState {
            name: "udev".into(),
            state: State::Limited.into(),
            detail: "no udevd: kernel events and sysfs instead".into(),
            since: before(7200),
            is_missed: true,
        },
        wire::SourceState {
            name: "smart".into(),
            state: State::Absent.into(),
            detail: "switched off (smart.enabled)".into(),
            since: before(7200),
            is_missed: true,
        },
        wire::SourceState {
            name: "kubelet".into(),
            state: State::Down.into(),
            detail: "reading /var/lib/kubelet: permission denied".into(),
            since: before(60),
            is_missed: true,
        },
        wire::SourceState {
            name: "mounts".into(),
            state: State::Active.into(),
            detail: "mountinfo".into(),
            since: before(7200),
            is_missed: false,
        },
    ];
    node.limitations = vec!["not root: raw devices cannot be read".into()];
    let mut acknowledged = finding();
    acknowledged.acknowledged = Some(wire::Acknowledgement {
        by: "uid 0 (root)".into(),
        time: before(60),
        note: "known".into(),
    });
    let found = [finding(), acknowledged];
    let mut unknown = drive("nvme1n1", wire::Health::Unknown);
    unknown.health_unknown_why = "its state could not be read: Input/output error".into();
    let (drives, volumes) = (
        [drive("nvme0n1", wire::Health::Good), unknown],
        [volume(wire::Health::Bad, vec![finding()])],
    );
    let view = StatusView {
        node: &node,
        drives: &drives,
        volumes: &volumes,
        findings: &found,
        causes: None,
    };
    insta::assert_snapshot!(status::screen(&view, &screen(Some(80))), @r#"
    node1  Linux 6.12.0, diskvitalsd 0.1.0 started 2 h ago
    CRITICAL  2 drives, 1 volume, 1 drive unknown, 1 finding, 1 acknowledged or under maintenance

    SEVERITY  REASON         SUBJECT            SINCE      FINDING
    BAD       NotAccessible  pod default/web-0  3 min ago  0123456789ab
        /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers
        readdir with: Input/output error (EIO)
    acked     NotAccessible  pod default/web-0  3 min ago  0123456789ab
        /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers
        readdir with: Input/output error (EIO)

    UNKNOWN nvme1n1
        its state could not be read: Input/output error

      source udev limited: no udevd: kernel events and sysfs instead, since
      2026-03-01 10:00:00
      source smart absent: switched off (smart.enabled), since 2026-03-01 10:00:00
      source kubelet DOWN: reading /var/lib/kubelet: permission denied, since
      2026-03-01 11:59:00 (which pods use which volumes is not known)
      limited: not root: raw devices cannot be read
      stuck: 1 probe has not returned: other programs that use those mounts or
      devices hang as well
      mounts of a user: uid 4001 has mounted 200 FUSE filesystems: none is judged,
      136 are not listed
      store: /var/lib/diskvitals/state.db: read-only file system: history and
      acknowledgements are in memory only
    "#);
}

#[test]
fn critical_before_warning_before_unknown_before_good() {
    let of = |health, findings: &[wire::Finding]| {
        verdict(&StatusView {
            node: &node(health),
            drives: &[],
            volumes: &[],
            findings,
            causes: None,
        })
        .exit_code()
    };
    assert_eq!(
        [wire::Health::Good, wire::Health::Suspect, wire::Health::Bad, wire::Health::Unknown]
            .map(|health| of(health, &[])),
        [0, 1, 2, 3]
    );
    assert!(
        Verdict::Critical > Verdict::Warning
            && Verdict::Warning > Verdict::Unknown
            && Verdict::Unknown > Verdict::Good
    );
    let mut about_device = finding();
    about_device.severity = wire::Severity::Suspect.into();
    assert_eq!(of(wire::Health::Unknown, &[about_device.clone()]), 1);
    about_device.acknowledged = Some(wire::Acknowledgement::default());
    assert_eq!(of(wire::Health::Good, &[about_device]), 0);
    let unsettled = wire::Node { settled: false, ..node(wire::Health::Good) };
    assert_eq!(
        verdict(&StatusView {
            node: &unsettled,
            drives: &[],
            volumes: &[],
            findings: &[],
            causes: Some(&[]),
        })
        .exit_code(),
        3
    );
}

#[test]
fn static_volumes_that_this_node_never_had_are_listed_below_the_table() {
    let absent = wire::AbsentVolume { handle: "fast-1".into(), path: "/dev/disk/by-id/x".into() };
    let answer = wire::ListVolumesResponse {
        volumes: vec![volume(wire::Health::Bad, vec![finding()])],
        absent: vec![absent],
        ..wire::ListVolumesResponse::default()
    };
    insta::assert_snapshot!(volumes::all(&answer, &screen(Some(80))), @r#"
    WHERE          HEALTH  USED  SIZE       FS    DEVICE  FINDINGS
    default/web-0  BAD     40 %  100.0 GiB  ext4  dm-0    NotAccessible

    static volume fast-1: /dev/disk/by-id/x was never on this node
    "#);
}

#[test]
fn tables_fit_the_terminal() {
    let drives = [drive("nvme1n1", wire::Health::Good), drive("nvme0n1", wire::Health::Bad)];
    insta::assert_snapshot!(drives::table(&drives, &screen(None)), @r#"
    NAME     HEALTH  KIND  SIZE       MODEL                 SERIAL    VOLUMES  ID
    nvme0n1  BAD     NVMe  953.9 GiB  SAMSUNG MZVL21T0HCLR  S64ANS0R  1        nguid.nvme0n1
    nvme1n1  GOOD    NVMe  953.9 GiB  SAMSUNG MZVL21T0HCLR  S64ANS0R  1        nguid.nvme1n1
    "#);
    let volumes = [volume(wire::Health::Bad, vec![finding()])];
    insta::assert_snapshot!(volumes::table(&volumes, &screen(Some(80))), @r#"
    WHERE          HEALTH  USED  SIZE       FS    DEVICE  FINDINGS
    default/web-0  BAD     40 %  100.0 GiB  ext4  dm-0    NotAccessible
    "#);
    insta::assert_snapshot!(findings::table(&[finding()], &screen(Some(80))), @r#"
    SEVERITY  REASON         SUBJECT            SINCE      FINDING
    BAD       NotAccessible  pod default/web-0  3 min ago  0123456789ab
        /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers
        readdir with: Input/output error (EIO)
    "#);
    for width in 50..120 {
        for text in [
            drives::table(&drives, &screen(Some(width))),
            volumes::table(&volumes, &screen(Some(width))),
            findings::table(&[finding()], &screen(Some(width))),
        ] {
            // A path is one word, and words are not broken.
            let longest = |line: &str| {
                let words = line.split(' ').map(|word| word.chars().count());
                words.max().unwrap_or(0) + 4
            };
            assert!(
                text.lines()
                    .all(|line| line.chars().count() <= usize::from(width).max(longest(line))),
                "{width}:\n{text}"
            );
        }
    }
}

#[test]
fn one_drive_and_one_volume_in_full() {
    insta::assert_snapshot!(drives::one(&drive("nvme0n1", wire::Health::Good), &screen(Some(100))), @r#"
    drive nguid.nvme0n1
    health      GOOD
    name        nvme0n1
    model       SAMSUNG MZVL21T0HCLR
    serial      S64ANS0R
    kind        NVMe over nvme
    size        953.9 GiB (blocks of 512 / 512 bytes, logical / physical)
    first seen  2026-02-28 11:00:00
    volumes     csi:d.example/a
    "#);
    insta::assert_snapshot!(volumes::one(&volume(wire::Health::Bad, vec![finding()]), &screen(Some(100))), @r#"
    volume default/web-0
    health      BAD
    id          csi:d.example/a
    condition   abnormal: /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers readdir with: Input/output error (EIO)
    driver      d.example
    handle      a
    PV          pv-a
    filesystem  ext4, uuid u-u
    source      /dev/mapper/vg-a
    device      dm-0
    status      published, usable, in use
    space       40.0 GiB used of 100.0 GiB (40 %), 60.0 GiB available
    inodes      10 used of 1000, 990 available
    last probe  30 s ago
    first seen  1 h ago
    mounts      /staging (staging, rw)
                /pod (pod, NOT MOUNTED)
    pods        default/web-0 as pv-a
    stands on   dm-0 → nvme0n1p2 → nvme0n1
    drives      nguid.nvme0n1

    findings
    BAD NotAccessible (data not accessible), pod default/web-0, 3 min ago
        /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers readdir with: Input/output
        error (EIO)
        to do     Read the error and the kernel log. An I/O error of a local device: look for resets or
                  a removal of the device, then check the filesystem read-only. `stale`: the server's
                  export has changed; unmount and mount again. `not connected`: the FUSE process has
                  ended; mount again.
        finding 0123456789ab about csi:d.example/a, since 2026-03-01 11:56:40, seen 2 times, last 20 s
        ago
        evidence  readdir, 2026-03-01 11:59:40
                  | Input/output error (EIO)
        clears    the path can be read again
    "#);
}

#[test]
fn explain_is_a_tree_from_the_drive_to_the_pod() {
    let node = |id: &str, kind: &str, name: &str, detail: &str, below: &[&str]| wire::ChainNode {
        id: id.into(),
        kind: kind.into(),
        name: name.into(),
        detail: detail.into(),
        stands_on: below.iter().map(ToString::to_string).collect(),
        health: if matches!(kind, "drive" | "volume") { wire::Health::Good.into() } else { 0 },
    };
    let explanation = wire::Explanation {
        subject: Some(wire::Subject {
            kind: wire::SubjectKind::Volume.into(),
            id: "csi:d.example/a".into(),
            ..Default::default()
        }),
        chain: vec![
            node("drive:A", "drive", "sda", "serial 1", &[]),
            node("drive:B", "drive", "sdb", "serial 2", &[]),
            node("device:md0", "md", "md0", "raid1 of sda, sdb", &["drive:A", "drive:B"]),
            node("filesystem:u", "filesystem", "ext4", "uuid u", &["device:md0"]),
            node("mount:/staging", "mount", "/staging", "staging: rw", &["filesystem:u"]),
            node(
                "volume:csi:d.example/a",
                "volume",
                "csi:d.example/a",
                "PV pv-a",
                &["mount:/staging"],
            ),
            node("pod:u1", "pod", "default/web-0", "uid u1, as pv-a", &["volume:csi:d.example/a"]),
        ],
        findings: vec![finding()],
        ..Default::default()
    };
    insta::assert_snapshot!(explain::tree(&explanation, &screen(Some(100))), @r#"
    volume csi:d.example/a
    pod default/web-0: Read the error and the kernel log. An I/O error of a local device: look for
      resets or a removal of the device, then check the filesystem read-only. `stale`: the server's
      export has changed; unmount and mount again. `not connected`: the FUSE process has ended; mount
      again.

    drive sda  GOOD  serial 1
      md md0  raid1 of sda, sdb
        filesystem ext4  uuid u
          mount /staging  staging: rw
            volume csi:d.example/a  GOOD  PV pv-a
              pod default/web-0  uid u1, as pv-a
    drive sdb  GOOD  serial 2
      md md0  (see above)

    findings
    BAD NotAccessible (data not accessible), pod default/web-0, 3 min ago
        /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv-a/mount answers readdir with: Input/output
        error (EIO)
        to do     Read the error and the kernel log. An I/O error of a local device: look for resets or
                  a removal of the device, then check the filesystem read-only. `stale`: the server's
                  export has changed; unmount and mount again. `not connected`: the FUSE process has
                  ended; mount again.
        finding 0123456789ab about csi:d.example/a, since 2026-03-01 11:56:40, seen 2 times, last 20 s
        ago
        evidence  readdir, 2026-03-01 11:59:40
                  | Input/output error (EIO)
        clears    the path can be read again
    "#);
}

#[test]
fn explain_says_once_what_is_to_be_done_for_all_volumes_of_a_pool() {
    let of = |name: &str| {
        let subject = wire::Subject {
            kind: wire::SubjectKind::Volume.into(),
            id: format!("mnt:{name}"),
            name: name.into(),
        };
        let action = "Bring sdb back.".to_owned();
        wire::Finding { subject: Some(subject), action, ..finding() }
    };
    let names = ["/tank", "/tank/a", "/tank/b", "/tank/c", "/tank/d"];
    let explanation =
        wire::Explanation { findings: names.map(of).into(), ..wire::Explanation::default() };
    let text = explain::tree(&explanation, &screen(None));
    let first = "/tank, /tank/a, /tank/b, /tank/c and 1 more: Bring sdb back.";
    assert_eq!(text.lines().next(), Some(first), "{text}");
}

#[test]
fn explain_counts_what_a_check_found_and_wraps_at_words_at_any_width() {
    let mut damaged = finding();
    damaged.reason = "FilesystemCorrupted".into();
    let source = "e2fsck -fn (read only, check 0123456789ab)";
    damaged.evidence = ["Inode 12 is bad", "Inode 13 is bad"]
        .map(|line| wire::Evidence {
            source: source.into(),
            text: line.into(),
            ..Default::default()
        })
        .into();
    let mut below = finding();
    below.reason = "PendingSectors".into();
    below.severity = wire::Severity::Suspect.into();
    below.subject = Some(wire::Subject {
        kind: wire::SubjectKind::Drive.into(),
        id: "naa.5000c500a1b2c3d4".into(),
        name: "sda".into(),
    });
    let mut checked = check();
    checked.runs[0].output = "Pass 1: Checking inodes, blocks, and sizes\n".into();
    let explanation = wire::Explanation {
        subject: damaged.subject.clone(),
        findings: vec![damaged, below],
        checks: vec![checked],
        ..Default::default()
    };
    let text = explain::tree(&explanation, &screen(Some(80)));
    for printed in ["is bad", "Pass 1", "passes checks"] {
        assert!(!text.contains(printed), "{printed}: {text}");
    }
    assert!(text.contains("| diskvitals checks 0123456789ab"), "{text}");
    let drive = text.find("PendingSectors").expect("the drive's finding");
    let volume = text.find("FilesystemCorrupted").expect("the volume's");
    assert!(drive < volume, "{text}");
    for width in 10..130 {
        let text = explain::tree(&explanation, &screen(Some(width)));
        // A command is not broken: it is copied.
        let is_text = |line: &&str| !line.starts_with("  diskvitals ");
        for line in text.lines().filter(is_text) {
            let longest = line.split(' ').map(|word| word.chars().count()).max();
            // Only a word can be longer than a line, behind its indent.
            let most = usize::from(width).max(longest.unwrap_or(0) + usize::from(width) / 4);
            assert!(line.chars().count() <= most, "{width}: {line}");
        }
    }
}

fn check() -> wire::Check {
    use wire::check::{Mode, State, Verdict};
    let run = |mode: Mode,
               number: i64,
               ballot: wire::check_run::Ballot,
               findings: Vec<wire::CheckFinding>| wire::CheckRun {
        mode: mode.into(),
        started: before(number),
        duration: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
        exit_status: Some(if findings.is_empty() { 0 } else { 4 }),
        ballot: ballot.into(),
        findings,
        bytes_read: 74 << 20,
        held: (mode == Mode::Frozen)
            .then_some(prost_types::Duration { seconds: 1, nanos: 550_000_000 }),
        command: "e2fsck -fn /dev/sda1".into(),
        ..Default::default()
    };
    let finding = wire::CheckFinding {
        kind: "inode-checksum".into(),
        ids: vec!["1768".into()],
        weight: wire::check_finding::Weight::Damage.into(),
        text: "Inode 1768 passes checks, but checksum does not match inode.".into(),
    };
    wire::Check {
        id: "0123456789ab".into(),
        target: "csi:d.example/a".into(),
        filesystem: "ext4".into(),
        mode: Mode::Frozen.into(),
        runs: vec![
            run(Mode::Live, 130, wire::check_run::Ballot::Findings, vec![finding.clone()]),
            run(Mode::Frozen, 120, wire::check_run::Ballot::Findings, vec![finding.clone()]),
            run(Mode::Frozen, 60, wire::check_run::Ballot::Findings, vec![finding]),
        ],
        verdict: Verdict::Corrupted.into(),
        reason: "Two frozen runs found the same damage.".into(),
        state: State::Ended.into(),
        asked: before(140),
        started: before(131),
        ended: before(58),
        origin: "uid 0 (root)".into(),
        ..Default::default()
    }
}

#[test]
fn a_check_shows_its_verdict_first_then_its_runs_and_what_they_found() {
    insta::assert_snapshot!(checks::one(&check(), &screen(Some(100))), @"
    check 0123456789ab of csi:d.example/a (ext4)
    CORRUPTED  frozen
    Two frozen runs found the same damage.

    RUN  MODE    RESULT    FINDINGS  TOOK     HELD     READ      ENDED
    1    live    findings  1         1500 ms           74.0 MiB  status 4
    2    frozen  findings  1         1500 ms  1550 ms  74.0 MiB  status 4
    3    frozen  findings  1         1500 ms  1550 ms  74.0 MiB  status 4

    e2fsck -fn /dev/sda1 found
      Inode 1768 passes checks, but checksum does not match inode.
    ");
    insta::assert_snapshot!(checks::table(&[check()], &screen(Some(100))), @"
    CHECK         VERDICT    TARGET           FS    MODE    WHEN      WHY
    0123456789ab  CORRUPTED  csi:d.example/a  ext4  frozen  58 s ago  Two frozen runs found the same…
    ");
}

#[test]
fn a_check_that_goes_on_says_what_it_does() {
    let going = wire::Check {
        state: wire::check::State::Running.into(),
        phase: "live run 2 of 3: Pass 1: Checking inodes".into(),
        ..check()
    };
    let elapsed = std::time::Duration::from_secs(12);
    let (what, time) = checks::progress(&going, elapsed, false);
    assert_eq!(
        (what.as_str(), time.as_str()),
        ("csi:d.example/a: live run 2 of 3: Pass 1: Checking inodes", "12 s")
    );
    assert_eq!(checks::progress(&going, elapsed, true).0, "csi:d.example/a: cancelling");
    assert_eq!(checks::verdict(&going).0, "running");
}

fn attachment(role: wire::MountRole, pod: &str) -> wire::Attachment {
    wire::Attachment {
        driver: "d.example".into(),
        handle: "a".into(),
        volume_id: "csi:d.example/a".into(),
        role: role.into(),
        path: "/k/pods/u1/volumes/kubernetes.io~csi/pv-a/mount".into(),
        pod_uid: "u1".into(),
        pod_name: pod.into(),
        pod_namespace: "default".into(),
        since: before(7200),
        stale: "pod u1 is gone".into(),
        ..Default::default()
    }
}

#[test]
fn a_stale_attachment_shows_its_owner_and_why_it_is_stale() {
    assert_eq!(attachments::table(&[], &screen(None)), "no stale attachments\n");
    let unclaimed = wire::Attachment {
        driver: String::new(),
        handle: String::new(),
        volume_id: "fs:u-u".into(),
        path: "/k/plugins/kubernetes.io/csi/pv/pv-a/globalmount".into(),
        pod_uid: String::new(),
        ..attachment(wire::MountRole::Staging, "")
    };
    insta::assert_snapshot!(attachments::table(&[attachment(wire::MountRole::Pod, "web-0"), unclaimed], &screen(None)), @"
    PATH                                              VOLUME       ROLE     POD            SINCE    STALE
    /k/pods/u1/volumes/kubernetes.io~csi/pv-a/mount   d.example/a  pod      default/web-0  2 h ago  pod u1 is gone
    /k/plugins/kubernetes.io/csi/pv/pv-a/globalmount  fs:u-u       staging  -              2 h ago  pod u1 is gone
    ");
}

#[test]
fn a_cleanup_is_shown_step_by_step_and_a_dry_run_names_the_command() {
    use wire::cleanup_step::State;
    let step = |action: &str, state: State, detail: &str| wire::CleanupStep {
        action: action.into(),
        path: "/k/x/mount".into(),
        state: state.into(),
        detail: detail.into(),
    };
    let answer = |steps: Vec<wire::CleanupStep>| wire::ForceCleanupResponse {
        volume_id: "csi:d/a".into(),
        steps,
    };
    let dry = answer(vec![step("unmount", State::Planned, ""), step("remove", State::Planned, "")]);
    insta::assert_snapshot!(attachments::cleanup(&dry, "a", false, &screen(None)), @"
    would    unmount /k/x/mount
    would    remove /k/x/mount
    nothing has been done; to execute these steps: diskvitals cleanup a --yes
    ");
    let half = answer(vec![
        step("unmount", State::Done, ""),
        step("remove", State::Failed, "it is not empty"),
        step("detach the loop device of", State::Planned, "under way"),
    ]);
    insta::assert_snapshot!(attachments::cleanup(&half, "a", true, &screen(None)), @"
    done     unmount /k/x/mount
    FAILED   remove /k/x/mount: it is not empty
    not done detach the loop device of /k/x/mount: under way
    not all steps are done; the daemon's log shows how they continue and end
    ");
}

#[test]
fn a_cordoned_pool_is_shown_with_its_drive_and_what_to_do() {
    let cordon = wire::PoolCordon {
        kind: "loop".into(),
        message: "no new volume is placed in the pool (loop): drive sda (Model, serial S, slot 3) below it is failing".into(),
        ..Default::default()
    };
    let node = wire::Node { pool_cordons: vec![cordon], ..node(wire::Health::Bad) };
    insta::assert_snapshot!(status::cordons(&node, &screen(Some(60))), @r#"

    CORDONED pool (loop)
        no new volume is placed in the pool (loop): drive sda
        (Model, serial S, slot 3) below it is failing
    "#);
}
