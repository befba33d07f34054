//! Tables on narrow and wide terminals, with hostile names and hundreds of rows.

use super::*;
use diskvitals_terminal::width::columns;

fn disk(slot: u32) -> wire::Drive {
    let letters = ["sdb", "sda", "sdaa"];
    let mut disk = drive(letters[slot as usize % 3], wire::Health::Good);
    disk.id = format!("naa.5000c500a1d0000{slot}");
    (disk.model, disk.serial) =
        ("INTEL SSDSC2KB960G8".into(), format!("PHYF8421007W960C{slot:02}"));
    disk.kind = wire::DriveKind::Ssd.into();
    disk.size_bytes = (1 << 40) - 512;
    disk.location = Some(wire::Location {
        enclosure: "1".into(),
        slot: format!("{slot:02}"),
        ..Default::default()
    });
    disk.smart = Some(wire::Smart {
        temperature_celsius: Some(38),
        wear_percent: Some(97),
        power_on_hours: Some(31207),
        ..Default::default()
    });
    disk
}

#[test]
fn drives_keep_what_identifies_them_and_what_ages_them_on_any_width() {
    let mut disks: Vec<wire::Drive> = (0..3).map(disk).collect();
    disks[2].health = wire::Health::Bad.into();
    disks[2].findings = vec![finding(), finding()];
    for (width, name) in [(40, "40"), (80, "80"), (120, "120"), (200, "200")] {
        let text = drives::table(&disks, &screen(Some(width)));
        insta::assert_snapshot!(format!("drives_at_{name}_columns"), text);
        for it in &disks {
            assert!(text.contains(&it.serial), "{width}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)));
        assert!(!text.contains("1024.0"), "{text}");
    }
}

#[test]
fn volumes_keep_their_place_and_name_their_device_on_any_width() {
    let mut lv = volume(wire::Health::Bad, vec![finding()]);
    (lv.device, lv.device_name) = ("dm-3".into(), "vg-nas/home-dirs".into());
    let mut host = volume(wire::Health::Good, Vec::new());
    host.pods.clear();
    host.id = "fs:1c2d3e4f-5a6b-4c7d-8e9f-0a1b2c3d4e5f".into();
    host.missing_mounts.clear();
    host.mounts[0].path = "/srv/home dirs".into();
    host.mounts[0].role = wire::MountRole::Host.into();
    let volumes = [host, lv];
    for (width, name) in [(40, "40"), (80, "80"), (120, "120"), (200, "200")] {
        let text = volumes::table(&volumes, &screen(Some(width)));
        insta::assert_snapshot!(format!("volumes_at_{name}_columns"), text);
        assert!(text.contains("/srv/home dirs") && text.contains("default/web-0"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)));
    }
}

#[test]
fn findings_have_their_message_on_a_line_of_its_own_where_it_does_not_fit() {
    let mut short = finding();
    short.message = "it waits since 2026-03-01T10:00:00.123456789Z".into();
    short.since = before(200_000);
    for (width, name) in [(40, "40"), (80, "80"), (120, "120"), (200, "200")] {
        let text = findings::table(&[short.clone()], &screen(Some(width)));
        insta::assert_snapshot!(format!("findings_at_{name}_columns"), text);
    }
    let piped = findings::table(&[short, finding()], &screen(None));
    assert_eq!(piped.lines().count(), 3, "a finding is a line: {piped}");
}

#[test]
fn hostile_names_are_escaped_and_hundreds_of_rows_are_whole_in_every_table() {
    let hostile = format!("\u{1b}[31m\u{202e}\u{200b}<b>&{}", "x".repeat(4096));
    let mut drives: Vec<wire::Drive> = (0..256).map(disk).collect();
    let it = &mut drives[7];
    (it.name, it.model, it.serial) = (hostile.clone(), hostile.clone(), hostile.clone());
    it.location.as_mut().unwrap().slot = hostile.clone();
    let mut volumes: Vec<wire::Volume> = (0..500)
        .map(|n| {
            let mut it = volume(wire::Health::Good, Vec::new());
            it.pods[0].name = format!("web-{n}");
            it
        })
        .collect();
    let it = &mut volumes[7];
    (it.id, it.device_name) = (hostile.clone(), hostile.clone());
    it.pods[0].name = hostile.clone();
    let mut all_findings: Vec<wire::Finding> = (0..300).map(|_| finding()).collect();
    let it = &mut all_findings[7];
    (it.reason, it.message) = (hostile.clone(), hostile.clone());
    it.subject.as_mut().unwrap().name = hostile;
    for width in [Some(40), Some(80), Some(200), None] {
        let screen = screen(width);
        for (text, rows) in [
            (drives::table(&drives, &screen), 256),
            (volumes::table(&volumes, &screen), 500),
            (findings::table(&all_findings, &screen), 300),
        ] {
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200b}']));
            assert!(text.lines().count() >= rows, "{width:?}");
        }
    }
}

#[test]
fn wide_and_combining_characters_keep_the_columns_aligned() {
    let names = ["/srv/backup", "/srv/备份/数据库", "/srv/🙂🙂", "/srv/e\u{301}e\u{301}te\u{301}"];
    let volumes: Vec<wire::Volume> = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let mut volume = volume(wire::Health::Good, Vec::new());
            volume.id = format!("fs:{at}");
            volume.pods.clear();
            volume.missing_mounts.clear();
            volume.mounts[0].path = name.repeat(3);
            volume
        })
        .collect();
    for width in [40, 80, 120, 200] {
        let text = volumes::table(&volumes, &screen(Some(width)));
        let place = |line: &str| Some(columns(&line[..line.find("GOOD")?]));
        let places: Vec<usize> = text.lines().filter_map(place).collect();
        assert_eq!(places.len(), names.len(), "{text}");
        // Below 80 columns a volume takes several lines.
        assert!(width < 80 || places.iter().all(|it| *it == places[0]), "{text}");
        for line in text.lines() {
            assert!(columns(line) <= usize::from(width), "{width}: {line}");
        }
    }
    let mut wide = causes::cause("备份盘", wire::Severity::Bad, 3);
    wide.hits[0].name = "/srv/备份".repeat(20);
    wide.model = "型号".repeat(30);
    for width in [60, 80, 120, 200] {
        for line in crate::render::causes::block(&wide, &[], &screen(Some(width))).lines() {
            assert!(columns(line) <= usize::from(width), "{width}: {line}");
        }
    }
}
