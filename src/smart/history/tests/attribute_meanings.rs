//! What a value means, by its name for this model.

use crate::fixture::*;
use crate::history::{Metric, metric_values};
use crate::report::{Body, SmartReport};

fn value(report: &SmartReport, metric: Metric) -> Option<u64> {
    metric_values(report).get(&metric).copied()
}

#[test]
fn attributes_count_by_their_names() {
    for (id, name, metric) in [
        (5, "Reallocate_NAND_Blk_Cnt", Metric::Reallocated),
        (196, "Reallocated_Event_Count", Metric::ReallocationEvents),
        (197, "Pending_Sector_Count", Metric::Pending),
        (198, "Offline_Uncorrectable", Metric::OfflineUncorrectable),
        (187, "Uncorrectable_Error_Cnt", Metric::ReportedUncorrectable),
        (184, "End-to-End_Error_Count", Metric::EndToEndErrors),
        (10, "Spin_Retry_Count", Metric::SpinRetries),
        (199, "CRC_Error_Count", Metric::CrcErrors),
        (201, "Soft_Read_Error_Rate", Metric::SoftReadErrors),
    ] {
        assert_eq!(
            value(&disk().with(attribute(id, name, 100, 0, "7")), metric),
            Some(7),
            "{id} {name}"
        );
    }
}

#[test]
fn a_number_that_its_maker_uses_for_something_else_is_not_counted() {
    for (id, name, metric) in [
        (197, "Current_Pending_ECC_Cnt", Metric::Pending),
        (197, "Bogus_Current_Pend_Sect", Metric::Pending),
        (198, "Host_Reads_GiB", Metric::OfflineUncorrectable),
        (199, "Host_Writes_GiB", Metric::CrcErrors),
        (184, "Error_Correction_Count", Metric::EndToEndErrors),
        (184, "Factory_Bad_Block_Count", Metric::EndToEndErrors),
        (196, "Spare_Blocks", Metric::ReallocationEvents),
        (201, "Power_Loss_Cap_Test", Metric::SoftReadErrors),
    ] {
        assert_eq!(
            value(&ssd().with(attribute(id, name, 100, 0, "7")), metric),
            None,
            "{id} {name}"
        );
    }
}

#[test]
fn a_number_without_a_name_counts_on_rotating_drives_where_all_makers_agree() {
    assert_eq!(
        value(&disk().with(attribute(197, "Unknown_Attribute", 100, 0, "7")), Metric::Pending),
        Some(7)
    );
    assert_eq!(
        value(&ssd().with(attribute(197, "Unknown_SSD_Attribute", 100, 0, "7")), Metric::Pending),
        None
    );
    assert_eq!(
        value(
            &disk().with(attribute(184, "Unknown_Attribute", 100, 0, "7")),
            Metric::EndToEndErrors
        ),
        None
    );
}

#[test]
fn default_names_prove_little_of_an_ssd_that_the_database_does_not_know() {
    let unknown = ssd().identity(|identity| identity.in_database = Some(false));
    let told = unknown
        .with(attribute(5, "Reallocated_Sector_Ct", 100, 0, "7"))
        .with(attribute(187, "Reported_Uncorrect", 100, 0, "7"))
        .with(attribute(198, "Offline_Uncorrectable", 100, 0, "7"))
        .with(attribute(199, "UDMA_CRC_Error_Count", 100, 0, "7"))
        .with(attribute(233, "Media_Wearout_Indicator", 1, 0, "7"));
    let values = metric_values(&told);
    assert_eq!(
        (values.get(&Metric::Reallocated), values.get(&Metric::ReportedUncorrectable)),
        (Some(&7), Some(&7))
    );
    for metric in
        [Metric::OfflineUncorrectable, Metric::CrcErrors, Metric::WearPercent, Metric::SparePercent]
    {
        assert_eq!(values.get(&metric), None, "{metric:?}");
    }
}

#[test]
fn an_old_drive_without_a_rotation_rate_spins_if_it_spins_up() {
    let old = disk()
        .identity(|identity| (identity.rotation_rate, identity.in_database) = (None, Some(false)));
    assert_eq!(value(&old.raw(197, "269"), Metric::Pending), Some(269));
}

#[test]
fn packed_raw_values_are_read_as_smartctl_shows_them() {
    let of = |text: &str| value(&disk().raw(5, text), Metric::Reallocated);
    assert_eq!(
        (of("387"), of("12 (0 3)"), of("2111 (12437 0)")),
        (Some(387), Some(12), Some(2111))
    );
    // Something that is no number; more than any drive has.
    assert_eq!(
        (of("0x00000f"), of("17h+20m"), of("2/0"), of("73014444032"), of("")),
        (None, None, None, None, None)
    );
}

#[test]
fn a_plain_number_counts_as_it_stands_so_that_more_is_never_less() {
    let of =
        |count: u64| value(&disk().raw(187, &count.to_string()), Metric::ReportedUncorrectable);
    for count in [0, 255, 65_535, 65_536, 131_072, 983_040, 4_294_967_294] {
        assert_eq!(of(count), Some(count));
    }
    assert_eq!(of(4_294_967_295), None, "all bits set");
    assert_eq!(of(4_294_967_296), None);
}

#[test]
fn command_time_outs_of_three_words_are_the_last() {
    let of = |text: &str| {
        value(
            &disk().with(attribute(188, "Command_Timeout", 100, 0, text)),
            Metric::CommandTimeouts,
        )
    };
    assert_eq!((of("0 0 5"), of("12 12 12"), of("16")), (Some(5), Some(12), Some(16)));
    // The same, with a database that does not take them apart.
    assert_eq!((of("17180131332"), of("4295098370")), (Some(4), Some(2)));
}

#[test]
fn rates_of_raw_reads_and_seeks_are_never_counters() {
    let report = disk()
        .with(attribute(1, "Raw_Read_Error_Rate", 83, 44, "205990160"))
        .with(attribute(7, "Seek_Error_Rate", 79, 45, "387418648463"));
    assert_eq!(metric_values(&report), metric_values(&disk()));
}

#[test]
fn wear_falls_from_a_hundred_or_rises_to_it_by_its_name() {
    for (name, value_now, raw, used) in [
        ("Wear_Leveling_Count", 54, "3394", Some(46)),
        ("Media_Wearout_Indicator", 15, "0", Some(85)),
        ("SSD_Life_Left", 10, "73014444032", Some(90)),
        ("SSD_Life_Left", 100, "89", Some(11)),
        ("Remaining_Lifetime_Perc", 100, "96", Some(4)),
        ("Percent_Lifetime_Remain", 83, "17", Some(17)),
        ("Percent_Lifetime_Remain", 100, "0", Some(0)),
        ("Percent_Lifetime_Remain", 0, "0", Some(100)),
        ("Percent_Lifetime_Remain", 244, "112", Some(112)),
        ("Percent_Lifetime_Remain", 244, "7", None),
        ("Perc_Rated_Life_Used", 56, "44", Some(44)),
        ("Perc_Rated_Life_Used", 44, "44", Some(44)),
        ("DriveLife_Used%", 100, "1", Some(1)),
        ("Wear_Leveling_Count", 195, "0", None),
        ("Wear_Range_Delta", 0, "2", None),
        ("Workld_Media_Wear_Indic", 100, "65535", None),
    ] {
        let report =
            ssd().ata(|ata| ata.attributes.clear()).with(attribute(231, name, value_now, 0, raw));
        assert_eq!(value(&report, Metric::WearPercent), used, "{name} {value_now} {raw}");
    }
}

#[test]
fn the_reserve_of_an_ssd_is_its_normalised_value() {
    let reserve = |name: &str, left: u8| {
        value(&ssd().with(attribute(232, name, left, 10, "0")), Metric::SparePercent)
    };
    assert_eq!(
        (reserve("Available_Reservd_Space", 99), reserve("Perc_Avail_Resrvd_Space", 7)),
        (Some(99), Some(7))
    );
    assert_eq!(
        (reserve("Read_Fail_Count", 1), reserve("Available_Reservd_Space", 200)),
        (None, None)
    );
}

#[test]
fn device_statistics_replace_missing_attributes_and_report_endurance() {
    let statistics = [
        statistic(3, 0x20, "Number of Reallocated Logical Sectors", 8),
        statistic(4, 0x08, "Number of Reported Uncorrectable Errors", 2),
        statistic(6, 0x18, "Number of Interface CRC Errors", 3),
        statistic(7, 0x08, "Percentage Used Endurance Indicator", 104),
    ];
    let bare =
        ssd().ata(|ata| (ata.attributes, ata.statistics) = (Vec::new(), statistics.to_vec()));
    let told = metric_values(&bare);
    let of = |metric: Metric| told.get(&metric).copied();
    assert_eq!((of(Metric::Reallocated), of(Metric::ReportedUncorrectable)), (Some(8), Some(2)));
    assert_eq!((of(Metric::CrcErrors), of(Metric::WearPercent)), (Some(3), Some(104)));
    let both = disk().raw(5, "4").ata(|ata| ata.statistics = statistics.to_vec());
    assert_eq!(value(&both, Metric::Reallocated), Some(4));
}

#[test]
fn smartctls_own_wear_and_spare_values_are_used_as_a_fallback() {
    let unknown = || ssd().identity(|identity| identity.in_database = Some(false));
    let told = |report: SmartReport| {
        let told = metric_values(
            &report.ata(|ata| (ata.endurance_used, ata.spare_available) = (Some(99), Some(3))),
        );
        (told.get(&Metric::WearPercent).copied(), told.get(&Metric::SparePercent).copied())
    };
    assert_eq!(told(unknown()), (Some(99), Some(3)));
    assert_eq!(told(ssd()), (Some(1), Some(100)), "what drivedb's names tell is what they tell");
    assert_eq!(
        told(unknown().ata(|ata| ata.statistics = vec![statistic(7, 8, "Percentage Used", 40)])),
        (Some(40), Some(3))
    );
    assert_eq!(told(disk()), (None, None));
}

#[test]
fn the_pending_defects_log_counts_beside_the_attribute() {
    assert_eq!(
        value(&disk().raw(197, "1").ata(|ata| ata.pending_defects = Some(9)), Metric::Pending),
        Some(9)
    );
}

#[test]
fn nvme_and_scsi_values_are_read() {
    let nvme = metric_values(
        &nvme().nvme(|log| (log.media_errors, log.percentage_used) = (Some(7), Some(121))),
    );
    assert_eq!(
        (nvme[&Metric::MediaErrors], nvme[&Metric::WearPercent], nvme[&Metric::SparePercent]),
        (7, 121, 100)
    );
    let sas = metric_values(&sas().scsi(|pages| {
        pages.grown_defects = Some(260);
        pages.read.as_mut().unwrap().uncorrected = Some(1);
        pages.write.as_mut().unwrap().uncorrected = Some(535);
        pages.verify = None;
    }));
    assert_eq!((sas[&Metric::GrownDefects], sas[&Metric::UncorrectedErrors]), (260, 536));
}

#[test]
fn a_missing_value_is_absent_and_not_zero() {
    let silent = SmartReport { body: Body::None, ..SmartReport::default() };
    assert!(metric_values(&silent).is_empty());
    let sas = sas().scsi(|pages| {
        (pages.read, pages.write, pages.verify, pages.grown_defects) = (None, None, None, None)
    });
    assert_eq!(
        (value(&sas, Metric::UncorrectedErrors), value(&sas, Metric::GrownDefects)),
        (None, None)
    );
    assert_eq!(value(&disk().celsius(0, None), Metric::Temperature), None);
}
