//! One cause, one finding; and what a warning of the drive comes from.

use crate::fixture::*;
use crate::policy::SmartPolicy;
use crate::report::{Attribute, SmartReport, WhenFailed};
use crate::rules::evaluate;
use crate::rules::tests::hits;
use diskvitals_finding::reason::Reason::*;
use diskvitals_finding::severity::Severity::{Bad, Suspect};

fn at_threshold(id: u8, name: &str, value: u8, threshold: u8, raw: &str) -> Attribute {
    attribute(id, name, value, threshold, raw).prefailure().failed(WhenFailed::Now)
}

fn failed(mut report: SmartReport) -> SmartReport {
    report.passed = Some(false);
    report
}

fn message(report: &SmartReport) -> String {
    let hits = evaluate(report, None, &SmartPolicy::default());
    hits.first().map(|hit| hit.message.clone()).unwrap_or_default()
}

#[test]
fn one_attribute_makes_one_finding() {
    let cases = [
        (ssd(), at_threshold(232, "Perc_Avail_Resrvd_Space", 0, 5, "0"), "reserve"),
        (ssd(), at_threshold(231, "SSD_Life_Left", 10, 11, "0"), "90 %"),
        (disk(), at_threshold(5, "Reallocated_Sector_Ct", 1, 36, "2040"), "2040"),
        (disk(), at_threshold(10, "Spin_Retry_Count", 80, 97, "12"), "12"),
        (disk(), at_threshold(184, "End-to-End_Error", 90, 97, "10"), "10"),
        (ssd(), at_threshold(170, "Reserved_Block_Pct", 3, 10, "0"), "Reserved_Block_Pct"),
    ];
    for (drive, attribute, part) in cases {
        let name = attribute.name.clone();
        let report = drive.with(attribute);
        let of_attribute = hits(&report);
        assert_eq!(of_attribute.len(), 1, "{name}: {of_attribute:?}");
        assert_eq!(of_attribute[0].1, Bad);
        let report = failed(report);
        assert_eq!(hits(&report), [(SmartFailing, Bad)], "{name}");
        let message = message(&report);
        assert!(message.contains(&name), "{message}");
        if part != "reserve" {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn another_attribute_is_another_finding() {
    let report = disk().with(at_threshold(5, "Reallocated_Sector_Ct", 1, 36, "2040")).raw(197, "8");
    assert_eq!(hits(&failed(report)), [(SmartFailing, Bad), (PendingSectors, Suspect)]);
    // A drive that says no more than its verdict.
    let silent = failed(disk().raw(5, "2040"));
    assert_eq!(hits(&silent), [(SmartFailing, Bad), (ReallocatedSectors, Bad)]);
}

#[test]
fn a_critical_warning_says_what_explains_it() {
    let warned = |bits: u8, used: u8, spare: u8, errors: u64| {
        let report = nvme().nvme(|log| {
            (log.critical_warning, log.percentage_used) = (Some(bits), Some(used));
            (log.available_spare, log.media_errors) = (Some(spare), Some(errors));
        });
        message(&failed(report))
    };
    let worn = warned(4, 100, 100, 0);
    assert!(
        worn.contains("degraded: it is worn out (100 % of its designed life is used)"),
        "{worn}"
    );
    assert!(worn.contains("it counts no media errors"), "{worn}");
    assert!(warned(8, 105, 99, 0).contains("read-only: it is worn out (105 %"));
    let spare = warned(4, 20, 3, 0);
    assert!(spare.contains("degraded: its spare blocks are used up (3 % left)"), "{spare}");
    let errors = warned(4, 20, 100, 7);
    assert!(errors.contains("degraded: 7 media errors counted"), "{errors}");
    assert!(warned(4, 20, 100, 0).contains("nothing that it reports explains it: 20 %"));
    let bare = nvme()
        .nvme(|log| *log = crate::report::Nvme { critical_warning: Some(4), ..Default::default() });
    assert_eq!(message(&bare), "The drive says that its reliability is degraded");
}

#[test]
fn wear_counts_in_the_direction_that_the_database_or_other_fields_show() {
    let with = |attributes: Vec<Attribute>| {
        let mut report = ssd();
        report = report.ata(|ata| ata.attributes.retain(|attribute| attribute.id != 233));
        attributes.into_iter().fold(report, SmartReport::with)
    };
    let wear = |value| attribute(177, "Wear_Leveling_Count", value, 0, "0");
    let media = |id, value, raw: &str| attribute(id, "Media_Wearout_Indicator", value, 0, raw);
    // By the number: new drives of WD, in both forms of the database, and a worn one.
    assert_eq!(hits(&with(vec![media(230, 1, "0x001e0014001e")])), []);
    assert_eq!(hits(&with(vec![media(230, 2, "2 1 2")])), []);
    assert_eq!(hits(&with(vec![media(230, 93, "0x2454")])), [(WornOut, Suspect)]);
    assert_eq!(hits(&with(vec![media(233, 2, "0")])), [(WornOut, Suspect)]);
    // By another field: the standard's statistic, an attribute whose name has a direction, or too
    // few erasures of a block.
    let percent_used = |used| statistic(7, 8, "Percentage Used Endurance Indicator", used);
    let both =
        |value, used| with(vec![wear(value)]).ata(|ata| ata.statistics = vec![percent_used(used)]);
    assert_eq!(hits(&both(4, 4)), []);
    assert_eq!(hits(&both(4, 96)), [(WornOut, Suspect)]);
    assert_eq!(hits(&both(96, 4)), []);
    assert_eq!(hits(&with(vec![wear(3), attribute(231, "SSD_Life_Left", 97, 0, "97")])), []);
    let erased = |count: &str| {
        with(vec![media(233, 2, "0"), attribute(173, "Average_Erase_Count", 100, 0, count)])
    };
    assert_eq!(hits(&erased("4")), []);
    assert_eq!(hits(&erased("2900")), [(WornOut, Suspect)]);
}

#[test]
fn an_attribute_that_has_failed_is_named_with_its_value_and_threshold() {
    for (value, text) in [
        (
            1,
            "attribute 10 Spin_Retry_Count has failed: value 1 is below the manufacturer's threshold 36 (imminent failure)",
        ),
        (
            36,
            "attribute 10 Spin_Retry_Count has failed: value 36 is at the manufacturer's threshold 36 (imminent failure)",
        ),
    ] {
        let report = disk().with(at_threshold(10, "Spin_Retry_Count", value, 36, "9").prefailure());
        let message = message(&report);
        assert!(message.contains(text), "{message}");
    }
}
