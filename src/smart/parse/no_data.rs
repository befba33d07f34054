//! Why the output has no health data: the drive is in standby, the device has no SMART, or the
//! command failed.

use crate::SmartResponse;
use crate::parse::fields::Field;
use crate::report::SmartReport;

/// smartctl(8), EXIT STATUS.
const COMMAND_LINE_ERROR: u8 = 1;
const DEVICE_OPEN_FAILED: u8 = 2;
const COMMAND_FAILED: u8 = 4;

/// None: the output is not about a drive.
pub(crate) fn classify(root: Field<'_>, report: &SmartReport) -> Option<SmartResponse> {
    let lines = message_lines(root, report);
    if let Some(mode) = lines.iter().find_map(|line| standby_mode(line)) {
        // smartctl prints this for any ATA disk that fails CHECK POWER MODE (ataprint.cpp): for one
        // in SLEEP mode, which only a reset wakes, and for a dead one.
        if mode.starts_with("SLEEP") {
            let why = "the disk does not answer CHECK POWER MODE: it is in SLEEP mode (hdparm -Y), or does not answer at all";
            return Some(SmartResponse::Failed { why: why.to_owned() });
        }
        return Some(SmartResponse::Standby { mode });
    }
    let identified = report.identity.model.is_some() || report.identity.serial.is_some();
    let asked = root.get("device").is_object()
        || identified
        || report.exit_status != 0
        || !report.messages.is_empty();
    if !asked || root.get("devices").is_some() && !root.get("device").is_object() {
        return None;
    }
    Some(
        not_applicable(report, &lines, identified)
            .unwrap_or_else(|| SmartResponse::Failed { why: failure_message(report, identified) }),
    )
}

/// The messages, and the text output if present (`--json=o`), which alone contains some reasons.
fn message_lines(root: Field<'_>, report: &SmartReport) -> Vec<String> {
    let output = root.get("smartctl").get("output").items().filter_map(Field::as_text);
    report.messages.iter().map(|message| message.text.clone()).chain(output).collect()
}

/// `Device is in STANDBY mode, exit(2)`; `STANDBY (OS)`, `SLEEP`, `IDLE_A`, … (ataprint.cpp,
/// scsiprint.cpp, smartctl.cpp).
fn standby_mode(line: &str) -> Option<String> {
    let (mode, _) = line.split_once("Device is in ")?.1.split_once(" mode")?;
    let name = mode.starts_with(|letter: char| letter.is_ascii_uppercase()) && mode.len() <= 40;
    name.then(|| mode.to_owned())
}

fn not_applicable(
    report: &SmartReport,
    lines: &[String],
    identified: bool,
) -> Option<SmartResponse> {
    let mentions = |part: &str| lines.iter().any(|line| line.to_ascii_lowercase().contains(part));
    let no_data = |why: &str, hint: Option<&str>, said_so: bool| {
        Some(SmartResponse::NotApplicable {
            why: why.to_owned(),
            hint: hint.map(str::to_owned),
            said_so,
        })
    };
    let answer = |why: &str, hint: Option<&str>| no_data(why, hint, true);
    let not_asked = |why: &str, hint: &str| no_data(why, Some(hint), false);
    if mentions("unknown usb bridge") {
        let hint = "name the bridge's protocol as device_type in a [[smart.override]] (smartctl(8), -d: sat, sntasmedia, sntjmicron, usbjmicron, …)";
        return not_asked("smartctl does not know this USB bridge", hint);
    }
    if mentions("unable to detect device type") {
        let hint = "a drive behind a RAID controller needs smartctl's -d (megaraid,N; cciss,N; areca,N): device_type in a [[smart.override]]";
        return not_asked("smartctl does not know what kind of device this is", hint);
    }
    if lines.iter().any(|line| bridge_refuses(line)) {
        let hint = "name the protocol of what lies between as device_type in a [[smart.override]] (smartctl(8), -d)";
        return not_asked(
            "a USB bridge or a controller passes no SMART commands on to the drive",
            hint,
        );
    }
    if lines.iter().any(|line| no_health_log(line)) {
        return answer("the drive does not know the NVMe health log: a virtual disk", None);
    }
    if mentions("no medium") || mentions("medium not present") {
        return answer("no medium is in this reader", None);
    }
    if mentions("enclosure") && !identified {
        return answer("this is an enclosure, not a drive", None);
    }
    if report.available == Some(true) && report.enabled == Some(false) {
        return answer(
            "SMART is switched off in this drive",
            Some("switch it on: smartctl -s on DEVICE"),
        );
    }
    let unavailable = report.available == Some(false)
        || mentions("does not support smart")
        || mentions("lacks smart capability");
    // Up to 7.2 the JSON does not contain whether SMART is supported: a device that was identified
    // and failed a command without a message has no SMART.
    let silent = report.available.is_none()
        && identified
        && report.exit_status & COMMAND_FAILED != 0
        && report.messages.is_empty();
    if unavailable || silent {
        let hint = "where this is a RAID controller's volume, its drives are asked with smartctl's -d (megaraid,N; cciss,N; …)";
        return answer(
            "this device has no SMART: a virtual disk, a RAID volume, or a bridge that passes nothing on",
            Some(hint),
        );
    }
    None
}

/// `Read Device Identity failed: scsi error unsupported scsi opcode` and similar (scsicmds.cpp,
/// scsiErrString): ILLEGAL REQUEST, which is no fault.
fn bridge_refuses(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let refused = [
        "unsupported scsi opcode",
        "unsupported field in scsi command",
        "badly formed scsi parameters",
    ];
    line.starts_with("read ")
        && line.contains("identi")
        && refused.iter().any(|words| line.contains(words))
}

/// `Read NVMe SMART/Health Information failed: NVMe Status 0x2002`, as text from 7.4 on. Generic
/// status 1 and 2, command specific status 9 (NVM Express Base 2.0, 3.3.3.2): opcode, field, log
/// page unknown. Virtual disks of clouds return this; every real drive has the log.
fn no_health_log(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let Some((_, status)) = line.split_once("smart/health information failed:") else {
        return false;
    };
    let code = status
        .split_once("0x")
        .map(|(_, digits)| digits.chars().take_while(char::is_ascii_hexdigit).collect::<String>());
    let code =
        code.and_then(|digits| u16::from_str_radix(&digits, 16).ok()).map(|field| field & 0x7ff);
    let words = ["invalid field", "invalid command opcode", "invalid opcode", "invalid log page"];
    matches!(code, Some(0x001 | 0x002 | 0x109)) || words.iter().any(|words| status.contains(words))
}

fn failure_message(report: &SmartReport, identified: bool) -> String {
    let error = report
        .messages
        .iter()
        .find(|message| message.severity == "error")
        .or_else(|| report.messages.first());
    if let Some(error) = error {
        return if report.exit_status & COMMAND_LINE_ERROR != 0 {
            format!("smartctl refused to ask: {}", error.text)
        } else {
            error.text.clone()
        };
    }
    if report.exit_status & COMMAND_LINE_ERROR != 0 {
        "smartctl refused its command line".to_owned()
    } else if report.exit_status & DEVICE_OPEN_FAILED != 0 {
        "smartctl could not open or identify the device (exit status bit 1)".to_owned()
    } else if report.exit_status & COMMAND_FAILED != 0 {
        "the drive answered none of the questions about its health (exit status bit 2)".to_owned()
    } else if identified {
        "the answer holds who the drive is and nothing of its health: ask with smartctl -a"
            .to_owned()
    } else {
        "the answer holds nothing of the drive's health".to_owned()
    }
}
