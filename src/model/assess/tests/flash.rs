//! What an eMMC or a UFS device reports of its wear.

use crate::counters::{CounterDevice, CounterReading};
use crate::drive::{DriveKind, FlashHealth, Transport, UFS, UFS_LIFE_TIME, UFS_PRE_EOL};
use crate::fixture::*;
use crate::source_update::SourceUpdate;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::reason::Reason;

fn card(life_time: [u8; 2], pre_eol_info: u8) -> TestHost {
    let mut host = TestHost::default().disk("mmcblk0", "179:0", "A");
    let drive = &mut host.inventory.drives[0];
    (drive.kind, drive.transport) = (DriveKind::Emmc, Transport::Mmc);
    drive.flash = Some(FlashHealth { life_time, pre_eol_info });
    host.read_all(0);
    host
}

#[test]
fn wear_and_spare_blocks_are_judged_by_the_codes_of_the_standard() {
    let (worn, spare) = ("A WornOut Suspect Degraded", "A SpareLow Suspect Degraded");
    let cases: [([u8; 2], u8, &[&str]); 10] = [
        ([1, 1], 1, &[]),
        ([8, 1], 1, &[]),
        ([9, 1], 1, &[worn]),
        // The type with more wear counts; one may be unused.
        ([0, 9], 1, &[worn]),
        ([11, 11], 0, &[worn]),
        ([1, 1], 2, &[spare]),
        ([1, 1], 3, &[spare]),
        ([10, 2], 3, &[spare, worn]),
        // Not defined, and no codes of the standard.
        ([0, 0], 0, &[]),
        ([12, 255], 4, &[]),
    ];
    for (life_time, pre_eol_info, expected) in cases {
        assert_eq!(
            card(life_time, pre_eol_info).raised(1),
            expected,
            "{life_time:?} {pre_eol_info}"
        );
    }
    let raised = card([2, 11], 1).raised_for(Reason::WornOut, 1).unwrap();
    assert_eq!(
        raised.message,
        "drive A (mmcblk0): 100 % or more of the designed life is used, as of when the kernel initialized it"
    );
    let proof = &raised.evidence[0];
    assert_eq!(
        (proof.source.as_str(), proof.text.as_str()),
        ("/sys/block/mmcblk0/device/life_time", "0x02 0x0b")
    );
}

#[test]
fn wear_that_is_not_reported_any_more_clears_nothing() {
    let mut host = card([11, 1], 1);
    assert_eq!(host.raised(1).len(), 1);
    host.inventory.drives[0].flash = None;
    host.scan(2);
    host.raised(3);
    assert_eq!(host.active.len(), 1);
    host.inventory.drives[0].flash = Some(FlashHealth::default());
    host.scan(4);
    host.raised(5);
    assert_eq!(host.active.len(), 1, "not defined");
}

#[test]
fn a_ufs_device_is_judged_by_the_same_codes_as_an_emmc() {
    let judged = |life: [u64; 2], reserve: u64| {
        let mut host = TestHost::default().disk("sda", "8:0", "A");
        host.read_all(0);
        let reading = CounterReading {
            device: CounterDevice::Block("sda".into()),
            source: UFS.into(),
            file: "/sys/devices/platform/soc/1d84000.ufshc/health_descriptor".into(),
            values: [
                (UFS_LIFE_TIME[0], life[0]),
                (UFS_LIFE_TIME[1], life[1]),
                (UFS_PRE_EOL, reserve),
            ]
            .map(|(name, code)| (name.to_owned(), code))
            .into(),
            details: Default::default(),
        };
        host.apply(SourceUpdate::Counters(Observation::ok(at(1), vec![reading])), 1);
        host
    };
    let (worn, spare) = ("A WornOut Suspect Degraded", "A SpareLow Suspect Degraded");
    assert_eq!(judged([1, 2], 1).raised(2), [""; 0]);
    assert_eq!(judged([0, 0], 0).raised(2), [""; 0], "not defined");
    assert_eq!(judged([11, 2], 1).raised(2), [worn]);
    assert_eq!(judged([2, 2], 3).raised(2), [spare]);
    let raised = judged([0, 11], 1).raised_for(Reason::WornOut, 2).unwrap();
    assert_eq!(raised.message, "drive A (sda): 100 % or more of the designed life is used");
    assert_eq!(
        raised.evidence[0].source,
        "/sys/devices/platform/soc/1d84000.ufshc/health_descriptor/life_time_estimation_*"
    );
}
