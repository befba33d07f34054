//! `diskvitals report` and `bundle` on the real daemon: recorded hosts, and generated ones of any size.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

use scraper::{Html, Selector};

use crate::hosts::Daemon;
use crate::programs::built_program;
use crate::tree::{self, Plan};

fn recorded(name: &str) -> Daemon {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
    let daemon = Daemon::start(&tree.join(name));
    daemon.answer();
    daemon
}

/// Runs the program; `socket` is not served where no daemon is needed.
#[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
fn run(socket: &Path, words: &[&str]) -> Output {
    Command::new(built_program("diskvitals"))
        .arg("--socket")
        .arg(socket)
        .args(words)
        .env("TZ", "UTC")
        .output()
        .expect("runs")
}

fn text(socket: &Path, words: &[&str]) -> String {
    let output = run(socket, words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(socket: &Path, words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(socket, words)).expect("JSON")
}

/// Without the times, which differ between two calls.
fn timeless(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("20") {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let is_time = from.len() >= 19
            && from.is_char_boundary(19)
            && from.bytes().take(19).enumerate().all(|(n, byte)| match n {
                4 | 7 => byte == b'-',
                10 => byte == b' ',
                13 | 16 => byte == b':',
                _ => byte.is_ascii_digit(),
            });
        let length = if is_time { 19 } else { 2 };
        shown.push_str(if is_time { "TIME" } else { "20" });
        rest = &from[length..];
    }
    shown + rest
}

fn valid(page: &str) -> Html {
    let parsed = Html::parse_document(page);
    assert_eq!(parsed.errors, Vec::<String>::new());
    let all = |selector: &str| Selector::parse(selector).expect("a selector");
    for forbidden in ["script", "img", "link", "iframe", "[src]", "[onclick]", "[style]"] {
        assert_eq!(parsed.select(&all(forbidden)).count(), 0, "{forbidden}");
    }
    let mut ids = BTreeMap::new();
    for element in parsed.select(&all("[id]")) {
        *ids.entry(element.attr("id").expect("one").to_owned()).or_insert(0) += 1;
    }
    assert!(ids.values().all(|count| *count == 1), "{ids:?}");
    for element in parsed.select(&all("[href]")) {
        let target = element.attr("href").expect("one");
        assert!(ids.contains_key(target.trim_start_matches('#')), "{target}");
    }
    for element in parsed.select(&all("[aria-labelledby]")) {
        for id in element.attr("aria-labelledby").expect("one").split(' ') {
            assert!(ids.contains_key(id), "{id}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    parsed
}

#[test]
fn two_dying_disks_have_a_text_report_for_terminals_and_mail() {
    let daemon = recorded("two-dying-disks");
    for columns in [40, 80] {
        let report = daemon.on_terminal(columns, "report");
        for line in report.lines() {
            // Evidence is verbatim, ids and commands are not broken.
            let verbatim = line.contains("| ")
                || line.contains("evidence  ")
                || line.contains("finding ")
                || line.contains("diskvitals ");
            let width = line.chars().count();
            assert!(verbatim || width <= usize::from(columns).max(64), "{columns}: {line}");
        }
        // The head has the machine's own names; findings of one severity are in the order of their times.
        let (_, body) = report.split_once("\n\n").expect("a head");
        let (body, findings) = body.split_once("\nfindings\n").expect("findings");
        let evidence = findings.lines().filter(|line| line.trim_start().starts_with("evidence"));
        assert_eq!(evidence.count(), 23, "{findings}");
        let (before, gaps) = body.split_once("  source ").expect("a gap");
        let (_, after) = gaps.split_once("\n\n").expect("an end");
        let body = format!("{before}SOURCES\n\n{after}");
        insta::assert_snapshot!(format!("report_at_{columns}_columns"), body);
    }
    // Without a terminal the lines fit into a mail.
    let mail = text(&daemon.socket, &["report", "--text"]);
    assert!(mail.starts_with("Storage of "), "{mail}");
    assert!(!mail.contains('\u{1b}'));
}

#[test]
fn the_page_is_valid_and_shows_what_is_wrong() {
    let daemon = recorded("two-dying-disks");
    let page = text(&daemon.socket, &["report", "--html", "-"]);
    let parsed = valid(&page);
    let shown: String = parsed.root_element().text().collect();
    for expected in [
        "CRITICAL",
        "SmartFailing",
        "then replace it",
        "/srv/bay0",
        "db/mysql-0",
        "PHYF8421007W960CGN",
        "5 Reallocated_Sector_Ct value 1 worst 1 threshold 10 raw 1204",
        "vg-thin/pool-0",
        "97 %",
        "a recorded tree has no events",
    ] {
        assert!(shown.contains(expected), "{expected}");
    }
    let map = Selector::parse("svg.map svg.node").expect("a selector");
    assert!(parsed.select(&map).count() >= 20);
}

#[test]
fn a_report_of_a_bundle_is_the_report_of_the_daemon() {
    let daemon = recorded("two-dying-disks");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bundle.tar.gz");
    let bundle = file.to_str().expect("a path");
    let nowhere = folder.path().join("no.sock");
    text(&daemon.socket, &["bundle", bundle]);
    for form in [&["report", "--html", "-"][..], &["report"]] {
        let from_bundle = [form, &["--from", bundle]].concat();
        let read = text(&nowhere, &from_bundle);
        let now = text(&daemon.socket, form);
        let ages = |text: &str| {
            let lines = text.lines().filter(|line| !line.contains(" ago"));
            timeless(&lines.collect::<Vec<_>>().join("\n"))
        };
        // The kernel log of this machine is not always readable.
        if !read.contains("kernel-log.txt") {
            assert_eq!(ages(&read), ages(&now));
        }
    }
    // An existing file is kept.
    let again = run(&daemon.socket, &["bundle", bundle]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"));
    text(&daemon.socket, &["bundle", bundle, "--force"]);
    // Cut short, it is still a report.
    let whole = std::fs::read(&file).expect("there");
    for parts in [4, 2] {
        std::fs::write(&file, &whole[..whole.len() / parts]).expect("written");
        let page = text(&nowhere, &["report", "--html", "-", "--from", bundle]);
        let shown: String = valid(&page).root_element().text().collect();
        assert!(shown.contains("This report is not complete"), "{shown}");
        assert!(text(&nowhere, &["report", "--from", bundle]).contains("cut short"));
    }
    std::fs::write(&file, "no bundle").expect("written");
    let refused = run(&nowhere, &["report", "--from", bundle]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no support bundle"));
    let json = run(&nowhere, &["report", "-o", "json"]);
    assert_eq!(json.status.code(), Some(2));
}

/// The files of a bundle, decompressed.
fn unpacked(file: &Path) -> Vec<(String, String)> {
    let file = std::fs::File::open(file).expect("there");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("entries");
    entries
        .map(|entry| {
            let mut entry = entry.expect("an entry");
            // Without the folder that all files are in.
            let path = entry.path().expect("a path").into_owned();
            let name: std::path::PathBuf = path.iter().skip(1).collect();
            let name = name.display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("readable");
            (name, String::from_utf8(bytes).expect("text"))
        })
        .collect()
}

/// Serial numbers and WWNs of a tree, as its files have them: without separators, in lower case.
fn secrets(tree: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(tree).expect("readable") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            secrets(&path, found);
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(content) = std::fs::read_to_string(&path) else {
            continue;
        };
        if ["serial", "wwid", "eui", "nguid"].contains(&name.as_str()) {
            found.push(content.clone());
        }
        for line in content.lines() {
            for key in [
                "ID_SERIAL_SHORT=",
                "ID_SCSI_SERIAL=",
                "ID_WWN_WITH_EXTENSION=",
                "\"serial_number\": ",
            ] {
                if let Some((_, value)) = line.split_once(key) {
                    found.push(value.trim_matches(['"', ',', ' ']).to_owned());
                }
            }
        }
    }
}

fn plain(text: &str) -> String {
    let text = text.chars().filter(char::is_ascii_alphanumeric);
    text.map(|c| c.to_ascii_lowercase()).collect()
}

#[test]
fn a_redacted_bundle_contains_no_serial_number_of_its_host() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
    let folder = tempfile::tempdir().expect("a folder");
    for host in ["two-dying-disks", "sas-12-bay", "nvme-laptop", "usb", "multipath"] {
        let daemon = recorded(host);
        let mut found = Vec::new();
        secrets(&hosts.join(host), &mut found);
        let mut secrets: Vec<String> = found
            .iter()
            .map(|secret| {
                let lower = secret.trim().to_ascii_lowercase();
                let prefixes = ["naa.", "eui.", "0x", "t10.ata", "nvme."];
                let bare = prefixes.iter().find_map(|it| lower.strip_prefix(it));
                plain(bare.unwrap_or(&lower))
            })
            // Zeros are no serial number, and are a part of many numbers.
            .filter(|secret| secret.len() >= 6 && secret.trim_matches('0').len() >= 4)
            .collect();
        secrets.sort();
        secrets.dedup();
        assert!(!secrets.is_empty(), "{host}");
        let (open, redacted) =
            (folder.path().join(format!("{host}-open")), folder.path().join(host));
        text(&daemon.socket, &["bundle", open.to_str().expect("a path")]);
        text(&daemon.socket, &["bundle", "--redact", redacted.to_str().expect("a path")]);
        let everything = |file: &Path| -> String {
            unpacked(file).iter().map(|(name, text)| plain(&format!("{name}{text}"))).collect()
        };
        let (open, hidden) = (everything(&open), everything(&redacted));
        let known: Vec<&String> = secrets.iter().filter(|it| open.contains(*it)).collect();
        assert!(!known.is_empty(), "{host}: the bundle itself has none of {secrets:?}");
        for secret in known {
            let at = hidden.find(secret);
            let around = at.map(|at| &hidden[at.saturating_sub(60)..(at + 60).min(hidden.len())]);
            assert_eq!(around, None, "{host}: {secret}");
        }
        // Ids still refer to each other: the report is the same but for the names.
        let nowhere = folder.path().join("no.sock");
        let page = text(
            &nowhere,
            &["report", "--html", "-", "--from", redacted.to_str().expect("a path")],
        );
        valid(&page);
        assert!(page.contains("replaced by placeholders"), "{host}");
    }
}

#[test]
fn a_bundle_has_all_answers_and_the_outputs_of_smartctl() {
    let daemon = recorded("two-dying-disks");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bundle.tar.gz");
    text(&daemon.socket, &["bundle", file.to_str().expect("a path")]);
    let files: BTreeMap<String, String> = unpacked(&file).into_iter().collect();
    let manifest: serde_json::Value = serde_json::from_str(&files["manifest.json"]).expect("JSON");
    let listed = manifest["files"].as_array().expect("a list").len();
    assert_eq!(listed + 1, files.len());
    let drives: serde_json::Value = serde_json::from_str(&files["drives.json"]).expect("JSON");
    assert_eq!(drives["drives"].as_array().map(Vec::len), Some(6));
    let output: serde_json::Value =
        serde_json::from_str(&files["smartctl/sda.json"]).expect("JSON");
    assert_eq!(output["serial_number"], "PHYF8421007W960CGN");
    assert_eq!(files.keys().filter(|name| name.starts_with("smartctl/")).count(), 6);
}

#[test]
fn large_nodes_have_readable_reports_of_bounded_size() {
    for (drives, volumes, limit) in [(64, 300, 1 << 20), (256, 500, 4 << 20)] {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = Plan { drives, volumes, hung: 0 };
        tree::write(folder.path(), plan).expect("written");
        let daemon = Daemon::start(folder.path());
        daemon.answer();
        let page = text(&daemon.socket, &["report", "--html", "-"]);
        let parsed = valid(&page);
        println!("{drives} drives, {volumes} volumes: {} bytes", page.len());
        assert!(page.len() < limit, "{drives} drives: {} bytes", page.len());
        let rows = Selector::parse("tr[id^=drive-]").expect("a selector");
        assert_eq!(parsed.select(&rows).count(), drives);
        let shown: String = parsed.root_element().text().collect();
        assert!(shown.contains("Not drawn: "), "{drives}");
        let nodes = Selector::parse("svg.map svg.node").expect("a selector");
        assert!(parsed.select(&nodes).count() < 700);
        let listed = json(&daemon.socket, &["drives", "-o", "json"]);
        let names = listed["drives"].as_array().expect("drives").iter();
        let names: Vec<&str> = names.filter_map(|drive| drive["name"].as_str()).collect();
        assert_eq!(names.len(), drives);
        for report in [text(&daemon.socket, &["report"]), daemon.on_terminal(40, "report")] {
            let lost = |name: &&&str| !report.contains(**name);
            assert_eq!(names.iter().find(lost), None, "{drives}");
        }
    }
}
