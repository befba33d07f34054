//! A fake smartctl (`smartctl`, the script beside this file) and its answers: records in the format
//! of smartctl 7.4, for drives that do not exist, generated from a few numbers.
//!
//! In: the state of a drive. Out: a program for `[smart] command`, and a log of its calls. The
//! formats are those of smartctl's JSON (ataprint.cpp, nvmeprint.cpp, scsiprint.cpp); models and
//! serial numbers are invented, or those of the recorded tree (`tree`). Shared by tests and
//! `benches/`.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// An ATA disk. Numbers are raw values.
#[derive(Clone, Debug)]
pub struct Ata {
    pub model: String,
    pub serial: String,
    /// The 36 low bits of `naa.5000c50…`.
    pub wwn: u64,
    pub hours: u64,
    pub temperature: i64,
    pub passed: bool,
    pub reallocated: u64,
    pub pending: u64,
    pub uncorrectable: u64,
    pub reported: u64,
    pub crc: u64,
    /// The newest test is first.
    pub self_tests: Vec<SelfTest>,
    /// The remaining percentage of a running test.
    pub running: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct SelfTest {
    pub extended: bool,
    pub passed: bool,
    pub hours: u64,
    pub lba: Option<u64>,
}

impl Ata {
    pub fn new(serial: &str, wwn: u64) -> Ata {
        Ata {
            model: "WDC WD40EFRX-68N".into(),
            serial: serial.into(),
            wwn,
            hours: 20_000,
            temperature: 31,
            passed: true,
            reallocated: 0,
            pending: 0,
            uncorrectable: 0,
            reported: 0,
            crc: 0,
            self_tests: Vec::new(),
            running: None,
        }
    }

    /// The response with its exit status (smartctl(8)): bit 3 the drive fails, bit 4 an attribute
    /// indicates failure, bit 7 a self-test has failed.
    pub fn response(&self) -> SmartctlResponse {
        let outdated = self
            .self_tests
            .iter()
            .take_while(|test| !(test.extended && test.passed))
            .all(|test| test.passed);
        let status = if self.passed { 0 } else { 0x18 } | if outdated { 0 } else { 0x80 };
        let health = if self.reallocated > 1900 { 100 } else { 200 - self.reallocated / 19 };
        let mut body = start("sat", "ATA", status);
        merge(
            &mut body,
            json!({
                "model_name": self.model, "serial_number": self.serial, "wwn": {"naa": 5, "oui": 3152, "id": self.wwn}, "firmware_version": "0A82",
                "user_capacity": {"blocks": 7_814_037_168_u64, "bytes": 4_000_787_030_016_u64}, "logical_block_size": 512, "physical_block_size": 4096,
                "rotation_rate": 5400, "in_smartctl_database": true, "model_family": "Recorded Red", "trim": {"supported": false},
                "smart_support": {"available": true, "enabled": true}, "smart_status": {"passed": self.passed},
                "ata_smart_data": {
                    "self_test": {"status": self.state(), "polling_minutes": {"short": 2, "extended": 512}},
                    "capabilities": {"values": [123, 3], "self_tests_supported": true, "error_logging_supported": true, "gp_logging_supported": true}
                },
                "ata_smart_attributes": {"revision": 16, "table": [
                    attribute(1, "Raw_Read_Error_Rate", true, (200, 51), self.pending),
                    attribute(3, "Spin_Up_Time", true, (180, 21), 7975),
                    attribute(4, "Start_Stop_Count", false, (100, 0), 61),
                    attribute(5, "Reallocated_Sector_Ct", true, (if self.passed { health } else { 100 }, 140), self.reallocated),
                    attribute(7, "Seek_Error_Rate", false, (200, 0), 0),
                    attribute(9, "Power_On_Hours", false, (73, 0), self.hours),
                    attribute(10, "Spin_Retry_Count", false, (100, 0), 0),
                    attribute(12, "Power_Cycle_Count", false, (100, 0), 60),
                    attribute(187, "Reported_Uncorrect", false, (100_u64.saturating_sub(self.reported).max(1), 0), self.reported),
                    attribute(194, "Temperature_Celsius", false, (119, 0), u64::try_from(self.temperature).unwrap_or(0)),
                    attribute(196, "Reallocated_Event_Count", false, (200, 0), self.reallocated),
                    attribute(197, "Current_Pending_Sector", false, (200, 0), self.pending),
                    attribute(198, "Offline_Uncorrectable", false, (200, 0), self.uncorrectable),
                    attribute(199, "UDMA_CRC_Error_Count", false, (200, 0), self.crc)
                ]},
                "power_on_time": {"hours": self.hours}, "power_cycle_count": 60, "temperature": {"current": self.temperature},
                "ata_smart_error_log": {"extended": {"revision": 1, "sectors": 6, "count": 0}},
                "ata_smart_self_test_log": {"extended": {"revision": 1, "sectors": 1, "count": self.self_tests.len(),
                    "error_count_total": self.self_tests.iter().filter(|test| !test.passed).count(), "error_count_outdated": 0,
                    "table": self.self_tests.iter().map(entry).collect::<Vec<_>>()}}
            }),
        );
        SmartctlResponse { status, body }
    }

    fn state(&self) -> Value {
        match self.running {
            Some(percent) => {
                json!({"value": 0xf0 + percent / 10, "string": format!("in progress, {percent}% remaining"), "remaining_percent": percent})
            }
            None => json!({"value": 0, "string": "completed without error", "passed": true}),
        }
    }
}

fn attribute(
    id: u8,
    name: &str,
    prefailure: bool,
    (value, threshold): (u64, u64),
    raw: u64,
) -> Value {
    json!({
        "id": id, "name": name, "value": value, "worst": value, "thresh": threshold, "when_failed": if value <= threshold { "now" } else { "" },
        "flags": {"value": if prefailure { 51 } else { 50 }, "string": if prefailure { "PO--CK " } else { "-O--CK " }, "prefailure": prefailure,
            "updated_online": true, "performance": false, "error_rate": false, "event_count": true, "auto_keep": true},
        "raw": {"value": raw, "string": raw.to_string()}
    })
}

fn entry(test: &SelfTest) -> Value {
    let kind = if test.extended {
        json!({"value": 2, "string": "Extended offline"})
    } else {
        json!({"value": 1, "string": "Short offline"})
    };
    let status = if test.passed {
        json!({"value": 0, "string": "Completed without error", "passed": true})
    } else {
        json!({"value": 121, "string": "Completed: read failure", "remaining_percent": 90, "passed": false})
    };
    let mut entry = json!({"type": kind, "status": status, "lifetime_hours": test.hours});
    if let Some(lba) = test.lba {
        merge(&mut entry, json!({"lba": lba}));
    }
    entry
}

/// An NVMe controller.
#[derive(Clone, Debug)]
pub struct Nvme {
    pub model: String,
    pub serial: String,
    pub critical_warning: u8,
    pub temperature: i64,
    pub spare: u8,
    pub spare_threshold: u8,
    pub used: u8,
    pub media_errors: u64,
    pub hours: u64,
}

impl Nvme {
    pub fn new(serial: &str) -> Nvme {
        Nvme {
            model: "SAMSUNG MZQL23T8HCLS-00A07".into(),
            serial: serial.into(),
            critical_warning: 0,
            temperature: 38,
            spare: 100,
            spare_threshold: 10,
            used: 3,
            media_errors: 0,
            hours: 9_000,
        }
    }

    pub fn response(&self) -> SmartctlResponse {
        let status = if self.critical_warning == 0 { 0 } else { 8 };
        let mut body = start("nvme", "NVMe", status);
        merge(
            &mut body,
            json!({
                "model_name": self.model, "serial_number": self.serial, "firmware_version": "GDC5902Q",
                "nvme_pci_vendor": {"id": 0x1bde, "subsystem_id": 0x1bde}, "nvme_ieee_oui_identifier": 9528, "nvme_controller_id": 6,
                "nvme_version": {"string": "1.4", "value": 66560}, "nvme_number_of_namespaces": 32,
                "nvme_total_capacity": 3_840_755_982_336_u64, "nvme_unallocated_capacity": 0,
                "user_capacity": {"blocks": 7_501_476_528_u64, "bytes": 3_840_755_982_336_u64}, "logical_block_size": 512,
                "smart_support": {"available": true, "enabled": true},
                "smart_status": {"passed": self.critical_warning == 0, "nvme": {"value": self.critical_warning}},
                "nvme_smart_health_information_log": {
                    "critical_warning": self.critical_warning, "temperature": self.temperature, "available_spare": self.spare,
                    "available_spare_threshold": self.spare_threshold, "percentage_used": self.used, "data_units_read": 61_223_311,
                    "data_units_written": 70_100_204, "host_reads": 700_123_456, "host_writes": 812_345_678, "controller_busy_time": 4100,
                    "power_cycles": 33, "power_on_hours": self.hours, "unsafe_shutdowns": 12, "media_errors": self.media_errors,
                    "num_err_log_entries": 4, "warning_temp_time": 0, "critical_comp_time": 0, "temperature_sensors": [self.temperature]
                },
                "temperature": {"current": self.temperature}, "power_cycle_count": 33, "power_on_time": {"hours": self.hours},
                "nvme_error_information_log": {"size": 64, "read": 16, "unread": 0},
                "nvme_self_test_log": {"current_self_test_operation": {"value": 0, "string": "No self-test in progress"}}
            }),
        );
        SmartctlResponse { status, body }
    }
}

/// A SCSI disk.
#[derive(Clone, Debug)]
pub struct Scsi {
    pub vendor: String,
    pub product: String,
    pub serial: String,
    /// All 64 bits of its NAA.
    pub wwn: u64,
    pub temperature: i64,
    pub hours: u64,
    pub grown_defects: u64,
    /// The number of uncorrected read errors.
    pub uncorrected: u64,
    /// asc and ascq of an informational exception; 5dh is a predicted failure.
    pub exception: Option<(u8, u8)>,
}

impl Scsi {
    pub fn new(serial: &str, wwn: u64) -> Scsi {
        Scsi {
            vendor: "SEAGATE".into(),
            product: "ST4000NM0295".into(),
            serial: serial.into(),
            wwn,
            temperature: 33,
            hours: 15_000,
            grown_defects: 0,
            uncorrected: 0,
            exception: None,
        }
    }

    pub fn response(&self) -> SmartctlResponse {
        let status = if self.exception.is_some() { 8 } else { 0 };
        let health = match self.exception {
            None => json!({"passed": true}),
            Some((asc, ascq)) => {
                json!({"passed": false, "scsi": {"asc": asc, "ascq": ascq, "ie_string": "FAILURE PREDICTION THRESHOLD EXCEEDED"}})
            }
        };
        let row = |uncorrected: u64| {
            json!({"errors_corrected_by_eccfast": 120, "errors_corrected_by_eccdelayed": 4, "errors_corrected_by_rereads_rewrites": 0,
                "total_errors_corrected": 124, "correction_algorithm_invocations": 124, "gigabytes_processed": "91235.838",
                "total_uncorrected_errors": uncorrected})
        };
        let mut body = start("scsi", "SCSI", status);
        merge(
            &mut body,
            json!({
                "scsi_vendor": self.vendor, "scsi_product": self.product, "scsi_model_name": format!("{} {}", self.vendor, self.product),
                "scsi_revision": "DT31", "scsi_version": "SPC-5", "user_capacity": {"blocks": 7_814_037_168_u64, "bytes": 4_000_787_030_016_u64},
                "logical_block_size": 512, "physical_block_size": 4096, "rotation_rate": 7200,
                "logical_unit_id": format!("0x{:016x}", self.wwn), "serial_number": self.serial,
                "device_type": {"scsi_terminology": "Peripheral Device Type [PDT]", "scsi_value": 0, "name": "disk"},
                "scsi_transport_protocol": {"name": "SAS (SPL-4)", "value": 6}, "smart_support": {"available": true, "enabled": true},
                "temperature_warning": {"enabled": true}, "smart_status": health,
                "temperature": {"current": self.temperature, "drive_trip": 60}, "power_on_time": {"hours": self.hours, "minutes": 29},
                "scsi_grown_defect_list": self.grown_defects, "scsi_pending_defects": {"count": 0},
                "scsi_error_counter_log": {"read": row(self.uncorrected), "write": row(0)},
                "scsi_self_test_0": {"code": {"value": 1, "string": "Background short"}, "result": {"value": 0, "string": "Completed"},
                    "power_on_time": {"hours": self.hours - 100, "aka": "accumulated_power_on_hours"}}
            }),
        );
        SmartctlResponse { status, body }
    }
}

/// The output of smartctl and its exit status.
#[derive(Clone, Debug)]
pub struct SmartctlResponse {
    pub status: u8,
    pub body: Value,
}

/// smartctl's output for a device that responds without SMART data.
pub fn without_smart(vendor: &str, product: &str, serial: &str) -> SmartctlResponse {
    let mut body = start("scsi", "SCSI", 4);
    merge(
        &mut body,
        json!({"scsi_vendor": vendor, "scsi_product": product, "scsi_model_name": format!("{vendor} {product}"), "scsi_revision": "4.30",
            "serial_number": serial, "device_type": {"scsi_terminology": "Peripheral Device Type [PDT]", "scsi_value": 0, "name": "disk"},
            "smart_support": {"available": false}}),
    );
    SmartctlResponse { status: 4, body }
}

/// smartctl's text after a drive has accepted or refused a self-test, as with `--json=o`.
pub fn self_test_response(taken: bool) -> SmartctlResponse {
    let status = if taken { 0 } else { 4 };
    let mut body = start("sat", "ATA", status);
    let lines = if taken {
        [
            "Drive command \"Execute SMART Short self-test routine immediately in off-line mode\" successful.",
            "Testing has begun.",
        ]
    } else {
        [
            "Can't start self-test without aborting current test (40% remaining),",
            "add '-t force' option to override, or run 'smartctl -X' to abort test.",
        ]
    };
    let mut output =
        vec!["smartctl 7.4 2023-08-01 r5530 [x86_64-linux-6.12.0-recorded] (recorded)", ""];
    output.push("=== START OF OFFLINE IMMEDIATE AND SELF-TEST SECTION ===");
    output.extend(lines);
    merge(&mut body["smartctl"], json!({"output": output}));
    SmartctlResponse { status, body }
}

fn start(device_type: &str, protocol: &str, status: u8) -> Value {
    json!({
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 4], "pre_release": false, "svn_revision": "5530", "platform_info": "x86_64-linux-6.12.0-recorded",
            "build_info": "(recorded)", "argv": ["smartctl", "-j", "-x"], "drive_database_version": {"string": "7.3/5528"}, "exit_status": status},
        "local_time": {"time_t": 1_795_165_266, "asctime": "Fri Nov 20 09:01:06 2026 UTC"},
        "device": {"name": "", "info_name": "", "type": device_type, "protocol": protocol}
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

/// The program and its folder with the configured answers.
#[derive(Debug)]
pub struct Smartctl {
    dir: PathBuf,
}

impl Smartctl {
    /// Creates the program in `dir`, which is created.
    pub fn new(dir: &Path) -> io::Result<Smartctl> {
        std::fs::create_dir_all(dir)?;
        let dir = dir.canonicalize()?;
        // The file is moved into place: a program that is open for writing cannot be executed, and
        // another thread's child may have inherited the descriptor for a moment.
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/smartctl");
        let new = dir.join("smartctl.new");
        std::fs::write(&new, std::fs::read(script)?)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755))?;
        std::fs::rename(&new, dir.join("smartctl"))?;
        Ok(Smartctl { dir })
    }

    pub fn program(&self) -> PathBuf {
        self.dir.join("smartctl")
    }

    /// `device` is smartctl's name, with the type if one is needed: `/dev/sda`,
    /// `/dev/bus/0.megaraid,3`.
    pub fn set_response(&self, device: &str, answer: &SmartctlResponse) -> io::Result<()> {
        let (name, kind) = device.split_once('.').unwrap_or((device, ""));
        let mut body = answer.body.clone();
        merge(&mut body["device"], json!({"name": name, "info_name": name}));
        if !kind.is_empty() {
            merge(
                &mut body["device"],
                json!({"type": kind, "info_name": format!("{name} [{kind}]")}),
            );
        }
        self.remove_file(device, "does")?;
        self.put(device, "exit", &answer.status.to_string())?;
        self.put(device, "json", &format!("{body:#}"))
    }

    /// Sets the answer to `-t`.
    pub fn set_self_test_response(
        &self,
        device: &str,
        answer: &SmartctlResponse,
    ) -> io::Result<()> {
        let (name, _) = device.split_once('.').unwrap_or((device, ""));
        let mut body = answer.body.clone();
        merge(&mut body["device"], json!({"name": name, "info_name": name}));
        self.put(device, "test.exit", &answer.status.to_string())?;
        self.put(device, "test", &format!("{body:#}"))
    }

    /// Replaces the answer by a behavior: `asleep`, `hang`, `flood`, `half`, `text`, `signal SEGV`.
    pub fn set_behavior(&self, device: &str, what: &str) -> io::Result<()> {
        self.put(device, "does", what)
    }

    /// Restores the answers.
    pub fn reset_behavior(&self, device: &str) -> io::Result<()> {
        self.remove_file(device, "does")
    }

    pub fn set_version(&self, version: &str) -> io::Result<()> {
        self.put("", "version", version)
    }

    /// Sets the result of a device scan, for programs that scan: device and type of each.
    pub fn set_scan(&self, devices: &[(String, &str, &str)]) -> io::Result<()> {
        let mut body = start("", "", 0);
        let list: Vec<Value> = devices
            .iter()
            .map(|(device, kind, protocol)| json!({"name": device, "info_name": device, "type": kind, "protocol": protocol}))
            .collect();
        if let Some(body) = body.as_object_mut() {
            body.remove("device");
            body.insert("devices".into(), list.into());
        }
        self.put("", "scan.json", &body.to_string())
    }

    /// All calls: each run has a line that begins with `begin`, and a line that begins with `end`
    /// if it ended.
    pub fn calls(&self) -> Vec<String> {
        std::fs::read_to_string(self.dir.join("calls"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// The number of calls for the device with this argument (`-t`), whatever their results; an
    /// empty argument counts all calls.
    pub fn count_calls(&self, device: &str, word: &str) -> usize {
        let about = |line: &&String| {
            let mut words = line.split(' ');
            words.next() == Some("begin") && {
                let words: Vec<&str> = words.collect();
                words.iter().any(|word| word.ends_with(device))
                    && (word.is_empty() || words.contains(&word))
            }
        };
        self.calls().iter().filter(about).count()
    }

    fn put(&self, device: &str, extension: &str, text: &str) -> io::Result<()> {
        // The file is replaced atomically, because it may be read at any moment.
        let file = self.file(device, extension);
        file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let new = file.with_file_name(format!(
            ".{}.new",
            file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        ));
        std::fs::write(&new, format!("{text}\n"))?;
        std::fs::rename(&new, &file)
    }

    fn remove_file(&self, device: &str, extension: &str) -> io::Result<()> {
        match std::fs::remove_file(self.file(device, extension)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&self, device: &str, extension: &str) -> PathBuf {
        let dot = if device.is_empty() { "" } else { "." };
        self.dir.join(format!("{}{dot}{extension}", device.trim_start_matches('/')))
    }
}
