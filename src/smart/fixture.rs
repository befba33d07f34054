//! Drives for tests: invented models, one line a change.

use jiff::{SignedDuration, Timestamp};

use crate::report::{
    Ata, Attribute, Body, ErrorCounter, Identity, Nvme, Scsi, SelfTest, SelfTestOutcome, SelfTests,
    SmartReport, Statistic, WhenFailed,
};

/// A fixed moment and this many hours.
pub fn hour(hours: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(hours)
}

fn drive(protocol: &str, model: &str, body: Body) -> SmartReport {
    SmartReport {
        smartctl: [7, 4],
        identity: Identity {
            device: "/dev/sda".into(),
            protocol: protocol.into(),
            model: Some(model.into()),
            serial: Some("TEST0001".into()),
            firmware: Some("1.0".into()),
            ..Identity::default()
        },
        available: Some(true),
        enabled: Some(true),
        passed: Some(true),
        temperature: Some(35),
        body,
        ..SmartReport::default()
    }
}

/// A healthy rotating SATA drive whose model is in drivedb.
pub fn disk() -> SmartReport {
    let mut report = drive("ATA", "TESTDISK 2T", Body::Ata(Ata::default()));
    report.identity.rotation_rate = Some(7200);
    report.identity.in_database = Some(true);
    report
        .with(attribute(3, "Spin_Up_Time", 100, 20, "0").prefailure())
        .with(attribute(5, "Reallocated_Sector_Ct", 100, 10, "0").prefailure())
        .with(attribute(10, "Spin_Retry_Count", 100, 97, "0").prefailure())
        .with(attribute(187, "Reported_Uncorrect", 100, 0, "0"))
        .with(attribute(194, "Temperature_Celsius", 65, 0, "35 (Min/Max 20/41)"))
        .with(attribute(197, "Current_Pending_Sector", 100, 0, "0"))
        .with(attribute(198, "Offline_Uncorrectable", 100, 0, "0"))
        .with(attribute(199, "UDMA_CRC_Error_Count", 200, 0, "0"))
}

/// A healthy SATA SSD whose model is in drivedb.
pub fn ssd() -> SmartReport {
    let mut report = drive("ATA", "TESTFLASH 1T", Body::Ata(Ata::default()));
    report.identity.rotation_rate = Some(0);
    report.identity.in_database = Some(true);
    report
        .with(attribute(5, "Reallocated_Sector_Ct", 100, 10, "0").prefailure())
        .with(attribute(232, "Available_Reservd_Space", 100, 10, "0").prefailure())
        .with(attribute(233, "Media_Wearout_Indicator", 99, 0, "0"))
}

pub fn nvme() -> SmartReport {
    let log = Nvme {
        critical_warning: Some(0),
        available_spare: Some(100),
        available_spare_threshold: Some(10),
        percentage_used: Some(3),
        media_errors: Some(0),
        error_log_entries: Some(0),
        unsafe_shutdowns: Some(4),
        ..Nvme::default()
    };
    drive("NVMe", "TESTNVME 1T", Body::Nvme(log))
}

pub fn sas() -> SmartReport {
    let counter = || {
        Some(ErrorCounter {
            corrected: Some(12),
            uncorrected: Some(0),
            gigabytes: Some("1000.000".into()),
        })
    };
    let pages = Scsi {
        grown_defects: Some(0),
        read: counter(),
        write: counter(),
        verify: counter(),
        ..Scsi::default()
    };
    let mut report = drive("SCSI", "TESTSAS 4T", Body::Scsi(pages));
    report.identity.rotation_rate = Some(10_000);
    report
}

pub fn attribute(id: u8, name: &str, value: u8, threshold: u8, raw_text: &str) -> Attribute {
    Attribute {
        id,
        name: name.into(),
        value,
        worst: value,
        threshold: Some(threshold),
        when_failed: WhenFailed::Never,
        prefailure: false,
        raw: raw_text.split(' ').next().and_then(|raw| raw.parse().ok()).unwrap_or(0),
        raw_text: raw_text.into(),
    }
}

impl Attribute {
    pub fn prefailure(mut self) -> Self {
        self.prefailure = true;
        self
    }

    pub fn failed(mut self, when: WhenFailed) -> Self {
        self.when_failed = when;
        self
    }
}

impl SmartReport {
    /// Adds an attribute, or replaces the one with its number.
    pub fn with(mut self, attribute: Attribute) -> Self {
        let Body::Ata(ata) = &mut self.body else { panic!("no ATA drive") };
        ata.attributes.retain(|other| other.id != attribute.id);
        ata.attributes.push(attribute);
        self
    }

    /// Replaces the raw value of an existing attribute.
    pub fn raw(mut self, id: u8, raw_text: &str) -> Self {
        let Body::Ata(ata) = &mut self.body else { panic!("no ATA drive") };
        let attribute = ata
            .attributes
            .iter_mut()
            .find(|attribute| attribute.id == id)
            .expect("an attribute of this number");
        attribute.raw_text = raw_text.into();
        self
    }

    pub fn identity(mut self, change: impl FnOnce(&mut Identity)) -> Self {
        change(&mut self.identity);
        self
    }

    pub fn ata(mut self, change: impl FnOnce(&mut Ata)) -> Self {
        let Body::Ata(ata) = &mut self.body else { panic!("no ATA drive") };
        change(ata);
        self
    }

    pub fn nvme(mut self, change: impl FnOnce(&mut Nvme)) -> Self {
        let Body::Nvme(nvme) = &mut self.body else { panic!("no NVMe drive") };
        change(nvme);
        self
    }

    pub fn scsi(mut self, change: impl FnOnce(&mut Scsi)) -> Self {
        let Body::Scsi(scsi) = &mut self.body else { panic!("no SCSI drive") };
        change(scsi);
        self
    }

    pub fn celsius(mut self, now: i64, limit: Option<i64>) -> Self {
        (self.temperature, self.temperature_limit) = (Some(now), limit);
        self
    }

    /// Newest first.
    pub fn tests(mut self, log: &[SelfTest]) -> Self {
        self.self_tests = SelfTests { log: log.to_vec(), log_read: true, ..SelfTests::default() };
        self
    }
}

pub fn self_test(extended: bool, outcome: SelfTestOutcome) -> SelfTest {
    SelfTest {
        kind: if extended { "Extended offline" } else { "Short offline" }.into(),
        extended,
        outcome,
        text: match outcome {
            SelfTestOutcome::Passed => "Completed without error",
            SelfTestOutcome::Failed => "Completed: read failure",
            SelfTestOutcome::Running => "Self-test routine in progress",
            SelfTestOutcome::Other => "Aborted by host",
        }
        .into(),
        hours: Some(100),
        lba: (outcome == SelfTestOutcome::Failed).then_some(4711),
    }
}

pub fn statistic(page: u8, offset: u32, name: &str, value: i64) -> Statistic {
    Statistic { page, offset, name: name.into(), value, normalized: false }
}
