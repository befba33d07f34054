use std::fmt::Write;

use super::*;

fn file(text: &str) -> (tempfile::NamedTempFile, InputSource) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let source = InputSource::File(file.path().to_owned());
    (file, source)
}

fn analyzed(text: &str, peers: &[Vec<String>]) -> Result<IoAnalysis, IoError> {
    let (_file, source) = file(text);
    io(&source, peers)
}

fn time(minute: u64) -> Timestamp {
    Timestamp::from_second(1_764_000_000 + minute as i64 * 60).unwrap()
}

/// Drives sda, sdb, … with 10 reads of 4 KiB a second, of so many milliseconds each.
fn recording(kinds: &[&str], minutes: u64, milliseconds: impl Fn(usize, u64) -> u64) -> String {
    let names = ["sda", "sdb", "sdc", "sdd", "sde"];
    let mut text = "diskvitals-io 1 6.18.0-amd64\n".to_owned();
    for (name, kind) in names.iter().zip(kinds) {
        writeln!(text, "drive {name} {kind} WDC WD80EFAX").unwrap();
    }
    let mut busy = [0; 5];
    for minute in 0..=minutes {
        writeln!(text, "time {}", time(minute)).unwrap();
        for (drive, name) in names.iter().enumerate().take(kinds.len()) {
            busy[drive] += 600 * milliseconds(drive, minute);
            let (ios, busy) = (600 * minute, busy[drive]);
            writeln!(
                text,
                "   8      {} {name} {ios} 0 {} {busy} 0 0 0 0 0 {busy} {busy}",
                drive * 16,
                ios * 8
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn a_recording_names_the_drive_that_is_slower_than_its_peers() {
    let slow = |drive, _| if drive == 2 { 90 } else { 11 };
    let answer = analyzed(&recording(&["rotating"; 5], 14 * 60, slow), &[]).unwrap();
    let verdicts: Vec<Verdict> = answer.drives.iter().map(|drive| drive.verdict).collect();
    assert_eq!(
        verdicts,
        [Verdict::Usual, Verdict::Usual, Verdict::Slow, Verdict::Usual, Verdict::Usual]
    );
    let drive = &answer.drives[2];
    let worst = drive.worst.as_ref().unwrap();
    assert_eq!(worst.requests, "reads of up to 24 KiB");
    assert_eq!(
        (worst.now, worst.peers, worst.peer_count, worst.usual),
        (90.0, Some(11.0), Some(4), None)
    );
    assert_eq!(drive.model, "WDC WD80EFAX");
    assert!(drive.slow_hours.len() >= 13, "{:?}", drive.slow_hours);
    assert_eq!(answer.begin.zip(answer.end), Some((time(1), time(14 * 60))));
    assert_eq!(exit_status(&Ok(answer)), 0);
}

#[test]
fn drives_without_peers_and_virtual_ones_are_not_judged_and_say_why() {
    let answer =
        analyzed(&recording(&["rotating"; 2], 120, |drive, _| 10 + 90 * drive as u64), &[]);
    let answer = answer.unwrap();
    let why = &answer.drives[1].not_judged;
    assert!(why[0].starts_with("fewer than three drives of its model"), "{why:?}");
    assert_eq!(exit_status(&Ok(answer)), EXIT_UNKNOWN);
    let kinds = ["rotating", "rotating", "rotating", "rotating", "other"];
    let slow = |drive, _| if drive == 4 { 90 } else { 11 };
    let answer = analyzed(&recording(&kinds, 120, slow), &[]).unwrap();
    assert_eq!(answer.drives[4].verdict, Verdict::NotJudged);
    assert!(answer.drives[4].not_judged[0].ends_with("its times are not those of a local drive"));
}

#[test]
fn a_gap_and_a_device_that_is_another_one_make_nobody_slow() {
    let text = recording(&["rotating"; 5], 300, |_, _| 11);
    let gap: String = text
        .split("time ")
        .enumerate()
        .filter(|(part, _)| !(100..160).contains(part))
        .map(|(part, block)| if part == 0 { block.to_owned() } else { format!("time {block}") })
        .collect();
    let reset = gap.replace(" sdb 12000 0 96000", " sdb 3 0 24");
    assert_ne!(reset, gap);
    for text in [gap, reset] {
        let answer = analyzed(&text, &[]).unwrap();
        assert!(answer.drives.iter().all(|it| it.verdict == Verdict::Usual), "{answer:?}");
    }
}

#[test]
fn readings_that_are_too_far_apart_are_not_judged_and_say_so() {
    let text = recording(&["rotating"; 5], 300, |_, _| 11);
    let blocks = text.split("time ").enumerate().filter(|(part, _)| part % 5 == 0);
    let text: Vec<&str> = blocks.map(|(_, block)| block).collect();
    let answer = analyzed(&text.join("time "), &[]).unwrap();
    assert_eq!(answer.drives[0].verdict, Verdict::NotJudged);
    assert_eq!(
        answer.drives[0].not_judged,
        ["the readings are neither about 60 s nor up to 30 s apart"]
    );
}

#[test]
fn junk_in_a_recording_is_an_error_with_its_line() {
    let error = |text: &str| analyzed(text, &[]).unwrap_err().to_string();
    assert_eq!(error("diskvitals-io 1 6.18.0\ntime now\n"), "line 2: no time");
    assert_eq!(error("diskvitals-io 1 6.18.0\n8 0 sda 1 2 x\n"), "line 2: no counters of a device");
    assert!(error("hello\n").starts_with("no file of"));
    assert_eq!(exit_status(&analyzed("hello\n", &[])), EXIT_UNKNOWN);
}

/// As iostat 12.6.1 writes it, with some columns less.
fn iostat(timestamps: bool, minutes: u64, await_ms: impl Fn(usize) -> f64) -> String {
    let blocks: Vec<String> = (0..=minutes)
        .map(|minute| {
            let disks: Vec<String> = ["sda", "sdb", "sdc", "sdd", "sda1", "loop0"]
                .iter()
                .enumerate()
                .map(|(drive, name)| format!(
                    r#"{{"disk_device": "{name}", "r/s": 10.00, "w/s": 0.00, "d/s": 0.00, "f/s": 0.00, "rkB/s": 40.00, "wkB/s": 0.00, "rrqm/s": 0.00, "r_await": {:.2}, "w_await": 0.00, "rareq-sz": 4.00, "aqu-sz": 0.17, "util": 1.51}}"#,
                    await_ms(drive)
                ))
                .collect();
            let time = time(minute).to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S+0000");
            let time = if timestamps { format!(r#""timestamp": "{time}","#) } else { String::new() };
            format!(r#"{{ {time} "disk": [ {} ] }}"#, disks.join(","))
        })
        .collect();
    format!(
        r#"{{"sysstat": {{"hosts": [ {{"nodename": "vm", "sysname": "Linux", "release": "6.18.44", "date": "2026-11-29", "statistics": [ {} ] }} ] }} }}"#,
        blocks.join(",")
    )
}

#[test]
fn iostat_is_judged_among_the_peers_that_were_named() {
    let slow = |drive| if drive == 1 { 90.0 } else { 11.0 };
    let names = ["sda", "sdb", "sdc", "sdd"].map(str::to_owned).to_vec();
    let answer = analyzed(&iostat(true, 120, slow), &[names]).unwrap();
    let of: Vec<(&str, Verdict)> =
        answer.drives.iter().map(|drive| (drive.name.as_str(), drive.verdict)).collect();
    let usual = Verdict::Usual;
    assert_eq!(of, [("sda", usual), ("sdb", Verdict::SlowHours), ("sdc", usual), ("sdd", usual)]);
    let alone = analyzed(&iostat(true, 120, slow), &[]).unwrap();
    assert!(alone.drives.iter().all(|drive| drive.verdict == Verdict::NotJudged));
}

#[test]
fn iostat_without_times_says_how_to_record_it() {
    let error = analyzed(&iostat(false, 2, |_| 11.0), &[]).unwrap_err();
    assert!(error.to_string().contains("S_TIME_FORMAT=ISO iostat"), "{error}");
}

#[test]
fn sar_is_shown_and_not_judged() {
    let text = "Linux 6.18.44 (vm) \t2026-11-29 \t_x86_64_\t(2 CPU)\n\n\
        13:40:01          DEV       tps     rkB/s     wkB/s     dkB/s   areq-sz    aqu-sz     await     %util\n\
        13:50:01          sda      1.00      4.00      0.00      0.00      4.00      0.01     11.50      1.00\n\
        14:00:01          sda      1.00      4.00      0.00      0.00      4.00      0.01     90.25      1.00\n\
        Average:          sda      1.00      4.00      0.00      0.00      4.00      0.01     50.87      1.00\n";
    let answer = analyzed(text, &[]).unwrap();
    let [drive] = answer.drives.as_slice() else { panic!("{answer:?}") };
    assert_eq!((drive.name.as_str(), drive.verdict), ("sda", Verdict::NotJudged));
    assert_eq!(drive.worst.as_ref().map(|times| times.now), Some(90.25));
    assert_eq!(exit_status(&Ok(answer)), EXIT_UNKNOWN);
}
