//! What holds for every report.

use proptest::prelude::*;

use crate::fixture::*;
use crate::history::SmartHistory;
use crate::policy::SmartPolicy;
use crate::report::{Attribute, Body, SmartReport, WhenFailed};
use crate::rules::{RuleHit, evaluate};
use diskvitals_finding::MAX_EVIDENCE;
use diskvitals_finding::severity::Severity;

fn worst(said: &[RuleHit]) -> Option<Severity> {
    said.iter().map(|said| said.severity).max()
}

fn worst_by_level(report: &SmartReport) -> Option<Severity> {
    worst(&evaluate(report, None, &SmartPolicy::default()))
}

fn names() -> impl Strategy<Value = String> {
    let known = [
        "Reallocated_Sector_Ct",
        "Current_Pending_Sector",
        "Offline_Uncorrectable",
        "Reported_Uncorrect",
        "End-to-End_Error",
        "Command_Timeout",
        "UDMA_CRC_Error_Count",
        "Wear_Leveling_Count",
        "Available_Reservd_Space",
        "Percent_Lifetime_Remain",
        "Airflow_Temperature_Cel",
        "Unknown_Attribute",
        "",
    ];
    prop_oneof![4 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}

prop_compose! {
    fn attributes()(
        id in any::<u8>(), name in names(), value in any::<u8>(), worst in any::<u8>(), threshold in proptest::option::of(any::<u8>()),
        when in 0_usize..4, prefailure in any::<bool>(), raw_text in prop_oneof!["[0-9]{1,20}( [0-9]{1,5}){0,2}", "\\PC{0,16}"],
    ) -> Attribute {
        let when_failed = [WhenFailed::Never, WhenFailed::Now, WhenFailed::Past, WhenFailed::Unknown][when];
        Attribute { id, name, value, worst, threshold, when_failed, prefailure, raw: 0, raw_text }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_attribute_panics_and_findings_are_ordered_and_bounded(
        attributes in proptest::collection::vec(attributes(), 0..40), solid in any::<bool>(), known in any::<bool>(), temperature in any::<Option<i64>>(),
    ) {
        let mut report = disk().ata(|ata| ata.attributes = attributes);
        report.identity.rotation_rate = Some(if solid { 0 } else { 7200 });
        report.identity.in_database = Some(known);
        report.temperature = temperature;
        let mut memory = SmartHistory::default();
        memory.record(&report, hour(0));
        let said = evaluate(&report, Some(&memory), &SmartPolicy::default());
        prop_assert!(said.is_sorted_by_key(|said| std::cmp::Reverse(said.severity)));
        for (row, one) in said.iter().enumerate() {
            prop_assert!(!one.message.is_empty() && !one.evidence.is_empty() && one.evidence.len() <= MAX_EVIDENCE);
            prop_assert!(said.iter().skip(row + 1).all(|other| other.reason != one.reason));
        }
    }

    #[test]
    fn a_worse_number_is_never_judged_milder(id in proptest::sample::select(vec![5_u8, 10, 187, 197, 198]), less in 0_u64..200_000, more in 0_u64..200_000) {
        let of = |count: u64| worst_by_level(&disk().raw(id, &count.to_string()));
        prop_assert!(of(less.saturating_add(more)) >= of(less));
    }

    #[test]
    fn one_more_warning_is_never_judged_milder(bits in any::<u8>(), more in 0_u8..8, spare in 0_u8..=100, lost in 0_u8..=100, used in any::<u8>()) {
        let of = |bits: u8, spare: u8, used: u8| worst_by_level(&nvme().nvme(|log| {
            (log.critical_warning, log.available_spare, log.percentage_used) = (Some(bits), Some(spare), Some(used));
        }));
        prop_assert!(of(bits | 1 << more, spare, used) >= of(bits, spare, used));
        prop_assert!(of(bits, spare.saturating_sub(lost), used) >= of(bits, spare, used));
        prop_assert!(of(bits, spare, used.saturating_add(lost)) >= of(bits, spare, used));
    }

    #[test]
    fn a_failed_verdict_is_never_judged_milder(count in 0_u64..2000) {
        let report = disk().raw(5, &count.to_string());
        let mut failed = report.clone();
        failed.passed = Some(false);
        prop_assert!(worst_by_level(&failed) >= worst_by_level(&report));
    }

    #[test]
    fn missing_values_raise_no_finding(exit_status in any::<u8>(), protocol in 0_usize..4) {
        let mut report = [disk(), nvme(), sas(), SmartReport::default()][protocol].clone();
        report.body = match report.body {
            Body::Ata(_) => Body::Ata(Default::default()),
            Body::Nvme(_) => Body::Nvme(Default::default()),
            Body::Scsi(_) => Body::Scsi(Default::default()),
            Body::None => Body::None,
        };
        // Bit 3 is the drive's verdict; the others are about the asking, or what would be in the
        // tables.
        (report.passed, report.temperature, report.exit_status) = (None, None, exit_status & !8);
        prop_assert_eq!(worst_by_level(&report), None);
    }
}
