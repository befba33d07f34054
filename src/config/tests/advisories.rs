//! Each row of the package's table with a drive that it is about, as smartctl prints it.

use crate::Config;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::severity::Severity::{self, Info, Suspect};
use diskvitals_smart::report::{Identity, SmartReport};
use diskvitals_smart::rules::{RuleHit, evaluate};

/// A drive of a row, another firmware of it that is not affected, and the begin of the message.
const DRIVES: [(&str, &str, &str, &str); 12] = [
    ("VO1920JFDGV", "HPD2", "HPD8", "At 32768 power-on hours (32668 hours left): the drive fails"),
    ("MO1600JVYPR", "HPD6", "HPD7", "At 40000 power-on hours (39900 hours left): the drive fails"),
    ("LT0200WM", "P405", "D417", "At 40000 power-on hours (39900 hours left): the drive fails"),
    ("C400-MTFDDAK128MAM", "070H", "0809", "After 12 hours without I/O: "),
    ("INTEL SSDSA2CW160G3", "4PC10302", "4PC10362", "After a power loss: "),
    ("INTEL SSDSC2KG480G8", "XCV10120", "XCV10132", "With requests of 4 MiB"),
    ("Samsung SSD 980 PRO 2TB", "3B2QGXA7", "5B2QGXA7", "In use: the drive may fail"),
    ("Samsung SSD 990 PRO 2TB", "0B2QJXD7", "1B2QJXD7", "In use: the drive's health values"),
    ("Samsung SSD 870 EVO 1TB", "SVT01B6Q", "SVT02B6Q", "In some batches"),
    ("Samsung SSD 840 EVO 250GB", "EXT0BB6Q", "EXT0DB6Q", "With data that was written months ago"),
    ("ST10000VN0004-1ZD101", "SC60", "SC61", "Behind some LSI adapters: "),
    (
        "Seagate FireCuda 510 SSD ZP500GM30001",
        "STOSC017",
        "STOSC018",
        "During an extended self-test",
    ),
];

fn notice(config: &Config, model: &str, firmware: &str, hours: Option<u64>) -> Option<RuleHit> {
    let identity = Identity {
        model: Some(model.to_owned()),
        firmware: Some(firmware.to_owned()),
        ..Identity::default()
    };
    let report = SmartReport { identity, power_on_hours: hours, ..SmartReport::default() };
    let hits = evaluate(&report, None, &config.policy().smart);
    hits.into_iter().find(|hit| hit.reason == Reason::FirmwareNotice)
}

#[test]
fn each_row_is_about_the_drive_of_its_source_and_not_about_repaired_firmware() {
    let config = Config::default();
    assert_eq!(config.policy().smart.advisories.len(), DRIVES.len(), "a row without a drive");
    for (model, firmware, repaired, begin) in DRIVES {
        let hit = notice(&config, model, firmware, Some(100)).expect(model);
        assert!(hit.message.starts_with(begin), "{}", hit.message);
        assert!(!hit.message.contains("; At") && hit.evidence.len() == 1, "one row: {hit:?}");
        assert_eq!(notice(&config, model, repaired, Some(100)), None, "{model} {repaired}");
    }
    assert_eq!(notice(&config, "VO1920JFDGV", "HDP2", None), None, "the prefix counts");
    assert_eq!(notice(&config, "INTEL SSDSC2KG480G8R", "XCV1DL63", None), None, "of Dell");
}

#[test]
fn hours_are_counted_down_and_the_last_three_months_are_suspect() {
    let of = |hours| notice(&Config::default(), "VO0480JFDGT", "HPD7", hours).expect("a row");
    let at = |hours| (of(Some(hours)).severity, of(Some(hours)).message);
    let begin = |left: &str| {
        format!(
            "At 32768 power-on hours ({left}): the drive fails, and its data is lost; HPD8 repairs it"
        )
    };
    assert_eq!(at(32768 - 2160), (Info, begin("2160 hours left")));
    assert_eq!(at(32768 - 2159), (Suspect, begin("2159 hours left")));
    assert_eq!(at(32767), (Suspect, begin("1 hour left")));
    assert_eq!(at(32768), (Suspect, begin("passed, 32768 now")));
    let unknown: (Severity, String) = (of(None).severity, of(None).message);
    assert_eq!(unknown, (Info, begin("the drive does not report its hours")));
    assert_eq!(of(Some(1)).evidence, of(Some(30_000)).evidence, "one piece of evidence");
}

const ROW: &str = "[[smart.advisory]]\nvendor = \"ACME\"\nmodels = [\"ACME *\"]\nfirmware = [\"1.0\"]\ncondition.when = \"In use\"\ntext = \"it fails\"\nsource = \"ACME 7\"\n";

#[test]
fn rows_of_the_users_files_count_besides_those_of_the_package() {
    let other = ROW.replace("ACME", "OTHER");
    let config = super::load_texts(&[Some(ROW), Some(&other)]).expect("good");
    for (model, source) in [
        ("ACME 9", "ACME 7: ACME ACME 9, firmware 1.0"),
        ("OTHER 9", "OTHER 7: OTHER OTHER 9, firmware 1.0"),
    ] {
        let hit = notice(&config, model, "1.0", None).expect(model);
        assert_eq!((hit.severity, hit.message.as_str()), (Info, "In use: it fails"));
        assert_eq!(hit.evidence, [source]);
    }
    assert!(notice(&config, "VO1920JFDGV", "HPD2", None).is_some());
}

#[test]
fn a_mistake_in_a_row_names_the_file_and_the_line_of_the_row() {
    let second = |from: &str, to: &str| {
        assert!(ROW.contains(from));
        super::load_texts(&[Some(&(ROW.to_owned() + &ROW.replace(from, to)))]).expect_err(to)
    };
    for (from, to, error) in [
        ("source", "sauce", "0.toml:14: unknown field `sauce`"),
        ("source = \"ACME 7\"\n", "", "0.toml:8: missing field `source`"),
        ("[\"1.0\"]", "[]", "0.toml:11: the list is empty"),
        ("[\"1.0\"]", "[\"<A\"]", "0.toml:11: `<A` does not end with a number"),
        ("[\"ACME *\"]", "[]", "0.toml:10: the list is empty"),
        (
            "condition.when = \"In use\"",
            "condition.hours = 5",
            "0.toml:12: unknown variant `hours`",
        ),
    ] {
        let refused = second(from, to);
        assert!(refused.starts_with(error), "{to}: {refused}");
    }
}
