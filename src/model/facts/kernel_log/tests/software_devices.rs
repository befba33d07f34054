//! Errors of devices that are no drives: loop, nbd, rbd, drbd, zram, mappings.

use super::*;
use crate::block::BlockDevice;

fn software(name: &str, dev: &str) -> BlockDevice {
    let layer = match name.starts_with("loop") {
        true => Layer::Loop { backing_file: Some("/images/a.img".into()) },
        false => Layer::Other,
    };
    device(name, dev, layer, &[])
}

fn part(name: &str, dev: &str, whole: &str, start_mib: u64) -> BlockDevice {
    let layer = Layer::Partition { number: 1, start_bytes: start_mib << 20 };
    let mut part = device(name, dev, layer, &[whole]);
    part.size_bytes = 1 << 20;
    part
}

fn errors_of(host: &mut TestHost, events: &[Event]) -> Vec<String> {
    let events = events.iter().cloned().zip(1..);
    let events = events.map(|(event, seq)| numbered(seq, event)).collect();
    host.apply(SourceUpdate::KernelLog(batch(events)), 1);
    host.apply(
        SourceUpdate::Source { source: Source::Udev, status: SourceStatus::Active(String::new()) },
        8,
    );
    host.raised(9)
}

fn three_reads(name: &str) -> [Event; 3] {
    [8, 1000, 2000].map(|sector| event(Class::Io, name, at(1), &[sector]))
}

#[test]
fn errors_of_a_volumes_own_device_count_whether_or_not_it_is_a_drive() {
    for name in ["loop9", "nbd0", "rbd0", "drbd3", "zram1", "dm-2"] {
        let device = match name {
            "dm-2" => dm(name, "253:2", "crypt", "CRYPT-x", &[]),
            _ => software(name, "7:9"),
        };
        let dev = device.dev.to_string();
        let mut host = TestHost::default().with(device).uuid(name, "u").mounted(
            &dev,
            "/",
            "/data",
            "ext4",
            &format!("/dev/{name}"),
        );
        host.read_all(0);
        assert_eq!(
            errors_of(&mut host, &three_reads(name)),
            ["fs:u IoErrors Bad Degraded"],
            "{name}"
        );
        let finding = host.raised_for(Reason::IoErrors, 10).unwrap();
        assert!(finding.evidence[0].text.contains(name), "{finding:?}");
    }
}

#[test]
fn admitting_a_loop_as_a_drive_adds_only_the_drives_own_findings() {
    let mut host = TestHost::default()
        .disk("loop9", "7:9", "loop:/a.img")
        .uuid("loop9", "u")
        .mounted("7:9", "/", "/data", "ext4", "/dev/loop9");
    host.read_all(0);
    let mut events = three_reads("loop9").to_vec();
    events.push(event(Class::Io, "loop9", at(1), &[]));
    assert_eq!(
        errors_of(&mut host, &events),
        [
            "loop:/a.img IoErrors Bad Degraded",
            "fs:u IoErrors Bad Degraded",
            "fs:u DriveFailing Bad Degraded"
        ]
    );
    assert_eq!(count(&host, &data(), Class::Io), Some(1), "without a sector");
}

#[test]
fn a_sector_of_a_loop_belongs_to_the_partition_that_contains_it() {
    let mut host = TestHost::default()
        .with(software("loop9", "7:9"))
        .with(part("loop9p1", "259:1", "loop9", 1))
        .with(part("loop9p2", "259:2", "loop9", 2))
        .uuid("loop9p1", "one")
        .uuid("loop9p2", "two")
        .mounted("259:1", "/", "/one", "ext4", "/dev/loop9p1")
        .mounted("259:2", "/", "/two", "ext4", "/dev/loop9p2");
    host.read_all(0);
    let of_the_second = event(Class::Io, "loop9", at(1), &[(2 << 20) / 512 + 8]);
    assert_eq!(errors_of(&mut host, &[of_the_second]), ["fs:two IoErrors Suspect Degraded"]);
}

#[test]
fn an_error_of_a_former_loop_is_not_of_the_volume_on_the_next_one() {
    for is_drive in [true, false] {
        let mut host = match is_drive {
            true => TestHost::default().disk("loop9", "7:9", "loop:/a.img"),
            false => TestHost::default().with(software("loop9", "7:9")),
        };
        host = host.uuid("loop9", "u").mounted("7:9", "/", "/data", "ext4", "/dev/loop9");
        host.read_all(0);
        let attached = NameAssignment {
            name: "loop9".into(),
            seq: 2,
            is_filesystem: false,
            is_remount: false,
            at: at(5),
        };
        let events = vec![numbered(1, event(Class::Io, "loop9", at(1), &[]))];
        let batch = Batch { name_assignments: vec![attached], ..batch(events) };
        host.apply(SourceUpdate::KernelLog(batch), 6);
        assert!(host.facts.errors(&data()).is_none(), "{is_drive}");
    }
}

#[test]
fn without_the_record_of_a_loops_attachment_an_error_before_its_volume_is_not_the_volumes() {
    for (is_lost, seen, counted) in [(true, 4, None), (true, 0, Some(1)), (false, 4, Some(1))] {
        let mut host = TestHost::default().with(software("loop9", "7:9")).uuid("loop9", "u");
        host = host.mounted("7:9", "/", "/data", "ext4", "/dev/loop9");
        host.read_all(seen);
        if is_lost {
            host.facts.note_lost_records(at(5));
        }
        let events = vec![numbered(1, event(Class::Io, "loop9", at(1), &[]))];
        host.apply(SourceUpdate::KernelLog(batch(events)), 6);
        assert_eq!(count(&host, &data(), Class::Io), counted, "{is_lost} {seen}");
    }
}

#[test]
fn a_loop_below_an_array_is_a_finding_of_the_loop() {
    let md = Layer::Md { level: Some("raid1".into()) };
    let mut host = TestHost::default()
        .with(software("loop9", "7:9"))
        .with(software("loop8", "7:8"))
        .with(device("md0", "9:0", md, &["loop8", "loop9"]))
        .uuid("md0", "m")
        .mounted("9:0", "/", "/data", "ext4", "/dev/md0");
    host.read_all(0);
    assert_eq!(
        errors_of(&mut host, &three_reads("loop9")),
        ["dev:loop9 IoErrors Suspect Degraded"]
    );
}

#[test]
fn errors_of_a_software_device_without_a_volume_are_dropped() {
    let mut host = TestHost::default().with(software("loop9", "7:9"));
    host.read_all(0);
    let mut events = three_reads("loop9").to_vec();
    events.extend(three_reads("loop7"));
    assert_eq!(errors_of(&mut host, &events), [""; 0]);
    assert!(host.facts.kernel.errors.is_empty());
    assert_eq!(host.facts.kernel.progress.unattributed, 0);
}
