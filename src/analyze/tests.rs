//! One incident in every text form says the same.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use crate::input_source::Lines;
use crate::kernel_log_analysis::KernelLogAnalysis;
use crate::line_format;
use crate::line_format::LogLine;
use crate::log_analyzer::LogAnalyzer;

const ONE: &str = "blk_update_request: critical medium error, dev sda, sector 2048";

fn read(bytes: &[u8]) -> KernelLogAnalysis {
    let mut log = LogAnalyzer::default();
    log.read(&mut Lines::new(bytes)).unwrap();
    log.finish("x".to_owned())
}

mod framings;
mod understanding;

fn classes(text: &str) -> String {
    read(text.as_bytes())
        .classes
        .iter()
        .map(|(class, count)| format!("{count} {}", class.name()))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn every_form_is_read() {
    for prefix in [
        "",
        "kernel: ",
        "[   12.345678] ",
        "[    1.345678] [  T665] ",
        "[    1.345678][   C36] ",
        "[81.448128][   T64] ",
        "<3>[   12.345678] ",
        "kern  :err   : [   12.345678] ",
        "kern  :info  : [Feb11 09:12] [Wed Feb 11 09:12:44 2026] [T20731] ",
        "kern  :info  : [  +0.010370] ",
        "[  +0.000041] ",
        "[Apr26 15:05] ",
        "[Sun Apr 26 15:05:30 2020] ",
        "[pon sty  3 12:00:01 2022] ",
        "2023-11-08T17:30:08,185075+01:00 ",
        "Nov  7 16:01:25 host kernel: [ 6443.812345] ",
        "Nov 18 10:34:17 kernel: ",
        "set 03 13:04:29 host kernel: ",
        "May 21 10:41:52 -node-07 kernel: [66046.038162] ",
        "2023-11-08T17:30:08.185075+01:00 host kernel: [  670.825988] ",
        "2023-11-08T17:30:08+0100 host kernel: ",
        "Wed 2020-12-02 21:55:55 CET host kernel: ",
        "1606945555.868531 host kernel: ",
        "[   12.345678] host kernel: ",
        "Dec 11 06:33:19 localhost vmunix: [8440853.717635] ",
        "<3>1 2020-12-02T21:55:55.868531+01:00 host kernel - - - ",
        "<3>Nov  7 16:01:25 host kernel: ",
        "> [   12.345678] ",
        "> > Nov  7 16:01:25 host kernel: [ 6443.8] ",
        "\t[   12.345678] ",
        "6,492,22048412,-;",
        "6,492,22048412,-,caller=T1;",
        // Real-time kernels, vendors' kernels, consoles.
        "[   12.345678] 000: ",
        "Nov  7 16:01:25 host kernel: [   12.345678] 013: ",
        "[    1.345678@1] ",
        "<6>[    1.345678,0] ",
        "[   12.345678] <3>",
        "[\u{1b}[32m   12.345678\u{1b}[0m] \u{1b}[33m",
        "\u{0}\r[   12.345678] ",
        "<4>[   12.345678]  (0)[165:mmcqd/0]",
        "[   12.345678] <0>.(0)[165:mmcqd/0]",
        "[2023-10-13 02:51:30]  [   12.345678] ",
        "9218 Nov  7 16:01:25 host kernel: ",
        "Nov  7 16:01:25 host kernel: : ",
        // Other languages.
        "[  +0,000041] ",
        "[   12,345678] ",
        // A cut bracket.
        "12.345678] ",
        "   12.345678] ",
        "345678] ",
        "Apr 26 15:05:30 2020] ",
        // Facility words of BSD's and busybox' log daemons.
        "Nov  7 16:01:25 host user.info kernel: ",
        "Nov  7 16:01:25 host kern.err kernel: [   12.345678] ",
        "Thu Nov  7 16:01:25 2019 kern.warn kernel: [   12.345678] ",
        "Nov  7 16:01:25 local0.warning kernel: ",
        // netconsole, and a stamp of the receiver.
        "6.1.0-38-amd64,6,492,22048412,-;",
        "Nov  7 16:01:25 192.0.2.7 [   12.345678] ",
        "2023-11-08T17:30:08.185075+01:00 host [   12.345678] ",
        "2023-11-08T17:30:08Z [   12.345678] ",
        // grep, a list, a patch.
        "kern.log:Nov  7 16:01:25 host kernel: ",
        "/var/log/messages-20191107:Nov  7 16:01:25 host kernel: ",
        "dmesg:[   12.345678] ",
        "42:[   12.345678] ",
        "* [   12.345678] ",
        "+[   12.345678] ",
    ] {
        assert_eq!(classes(&format!("{prefix}{ONE}\n")), "1 medium", "{prefix}");
        assert_eq!(classes(&format!("{prefix}{ONE}\r\n")), "1 medium", "{prefix}");
    }
}

#[test]
fn lines_of_programs_are_not_kernel_records() {
    for prefix in [
        "Nov  7 16:01:25 host smartd[812]: ",
        "Nov  7 16:01:25 host sudo: ",
        "2023-11-08T17:30:08.185075+01:00 host forger[1]: ",
        "[   12.345678] systemd[1]: ",
        "[   12.345678] host systemd[1]: ",
        "<11>1 2020-12-02T21:55:55.868531+01:00 host kernel - - - ",
        "user  :err   : [   12.345678] ",
        "12,339,5140900,-;",
        "Nov  7 16:01:25 host logger: kernel: ",
        "Nov  7 16:01:25 host app user.info kernel: ",
        "Nov  7 16:01:25 host app: 12.3] ",
        "2023-11-08T17:30:08Z host app: [   12.345678] ",
    ] {
        assert_eq!(classes(&format!("{prefix}{ONE}\n")), "", "{prefix}");
    }
}

#[test]
fn the_source_of_a_mail_is_decoded() {
    let text = ">> [14882.173313] sd 0:2:5:0: [sdf] tag#299 FAILED Result: hostbyte=3DDID_=\n\
        >> TIME_OUT driverbyte=3DDRIVER_OK\n\
        >> [14882.173315] print_req_error: I/O error, dev sdf, sector 320283264\n";
    assert_eq!(classes(text), "1 timeout");
    // Elsewhere an equals sign is text.
    assert_eq!(classes(&format!("[    1.0] a=3D b=\n[    2.0] {ONE}\n")), "1 medium");
}

/// The verdict over a log of I/O errors without a cause: `count` sectors of sda, `pause` seconds
/// apart, after `before`.
fn fault_of_plain_errors(before: &str, count: u64, pause: u64, device: &str) -> String {
    let mut text = before.to_owned();
    for n in 0..count {
        text.push_str(&format!(
            "[{:5}.000000] blk_update_request: I/O error, dev {device}, sector {}\n",
            100 + n * pause,
            2048 + n * 8
        ));
    }
    let answer = read(text.as_bytes());
    let found = answer.devices.iter().find(|found| found.device == device);
    let found = found.expect("a device with errors");
    format!("{:?}: {}", found.drive_fault, found.fault_reason)
}

#[test]
fn plain_errors_in_many_sectors_over_time_are_evidence_unless_something_else_explains_them() {
    let evidence = "Yes: I/O errors in many sectors over time, and no other cause in the log";
    let unclear = "Unclear: no record names the cause of the errors";
    assert_eq!(fault_of_plain_errors("", 8, 3, "sda"), evidence);
    // Too few; all at once, as after a removal.
    assert_eq!(fault_of_plain_errors("", 7, 3, "sda"), unclear);
    assert_eq!(fault_of_plain_errors("", 100, 0, "sda"), unclear);
    let unplugged = "[   90.000000] usb 1-2: USB disconnect, device number 3\n";
    assert_eq!(fault_of_plain_errors(unplugged, 8, 3, "sda"), unclear);
    let neighbour = "[   95.000000] blk_update_request: I/O error, dev sdb, sector 8\n";
    assert_eq!(fault_of_plain_errors(neighbour, 8, 3, "sda"), unclear);
    let bridge = "[    1.000000] scsi host6: usb-storage 1-2:1.0\n\
                  [    2.000000] sd 6:0:0:0: [sda] Attached SCSI disk\n";
    let between = "Unclear: a bridge, a network or a hypervisor is in between";
    assert_eq!(fault_of_plain_errors(bridge, 8, 3, "sda"), between);
    let guest = "[    0.000000] Hypervisor detected: KVM\n";
    assert_eq!(fault_of_plain_errors(guest, 8, 3, "sda"), between);
    assert_eq!(fault_of_plain_errors("", 8, 3, "vda"), between);
    assert_eq!(fault_of_plain_errors("", 8, 3, "md0"), "No: a device on top of others");
}

#[test]
fn wrapped_lines_are_joined_if_only_the_whole_has_a_meaning() {
    for (text, expected) in [
        (
            "[   12.345678] blk_update_request: critical medium error, dev sda,\nsector 2048\n",
            "1 medium",
        ),
        (
            "[   12.345678] sd 2:0:0:0: [sdb] tag#3 Sense Key : Medium Error\n[current] \n",
            "1 medium",
        ),
        (
            "2016-05-04T16:33:19.340488-04:00 h kernel: [1096660.950836] x\n\
             2016-05-04T16:33:19.340489-04:00 h kernel: [1096660.950848]\n\
             end_request: critical medium error, dev sdb, sector 1405497457\n",
            "1 medium",
        ),
        // A record that has a meaning keeps its lines.
        (
            "[   12.345678] md/raid1:md0: Disk failure on sdb1, disabling device.\nmd/raid1:md0: Operation continuing on 1 devices.\n",
            "1 removed",
        ),
        (
            "[   12.345678] x: segfault at 0 ip 0 sp 0 error 6 in x,\nI/O error, dev sda, sector 2048\n",
            "",
        ),
    ] {
        assert_eq!(classes(text), expected, "{text}");
    }
}

/// The kernel prints the result on a second line, which has no header in a console's log.
#[test]
fn an_unstamped_result_belongs_to_the_ata_command_before_it() {
    let text = "[   12.3] ata3.00: exception Emask 0x0 SAct 0x100000 SErr 0x0 action 0x0\n\
        [   12.3] ata3.00: failed command: READ FPDMA QUEUED\n\
        [   12.3] ata3.00: cmd 60/08:a0:d0:07:00/00:00:00:00:00/40 tag 20 ncq 4096 in\n\
        \u{20}        res 41/40:00:d0:07:00/00:00:00:00:00/40 Emask 0x409 (media error) <F>\n\
        [   12.4] ata3: EH complete\n";
    let answer = read(text.as_bytes());
    assert_eq!(
        (classes(text).as_str(), answer.devices[0].device.as_str()),
        ("1 medium", "ata3.00")
    );
}

#[test]
fn journald_exports_its_records_in_two_forms() {
    let json = format!(
        r#"{{"_TRANSPORT":"kernel","MESSAGE":"{ONE}","_SOURCE_MONOTONIC_TIMESTAMP":"123","_BOOT_ID":"a"}}"#
    );
    assert_eq!(classes(&json), "1 medium");
    assert_eq!(classes(&json.replace("kernel", "syslog")), "");
    let bytes: Vec<String> = ONE.bytes().map(|byte| byte.to_string()).collect();
    assert_eq!(
        classes(&format!(r#"{{"_TRANSPORT":"kernel","MESSAGE":[{}]}}"#, bytes.join(","))),
        "1 medium"
    );
    let export = |transport: &str| {
        format!(
            "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1\n_BOOT_ID=a\n_TRANSPORT={transport}\nMESSAGE={ONE}\n\n__CURSOR=s=2\n_TRANSPORT=kernel\nMESSAGE=x\n\n"
        )
    };
    assert_eq!(classes(&export("kernel")), "1 medium");
    assert_eq!(classes(&export("syslog")), "");
    let mut binary = b"__CURSOR=s=1\n_TRANSPORT=kernel\nMESSAGE\n".to_vec();
    binary.extend_from_slice(&(ONE.len() as u64).to_le_bytes());
    binary.extend_from_slice(ONE.as_bytes());
    binary.extend_from_slice(b"\n_BOOT_ID=a\n\n");
    assert_eq!(read(&binary).classes.len(), 1);
}

#[test]
fn multi_line_records_are_read_also_with_rsyslog_escapes() {
    let begin = "[1.1] ata1.00: exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x0\n[1.2] ata1.00: failed command: READ FPDMA QUEUED\n[1.3] ata1.00: cmd 60/08:00:00:00:00/00:00:00:00:00/40 tag 0 ncq dma 4096 in";
    let end = "res 41/40:00:00:00:00/00:00:00:00:00/00 Emask 0x409 (media error) <F>\n";
    for between in
        ["\n         ", "\n[1.3]          ", "#012         ", "\\x0a         ", "\\x0a\n> ", "\n> "]
    {
        assert_eq!(classes(&format!("{begin}{between}{end}")), "1 medium", "{between:?}");
    }
}

#[test]
fn a_line_without_the_logs_prefix_continues_a_record() {
    for (text, expected) in [
        (format!("{ONE}\n{ONE}\n"), "2 medium"),
        (format!("[1.0] x\n{ONE}\n[2.0] y\n"), ""),
        (format!("{ONE}\n[1.0] x\n"), ""),
        (format!("Nov  7 16:01:25 host sshd[812]: x\n{ONE}\n"), ""),
        (format!("[1.0] x#012{ONE}\n"), ""),
        (format!("[1.0] x\n{ONE}\n[2.0] {ONE}\n"), "1 medium"),
    ] {
        assert_eq!(classes(&text), expected, "{text}");
    }
}

/// Readers of syslog(2) put the time in front of each line of a record.
#[test]
fn a_name_with_line_breaks_that_a_reader_has_split_is_no_record() {
    let crash = "a[7]: segfault at 0 ip 0000559e sp 00007ffc error 6 in ";
    for (text, expected) in [
        (format!("[1.5] {crash}b\n[1.5] {ONE}[559e+1000]\n[2.5] y\n"), ""),
        (
            format!(
                "[1.5] {crash}b[1+1]\n[1.5] {ONE}\n[1.5] c[1,559e+1000] likely on CPU 1 (core 1, socket 0)\n"
            ),
            "",
        ),
        (
            format!(
                "Nov  7 16:01:25 h kernel: {crash}b[559e+1000]\nNov  7 16:01:25 h kernel: {ONE}\n"
            ),
            "1 medium",
        ),
        (format!("[1.5] {crash}b[559e+1000]\n[1.6] {ONE}\n"), "1 medium"),
        (format!("[1.5] tmpfs: Unknown parameter 'a\n[1.5] {ONE}\n[1.5] b'\n"), ""),
    ] {
        assert_eq!(classes(&text), expected, "{text}");
    }
}

#[test]
fn device_names_are_reset_at_each_boot() {
    let boots = |between: &str| {
        format!(
            "[100.5] scsi host6: usb-storage 1-1:1.0\n[101.5] sd 6:0:0:0: [sda] Attached SCSI disk\n{between}[0.5] critical medium error, dev sda, sector 8 op 0x0:(READ) flags 0x0\n"
        )
    };
    for between in ["-- Boot 3f2b --\n", "-- Reboot --\n", "[0.0] Linux version 6.1.0\n", ""] {
        let answer = read(boots(between).as_bytes());
        assert_eq!(
            answer.devices[0].drive_fault,
            diskvitals_kernel_log::fault::DriveFault::Yes,
            "{between:?}"
        );
    }
}

#[test]
fn junk_long_lines_and_invalid_encodings_are_skipped() {
    let mut text = vec![b'x'; 3 << 20];
    text.push(b'\n');
    text.extend((0..=255_u8).cycle().take(100_000));
    text.extend_from_slice(b"\n\xff\xfe[1.0] ");
    text.extend_from_slice(ONE.as_bytes());
    text.extend_from_slice(b"\n[1.0] \xe4\xf6\n[2.0] ");
    text.extend_from_slice(ONE.as_bytes());
    assert_eq!(read(&text).classes.len(), 1);
}

#[test]
fn a_packed_file_is_unpacked() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(format!("[1.0] {ONE}\n").as_bytes()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), packed.finish().unwrap()).unwrap();
    let answer = crate::kernel_log(&crate::InputSource::File(file.path().to_owned())).unwrap();
    assert_eq!(answer.classes.len(), 1);
}

#[test]
fn the_analysis_has_the_documented_shape() {
    let answer = read(format!("[1.0] {ONE}\n").as_bytes());
    insta::assert_snapshot!(serde_json::to_string(&answer).unwrap(), @r#"{"file":"x","health":"errors","records":1,"linesNotUnderstood":0,"classes":{"medium":1},"driveFault":"yes","devices":[{"device":"sda","classes":{"medium":1},"driveFault":"yes","faultReason":"the drive reports that its medium or hardware failed","distinctSectors":1,"suppressed":0}],"events":[{"line":1,"class":"medium","device":"sda","text":"blk_update_request: critical medium error, dev sda, sector 2048"}]}"#);
    insta::assert_snapshot!(serde_json::to_string(&read(b"[1.0] Linux is up\n")).unwrap(), @r#"{"file":"x","health":"clean","records":1,"linesNotUnderstood":0,"classes":{},"driveFault":"no","devices":[],"events":[]}"#);
}

#[test]
fn times_are_read_where_there_are_any() {
    let time = |line: &str| match line_format::parse_line(line) {
        LogLine::Kernel { kernel_time, wall, .. } => kernel_time.or(wall),
        _ => None,
    };
    assert_eq!(time("[   12.345678] x"), Some(12_345_678));
    assert_eq!(
        time("Nov  7 16:01:25 host kernel: x"),
        Some((((7 * 24 + 16) * 60 + 1) * 60 + 25) * 1_000_000)
    );
    assert_eq!(time("x"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        read(&bytes);
    }

    #[test]
    fn no_line_makes_the_forms_panic(line in "(\\[|<[0-9]|kern :|Nov 7 |2020-12-02T|kernel|\\PC){0,20}") {
        let _ = line_format::parse_line(&line);
    }

    /// How the bytes arrive does not matter.
    #[test]
    fn chunked_input_gives_the_same_result(size in 1_usize..50) {
        let text = format!("[1.0] {ONE}\r\n\n[2.0] x\n6,1,2,-;{ONE}\n SUBSYSTEM=scsi\n");
        let mut log = LogAnalyzer::default();
        log.read(&mut Lines::new(std::io::BufReader::with_capacity(size, text.as_bytes()))).unwrap();
        prop_assert_eq!(serde_json::to_string(&log.finish("x".to_owned())).unwrap(), serde_json::to_string(&read(text.as_bytes())).unwrap());
    }
}
